//! The only code that touches the outside.

pub mod decode;
pub mod dns;
pub mod guard;
pub mod http;
pub mod warc;
