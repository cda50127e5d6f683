//! Between the copier and those who wait for it.

use actix::Message;

/// Asks the copier whether every page of this node is on another one.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "bool")]
pub struct IsDispensable;
