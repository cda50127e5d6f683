//! Has scripts executed by other nodes, and executes those of others (`proto/src/source/lend.rs` decides for how long, and who).
//!
//! A holder that runs no scripts asks one node after the other, and talks to the one that is willing until the script has ended; then it reads what was printed and goes on as if it had executed it itself.
//! A guest keeps what a script printed until the holder has it, and its place among the scripts of the node is taken for as long: no more than `scripts_max` are in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use proto::control::source::SourceRequest;
use proto::control::{Answer, Request};
use proto::crawl::politeness::Micros;
use proto::source::dispatch::{Alert, Run};
use proto::source::lend::{Guest, Heard, Lender, Next, Said, Stamp, Word};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Duration, Instant};
use tracing::{info, warn};

use super::super::{Shared, ask_peer};
use super::cron::alerted;
use super::runs::{REPLACED, failed_to_start, unhex};
use super::{held, hex, now};
use crate::edges::clock::unix_ms;
use crate::edges::script::ScriptEnd;
use crate::edges::swarm::Swarm;

/// Scripts that a node which runs none has others execute at once.
pub(super) const LENT_AT_ONCE: usize = 8;
/// Bytes of output in one answer.
const PART_BYTES: usize = 256 << 10;
/// How often a guest is told that it may go on.
const WORD_EVERY: Duration = Duration::from_millis(250);
/// How soon all are asked again if none was willing.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How often nobody who runs scripts answers before somebody should look.
const ALERT_AFTER: u32 = 10;

/// What a node executes for others.
#[derive(Debug)]
pub(super) struct Guests {
    core: Mutex<Guest>,
    /// What ended, with its place.
    ended: Mutex<BTreeMap<u64, (ScriptEnd, OwnedSemaphorePermit)>>,
    /// Places for scripts, also for those of our own jobs.
    pub(super) places: Arc<Semaphore>,
    never: bool,
}

impl Guests {
    pub(super) fn new(scripts_max: usize, life: u64) -> Guests {
        Guests {
            core: Mutex::new(Guest::new(life)),
            ended: Mutex::default(),
            places: Arc::new(Semaphore::new(scripts_max)),
            never: scripts_max == 0,
        }
    }

    /// Forgets what nobody fetches any more.
    pub(super) fn clean(&self, now: Micros) {
        let core = held(&self.core);
        held(&self.ended).retain(|execution, _| core.is_wanted(now, *execution));
    }
}

/// What a guest answers.
#[derive(Debug, Serialize, Deserialize)]
struct GuestAnswer {
    stamp: Stamp,
    said: Said,
    end: Option<EndTold>,
}

/// How a script ended, and a part of what it printed.
#[derive(Debug, Serialize, Deserialize)]
struct EndTold {
    failure: Option<String>,
    stderr: String,
    took_ms: u64,
    open: Vec<String>,
    hostname: String,
    bytes: u64,
    part: String,
}

/// What a guest was for a holder.
enum Lent {
    Ended(ScriptEnd, String),
    /// It does not begin it; whether it ever could.
    Elsewhere(bool),
    Lost,
}

impl Shared {
    /// A holder says something about a script that this node may execute for it.
    pub(super) fn lent_here(self: &Arc<Self>, word: &Word, from: u64) -> Result<Json, String> {
        let (guests, at) = (&self.sources.guests, now().mono);
        let job = self.sources.job(&word.job);
        let generator = job.as_ref().and_then(|job| job.running()).filter(|there| there.id == word.generator);
        let place = generator.and_then(|_| Arc::clone(&guests.places).try_acquire_owned().ok());
        let (stamp, heard) = {
            let mut core = held(&guests.core);
            (core.stamp(at), core.hear(at, word, place.is_some()))
        };
        let said = match (heard, generator, place) {
            (Heard::Begin, Some(generator), Some(place)) => {
                info!(job = word.job, execution = word.execution, "executes a script for the holder of its job");
                self.execute_for(word.execution, generator.code.clone(), generator.code_type, place);
                Said::Runs
            }
            (Heard::Say(Said::Willing | Said::Full), ..) if guests.never => Said::Never,
            (Heard::Say(said), ..) => said,
            (Heard::Begin, ..) => Said::Unknown, // it does not begin without a place
        };
        guests.clean(at);
        let end = held(&guests.ended).get(&word.execution).map(|(end, _)| {
            let rest = end.stdout.get(from as usize..).unwrap_or_default();
            EndTold {
                failure: end.failure.clone(),
                stderr: end.stderr.clone(),
                took_ms: end.took.as_millis() as u64,
                open: end.open.clone(),
                hostname: self.sources.hostname.clone(),
                bytes: end.stdout.len() as u64,
                part: hex(rest[..rest.len().min(PART_BYTES)].to_vec()),
            }
        });
        // What it printed was forgotten when its time was over, and only then did the holder give it more.
        let said = if said == Said::Ended && end.is_none() { Said::Killed } else { said };
        Ok(json!(GuestAnswer { stamp, said, end }))
    }

    fn execute_for(
        self: &Arc<Self>,
        execution: u64,
        code: String,
        code_type: proto::source::job::CodeType,
        place: OwnedSemaphorePermit,
    ) {
        let (scripts, shared) = (Arc::clone(&self.sources.scripts), Arc::clone(self));
        let is_over = move || !held(&shared.sources.guests.core).is_wanted(now().mono, execution);
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            let ended = tokio::task::spawn_blocking(move || scripts.run(&code, code_type, &is_over)).await;
            let ended = match ended {
                Ok(Ok(ended)) => ended,
                Ok(Err(error)) => failed_to_start(format!("it could not be started: {error}")),
                Err(error) => failed_to_start(format!("it could not be started: {error}")),
            };
            let guests = &shared.sources.guests;
            let was_killed = ended.stopped;
            if !was_killed {
                held(&guests.ended).insert(execution, (ended, place));
            }
            held(&guests.core).ended(execution, was_killed);
        });
    }

    /// Has another node execute a script, for as long as the job is ours until `end`; `None` if nothing came of it. Comes back only when nobody executes it any more.
    pub(super) async fn lend(self: &Arc<Self>, run: &Run, end: &Mutex<Instant>) -> Option<(ScriptEnd, String)> {
        let (_, swarm, desk) = self.at_hand()?;
        let mut nobody = 0;
        loop {
            let mut peers = swarm.nodes();
            peers.retain(|peer| peer.connected);
            // Not all begin with the same one.
            let first = self.sources.unique(&self.me, unix_ms()) as usize % peers.len().max(1);
            peers.rotate_left(first);
            let mut is_there = false;
            for peer in peers {
                match self.lend_to(swarm, peer.peer, run, end).await {
                    Lent::Ended(ended, hostname) => return Some((ended, hostname)),
                    Lent::Lost => return None,
                    Lent::Elsewhere(could) => is_there |= could,
                }
            }
            if Instant::now() >= *held(end) {
                return None;
            }
            let job = self.sources.job(&run.job);
            if job.as_ref().and_then(|job| job.running()).is_none_or(|there| there.id != run.generator) {
                return Some((failed_to_start(REPLACED.to_owned()), self.sources.hostname.clone()));
            }
            nobody = if is_there { 0 } else { nobody + 1 };
            if nobody == ALERT_AFTER {
                warn!(job = run.job, "this node runs no scripts, and no node that does is reached: the run waits");
                self.log(desk, vec![alerted(Alert::NobodyExecutes, Some(run.job.clone()))]).await;
            }
            tokio::time::sleep(ASK_AGAIN_AFTER).await;
        }
    }

    async fn lend_to(&self, swarm: &Swarm, peer: libp2p::PeerId, run: &Run, end: &Mutex<Instant>) -> Lent {
        let mut lender = Lender::new(run.clone(), self.sources.unique(&self.me, unix_ms()));
        let (mut stdout, mut could) = (Vec::new(), false);
        loop {
            let at = now().mono;
            let left = held(end).checked_duration_since(Instant::now());
            let until = left.map(|left| at + left.as_micros() as u64);
            let word = match lender.next(at, until) {
                Next::Say(word) => word,
                Next::Elsewhere => return Lent::Elsewhere(could),
                Next::Lost => {
                    warn!(job = run.job, %peer, "another node did not bring a script to its end");
                    return Lent::Lost;
                }
                Next::Wait(until) => {
                    tokio::time::sleep(Duration::from_micros(until.saturating_sub(at)).min(WORD_EVERY)).await;
                    continue;
                }
            };
            let answer = ask_guest(swarm, peer, word, stdout.len() as u64).await;
            lender.told(answer.as_ref().map(|answer| (answer.stamp, answer.said)));
            could |= answer.as_ref().is_some_and(|answer| answer.said != Said::Never);
            let willing = answer.as_ref().is_some_and(|answer| answer.said == Said::Willing);
            if let Some(told) = answer.filter(|answer| answer.said == Said::Ended).and_then(|answer| answer.end) {
                let part = unhex(&told.part).unwrap_or_default();
                let is_new = !part.is_empty();
                stdout.extend(part);
                if stdout.len() as u64 >= told.bytes {
                    let _ = ask_guest(swarm, peer, lender.stop(), 0).await; // else it forgets by itself, later
                    let took = Duration::from_millis(told.took_ms);
                    let EndTold { failure, stderr, open, hostname, .. } = told;
                    return Lent::Ended(ScriptEnd { failure, stdout, stderr, took, open, stopped: false }, hostname);
                }
                if is_new {
                    continue;
                }
            }
            if !willing {
                tokio::time::sleep(WORD_EVERY).await;
            }
        }
    }
}

/// Says something to a guest; `None` if it did not answer, or nothing that can be read.
async fn ask_guest(swarm: &Swarm, peer: libp2p::PeerId, word: Word, from: u64) -> Option<GuestAnswer> {
    let request = Request::Source(Box::new(SourceRequest::Lend { word, from }));
    match ask_peer(swarm, peer, &request).await {
        Ok(Answer::Operation(text)) => serde_json::from_str(&text).ok(),
        _ => None,
    }
}
