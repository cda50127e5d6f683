//! Progress of a running crawl: one living line on a terminal, plain lines elsewhere, JSON lines for machines.

use std::collections::VecDeque;
use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

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
}

impl Progress {
    pub(super) fn start(json: bool) -> Progress {
        let bar = (!json && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
            bar.set_style(ProgressStyle::with_template("{spinner} {msg}").expect("a constant template"));
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        if let Ok(mut living) = LIVING.lock() {
            living.clone_from(&bar);
        }
        Progress { json, bar, started: Instant::now(), samples: VecDeque::new(), last_line: None }
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
        let due = self.last_line.is_none_or(|last| now - last >= LINE_EVERY);
        if self.bar.is_none() && !due {
            return;
        }
        self.last_line = Some(now);
        let line = Line::new(state, standing, limits, self.rate(), self.elapsed(), stopping);
        match &self.bar {
            Some(bar) => bar.set_message(line.text()),
            None if self.json => say(&line.json()),
            None => eprintln!("{}", line.text()),
        }
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

struct Line {
    pages: u64,
    rate: f64,
    bytes: u64,
    queued: u64,
    hosts: usize,
    errors: u64,
    elapsed: Duration,
    eta: Option<Duration>,
    waits_ms: Option<u64>,
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
            hosts: standing.map_or(0, |standing| standing.core.hosts_busy),
            errors: counters.failed,
            elapsed,
            eta: by_pages.into_iter().chain(by_time).min(),
            waits_ms: (idle && places.retries > 0 && places.ready == 0).then_some(places.retries),
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
        if let Some(waiting) = self.waits_ms {
            text.push_str(&format!(", {waiting} wait to be tried again"));
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
            "stopping": self.stopping,
        })
    }
}

/// Writes a line to standard output. Whoever read it may have read enough: that ends nothing.
pub(super) fn say(line: &impl std::fmt::Display) {
    let _ = writeln!(std::io::stdout(), "{line}");
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
