//! Fetched bytes in, text and links out: plain functions, no I/O.
