//! What is kept of a page that spiders crawl: where it was found, what it is worth, how often it was crawled and how often it had changed.
//!
//! It stands as one word of text in the metadata of the page's record ([`ClientUrl`](super::record::ClientUrl)), so that writes, repair and moves of slots carry it like the words of any client.

use std::fmt::Write;

use super::record::Metadata;
use crate::id::UrlId;
use crate::score::best_first::Rank;

/// The name of the word.
const NAME: &str = "page";
/// Stands for what is not known.
const NOTHING: &str = "-";

/// What is kept of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PageState {
    /// What it is worth: as the first who linked to it said, or whoever crawled it.
    pub score: f32,
    /// What the page graph says it is worth; 0 for an average page.
    pub level: i16,
    /// Links from a seed.
    pub depth: u32,
    /// The page that linked to it first.
    pub linked_from: Option<UrlId>,
    /// How often it was crawled.
    pub crawls: u32,
    /// How often it had changed when it was crawled.
    pub changes: u32,
    /// Failures since it was crawled.
    pub failures: u32,
    /// When it was first crawled, Unix milliseconds.
    pub first_crawl_ms: u64,
    /// When it was last crawled.
    pub last_crawl_ms: u64,
    /// What tells its content from others.
    pub content_hash: Option<u64>,
    /// How often it is to be crawled, in Hz, if somebody said so.
    pub frequency_hz: Option<f64>,
}

impl PageState {
    /// How early it is fetched.
    pub fn rank(&self) -> Rank {
        Rank::new(self.level, self.score)
    }

    /// Changes a second, as far as it was crawled more than once.
    pub fn change_rate_hz(&self) -> Option<f64> {
        let seconds = self.last_crawl_ms.saturating_sub(self.first_crawl_ms) as f64 / 1_000.0;
        (seconds > 0.0).then(|| (f64::from(self.changes) + 1.0) / seconds)
    }

    /// The page was crawled.
    pub fn crawled(&mut self, score: f32, content_hash: Option<u64>, unix_ms: u64) {
        // The first crawl changes nothing: there was nothing before.
        if self.crawls > 0 && content_hash != self.content_hash {
            self.changes = self.changes.saturating_add(1);
        }
        if self.crawls == 0 {
            self.first_crawl_ms = unix_ms;
        }
        (self.score, self.content_hash, self.failures) = (score, content_hash, 0);
        self.last_crawl_ms = unix_ms.max(self.last_crawl_ms);
        self.crawls = self.crawls.saturating_add(1);
    }

    /// As a word of a record.
    pub fn to_metadata(self) -> Metadata {
        let PageState { score, level, depth, crawls, changes, failures, first_crawl_ms, last_crawl_ms, .. } = self;
        let mut word = format!(
            "{:x} {level} {depth} {crawls} {changes} {failures} {first_crawl_ms} {last_crawl_ms} ",
            score.to_bits()
        );
        let mut part = |known: Option<String>| {
            word.push_str(known.as_deref().unwrap_or(NOTHING));
            word.push(' ');
        };
        part(self.content_hash.map(|hash| format!("{hash:x}")));
        part(self.frequency_hz.map(|hz| format!("{:x}", hz.to_bits())));
        part(self.linked_from.map(|id| {
            id.0.iter().fold(String::with_capacity(32), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            })
        }));
        word.pop();
        vec![(NAME.to_owned(), vec![word])]
    }

    /// Reads what [`to_metadata`](Self::to_metadata) wrote; `None` if it is something else.
    pub fn read(metadata: &Metadata) -> Option<PageState> {
        let (_, values) = metadata.iter().find(|(name, _)| name == NAME)?;
        let mut parts = values.first()?.split(' ');
        let mut next = || parts.next();
        let state = PageState {
            score: f32::from_bits(u32::from_str_radix(next()?, 16).ok()?),
            level: next()?.parse().ok()?,
            depth: next()?.parse().ok()?,
            crawls: next()?.parse().ok()?,
            changes: next()?.parse().ok()?,
            failures: next()?.parse().ok()?,
            first_crawl_ms: next()?.parse().ok()?,
            last_crawl_ms: next()?.parse().ok()?,
            content_hash: known(next()?, |text| u64::from_str_radix(text, 16).ok())?,
            frequency_hz: known(next()?, |text| u64::from_str_radix(text, 16).ok().map(f64::from_bits))?,
            linked_from: known(next()?, id_of)?,
        };
        Some(state)
    }
}

/// What is known by a part; the outer `None` if the part is wrong.
fn known<T>(part: &str, read: impl FnOnce(&str) -> Option<T>) -> Option<Option<T>> {
    if part == NOTHING { Some(None) } else { read(part).map(Some) }
}

fn id_of(text: &str) -> Option<UrlId> {
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    u128::from_str_radix(text, 16).ok().map(|id| UrlId(id.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_page_counts_its_crawls_and_changes() {
        let mut page = PageState { score: 0.5, ..PageState::default() };
        page.crawled(0.7, Some(1), 10_000);
        assert_eq!((page.crawls, page.changes, page.score, page.change_rate_hz()), (1, 0, 0.7, None));
        page.crawled(0.7, Some(1), 20_000);
        page.crawled(0.7, None, 30_000);
        page.crawled(0.7, Some(2), 50_000);
        assert_eq!((page.crawls, page.changes, page.first_crawl_ms, page.last_crawl_ms), (4, 2, 10_000, 50_000));
        assert_eq!(page.change_rate_hz(), Some(3.0 / 40.0));
    }

    proptest! {
        #[test]
        fn what_is_kept_can_be_read_back(
            numbers in any::<(u32, i16, u32, u32, u32, u32, u64, u64)>(),
            known in any::<(Option<u64>, Option<f64>, Option<[u8; 16]>)>(),
        ) {
            let (score, level, depth, crawls, changes, failures, first_crawl_ms, last_crawl_ms) = numbers;
            let page = PageState {
                score: f32::from_bits(score), level, depth, crawls, changes, failures, first_crawl_ms, last_crawl_ms,
                content_hash: known.0, frequency_hz: known.1, linked_from: known.2.map(UrlId),
            };
            let words = page.to_metadata();
            // By their words: not every number equals itself.
            prop_assert_eq!(PageState::read(&words).unwrap().to_metadata(), words);
        }

        #[test]
        fn garbage_is_no_page(word in "[0-9a-f -]{0,60}") {
            let _ = PageState::read(&vec![(NAME.to_owned(), vec![word])]);
        }
    }
}
