//! The disk: one thread that owns the store and the WARC files, and commits what arrives in groups.
//!
//! Jobs come over a bounded channel. The thread takes all that wait (up to a bound), appends their pages to the WARC files, has those
//! fsynced, and only then writes one atomic batch, which is fsynced too; then the jobs are answered. So an answer means: on disk. While
//! it syncs, the next group gathers: the slower the disk, the larger the groups, and when the channel is full the senders wait.
//!
//! The thread itself does not wait for what it can do without. While the archive is fsynced, it makes the batch; while the log of the
//! database is, it works at the next group, whose batch goes behind it; and while that one has to wait, it answers what need not. Two threads do
//! nothing but wait for the disk (`helper.rs`).

mod clients;
mod contents;
mod helper;
mod replica;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proto::batch::{Discovered, Entry, Pick};
use proto::crawl::filter::Filter;
use proto::crawl::frontier::{HostFacts, LoadedQueue};
use proto::crawl::outcome::Ending;
use proto::id::{Slot, UrlId};
use proto::key::{Order, QueueKey, UrlKey};
use tokio::sync::{mpsc, oneshot};

pub use self::clients::ClientJob;
pub use self::contents::{ContentJob, Listed, Stand};
use self::helper::{Helper, UnderWay};
pub use self::replica::{Kept, ReplicaJob};
use super::store::{Admitted, ContentRow, Fetched, Landed, Move, Pass, Settle, State, Store, StoreError};
use super::warc::{Capture, Packed, Packer, RevisitOf, Truncated, WarcEnd, WarcError, WarcOptions, WarcWriter};

/// Jobs that may wait for the thread. Pages among them are bounded by the flights of the frontier.
const JOBS_WAITING_MAX: usize = 256;
/// Jobs and bytes of one group: a group is as long as the longest wait for its fsync may get.
const GROUP_JOBS_MAX: usize = 512;
const GROUP_BYTES_MAX: usize = 16 << 20;
/// Entries that fall due in one group, and rows of what is set aside that are looked at.
const DUE_MAX: usize = 2_048;

/// What the disk can fail with.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DiskError {
    /// No space left.
    #[error("{0}")]
    Full(String),
    /// Anything else: the node must stop, its disk cannot be trusted.
    #[error("{0}")]
    Failed(String),
    /// The thread is gone.
    #[error("the disk thread has stopped")]
    Stopped,
}

impl From<StoreError> for DiskError {
    fn from(error: StoreError) -> Self {
        match &error {
            StoreError::DiskFull(_) => DiskError::Full(error.to_string()),
            _ => DiskError::Failed(error.to_string()),
        }
    }
}

impl From<WarcError> for DiskError {
    fn from(error: WarcError) -> Self {
        if error.is_disk_full() {
            return DiskError::Full(format!(
                "{error}: the disk is full; nothing was lost, free some space and run the same command again"
            ));
        }
        DiskError::Failed(error.to_string())
    }
}

/// Where the answer to a job goes.
pub type Reply<T> = oneshot::Sender<Result<T, DiskError>>;

/// Who hears what became of the pages of a group, all of them at once: a message for each would cost more than handling it.
#[derive(Clone)]
pub struct Settled(Arc<dyn Fn(Result<Vec<Landed>, DiskError>) + Send + Sync>);

impl Settled {
    /// Whoever `hears` is called on the disk's thread, so it must not wait for anything.
    pub fn new(hears: impl Fn(Result<Vec<Landed>, DiskError>) + Send + Sync + 'static) -> Settled {
        Settled(Arc::new(hears))
    }
}

impl fmt::Debug for Settled {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Settled")
    }
}

/// A question to the store, asked on the disk's thread.
pub struct Look(Box<dyn FnOnce(&Store) + Send>);

impl Look {
    /// Has `looks` answer `reply`.
    pub fn new<T: Send + 'static>(
        looks: impl FnOnce(&Store) -> Result<T, StoreError> + Send + 'static,
        reply: Reply<T>,
    ) -> Look {
        Look(Box::new(move |store| answer(reply, looks(store))))
    }
}

impl fmt::Debug for Look {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Look")
    }
}

/// What a fetch brought, to be kept in the WARC files.
#[derive(Clone, Debug)]
pub struct Captured {
    /// When, Unix milliseconds.
    pub unix_ms: u64,
    /// From where.
    pub ip: Option<IpAddr>,
    /// The request as sent.
    pub request_head: Vec<u8>,
    /// Status line and headers.
    pub response_head: Vec<u8>,
    /// The body as transferred; nothing if the records are made already.
    pub body: Bytes,
    /// Its records, unless the disk has to make them.
    pub packed: Option<Packed>,
    /// Why the body is not whole, if it is not.
    pub truncated: Option<Truncated>,
    /// What the body was taken for.
    pub payload_type: Option<String>,
    /// First 16 bytes of the digest of the decoded body; `None` if it is not to be compared.
    pub digest: Option<[u8; 16]>,
    /// The server said that nothing changed.
    pub not_modified: bool,
    /// Milliseconds it took.
    pub fetch_ms: u32,
    /// Links from a seed.
    pub depth: u16,
    /// What the rules of its site made of it, as JSON.
    pub processed: Option<Vec<u8>>,
    /// What tells its content from others by those rules, and whether one that repeats another is to be dropped.
    pub hash: Option<([u8; 16], bool)>,
}

impl Captured {
    fn bytes(&self) -> usize {
        self.body.len() + self.packed.as_ref().map_or(0, |packed| packed.members.len())
    }

    /// Makes its records, unless only the disk knows what belongs into them. The node gives `number` to no other fetch.
    pub(crate) fn pack(&mut self, url: &str, number: u64, packer: &mut Packer) {
        if !self.not_modified && self.processed.is_none() {
            self.packed = self.as_capture(url, |capture| packer.pack(&capture, number));
        }
        if self.packed.is_some() {
            self.body = Bytes::new();
        }
    }

    /// Hands what goes into the archive under `url` to `take`.
    fn as_capture<T>(&self, url: &str, take: impl FnOnce(Capture<'_>) -> T) -> T {
        let (depth, fetch_ms) = (self.depth.to_string(), self.fetch_ms.to_string());
        let metadata = [("fetchTimeMs", fetch_ms.as_str()), ("hopsFromSeed", depth.as_str())];
        take(Capture {
            url,
            unix_ms: self.unix_ms,
            ip: self.ip,
            request_head: &self.request_head,
            response_head: &self.response_head,
            body: &self.body,
            payload_digest: self.packed.as_ref().map(|packed| packed.payload_digest),
            truncated: self.truncated,
            payload_type: self.payload_type.as_deref(),
            metadata: &metadata,
            ..Capture::default()
        })
    }
}

/// A fetch that ended, to be settled.
#[derive(Debug)]
pub struct Landing {
    /// What was to be fetched.
    pub pick: Pick,
    /// How it ended.
    pub ending: Ending,
    /// What came, if anything did.
    pub captured: Option<Captured>,
    /// URLs found on it.
    pub links: Vec<Discovered>,
    /// URLs found on it that the rules of this run do not admit.
    pub beyond: Vec<Discovered>,
    /// When, Unix milliseconds.
    pub unix_ms: u64,
}

/// The rules of a run.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Of which crawl.
    pub crawl: String,
    /// Which URLs belong to it.
    pub filter: Arc<Filter>,
    /// Tells them from those of other runs: the filter's, and what else can refuse a URL.
    pub digest: [u8; 16],
}

/// Work for the disk.
#[derive(Debug)]
pub enum Job {
    /// Admit URLs.
    Admit {
        /// Their crawl.
        crawl: String,
        /// The URLs.
        urls: Vec<Discovered>,
        /// When, Unix milliseconds.
        unix_ms: u64,
        /// What was new.
        reply: Reply<Vec<Admitted>>,
    },
    /// Write entries down as handed out.
    Select(Vec<Pick>, Reply<()>),
    /// Settle a flight.
    Settle(Box<Landing>, Settled),
    /// Move what is due into the queues; answers also when the next is.
    FallDue(u64, Reply<(Vec<Admitted>, Option<u64>)>),
    /// Bring back what was set aside and is admitted now, if the rules are not those of the run before.
    TakeBack(Rules, Pass, u64, Reply<(Vec<Admitted>, Option<Pass>)>),
    /// Keep what is known of a host.
    KeepFacts(QueueKey, Box<HostFacts>, Reply<()>),
    /// Give waiting entries other places in their queues; answers how many.
    Reorder(Vec<Move>, Reply<usize>),
    /// Read entries of a queue.
    Refill(QueueKey, Option<Order>, usize, Reply<(Vec<(Order, Entry)>, bool)>),
    /// Read a queue.
    Load(QueueKey, usize, Reply<LoadedQueue>),
    /// Read the next queues, of one slot or of all.
    Sweep(Option<Slot>, Option<QueueKey>, usize, usize, Reply<(Vec<LoadedQueue>, Option<QueueKey>)>),
    /// What only a node of a cluster asks for.
    Replica(ReplicaJob),
    /// What clients with fetchers of their own ask for.
    Client(ClientJob),
    /// What concerns second copies of pages.
    Content(ContentJob),
    /// Read what is handed out, and how many pages and bytes there are.
    Recover(Reply<(Vec<Pick>, u64, u64)>),
    /// Read counters and places.
    State(Reply<State>),
    /// Read whatever somebody wants to know who is no part of the crawl.
    Look(Look),
    /// Copy the database into a folder; answers how much of the archive that copy refers to.
    Checkpoint(PathBuf, Reply<Option<WarcEnd>>),
    /// Close the database and end the thread, when everything before it is written.
    Stop,
}

impl Job {
    fn is_write(&self) -> bool {
        match self {
            Job::Refill(..) | Job::Load(..) | Job::Sweep(..) | Job::Recover(..) | Job::State(..) | Job::Stop => false,
            Job::Checkpoint(..) | Job::Look(..) => false,
            Job::Replica(job) => job.is_write(),
            Job::Client(job) => job.is_write(),
            Job::Content(job) => job.is_write(),
            _ => true,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Job::Settle(landing, _) | Job::Replica(ReplicaJob::Keep(landing, _)) => {
                landing.captured.as_ref().map_or(0, Captured::bytes)
            }
            Job::Content(job) => job.bytes(),
            _ => 0,
        }
    }
}

/// A handle to the disk thread; clones share it. When the last is dropped, or after [`Job::Stop`], the thread writes what
/// waits and ends.
#[derive(Clone)]
pub struct Disk {
    jobs: mpsc::Sender<Job>,
}

/// What the disk needs to start.
pub struct DiskOptions {
    /// How WARC files are written.
    pub warc: WarcOptions,
    /// Waits this long before each commit: lets a test have a slow disk.
    pub commit_pause: Duration,
}

impl Disk {
    /// Opens the WARC files below `dir` and starts the thread. The join handle ends when all handles are dropped.
    pub fn start(store: Store, options: DiskOptions) -> Result<(Disk, std::thread::JoinHandle<()>), DiskError> {
        let mut work = DiskWork::new(store, options)?;
        work.helpers = Some(Helpers::start()?);
        let (disk, mut jobs) = Disk::queue();
        let thread = std::thread::Builder::new()
            .name("disk".into())
            .spawn(move || {
                while let Some(first) = work.waiting.pop_front().or_else(|| jobs.blocking_recv())
                    && work.perform(first, &mut jobs)
                {}
                work.wait_for_sync(); // whoever joins this thread may open the folder next
            })
            .map_err(|error| DiskError::Failed(format!("cannot start the disk thread: {error}")))?;
        Ok((disk, thread))
    }

    /// A handle whose jobs are performed by whoever has the other end: a simulator, in its own time.
    pub fn queue() -> (Disk, mpsc::Receiver<Job>) {
        let (jobs, waiting) = mpsc::channel(JOBS_WAITING_MAX);
        (Disk { jobs }, waiting)
    }

    /// Jobs that wait, and how many may.
    pub fn waiting(&self) -> (usize, usize) {
        let max = self.jobs.max_capacity();
        (max - self.jobs.capacity(), max)
    }

    /// Hands a job over, waiting while the disk has too many.
    pub async fn submit(&self, job: Job) -> Result<(), DiskError> {
        self.jobs.send(job).await.map_err(|_| DiskError::Stopped)
    }

    /// Hands a job over and waits for its answer.
    pub async fn ask<T>(&self, job: impl FnOnce(Reply<T>) -> Job) -> Result<T, DiskError> {
        let (reply, answer) = oneshot::channel();
        self.submit(job(reply)).await?;
        answer.await.map_err(|_| DiskError::Stopped)?
    }
}

/// Performs jobs. It owns the store and the WARC files.
pub struct DiskWork {
    store: Store,
    warc: WarcWriter,
    commit_pause: Duration,
    /// Why nothing is written any more. A node alone stops at the first write that fails; until it has, what was handed out in that write
    /// would land without having been written down, and others would be handed out in its place.
    failed: Option<DiskError>,
    /// Contents of this group, which the database does not know yet.
    fresh: HashMap<[u8; 16], Original>,
    /// Who syncs; without them this thread does.
    helpers: Option<Helpers>,
    /// Jobs that came while a group waited to be written, in their order.
    waiting: VecDeque<Job>,
    /// The group before is being synced.
    syncing: Option<UnderWay>,
    /// A group that was written could not be synced: nobody knows what is on disk.
    broken: Option<DiskError>,
}

/// Who waits for the disk in this thread's place.
struct Helpers {
    archive: Helper,
    log: Helper,
    /// Lets this thread wait for one of them and for jobs at once.
    runtime: tokio::runtime::Runtime,
}

impl Helpers {
    fn start() -> Result<Helpers, DiskError> {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.map_err(|error| DiskError::Failed(format!("cannot start the disk thread: {error}")))?;
        Ok(Helpers { archive: Helper::start("disk-archive")?, log: Helper::start("disk-log")?, runtime })
    }

    /// Waits until something is done, and answers meanwhile what need not wait. Other jobs wait behind each other, as many as a group has.
    fn wait(
        &self,
        under_way: UnderWay,
        store: &mut Store,
        jobs: &mut mpsc::Receiver<Job>,
        waiting: &mut VecDeque<Job>,
    ) -> Result<(), DiskError> {
        self.runtime.block_on(async {
            let mut done = pin!(under_way.done());
            loop {
                tokio::select! {
                    biased;
                    done = &mut done => return done,
                    Some(job) = jobs.recv(), if waiting.len() < GROUP_JOBS_MAX => waiting.extend(read_at_once(store, job)),
                }
            }
        })
    }
}

/// A content that is stored: of which URL, where, and the URL's text.
type Original = (UrlId, ContentRow, String);

/// An answer that waits for the commit.
enum Deferred {
    /// To whoever asked.
    Reply(Box<dyn FnOnce(Option<DiskError>) + Send>),
    /// A page, and who hears of it: mostly the same for all of a group.
    Page(Settled, Option<Landed>),
}

/// Answers all, and tells of pages that follow each other at once.
fn answer_all(deferred: Vec<Deferred>, error: Option<DiskError>) {
    let mut pages = Vec::new();
    for answer in deferred {
        match answer {
            Deferred::Reply(reply) => reply(error.clone()),
            Deferred::Page(hears, landed) => pages.push((hears, landed)),
        }
    }
    let mut pages = pages.into_iter().peekable();
    while let Some((hears, first)) = pages.next() {
        let mut landed = Vec::from_iter(first);
        while let Some((_, next)) = pages.next_if(|(other, _)| Arc::ptr_eq(&other.0, &hears.0)) {
            landed.extend(next);
        }
        (hears.0)(error.clone().map_or(Ok(landed), Err));
    }
}

impl DiskWork {
    /// Opens the WARC files beside `store`.
    pub fn new(store: Store, options: DiskOptions) -> Result<DiskWork, DiskError> {
        let dir = store.dir().join("warc");
        let warc = WarcWriter::open(&dir, options.warc, store.state().warc_end)?;
        let commit_pause = options.commit_pause;
        Ok(DiskWork {
            store,
            warc,
            commit_pause,
            failed: None,
            fresh: HashMap::new(),
            helpers: None,
            waiting: VecDeque::new(),
            syncing: None,
            broken: None,
        })
    }

    /// Performs `first` and whatever waits behind it, as one group. Says whether to go on.
    pub fn perform(&mut self, first: Job, jobs: &mut mpsc::Receiver<Job>) -> bool {
        let (mut writes, mut reads, mut bytes, mut stop) = (Vec::new(), Vec::new(), 0, false);
        let mut next = Some(first);
        while let Some(job) = next {
            bytes += job.bytes();
            stop |= matches!(job, Job::Stop);
            // What need not wait is answered before the group is written.
            if let Some(job) = read_at_once(&mut self.store, job) {
                let group = if job.is_write() { &mut writes } else { &mut reads };
                group.push(job);
            }
            let full = writes.len() + reads.len() >= GROUP_JOBS_MAX || bytes >= GROUP_BYTES_MAX;
            next = if full { None } else { self.waiting.pop_front().or_else(|| jobs.try_recv().ok()) };
        }
        if !writes.is_empty() {
            self.commit(writes, jobs);
        }
        for job in reads {
            if let Some(job) = self.read_behind(job) {
                self.wait_for_sync();
                self.read(job);
            }
        }
        !stop
    }

    /// Waits until what was written is on disk.
    fn wait_for_sync(&mut self) {
        if let Some(Err(error)) = self.syncing.take().map(UnderWay::wait) {
            self.broken = Some(error);
        }
    }

    /// Writes a group: all of it, or nothing and every sender hears why.
    fn commit(&mut self, jobs: Vec<Job>, more: &mut mpsc::Receiver<Job>) {
        if !self.commit_pause.is_zero() {
            std::thread::sleep(self.commit_pause);
        }
        let before = self.warc.end();
        let mut deferred: Vec<Deferred> = Vec::with_capacity(jobs.len());
        let outcome = self.write(jobs, more, &mut deferred);
        self.fresh.clear();
        if let (Ok(written), Some(Helpers { log, .. })) = (&outcome, &self.helpers) {
            if *written {
                let sync = self.store.syncing();
                self.syncing = Some(log.begin(move || {
                    let synced = sync().map_err(|error| DiskError::Failed(error.to_string()));
                    answer_all(deferred, synced.clone().err());
                    synced
                }));
                return;
            }
            // What these jobs found to be there already may be in the group that is being synced.
            self.wait_for_sync();
        }
        let outcome = outcome.and_then(|_| self.broken.clone().map_or(Ok(()), Err));
        if let Err(error) = &outcome {
            tracing::error!(%error, "nothing of this group was written");
            // Memory and files must say what the database says; if even that fails, the node stops on `error`.
            if let Err(error) = self.warc.rewind(before) {
                tracing::error!(%error, "cannot cut the WARC file back");
            }
            if let Err(error) = self.store.forget() {
                tracing::error!(%error, "cannot read the state back");
            }
            if !self.store.options().replica {
                self.failed = Some(error.clone());
            }
        }
        answer_all(deferred, outcome.err());
    }

    /// Says whether there was anything to write.
    fn write(
        &mut self,
        jobs: Vec<Job>,
        more: &mut mpsc::Receiver<Job>,
        deferred: &mut Vec<Deferred>,
    ) -> Result<bool, DiskError> {
        let mut work = Vec::with_capacity(jobs.len());
        let mut failure = self.failed.clone();
        let mut captured = false;
        for mut job in jobs {
            if let (Job::Content(job), None) = (&mut job, &failure) {
                match job.archive(&mut self.warc) {
                    Ok(archived) => captured |= archived,
                    Err(error) => failure = Some(error),
                }
            }
            let fetched = match (&mut job, &failure) {
                (Job::Settle(landing, _) | Job::Replica(ReplicaJob::Keep(landing, _)), None) => {
                    self.capture(landing).unwrap_or_else(|error| {
                        failure = Some(error);
                        None
                    })
                }
                _ => None,
            };
            captured |= fetched.is_some();
            work.push((job, fetched));
        }
        let mut archiving = None;
        if captured && failure.is_none() {
            match (self.warc.unsynced(), &self.helpers) {
                (Ok(unsynced), Some(Helpers { archive, .. })) => {
                    archiving = Some(archive.begin(move || unsynced.sync().map_err(DiskError::from)));
                }
                (Ok(unsynced), None) => failure = unsynced.sync().err().map(DiskError::from),
                (Err(error), _) => failure = Some(error.into()),
            }
        }
        let end = self.warc.end();
        let mut change = self.store.change();
        for (job, fetched) in work {
            let answered = match failure {
                None => apply(&mut change, job, fetched, deferred),
                Some(_) => refuse(job, deferred),
            };
            failure = failure.or(answered.err());
        }
        if let Some(error) = failure {
            return Err(error);
        }
        if captured {
            change.warc_end(end);
        }
        if change.is_empty() {
            return Ok(false);
        }
        // The archive before the database, and no batch behind one of which nobody knows whether it is on disk.
        let (before, broken, waiting, helpers) =
            (self.syncing.take(), &mut self.broken, &mut self.waiting, &self.helpers);
        change.commit_after(helpers.is_none(), |store| {
            let Some(helpers) = helpers else { return Ok(()) };
            if let Some(archiving) = archiving {
                helpers.wait(archiving, store, more, waiting)?;
            }
            if let Some(Err(error)) = before.map(|before| helpers.wait(before, store, more, waiting)) {
                *broken = Some(error);
            }
            broken.clone().map_or(Ok(()), Err)
        })?;
        Ok(true)
    }

    /// Appends what a fetch brought to the WARC files; content that is there already is only referred to.
    fn capture(&mut self, landing: &mut Landing) -> Result<Option<Fetched>, DiskError> {
        let Some(captured) = landing.captured.take() else { return Ok(None) };
        let original = self.original(&landing.pick, &captured)?;
        if let (Some((Some(id), ..)), Some(found)) = (&original, landing.ending.found_mut()) {
            found.duplicate_of = Some(*id);
        }
        let (hash, processed) = self.told_apart(landing, &captured)?;
        let url = landing.pick.entry.url.as_str();
        let revisit = original.as_ref().map(|(_, row, url)| RevisitOf {
            url,
            unix_ms: row.unix_ms,
            record_id: row.record_id,
            payload_digest: row.payload_digest,
        });
        let repeats = |packed: &Packed| revisit.is_some_and(|of| of.payload_digest == packed.payload_digest);
        let (position, record_id, payload_digest, repeated) = match &captured.packed {
            Some(packed) if !repeats(packed) => {
                let position = self.warc.append_members(&packed.members, captured.unix_ms, url)?;
                (position, packed.record_id, packed.payload_digest, false)
            }
            // Its body is gone, if its records were made; one that refers to another has none.
            _ => {
                let warc = &mut self.warc;
                let appended = captured.as_capture(url, |capture| {
                    let capture: Capture<'_> = Capture { processed, revisit, ..capture };
                    warc.append(&capture)
                })?;
                (appended.position, appended.record_id, appended.payload_digest, appended.revisit)
            }
        };
        let content = ContentRow { position, record_id, payload_digest, unix_ms: captured.unix_ms, revisit: repeated };
        let url = &landing.pick.entry.url;
        let id = url.id(landing.pick.queue.crawl());
        for digest in captured.digest.filter(|_| !content.revisit).into_iter().chain(hash) {
            self.fresh.insert(digest, (id, content, url.as_str().to_owned()));
        }
        Ok(Some(Fetched { content, digest: captured.digest, hash }))
    }

    /// Whether the content of a page is the first of its kind by the rules of its site, and what is kept of what they made of it.
    fn told_apart<'c>(
        &self,
        landing: &mut Landing,
        captured: &'c Captured,
    ) -> Result<(Option<[u8; 16]>, &'c [u8]), DiskError> {
        let processed = captured.processed.as_deref().unwrap_or_default();
        let Some((hash, delete)) = captured.hash else { return Ok((None, processed)) };
        let first = match self.fresh.get(&hash) {
            Some((id, ..)) => Some(*id),
            None => self.store.first_with(&hash)?.map(|(id, ..)| id),
        };
        let own = landing.pick.entry.url.id(landing.pick.queue.crawl());
        match first.filter(|id| *id != own) {
            None => Ok((Some(hash), processed)),
            Some(id) => {
                if let Some(found) = landing.ending.found_mut() {
                    found.duplicate_of = Some(id);
                }
                Ok((None, if delete { &[] } else { processed }))
            }
        }
    }

    /// The stored content that this one repeats: of the same URL (no id), or of another.
    fn original(
        &self,
        pick: &Pick,
        captured: &Captured,
    ) -> Result<Option<(Option<UrlId>, ContentRow, String)>, DiskError> {
        let key = UrlKey::new(pick.queue.crawl(), &pick.entry.url);
        if captured.not_modified {
            let row = self.store.content(&key)?;
            return Ok(row.map(|row| (None, row, pick.entry.url.as_str().to_owned())));
        }
        let Some(digest) = captured.digest else { return Ok(None) };
        let first = match self.fresh.get(&digest) {
            Some(original) => Some(original.clone()),
            None => self.store.first_with(&digest)?,
        };
        let counts = |id: UrlId| id == key.id() || self.store.options().dedupe_content;
        let original = first.filter(|(id, ..)| counts(*id));
        Ok(original.map(|(id, row, url)| ((id != key.id()).then_some(id), row, url)))
    }

    /// Reads what is in queues, and what becomes of flights, as the writes before leave them, and tells it behind their answers; gives back any
    /// other job. Read only when they are answered, it would be old: the frontier has gone on by then, and would take a host for one that it
    /// knows nothing of. And whoever waits for the disk to be synced before each read has it idle half of the time.
    fn read_behind(&mut self, job: Job) -> Option<Job> {
        let store = &mut self.store;
        let tell: Box<dyn FnOnce() + Send> = match job {
            Job::Replica(ReplicaJob::Settle { flights, unix_ms, reply }) => {
                let read = store.settle_copies(flights, unix_ms);
                Box::new(move || answer(reply, read))
            }
            Job::Replica(ReplicaJob::Land { picks, reply }) => {
                let read = store.land_all(&picks);
                Box::new(move || answer(reply, read))
            }
            Job::Refill(queue, after, limit, reply) => {
                let read = store.refill(&queue, after, limit);
                Box::new(move || answer(reply, read))
            }
            Job::Load(queue, limit, reply) => {
                let read = store.load_queue(&queue, limit);
                Box::new(move || answer(reply, read))
            }
            Job::Sweep(slot, after, queues, limit, reply) => {
                let read = store.sweep(slot, after.as_ref(), queues, limit);
                Box::new(move || answer(reply, read))
            }
            job => return Some(job),
        };
        match (&self.helpers, &self.syncing) {
            (Some(Helpers { log, .. }), Some(_)) => drop(log.begin(move || {
                tell();
                Ok(())
            })),
            _ => tell(),
        }
        None
    }

    fn read(&mut self, job: Job) {
        let store = &mut self.store;
        match job {
            Job::Replica(job) => job.read(store),
            Job::Client(job) => job.read(store),
            Job::Content(job) => job.read(store),
            Job::Recover(reply) => {
                let counters = &store.state().counters;
                answer(reply, store.flights().map(|flights| (flights, counters.processed, counters.bytes)))
            }
            Job::State(reply) => answer(reply, Ok(store.state().clone())),
            Job::Look(Look(looks)) => looks(store),
            Job::Checkpoint(to, reply) => answer(reply, store.checkpoint(&to)),
            Job::Stop => {}
            _ => unreachable!("writes go to `commit`"),
        }
    }
}

/// Answers what nobody takes for durable, ahead of the writes before it; gives back any other job. What is handed out counts when its own write
/// is on disk, which is behind them, and records merge in whatever order; a copy that came counts when it is kept, and to be sent one twice does
/// no harm; and where the records of a page lie is asked only of pages that are there. In a cluster a host waits for these answers.
fn read_at_once(store: &mut Store, job: Job) -> Option<Job> {
    match job {
        Job::Replica(job @ ReplicaJob::Select { .. }) => job.read(store),
        Job::Content(job @ (ContentJob::Stand(..) | ContentJob::Offers(..) | ContentJob::Wanted(..))) => {
            job.read(store);
        }
        job => return Some(job),
    }
    None
}

fn answer<T>(reply: Reply<T>, result: Result<T, StoreError>) {
    // Whoever asked may be gone: then nobody needs the answer.
    let _ = reply.send(result.map_err(DiskError::from));
}

/// Applies one job to the change; its answer waits for the commit.
fn apply(
    change: &mut super::store::Change<'_>,
    job: Job,
    fetched: Option<Fetched>,
    deferred: &mut Vec<Deferred>,
) -> Result<(), DiskError> {
    match job {
        Job::Admit { crawl, urls, unix_ms, reply } => {
            let admitted = change.admit(&crawl, urls, None, unix_ms);
            defer(reply, admitted, deferred)
        }
        Job::Select(picks, reply) => {
            let selected = change.select(&picks);
            defer(reply, selected, deferred)
        }
        Job::Settle(landing, hears) => {
            let Landing { pick, ending, links, beyond, unix_ms, .. } = *landing;
            let landed = change.settle(Settle { pick, ending, fetched, links, beyond, unix_ms });
            let (landed, failed) = value_of(landed);
            deferred.push(Deferred::Page(hears, landed));
            failed
        }
        Job::FallDue(unix_ms, reply) => {
            let admitted = change.fall_due(unix_ms, DUE_MAX);
            let next = change.next_due();
            defer(reply, admitted.map(|admitted| (admitted, next)), deferred)
        }
        Job::TakeBack(rules, pass, unix_ms, reply) => {
            let taken = change.take_back(&rules.crawl, &rules.filter, rules.digest, pass, DUE_MAX, unix_ms);
            defer(reply, taken, deferred)
        }
        Job::KeepFacts(queue, facts, reply) => {
            let kept = change.keep_facts(&queue, &facts);
            defer(reply, kept, deferred)
        }
        Job::Reorder(moves, reply) => {
            let moved = change.reorder(moves);
            defer(reply, moved, deferred)
        }
        Job::Replica(job) => job.apply(change, fetched, deferred),
        Job::Client(job) => job.apply(change, deferred),
        Job::Content(job) => job.apply(change, deferred),
        Job::Refill(..)
        | Job::Load(..)
        | Job::Sweep(..)
        | Job::Recover(..)
        | Job::State(..)
        | Job::Checkpoint(..)
        | Job::Look(..)
        | Job::Stop => {
            unreachable!("reads go to `read`")
        }
    }
}

fn value_of<T>(result: Result<T, StoreError>) -> (Option<T>, Result<(), DiskError>) {
    match result {
        Ok(value) => (Some(value), Ok(())),
        Err(error) => (None, Err(DiskError::from(error))),
    }
}

fn defer<T: Send + 'static>(
    reply: Reply<T>,
    result: Result<T, StoreError>,
    deferred: &mut Vec<Deferred>,
) -> Result<(), DiskError> {
    let (value, failed) = value_of(result);
    deferred.push(Deferred::Reply(Box::new(move |error| {
        let result = match (error, value) {
            (None, Some(value)) => Ok(value),
            (Some(error), _) => Err(error),
            (None, None) => Err(DiskError::Stopped), // not reached: a job without a value fails the whole group
        };
        let _ = reply.send(result);
    })));
    failed
}

fn later<T: Send + 'static>(reply: Reply<T>, deferred: &mut Vec<Deferred>) {
    deferred.push(Deferred::Reply(Box::new(move |error| {
        let _ = reply.send(Err(error.unwrap_or(DiskError::Stopped)));
    })));
}

/// Answers a job of a group that failed before its turn.
fn refuse(job: Job, deferred: &mut Vec<Deferred>) -> Result<(), DiskError> {
    match job {
        Job::Replica(job) => job.refuse(deferred),
        Job::Client(job) => job.refuse(deferred),
        Job::Content(job) => job.refuse(deferred),
        Job::Admit { reply, .. } => later(reply, deferred),
        Job::Select(_, reply) => later(reply, deferred),
        Job::Settle(_, hears) => deferred.push(Deferred::Page(hears, None)),
        Job::FallDue(_, reply) => later(reply, deferred),
        Job::TakeBack(_, _, _, reply) => later(reply, deferred),
        Job::KeepFacts(_, _, reply) => later(reply, deferred),
        Job::Reorder(_, reply) => later(reply, deferred),
        Job::Refill(..) | Job::Load(..) | Job::Sweep(..) | Job::Recover(..) | Job::State(..) | Job::Stop => {}
        Job::Checkpoint(..) | Job::Look(..) => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests;
