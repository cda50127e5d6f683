//! What surrounds the crawler: for now the web it crawls.

pub mod server;
pub mod web;
