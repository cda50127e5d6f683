//! URLs on their way into the frontier.

use actix::Message;
use proto::batch::Discovered;

use crate::edges::disk::DiskError;

/// URLs to be admitted; answers how many were new. From the command line and the doors to the frontier.
#[derive(Debug, Message)]
#[rtype(result = "Result<usize, DiskError>")]
pub struct DiscoveredUrls {
    /// The crawl they belong to.
    pub crawl: String,
    /// The URLs.
    pub urls: Vec<Discovered>,
}
