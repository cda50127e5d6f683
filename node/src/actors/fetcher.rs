//! Fetcher: asks the web.
//! In: [`RunBatch`] from the router, [`RunRobots`] from the frontier. Out: [`FetchEnded`] to the frontier, or in a cluster to the coordinator, and [`RobotsFetched`]
//! to the frontier as soon as the last byte is in, [`FetchedPage`] to the parser, failures as [`StorePage`] to storage. Owns: nothing; the web is shared.
//! If it dies, running fetches go on and report; batches in its mailbox are lost and their flights lapse.

pub mod proxies;

use std::sync::Arc;

use actix::{Actor, Context, Handler};
use proto::batch::Pick;
use proto::crawl::frontier::RobotsFetch;
use proto::crawl::outcome::Ending;
use proto::crawl::politeness::Micros;
use proto::crawl::retry::{Failure, HostVerdict, RetryRules, verdict};
use proto::crawl::robots::ROBOTS_BYTES_MAX;
use proto::url::CanonicalUrl;
use tokio::time::{Duration, Instant};
use tracing::debug;

use self::proxies::ProxyFaults;
use super::can_end;
use crate::crawls::CrawlBook;
use crate::edges::clock::Clock;
use crate::edges::disk::Landing;
use crate::edges::http::{FetchOrder, Fetched, RetryAfter};
use crate::edges::web::{HeadersOf, Web};
use crate::messages::{FetchEnded, FetchedPage, RobotsFetched, RunBatch, RunRobots, StorePage};
use crate::metrics::Metrics;
use crate::supervisor::{Lifeline, Link};

/// A page larger than this takes tens of milliseconds to read: it goes where only such pages wait for it.
const HEAVY_BYTES: usize = 512 << 10;

/// Everything a running fetch needs.
pub struct FetcherParts {
    /// Parsers, in turn; the last one for large pages.
    pub parsers: Vec<Link<FetchedPage>>,
    /// Where failures go.
    pub storage: Link<StorePage>,
    /// Who waits for the host.
    pub ended: Link<FetchEnded>,
    /// Who waits for the rules.
    pub robots: Link<RobotsFetched>,
    /// Where pages come from.
    pub web: Arc<dyn Web>,
    /// The clocks.
    pub clock: Clock,
    /// What failures mean.
    pub retry: RetryRules,
    /// Whose rules a page goes by.
    pub book: CrawlBook,
    /// Proxies that failed.
    pub proxies: ProxyFaults,
    /// Counters.
    pub metrics: Metrics,
    /// Headers of single URLs; none for a node alone.
    pub headers: Option<HeadersOf>,
}

/// The actor.
pub struct Fetcher {
    parts: Arc<FetcherParts>,
    mailbox_max: usize,
    lifeline: Lifeline,
}

impl Fetcher {
    /// A fetcher.
    pub fn new(parts: Arc<FetcherParts>, mailbox_max: usize, lifeline: Lifeline) -> Fetcher {
        Fetcher { parts, mailbox_max, lifeline }
    }
}

impl Actor for Fetcher {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(self.mailbox_max);
        self.lifeline.has_room_for(self.mailbox_max);
    }
}

impl Handler<RunBatch> for Fetcher {
    type Result = ();

    fn handle(&mut self, RunBatch(batch): RunBatch, _ctx: &mut Self::Context) {
        self.lifeline.handles();
        for pick in batch.picks {
            tokio::spawn(Arc::clone(&self.parts).fetch(pick, batch.deadline));
        }
    }
}

impl Handler<RunRobots> for Fetcher {
    type Result = ();

    fn handle(&mut self, RunRobots { flight, crawl, url, deadline }: RunRobots, _ctx: &mut Self::Context) {
        self.lifeline.handles();
        let parts = Arc::clone(&self.parts);
        tokio::spawn(async move {
            let answer = parts.fetch_robots(&crawl, url, deadline).await;
            parts.robots.answer(RobotsFetched { flight, answer });
        });
    }
}

can_end!(Fetcher);

impl FetcherParts {
    async fn fetch(self: Arc<Self>, pick: Pick, deadline: Micros) {
        let mut order = FetchOrder::new(pick.entry.url.clone());
        if let Some(validators) = &pick.entry.validators {
            order.if_none_match.clone_from(&validators.etag);
            order.if_modified_since.clone_from(&validators.last_modified);
        }
        let crawl = pick.queue.crawl();
        let end = self.moment(deadline);
        order.headers = self.headers_of_site(crawl, &order.url);
        let asked = self.headers.as_ref().and_then(|headers| headers(crawl, pick.entry.url.as_str()));
        if let Some(asked) = asked {
            match tokio::time::timeout_at(end, asked).await {
                // What a task has sent along counts before what its site has.
                Ok(Ok(headers)) => order.headers.extend(headers),
                // Without what belongs to it, it would be another request: it is tried again.
                Ok(Err(error)) => {
                    debug!(url = pick.entry.url.as_str(), error, "what is sent along cannot be had");
                    return self.failed(pick, Failure::Lost);
                }
                Err(_) => return self.failed(pick, Failure::Lost),
            }
        }
        let crawls = self.book.now();
        if crawls.is_gone(crawl) {
            // Its site was deleted while it was on its way here: nothing of that is asked for any more.
            return self.failed(pick, Failure::Lost);
        }
        let (timeout_ms, page_bytes_max) = crawls.fetch_limits(crawl);
        order.deadline =
            Some(timeout_ms.map_or(end, |timeout| end.min(Instant::now() + Duration::from_millis(timeout))));
        order.page_bytes_max = page_bytes_max;
        self.metrics.fetches.inc();
        self.metrics.fetching.inc();
        let fetched = self.ask(crawl, &mut order).await;
        self.metrics.fetching.dec();
        match fetched {
            Ok(fetched) => self.answered(pick, fetched),
            Err(failure) => self.failed(pick, failure),
        }
    }

    /// What the site of a crawl has sent along with a request.
    fn headers_of_site(&self, crawl: &str, url: &CanonicalUrl) -> Vec<(String, String)> {
        self.book.now().manner(crawl, url.as_str()).map(|manner| manner.headers(url.as_str())).unwrap_or_default()
    }

    /// Asks directly, or through the proxies that the site has for the host.
    async fn ask(&self, crawl: &str, order: &mut FetchOrder) -> Result<Fetched, Failure> {
        let way = self.proxies.way(&self.book.now(), crawl, &order.url);
        self.proxies.ask(&*self.web, way, order).await
    }

    fn answered(&self, pick: Pick, fetched: Fetched) {
        let host = match fetched.status {
            status @ 400.. => verdict(Failure::Http(status), 1, &self.retry).host,
            _ => HostVerdict::Healthy,
        };
        self.metrics.wire_bytes.inc_by(fetched.wire_body.len() as u64);
        let retry_after_ms = retry_after_ms(&fetched);
        self.ended.answer(FetchEnded { flight: pick.flight, host, retry_after_ms });
        let parser = &self.parsers[parser_of(pick.flight, fetched.body.len(), self.parsers.len())];
        if parser.pass(FetchedPage { pick, fetched }).is_err() {
            self.metrics.dropped.inc();
        }
    }

    fn failed(&self, pick: Pick, failure: Failure) {
        let host = verdict(failure, 1, &self.retry).host;
        self.ended.answer(FetchEnded { flight: pick.flight, host, retry_after_ms: None });
        if self.storage.pass(StorePage(Box::new(Landing::failed(pick, failure, self.clock.now().unix_ms)))).is_err() {
            self.metrics.dropped.inc();
        }
    }

    /// When the node's clock will show this.
    fn moment(&self, mono: Micros) -> Instant {
        Instant::now() + self.clock.wait(mono.saturating_sub(self.clock.now().mono))
    }

    async fn fetch_robots(&self, crawl: &str, url: CanonicalUrl, deadline: Micros) -> RobotsFetch {
        if self.book.now().is_gone(crawl) {
            return RobotsFetch::Unavailable(Failure::Lost);
        }
        let deadline = Some(self.moment(deadline));
        let headers = self.headers_of_site(crawl, &url);
        let mut order = FetchOrder { cut_at_bytes: Some(ROBOTS_BYTES_MAX), deadline, headers, ..FetchOrder::new(url) };
        self.metrics.robots_fetches.inc();
        match self.ask(crawl, &mut order).await {
            Err(failure) => RobotsFetch::Unavailable(failure),
            Ok(fetched) => match fetched.status {
                200..=299 => RobotsFetch::Body(fetched.body[..fetched.body.len().min(ROBOTS_BYTES_MAX)].to_vec()),
                300..=399 => match fetched.location() {
                    Some(location) => RobotsFetch::Redirect(location.into_owned()),
                    None => RobotsFetch::Absent,
                },
                status @ (429 | 500..) => RobotsFetch::Unavailable(Failure::Http(status)),
                _ => RobotsFetch::Absent,
            },
        }
    }
}

impl Landing {
    /// A fetch that brought nothing.
    pub fn failed(pick: Pick, failure: Failure, unix_ms: u64) -> Landing {
        Landing::without_content(pick, Ending::Failed(failure, None, None), unix_ms)
    }

    /// An end that nothing came of.
    pub fn without_content(pick: Pick, ending: Ending, unix_ms: u64) -> Landing {
        Landing { pick, ending, captured: None, links: Vec::new(), beyond: Vec::new(), unix_ms }
    }
}

/// Which of the parsers reads a page. The last one reads the large pages, so that no small one waits behind them.
fn parser_of(flight: u64, body_bytes: usize, parsers: usize) -> usize {
    match parsers {
        0 | 1 => 0,
        _ if body_bytes > HEAVY_BYTES => parsers - 1,
        _ => flight as usize % (parsers - 1),
    }
}

/// What the server asked us to wait, in milliseconds from its answer on.
pub(crate) fn retry_after_ms(fetched: &Fetched) -> Option<u64> {
    let answered_unix_ms = fetched.started_unix_ms + u64::from(fetched.elapsed_ms);
    Some(match fetched.retry_after()? {
        RetryAfter::Seconds(seconds) => seconds.saturating_mul(1_000),
        RetryAfter::Date(unix_s) => unix_s.saturating_mul(1_000).saturating_sub(answered_unix_ms),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_small_page_waits_behind_a_large_one() {
        for parsers in 2..=16 {
            assert_eq!(parser_of(7, HEAVY_BYTES + 1, parsers), parsers - 1);
            assert!((0..100).all(|flight| parser_of(flight, HEAVY_BYTES, parsers) < parsers - 1));
        }
        assert_eq!((parser_of(7, 1, 1), parser_of(7, usize::MAX, 1)), (0, 0));
        let in_turn: std::collections::BTreeSet<usize> = (0..100).map(|flight| parser_of(flight, 1, 4)).collect();
        assert_eq!(in_turn.len(), 3);
    }
}
