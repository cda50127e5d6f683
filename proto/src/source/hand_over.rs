//! Tasks go into their crawl: those that wait are taken under a lease, handed in, and marked as handed over once enough disks of the crawl have them.
//!
//! Whoever is killed in between leaves a lease behind that lapses; the task is taken again, and the crawl does not take a URL twice. The other way round, a task that
//! was marked first would be lost. A task of a URL that is to be crawled again is handed in with that wish, which is fulfilled once: see [`renews`].

use std::collections::BTreeMap;

use super::entry::{NEVER_S, TASKS, number, word};
use crate::clients::ask::{Item, Told};
use crate::cluster::mutant::{Planted, planted};
use crate::record::UrlRecord;

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// Tasks of a job were taken.
    Taken {
        /// Whose.
        job: String,
        /// Which.
        tasks: Vec<Told>,
    },
    /// The crawl has them on enough disks, or not.
    Submitted {
        /// Which.
        number: u64,
        /// Whether it has.
        kept: bool,
    },
}

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// Hand tasks in to the crawl.
    Submit {
        /// Names it.
        number: u64,
        /// Whose they are.
        job: String,
        /// Which.
        tasks: Vec<Told>,
    },
    /// Keep them as handed over.
    Mark(Vec<Item>),
}

/// What is on its way.
#[derive(Debug, Default)]
pub struct HandOver {
    planted: Planted,
    numbers: u64,
    open: BTreeMap<u64, Vec<Told>>,
}

impl HandOver {
    /// Nothing is on its way.
    pub fn new(planted: Planted) -> HandOver {
        HandOver { planted, ..HandOver::default() }
    }

    /// Takes in what happened.
    pub fn step(&mut self, now_ms: u64, input: Input, out: &mut Vec<Effect>) {
        match input {
            Input::Taken { job, tasks } => {
                self.numbers += 1;
                if planted!(self.planted, HandedBeforeKept) {
                    out.push(Effect::Mark(tasks.iter().map(|task| handed(task, now_ms)).collect()));
                }
                self.open.insert(self.numbers, tasks.clone());
                out.push(Effect::Submit { number: self.numbers, job, tasks });
            }
            Input::Submitted { number, kept } => {
                // Those that the crawl does not have come again when their lease has lapsed.
                let tasks = self.open.remove(&number).filter(|_| kept && !planted!(self.planted, HandedBeforeKept));
                out.extend(tasks.map(|tasks| Effect::Mark(tasks.iter().map(|task| handed(task, now_ms)).collect())));
            }
        }
    }
}

/// A task that the crawl has.
fn handed(task: &Told, now_ms: u64) -> Item {
    let mut metadata = task.metadata.clone();
    metadata.retain(|(name, _)| name != "again");
    metadata.push(("handed".to_owned(), vec![now_ms.to_string()]));
    Item { crawl: TASKS.to_owned(), key: task.key.clone(), url: task.url.clone(), metadata, date_s: Some(NEVER_S) }
}

/// Whether a task's URL is to be crawled again: the task says so, and that has not been done since it was put up.
pub fn renews(task: &Told, record: Option<&UrlRecord>) -> bool {
    let crawled_at = record.and_then(|record| record.findings.as_ref()).map_or(0, |findings| findings.crawled_at);
    word(&task.metadata, "again").is_some() && crawled_at < number(&task.metadata, "added")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::record::Metadata;
    use crate::cluster::copy::tests::kept;
    use crate::id::NodeId;
    use crate::record::{Findings, Progress};
    use crate::source::entry::words;

    fn task(metadata: Metadata) -> Told {
        let (crawl, key, url) = (TASKS.to_owned(), "job".to_owned(), "http://a.example/".to_owned());
        Told { crawl, key, url, metadata, date_s: 1, created_s: 1 }
    }

    #[test]
    fn a_task_is_marked_when_the_crawl_has_it_and_not_before() {
        let mut core = HandOver::default();
        let mut out = Vec::new();
        let tasks = vec![task(words([("again", Some("1".into())), ("args", Some("{}".into()))]))];
        core.step(7, Input::Taken { job: "job".into(), tasks: tasks.clone() }, &mut out);
        assert_eq!(out.pop(), Some(Effect::Submit { number: 1, job: "job".into(), tasks: tasks.clone() }));
        core.step(8, Input::Submitted { number: 1, kept: true }, &mut out);
        let Some(Effect::Mark(items)) = out.pop() else { panic!("{out:?}") };
        assert_eq!(items[0].metadata, words([("args", Some("{}".into())), ("handed", Some("8".into()))]));
        assert_eq!(items[0].date_s, Some(NEVER_S));
        core.step(9, Input::Taken { job: "job".into(), tasks }, &mut out);
        out.clear();
        core.step(9, Input::Submitted { number: 2, kept: false }, &mut out);
        core.step(9, Input::Submitted { number: 2, kept: true }, &mut out);
        assert_eq!(out, [], "it comes again by itself");
    }

    #[test]
    fn a_url_is_crawled_again_once_for_each_time_that_its_task_was_put_up() {
        let again = task(words([("added", Some("50".into())), ("again", Some("1".into()))]));
        let mut record = kept("http://a.example/", Progress::new(NodeId(1))).record;
        assert!(renews(&again, None) && renews(&again, Some(&record)));
        assert!(!renews(&task(Metadata::new()), Some(&record)));
        for (crawled_at, renewed) in [(49, true), (60, false)] {
            record.findings = Some(Box::new(Findings { crawled_at, ..Findings::default() }));
            assert_eq!(renews(&again, Some(&record)), renewed, "crawled at {crawled_at}");
        }
    }
}
