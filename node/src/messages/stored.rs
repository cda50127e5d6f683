//! To the disk and back.

use std::fmt;

use actix::Message;

use crate::edges::disk::{Job, Landing};
use crate::edges::store::Landed;

/// A fetch that ended, to be settled on disk. Scorer (pages) and fetcher (failures) to storage.
#[derive(Message)]
#[rtype(result = "()")]
pub struct StorePage(pub Box<Landing>);

impl fmt::Debug for StorePage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "StorePage {{ flight: {}, links: {} }}", self.0.pick.flight, self.0.links.len())
    }
}

/// Any other work for the disk; the answer comes over the job's own channel. Frontier to storage.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct DiskRequest(pub Job);

/// The outcomes of a group are on disk. The disk, on behalf of storage, to frontier.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct LandedPages(pub Vec<Landed>);
