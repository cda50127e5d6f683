//! OSEM001: asks for every URL that has no id yet, one after the other, with a wait before each request.
//!
//! What is done of a URL, in this order, each on disk before the next: the answer under another name, `.meta.<id>`, the answer under its own name, the row in `.urls2`,
//! the id in the status. `.meta.<id>` is what counts: a run that finds it makes the row from it and asks nobody. So a kill repeats at most the
//! one request that was on its way.
//!
//! robots.txt is asked for once a run and origin, under the same waits. What it forbids gets no id and stays for another run. A URL that nobody answers
//! for gets the code 000; `retry` asks for those again, under the same id.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use proto::crawl::retry::Failure;
use proto::crawl::robots::RobotsAnswer;
use proto::ose::OseId;
use proto::ose::name::OseFile;
use proto::ose::row::OseRow;
use proto::ose::status::{OseStatus, Phase};
use proto::url::{CanonicalUrl, UrlRules};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use tokio::sync::mpsc;
use tracing::{debug, info};

use super::answer::Meta;
use super::folder::{Folder, Line};
use super::{Damages, OseError};
use crate::actors::fetcher::retry_after_ms;
use crate::edges::clock::unix_ms;
use crate::edges::http::FetchOrder;
use crate::edges::web::{Web, robots_hop};

/// Redirects that are followed to a robots.txt (RFC 9309).
const ROBOTS_REDIRECTS_MAX: usize = 5;
/// Origins whose robots.txt is remembered; a folder has one, or two with https.
const ORIGINS_MAX: usize = 256;
/// What a server may ask us to wait with `Retry-After`; one that wants more is asked after this all the same.
const RETRY_AFTER_MS_MAX: u64 = 600_000;

/// Files under ids that are not given yet, put there by somebody else, that are looked through.
const FOREIGN_MAX: usize = 1_000;

/// How URLs are asked for.
pub struct FetchSettings {
    /// The wait before each request is drawn from these.
    pub wait: RangeInclusive<Duration>,
    /// Draws it.
    pub random: ChaCha8Rng,
    /// Our name in robots.txt.
    pub product_token: String,
    /// How much of an answer is kept.
    pub page_bytes_max: usize,
    /// How URLs are brought into the form in which they are asked for.
    pub urls: UrlRules,
    /// Whether what nobody answered for is asked for again.
    pub retry: bool,
    /// Ends the program before its next request.
    pub stop: mpsc::Receiver<()>,
}

/// What a run has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FetchReport {
    /// URLs that were answered.
    pub answered: u64,
    /// URLs that nobody answered for.
    pub unanswered: u64,
    /// URLs that robots.txt forbids.
    pub forbidden: u64,
    /// URLs left because robots.txt cannot be had.
    pub postponed: u64,
    /// URLs of a former run that only had to be written down.
    pub recovered: u64,
    /// The run was ended before it was done; the next one goes on.
    pub interrupted: bool,
    /// Damaged rows.
    pub damages: Damages,
    /// How long it took, in milliseconds.
    pub elapsed_ms: u64,
}

/// Runs the program, in state 0, or in state 1 when a former run died.
pub async fn fetch(folder: &Folder, web: &dyn Web, settings: &mut FetchSettings) -> Result<FetchReport, OseError> {
    let status = folder.status()?;
    if !matches!(status.phase, Phase::Idle | Phase::Fetching) {
        return Err(OseError::NotNow { program: "fetch", wanted: Phase::Idle, found: status.phase });
    }
    let started = tokio::time::Instant::now();
    let mut old = folder.lines(OseFile::Urls)?;
    if status.phase == Phase::Idle && folder.has(OseFile::Working(2)) {
        // Left from a cycle that is over: nobody knows what of it is true.
        std::fs::remove_file(folder.file(OseFile::Working(2))).map_err(OseError::io("remove", folder.path()))?;
    }
    folder.set_status(OseStatus { phase: Phase::Fetching, ..status })?;
    let (mut new, last) = folder.rewrite(OseFile::Working(2), &mut old)?;
    let last = last.map_or(status.last, |last| last.max(status.last));
    let mut work = Work { folder, web, settings, last, robots: BTreeMap::new(), wait_at_least: Duration::ZERO };
    let mut report = FetchReport::default();
    for line in old {
        let line = line?;
        match work.row(&line, &mut report).await? {
            Done::Kept => new.push(&line.bytes)?,
            Done::Asked(row) => {
                new.push(row.to_line().as_bytes())?;
                new.sync(folder)?;
                folder.set_status(OseStatus { phase: Phase::Fetching, last: work.last })?;
            }
            Done::Stopped => {
                report.interrupted = true;
                break;
            }
        }
    }
    if !report.interrupted {
        new.sync(folder)?;
        folder.replace_urls(OseFile::Working(2))?;
        folder.set_status(OseStatus { phase: Phase::Fetched, last: work.last })?;
    }
    report.elapsed_ms = started.elapsed().as_millis() as u64;
    info!(folder = %folder.path().display(), answered = report.answered, elapsed_ms = report.elapsed_ms, "fetched");
    Ok(report)
}

/// What became of a row.
enum Done {
    /// It stays as it is.
    Kept,
    /// It was asked for.
    Asked(OseRow),
    /// The run is to end.
    Stopped,
}

struct Work<'a> {
    folder: &'a Folder,
    web: &'a dyn Web,
    settings: &'a mut FetchSettings,
    last: OseId,
    robots: BTreeMap<String, RobotsAnswer>,
    /// What the server asked for with its last answer.
    wait_at_least: Duration,
}

impl Work<'_> {
    async fn row(&mut self, line: &Line, report: &mut FetchReport) -> Result<Done, OseError> {
        let row = match &line.row {
            Ok(row) => row,
            Err(damaged) => {
                report.damages.note(damaged.clone());
                return Ok(Done::Kept);
            }
        };
        if let Some(id) = row.id {
            self.last = self.last.max(id);
            if row.code != Some(0) {
                return Ok(Done::Kept);
            }
        }
        if let Some(row) = self.recover(row)? {
            report.recovered += 1;
            return Ok(Done::Asked(row));
        }
        if row.id.is_some() && !self.settings.retry {
            return Ok(Done::Kept);
        }
        let url = match CanonicalUrl::parse(&row.url, &self.settings.urls) {
            Ok(url) => url,
            Err(error) => {
                report.damages.note(line.damaged_url(OseFile::Urls, error));
                return Ok(Done::Kept);
            }
        };
        let Some(allowed) = self.allowed(&url).await? else { return Ok(Done::Stopped) };
        match allowed {
            Ok(()) => {}
            Err(Failure::RobotsForbidden) => {
                report.forbidden += 1;
                return Ok(Done::Kept);
            }
            Err(_) => {
                report.postponed += 1;
                return Ok(Done::Kept);
            }
        }
        if !self.wait(&url).await {
            return Ok(Done::Stopped);
        }
        let id = match row.id {
            Some(id) => id,
            None => self.next_id()?,
        };
        let meta = self.ask(row, &url, id).await?;
        self.last = self.last.max(id);
        if meta.http_code == 0 {
            report.unanswered += 1;
        } else {
            report.answered += 1;
        }
        Ok(Done::Asked(asked(id, &meta)))
    }

    /// Asks for a URL and keeps what comes.
    async fn ask(&mut self, row: &OseRow, url: &CanonicalUrl, id: OseId) -> Result<Meta, OseError> {
        let order = FetchOrder { cut_at_bytes: Some(self.settings.page_bytes_max), ..FetchOrder::new(url.clone()) };
        let (meta, answer) = match self.web.fetch(&order).await {
            Ok(fetched) => {
                let wanted = retry_after_ms(&fetched).filter(|_| matches!(fetched.status, 429 | 503));
                self.wait_at_least = Duration::from_millis(wanted.unwrap_or(0).min(RETRY_AFTER_MS_MAX));
                let answer = [fetched.response_head.as_slice(), &fetched.wire_body].concat();
                (Meta::of(&row.url, &fetched), answer)
            }
            Err(error) => {
                debug!(url = url.as_str(), %error, "nobody answers");
                let error = Some(error.to_string());
                (Meta { url: row.url.clone(), streamed_ms: unix_ms(), error, ..Meta::default() }, Vec::new())
            }
        };
        let file = OseFile::Answer(id);
        self.folder.write_part(file, &answer)?;
        self.folder.write(OseFile::Meta(id), &meta.to_bytes())?;
        self.folder.finish_part(file)?;
        Ok(meta)
    }

    /// The row of a URL that a former run has asked for and did not come to write down.
    fn recover(&mut self, row: &OseRow) -> Result<Option<OseRow>, OseError> {
        let mut id = row.id.or(self.last.next());
        for _ in 0..FOREIGN_MAX {
            let Some(at) = id.filter(|id| self.folder.has(OseFile::Meta(*id)) || self.folder.has(OseFile::Answer(*id)))
            else {
                return Ok(None);
            };
            let meta = match self.folder.has(OseFile::Meta(at)) {
                true => Meta::parse(&self.folder.read(OseFile::Meta(at))?),
                false => None,
            };
            let is_newer = |meta: &Meta| row.streamed.is_none_or(|streamed| meta.streamed_ms > streamed);
            if let Some(meta) = meta.filter(|meta| meta.url == row.url && is_newer(meta)) {
                let file = OseFile::Answer(at);
                if self.folder.has_part(file) {
                    self.folder.finish_part(file)?;
                }
                self.last = self.last.max(at);
                return Ok(self.folder.has(file).then(|| asked(at, &meta)));
            }
            if row.id.is_some() {
                return Ok(None);
            }
            id = at.next();
        }
        Ok(None)
    }

    /// The next id under which nothing lies: what somebody else put there is not overwritten.
    fn next_id(&self) -> Result<OseId, OseError> {
        let mut id = self.last;
        loop {
            id = id.next().ok_or(OseError::NoMoreIds)?;
            if !self.folder.has(OseFile::Answer(id)) && !self.folder.has(OseFile::Meta(id)) {
                return Ok(id);
            }
        }
    }

    /// Whether robots.txt lets us ask for a URL; `None` if the run is to end.
    async fn allowed(&mut self, url: &CanonicalUrl) -> Result<Option<Result<(), Failure>>, OseError> {
        if !self.robots.contains_key(url.origin()) {
            let Some(answer) = self.ask_robots(url).await else { return Ok(None) };
            if self.robots.len() >= ORIGINS_MAX {
                self.robots.clear();
            }
            self.robots.insert(url.origin().to_owned(), answer);
        }
        Ok(Some(self.robots[url.origin()].check(url.path_and_query())))
    }

    async fn ask_robots(&mut self, url: &CanonicalUrl) -> Option<RobotsAnswer> {
        let mut at = format!("{}/robots.txt", url.origin().trim_end_matches('/'));
        for _ in 0..=ROBOTS_REDIRECTS_MAX {
            if !self.wait(url).await {
                return None;
            }
            match robots_hop(self.web, &at, &self.settings.product_token, Vec::new()).await {
                Ok(answer) => return Some(answer),
                Err(target) => at = target,
            }
        }
        Some(RobotsAnswer::from_fetch(Err(Failure::RedirectsTooMany), &self.settings.product_token))
    }

    /// Waits before a request; says whether to go on.
    async fn wait(&mut self, url: &CanonicalUrl) -> bool {
        let (least, most) = (*self.settings.wait.start(), *self.settings.wait.end());
        let drawn = self.settings.random.random_range(least.as_millis()..=most.as_millis().max(least.as_millis()));
        let asked_for = match self.robots.get(url.origin()) {
            Some(RobotsAnswer::Rules(robots)) => Duration::from_millis(robots.crawl_delay_ms().unwrap_or(0)),
            _ => Duration::ZERO,
        };
        let wait = Duration::from_millis(drawn as u64).max(asked_for).max(std::mem::take(&mut self.wait_at_least));
        tokio::select! {
            biased;
            stop = self.settings.stop.recv() => match stop {
                Some(()) => false,
                None => {
                    tokio::time::sleep(wait).await; // nobody can stop us
                    true
                }
            },
            () = tokio::time::sleep(wait) => true,
        }
    }
}

fn asked(id: OseId, meta: &Meta) -> OseRow {
    OseRow {
        id: Some(id),
        code: Some(meta.http_code.min(999)),
        streamed: Some(meta.streamed_ms),
        parsed: None,
        url: meta.url.clone(),
    }
}
