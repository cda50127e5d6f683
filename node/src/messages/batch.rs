//! Work on its way to the fetcher.

use actix::Message;
use proto::batch::UrlBatch;
use proto::url::CanonicalUrl;

/// A batch to be fetched. Frontier to router, router to fetcher.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct RunBatch(pub UrlBatch);

/// A robots.txt to be fetched. Frontier to fetcher.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct RunRobots {
    /// Which flight of the frontier.
    pub flight: u64,
    /// For which crawl.
    pub crawl: String,
    /// Where it lies.
    pub url: CanonicalUrl,
    /// The answer must be there by then, on the node's clock: behind it somebody else may have the host.
    pub deadline: u64,
}
