//! The web as actors see it: something that answers requests and knows addresses. The product's is [`HttpClient`]; the simulator
//! has one of its own, in virtual time.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;

use super::dns::DnsError;
use super::http::{FetchError, FetchOrder, Fetched, HttpClient};

/// An answer that is awaited.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where pages come from.
pub trait Web: Send + Sync {
    /// Fetches one URL. An answer of any status is `Ok`; it is on the caller to decide what 404 or 301 means.
    fn fetch<'a>(&'a self, order: &'a FetchOrder) -> Pending<'a, Result<Fetched, FetchError>>;

    /// The addresses of a host, the one that will be asked first.
    fn resolve<'a>(&'a self, host: &'a str) -> Pending<'a, Result<Vec<IpAddr>, DnsError>>;
}

impl Web for HttpClient {
    fn fetch<'a>(&'a self, order: &'a FetchOrder) -> Pending<'a, Result<Fetched, FetchError>> {
        Box::pin(HttpClient::fetch(self, order))
    }

    fn resolve<'a>(&'a self, host: &'a str) -> Pending<'a, Result<Vec<IpAddr>, DnsError>> {
        Box::pin(self.resolver().resolve(host))
    }
}
