//! The doors through which people and programs come in.

pub mod frontier;
pub mod http;
pub mod spiders;
