//! Who is alive, who owns, who may, who has a copy.

pub mod lease;
pub mod ring;
