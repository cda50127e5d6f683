//! Through which proxies a host is asked, and how often each has just failed on this node: those that failed too often are passed over.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use proto::crawl::crawls::Crawls;
use proto::crawl::retry::Failure;
use proto::site::proxy::choose;
use proto::site::{Site, SiteProxy};
use proto::url::CanonicalUrl;
use tracing::debug;

use crate::edges::http::{FetchError, FetchOrder, Fetched};
use crate::edges::web::Web;

/// Proxies tried for one page.
const TRIES_MAX: usize = 3;
/// Proxies that are counted; beyond that all are forgiven.
const COUNTED_MAX: usize = 4_096;

/// The counts; clones share them.
#[derive(Clone, Debug, Default)]
pub struct ProxyFaults(Arc<Mutex<BTreeMap<String, u32>>>);

/// Through what a host is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// Directly.
    Direct,
    /// Through one of these, the best first.
    Through(Vec<String>),
    /// Its site has proxies for it, and all of them failed too often.
    None,
}

impl ProxyFaults {
    /// Failures in a row of a proxy.
    pub fn faults(&self, proxy: &str) -> u32 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(proxy).copied().unwrap_or(0)
    }

    /// It failed once more.
    pub fn blame(&self, proxy: &str) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.len() >= COUNTED_MAX {
            counts.clear();
        }
        let count = counts.entry(proxy.to_owned()).or_default();
        *count = count.saturating_add(1);
    }

    /// It works, or somebody changed it.
    pub fn forgive(&self, proxy: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(proxy);
    }

    /// Through what a URL of a crawl is asked for.
    pub fn way(&self, crawls: &Crawls, crawl: &str, url: &CanonicalUrl) -> Way {
        let Some(site) = crawls.get(crawl).and_then(|crawl| crawl.site.as_ref()) else { return Way::Direct };
        let own = crawls.manner(crawl, url.as_str()).and_then(|manner| manner.proxy());
        self.way_of(&site.site, own, url.host())
    }

    /// Through what a host of a site is asked, where the URL may have a proxy of its own.
    pub fn way_of(&self, site: &Site, own: Option<&SiteProxy>, host: &str) -> Way {
        let mut proxies = Cow::Borrowed(&site.proxies);
        if let Some(own) = own {
            proxies.to_mut().push(own.clone());
        }
        if !proxies.iter().any(|proxy| proxy.serves(host)) {
            return Way::Direct;
        }
        let chosen = choose(&proxies, host, |proxy| self.faults(proxy));
        let names: Vec<String> = chosen.into_iter().take(TRIES_MAX).map(|proxy| proxy.host.clone()).collect();
        if names.is_empty() { Way::None } else { Way::Through(names) }
    }

    /// Asks directly, or through proxies, one after the other.
    pub async fn ask(&self, web: &dyn Web, way: Way, order: &mut FetchOrder) -> Result<Fetched, Failure> {
        let proxies = match way {
            Way::Direct => {
                let fetched = web.fetch(order).await;
                return fetched.map_err(|error| {
                    debug!(url = order.url.as_str(), %error, "fetch failed");
                    error.failure()
                });
            }
            Way::None => return Err(Failure::NoProxy),
            Way::Through(proxies) => proxies,
        };
        for proxy in proxies {
            order.proxy = Some(proxy.clone());
            match web.fetch(order).await {
                Ok(fetched) => {
                    self.forgive(&proxy);
                    return Ok(fetched);
                }
                // What comes before the first byte is the proxy's doing.
                Err(
                    error @ (FetchError::ConnectRefused
                    | FetchError::ConnectFailed { .. }
                    | FetchError::Dns(_)
                    | FetchError::AddressRefused { .. }),
                ) => {
                    debug!(url = order.url.as_str(), proxy, %error, "a proxy failed");
                    self.blame(&proxy);
                }
                Err(error) => {
                    debug!(url = order.url.as_str(), proxy, %error, "fetch failed");
                    return Err(error.failure());
                }
            }
        }
        Err(Failure::NoProxy)
    }
}
