//! Scripts that another node executes. The holder of a job that runs no scripts itself has a *guest* execute them; whose run it is does not change.
//!
//! **The guest's time is the holder's, and ends no later.** Neither knows the other's clock, so time is told as what is left since a moment that the guest named: a guest
//! answers every word with a *stamp* of its own clock, and the next word says for how long from that stamp on the script may run. The stamp was made before
//! the holder looked how long the job is surely its own, so the guest's time is over before the holder's is, however long a word was under way. A guest that hears nothing more kills the
//! script when its time is over. So no script goes on in a slot that is somebody else's, as if the holder had executed it.
//!
//! **One at a time.** A holder that let a guest begin asks nobody else until the guest said that the execution has ended or never begins, or its time is over. A word that comes late or
//! twice begins nothing: either its time is over, or the guest remembers the execution, which it does for as long as any word of it counts. Words are sent one after the other, and
//! only the answer to the last one counts.
//!
//! **What a restart adds.** Whoever holds a job may die, and its next life may hold the job again at once, without a memory of whom it let execute. So leave is given for
//! [`LEAVE_MAX`] at most, time and again, and a life executes nothing, nor has anything executed, nor parts with a job, before [`NEW_LIFE_WAITS`] have passed: by then its former life's guests have ended. (It may lose a job
//! before, if its lease lapses; but then the former life's would have lapsed before that.)
//!
//! A word names a generator and brings no code: a guest executes what an operator gave the job, and nothing else. Pure: clocks and words come in.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::dispatch::Run;
use crate::crawl::politeness::{Micros, SECOND};

/// Longest leave in one word: a guest that hears nothing for so long kills the script.
pub const LEAVE_MAX: Micros = 5 * SECOND;
/// How long a life waits before anything is executed in jobs that it holds, and before it gives one away: longer than [`LEAVE_MAX`] on any clock that is within a tenth of the true time.
pub const NEW_LIFE_WAITS: Micros = LEAVE_MAX * 5 / 4;

/// A moment by the clock of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Which life of the guest: a clock that starts anew is another one.
    pub life: u64,
    /// When.
    pub at: Micros,
}

/// Leave to execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leave {
    /// From then on …
    pub since: Stamp,
    /// … for so long.
    pub left: Micros,
}

/// What a holder says to a guest. The first word gives no leave: it asks for a stamp.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Word {
    /// Names the execution; no other has the number.
    pub execution: u64,
    /// Whose script.
    pub job: String,
    /// Which version of it.
    pub generator: String,
    /// For how long it may run.
    pub leave: Option<Leave>,
    /// It is needed no more.
    pub stop: bool,
}

/// What a guest says to a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Said {
    /// It would begin, had it leave.
    Willing,
    /// It runs.
    Runs,
    /// It has ended by itself.
    Ended,
    /// It was killed: its time was over.
    Killed,
    /// It does not begin this execution: it has no room, or does not know the generator.
    Full,
    /// It executes nothing for anybody.
    Never,
    /// It knows nothing of the execution, and the leave is over or was given to a former life.
    Unknown,
}

/// What a guest does with a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Begin the execution, and say [`Said::Runs`].
    Begin,
    /// Only say something.
    Say(Said),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Runs,
    Ended,
    Killed,
    /// It never begins, or is needed no more.
    Refused,
}

#[derive(Debug)]
struct Lent {
    until: Micros,
    state: State,
    /// Somebody said that it is needed no more.
    stopped: bool,
}

/// The executions of a guest.
#[derive(Debug)]
pub struct Guest {
    life: u64,
    lent: BTreeMap<u64, Lent>,
}

impl Guest {
    /// A guest in a life that had a number of its own.
    pub fn new(life: u64) -> Guest {
        Guest { life, lent: BTreeMap::new() }
    }

    /// What it answers every word with.
    pub fn stamp(&self, now: Micros) -> Stamp {
        Stamp { life: self.life, at: now }
    }

    /// Takes in a word; `has_room` says whether another script could begin.
    pub fn hear(&mut self, now: Micros, word: &Word, has_room: bool) -> Heard {
        let leave = word.leave.filter(|leave| leave.since.life == self.life);
        let until = leave.map(|leave| leave.since.at.saturating_add(leave.left));
        if let Some(lent) = self.lent.get_mut(&word.execution) {
            lent.stopped |= word.stop;
            lent.until = lent.until.max(until.unwrap_or_default());
            if lent.stopped && lent.state != State::Runs {
                lent.state = State::Refused;
            }
        }
        self.lent.retain(|_, lent| lent.state == State::Runs || lent.until > now);
        if let Some(lent) = self.lent.get(&word.execution) {
            return Heard::Say(match lent.state {
                State::Runs => Said::Runs,
                State::Ended => Said::Ended,
                State::Killed => Said::Killed,
                State::Refused => Said::Full,
            });
        }
        match until {
            None if word.leave.is_some() => Heard::Say(Said::Unknown),
            None if has_room => Heard::Say(Said::Willing),
            None => Heard::Say(Said::Full),
            Some(until) if until <= now => Heard::Say(Said::Unknown),
            Some(until) => {
                // What is refused is remembered too: a word that was sent earlier and comes later must not begin it.
                let begins = has_room && !word.stop;
                let state = if begins { State::Runs } else { State::Refused };
                self.lent.insert(word.execution, Lent { until, state, stopped: word.stop });
                if begins { Heard::Begin } else { Heard::Say(Said::Full) }
            }
        }
    }

    /// Whether an execution is wanted: it may go on, and what it printed is kept. Whoever executes it asks all the time.
    pub fn is_wanted(&self, now: Micros, execution: u64) -> bool {
        self.lent.get(&execution).is_some_and(|lent| !lent.stopped && now < lent.until)
    }

    /// An execution has ended, by itself or because it was killed.
    pub fn ended(&mut self, execution: u64, was_killed: bool) {
        if let Some(lent) = self.lent.get_mut(&execution) {
            lent.state = match was_killed {
                _ if lent.stopped => State::Refused,
                true => State::Killed,
                false => State::Ended,
            };
        }
    }
}

/// What follows for a holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Say this, and tell what was answered.
    Say(Word),
    /// The guest has not begun, and will not: ask another.
    Elsewhere,
    /// Nobody executes it any more, and nothing came of it.
    Lost,
    /// Until then, by the holder's clock, it may be executed; nothing is to be said.
    Wait(Micros),
}

/// How far a holder is with its guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It answered the last word, or none was said.
    Answers,
    /// It did not answer the last word.
    Silent,
    /// It knows nothing of the execution.
    Unknown,
    /// It does not begin it.
    Refused,
    /// It killed it.
    Killed,
}

/// A holder that has one run executed by one guest.
#[derive(Debug)]
pub struct Lender {
    run: Run,
    execution: u64,
    standing: Standing,
    /// The newest stamp of the guest.
    since: Option<Stamp>,
    /// The last leave.
    leave: Option<Leave>,
    /// Until when, by our clock, the guest may execute at most; 0 if it was not let.
    granted: Micros,
}

impl Lender {
    /// Nothing was said yet. The number is no other execution's.
    pub fn new(run: Run, execution: u64) -> Lender {
        Lender { run, execution, standing: Standing::Answers, since: None, leave: None, granted: 0 }
    }

    /// What to say now, while the job is ours until `until`; `None` if it is not any more.
    pub fn next(&mut self, now: Micros, until: Option<Micros>) -> Next {
        let until = until.filter(|until| *until > now);
        let is_over = self.granted <= now;
        match (self.standing, until) {
            (Standing::Killed, _) => Next::Lost,
            (Standing::Refused, Some(_)) => Next::Elsewhere,
            (Standing::Refused, None) => Next::Lost,
            (_, None) if is_over => Next::Lost,
            (_, None) => Next::Say(self.stop()),
            (Standing::Silent, Some(_)) if self.leave.is_none() => Next::Elsewhere,
            (Standing::Silent | Standing::Unknown, Some(_)) if is_over => Next::Lost,
            // It is told the same again: whoever does not answer gets no more time, or one that is dead would be waited for without end.
            (Standing::Silent, Some(_)) => Next::Say(self.word(false)),
            // Its script may live on for a moment after it: nobody else begins before its time is over.
            (Standing::Unknown, Some(_)) => Next::Wait(self.granted),
            (Standing::Answers, Some(until)) => {
                if let Some(since) = self.since {
                    // The stamp was made before now, by whichever clock.
                    let left = (until - now).min(LEAVE_MAX);
                    self.leave = Some(Leave { since, left });
                    self.granted = self.granted.max(now + left);
                }
                Next::Say(self.word(false))
            }
        }
    }

    /// Takes in what the guest answered to the last word; `None` if nothing came in time.
    pub fn told(&mut self, answer: Option<(Stamp, Said)>) {
        self.standing = match answer {
            None => Standing::Silent,
            Some((stamp, Said::Willing | Said::Runs | Said::Ended)) => {
                self.since = Some(stamp);
                Standing::Answers
            }
            Some((_, Said::Full | Said::Never)) => Standing::Refused,
            Some((_, Said::Killed)) => Standing::Killed,
            Some((_, Said::Unknown)) => Standing::Unknown,
        };
    }

    /// The word that ends it: it is killed if it runs, and what it printed is forgotten.
    pub fn stop(&self) -> Word {
        self.word(true)
    }

    fn word(&self, stop: bool) -> Word {
        let Run { job, generator, .. } = self.run.clone();
        Word { execution: self.execution, job, generator, leave: self.leave, stop }
    }
}

#[cfg(test)]
mod tests;
