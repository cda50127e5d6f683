//! What surrounds the crawler: the web it crawls, and for a whole cluster the plan of a run with its network, disks and
//! clocks, and the trace of what happened.

pub mod clock;
pub(crate) mod definers;
pub mod disk;
pub(crate) mod generators;
pub mod graph;
pub mod network;
pub mod oracle;
pub mod origins;
pub mod plan;
pub mod random;
pub mod server;
pub mod sights;
pub mod sites;
pub mod trace;
pub mod web;
