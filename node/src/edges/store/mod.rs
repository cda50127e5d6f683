//! RocksDB: URL records, the schedule, what is known of hosts, counters. The only user of the crate `rocksdb`.
//!
//! One [`Change`] is one atomic batch: what it writes, the counters that count it, and the end of the WARC files it
//! refers to are on disk together or not at all.
//!
//! Column families (keys in [`proto::key`]):
//! `url` record, preceded by the in-links in four bytes; `ready` entries in fetching order; `due` entries that wait for their time;
//! `flight` which of the ready entries are handed out (their URLs are SELECTED_TO_CRAWL); `host` facts and counters of a host;
//! `aside` what the rules of this run do not admit; `content` where each version lies in the WARC files; `copies` which of them lack a second copy and who has the others'; `digest` the first URL of each content; `seen` queries counted per path;
//! `tally` in-links that are not yet added to their records; `found`, `page` and `link` the page graph; `meta` format version, state and definitions;
//! `client`, `turn`, `line` and `agenda` the queues that clients fetch from (`clients`).

mod aside;
mod change;
mod checkpoint;
mod clients;
mod columns;
mod contents;
mod convert;
mod definitions;
mod digests;
mod failings;
mod flying;
mod found;
mod graph;
mod notes;
pub mod ose;
mod read;
mod records;
mod reorder;
mod replica;
mod rounds;
mod rows;
mod sweep;
mod tally;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use proto::counters::{Counters, HostCounters};
use proto::crawl::outcome::OutcomeRules;
use proto::crawl::retry::RetryRules;
use proto::id::{NodeId, SLOTS, Slot, UrlId};
use proto::key::QueueKey;
use proto::wire;
use rocksdb::{ColumnFamily, DBWithThreadMode, SingleThreaded};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64_with_seed;

pub use self::aside::Pass;
pub use self::change::{Admitted, Change, Fetched, Landed, Settle};
pub use self::clients::{Decided, TAKE_URLS_MAX, Taker};
use self::contents::Copies;
pub use self::contents::{Arriving, Members, Offered, RESTORED_FILE};
use self::flying::Flying;
pub use self::found::page_of_row;
pub use self::graph::{GraphCounts, GraphNow, Intake, Move, PageGraph, PageRow};
pub use self::notes::Recounted;
pub use self::read::{HostRow, Stored};
pub use self::records::ScanFrom;
pub use self::replica::{Begun, Merged};
use self::tally::Tally;
use super::warc::{PayloadDigest, RecordId, WarcEnd, WarcPosition};

/// Version of everything below the data folder. A newer one is refused; so is 1, which no release has written.
pub const FORMAT_VERSION: u32 = 2;

/// Hosts whose counters are kept in memory, some 150 bytes each: 5 MiB. All are written with their change, so forgetting
/// them costs a read.
const HOSTS_CACHED: usize = 32_768;
/// Paths whose queries are counted in memory, likewise.
const PATHS_CACHED: usize = 8_192;
/// Ids remembered as known, eight bytes each: 4 MiB. Most links of a page lead to pages that its neighbours link to as well.
const IDS_CACHED: usize = 1 << 19;

/// What a store can fail with.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has it open.
    #[error("data folder {0} is in use by another process; stop that one or choose another folder with --data")]
    InUse(PathBuf),
    /// Written by a later version of the program.
    #[error(
        "data folder {dir} has format {found}, this program understands up to {FORMAT_VERSION}; use a newer orbweaver"
    )]
    Newer {
        /// The folder.
        dir: PathBuf,
        /// Its version.
        found: u32,
    },
    /// Written before the first release.
    #[error(
        "data folder {dir} has format {found}, from before the first release; this program reads format {FORMAT_VERSION}: crawl into another folder"
    )]
    Older {
        /// The folder.
        dir: PathBuf,
        /// Its version.
        found: u32,
    },
    /// No space left.
    #[error("the disk of {0} is full; nothing was lost, free some space and run the same command again")]
    DiskFull(PathBuf),
    /// The folder cannot be used.
    #[error("cannot use data folder {dir}: {reason}")]
    Folder {
        /// The folder.
        dir: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// It is not there.
    #[error("{0} holds no orbweaver data; give the folder that was named with --data")]
    Missing(PathBuf),
    /// RocksDB said no.
    #[error("database in {dir}: {reason}")]
    Database {
        /// The folder.
        dir: PathBuf,
        /// What it said.
        reason: String,
    },
    /// A row cannot be understood.
    #[error("damaged row in column family {family}: {reason}")]
    Damaged {
        /// Where.
        family: &'static str,
        /// Why.
        reason: String,
    },
}

impl StoreError {
    fn database(dir: &Path, error: &rocksdb::Error) -> StoreError {
        let reason = error.to_string();
        if reason.contains("No space left") {
            return StoreError::DiskFull(dir.to_owned());
        }
        if reason.contains("lock file") || reason.contains("LOCK") || reason.contains("lock hold by") {
            return StoreError::InUse(dir.to_owned());
        }
        StoreError::Database { dir: dir.to_owned(), reason }
    }

    pub(crate) fn damaged(family: &'static str, error: impl ToString) -> StoreError {
        StoreError::Damaged { family, reason: error.to_string() }
    }
}

/// Limits and rules of a store.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Who writes.
    pub node: NodeId,
    /// It is a replica in a cluster: queues follow from records, and nothing is written down as handed out.
    pub replica: bool,
    /// URLs of one host that are admitted; more is taken for a trap.
    pub host_urls_max: u64,
    /// Queries of one path that are admitted; more is taken for a trap.
    pub path_queries_max: u32,
    /// How often what is tried.
    pub retry: RetryRules,
    /// Time between rounds, if there is more than one.
    pub recrawl_period_ms: Option<u64>,
    /// Nodes that keep each page of a cluster; 1 for this one alone.
    pub content_copies: usize,
    /// Whether a content that another URL gave before is only referred to.
    pub dedupe_content: bool,
    /// Links beyond the rules of a run that are kept for a run with wider ones.
    pub links_aside_max: u64,
    /// Whether the links of pages are written down for the page graph.
    pub graph: bool,
    /// URLs whose in-links gather in memory before they are added to their records, some 100 bytes each.
    pub tally_urls_max: usize,
    /// Memory for reads, in bytes.
    pub cache_bytes: usize,
    /// Memory for writes, in bytes.
    pub write_buffer_bytes: usize,
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions {
            node: NodeId::SOLE,
            replica: false,
            host_urls_max: 1_000_000,
            path_queries_max: 1_000,
            retry: RetryRules::default(),
            recrawl_period_ms: None,
            content_copies: 1,
            dedupe_content: true,
            links_aside_max: 1_000_000,
            graph: false,
            tally_urls_max: 65_536,
            cache_bytes: 64 << 20,
            write_buffer_bytes: 96 << 20,
        }
    }
}

/// Where the entries are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Places {
    /// In queues.
    pub ready: u64,
    /// Waiting to be tried again.
    pub retries: u64,
    /// Waiting for their next round.
    pub recrawls: u64,
    /// Handed out.
    pub flights: u64,
    /// Not admitted because their host or path has too many.
    pub traps: u64,
    /// Set aside: the rules of the run that met them do not admit them. Kept in a row of its own, as folders without it are in use.
    #[serde(skip)]
    pub aside: u64,
    /// Links that no run's rules admitted yet, likewise.
    #[serde(skip)]
    pub links_aside: u64,
}

impl Places {
    /// Whether the round is over: nothing waits but next rounds.
    pub fn is_done(&self) -> bool {
        self.ready == 0 && self.retries == 0 && self.flights == 0
    }
}

/// The part of the store that changes with every batch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Counts admissions.
    pub sequence: u64,
    /// What the crawl has come to.
    pub counters: Counters,
    /// Where the entries are.
    pub places: Places,
    /// End of what the WARC files hold for certain.
    pub warc_end: Option<WarcEnd>,
}

/// Where one version of a content lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentRow {
    /// Its records.
    pub position: WarcPosition,
    /// Its response record.
    pub record_id: RecordId,
    /// Digest of its payload.
    pub payload_digest: PayloadDigest,
    /// When it was fetched, Unix milliseconds.
    pub unix_ms: u64,
    /// It only refers to an earlier record.
    pub revisit: bool,
}

/// One thread owns the store, so the families need no lock.
type Database = DBWithThreadMode<SingleThreaded>;

/// Counters of a host in memory.
#[derive(Clone, Copy, Default)]
struct KnownHost {
    counters: HostCounters,
    /// The change under way has touched them.
    touched: bool,
}

/// The store of one node.
pub struct Store {
    dir: PathBuf,
    db: Arc<Database>,
    options: StoreOptions,
    rules: OutcomeRules,
    boot: u32,
    /// Which life in the cluster; 0 before the first.
    life: u32,
    state: State,
    seen: SeenCache,
    /// Ids that were looked up as links beyond the rules.
    seen_aside: SeenCache,
    hosts: HashMap<QueueKey, KnownHost, Seeded>,
    paths: HashMap<Vec<u8>, u32, Seeded>,
    /// Flights of this life that have not landed. A page can land in the very change that hands it out, which no read of the
    /// database would find.
    flying: Flying,
    tally: Tally,
    /// Earliest due entry of each slot.
    next_due: Vec<u64>,
    copies: Copies,
    digests: digests::Log,
    /// Recrawl periods that definitions name, by crawl, and that they have none; `None` until they are read.
    periods: Option<std::collections::BTreeMap<String, Option<u64>>>,
    /// Crawls of sites whose URLs have a history; `None` until they are read.
    histories: Option<std::collections::BTreeSet<String>>,
    /// Most URLs of crawls that have a limit; `None` until they are read.
    url_limits: Option<std::collections::BTreeMap<String, u64>>,
    /// How many more of them may become known here.
    room: std::collections::BTreeMap<String, u64>,
    /// Sites that are gone; `None` until definitions are read.
    gone: Option<proto::site::Gone>,
    /// How far what is left of them here was removed.
    sweeping: sweep::Sweeping,
    /// Number of the next row of `found`, and of `untold`.
    next_found: u64,
    next_untold: u64,
    /// Lines of queues of clients.
    lines: clients::Lines,
    /// Where what clients are served from begins.
    fronts: clients::Fronts,
    /// Of which slots pages are handed out.
    served: clients::Served,
    /// Links that were too many for their pages' records since the start.
    left_out: Arc<AtomicU64>,
    /// Pages of this replica may have levels.
    levels: bool,
}

impl Store {
    /// Opens the store below `dir`, making it if it is not there. Everything handed out in a former life goes back to its queue.
    pub fn open(dir: &Path, options: StoreOptions) -> Result<Store, StoreError> {
        std::fs::create_dir_all(dir)
            .map_err(|error| StoreError::Folder { dir: dir.to_owned(), reason: error.to_string() })?;
        Self::check_version(dir)?;
        let db = columns::open(&dir.join("db"), &options).map_err(|error| StoreError::database(dir, &error))?;
        let mut store = Store::over(dir, db, options);
        store.load()?;
        store.boot += 1;
        store.write_meta("boot", &store.boot)?;
        store.write_meta("format", &FORMAT_VERSION)?;
        write_version(dir)?;
        store.return_flights()?;
        store.take_sides()?;
        if !store.options.replica {
            store.reschedule_rounds()?;
        }
        store.load_due()?;
        store.begin_copies()?;
        store.load_found()?;
        store.load_levels()?;
        Ok(store)
    }

    /// Opens an existing store for reading, also while another process writes it.
    pub fn open_for_reading(dir: &Path) -> Result<Store, StoreError> {
        if !dir.join("db").join("CURRENT").exists() {
            return Err(StoreError::Missing(dir.to_owned()));
        }
        Self::check_version(dir)?;
        let options = StoreOptions::default();
        let db =
            columns::open_for_reading(&dir.join("db"), &options).map_err(|error| StoreError::database(dir, &error))?;
        let mut store = Store::over(dir, db, options);
        // Whoever makes a folder makes its families one by one, and says the format when all are there.
        if store.db.cf_handle("meta").is_none() || store.read_meta::<u32>("format")?.is_none() {
            return Err(StoreError::Missing(dir.to_owned()));
        }
        store.load()?;
        Ok(store)
    }

    fn over(dir: &Path, db: Database, options: StoreOptions) -> Store {
        let rules =
            OutcomeRules { retry: options.retry, recrawl_period_ms: options.recrawl_period_ms, node: options.node };
        let (seeded, tally_urls_max) = (Seeded::new(), options.tally_urls_max);
        Store {
            dir: dir.to_owned(),
            db: Arc::new(db),
            options,
            rules,
            boot: 0,
            life: 0,
            state: State::default(),
            seen: SeenCache::new(),
            seen_aside: SeenCache::new(),
            hosts: HashMap::with_hasher(seeded),
            paths: HashMap::with_hasher(seeded),
            flying: Flying::new(seeded),
            tally: Tally::new(seeded, tally_urls_max),
            next_due: vec![u64::MAX; usize::from(SLOTS)],
            copies: Copies::default(),
            digests: digests::Log::default(),
            periods: None,
            histories: None,
            url_limits: None,
            room: Default::default(),
            gone: None,
            sweeping: sweep::Sweeping::default(),
            next_found: 0,
            next_untold: 0,
            lines: clients::Lines::new(),
            fronts: clients::Fronts::default(),
            served: clients::Served::default(),
            left_out: Arc::default(),
            levels: false,
        }
    }

    /// The version stands in a file of its own too, so that it can be read before the database is opened at all.
    fn check_version(dir: &Path) -> Result<(), StoreError> {
        let path = dir.join(VERSION_FILE);
        let Ok(text) = std::fs::read_to_string(&path) else { return Ok(()) };
        let found: u32 = text.trim().parse().map_err(|_| StoreError::Folder {
            dir: dir.to_owned(),
            reason: format!("{} holds no version number", path.display()),
        })?;
        Self::check_number(dir, found)
    }

    fn check_number(dir: &Path, found: u32) -> Result<(), StoreError> {
        match found.cmp(&FORMAT_VERSION) {
            Ordering::Less => Err(StoreError::Older { dir: dir.to_owned(), found }),
            Ordering::Equal => Ok(()),
            Ordering::Greater => Err(StoreError::Newer { dir: dir.to_owned(), found }),
        }
    }

    fn load(&mut self) -> Result<(), StoreError> {
        if let Some(found) = self.read_meta::<u32>("format")? {
            Self::check_number(&self.dir, found)?;
        }
        self.boot = self.read_meta("boot")?.unwrap_or(0);
        self.state = self.read_meta("state")?.unwrap_or_default();
        if let Some((aside, links)) = self.read_meta::<(u64, u64)>("aside")? {
            (self.state.places.aside, self.state.places.links_aside) = (aside, links);
        }
        self.load_copies()?;
        self.load_tally()
    }

    /// Which start of the node this is, counted from 1.
    pub fn boot(&self) -> u32 {
        self.boot
    }

    /// Counters and places as of the last change.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Limits and rules.
    pub fn options(&self) -> &StoreOptions {
        &self.options
    }

    /// The data folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn read_meta<T: serde::de::DeserializeOwned>(&self, key: &str) -> Result<Option<T>, StoreError> {
        let bytes = self.db.get_cf(&self.family("meta"), key).map_err(|error| self.failed(&error))?;
        bytes.map(|bytes| wire::decode(&bytes)).transpose().map_err(|error| StoreError::damaged("meta", error))
    }

    fn write_meta<T: Serialize>(&self, key: &str, value: &T) -> Result<(), StoreError> {
        let bytes = wire::encode(value).map_err(|error| StoreError::damaged("meta", error))?;
        self.db.put_cf(&self.family("meta"), key, bytes).map_err(|error| self.failed(&error))
    }

    fn write_meta_durably<T: Serialize>(&self, key: &str, value: &T) -> Result<(), StoreError> {
        let bytes = wire::encode(value).map_err(|error| StoreError::damaged("meta", error))?;
        let mut options = rocksdb::WriteOptions::default();
        options.set_sync(true);
        self.db.put_cf_opt(&self.family("meta"), key, bytes, &options).map_err(|error| self.failed(&error))
    }

    fn family(&self, name: &'static str) -> &ColumnFamily {
        self.db.cf_handle(name).expect("all column families are opened")
    }

    fn failed(&self, error: &rocksdb::Error) -> StoreError {
        StoreError::database(&self.dir, error)
    }

    /// Writes what is in memory into tables, so that the logs can go. Nothing needs it; it takes the next start less time.
    pub fn flush(&self) -> Result<(), StoreError> {
        let families = columns::FAMILIES.map(|name| self.family(name));
        for family in &families {
            self.db.flush_cf(family).map_err(|error| self.failed(&error))?;
        }
        Ok(())
    }

    /// Merges all tables: the least space that the data can take.
    pub fn compact(&self) -> Result<(), StoreError> {
        self.flush()?;
        for name in columns::FAMILIES {
            self.db.compact_range_cf::<&[u8], &[u8]>(&self.family(name), None, None);
        }
        Ok(())
    }

    /// After a failed write: memory must say what disk says.
    pub fn forget(&mut self) -> Result<(), StoreError> {
        self.hosts.clear();
        self.paths.clear();
        self.lines = clients::Lines::new();
        self.seen = SeenCache::new();
        self.seen_aside = SeenCache::new();
        self.forget_definitions();
        self.load()?;
        self.load_flying()?;
        self.load_found()?;
        self.load_due()
    }
}

/// The file that holds the format's version.
pub const VERSION_FILE: &str = "FORMAT";

/// Writes the version where it is not written yet, whole or not at all: a kill between opening and writing the file would
/// leave one that says nothing.
fn write_version(dir: &Path) -> Result<(), StoreError> {
    let (path, text) = (dir.join(VERSION_FILE), format!("{FORMAT_VERSION}\n"));
    if std::fs::read_to_string(&path).is_ok_and(|found| found == text) {
        return Ok(());
    }
    let fresh = dir.join(format!("{VERSION_FILE}.new"));
    std::fs::write(&fresh, text)
        .and_then(|()| std::fs::File::open(&fresh)?.sync_all())
        .and_then(|()| std::fs::rename(&fresh, &path))
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::StorageFull => StoreError::DiskFull(dir.to_owned()),
            _ => StoreError::Folder { dir: dir.to_owned(), reason: error.to_string() },
        })
}

/// XXH3 with a secret seed: keys are short, every URL is looked up several times, and names are chosen by strangers.
#[derive(Clone, Copy)]
struct Seeded(u64);

impl Seeded {
    fn new() -> Seeded {
        Seeded(RandomState::new().hash_one(0))
    }
}

impl BuildHasher for Seeded {
    type Hasher = SeededHasher;

    fn build_hasher(&self) -> SeededHasher {
        SeededHasher(self.0)
    }
}

struct SeededHasher(u64);

impl Hasher for SeededHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, self.0);
    }

    fn write_usize(&mut self, number: usize) {
        self.0 ^= number as u64; // the length of what follows
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Ids that are on disk. A miss says nothing. Half of an id says where it stands, the other half is what stands there: a look takes another
/// URL for a known one once in 10^19 looks, and nobody can make one that is taken for a given other one; for that, the memory holds twice as many.
struct SeenCache {
    ids: Vec<u64>,
}

impl SeenCache {
    fn new() -> SeenCache {
        SeenCache { ids: vec![0; IDS_CACHED] }
    }

    fn split(id: UrlId) -> (usize, u64) {
        let half = |from: usize| u64::from_le_bytes(id.0[from..from + 8].try_into().expect("eight bytes"));
        (half(0) as usize % IDS_CACHED, half(8).max(1)) // 0 stands where nothing does
    }

    fn contains(&self, id: UrlId) -> bool {
        let (place, rest) = Self::split(id);
        self.ids[place] == rest
    }

    fn insert(&mut self, id: UrlId) {
        let (place, rest) = Self::split(id);
        self.ids[place] = rest;
    }
}

fn slot_index(slot: Slot) -> usize {
    usize::from(slot.0 % SLOTS)
}
