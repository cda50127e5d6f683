//! Runs of generators: scripts are executed, what they print is kept in pieces, and taken in as tasks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use proto::clients::ask::Item;
use proto::control::source::{NewTask, RefusedTask, SourceRequest};
use proto::control::{Answer, Request};
use proto::source::LINE_BYTES_MAX;
use proto::source::dispatch::Run;
use proto::source::entry::Printed;
use proto::source::job::{CodeType, Job};
use proto::source::lanes::LANES;
use proto::source::lend::NEW_LIFE_WAITS;
use proto::source::log::{self, LogEntry, LogKind};
use proto::source::output;
use proto::source::schedule::{Input, NotRun, Schedule, Tally};
use serde_json::{Value as Json, json};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{Duration, Instant};
use tracing::{info, warn};

use super::super::{Shared, ask_peer};
use super::tasks::refusal;
use super::{AGAIN_AFTER, OUTPUT, held, hex, look, now, word, words};
use crate::doors::frontier::desk::Desk;
use crate::edges::clock::unix_ms;
use crate::edges::script::ScriptEnd;
use crate::edges::swarm::Swarm;

/// Tasks that are taken in at once.
const TASKS_AT_ONCE: usize = 500;
/// Lines of one run that are written down as refused; the rest is counted.
const REFUSED_LOGGED: usize = 1_000;
/// Bytes of output in one record.
const PIECE_BYTES: usize = 40 << 10;
/// Pieces that are kept at once.
const PIECES_AT_ONCE: usize = 64;

impl Shared {
    /// Runs a generator now. Why one does not run is in the error log too: who wanted it may be a program that nobody watches.
    pub(super) async fn generator_run(
        self: &Arc<Self>,
        swarm: &Arc<Swarm>,
        desk: &Desk,
        name: &str,
    ) -> Result<Json, String> {
        let told = self.run_by_hand(swarm, name).await;
        if let Err(failed_reason) = &told {
            let entry = LogEntry {
                job: self.sources.named(name).ok().map(|(job, _)| job.id.clone()),
                failed_reason: failed_reason.clone(),
                content: name.to_owned(),
                ..LogEntry::new(LogKind::Error, "ERROR_JOB", unix_ms())
            };
            self.log(desk, vec![entry]).await;
        }
        told
    }

    /// Runs a generator on the node that holds its job; waits a little for one that does.
    async fn run_by_hand(self: &Arc<Self>, swarm: &Arc<Swarm>, name: &str) -> Result<Json, String> {
        let (job, _) = self.sources.named(name)?;
        let until = Instant::now() + HOLDER_PATIENCE;
        loop {
            match self.run_somewhere(swarm, &job).await {
                Err(why) if why == NOBODY && Instant::now() < until => tokio::time::sleep(AGAIN_AFTER).await,
                told => return told,
            }
        }
    }

    async fn run_somewhere(self: &Arc<Self>, swarm: &Arc<Swarm>, job: &Job) -> Result<Json, String> {
        let here = self.run_here(&job.id).await;
        if !matches!(&here, Err(why) if why.starts_with(ELSEWHERE)) {
            return here;
        }
        let request = Request::Source(Box::new(SourceRequest::RunHere(job.id.clone())));
        let mut last = NOBODY.to_owned();
        for peer in swarm.nodes() {
            match ask_peer(swarm, peer.peer, &request).await {
                Ok(Answer::Operation(text)) => return serde_json::from_str(&text).map_err(|error| error.to_string()),
                Ok(Answer::Refused(why)) if !why.starts_with(ELSEWHERE) => last = why,
                _ => {}
            }
        }
        Err(last)
    }

    /// Runs a generator here, if its job is held here.
    pub(super) async fn run_here(self: &Arc<Self>, id: &str) -> Result<Json, String> {
        let (job, _) = self.sources.named(id)?;
        let unique = self.sources.unique(&self.me, unix_ms());
        let (waits, told) = oneshot::channel();
        held(&self.sources.waiting).insert(unique, waits);
        self.feed(Input::ByHand { ticket: unique, job: job.id.clone(), unique });
        match told.await.unwrap_or(Err(NotRun::Elsewhere)) {
            Ok(placed) => Ok(json!({"job": job.id, "queue": LANES[placed.lane], "node": self.me_name()})),
            Err(NotRun::Elsewhere) => Err(format!("{ELSEWHERE}: {}", NotRun::Elsewhere)),
            Err(not_run) => Err(not_run.to_string()),
        }
    }

    /// Executes a script to its end, and has kept what it printed; `None` if it was killed because its job is no longer ours, or too few disks have it.
    pub(super) async fn execute(self: &Arc<Self>, run: &Run) -> Option<Printed> {
        let (node, _, desk) = self.at_hand()?;
        let slot = Schedule::slot(&run.job);
        let (tenure, until) = held(&self.sources.tenures).get(&slot).copied()?;
        // The slot may be parted with until it is known that a script runs in it.
        let now_ours = self.sources.hold(node).await;
        if now_ours.get(&slot).is_none_or(|(number, _)| *number != tenure) {
            return None;
        }
        let end = Arc::new(Mutex::new(until));
        held(&self.sources.ends).insert(run.job.clone(), Arc::clone(&end));
        let job = self.sources.job(&run.job);
        let generator = job.as_ref().and_then(|job| job.running()).filter(|there| there.id == run.generator);
        let mut hostname = self.sources.hostname.clone();
        self.sit_out(&end).await;
        let ended = match generator {
            None => Some(failed_to_start(REPLACED.to_owned())),
            Some(_) if self.sources.lends => self.lend(run, &end).await.map(|(ended, there)| {
                hostname = there;
                ended
            }),
            Some(generator) => match self.place_for_script(&end).await {
                Some(place) => Some(self.execute_here(generator.code.clone(), generator.code_type, place, end).await),
                None => None,
            },
        };
        held(&self.sources.ends).remove(&run.job);
        let ended = ended?;
        for open in &ended.open {
            warn!(job = run.job, open, "a script is less confined than it should be");
        }
        if ended.stopped {
            return None;
        }
        let execution = format!("{:016x}", self.sources.unique(&self.me, unix_ms()));
        let open = ended.open.iter().map(|open| format!("less confined than it should be: {open}\n"));
        let stderr = open.chain([ended.stderr]).collect();
        let bytes = ended.stdout.len() as u64;
        let pieces = if ended.failure.is_none() { pieces(ended.stdout) } else { Vec::new() };
        let count = pieces.len() as u32;
        let items = pieces.into_iter().zip(0..).map(|((kind, text), number)| {
            let item = Printed::piece(&run.job, &run.id, &execution, number, String::new());
            Item { metadata: words([(kind, Some(text))]), ..item }
        });
        let items: Vec<Item> = items.collect();
        for items in items.chunks(PIECES_AT_ONCE) {
            if !desk.keep_held(items.to_vec(), BTreeMap::new(), [(slot, tenure)].into()).await {
                warn!(job = run.job, "what a script printed is on too few disks; it is executed again");
                return None;
            }
        }
        Some(Printed {
            execution,
            pieces: count,
            bytes,
            failure: ended.failure,
            stderr,
            spend_msecs: ended.took.as_millis() as u64,
            at_ms: unix_ms(),
            hostname,
        })
    }

    /// Waits until no other node executes anything for our former life. A node without others had nobody do so.
    async fn sit_out(&self, end: &Mutex<Instant>) {
        let has_others = self.swarm.get().is_some_and(|swarm| !swarm.nodes().is_empty());
        while has_others && now().mono < NEW_LIFE_WAITS && Instant::now() < *held(end) {
            tokio::time::sleep(AGAIN_AFTER).await;
        }
    }

    /// A place among the scripts of this node, which may be taken by those of others; none if the job is ours no more before there is one.
    async fn place_for_script(&self, end: &Mutex<Instant>) -> Option<OwnedSemaphorePermit> {
        loop {
            let left = held(end).checked_duration_since(Instant::now())?;
            let places = Arc::clone(&self.sources.guests.places);
            if let Ok(place) = tokio::time::timeout(left.min(AGAIN_AFTER), places.acquire_owned()).await {
                return place.ok();
            }
        }
    }

    /// Executes a script until it ends, or until `end`: it is killed at its time also if everything else here stands still.
    async fn execute_here(
        &self,
        code: String,
        code_type: CodeType,
        place: OwnedSemaphorePermit,
        end: Arc<Mutex<Instant>>,
    ) -> ScriptEnd {
        let scripts = Arc::clone(&self.sources.scripts);
        let execute = move || {
            let _place = place;
            scripts.run(&code, code_type, &|| Instant::now() >= *held(&end))
        };
        match tokio::task::spawn_blocking(execute).await {
            Ok(Ok(ended)) => ended,
            Ok(Err(error)) => failed_to_start(format!("it could not be started: {error}")),
            Err(error) => failed_to_start(format!("it could not be started: {error}")),
        }
    }

    /// Takes in what an execution printed. Done again, it comes to the same: tasks that the run made before count as its own.
    pub(super) async fn take_output(
        self: &Arc<Self>,
        run: &Run,
        printed: &Printed,
        last: bool,
    ) -> Result<Tally, String> {
        let unsaved = Ok(Tally { unsaved: 1, ..Tally::default() });
        let (Some((node, _, desk)), Some(job)) = (self.at_hand(), self.sources.job(&run.job)) else { return unsaved };
        let stdout = match read_pieces(desk, run, printed).await {
            Ok(stdout) => stdout,
            Err(error) => {
                warn!(job = run.job, error, "what a script printed cannot be read now");
                return unsaved;
            }
        };
        // A crawl that is gone does not come back by waiting.
        self.crawl_of_job(node, &job)?;
        let (mut tally, mut logged) = (Tally::default(), 0);
        let mut tasks: Vec<NewTask> = Vec::new();
        let mut lines = stdout.split(|byte| *byte == b'\n').zip(1..).peekable();
        while let Some((line, number)) = lines.next() {
            let mut errors: Vec<(&str, RefusedTask)> = Vec::new();
            match understand(line, number) {
                Ok(task) => tasks.extend(task),
                Err(refused) => errors.push(("ERROR_JSON", refused)),
            }
            if tasks.len() >= TASKS_AT_ONCE || (lines.peek().is_none() && !tasks.is_empty()) {
                let taken = std::mem::take(&mut tasks);
                let count = taken.len() as u64;
                match self.take_in(node, desk, &job, Some(run), taken).await {
                    Ok(added) => {
                        tally.accepted += added.accepted;
                        tally.known += added.known.len() as u64;
                        tally.unsaved += added.unsaved.len() as u64;
                        errors.extend(added.refused.into_iter().map(|one| ("ERROR_URI", one)));
                        let unsaved = added.unsaved.into_iter().filter(|_| last);
                        errors.extend(unsaved.map(|one| ("ERROR_SAVE", one)));
                    }
                    Err(error) => {
                        warn!(job = run.job, error, "tasks of a run cannot be saved now");
                        tally.unsaved += count;
                    }
                }
            }
            tally.refused += errors.iter().filter(|(name, _)| *name != "ERROR_SAVE").count() as u64;
            errors.truncate(REFUSED_LOGGED.saturating_sub(logged));
            logged += errors.len();
            self.log_refused(desk, &job, run, printed, &errors).await;
        }
        let Tally { accepted, known, refused, unsaved } = tally;
        info!(job = run.job, run = run.id, accepted, known, refused, unsaved, "a generator has run");
        Ok(tally)
    }

    /// Writes down what a run printed that is no task, under names that follow from the run: written again, it is the same.
    async fn log_refused(&self, desk: &Desk, job: &Job, run: &Run, printed: &Printed, errors: &[(&str, RefusedTask)]) {
        let item = |(name, one): &(&str, RefusedTask)| {
            let mut entry = refusal(job, Some(&run.generator), name, one, printed.at_ms);
            entry.hostname.clone_from(&self.sources.hostname);
            log::item(entry, log::unique(&format!("{} {} {}", run.id, printed.execution, one.line)))
        };
        if !errors.is_empty() {
            let _ = desk.put(errors.iter().map(item).collect()).await; // they are in the log of the node's run as numbers too
        }
    }
}

/// Why a run that waited is not made.
pub(super) const REPLACED: &str = "job or generator was switched off or replaced meanwhile";
/// How a refusal begins that means another node.
const ELSEWHERE: &str = "elsewhere";
/// What is said if all mean another.
const NOBODY: &str = "no node holds the job now; try again";
/// For how long a holder is waited for.
const HOLDER_PATIENCE: Duration = Duration::from_secs(8);

pub(super) fn failed_to_start(failure: String) -> ScriptEnd {
    ScriptEnd {
        failure: Some(failure),
        stdout: Vec::new(),
        stderr: String::new(),
        took: Duration::ZERO,
        open: Vec::new(),
        stopped: false,
    }
}

/// Output in parts that fit into records: text, or digits where it is none.
fn pieces(stdout: Vec<u8>) -> Vec<(&'static str, String)> {
    match String::from_utf8(stdout) {
        Ok(text) => {
            let (mut pieces, mut rest) = (Vec::new(), text.as_str());
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at(rest.floor_char_boundary(PIECE_BYTES));
                pieces.push(("text", piece.to_owned()));
                rest = behind;
            }
            pieces
        }
        Err(bytes) => bytes.as_bytes().chunks(PIECE_BYTES / 2).map(|piece| ("hex", hex(piece.to_vec()))).collect(),
    }
}

async fn read_pieces(desk: &Desk, run: &Run, printed: &Printed) -> Result<Vec<u8>, String> {
    let mut stdout = Vec::new();
    for number in 0..printed.pieces {
        let name = Printed::piece_name(&run.id, &printed.execution, number);
        let piece = look(desk, OUTPUT, &run.job, &name).await?.ok_or("a piece of it is missing")?;
        match (word(&piece, "text"), word(&piece, "hex")) {
            (Some(text), _) => stdout.extend_from_slice(text.as_bytes()),
            (None, Some(digits)) => stdout.extend(unhex(&digits).ok_or("a piece of it is damaged")?),
            (None, None) => return Err("a piece of it is damaged".to_owned()),
        }
    }
    Ok(stdout)
}

/// Bytes from digits.
pub(super) fn unhex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// A line that a script printed.
fn understand(line: &[u8], number: u64) -> Result<Option<NewTask>, RefusedTask> {
    let shown = || String::from_utf8_lossy(&line[..line.len().min(400)]).into_owned();
    let refuse = |reason: String| RefusedTask { line: number, uri: shown(), reason };
    if line.len() > LINE_BYTES_MAX {
        return Err(refuse(format!("the line is longer than {LINE_BYTES_MAX} bytes")));
    }
    let text = std::str::from_utf8(line).map_err(|_| refuse("not UTF-8".to_owned()))?;
    let said = output::line(text).map_err(refuse)?;
    Ok(said.map(|(uri, args)| NewTask { line: number, uri, args: args.map(|args| args.to_string()) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_comes_apart_and_together_again() {
        let mut long = format!("x{}", "é".repeat(PIECE_BYTES)).into_bytes();
        let text = pieces(long.clone());
        assert!(text.len() > 2 && text.iter().all(|(kind, piece)| *kind == "text" && piece.len() <= PIECE_BYTES));
        assert_eq!(text.iter().map(|(_, piece)| piece.as_str()).collect::<String>().into_bytes(), long);
        long.push(0xff);
        let digits = pieces(long.clone());
        assert!(digits.iter().all(|(kind, piece)| *kind == "hex" && piece.len() <= PIECE_BYTES));
        let joined: Vec<u8> = digits.iter().flat_map(|(_, piece)| unhex(piece).unwrap()).collect();
        assert_eq!(joined, long);
        assert!(pieces(Vec::new()).is_empty() && unhex("0g").is_none());
    }
}
