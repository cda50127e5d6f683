//! Who is alive, who owns, who may, who has a copy.

pub mod copy;
pub mod lease;
pub mod membership;
pub mod mutant;
pub mod ring;
pub mod slot_set;
