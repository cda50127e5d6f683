//! What is kept of a job in the cron: when its generator ran last and runs next, and the run that is wanted and not over.
//!
//! Entries, marks of runs and what scripts print are records in queues of the cluster's own (`clients`), all with the job's id for a key, so that they lie in
//! one slot and one node looks after them ([`super::schedule`]). Nothing here depends on who that is: whoever holds the slot next reads what is written and goes on.

use serde::{Deserialize, Serialize};

use super::job::Job;
use crate::clients::ask::{Item, Told};
use crate::clients::record::Metadata;

/// Queues of tasks.
pub const TASKS: &str = "orbweaver:tasks";
/// Queues with one entry each.
pub const CRON: &str = "orbweaver:cron";
/// Queues of what was written down.
pub const LOG: &str = "orbweaver:log";
/// What any job has had.
pub const KNOWN: &str = "orbweaver:known";
/// Marks of runs.
pub const RUNS: &str = "orbweaver:runs";
/// What scripts printed, until it is taken in.
pub const OUTPUT: &str = "orbweaver:output";
/// The name of the one entry in a job's queue.
pub const ENTRY: &str = "entry";
/// The name of the record beside it that counts who has looked after the job.
pub const CLAIM: &str = "claim";
/// A time that never comes: the end of the year 9999. What has it is not handed out.
pub const NEVER_S: u64 = 253_402_300_799;
/// For how long marks of runs are kept, in milliseconds: much longer than anybody who was away can still write.
pub const MARKS_KEPT_FOR_MS: u64 = 7 * 24 * 3_600_000;

/// Why a generator runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// By its cron line.
    Cron,
    /// Somebody said so.
    Hand,
}

impl Why {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Why::Cron => "cron",
            Why::Hand => "by hand",
        }
    }
}

/// A run that is wanted and not over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Names it. Two nodes that both find an entry due give its run the same name.
    pub id: String,
    /// Of which generator.
    pub generator: String,
    /// Why.
    pub why: Why,
}

/// The entry of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The generator that it was made for; empty if none runs by a cron line.
    pub generator: String,
    /// When it ran last by its cron line, Unix milliseconds.
    pub last_ms: u64,
    /// When it runs next, Unix seconds.
    pub next_s: u64,
    /// Which taking over of a last run it has followed: see [`Generator::set_ms`](super::job::Generator::set_ms).
    pub over_ms: u64,
    /// The run that is not over.
    pub run: Option<Wanted>,
}

impl Default for Entry {
    fn default() -> Self {
        Entry { generator: String::new(), last_ms: 0, next_s: NEVER_S, over_ms: 0, run: None }
    }
}

impl Entry {
    /// The record.
    pub fn item(&self, job: &str) -> Item {
        let run = |of: fn(&Wanted) -> String| self.run.as_ref().map(of);
        Item {
            crawl: CRON.to_owned(),
            key: job.to_owned(),
            url: ENTRY.to_owned(),
            metadata: words([
                ("generator", Some(self.generator.clone())),
                ("last", Some(self.last_ms.to_string())),
                ("over", Some(self.over_ms.to_string())),
                ("run", run(|run| run.id.clone())),
                ("of", run(|run| run.generator.clone())),
                ("why", run(|run| run.why.name().to_owned())),
            ]),
            date_s: Some(self.next_s),
        }
    }

    /// What a record says.
    pub fn read(told: &Told) -> Entry {
        let run = word(&told.metadata, "run").map(|id| Wanted {
            id,
            generator: word(&told.metadata, "of").unwrap_or_default(),
            why: if word(&told.metadata, "why").as_deref() == Some("cron") { Why::Cron } else { Why::Hand },
        });
        Entry {
            generator: word(&told.metadata, "generator").unwrap_or_default(),
            last_ms: number(&told.metadata, "last"),
            next_s: told.date_s,
            over_ms: number(&told.metadata, "over"),
            run,
        }
    }

    /// The entry that a job should have, if it has another: one that is new, switched on or has a new generator gets an entry from now on; one that is switched off, an
    /// entry that never comes. What did not change is left alone, so no run is lost by it, and a run that is not over stays wanted.
    pub fn installed(there: Option<&Entry>, job: &Job, now_ms: u64) -> Option<Entry> {
        let was = there.cloned().unwrap_or_default();
        let Some((generator, cron)) = job.running().zip(job.cron()) else {
            return (was.next_s < NEVER_S).then_some(Entry { next_s: NEVER_S, ..was });
        };
        let followed = was.generator == generator.id && was.over_ms == generator.set_ms;
        if followed && was.next_s < NEVER_S {
            return None;
        }
        // One that was taken over goes on from its last run; switched off and on again, from now.
        let taken_over = generator.last_ms.filter(|_| !followed);
        let next_s = cron.next(taken_over.unwrap_or(now_ms) / 1_000).unwrap_or(NEVER_S);
        let last_ms = taken_over.unwrap_or(was.last_ms);
        Some(Entry { generator: generator.id.clone(), last_ms, next_s, over_ms: generator.set_ms, run: was.run })
    }

    /// Whether its time has come. Its minute must have begun.
    pub fn is_due(&self, now_ms: u64) -> bool {
        self.run.is_none() && self.next_s < NEVER_S && self.next_s.saturating_mul(1_000) < now_ms
    }

    /// The entry with the run for which its time has come; however many were missed, it is one.
    pub fn fallen_due(&self, job: &Job, now_ms: u64) -> Option<Entry> {
        let (generator, cron) = job.running().zip(job.cron())?;
        let id = format!("{:010}-{:x}", self.next_s, self.over_ms);
        let run = Some(Wanted { id, generator: generator.id.clone(), why: Why::Cron });
        let next_s = cron.next((now_ms / 1_000).max(self.next_s)).unwrap_or(NEVER_S);
        Some(Entry { last_ms: now_ms, next_s, run, ..self.clone() })
    }

    /// The entry with a run that somebody wants now; `unique` tells it from all others.
    pub fn wanted(&self, job: &Job, now_ms: u64, unique: u64) -> Option<Entry> {
        let generator = job.running()?.id.clone();
        let run = Some(Wanted { id: format!("h{now_ms:013}-{unique:016x}"), generator, why: Why::Hand });
        Some(Entry { run, ..self.clone() })
    }

    /// The entry when its run is over.
    pub fn ended(&self) -> Entry {
        Entry { run: None, ..self.clone() }
    }
}

/// What came of a run of a script. Kept before anything of it is taken in, so that whoever goes on takes in the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Printed {
    /// Names the execution: a run that was cut short is executed again, and prints something else perhaps.
    pub execution: String,
    /// How many pieces its output is kept in.
    pub pieces: u32,
    /// Bytes of its output.
    pub bytes: u64,
    /// Why it counts as failed.
    pub failure: Option<String>,
    /// What it complained about.
    pub stderr: String,
    /// How long it took, in milliseconds.
    pub spend_msecs: u64,
    /// When it ended, Unix milliseconds.
    pub at_ms: u64,
    /// The name of the host that it ran on.
    pub hostname: String,
}

impl Printed {
    /// A run that came to nothing.
    pub fn failed(reason: &str, at_ms: u64) -> Printed {
        Printed { failure: Some(reason.to_owned()), at_ms, ..Printed::default() }
    }

    /// The mark that a run has printed.
    pub fn item(&self, job: &str, run: &str) -> Item {
        let text = serde_json::to_string(self).expect("texts and numbers");
        Item {
            crawl: RUNS.to_owned(),
            key: job.to_owned(),
            url: Printed::mark(run),
            metadata: words([("printed", Some(text))]),
            date_s: Some(NEVER_S),
        }
    }

    /// The name of that mark.
    pub fn mark(run: &str) -> String {
        format!("{run}/printed")
    }

    /// Reads it.
    pub fn read(told: &Told) -> Option<Printed> {
        serde_json::from_str(&word(&told.metadata, "printed")?).ok()
    }

    /// A piece of what an execution printed.
    pub fn piece(job: &str, run: &str, execution: &str, number: u32, text: String) -> Item {
        Item {
            crawl: OUTPUT.to_owned(),
            key: job.to_owned(),
            url: Printed::piece_name(run, execution, number),
            metadata: words([("text", Some(text))]),
            date_s: Some(NEVER_S),
        }
    }

    /// The name of a piece.
    pub fn piece_name(run: &str, execution: &str, number: u32) -> String {
        format!("{run}/{execution}/{number:06}")
    }
}

/// The record of the claim that whoever looks after a job from now on makes first; see [`super::schedule`].
pub fn claim(job: &str, number: u32) -> Item {
    Item {
        crawl: CRON.to_owned(),
        key: job.to_owned(),
        url: CLAIM.to_owned(),
        metadata: words([("number", Some(number.to_string()))]),
        date_s: Some(NEVER_S),
    }
}

/// Its number.
pub fn claimed(told: &Told) -> u32 {
    u32::try_from(number(&told.metadata, "number")).unwrap_or(u32::MAX)
}

/// The mark that a run is over.
pub fn done(job: &str, run: &str) -> Item {
    Item {
        crawl: RUNS.to_owned(),
        key: job.to_owned(),
        url: done_mark(run),
        metadata: Metadata::new(),
        date_s: Some(NEVER_S),
    }
}

/// The name of that mark.
pub fn done_mark(run: &str) -> String {
    format!("{run}/done")
}

/// The first word under a name.
pub fn word(metadata: &Metadata, name: &str) -> Option<String> {
    metadata.iter().find(|(known, _)| known == name).and_then(|(_, values)| values.first().cloned())
}

/// The number under a name; 0 if there is none.
pub fn number(metadata: &Metadata, name: &str) -> u64 {
    word(metadata, name).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Words by name; those that are absent are left out.
pub fn words<const N: usize>(pairs: [(&str, Option<String>); N]) -> Metadata {
    pairs.into_iter().filter_map(|(name, value)| Some((name.to_owned(), vec![value?]))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::job::tests::{generator, job};

    /// A Monday, noon, in milliseconds.
    const NOON: u64 = 1_767_960_000_000;

    fn told(item: Item) -> Told {
        let Item { crawl, key, url, metadata, date_s } = item;
        Told { crawl, key, url, metadata, date_s: date_s.unwrap(), created_s: 0 }
    }

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let mut job = job();
        job.add_generator(generator(1, Some("*/5 * * * *"))).unwrap();
        let entry = Entry::installed(None, &job, NOON).unwrap();
        let due = entry.fallen_due(&job, NOON + 301_000).unwrap();
        let hand = entry.wanted(&job, NOON, 7).unwrap();
        for entry in [Entry::default(), entry, due, hand] {
            assert_eq!(Entry::read(&told(entry.item(&job.id))), entry);
        }
        let printed = Printed { pieces: 3, execution: "x".into(), ..Printed::failed("no", 7) };
        assert_eq!(Printed::read(&told(printed.item("j", "r"))), Some(printed));
        assert_eq!(claimed(&told(claim("j", 7))), 7);
    }

    #[test]
    fn what_was_missed_comes_to_one_run_and_its_name_does_not_depend_on_who_finds_it() {
        let mut job = job();
        job.add_generator(generator(1, Some("*/5 * * * *"))).unwrap();
        let entry = Entry::installed(None, &job, NOON).unwrap();
        assert_eq!(entry.next_s * 1_000, NOON + 300_000);
        assert!(!entry.is_due(NOON + 300_000) && entry.is_due(NOON + 300_001), "its minute must have begun");
        let one = entry.fallen_due(&job, NOON + 4_000_000).unwrap();
        let other = entry.fallen_due(&job, NOON + 9_000_000).unwrap();
        assert_eq!(one.run, other.run);
        assert!(one.next_s * 1_000 > NOON + 4_000_000 && !one.is_due(u64::MAX), "not while its run is not over");
        assert!(!one.ended().is_due(NOON + 4_000_000));
        let slow = entry.fallen_due(&job, NOON).unwrap();
        assert!(slow.next_s > entry.next_s, "also by a clock that is late");
    }

    #[test]
    fn installing_leaves_alone_what_did_not_change_and_keeps_what_is_not_over() {
        let mut job = job();
        job.add_generator(generator(1, Some("*/5 * * * *"))).unwrap();
        let entry = Entry::installed(None, &job, NOON).unwrap();
        assert_eq!(Entry::installed(Some(&entry), &job, NOON + 10_000_000), None);
        let running = entry.fallen_due(&job, NOON + 301_000).unwrap();
        job.status = 2;
        let off = Entry::installed(Some(&running), &job, NOON).unwrap();
        assert_eq!((off.next_s, &off.run), (NEVER_S, &running.run));
        assert_eq!(Entry::installed(Some(&off), &job, NOON), None);
        job.status = 1;
        let on = Entry::installed(Some(&off), &job, NOON + 900_000).unwrap();
        assert_eq!(on.next_s * 1_000, NOON + 1_200_000, "from now on");

        // A last run that is taken over, and taken over once more with the same words.
        let last = job.generators.last_mut().unwrap();
        (last.last_ms, last.set_ms) = (Some(NOON - 86_400_000), 1);
        let over = Entry::installed(Some(&on.ended()), &job, NOON).unwrap();
        assert!(over.is_due(NOON) && Entry::installed(Some(&over), &job, NOON).is_none());
        let first = over.fallen_due(&job, NOON).unwrap();
        job.generators.last_mut().unwrap().set_ms = 2;
        let again = Entry::installed(Some(&first.ended()), &job, NOON).unwrap();
        assert_eq!(again.next_s, over.next_s);
        assert_ne!(again.fallen_due(&job, NOON).unwrap().run, first.run, "it is another run");
    }
}
