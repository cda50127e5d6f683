//! The virtual world Orbweaver is tested in.
//!
//! Today it holds the **synthetic web**: every page, header, robots.txt and misbehaviour of a whole set of hosts, drawn
//! from one seed. In reading order:
//!
//! 1. [`world::web::plan`] — [`WebPlan`](world::web::WebPlan) says how many hosts, pages and oddities there are. Plans
//!    are data: they can be stored beside the bug they once showed.
//! 2. [`world::web`] — [`Web`](world::web::Web) answers a request from the plan alone. Pure: no clock, no I/O, no
//!    memory of earlier requests, so the deterministic simulator and the real server share it.
//! 3. [`world::web::expected`] — what a polite crawler must, may and must never request, found by walking the plan.
//! 4. [`world::server`] — the same web on real sockets, one loopback address per host, with an access log kept by the
//!    server itself: the witness in every test of politeness.

pub mod invariants;
pub mod layer;
pub mod tool;
pub mod toy;
pub mod world;
