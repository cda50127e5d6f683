//! The only code that touches the outside.

pub mod backup;
pub mod clock;
pub mod contents;
pub mod cores;
pub mod decode;
pub mod disk;
pub mod dns;
pub mod guard;
pub mod http;
pub mod load;
pub mod mapped;
#[cfg(feature = "mongodb")]
pub mod mongo;
pub mod network;
pub mod script;
pub mod store;
pub mod swarm;
pub mod warc;
pub mod web;
