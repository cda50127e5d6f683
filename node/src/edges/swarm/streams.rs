//! Streams of our protocols: a part of the libp2p behaviour that opens them on request and hands over those that peers open.
//! What is said on them is not its business.
//!
//! (The crate `libp2p-stream` does the same and is not used: it drops a stream when two come at once, picks a connection by chance, and
//! forgets no connection.)

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use libp2p::core::Endpoint;
use libp2p::core::transport::PortUse;
use libp2p::core::upgrade::{InboundUpgrade, OutboundUpgrade, UpgradeInfo};
use libp2p::swarm::handler::{ConnectionEvent, DialUpgradeError, FullyNegotiatedInbound, FullyNegotiatedOutbound};
use libp2p::swarm::{
    ConnectionDenied, ConnectionHandler, ConnectionHandlerEvent, ConnectionId, FromSwarm, NetworkBehaviour,
    NotifyHandler, Stream, StreamProtocol, StreamUpgradeError, SubstreamProtocol, THandler, THandlerInEvent,
    THandlerOutEvent, ToSwarm,
};
use libp2p::{Multiaddr, PeerId};
use proto::id::ClusterId;
use tokio::sync::oneshot;

/// What a stream is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Purpose {
    /// Letters, one way.
    Letters,
    /// A control request and its answer.
    Control,
    /// Content in bulk.
    Bulk,
}

impl Purpose {
    const ALL: [Purpose; 3] = [Purpose::Letters, Purpose::Control, Purpose::Bulk];

    fn name(self) -> &'static str {
        match self {
            Purpose::Letters => "letters",
            Purpose::Control => "control",
            Purpose::Bulk => "bulk",
        }
    }
}

/// The protocols of a cluster, by purpose. The number is that of the hello; what follows it is agreed there.
fn protocols(cluster: ClusterId) -> Arc<[(Purpose, StreamProtocol)]> {
    let protocol = |purpose: Purpose| {
        let name = format!("/orbweaver/{cluster}/{}/1", purpose.name());
        (purpose, StreamProtocol::try_from_owned(name).expect("it begins with a slash"))
    };
    Purpose::ALL.into_iter().map(protocol).collect()
}

/// Why a stream was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The peer is not connected, or is no longer.
    #[error("the peer is not connected")]
    Unconnected,
    /// The peer does not have the protocol: it is of another cluster, or older.
    #[error("the peer does not speak the protocol of this cluster")]
    Unsupported,
    /// The peer did not answer.
    #[error("the peer did not answer in time")]
    Timeout,
    /// The connection failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

type Reply = oneshot::Sender<Result<Stream, OpenError>>;

/// A stream that a peer opened.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) peer: PeerId,
    pub(super) purpose: Purpose,
    pub(super) stream: Stream,
}

/// A stream that is to be opened.
#[derive(Debug)]
pub(super) struct Open {
    purpose: Purpose,
    reply: Reply,
}

/// The behaviour.
pub(super) struct Streams {
    protocols: Arc<[(Purpose, StreamProtocol)]>,
    /// The connections of each peer, oldest first.
    connections: BTreeMap<PeerId, Vec<ConnectionId>>,
    /// A protocol must be agreed on within so long.
    timeout: Duration,
    events: VecDeque<ToSwarm<Opened, Open>>,
}

impl Streams {
    pub(super) fn new(cluster: ClusterId, timeout: Duration) -> Streams {
        Streams { protocols: protocols(cluster), connections: BTreeMap::new(), timeout, events: VecDeque::new() }
    }

    /// Opens a stream on the youngest connection: an older one may be dead without knowing it.
    pub(super) fn open(&mut self, peer: PeerId, purpose: Purpose, reply: Reply) {
        match self.connections.get(&peer).and_then(|connections| connections.last()) {
            Some(connection) => self.events.push_back(ToSwarm::NotifyHandler {
                peer_id: peer,
                handler: NotifyHandler::One(*connection),
                event: Open { purpose, reply },
            }),
            None => {
                let _ = reply.send(Err(OpenError::Unconnected));
            }
        }
    }

    fn handler(&self) -> Handler {
        Handler { protocols: Arc::clone(&self.protocols), timeout: self.timeout, events: VecDeque::new() }
    }
}

impl NetworkBehaviour for Streams {
    type ConnectionHandler = Handler;
    type ToSwarm = Opened;

    fn handle_established_inbound_connection(
        &mut self,
        _connection: ConnectionId,
        _peer: PeerId,
        _local: &Multiaddr,
        _remote: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        Ok(self.handler())
    }

    fn handle_established_outbound_connection(
        &mut self,
        _connection: ConnectionId,
        _peer: PeerId,
        _address: &Multiaddr,
        _role: Endpoint,
        _port: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        Ok(self.handler())
    }

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        match event {
            FromSwarm::ConnectionEstablished(established) => {
                self.connections.entry(established.peer_id).or_default().push(established.connection_id);
            }
            FromSwarm::ConnectionClosed(closed) => {
                if let Some(connections) = self.connections.get_mut(&closed.peer_id) {
                    connections.retain(|connection| *connection != closed.connection_id);
                    if connections.is_empty() {
                        self.connections.remove(&closed.peer_id);
                    }
                }
            }
            _ => {}
        }
    }

    fn on_connection_handler_event(&mut self, peer: PeerId, _: ConnectionId, event: THandlerOutEvent<Self>) {
        let (purpose, stream) = event;
        self.events.push_back(ToSwarm::GenerateEvent(Opened { peer, purpose, stream }));
    }

    fn poll(&mut self, _: &mut Context<'_>) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        // Whoever adds an event does so from within the swarm, which polls again.
        self.events.pop_front().map_or(Poll::Pending, Poll::Ready)
    }
}

/// The streams of one connection.
pub(super) struct Handler {
    protocols: Arc<[(Purpose, StreamProtocol)]>,
    timeout: Duration,
    events: VecDeque<ConnectionHandlerEvent<Upgrade, Reply, (Purpose, Stream)>>,
}

impl ConnectionHandler for Handler {
    type FromBehaviour = Open;
    type ToBehaviour = (Purpose, Stream);
    type InboundProtocol = Upgrade;
    type OutboundProtocol = Upgrade;
    type InboundOpenInfo = ();
    type OutboundOpenInfo = Reply;

    fn listen_protocol(&self) -> SubstreamProtocol<Upgrade> {
        SubstreamProtocol::new(Upgrade { protocols: self.protocols.to_vec() }, ()).with_timeout(self.timeout)
    }

    fn on_behaviour_event(&mut self, open: Open) {
        let protocols = self.protocols.iter().filter(|(purpose, _)| *purpose == open.purpose).cloned().collect();
        let protocol = SubstreamProtocol::new(Upgrade { protocols }, open.reply).with_timeout(self.timeout);
        self.events.push_back(ConnectionHandlerEvent::OutboundSubstreamRequest { protocol });
    }

    fn on_connection_event(&mut self, event: ConnectionEvent<'_, Upgrade, Upgrade, (), Reply>) {
        match event {
            ConnectionEvent::FullyNegotiatedInbound(FullyNegotiatedInbound { protocol, .. }) => {
                self.events.push_back(ConnectionHandlerEvent::NotifyBehaviour(protocol));
            }
            ConnectionEvent::FullyNegotiatedOutbound(FullyNegotiatedOutbound { protocol: (_, stream), info }) => {
                let _ = info.send(Ok(stream)); // whoever asked may have lost interest
            }
            ConnectionEvent::DialUpgradeError(DialUpgradeError { info, error }) => {
                let error = match error {
                    StreamUpgradeError::Timeout => OpenError::Timeout,
                    StreamUpgradeError::NegotiationFailed => OpenError::Unsupported,
                    StreamUpgradeError::Io(error) => OpenError::Io(error),
                    StreamUpgradeError::Apply(never) => match never {},
                };
                let _ = info.send(Err(error));
            }
            _ => {}
        }
    }

    fn poll(
        &mut self,
        _: &mut Context<'_>,
    ) -> Poll<ConnectionHandlerEvent<Self::OutboundProtocol, Self::OutboundOpenInfo, Self::ToBehaviour>> {
        self.events.pop_front().map_or(Poll::Pending, Poll::Ready)
    }
}

/// Agrees on one of the protocols and leaves the stream as it is.
#[derive(Debug)]
pub(super) struct Upgrade {
    protocols: Vec<(Purpose, StreamProtocol)>,
}

/// A protocol's name and what it is for.
#[derive(Clone, Debug)]
pub(super) struct Named(Purpose, StreamProtocol);

impl AsRef<str> for Named {
    fn as_ref(&self) -> &str {
        self.1.as_ref()
    }
}

impl UpgradeInfo for Upgrade {
    type Info = Named;
    type InfoIter = std::vec::IntoIter<Named>;

    fn protocol_info(&self) -> Self::InfoIter {
        let named: Vec<Named> = self.protocols.iter().map(|(purpose, name)| Named(*purpose, name.clone())).collect();
        named.into_iter()
    }
}

impl InboundUpgrade<Stream> for Upgrade {
    type Output = (Purpose, Stream);
    type Error = Infallible;
    type Future = Ready<Result<Self::Output, Infallible>>;

    fn upgrade_inbound(self, stream: Stream, named: Named) -> Self::Future {
        ready(Ok((named.0, stream)))
    }
}

impl OutboundUpgrade<Stream> for Upgrade {
    type Output = (Purpose, Stream);
    type Error = Infallible;
    type Future = Ready<Result<Self::Output, Infallible>>;

    fn upgrade_outbound(self, stream: Stream, named: Named) -> Self::Future {
        ready(Ok((named.0, stream)))
    }
}
