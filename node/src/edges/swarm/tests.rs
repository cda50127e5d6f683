//! Real swarms over TCP on loopback. Nothing here depends on how fast the machine is: what is waited for is waited for long.

mod content;
mod control;
mod hostile;
mod letters;
mod support;
mod versions;
