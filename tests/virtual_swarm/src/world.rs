//! The network of a virtual world. Every connection is a pair of pipes between dialler and listener. A chunk of bytes takes its time,
//! order is kept as TCP keeps it, a lost segment is one that comes much later and holds up what is behind it. Between nodes
//! that are cut off from each other nothing passes, and nothing is said about it. Everything is drawn from the seed by what it is
//! about, not by when it is asked for.

use std::collections::BTreeSet;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use libp2p::core::ConnectedPoint;
use libp2p::core::transport::{MemoryTransport, Transport};
use libp2p::multiaddr::{Multiaddr, Protocol};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadBuf};
use tokio::sync::mpsc;
use tokio::time::Instant;
use xxhash_rust::xxh3::xxh3_64;

use crate::swarm::settings::Settings;
use crate::swarm::transport::{Secured, secure};

/// How bad the network is.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// Least and most time that a chunk takes.
    pub delay: (Duration, Duration),
    /// Chunks that are lost at first and come later, in thousandths.
    pub loss: u64,
    /// How much later those come.
    pub retransmission: Duration,
    /// Connections that are reset with each chunk, in hundred-thousandths.
    pub resets: u64,
}

struct State {
    connections: u64,
    cut: BTreeSet<(u64, u64)>,
    calm: bool,
}

/// The network.
pub struct World {
    seed: u64,
    /// Node `n` listens at the memory port `base + n`.
    base: u64,
    weather: Weather,
    state: Mutex<State>,
}

/// Bytes that are under way in one direction of a connection.
const PIPE_BYTES: usize = 64 << 10;
const CHUNK_BYTES: usize = 4 << 10;
/// How often a pipe looks whether the cut has healed.
const LOOK_EVERY: Duration = Duration::from_millis(10);

impl World {
    /// A world with the memory ports from `base` on.
    pub fn new(seed: u64, base: u64, weather: Weather) -> Arc<World> {
        let state = State { connections: 0, cut: BTreeSet::new(), calm: false };
        Arc::new(World { seed, base, weather, state: Mutex::new(state) })
    }

    /// Where a node listens.
    pub fn address(&self, node: u64) -> Multiaddr {
        Multiaddr::empty().with(Protocol::Memory(self.base + node))
    }

    /// Cuts two nodes off from each other, or joins them again.
    pub fn cut(&self, one: u64, other: u64, cut: bool) {
        let pair = (one.min(other), one.max(other));
        let mut state = self.state.lock().unwrap();
        if cut {
            state.cut.insert(pair)
        } else {
            state.cut.remove(&pair)
        };
    }

    /// Ends all faults but delay.
    pub fn calm(&self) {
        let mut state = self.state.lock().unwrap();
        state.calm = true;
        state.cut.clear();
    }

    fn is_cut(&self, one: u64, other: u64) -> bool {
        self.state.lock().unwrap().cut.contains(&(one.min(other), one.max(other)))
    }

    fn is_calm(&self) -> bool {
        self.state.lock().unwrap().calm
    }

    /// A number that depends on nothing but the seed and what it is for.
    fn draw(&self, what: &str, connection: u64, chunk: u64) -> u64 {
        let mut key = Vec::with_capacity(64);
        for number in [self.seed, connection, chunk] {
            key.extend_from_slice(&number.to_le_bytes());
        }
        key.extend_from_slice(what.as_bytes());
        xxh3_64(&key)
    }

    /// The transport of node `me`: memory, through this network, then everything that the product has over TCP.
    pub fn transport(self: &Arc<World>, me: u64, settings: &Settings) -> io::Result<Secured> {
        let world = Arc::clone(self);
        let raw = MemoryTransport::default().map(move |socket, point| match point {
            ConnectedPoint::Dialer { address, .. } => {
                let to = match address.iter().next() {
                    Some(Protocol::Memory(port)) => port - world.base,
                    _ => u64::MAX,
                };
                world.connect(me, to, Box::pin(socket))
            }
            // The dialler's side does it for both directions.
            ConnectedPoint::Listener { .. } => Pipe::Direct(Box::pin(socket)),
        });
        secure(raw, settings)
    }

    fn connect(self: &Arc<World>, from: u64, to: u64, socket: Direct) -> Pipe {
        let connection = {
            let mut state = self.state.lock().unwrap();
            state.connections += 1;
            state.connections
        };
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        let (near_read, near_write) = tokio::io::split(theirs);
        let (far_read, far_write) = socket.split();
        let there = Way { world: Arc::clone(self), from, to, id: connection * 2 };
        let back = Way { world: Arc::clone(self), from: to, to: from, id: connection * 2 + 1 };
        tokio::spawn(async move {
            let (sender, receiver) = mpsc::channel(16);
            let (back_sender, back_receiver) = mpsc::channel(16);
            // When one part ends, all do: the connection is gone.
            tokio::select! {
                biased;
                _ = there.take(near_read, sender) => {}
                _ = there.give_far(receiver, far_write) => {}
                _ = back.take_far(far_read, back_sender) => {}
                _ = back.give(back_receiver, near_write) => {}
            }
        });
        Pipe::Through(ours)
    }
}

type Direct = Pin<Box<dyn Duplex>>;

/// Reads and writes.
pub trait Duplex: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Duplex for T {}

/// One direction of a connection.
struct Way {
    world: Arc<World>,
    from: u64,
    to: u64,
    id: u64,
}

type Chunk = (Instant, Vec<u8>);

impl Way {
    /// When a chunk that is sent now arrives; `None` if the connection is reset instead.
    fn arrival(&self, number: u64) -> Option<Instant> {
        let world = &self.world;
        let (least, most) = world.weather.delay;
        let span = (most - least).as_micros().max(1) as u64;
        let mut delay = least + Duration::from_micros(world.draw("delay", self.id, number) % span);
        if !world.is_calm() {
            if world.draw("reset", self.id, number) % 100_000 < world.weather.resets {
                return None;
            }
            if world.draw("loss", self.id, number) % 1_000 < world.weather.loss {
                delay += world.weather.retransmission;
            }
        }
        Some(Instant::now() + delay)
    }

    async fn take(&self, mut from: tokio::io::ReadHalf<DuplexStream>, to: mpsc::Sender<Chunk>) {
        let mut bytes = vec![0; CHUNK_BYTES];
        for number in 0.. {
            let Ok(read @ 1..) = from.read(&mut bytes).await else { return };
            let Some(arrival) = self.arrival(number) else { return };
            if to.send((arrival, bytes[..read].to_vec())).await.is_err() {
                return;
            }
        }
    }

    async fn take_far(&self, mut from: futures_util::io::ReadHalf<Direct>, to: mpsc::Sender<Chunk>) {
        let mut bytes = vec![0; CHUNK_BYTES];
        for number in 0.. {
            let Ok(read @ 1..) = from.read(&mut bytes).await else { return };
            let Some(arrival) = self.arrival(number) else { return };
            if to.send((arrival, bytes[..read].to_vec())).await.is_err() {
                return;
            }
        }
    }

    async fn give(&self, mut from: mpsc::Receiver<Chunk>, mut to: tokio::io::WriteHalf<DuplexStream>) {
        while let Some((arrival, bytes)) = from.recv().await {
            self.hold(arrival).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    }

    async fn give_far(&self, mut from: mpsc::Receiver<Chunk>, mut to: futures_util::io::WriteHalf<Direct>) {
        while let Some((arrival, bytes)) = from.recv().await {
            self.hold(arrival).await;
            if to.write_all(&bytes).await.is_err() || to.flush().await.is_err() {
                return;
            }
        }
    }

    async fn hold(&self, arrival: Instant) {
        tokio::time::sleep_until(arrival).await;
        while self.world.is_cut(self.from, self.to) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// A socket of this world.
pub enum Pipe {
    /// As it is.
    Direct(Direct),
    /// Through the weather.
    Through(DuplexStream),
}

impl AsyncRead for Pipe {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Pipe::Direct(socket) => socket.as_mut().poll_read(context, bytes),
            Pipe::Through(socket) => {
                let mut buffer = ReadBuf::new(bytes);
                let polled = tokio::io::AsyncRead::poll_read(Pin::new(socket), context, &mut buffer);
                polled.map_ok(|()| buffer.filled().len())
            }
        }
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Pipe::Direct(socket) => socket.as_mut().poll_write(context, bytes),
            Pipe::Through(socket) => tokio::io::AsyncWrite::poll_write(Pin::new(socket), context, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Pipe::Direct(socket) => socket.as_mut().poll_flush(context),
            Pipe::Through(socket) => tokio::io::AsyncWrite::poll_flush(Pin::new(socket), context),
        }
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Pipe::Direct(socket) => socket.as_mut().poll_close(context),
            Pipe::Through(socket) => tokio::io::AsyncWrite::poll_shutdown(Pin::new(socket), context),
        }
    }
}
