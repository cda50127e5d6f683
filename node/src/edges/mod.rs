//! The only code that touches the outside.

pub mod guard;
