//! The page graph: a number for every page that the crawl has met, and the links between them.
//!
//! Numbers are dense and given in the order of discovery, so that scores are plain vectors and neighbours have numbers close to each
//! other. A page is known by its whole key, with 128 bits of a strong hash: no two pages are ever taken for one.
//! Families: `found` what the crawl saw and nobody has taken in yet ([`super::found`]); `page` key of a URL → [`PageRow`]; `link` `k` number → key,
//! and `l` number → the links ([`proto::score::link_row`]).
//!
//! [`PageGraph`] is a handle beside the store, for a thread of its own: only it writes `page` and `link`. Taking rows in, giving numbers and removing
//! the rows is one batch, so that a kill loses nothing and counts nothing twice.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use proto::batch::{Entry, EntryKind};
use proto::clients::identity::is_queue;
use proto::clients::page::PageState;
use proto::clients::record::ClientUrl;
use proto::clients::spider::is_pages;
use proto::id::UrlId;
use proto::key::{Order, QueueKey, UrlKey};
use proto::score::link_row::{self, Row};
use proto::wire;
use rocksdb::{ColumnFamily, Direction, IteratorMode, SnapshotWithThreadMode, WriteBatch};
use serde::{Deserialize, Serialize};

use super::found::FoundPage;
use super::{Database, Seeded, Store, StoreError};

/// Rows, and bytes of rows, that are taken in with one batch.
const ROWS_MAX: usize = 4_096;
const BYTES_MAX: usize = 8 << 20;
/// Pages whose numbers are remembered, some 48 bytes each: 6 MiB. Most links lead to pages that many link to.
const PAGES_CACHED: usize = 1 << 17;
/// Waiting entries that are looked at in one go.
const LOOKED_AT: usize = 1_024;
/// Marks a page that nobody links to: a seed.
const NOBODY: u32 = u32::MAX;
/// Where the counts stand in `meta`.
const COUNTS: &str = "graph";

/// What the graph holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GraphCounts {
    /// Pages that have a number, crawled or not.
    pub pages: u32,
    /// Pages among them whose links are known.
    pub crawled: u32,
    /// Their links.
    pub links: u64,
}

/// What the graph knows of a page beyond its record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PageRow {
    /// Its number.
    pub number: u32,
    /// The page that linked to it first; `None` for a seed.
    pub first_linker: Option<u32>,
    /// What it was found with.
    pub own: u16,
    /// When it was first crawled, Unix milliseconds; 0 if it was not.
    pub first_crawl: u64,
    /// What its content is worth by itself, as whoever crawled it said; 0 if nobody did.
    pub content: f32,
}

impl PageRow {
    const BYTES: usize = 22;
    /// Without what contents are worth, as rows were before.
    const OLD_BYTES: usize = 18;

    fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.number.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.first_linker.unwrap_or(NOBODY).to_le_bytes());
        bytes[8..10].copy_from_slice(&self.own.to_le_bytes());
        bytes[10..18].copy_from_slice(&self.first_crawl.to_le_bytes());
        bytes[18..].copy_from_slice(&self.content.to_le_bytes());
        bytes
    }

    fn read(bytes: &[u8]) -> Result<PageRow, StoreError> {
        if bytes.len() != Self::BYTES && bytes.len() != Self::OLD_BYTES {
            return Err(StoreError::damaged("page", "a row of another length"));
        }
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        Ok(PageRow {
            number: word(0),
            first_linker: Some(word(4)).filter(|number| *number != NOBODY),
            own: u16::from_le_bytes([bytes[8], bytes[9]]),
            first_crawl: u64::from_le_bytes(bytes[10..18].try_into().expect("eight bytes")),
            content: if bytes.len() == Self::BYTES { f32::from_bits(word(18)) } else { 0.0 },
        })
    }
}

/// A waiting entry that belongs elsewhere in its queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// Its queue.
    pub queue: QueueKey,
    /// Where it is.
    pub order: Order,
    /// Its priority from now on.
    pub priority: u16,
    /// In a cluster: its page, and the level from which its place follows.
    pub level: Option<(UrlKey, i16)>,
}

/// The graph of a data folder; clones share it. The folder stays in use as long as there is one.
#[derive(Clone)]
pub struct PageGraph {
    db: Arc<Database>,
    dir: Arc<Path>,
    left_out: Arc<AtomicU64>,
}

/// What taking rows in needs to remember.
pub struct Intake {
    counts: GraphCounts,
    /// The number of the first row that may wait: RocksDB would walk past all that were taken in.
    next: u64,
    cache: Vec<(UrlId, PageRow)>,
    seeded: Seeded,
}

impl Store {
    /// The page graph of this folder.
    pub fn graph(&self) -> PageGraph {
        PageGraph { db: Arc::clone(&self.db), dir: self.dir.as_path().into(), left_out: Arc::clone(&self.left_out) }
    }
}

impl Intake {
    /// What the graph holds by now.
    pub fn counts(&self) -> GraphCounts {
        self.counts
    }
}

/// A page while its batch is made.
struct Touched {
    id: UrlId,
    /// Known of all that may have to be written.
    key: Option<UrlKey>,
    row: Option<PageRow>,
    changed: bool,
}

/// The pages that rows name, each once; and which of them each name in the rows means, in their order: a page, then its links.
struct Named {
    pages: Vec<Touched>,
    names: Vec<u32>,
}

impl PageGraph {
    /// The data folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Links that are in no graph because the records of their pages had no room for them, since the start.
    pub fn left_out(&self) -> u64 {
        self.left_out.load(Relaxed)
    }

    /// Families are missing only where an older folder was opened for reading; such a graph is empty.
    fn family(&self, name: &'static str) -> Option<&ColumnFamily> {
        self.db.cf_handle(name)
    }

    fn writable(&self, name: &'static str) -> Result<&ColumnFamily, StoreError> {
        self.family(name).ok_or_else(|| StoreError::damaged(name, "the column family is missing"))
    }

    fn failed(&self, error: &rocksdb::Error) -> StoreError {
        StoreError::database(&self.dir, error)
    }

    /// What it holds.
    pub fn counts(&self) -> Result<GraphCounts, StoreError> {
        self.now().counts()
    }

    /// As it is at this moment, whatever is taken in meanwhile.
    pub fn now(&self) -> GraphNow<'_> {
        GraphNow { graph: self, snapshot: self.db.snapshot() }
    }

    /// Begins to take rows in.
    pub fn intake(&self) -> Result<Intake, StoreError> {
        let nothing = PageRow { number: NOBODY, first_linker: None, own: 0, first_crawl: 0, content: 0.0 };
        let cache = vec![(UrlId([0; 16]), nothing); PAGES_CACHED];
        Ok(Intake { counts: self.counts()?, next: 0, cache, seeded: Seeded::new() })
    }

    /// Takes in what the crawl has found, as much as goes into one batch, and tells `crawled` the number and the links of each page.
    /// Says how many rows that were; 0 when nothing waits.
    pub fn take_in(&self, intake: &mut Intake, mut crawled: impl FnMut(u32, &[u32])) -> Result<usize, StoreError> {
        let (found, next) = self.waiting(intake.next)?;
        if found.is_empty() {
            return Ok(0);
        }
        let Named { mut pages, names } = self.named(&found, intake)?;
        let mut names = names.into_iter().map(|name| name as usize);
        let mut named = || names.next().ok_or_else(|| StoreError::damaged("found", "a name without a page"));
        let (mut batch, mut counts) = (WriteBatch::default(), intake.counts);
        let links_family = self.writable("link")?;
        let (mut others, mut same, mut seen, mut bytes) = (Vec::new(), Vec::new(), HashSet::new(), Vec::new());
        for page in &found {
            let source = &mut pages[named()?];
            let number = source.enter(None, page.own, &mut counts)?;
            let again = source.row.is_some_and(|row| row.first_crawl != 0);
            if let Some(row) = &mut source.row {
                if !again {
                    (row.first_crawl, source.changed) = (page.unix_ms.max(1), true);
                    counts.crawled += 1;
                }
                if row.content != page.content {
                    (row.content, source.changed) = (page.content, true);
                }
            }
            others.clear();
            same.clear();
            seen.clear();
            for link in &page.links {
                let linked = pages[named()?].enter(Some(number), link.own, &mut counts)?;
                if linked != number && seen.insert(linked) {
                    (if link.is_same_domain() { &mut same } else { &mut others }).push(linked);
                }
            }
            if again {
                counts.links -= self.links_of(number)?.map_or(0, |links| links.len() as u64).min(counts.links);
            }
            counts.links += seen.len() as u64;
            bytes.clear();
            link_row::write(number, &others, &same, &mut bytes);
            batch.put_cf(links_family, row_key(number), &bytes);
            others.extend_from_slice(&same);
            crawled(number, &others);
        }
        let pages_family = self.writable("page")?;
        let changed = pages.iter().filter(|page| page.changed);
        let mut changed: Vec<(&UrlKey, PageRow)> =
            changed.filter_map(|page| Some((page.key.as_ref()?, page.row?))).collect();
        changed.sort_by_key(|(key, _)| *key); // rows in order are put down faster
        for (key, row) in changed {
            batch.put_cf(pages_family, key.as_bytes(), row.to_bytes());
            if row.number >= intake.counts.pages {
                batch.put_cf(links_family, name_key(row.number), key.as_bytes());
            }
        }
        batch.delete_range_cf(self.writable("found")?, 0u64.to_be_bytes(), next.to_be_bytes());
        let written = wire::encode(&counts).map_err(|error| StoreError::damaged("meta", error))?;
        batch.put_cf(self.writable("meta")?, COUNTS, written);
        // Not synced: rows and their removal are lost together, and the rows are then taken in again.
        self.db.write(batch).map_err(|error| self.failed(&error))?;
        (intake.counts, intake.next) = (counts, next);
        for page in pages {
            if let Some(row) = page.row {
                intake.cache[place(page.id)] = (page.id, row);
            }
        }
        Ok(found.len())
    }

    /// The first rows that wait, from this number on, and the number behind the last of them.
    fn waiting(&self, from: u64) -> Result<(Vec<FoundPage>, u64), StoreError> {
        let (mut found, mut bytes, mut next) = (Vec::new(), 0, 0);
        let mut rows = self.db.raw_iterator_cf(self.writable("found")?);
        rows.seek(from.to_be_bytes());
        while let (Some(key), Some(value)) = (rows.key(), rows.value())
            && found.len() < ROWS_MAX
            && bytes < BYTES_MAX
        {
            let number = key.try_into().map_err(|_| StoreError::damaged("found", "a key without a number"))?;
            next = u64::from_be_bytes(number) + 1;
            bytes += value.len();
            found.push(FoundPage::read(value)?);
            rows.next();
        }
        rows.status().map_err(|error| self.failed(&error))?;
        Ok((found, next))
    }

    /// All pages that these rows name, with what is known of them.
    fn named(&self, found: &[FoundPage], intake: &Intake) -> Result<Named, StoreError> {
        let count = found.iter().map(|page| 1 + page.links.len()).sum();
        let mut known: HashMap<UrlId, u32, Seeded> = HashMap::with_capacity_and_hasher(count, intake.seeded);
        let (mut pages, mut names): (Vec<Touched>, _) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let mut name = |id: UrlId, pages: &mut Vec<Touched>| {
            *known.entry(id).or_insert_with(|| {
                let (cached, row) = intake.cache[place(id)];
                let row = (cached == id && row.number != NOBODY).then_some(row);
                pages.push(Touched { id, key: None, row, changed: false });
                pages.len() as u32 - 1
            })
        };
        for page in found {
            let place = name(page.key.id(), &mut pages);
            pages[place as usize].key.get_or_insert_with(|| page.key.clone());
            names.push(place);
            for link in &page.links {
                let place = name(link.id, &mut pages);
                let linked = &mut pages[place as usize];
                if linked.row.is_none() && linked.key.is_none() {
                    linked.key = Some(page.key_of(link));
                }
                names.push(place);
            }
        }
        let unsure = pages.iter().enumerate().filter(|(_, page)| page.row.is_none());
        let mut unsure: Vec<(&UrlKey, usize)> =
            unsure.filter_map(|(at, page)| Some((page.key.as_ref()?, at))).collect();
        unsure.sort();
        let rows =
            self.db.batched_multi_get_cf(self.writable("page")?, unsure.iter().map(|(key, _)| key.as_bytes()), true);
        let rows: Vec<(usize, _)> = unsure.iter().map(|(_, at)| *at).zip(rows).collect();
        for (at, row) in rows {
            if let Some(row) = row.map_err(|error| self.failed(&error))? {
                pages[at].row = Some(PageRow::read(&row)?);
            }
        }
        Ok(Named { pages, names })
    }

    /// The number of a page and what goes with it.
    pub fn page(&self, key: &UrlKey) -> Result<Option<PageRow>, StoreError> {
        let Some(family) = self.family("page") else { return Ok(None) };
        let row = self.db.get_pinned_cf(family, key.as_bytes()).map_err(|error| self.failed(&error))?;
        row.map(|row| PageRow::read(&row)).transpose()
    }

    /// The key of the page with this number.
    pub fn key(&self, number: u32) -> Result<Option<UrlKey>, StoreError> {
        let Some(family) = self.family("link") else { return Ok(None) };
        let key = self.db.get_pinned_cf(family, name_key(number)).map_err(|error| self.failed(&error))?;
        Ok(key.map(|key| UrlKey::from_bytes(&key)))
    }

    /// The links of a page, those to other domains first; `None` if it was not crawled.
    pub fn links_of(&self, number: u32) -> Result<Option<Vec<u32>>, StoreError> {
        let Some(family) = self.family("link") else { return Ok(None) };
        let row = self.db.get_pinned_cf(family, row_key(number)).map_err(|error| self.failed(&error))?;
        let links = row.map(|row| Row::read(number, &row)?.collect());
        links.transpose().map_err(|error| StoreError::damaged("link", error))
    }

    /// Calls `each` with every page whose links are known, in the order of their numbers, until it returns an error.
    pub fn each_row<E: From<StoreError>>(&self, each: impl FnMut(u32, Row<'_>) -> Result<(), E>) -> Result<(), E> {
        self.now().each_row(each)
    }

    /// Calls `each` with every page, in the order of their numbers, until it returns an error.
    pub fn each_page<E: From<StoreError>>(&self, each: impl FnMut(u32, UrlKey) -> Result<(), E>) -> Result<(), E> {
        self.now().each_page(each)
    }

    /// Pages from this number on, at most so many.
    pub fn pages_from(&self, first: u32, limit: usize) -> Result<Vec<(u32, UrlKey)>, StoreError> {
        let rows = self.some_of(b'k', first, limit)?;
        Ok(rows.into_iter().map(|(number, bytes)| (number, UrlKey::from_bytes(&bytes))).collect())
    }

    /// Pages whose links are known from this number on, at most so many; each with its links, and how many of these lead to other domains.
    pub fn links_from(&self, first: u32, limit: usize) -> Result<Vec<(u32, Vec<u32>, usize)>, StoreError> {
        let damaged = |error| StoreError::damaged("link", error);
        let read = |(number, bytes): (u32, Vec<u8>)| {
            let row = Row::read(number, &bytes).map_err(damaged)?;
            let others = row.other_domains() as usize;
            Ok((number, row.collect::<Result<_, _>>().map_err(damaged)?, others))
        };
        self.some_of(b'l', first, limit)?.into_iter().map(read).collect()
    }

    fn some_of(&self, kind: u8, first: u32, limit: usize) -> Result<Vec<(u32, Vec<u8>)>, StoreError> {
        let mut some = Vec::new();
        let Some(family) = self.family("link") else { return Ok(some) };
        let rows = self.db.iterator_cf(family, IteratorMode::From(&numbered(kind, first), Direction::Forward));
        for row in rows.take(limit) {
            let (key, value) = row.map_err(|error| self.failed(&error))?;
            if key.first() != Some(&kind) {
                break;
            }
            let number = key[1..].try_into().map_err(|_| StoreError::damaged("link", "a key without a number"))?;
            some.push((u32::from_be_bytes(number), value.into_vec()));
        }
        Ok(some)
    }

    /// Calls `each` with every page of spiders that waits: its key, its number if the graph has it, and the level it stands by; until it says no.
    pub fn each_waiting_page(&self, mut each: impl FnMut(UrlKey, Option<u32>, i16) -> bool) -> Result<(), StoreError> {
        let Some(family) = self.family("client") else { return Ok(()) };
        let mut after: Vec<u8> = Vec::new();
        loop {
            // An iterator keeps files from being removed: begin one anew for every handful.
            let rows = self.db.iterator_cf(family, IteratorMode::From(&after, Direction::Forward));
            let (mut waiting, mut last) = (Vec::new(), None);
            for row in rows.take(LOOKED_AT) {
                let (key, value) = row.map_err(|error| self.failed(&error))?;
                let page = UrlKey::from_bytes(&key);
                last = Some(key);
                if page.crawl().is_some_and(is_pages) && !is_queue(&page) {
                    let url: ClientUrl = wire::decode(&value).map_err(|error| StoreError::damaged("client", error))?;
                    if let Some(state) = PageState::read(&url.metadata).filter(|_| !url.is_completed()) {
                        waiting.push((page, state.level));
                    }
                }
            }
            let Some(last) = last else { return Ok(()) };
            after = [&last[..], &[0]].concat(); // the first key behind it
            let Some(pages) = self.family("page") else { return Ok(()) };
            let found = self.db.batched_multi_get_cf(pages, waiting.iter().map(|(page, _)| page.as_bytes()), false);
            let mut numbers = Vec::with_capacity(waiting.len());
            for row in found {
                let row = row.map_err(|error| self.failed(&error))?;
                numbers.push(row.map(|row| PageRow::read(&row)).transpose()?.map(|row| row.number));
            }
            for ((page, level), number) in waiting.into_iter().zip(numbers) {
                if !each(page, number, level) {
                    return Ok(());
                }
            }
        }
    }

    /// The first rows of pages that were fetched here and that whoever keeps them has not been told of, and the number behind the last of them.
    pub fn untold(&self, rows_max: usize) -> Result<(Vec<Vec<u8>>, u64), StoreError> {
        let (mut untold, mut next) = (Vec::new(), 0);
        let mut rows = self.db.raw_iterator_cf(self.writable("untold")?);
        rows.seek_to_first();
        while let (Some(key), Some(row)) = (rows.key(), rows.value())
            && untold.len() < rows_max
        {
            let number = key.try_into().map_err(|_| StoreError::damaged("untold", "a key without a number"))?;
            next = u64::from_be_bytes(number) + 1;
            untold.push(row.to_vec());
            rows.next();
        }
        rows.status().map_err(|error| self.failed(&error))?;
        Ok((untold, next))
    }

    /// They have been told of those up to there. Not synced: what is told twice is kept once.
    pub fn told(&self, next: u64) -> Result<(), StoreError> {
        let mut batch = WriteBatch::default();
        batch.delete_range_cf(self.writable("untold")?, 0u64.to_be_bytes(), next.to_be_bytes());
        self.db.write(batch).map_err(|error| self.failed(&error))
    }

    /// Looks at every entry of a cluster's own crawls that waits in a queue; `level` says which its page should have, by the page's number if the graph has it. Calls
    /// `moves` with those that have another, some at a time, until it says no.
    pub fn each_level(
        &self,
        mut level: impl FnMut(&UrlKey, Option<u32>) -> Option<i16>,
        mut moves: impl FnMut(Vec<Move>) -> bool,
    ) -> Result<(), StoreError> {
        let levels = self.writable("level")?;
        self.each_waiting(
            |(queue, order, key), row| {
                let Some(level) = level(&key, row.map(|row| row.number)) else { return Ok(None) };
                let now = self.db.get_pinned_cf(levels, key.as_bytes()).map_err(|error| self.failed(&error))?;
                let now = now.and_then(|row| row.as_ref().try_into().ok()).map_or(0, i16::from_le_bytes);
                let priority = order.priority; // follows from the record and the level
                Ok((level != now).then_some(Move { queue, order, priority, level: Some((key, level)) }))
            },
            &mut moves,
        )
    }

    /// About how many bytes of disk all rows of links take.
    pub fn row_bytes(&self) -> Result<u64, StoreError> {
        let Some(family) = self.family("link") else { return Ok(0) };
        let rows = rocksdb::Range::new(b"l", b"m");
        Ok(self.db.get_approximate_sizes_cf(family, &[rows]).into_iter().sum())
    }

    /// Looks at every entry that waits in a queue; `priority` says which its page should have by the page's row. Calls `moves` with those that
    /// have another, some at a time, until it says no.
    pub fn each_move(
        &self,
        priority: impl Fn(&PageRow) -> u16,
        mut moves: impl FnMut(Vec<Move>) -> bool,
    ) -> Result<(), StoreError> {
        self.each_waiting(
            |(queue, order, _), row| {
                let Some(priority) = row.map(|row| priority(&row)) else { return Ok(None) };
                Ok((priority != order.priority).then_some(Move { queue, order, priority, level: None }))
            },
            &mut moves,
        )
    }

    /// Calls `moved` with every waiting entry of a page and what the graph has of the page, and `moves` with what that gives.
    fn each_waiting(
        &self,
        mut moved: impl FnMut((QueueKey, Order, UrlKey), Option<PageRow>) -> Result<Option<Move>, StoreError>,
        moves: &mut impl FnMut(Vec<Move>) -> bool,
    ) -> Result<(), StoreError> {
        let ready = self.writable("ready")?;
        let mut after: Vec<u8> = Vec::new();
        loop {
            // An iterator keeps files from being removed: begin one anew for every handful.
            let rows = self.db.iterator_cf(ready, IteratorMode::From(&after, Direction::Forward));
            let (mut waiting, mut last) = (Vec::new(), None);
            for row in rows.take(LOOKED_AT) {
                let (key, value) = row.map_err(|error| self.failed(&error))?;
                let (Some(queue), Some(order)) = (QueueKey::prefix_of(&key), Order::suffix_of(&key)) else {
                    return Err(StoreError::damaged("ready", "a key without queue and order"));
                };
                let entry: Entry = wire::decode(&value).map_err(|error| StoreError::damaged("ready", error))?;
                last = Some(key);
                if entry.kind == EntryKind::Page {
                    let page = UrlKey::new(queue.crawl(), &entry.url);
                    waiting.push((queue, order, page));
                }
            }
            let Some(last) = last else { return Ok(()) };
            after = [&last[..], &[0]].concat(); // the first key behind it
            let family = self.writable("page")?;
            let found = self.db.batched_multi_get_cf(family, waiting.iter().map(|(.., page)| page.as_bytes()), false);
            let mut pages = Vec::with_capacity(waiting.len());
            for row in found {
                let row = row.map_err(|error| self.failed(&error))?;
                pages.push(row.map(|row| PageRow::read(&row)).transpose()?);
            }
            let mut some = Vec::new();
            for (entry, row) in waiting.into_iter().zip(pages) {
                some.extend(moved(entry, row)?);
            }
            if !some.is_empty() && !moves(some) {
                return Ok(());
            }
        }
    }
}

/// A graph as it was at one moment. Files that were replaced since stay as long as there is one: it is for one reading, or two.
pub struct GraphNow<'a> {
    graph: &'a PageGraph,
    snapshot: SnapshotWithThreadMode<'a, Database>,
}

impl GraphNow<'_> {
    /// What it holds.
    pub fn counts(&self) -> Result<GraphCounts, StoreError> {
        let Some(meta) = self.graph.family("meta") else { return Ok(GraphCounts::default()) };
        let row = self.snapshot.get_pinned_cf(meta, COUNTS).map_err(|error| self.graph.failed(&error))?;
        row.map_or(Ok(GraphCounts::default()), |row| {
            wire::decode(&row).map_err(|error| StoreError::damaged("meta", error))
        })
    }

    /// Calls `each` with every page whose links are known, in the order of their numbers, until it returns an error.
    pub fn each_row<E: From<StoreError>>(&self, mut each: impl FnMut(u32, Row<'_>) -> Result<(), E>) -> Result<(), E> {
        self.each_of(b'l', |number, bytes| {
            let row = Row::read(number, bytes).map_err(|error| StoreError::damaged("link", error))?;
            each(number, row)
        })
    }

    /// Calls `each` with every page, in the order of their numbers, until it returns an error.
    pub fn each_page<E: From<StoreError>>(&self, mut each: impl FnMut(u32, UrlKey) -> Result<(), E>) -> Result<(), E> {
        self.each_of(b'k', |number, bytes| each(number, UrlKey::from_bytes(bytes)))
    }

    /// Calls `each` with every page whose content is worth something by itself, in no order.
    pub fn each_content(&self, mut each: impl FnMut(u32, f32)) -> Result<(), StoreError> {
        let Some(family) = self.graph.family("page") else { return Ok(()) };
        let mut rows = self.snapshot.raw_iterator_cf(family);
        rows.seek_to_first();
        while let Some(value) = rows.value() {
            let row = PageRow::read(value)?;
            if row.content > 0.0 {
                each(row.number, row.content);
            }
            rows.next();
        }
        rows.status().map_err(|error| self.graph.failed(&error))
    }

    fn each_of<E: From<StoreError>>(
        &self,
        kind: u8,
        mut each: impl FnMut(u32, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(family) = self.graph.family("link") else { return Ok(()) };
        let mut rows = self.snapshot.raw_iterator_cf(family);
        rows.seek([kind]);
        while let (Some(key), Some(value)) = (rows.key(), rows.value())
            && key.first() == Some(&kind)
        {
            let number = key[1..].try_into().map_err(|_| StoreError::damaged("link", "a key without a number"))?;
            each(u32::from_be_bytes(number), value)?;
            rows.next();
        }
        rows.status().map_err(|error| self.graph.failed(&error))?;
        Ok(())
    }
}

impl Touched {
    /// The number of the page; a new one if it has none.
    fn enter(&mut self, linker: Option<u32>, own: u16, counts: &mut GraphCounts) -> Result<u32, StoreError> {
        if let Some(row) = self.row {
            return Ok(row.number);
        }
        if counts.pages == NOBODY {
            return Err(StoreError::damaged("page", "4,294,967,295 pages are as many as one folder can number"));
        }
        let row = PageRow { number: counts.pages, first_linker: linker, own, first_crawl: 0, content: 0.0 };
        counts.pages += 1;
        (self.row, self.changed) = (Some(row), true);
        Ok(row.number)
    }
}

fn place(id: UrlId) -> usize {
    u64::from_le_bytes(id.0[8..].try_into().expect("eight bytes")) as usize % PAGES_CACHED
}

fn row_key(number: u32) -> [u8; 5] {
    numbered(b'l', number)
}

fn name_key(number: u32) -> [u8; 5] {
    numbered(b'k', number)
}

fn numbered(kind: u8, number: u32) -> [u8; 5] {
    let [a, b, c, d] = number.to_be_bytes();
    [kind, a, b, c, d]
}
