//! The web as actors see it: something that answers requests and knows addresses. The product's is [`HttpClient`]; the simulator
//! has one of its own, in virtual time.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use proto::crawl::retry::Failure;
use proto::crawl::robots::{ROBOTS_BYTES_MAX, RobotsAnswer};
use proto::url::{CanonicalUrl, UrlRules};

use super::dns::DnsError;
use super::http::{FetchError, FetchOrder, Fetched, HttpClient};

/// An answer that is awaited.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Headers that are awaited, or why they cannot be had.
pub type PendingHeaders = Pending<'static, Result<Vec<(String, String)>, String>>;

/// Says which headers a URL of a crawl is asked for with; `None` if there can be none, so that nobody waits.
pub type HeadersOf = Arc<dyn Fn(&str, &str) -> Option<PendingHeaders> + Send + Sync>;

/// Where pages come from.
pub trait Web: Send + Sync {
    /// Fetches one URL. An answer of any status is `Ok`; it is on the caller to decide what 404 or 301 means.
    fn fetch<'a>(&'a self, order: &'a FetchOrder) -> Pending<'a, Result<Fetched, FetchError>>;

    /// The addresses of a host, the one that will be asked first.
    fn resolve<'a>(&'a self, host: &'a str) -> Pending<'a, Result<Vec<IpAddr>, DnsError>>;
}

/// Asks for a robots.txt with these headers; what it says, or where a redirect leads.
pub async fn robots_hop(
    web: &dyn Web,
    at: &str,
    product_token: &str,
    headers: Vec<(String, String)>,
) -> Result<RobotsAnswer, String> {
    let Some(order) = robots_order(at, headers) else { return Ok(RobotsAnswer::Absent) };
    let fetched = web.fetch(&order).await.map_err(|error| error.failure());
    robots_said(&order.url, fetched, product_token)
}

/// What a robots.txt is asked for with; `None` if that is no URL.
pub fn robots_order(at: &str, headers: Vec<(String, String)>) -> Option<FetchOrder> {
    let url = CanonicalUrl::parse(at, &UrlRules::AS_IT_IS).ok()?;
    Some(FetchOrder { cut_at_bytes: Some(ROBOTS_BYTES_MAX), headers, ..FetchOrder::new(url) })
}

/// What a robots.txt says that was asked for, or where a redirect leads.
pub fn robots_said(
    url: &CanonicalUrl,
    fetched: Result<Fetched, Failure>,
    product_token: &str,
) -> Result<RobotsAnswer, String> {
    let fetched = match fetched {
        Ok(fetched) => fetched,
        Err(failure) => {
            tracing::warn!(url = url.as_str(), %failure, "robots.txt cannot be had, its host is left alone");
            return Ok(RobotsAnswer::from_fetch(Err(failure), product_token));
        }
    };
    let target = fetched.location().filter(|_| (300..400).contains(&fetched.status));
    match target.and_then(|to| CanonicalUrl::join(&url.to_url(), &to, &UrlRules::AS_IT_IS).ok()) {
        Some(target) => Err(target.into_string()),
        None => Ok(RobotsAnswer::from_fetch(Ok((fetched.status, &fetched.body[..])), product_token)),
    }
}

impl Web for HttpClient {
    fn fetch<'a>(&'a self, order: &'a FetchOrder) -> Pending<'a, Result<Fetched, FetchError>> {
        Box::pin(HttpClient::fetch(self, order))
    }

    fn resolve<'a>(&'a self, host: &'a str) -> Pending<'a, Result<Vec<IpAddr>, DnsError>> {
        Box::pin(self.resolver().resolve(host))
    }
}
