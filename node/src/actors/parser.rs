//! Parser: turns fetched pages into text and links.
//! In: [`FetchedPage`] from the fetcher. Out: [`ParsedPage`] to the scorer. Owns: nothing that outlives a page.
//! If it dies, the pages in its mailbox are lost; their flights lapse and the frontier offers them again.

use std::sync::Arc;
use std::time::Instant;

use actix::{Actor, Context, Handler};
use proto::url::CanonicalUrl;
use tracing::trace;

use super::can_end;
use crate::edges::http::Fetched;
use crate::extract::{ExtractRules, Extracted, PageInput, extract};
use crate::messages::{FetchedPage, ParsedPage};
use crate::metrics::Metrics;
use crate::supervisor::{Lifeline, Link};

/// The actor.
pub struct Parser {
    scorer: Link<ParsedPage>,
    rules: Arc<ExtractRules>,
    product_token: Arc<str>,
    metrics: Metrics,
    mailbox_max: usize,
    lifeline: Lifeline,
}

impl Parser {
    /// A parser.
    pub fn new(
        scorer: Link<ParsedPage>,
        rules: Arc<ExtractRules>,
        product_token: Arc<str>,
        metrics: Metrics,
        mailbox_max: usize,
        lifeline: Lifeline,
    ) -> Parser {
        Parser { scorer, rules, product_token, metrics, mailbox_max, lifeline }
    }
}

/// Reads an answer of any status.
pub(crate) fn read_page(url: &CanonicalUrl, fetched: &Fetched, product_token: &str, rules: &ExtractRules) -> Extracted {
    let texts = |name| -> Vec<String> {
        fetched.header_values(name).map(|value| String::from_utf8_lossy(value).into_owned()).collect()
    };
    // An error page is kept, but its links are nobody's recommendation; a redirect's text is for people.
    let is_read = (200..300).contains(&fetched.status);
    extract(
        &PageInput {
            url,
            content_type: fetched.content_type(),
            x_robots_tag: &texts("x-robots-tag"),
            link_headers: &texts("link"),
            body: if is_read { &fetched.body } else { &[] },
            product_token,
        },
        rules,
    )
}

impl Actor for Parser {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(self.mailbox_max);
        self.lifeline.has_room_for(self.mailbox_max);
    }
}

impl Handler<FetchedPage> for Parser {
    type Result = ();

    fn handle(&mut self, page: FetchedPage, _ctx: &mut Self::Context) {
        self.lifeline.handles();
        let started = Instant::now();
        let extracted = read_page(&page.pick.entry.url, &page.fetched, &self.product_token, &self.rules);
        let parsing = started.elapsed();
        self.metrics.parse_seconds.observe(parsing.as_secs_f64());
        trace!(?page, links = extracted.links.len(), "page parsed");
        let FetchedPage { pick, fetched } = page;
        let parsed = ParsedPage { pick, fetched, extracted, parsing_ms: parsing.as_millis() as u32 };
        if self.scorer.pass(parsed).is_err() {
            self.metrics.dropped.inc();
        }
    }
}

can_end!(Parser);
