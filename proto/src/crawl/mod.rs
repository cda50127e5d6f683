//! What is fetched next, and what is not.

pub mod filter;
pub mod retry;
pub mod robots;
