//! What operators ask of actors.

use actix::{Message, MessageResponse};
use proto::cluster::slot_set::SlotSet;
use proto::id::{NodeId, Slot};

/// Settings changed: take them over. Doors to frontier.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct Retune;

/// A node is gone for ever; says why not if it is not. Doors to coordinator.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Result<(), String>")]
pub struct ForgetNode(pub NodeId);

/// Compare slots with all their replicas now. Doors to coordinator.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub struct CompareNow(pub Vec<Slot>);

/// Asks the coordinator for the digests of these slots, of all if there are none. Doors to coordinator.
#[derive(Clone, Debug, Message)]
#[rtype(result = "SlotDigests")]
pub struct GetDigests(pub Vec<Slot>);

/// Digests of slots.
#[derive(Clone, Debug, Default, MessageResponse)]
pub struct SlotDigests {
    /// Of which there is anything.
    pub digests: Vec<(Slot, u64)>,
    /// Which are to be kept here.
    pub keeps: SlotSet,
}
