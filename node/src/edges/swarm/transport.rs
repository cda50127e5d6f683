//! The way from a socket to authenticated streams: the swarm key first (pnet), then who it is (noise), then many streams in one (yamux).
//! pnet encrypts and does not authenticate: a wrong key is noticed by the bytes after it making no sense. It is a cheap outer
//! fence; the roster is the real one.

use std::io;
use std::net::TcpListener;

use futures_util::TryFutureExt;
use libp2p::core::muxing::StreamMuxerBox;
use libp2p::core::transport::Boxed;
use libp2p::core::upgrade::Version;
use libp2p::multiaddr::Protocol;
use libp2p::pnet::PnetConfig;
use libp2p::{Multiaddr, PeerId, Transport, dns, noise, tcp, yamux};

use super::gate::ip_of;
use super::settings::Settings;

/// Streams of one connection at once. Each may hold a window of 256 KiB that nobody has read yet; windows grow only with what is read.
const STREAMS_MAX: usize = 64;

/// A ready transport.
pub type Secured = Boxed<(PeerId, StreamMuxerBox)>;

/// TCP, with names looked up.
pub(super) fn over_tcp(settings: &Settings) -> io::Result<Secured> {
    let tcp = tcp::tokio::Transport::new(tcp::Config::new().nodelay(true));
    let named = dns::tokio::Transport::system(tcp)?;
    secure(named, settings)
}

/// Says whether an address can be listened at. libp2p shares the ports it listens at, so that two nodes with the same port in their
/// configuration would both start, and each get half of the connections.
pub(super) fn probe(address: &Multiaddr) -> io::Result<()> {
    let port = address.iter().find_map(|part| match part {
        Protocol::Tcp(port) => Some(port),
        _ => None,
    });
    match (ip_of(address), port) {
        (Some(ip), Some(port)) if port > 0 => TcpListener::bind((ip, port)).map(drop),
        _ => Ok(()),
    }
}

/// Puts keys, identity and streams over any transport of bytes.
pub fn secure<T>(raw: T, settings: &Settings) -> io::Result<Secured>
where
    T: Transport + Send + Unpin + 'static,
    T::Output: futures_util::AsyncRead + futures_util::AsyncWrite + Send + Unpin + 'static,
    T::Error: Send + Sync + 'static,
    T::Dial: Send + 'static,
    T::ListenerUpgrade: Send + 'static,
{
    let fence = PnetConfig::new(settings.key.pre_shared());
    let noise = noise::Config::new(settings.identity.key()).map_err(io::Error::other)?;
    let mut yamux = yamux::Config::default();
    yamux.set_max_num_streams(STREAMS_MAX);
    let fenced = raw.and_then(move |socket, _| fence.handshake(socket).map_err(io::Error::other));
    let upgraded = fenced.upgrade(Version::V1).authenticate(noise).multiplex(yamux);
    Ok(upgraded.timeout(settings.times.handshake).boxed())
}
