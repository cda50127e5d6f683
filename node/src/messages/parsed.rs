//! What the parser made of a page.

use std::fmt;

use actix::Message;
use proto::batch::Pick;

use crate::edges::disk::Captured;
use crate::edges::http::Fetched;
use crate::extract::Extracted;
use crate::process::Processed;

/// A page with its text and links. Parser to scorer.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ParsedPage {
    /// What was asked for.
    pub pick: Pick,
    /// What came, without what is in `captured`.
    pub fetched: Fetched,
    /// What was in it.
    pub extracted: Extracted,
    /// What of it goes into the archive.
    pub captured: Captured,
    /// What the rules of its site made of it, if it has any.
    pub processed: Option<Box<Processed>>,
    /// Milliseconds of parsing and processing.
    pub parsing_ms: u32,
}

impl fmt::Debug for ParsedPage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ParsedPage {{ flight: {}, links: {} }}", self.pick.flight, self.extracted.links.len())
    }
}
