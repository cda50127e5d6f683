//! Progress of a running crawl: one living line on a terminal, plain lines elsewhere, JSON lines for machines.

use std::collections::VecDeque;
use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use proto::crawl::frontier::Trouble;
use proto::crawl::retry::Failure;

use super::tell;
use super::units::{show_count, show_size, show_time};
use crate::config::CrawlConfig;
use crate::edges::store::State;
use crate::messages::Standing;

/// Time over which the rate is taken.
const RATE_WINDOW: Duration = Duration::from_secs(10);
/// How often a line is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// The living line, so that log lines can be written above it.
static LIVING: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Shows how a crawl goes.
pub(super) struct Progress {
    json: bool,
    bar: Option<ProgressBar>,
    started: Instant,
    samples: VecDeque<(Instant, u64)>,
    last_line: Option<Instant>,
    /// What is waited for, and how long still.
    troubles: Vec<(String, Duration)>,
    /// Whether every line could be written.
    said: std::io::Result<()>,
}

impl Progress {
    pub(super) fn start(json: bool) -> Progress {
        // A terminal that cannot move its cursor shows a line after the other.
        let dumb = std::env::var_os("TERM").is_none_or(|name| name == "dumb" || name.is_empty());
        let bar = (!json && std::io::stderr().is_terminal() && !dumb).then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
            bar.set_style(ProgressStyle::with_template("{spinner} {msg}").expect("a constant template"));
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        if let Ok(mut living) = LIVING.lock() {
            living.clone_from(&bar);
        }
        let (started, samples) = (Instant::now(), VecDeque::new());
        Progress { json, bar, started, samples, last_line: None, troubles: Vec::new(), said: Ok(()) }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub(super) fn show(&mut self, state: &State, standing: Option<&Standing>, limits: &CrawlConfig, stopping: bool) {
        let now = Instant::now();
        self.samples.push_back((now, state.counters.fetches));
        while self.samples.front().is_some_and(|(then, _)| now - *then > RATE_WINDOW) && self.samples.len() > 2 {
            self.samples.pop_front();
        }
        self.troubles = standing.map(troubles).unwrap_or_default();
        let due = self.last_line.is_none_or(|last| now - last >= LINE_EVERY);
        if self.bar.is_none() && !due {
            return;
        }
        self.last_line = Some(now);
        let line = Line::new(state, standing, limits, self.rate(), self.elapsed(), stopping);
        let line = Line { waiting_for: with_waits(&self.troubles), ..line };
        match &self.bar {
            Some(bar) => bar.set_message(line.text()),
            // The crawl goes on: what it keeps matters more than who watches.
            None if self.json && self.said.is_ok() => self.said = say(&line.json()),
            None if self.json => {}
            None => tell::progress(&line.json(), &line.text()),
        }
    }

    /// What was waited for last, and whether every line could be written.
    pub(super) fn into_rest(self) -> (Vec<String>, std::io::Result<()>) {
        (self.troubles.into_iter().map(|(why, _)| why).collect(), self.said)
    }

    fn rate(&self) -> f64 {
        let (Some((first, before)), Some((last, after))) = (self.samples.front(), self.samples.back()) else {
            return 0.0;
        };
        let seconds = last.duration_since(*first).as_secs_f64();
        if seconds < 0.05 { 0.0 } else { after.saturating_sub(*before) as f64 / seconds }
    }

    pub(super) fn finish(&mut self) {
        if let Ok(mut living) = LIVING.lock() {
            *living = None;
        }
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// Hosts that are left alone for now, as people read it, and how long still.
fn troubles(standing: &Standing) -> Vec<(String, Duration)> {
    let text = |trouble: &Trouble| {
        let why = match (trouble.robots, trouble.failures) {
            (Some(failure), _) => format!("robots.txt cannot be had ({})", plain(failure)),
            (None, 0) => "asks for patience".to_owned(),
            (None, failures) => format!("failed {failures} times in a row"),
        };
        let wait = Duration::from_micros(trouble.until.saturating_sub(standing.now));
        (format!("{}: {why}", trouble.host), wait)
    };
    standing.troubles.iter().map(text).collect()
}

fn with_waits(troubles: &[(String, Duration)]) -> Vec<String> {
    troubles.iter().map(|(why, wait)| format!("{why}, next try in {}", show_time(*wait))).collect()
}

/// A failure in words.
fn plain(failure: Failure) -> String {
    match failure {
        Failure::ConnectRefused => "connection refused".to_owned(),
        Failure::ConnectFailed => "no connection".to_owned(),
        Failure::Http(status) => format!("HTTP {status}"),
        other => other.name().replace('_', " "),
    }
}

struct Line {
    pages: u64,
    rate: f64,
    bytes: u64,
    queued: u64,
    hosts: usize,
    errors: u64,
    elapsed: Duration,
    eta: Option<Duration>,
    /// URLs that wait to be tried again, where nothing else is left.
    retries: Option<u64>,
    /// Pages that wait for their next round, likewise.
    recrawls: Option<u64>,
    waiting_for: Vec<String>,
    stopping: bool,
}

impl Line {
    fn new(
        state: &State,
        standing: Option<&Standing>,
        limits: &CrawlConfig,
        rate: f64,
        elapsed: Duration,
        stopping: bool,
    ) -> Line {
        let (counters, places) = (&state.counters, &state.places);
        let by_pages = limits.pages_max.filter(|_| rate > 0.0).map(|max| {
            let left = max.saturating_sub(counters.processed) as f64;
            Duration::from_secs_f64((left / rate).min(1e9))
        });
        let by_time = limits.time_max_s.map(|max| Duration::from_secs(max).saturating_sub(elapsed));
        let idle = standing.is_some_and(|standing| standing.core.hosts_busy == 0);
        Line {
            pages: counters.processed,
            rate,
            bytes: counters.bytes,
            queued: places.ready + places.retries + places.flights,
            hosts: standing.map_or(0, |standing| standing.core.hosts_active),
            // As many as the summary's table of errors has: failed for good, or to be tried again.
            errors: counters.by_failure.values().sum(),
            elapsed,
            eta: by_pages.into_iter().chain(by_time).min(),
            retries: (idle && places.retries > 0 && places.ready == 0).then_some(places.retries),
            recrawls: (idle && places.recrawls > 0 && places.is_done()).then_some(places.recrawls),
            waiting_for: Vec::new(),
            stopping,
        }
    }

    fn text(&self) -> String {
        let mut text = format!(
            "{} pages, {:.1}/s, {}, {} queued, {} hosts active, {} errors, {}",
            show_count(self.pages),
            self.rate,
            show_size(self.bytes),
            show_count(self.queued),
            self.hosts,
            show_count(self.errors),
            show_time(self.elapsed),
        );
        if let Some(eta) = self.eta {
            text.push_str(&format!(", {} left", show_time(eta)));
        }
        if let Some(waiting) = self.retries {
            text.push_str(&format!(", {waiting} wait to be tried again"));
        }
        if let Some(waiting) = self.recrawls {
            text.push_str(&format!(", {waiting} wait for their next round"));
        }
        if let Some(first) = self.waiting_for.first() {
            text.push_str(&format!(", {first}"));
        }
        if self.stopping {
            text.push_str(", stopping");
        }
        text
    }

    fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "type": "progress",
            "pages": self.pages,
            "pages_per_second": (self.rate * 10.0).round() / 10.0,
            "bytes": self.bytes,
            "queued": self.queued,
            "hosts_active": self.hosts,
            "errors": self.errors,
            "elapsed_s": self.elapsed.as_secs(),
            "eta_s": self.eta.map(|eta| eta.as_secs()),
            "waiting_for": self.waiting_for,
            "stopping": self.stopping,
        })
    }
}

/// Writes a line to standard output. Whoever read it may have read enough, as `head` has: that is no failure.
pub(super) fn say(line: &impl std::fmt::Display) -> std::io::Result<()> {
    match writeln!(std::io::stdout(), "{line}").and_then(|()| std::io::stdout().flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Writes log lines to standard error, above the living line if there is one.
pub(super) fn log_writer() -> impl Write {
    LogWriter
}

struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let bar = LIVING.lock().ok().and_then(|living| living.clone());
        match bar {
            Some(bar) => bar.suspend(|| std::io::stderr().write(bytes)),
            None => std::io::stderr().write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use proto::counters::Counters;

    use super::*;
    use crate::edges::store::Places;

    fn standing(troubles: Vec<Trouble>) -> Standing {
        let core = proto::crawl::frontier::Standing { hosts_active: 2, ..Default::default() };
        Standing { core, admitting: 0, spent: false, stranded: false, now: 1_000_000, troubles }
    }

    fn line(state: &State, standing: &Standing) -> Line {
        let line = Line::new(state, Some(standing), &CrawlConfig::default(), 0.0, Duration::from_secs(3), false);
        Line { waiting_for: with_waits(&troubles(standing)), ..line }
    }

    #[test]
    fn what_is_waited_for_is_said_with_its_reason() {
        let dead = |robots, failures| Trouble { host: "a.example".into(), robots, failures, until: 41_000_000 };
        let text = line(&State::default(), &standing(vec![dead(Some(Failure::ConnectRefused), 1)])).text();
        assert!(text.contains("a.example: robots.txt cannot be had (connection refused), next try in 40s"), "{text}");
        let text = line(&State::default(), &standing(vec![dead(None, 4)])).text();
        assert!(text.contains("a.example: failed 4 times in a row, next try in 40s"), "{text}");
        assert!(text.contains("2 hosts active"), "{text}");
    }

    #[test]
    fn errors_are_those_of_the_table_also_while_they_wait_to_be_tried_again() {
        let by_failure = [("timeout".to_owned(), 2), ("http_404".to_owned(), 3)].into();
        let counters = Counters { failed: 3, by_failure, ..Counters::default() };
        let places = Places { retries: 2, ..Places::default() };
        let line = line(&State { counters, places, ..State::default() }, &standing(Vec::new()));
        assert_eq!(line.json()["errors"], 5);
        assert!(
            line.text().contains("5 errors") && line.text().contains("2 wait to be tried again"),
            "{}",
            line.text()
        );
    }
}
