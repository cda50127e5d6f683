//! The swarm's own sources, and a network for them that delays, stalls, cuts and resets ([`world`]).

#[path = "../../../node/src/edges/network.rs"]
pub mod network;
#[path = "../../../node/src/edges/swarm/mod.rs"]
pub mod swarm;
pub mod world;
