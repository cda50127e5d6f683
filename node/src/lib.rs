//! The actors, edges and doors of a node.

pub mod edges;
pub mod extract;
