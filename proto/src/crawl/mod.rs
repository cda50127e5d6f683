//! What is fetched next, and what is not.

pub mod crawls;
pub mod definition;
pub mod filter;
pub mod frontier;
pub mod outcome;
pub mod politeness;
pub mod retry;
pub mod robots;
