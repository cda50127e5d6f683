//! Revisits: when a page that was crawled is fetched again.
//!
//! A page has a frequency: one that was loaded for it, or by the first rule that its URL begins with, or some times its change rate, or the one of all pages. It is fetched again when
//! the time since its last crawl is the period of that frequency, less the margin. Rules are lines `regex action`: `x2` is twice the change rate, a number is a
//! period in seconds.

use regex::Regex;

use crate::clients::page::PageState;

/// Longest period: some thirty years. What is rarer is never.
const PERIOD_MAX_S: f64 = 1e9;

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Action {
    /// So many times the change rate.
    TimesRate(f64),
    /// Every so many seconds.
    Every(f64),
}

/// A rule.
#[derive(Clone, Debug)]
struct Rule {
    begins: Regex,
    action: Action,
}

/// A line that is no rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "line {line}: {reason}; a rule is a regex, a space, and a period in seconds (3600) or a multiple of the change rate (x2)"
)]
pub struct SpecError {
    /// Which line, from 1 on.
    pub line: usize,
    /// What is wrong.
    pub reason: String,
}

/// When pages are fetched again.
#[derive(Clone, Debug, Default)]
pub struct Revisit {
    /// Fetches a second of a page that nothing else is known of; 0 for none.
    default_hz: f64,
    /// Times the change rate, where that is known; 0 goes by the default.
    scale: f64,
    /// By how much of its frequency a page may be early: 0.1 is a tenth.
    margin: f64,
    /// A page that was crawled so often is not fetched again; 0 for no limit.
    crawls_max: u32,
    rules: Vec<Rule>,
}

impl Revisit {
    /// Rules as people write them; empty lines and those that begin with `#` say nothing.
    pub fn new(default_hz: f64, scale: f64, margin: f64, crawls_max: u32, spec: &str) -> Result<Revisit, SpecError> {
        let mut rules = Vec::new();
        for (line, text) in (1..).zip(spec.lines().map(str::trim)) {
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let wrong = |reason: &str| SpecError { line, reason: reason.to_owned() };
            let (pattern, action) = text.rsplit_once(char::is_whitespace).ok_or_else(|| wrong("no action"))?;
            let number = action.strip_prefix('x').unwrap_or(action);
            let number: f64 = number.parse().map_err(|_| wrong("the action is no number"))?;
            if !number.is_finite() || number <= 0.0 {
                return Err(wrong("the action must be above 0"));
            }
            let begins = Regex::new(&format!("^(?:{})", pattern.trim_end()))
                .map_err(|error| wrong(&format!("not a regex: {}", error.to_string().replace('\n', " "))))?;
            let action = if action.starts_with('x') { Action::TimesRate(number) } else { Action::Every(number) };
            rules.push(Rule { begins, action });
        }
        let positive = |number: f64| if number.is_finite() { number.max(0.0) } else { 0.0 };
        let (default_hz, scale, margin) = (positive(default_hz), positive(scale), positive(margin));
        Ok(Revisit { default_hz, scale, margin, crawls_max, rules })
    }

    /// Fetches a second of a page; `None` for never again.
    pub fn frequency_hz(&self, url: &str, page: &PageState) -> Option<f64> {
        let rate = page.change_rate_hz();
        let scaled = || if self.scale > 0.0 { rate.map(|rate| rate * self.scale) } else { None };
        let ruled = self.rules.iter().find(|rule| rule.begins.is_match(url)).and_then(|rule| match rule.action {
            Action::TimesRate(times) => rate.map(|rate| rate * times),
            Action::Every(seconds) => Some(1.0 / seconds),
        });
        let hz = page.frequency_hz.or(ruled).or_else(scaled).unwrap_or(self.default_hz);
        (hz.is_finite() && hz * PERIOD_MAX_S >= 1.0).then_some(hz)
    }

    /// When a page that was crawled is fetched again, Unix milliseconds; `None` for never.
    pub fn next_ms(&self, url: &str, page: &PageState) -> Option<u64> {
        if page.crawls == 0 || (self.crawls_max > 0 && page.crawls >= self.crawls_max) {
            return None;
        }
        let period_s = 1.0 / (self.frequency_hz(url, page)? * (1.0 + self.margin));
        Some(page.last_crawl_ms.saturating_add((period_s * 1_000.0).ceil() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(crawls: u32, changes: u32, first_s: u64, last_s: u64) -> PageState {
        PageState {
            crawls,
            changes,
            first_crawl_ms: first_s * 1_000,
            last_crawl_ms: last_s * 1_000,
            ..PageState::default()
        }
    }

    #[test]
    fn a_page_is_fetched_again_by_what_is_known_of_it() {
        let url = "http://a.example/news/1";
        let plain = Revisit::new(0.1, 0.0, 0.0, 0, "").unwrap();
        assert_eq!(plain.next_ms(url, &page(0, 0, 0, 0)), None, "it was not crawled yet");
        assert_eq!(plain.next_ms(url, &page(1, 0, 100, 100)), Some(110_000));
        // Three changes in 400 s are (3 + 1) / 400 Hz.
        let scaled = Revisit::new(0.1, 0.5, 0.0, 0, "").unwrap();
        assert_eq!(scaled.next_ms(url, &page(9, 3, 100, 500)), Some(700_000));
        assert_eq!(scaled.next_ms(url, &page(1, 0, 100, 100)), Some(110_000), "its rate is not known");
        let early = Revisit::new(0.1, 0.0, 0.25, 0, "").unwrap();
        assert_eq!(early.next_ms(url, &page(1, 0, 100, 100)), Some(108_000));
        let thrice = Revisit::new(0.1, 0.0, 0.0, 3, "").unwrap();
        assert!(thrice.next_ms(url, &page(2, 0, 1, 2)).is_some() && thrice.next_ms(url, &page(3, 0, 1, 2)).is_none());
        assert_eq!(Revisit::default().next_ms(url, &page(1, 0, 1, 1)), None);
        let own = PageState { frequency_hz: Some(0.5), ..page(1, 0, 100, 100) };
        assert_eq!(plain.next_ms(url, &own), Some(102_000), "what was loaded for it comes first");
    }

    #[test]
    fn the_first_rule_that_the_url_begins_with_wins() {
        let spec = "# news change\nhttps?://[^/]+/news/ x2\nhttp://a\\.example/ 3600\n\n.*/once$ 60\n";
        let rules = Revisit::new(0.0, 0.0, 0.0, 0, spec).unwrap();
        let hz = |url: &str, page: &PageState| rules.frequency_hz(url, page);
        assert_eq!(hz("http://a.example/news/1", &page(9, 3, 100, 500)), Some(0.02));
        assert_eq!(hz("http://a.example/about", &page(1, 0, 1, 1)), Some(1.0 / 3_600.0));
        assert_eq!(hz("http://b.example/x/once", &page(1, 0, 1, 1)), Some(1.0 / 60.0));
        assert_eq!(hz("http://b.example/http://a.example/", &page(1, 0, 1, 1)), None);
    }

    #[test]
    fn a_line_that_is_no_rule_is_told_with_its_number() {
        for (spec, reason) in
            [("a 1\nb", "line 2: no action"), ("( 5", "not a regex"), ("a x0", "above 0"), ("a soon", "no number")]
        {
            let error = Revisit::new(0.0, 0.0, 0.0, 0, spec).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
