//! Fetcher: asks the web.
//! In: [`RunBatch`] from the router, [`RunRobots`] from the frontier. Out: [`FetchEnded`] and [`RobotsFetched`] to the frontier
//! as soon as the last byte is in, [`FetchedPage`] to the parser, failures as [`StorePage`] to storage. Owns: nothing; the web is shared.
//! If it dies, running fetches go on and report; batches in its mailbox are lost and their flights lapse.

use std::sync::Arc;

use actix::{Actor, Context, Handler};
use proto::batch::Pick;
use proto::crawl::frontier::RobotsFetch;
use proto::crawl::outcome::Ending;
use proto::crawl::politeness::Micros;
use proto::crawl::retry::{Failure, HostVerdict, RetryRules, verdict};
use proto::crawl::robots::ROBOTS_BYTES_MAX;
use proto::url::CanonicalUrl;
use tokio::time::Instant;
use tracing::debug;

use super::can_end;
use crate::edges::clock::Clock;
use crate::edges::disk::Landing;
use crate::edges::http::{FetchOrder, Fetched, RetryAfter};
use crate::edges::web::Web;
use crate::messages::{FetchEnded, FetchedPage, RobotsFetched, RunBatch, RunRobots, StorePage};
use crate::metrics::Metrics;
use crate::supervisor::{Lifeline, Link};

/// Everything a running fetch needs.
pub struct FetcherParts {
    /// Parsers, in turn.
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
    /// Counters.
    pub metrics: Metrics,
}

/// The actor.
pub struct Fetcher {
    parts: Arc<FetcherParts>,
    mailbox_max: usize,
    _lifeline: Lifeline,
}

impl Fetcher {
    /// A fetcher.
    pub fn new(parts: Arc<FetcherParts>, mailbox_max: usize, lifeline: Lifeline) -> Fetcher {
        Fetcher { parts, mailbox_max, _lifeline: lifeline }
    }
}

impl Actor for Fetcher {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(self.mailbox_max);
    }
}

impl Handler<RunBatch> for Fetcher {
    type Result = ();

    fn handle(&mut self, RunBatch(batch): RunBatch, _ctx: &mut Self::Context) {
        for pick in batch.picks {
            tokio::spawn(Arc::clone(&self.parts).fetch(pick, batch.deadline));
        }
    }
}

impl Handler<RunRobots> for Fetcher {
    type Result = ();

    fn handle(&mut self, RunRobots { flight, url }: RunRobots, _ctx: &mut Self::Context) {
        let parts = Arc::clone(&self.parts);
        tokio::spawn(async move {
            let answer = parts.fetch_robots(url).await;
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
        let time = self.clock.wait(deadline.saturating_sub(self.clock.now().mono));
        order.deadline = Some(Instant::now() + time);
        self.metrics.fetches.inc();
        self.metrics.fetching.inc();
        let fetched = self.web.fetch(&order).await;
        self.metrics.fetching.dec();
        match fetched {
            Ok(fetched) => self.answered(pick, fetched),
            Err(error) => {
                debug!(url = pick.entry.url.as_str(), %error, "fetch failed");
                self.failed(pick, error.failure());
            }
        }
    }

    fn answered(&self, pick: Pick, fetched: Fetched) {
        let host = match fetched.status {
            status @ 400.. => verdict(Failure::Http(status), 1, &self.retry).host,
            _ => HostVerdict::Healthy,
        };
        self.metrics.wire_bytes.inc_by(fetched.wire_body.len() as u64);
        let retry_after_ms = retry_after_ms(&fetched);
        self.ended.answer(FetchEnded { flight: pick.flight, host, retry_after_ms });
        let parser = &self.parsers[pick.flight as usize % self.parsers.len()];
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

    async fn fetch_robots(&self, url: CanonicalUrl) -> RobotsFetch {
        let order = FetchOrder { cut_at_bytes: Some(ROBOTS_BYTES_MAX), ..FetchOrder::new(url) };
        self.metrics.robots_fetches.inc();
        match self.web.fetch(&order).await {
            Err(error) => {
                debug!(url = order.url.as_str(), %error, "robots.txt cannot be had");
                RobotsFetch::Unavailable
            }
            Ok(fetched) => match fetched.status {
                200..=299 => RobotsFetch::Body(fetched.body[..fetched.body.len().min(ROBOTS_BYTES_MAX)].to_vec()),
                300..=399 => match fetched.location() {
                    Some(location) => RobotsFetch::Redirect(location.into_owned()),
                    None => RobotsFetch::Absent,
                },
                429 | 500.. => RobotsFetch::Unavailable,
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
        Landing { pick, ending, captured: None, links: Vec::new(), unix_ms }
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
