//! What crosses the wire or the disk, and the pure decisions.
//!
//! Nothing here is async, touches a socket or a file, reads a clock or depends on the order of a hash map:
//! `clippy.toml` beside this crate bans those. Time comes in as an argument, so a simulator can run the very same code.
//!
//! Reading order: [`id`] and [`url`] (names of things), [`record`] and [`batch`] (what is stored and handed around),
//! [`error_mask`] (why something failed), [`cluster`] (who owns and who may), [`crawl`] (what is fetched next, and what is not), [`clients`] (queues that
//! clients fetch from), [`control`] (what people ask a node), [`site`] and [`query`] (what the users of the Distributed Crawler define and look for), [`ose`]
//! (site folders of OpenSearchEngine), [`source`] (lists of URIs that people hand in), [`score`] (how much a page is worth), [`wire`].

pub mod base64;
pub mod batch;
pub mod clients;
pub mod cluster;
pub mod control;
pub mod counters;
pub mod crawl;
pub mod date;
pub mod error_mask;
pub mod id;
pub mod key;
pub mod ose;
pub mod query;
pub mod record;
pub mod score;
pub mod scrape;
pub mod site;
pub mod source;
pub mod url;
pub mod wire;
