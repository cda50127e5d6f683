//! The dispatcher of a node: which runs of generators wait, which are under way, and when something is wrong with it.
//!
//! Cron entries only *dispatch*, one after the other, which is cheap; what is parallel are the runs of scripts, as many as there are workers. A generator that
//! still waits or runs is not started a second time: whoever wanted it is told.

use std::collections::BTreeSet;

use super::lanes::{LANES_MAX, Lanes, Placed, Priority};

/// A tick that takes longer is worth an alert, in milliseconds.
pub const TICK_MAX_MS: u64 = 60_000;

/// A run of a generator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Whose.
    pub job: String,
    /// Which.
    pub generator: String,
    /// Names the run.
    pub id: String,
}

/// What became of a run that was to be dispatched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatched {
    /// It waits there.
    Waits(Placed),
    /// The generator waits or runs already.
    Busy,
    /// All channels that it may wait in are full.
    Full,
}

/// Something that somebody should see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alert {
    /// A tick took too long.
    Timeout {
        /// How long, in milliseconds.
        took_ms: u64,
        /// How many entries were dispatched in it.
        entries: usize,
    },
    /// The channels are full.
    QueuesFilledUp,
    /// The holder of a job runs no scripts, and reaches no node that does.
    NobodyExecutes,
}

impl Alert {
    /// Its name in the log.
    pub fn name(self) -> &'static str {
        match self {
            Alert::Timeout { .. } => "TIMEOUT",
            Alert::QueuesFilledUp => "QUEUES_FILLED_UP",
            Alert::NobodyExecutes => "NOBODY_EXECUTES",
        }
    }
}

/// The dispatcher.
#[derive(Debug)]
pub struct Dispatcher {
    lanes: Lanes<Run>,
    /// Jobs that wait or run.
    busy: BTreeSet<String>,
    running: usize,
    workers: usize,
}

impl Dispatcher {
    /// A dispatcher for so many scripts at once.
    pub fn new(workers: usize) -> Dispatcher {
        Dispatcher { lanes: Lanes::new(LANES_MAX), busy: BTreeSet::new(), running: 0, workers: workers.max(1) }
    }

    /// Dispatches a run.
    pub fn dispatch(&mut self, priority: Priority, run: Run) -> Dispatched {
        let job = run.job.clone();
        if self.busy.contains(&job) {
            return Dispatched::Busy;
        }
        match self.lanes.put(priority, run) {
            Ok(placed) => {
                self.busy.insert(job);
                Dispatched::Waits(placed)
            }
            Err(_) => Dispatched::Full,
        }
    }

    /// The next run, if a worker is free.
    pub fn take(&mut self) -> Option<Run> {
        if self.running >= self.workers {
            return None;
        }
        let run = self.lanes.take()?;
        self.running += 1;
        Some(run)
    }

    /// A run that waits is not to be made here any more.
    pub fn forget(&mut self, job: &str) {
        if self.lanes.remove(|run| run.job == job) {
            self.busy.remove(job);
        }
    }

    /// A run has ended.
    pub fn ended(&mut self, run: &Run) {
        if self.busy.remove(&run.job) {
            self.running = self.running.saturating_sub(1);
        }
    }

    /// How many wait in each channel.
    pub fn waiting(&self) -> [usize; 4] {
        self.lanes.lengths()
    }

    /// How many run.
    pub fn running(&self) -> usize {
        self.running
    }

    /// Looks at a tick that is over; times in milliseconds of a clock that does not jump.
    pub fn tick_ended(began_ms: u64, ended_ms: u64, entries: usize) -> Option<Alert> {
        let took_ms = ended_ms.saturating_sub(began_ms);
        (took_ms > TICK_MAX_MS).then_some(Alert::Timeout { took_ms, entries })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(number: usize) -> Run {
        Run { job: format!("job {number}"), generator: format!("{number}"), id: String::new() }
    }

    #[test]
    fn case_12_a_job_that_is_dispatched_waits_in_its_channel() {
        let mut dispatcher = Dispatcher::new(1);
        let placed = dispatcher.dispatch(Priority::DEFAULT, run(1));
        assert!(matches!(placed, Dispatched::Waits(Placed { lane: 3, at_head: false, overflowed: false })));
        assert_eq!(dispatcher.dispatch(Priority::DEFAULT, run(1)), Dispatched::Busy, "it waits already");
        let first = dispatcher.take().unwrap();
        assert_eq!(dispatcher.dispatch(Priority::DEFAULT, run(1)), Dispatched::Busy, "it runs");
        dispatcher.dispatch(Priority::DEFAULT, run(2));
        assert_eq!((dispatcher.take(), dispatcher.running()), (None, 1), "one worker");
        dispatcher.ended(&first);
        dispatcher.dispatch(Priority::DEFAULT, run(3));
        dispatcher.forget("job 3");
        assert_eq!((dispatcher.take(), dispatcher.waiting()), (Some(run(2)), [0; 4]));
    }

    #[test]
    fn case_20_more_than_ten_thousand_at_once_alert_and_none_is_lost_in_silence() {
        let mut dispatcher = Dispatcher::new(2);
        let entries = 10_001;
        let mut now_ms = 0;
        let mut refused = 0;
        for number in 0..entries {
            let priority = Priority::new(number as i64 % 7 - 1).unwrap();
            refused += usize::from(dispatcher.dispatch(priority, run(number)) == Dispatched::Full);
            now_ms += 7; // each is written down before the next one
        }
        assert_eq!(dispatcher.waiting().iter().sum::<usize>() + refused, entries);
        assert!(refused >= 1, "10,000 places");
        let alert = Dispatcher::tick_ended(0, now_ms, entries).expect("it took longer than a minute");
        assert_eq!((alert, alert.name()), (Alert::Timeout { took_ms: 70_007, entries }, "TIMEOUT"));
        assert_eq!(Dispatcher::tick_ended(0, TICK_MAX_MS, 1), None, "a minute is in time");
    }

    proptest! {
        #[test]
        fn no_generator_runs_twice_at_once_and_no_more_than_there_are_workers(
            workers in 1..4usize, ops in proptest::collection::vec((0..3u8, 0..6usize, -1..=5i64), 0..80),
        ) {
            let mut dispatcher = Dispatcher::new(workers);
            let mut running: Vec<Run> = Vec::new();
            let (mut dispatched, mut ended) = (0, 0);
            for (op, number, priority) in ops {
                match op {
                    0 => dispatched += usize::from(matches!(
                        dispatcher.dispatch(Priority::new(priority).unwrap(), run(number)), Dispatched::Waits(_))),
                    1 => running.extend(dispatcher.take()),
                    _ => if let Some(run) = running.pop() {
                        dispatcher.ended(&run);
                        ended += 1;
                    },
                }
                let mut jobs: Vec<&str> = running.iter().map(|run| run.job.as_str()).collect();
                jobs.sort_unstable();
                jobs.dedup();
                prop_assert_eq!(jobs.len(), running.len());
                prop_assert!(running.len() <= workers && dispatcher.running() == running.len());
                prop_assert_eq!(dispatched, ended + running.len() + dispatcher.waiting().iter().sum::<usize>());
            }
        }
    }
}
