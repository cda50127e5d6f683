//! What comes back from the web.

use std::fmt;

use actix::Message;
use proto::batch::Pick;
use proto::crawl::frontier::RobotsFetch;
use proto::crawl::retry::HostVerdict;

use crate::edges::http::Fetched;

/// An answer of a server. Fetcher to parser.
#[derive(Message)]
#[rtype(result = "()")]
pub struct FetchedPage {
    /// What was asked for.
    pub pick: Pick,
    /// What came.
    pub fetched: Fetched,
}

impl fmt::Debug for FetchedPage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (flight, status, bytes) = (self.pick.flight, self.fetched.status, self.fetched.body.len());
        write!(out, "FetchedPage {{ flight: {flight}, status: {status}, bytes: {bytes} }}")
    }
}

/// A fetch is over, one way or another, and its host may be asked again after its delay. Fetcher to frontier; in a cluster to the coordinator, which tells whoever handed it out.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct FetchEnded {
    /// Which flight.
    pub flight: u64,
    /// What it says about the host.
    pub host: HostVerdict,
    /// How long the server asked us to wait.
    pub retry_after_ms: Option<u64>,
}

/// What the fetch of a robots.txt gave. Fetcher to frontier.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct RobotsFetched {
    /// Which flight.
    pub flight: u64,
    /// What came.
    pub answer: RobotsFetch,
}
