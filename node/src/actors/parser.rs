//! Parser: turns fetched pages into text and links, into records of the archive, and into what the rules of their sites make of them.
//! In: [`FetchedPage`] from the fetcher. Out: [`ParsedPage`] to the scorer. Owns: nothing that outlives a page.
//! If it dies, the pages in its mailbox are lost; their flights lapse and the frontier offers them again.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use actix::{Actor, Context, Handler};
use proto::batch::EntryKind;
use proto::scrape::Processing;
use proto::site::Manner;
use proto::url::CanonicalUrl;
use tracing::trace;

use super::can_end;
use crate::crawls::CrawlBook;
use crate::edges::disk::Captured;
use crate::edges::http::{Fetched, Truncated};
use crate::edges::warc::{self, Packer};
use crate::extract::{ExtractRules, Extracted, PageInput, extract};
use crate::messages::{FetchedPage, ParsedPage};
use crate::metrics::Metrics;
use crate::process::{self, Fresh, Processed};
use crate::supervisor::{Lifeline, Link};

/// The actor.
pub struct Parser {
    scorer: Link<ParsedPage>,
    rules: Arc<ExtractRules>,
    product_token: Arc<str>,
    book: CrawlBook,
    /// Makes records for the archive; none where there is no archive.
    packer: Option<Packer>,
    metrics: Metrics,
    mailbox_max: usize,
    lifeline: Lifeline,
}

impl Parser {
    /// A parser.
    #[allow(clippy::too_many_arguments)] // neighbours and settings, each once
    pub fn new(
        scorer: Link<ParsedPage>,
        rules: Arc<ExtractRules>,
        product_token: Arc<str>,
        book: CrawlBook,
        packer: Option<Packer>,
        metrics: Metrics,
        mailbox_max: usize,
        lifeline: Lifeline,
    ) -> Parser {
        Parser { scorer, rules, product_token, book, packer, metrics, mailbox_max, lifeline }
    }
}

/// Reads an answer of any status. Its links stand where its site says, if that says anything.
pub(crate) fn read_page(
    url: &CanonicalUrl,
    fetched: &Fetched,
    product_token: &str,
    rules: &ExtractRules,
    manner: Option<&Manner>,
) -> Extracted {
    let texts = |name| -> Vec<String> {
        fetched.header_values(name).map(|value| String::from_utf8_lossy(value).into_owned()).collect()
    };
    let content_type = type_of(fetched, manner);
    // An error page is kept, but its links are nobody's recommendation; a redirect's text is for people.
    let is_read = (200..300).contains(&fetched.status);
    let mut extracted = extract(
        &PageInput {
            url,
            content_type: content_type.as_deref(),
            x_robots_tag: &texts("x-robots-tag"),
            link_headers: &texts("link"),
            body: if is_read { &fetched.body } else { &[] },
            product_token,
        },
        rules,
    );
    if let Some(places) = manner.and_then(|manner| manner.places(url.as_str())).filter(|_| is_read) {
        process::collect_links(&places, url, &fetched.body, content_type.as_deref(), rules, &mut extracted);
    }
    extracted
}

/// What an answer is said to be, or what its site takes that for.
fn type_of<'a>(fetched: &'a Fetched, manner: Option<&Manner>) -> Option<Cow<'a, str>> {
    match manner {
        Some(manner) => manner.content_type(fetched.content_type()),
        None => fetched.content_type().map(Cow::Borrowed),
    }
}

/// Processes an answer by the rules of its site; `None` if it is no page (an error, a redirect, or nothing at all), or nothing is to become of it.
pub(crate) fn process_page(
    url: &CanonicalUrl,
    fetched: &Fetched,
    extracted: &Extracted,
    rules: &Processing,
    depth: u16,
    manner: Option<&Manner>,
) -> Option<Processed> {
    if !(200..300).contains(&fetched.status) || fetched.body.is_empty() {
        return None;
    }
    let text = process::text_of(&fetched.body, type_of(fetched, manner).as_deref(), url.host(), extracted);
    let date = fetched.header_values("date").next().and_then(|value| std::str::from_utf8(value).ok());
    let head = String::from_utf8_lossy(&fetched.response_head);
    let fresh = Fresh {
        url: url.as_str(),
        text: text.as_deref(),
        extracted,
        last_modified: fetched.last_modified(),
        date,
        head: &head,
        http_code: fetched.status,
        size: fetched.body.len() as u64,
        depth,
        fetched_at: fetched.started_unix_ms + u64::from(fetched.elapsed_ms),
    };
    let processed = process::process(rules, &fresh);
    // A page that is wanted, and that nobody processes, is one like those of any other crawl.
    Some(processed).filter(|processed| !rules.only_judges() || processed.unwanted)
}

/// What of an answer goes into the archive. The heads and the body as transferred are taken out of it.
pub(crate) fn capture(fetched: &mut Fetched, extracted: &Extracted, depth: u16) -> Captured {
    Captured {
        unix_ms: fetched.started_unix_ms,
        ip: fetched.remote.map(|remote| remote.ip()),
        not_modified: fetched.status == 304,
        digest: None,
        truncated: fetched.truncated.map(|truncated| match truncated {
            Truncated::Length => warc::Truncated::Length,
            Truncated::Encoding => warc::Truncated::Unspecified,
        }),
        payload_type: (!extracted.media_type.is_empty()).then(|| extracted.media_type.clone()),
        fetch_ms: fetched.elapsed_ms,
        request_head: std::mem::take(&mut fetched.request_head),
        response_head: std::mem::take(&mut fetched.response_head),
        body: std::mem::take(&mut fetched.wire_body),
        packed: None,
        depth,
        processed: None,
        hash: None,
    }
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
        let (crawls, url) = (self.book.now(), &page.pick.entry.url);
        let manner = crawls.manner(page.pick.queue.crawl(), url.as_str()).map(Arc::as_ref);
        let extracted = read_page(url, &page.fetched, &self.product_token, &self.rules, manner);
        let processing = crawls.processing(page.pick.queue.crawl(), url.as_str());
        let processed = processing
            .filter(|_| page.pick.entry.kind == EntryKind::Page)
            .and_then(|rules| process_page(url, &page.fetched, &extracted, rules, page.pick.order.depth, manner))
            .map(Box::new);
        let parsing = started.elapsed();
        self.metrics.parse_seconds.observe(parsing.as_secs_f64());
        trace!(?page, links = extracted.links.len(), "page parsed");
        let FetchedPage { pick, mut fetched } = page;
        let mut captured = capture(&mut fetched, &extracted, pick.order.depth);
        if let (Some(packer), None) = (&mut self.packer, &processed) {
            captured.pack(pick.entry.url.as_str(), pick.flight, packer);
        }
        let parsing_ms = parsing.as_millis() as u32;
        let parsed = ParsedPage { pick, fetched, extracted, captured, processed, parsing_ms };
        if self.scorer.pass(parsed).is_err() {
            self.metrics.dropped.inc();
        }
    }
}

can_end!(Parser);
