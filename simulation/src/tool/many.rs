//! Runs many seeds, on all cores, and sums up.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use serde::Serialize;
use xxhash_rust::xxh3::Xxh3;

use crate::invariants::Violation;
use crate::layer::{Layer, Point, RunOptions, RunReport};
use crate::world::plan::{FaultClass, Plan};

/// One seed of so many is run twice.
const TWICE_ONE_IN: u64 = 20;

/// What to run.
#[derive(Clone, Debug)]
pub struct Many {
    /// The first seed.
    pub base: u64,
    /// How many.
    pub count: u64,
    /// Classes of faults that are switched off.
    pub without: Vec<FaultClass>,
    /// A planted defect.
    pub mutant: Option<&'static str>,
    /// How many at once.
    pub threads: usize,
    /// Stop soon after so many violations; all of them would say the same.
    pub violations_max: usize,
    /// Run every seed twice, not only one in twenty.
    pub all_twice: bool,
}

/// What came of it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// The first seed.
    pub base: u64,
    /// Seeds that were run.
    pub seeds: u64,
    /// Seeds that were run twice.
    pub twice: u64,
    /// Seeds whose second run had another hash.
    pub unequal: Vec<u64>,
    /// What did not hold, by seed.
    pub violations: BTreeMap<u64, Violation>,
    /// Time the cluster took to come to rest after the last fault, in milliseconds: median.
    pub rest_p50_ms: u64,
    /// 99 of a hundred runs took no longer.
    pub rest_p99_ms: u64,
    /// The longest.
    pub rest_max_ms: u64,
    /// URLs that were kept, in all runs.
    pub urls: u64,
    /// Requests to hosts.
    pub fetches: u64,
    /// Fetches of a URL beyond the first good one of its round.
    pub redundant_fetches: u64,
    /// Overlaps with a stopped process.
    pub overlaps_with_stopped: u64,
    /// Messages between nodes.
    pub messages: u64,
    /// Events and notes.
    pub events: u64,
    /// Seconds of true time that were simulated.
    pub simulated_s: f64,
    /// Seconds it took.
    pub wall_s: f64,
    /// Seconds of processor that it took, where the system says so: others may have had the rest.
    pub processor_s: Option<f64>,
    /// Runs at once.
    pub threads: usize,
    /// Seeds that reached each interesting situation, and how often all of them did.
    pub sometimes: BTreeMap<String, (u64, u64)>,
    /// Interesting situations that no seed reached.
    pub not_reached: Vec<String>,
    /// Those of them that so many seeds must have reached.
    pub missed: Vec<String>,
    /// A hash of the hashes of all seeds: equal on every machine and in every build of one state of the code.
    pub digest: String,
}

impl Summary {
    /// Whether everything is as it should be.
    pub fn is_good(&self) -> bool {
        self.violations.is_empty() && self.unequal.is_empty() && self.missed.is_empty()
    }

    /// Redundant fetches per thousand URLs.
    pub fn redundant_per_thousand(&self) -> f64 {
        if self.urls == 0 { 0.0 } else { self.redundant_fetches as f64 * 1_000.0 / self.urls as f64 }
    }

    /// Simulated seconds per second of one processor.
    pub fn speed(&self) -> f64 {
        let seconds = self.processor_s.unwrap_or(self.wall_s * self.threads.max(1) as f64);
        if seconds == 0.0 { 0.0 } else { self.simulated_s / seconds }
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let last = self.base.saturating_add(self.seeds.saturating_sub(1));
        writeln!(out, "{} seeds from {} to {last}: {} violations", self.seeds, self.base, self.violations.len())?;
        let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
        for violation in self.violations.values() {
            *kinds.entry(&violation.invariant).or_default() += 1;
        }
        for (invariant, seeds) in kinds {
            writeln!(out, "  {seeds} times {invariant}")?;
        }
        for (seed, violation) in self.violations.iter().take(10) {
            writeln!(out, "  seed {seed}: {violation}")?;
        }
        writeln!(
            out,
            "  {} run twice, {} of them with another hash; digest {}",
            self.twice,
            self.unequal.len(),
            self.digest
        )?;
        for seed in self.unequal.iter().take(10) {
            writeln!(out, "  seed {seed}: two runs, two hashes")?;
        }
        writeln!(
            out,
            "  at rest after the last fault: p50 {:.1} s, p99 {:.1} s, max {:.1} s",
            self.rest_p50_ms as f64 / 1e3,
            self.rest_p99_ms as f64 / 1e3,
            self.rest_max_ms as f64 / 1e3
        )?;
        writeln!(
            out,
            "  {} urls, {} fetches, {:.1} redundant per 1,000 urls, {} overlaps with a stopped process",
            self.urls,
            self.fetches,
            self.redundant_per_thousand(),
            self.overlaps_with_stopped
        )?;
        writeln!(
            out,
            "  {:.0} s simulated in {:.1} s on {} threads, {:.0} per second; {:.0} per second of one processor",
            self.simulated_s,
            self.wall_s,
            self.threads,
            self.simulated_s / self.wall_s.max(0.001),
            self.speed()
        )?;
        writeln!(out, "  {} messages, {} events", self.messages, self.events)?;
        writeln!(out, "  sometimes (seeds, times):")?;
        for (name, (seeds, times)) in &self.sometimes {
            writeln!(out, "    {name:<44} {seeds:>7} {times:>10}")?;
        }
        for name in &self.not_reached {
            writeln!(out, "    {name:<44}    NEVER")?;
        }
        Ok(())
    }
}

struct Done {
    seed: u64,
    report: RunReport,
    again: Option<u64>,
}

/// Runs the seeds; `progress` is told after each what is known so far, and what did not hold in this one.
pub fn many(layer: &dyn Layer, what: &Many, mut progress: impl FnMut(&Summary, Option<(u64, &Violation)>)) -> Summary {
    let (began, processor_began) = (Instant::now(), processor_s());
    let threads = what.threads.max(1);
    let next = AtomicU64::new(0);
    let (send, receive) = mpsc::channel();
    let mut sum = Sum::default();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (send, next) = (send.clone(), &next);
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= what.count {
                        return;
                    }
                    if send.send(one(layer, what, number)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        for done in &receive {
            let seed = done.seed;
            sum.add(done);
            progress(&sum.summary, sum.summary.violations.get(&seed).map(|violation| (seed, violation)));
            if sum.summary.violations.len() >= what.violations_max {
                next.store(what.count, Ordering::Relaxed);
            }
        }
    });
    let mut summary = sum.finish(layer);
    (summary.base, summary.threads, summary.wall_s) = (what.base, threads, began.elapsed().as_secs_f64());
    summary.processor_s = processor_s().zip(processor_began).map(|(now, began)| now - began);
    summary
}

/// Seconds of processor that this process has had, in hundredths; `None` where there is no /proc.
fn processor_s() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in brackets, may hold anything.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some((ticks()? + ticks()?) as f64 / 100.0)
}

fn one(layer: &dyn Layer, what: &Many, number: u64) -> Done {
    let seed = what.base.wrapping_add(number);
    let plan = Plan::from_seed(seed).without(&what.without);
    let options = RunOptions { mutant: what.mutant, ..RunOptions::default() };
    let report = super::run(layer, &plan, &options);
    let again = (what.all_twice || number.is_multiple_of(TWICE_ONE_IN)).then(|| {
        // Another run in between: nothing may be left over from the first.
        let other = Plan::from_seed(seed ^ 0x5555_5555).without(&what.without);
        if what.all_twice {
            super::run(layer, &other, &options);
        }
        super::run(layer, &plan, &options).hash
    });
    Done { seed, report, again }
}

#[derive(Default)]
struct Sum {
    summary: Summary,
    rests_ms: Vec<u64>,
    hashes: BTreeMap<u64, u64>,
}

impl Sum {
    fn add(&mut self, Done { seed, report, again }: Done) {
        let summary = &mut self.summary;
        summary.seeds += 1;
        if let Some(again) = again {
            summary.twice += 1;
            if again != report.hash {
                summary.unequal.push(seed);
            }
        }
        if let Some(violation) = report.violation {
            summary.violations.insert(seed, violation);
        }
        self.rests_ms.extend(report.rested_after.map(|after| after / 1_000));
        self.hashes.insert(seed, report.hash);
        summary.urls += report.urls;
        summary.fetches += report.fetches;
        summary.redundant_fetches += report.redundant_fetches;
        summary.overlaps_with_stopped += report.overlaps_with_stopped;
        summary.messages += report.messages;
        summary.events += report.events;
        summary.simulated_s += report.ended_at as f64 / 1e6;
        for (name, times) in report.sometimes {
            let entry = summary.sometimes.entry(name.to_owned()).or_default();
            (entry.0, entry.1) = (entry.0 + 1, entry.1 + times);
        }
    }

    fn finish(mut self, layer: &dyn Layer) -> Summary {
        self.rests_ms.sort_unstable();
        let at =
            |share: usize| self.rests_ms.get((self.rests_ms.len() * share / 100).min(self.rests_ms.len().max(1) - 1));
        let rest = |share| at(share).copied().unwrap_or(0);
        let mut digest = Xxh3::new();
        for (seed, hash) in &self.hashes {
            digest.update(&seed.to_le_bytes());
            digest.update(&hash.to_le_bytes());
        }
        let mut summary = self.summary;
        (summary.rest_p50_ms, summary.rest_p99_ms, summary.rest_max_ms) = (rest(50), rest(99), rest(100));
        summary.digest = format!("{:016x}", digest.digest());
        summary.unequal.sort_unstable();
        let points = layer.points();
        let not_reached = || points.iter().filter(|point| !summary.sometimes.contains_key(point.name));
        let missed = not_reached().filter(|point| point.within <= summary.seeds);
        let names = |point: &Point| point.name.to_owned();
        (summary.missed, summary.not_reached) = (missed.map(names).collect(), not_reached().map(names).collect());
        summary
    }
}
