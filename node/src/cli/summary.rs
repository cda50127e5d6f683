//! What a crawl came to: tables for people, one JSON object for machines.

use std::path::Path;
use std::time::Duration;

use proto::crawl::filter::Filter;
use proto::crawl::retry::Failure;
use proto::url::CanonicalUrl;

use super::moved::SeedNotes;
use super::units::{show_count, show_size, show_time};
use crate::config::Config;
use crate::edges::store::{HostRow, State, Store, StoreError};

/// Hosts shown; the rest is in the export.
const HOSTS_SHOWN: usize = 10;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Complete,
    PagesMax,
    BytesMax,
    TimeMax,
    Interrupted,
    Unreachable,
}

impl Ended {
    fn name(self) -> &'static str {
        match self {
            Ended::Complete => "complete",
            Ended::PagesMax => "pages_max",
            Ended::BytesMax => "bytes_max",
            Ended::TimeMax => "time_max",
            Ended::Interrupted => "interrupted",
            Ended::Unreachable => "unreachable",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Ended::Complete => "everything in scope was crawled",
            Ended::PagesMax => "the page limit is reached",
            Ended::BytesMax => "the byte limit is reached",
            Ended::TimeMax => "the time limit is reached",
            Ended::Interrupted => "interrupted; the same command goes on from here",
            Ended::Unreachable => {
                "no host that has URLs left could be reached; they stay in their queues, the same command tries again"
            }
        }
    }
}

/// The summary of a run.
pub(super) struct Summary {
    ended: Ended,
    state: State,
    hosts: Vec<HostRow>,
    host_count: usize,
    elapsed: Duration,
    fetched_now: u64,
    seeds: SeedNotes,
    /// Hosts that were waited for at the end.
    troubles: Vec<String>,
}

impl Summary {
    /// Reads what the summary needs from the store.
    pub(super) fn read(
        store: &Store,
        config: &Config,
        seeds: &[CanonicalUrl],
        filter: &Filter,
        ended: Ended,
        elapsed: Duration,
        fetched_before: u64,
    ) -> Result<Summary, StoreError> {
        let seeds = SeedNotes::read(store, seeds, filter, &config.crawl)?;
        let (mut hosts, mut host_count) = (Vec::<HostRow>::new(), 0);
        for row in store.hosts() {
            let row = row?;
            host_count += 1;
            let at = hosts.partition_point(|known| known.counters.processed >= row.counters.processed);
            if at < HOSTS_SHOWN {
                hosts.insert(at, row);
                hosts.truncate(HOSTS_SHOWN);
            }
        }
        let state = store.state().clone();
        let fetched_now = state.counters.fetches.saturating_sub(fetched_before);
        Ok(Summary { ended, state, hosts, host_count, elapsed, fetched_now, seeds, troubles: Vec::new() })
    }

    /// Adds what was waited for at the end of a run that left something undone.
    pub(super) fn with_troubles(self, troubles: Vec<String>) -> Summary {
        let done = self.ended == Ended::Complete;
        Summary { troubles: if done { Vec::new() } else { troubles }, ..self }
    }

    /// Tables for people.
    pub(super) fn text(&self, dir: &Path) -> String {
        let counters = &self.state.counters;
        let rate = self.fetched_now as f64 / self.elapsed.as_secs_f64().max(0.001);
        let mut text = format!(
            "{} pages ({}) of {} known URLs on {} hosts: {}\n{} requests for pages in {} ({rate:.1}/s)\n",
            show_count(counters.processed),
            show_size(counters.bytes),
            show_count(counters.known),
            show_count(self.host_count as u64),
            self.ended.text(),
            show_count(self.fetched_now),
            show_time(self.elapsed),
        );
        let codes = counters.by_code.iter().map(|(code, count)| (code.to_string(), *count));
        table(&mut text, "status", codes);
        table(&mut text, "error", counters.by_failure.iter().map(|(name, count)| (name.clone(), *count)));
        table(&mut text, "type", by_count(counters.by_type.iter().map(|(name, count)| (name.clone(), *count))));
        self.host_table(&mut text);
        self.notes(&mut text);
        text.push_str(&format!("\nresults: {}\n", dir.display()));
        text.push_str(&format!("  orbweaver export {} --format jsonl\n", shell_word(dir)));
        text
    }

    fn host_table(&self, text: &mut String) {
        if self.hosts.is_empty() {
            return;
        }
        let width = self.hosts.iter().map(|row| row.queue.host().len()).fold(40, usize::max);
        text.push_str(&format!("\n{:<width$} {:>10} {:>10} {:>10}\n", "host", "pages", "failed", "bytes"));
        for row in &self.hosts {
            let HostRow { queue, counters } = row;
            text.push_str(&format!(
                "{:<width$} {:>10} {:>10} {:>10}\n",
                queue.host(),
                show_count(counters.processed),
                show_count(counters.failed),
                show_size(counters.bytes),
            ));
        }
        if self.host_count > self.hosts.len() {
            text.push_str(&format!("and {} more hosts\n", show_count((self.host_count - self.hosts.len()) as u64)));
        }
    }

    fn notes(&self, text: &mut String) {
        let (counters, places) = (&self.state.counters, &self.state.places);
        let refused = counters.by_failure.get(&Failure::AddressRefused.to_string()).copied().unwrap_or(0);
        let notes = [
            (counters.duplicates, "pages have the content of another page and are stored as references"),
            (counters.unchanged, "revisits found nothing new"),
            (places.aside, "known URLs are set aside by this run's rules; they come back when a run admits them"),
            (places.links_aside, "links lead beyond this run's rules; they are kept for a run that admits them"),
            (refused, "URLs lead to private or local addresses; to crawl those, name them with --allow-address"),
            (places.traps, "URLs were left out because their host or path has too many"),
            (places.ready + places.retries + places.flights, "URLs wait in the queues"),
            (places.retries, "of them failed and wait to be tried again"),
            (places.flights, "of them were in flight and will be fetched again"),
            (places.recrawls, "pages wait for their next round"),
        ];
        let notes: Vec<_> = notes.into_iter().filter(|(count, _)| *count > 0).collect();
        let seeds = self.seeds.failed_count + self.seeds.moved_count;
        if !notes.is_empty() || seeds > 0 || !self.troubles.is_empty() {
            text.push('\n');
        }
        for (count, note) in notes {
            text.push_str(&format!("{} {note}\n", show_count(count)));
        }
        self.seed_notes(text);
        for trouble in &self.troubles {
            text.push_str(&format!("{trouble}\n"));
        }
    }

    fn seed_notes(&self, text: &mut String) {
        let seeds = &self.seeds;
        for (seed, failure) in &seeds.failed {
            text.push_str(&format!("seed {seed} failed: {failure}; name it again to have it asked for again\n"));
        }
        for (seed, target) in &seeds.moved {
            text.push_str(&format!("seed {seed} redirects out of the scope, to {target}; name that to crawl it\n"));
        }
        let more = seeds.failed_count + seeds.moved_count - seeds.failed.len() - seeds.moved.len();
        if more > 0 {
            text.push_str(&format!("and {more} more seeds failed or redirect out of the scope\n"));
        }
    }

    /// One object for machines.
    pub(super) fn json(&self, dir: &Path) -> serde_json::Value {
        let (counters, places) = (&self.state.counters, &self.state.places);
        let hosts: Vec<_> = self
            .hosts
            .iter()
            .map(|row| {
                serde_json::json!({
                    "host": row.queue.host(),
                    "known": row.counters.known,
                    "pages": row.counters.processed,
                    "errors": row.counters.failed,
                    "bytes": row.counters.bytes,
                })
            })
            .collect();
        serde_json::json!({
            "type": "summary",
            "ended": self.ended.name(),
            "data": dir,
            "elapsed_s": self.elapsed.as_secs_f64(),
            "requests": self.fetched_now,
            "pages": counters.processed,
            "known": counters.known,
            "failed": counters.failed,
            "set_aside": places.aside,
            "links_aside": places.links_aside,
            "duplicates": counters.duplicates,
            "unchanged": counters.unchanged,
            "changes": counters.changes,
            "bytes": counters.bytes,
            "queued": places.ready + places.retries + places.flights,
            "retries": places.retries,
            "recrawls": places.recrawls,
            "traps": places.traps,
            "hosts": self.host_count,
            "by_status": counters.by_code,
            "by_error": counters.by_failure,
            "by_type": counters.by_type,
            "top_hosts": hosts,
            "seeds_failed": pairs(&self.seeds.failed, "error"),
            "seeds_moved": pairs(&self.seeds.moved, "target"),
            "waiting_for": self.troubles,
        })
    }
}

/// Seeds and what became of them, under its name.
fn pairs(seeds: &[(String, String)], name: &str) -> Vec<serde_json::Value> {
    seeds.iter().map(|(seed, what)| serde_json::json!({ "seed": seed, name: what })).collect()
}

fn by_count(rows: impl Iterator<Item = (String, u64)>) -> Vec<(String, u64)> {
    let mut rows: Vec<_> = rows.collect();
    rows.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    rows
}

fn table(text: &mut String, heading: &str, rows: impl IntoIterator<Item = (String, u64)>) {
    let rows: Vec<_> = rows.into_iter().collect();
    if rows.is_empty() {
        return;
    }
    text.push_str(&format!("\n{heading:<40} {:>10}\n", "URLs"));
    for (name, count) in rows {
        text.push_str(&format!("{name:<40} {:>10}\n", show_count(count)));
    }
}

/// The path as a shell takes it.
fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+=:@%,".contains(c));
    if plain { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}
