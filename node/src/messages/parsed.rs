//! What the parser made of a page.

use std::fmt;

use actix::Message;
use proto::batch::Pick;

use crate::edges::http::Fetched;
use crate::extract::Extracted;

/// A page with its text and links. Parser to scorer.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ParsedPage {
    /// What was asked for.
    pub pick: Pick,
    /// What came.
    pub fetched: Fetched,
    /// What was in it.
    pub extracted: Extracted,
    /// Milliseconds of parsing.
    pub parsing_ms: u32,
}

impl fmt::Debug for ParsedPage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ParsedPage {{ flight: {}, links: {} }}", self.pick.flight, self.extracted.links.len())
    }
}
