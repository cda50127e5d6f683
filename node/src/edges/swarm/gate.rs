//! The gate: a part of the libp2p behaviour that lets connections in or not. Before a peer has proved who it is, one address may
//! try only a few times at once, so that a flood from one place leaves room for the others; after that the roster decides.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use libp2p::core::Endpoint;
use libp2p::core::transport::PortUse;
use libp2p::multiaddr::Protocol;
use libp2p::swarm::dummy::ConnectionHandler;
use libp2p::swarm::{
    ConnectionDenied, ConnectionId, FromSwarm, NetworkBehaviour, THandler, THandlerInEvent, THandlerOutEvent, ToSwarm,
};
use libp2p::{Multiaddr, PeerId};
use tokio::time::Instant;

use super::refusal::Refusal;
use super::roster::Roster;

/// Connections of one address that have not proved who they are.
pub(super) const PENDING_PER_ADDRESS_MAX: usize = 16;

/// A refusal, as libp2p passes it on.
#[derive(Debug, thiserror::Error)]
#[error("refused: {}", .0.name())]
pub(super) struct Denied(pub(super) Refusal);

/// The gate.
pub(super) struct Gate {
    roster: Arc<Roster>,
    pending: BTreeMap<ConnectionId, IpAddr>,
}

impl Gate {
    pub(super) fn new(roster: Arc<Roster>) -> Gate {
        Gate { roster, pending: BTreeMap::new() }
    }

    fn judge(&self, peer: &PeerId) -> Result<ConnectionHandler, ConnectionDenied> {
        match self.roster.judge(peer, Instant::now()) {
            Ok(()) => Ok(ConnectionHandler),
            Err(refusal) => Err(ConnectionDenied::new(Denied(refusal))),
        }
    }
}

/// The IP address in a multiaddress.
pub(super) fn ip_of(address: &Multiaddr) -> Option<IpAddr> {
    address.iter().find_map(|part| match part {
        Protocol::Ip4(address) => Some(IpAddr::V4(address)),
        Protocol::Ip6(address) => Some(IpAddr::V6(address)),
        _ => None,
    })
}

impl NetworkBehaviour for Gate {
    type ConnectionHandler = ConnectionHandler;
    type ToSwarm = Infallible;

    fn handle_pending_inbound_connection(
        &mut self,
        connection: ConnectionId,
        _local: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<(), ConnectionDenied> {
        let Some(address) = ip_of(remote) else { return Ok(()) };
        if self.pending.values().filter(|pending| **pending == address).count() >= PENDING_PER_ADDRESS_MAX {
            return Err(ConnectionDenied::new(Denied(Refusal::Connections)));
        }
        self.pending.insert(connection, address);
        Ok(())
    }

    fn handle_established_inbound_connection(
        &mut self,
        _connection: ConnectionId,
        peer: PeerId,
        _local: &Multiaddr,
        _remote: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.judge(&peer)
    }

    fn handle_established_outbound_connection(
        &mut self,
        _connection: ConnectionId,
        peer: PeerId,
        _address: &Multiaddr,
        _role: Endpoint,
        _port: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.judge(&peer)
    }

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        match event {
            FromSwarm::ConnectionEstablished(established) => self.pending.remove(&established.connection_id),
            FromSwarm::ListenFailure(failure) => self.pending.remove(&failure.connection_id),
            _ => None,
        };
    }

    fn on_connection_handler_event(&mut self, _peer: PeerId, _: ConnectionId, event: THandlerOutEvent<Self>) {
        match event {}
    }

    fn poll(&mut self, _: &mut Context<'_>) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        Poll::Pending
    }
}
