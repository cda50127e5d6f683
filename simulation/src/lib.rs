//! The virtual world Orbweaver is tested in.
//!
//! Two things live here. The **synthetic web**: every page, header, robots.txt and misbehaviour of a whole set of hosts,
//! drawn from one seed. And the **simulator**: whole clusters on simulated network, disks, clocks and web, in which every
//! fault happens and twenty-five invariants are watched. In reading order:
//!
//! 1. [`world::web`] — [`Web`](world::web::Web) answers a request from its [`plan`](world::web::plan) alone: no clock, no
//!    I/O, no memory of earlier requests. [`world::web::expected`] says what a polite crawler does on it.
//! 2. [`world::server`] — the same web on real sockets, one loopback address per host, with an access log kept by the
//!    server itself: the witness in every test of politeness.
//! 3. [`world::plan`] — a run of a cluster as data, drawn from a seed: nodes, clocks, web, and every fault with its time.
//! 4. [`world::network`], [`world::disk`], [`world::clock`], [`world::origins`] — what surrounds a node, each a pure state
//!    machine. Their small decisions are hashes ([`world::random`]), never draws from a shared stream.
//! 5. [`world::trace`] — what happened, in true time, and a hash of it. [`world::oracle`] keeps the facts.
//! 6. [`invariants`] — what must hold, one property per file, each with the harm it prevents.
//! 7. [`layer`] — what runs a plan; [`toy`] is the smallest one.
//! 8. [`pure`] — L1: the cores of every node in an event loop.
//! 9. `actors` — L2: the product's own actors of every node on virtual time (feature `actors`, which needs the whole node).
//! 10. [`ranking`], [`lending`], [`serving`] — small layers, each with one core of the product on every node; the last one twice, for clients of queues and for spiders.
//! 11. [`tool`] — what the program does with a layer: many seeds, mutants, shrinking, a page to look at.
//!
//! # How to read a failing seed
//!
//! `simulation many` prints the invariant that did not hold, with time, node and host, the command that runs this seed
//! again, and a shrunk plan. First read the plan: what is left of it is needed. Then `simulation replay shrunk.toml
//! --timeline run.html` draws it: look left of the red line at who held the slot and what the last fault was. Then
//! `--log` prints every event and message around that time; node clocks are converted, all times are true ones. When
//! the cause is found and mended, the plan goes into `simulation/corpus/` under a name that says what happens in it.

#[cfg(feature = "actors")]
pub mod actors;
pub mod invariants;
pub mod layer;
pub mod lending;
pub mod pure;
pub mod ranking;
pub mod serving;
pub mod tool;
pub mod toy;
pub mod world;
