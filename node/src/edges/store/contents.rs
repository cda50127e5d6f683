//! Second copies of pages on disk: which pages of this folder lack one, which disk is trusted with the others, and copies of other nodes' pages.
//!
//! Rows of the family `copies`: `l`, content key: the page is on the list of those without a second copy (value: bytes of its records);
//! `h`, content key: the [`Holding`] that has it too. A page of a node whose `content_copies` is 1 has neither. Both are written in the batch
//! that writes the page, and counted in the row `copies` of `meta`.

use std::collections::BTreeSet;
use std::fs::File;

use proto::cluster::contents::{ContentKey, Holding, Offer, Standing};
use proto::id::Round;
use proto::key::UrlKey;
use proto::wire;

use super::change::{Change, Fetched};
use super::{ContentRow, Store, StoreError};
use crate::edges::warc::{PayloadDigest, RecordId, WarcPosition};

const LIST: u8 = b'l';
const HELD: u8 = b'h';
/// Rows that one job looks at, so that others need not wait for long.
const ROWS_AT_ONCE: usize = 4_096;
/// Versions of one URL that are told of.
const VERSIONS_MAX: usize = 256;
/// A folder that a backup was restored into: copies that other nodes trusted it with since may be missing.
pub const RESTORED_FILE: &str = "RESTORED";

/// What this folder knows of second copies.
#[derive(Clone, Debug, Default)]
pub(super) struct Copies {
    pub(super) standing: Standing,
    pub(super) folder: u64,
}

/// The records of a page as they came.
#[derive(Debug)]
pub enum Members {
    /// In memory.
    Bytes(Vec<u8>),
    /// In a file without a name, because they are many.
    File(File),
}

/// A page of another node, on its way into the archive.
#[derive(Debug)]
pub struct Arriving {
    /// What it is.
    pub offer: Offer,
    /// Its records; `None` if they are here already.
    pub members: Option<Members>,
    /// Where they lie now.
    pub position: Option<WarcPosition>,
}

/// Pages, what they are and where they lie, if they are here.
pub type Offered = Vec<(ContentKey, Option<(Offer, WarcPosition)>)>;

fn row_key(kind: u8, key: &[u8]) -> Vec<u8> {
    [&[kind], key].concat()
}

fn parsed(key: &[u8]) -> Result<ContentKey, StoreError> {
    ContentKey::from_bytes(key).ok_or_else(|| StoreError::damaged("copies", "a key that names no content"))
}

impl Store {
    /// Reads what is known of copies, and makes it whole: a folder that is new or restored gets a number of its own, and pages that were kept
    /// while nobody asked for second copies are put on the list.
    pub(super) fn begin_copies(&mut self) -> Result<(), StoreError> {
        let restored = self.dir.join(RESTORED_FILE);
        self.load_copies()?;
        if self.copies.folder == 0 || restored.exists() {
            let text = format!("{:?} {} {}", self.dir, crate::edges::clock::unix_ms(), std::process::id());
            let hash = blake3::hash(text.as_bytes());
            let number = u64::from_le_bytes(hash.as_bytes()[..8].try_into().expect("eight of thirty-two bytes"));
            self.copies.folder = number.max(1);
            self.write_meta_durably("folder", &self.copies.folder)?;
            if restored.exists() {
                std::fs::remove_file(&restored).map_err(|error| StoreError::Folder {
                    dir: self.dir.clone(),
                    reason: format!("cannot remove {}: {error}", restored.display()),
                })?;
            }
        }
        let wanted = self.options.content_copies > 1;
        let listed: bool = self.read_meta("copies_listed")?.unwrap_or(false);
        if wanted && !listed {
            self.list_all()?;
        }
        if wanted != listed {
            self.write_meta_durably("copies_listed", &wanted)?;
        }
        Ok(())
    }

    pub(super) fn load_copies(&mut self) -> Result<(), StoreError> {
        self.copies.folder = self.read_meta("folder")?.unwrap_or(0);
        self.copies.standing = self.read_meta("copies")?.unwrap_or_default();
        Ok(())
    }

    /// Puts every page without a second copy on the list.
    fn list_all(&mut self) -> Result<(), StoreError> {
        let mut after = Vec::new();
        loop {
            let rows = self.rows_after("content", &after, ROWS_AT_ONCE)?;
            let Some((last, _)) = rows.last() else { return Ok(()) };
            after.clone_from(last);
            let mut change = self.change();
            for (key, value) in rows {
                let row: ContentRow = wire::decode(&value).map_err(|error| StoreError::damaged("content", error))?;
                let known = change.get::<Holding>("copies", &row_key(HELD, &key))?.is_some();
                if !known && ContentKey::from_bytes(&key).is_some() {
                    change.list(&key, row.position.length)?;
                }
            }
            change.commit()?;
        }
    }

    /// The number of this folder.
    pub fn folder(&self) -> u64 {
        self.copies.folder
    }

    /// What the list has come to.
    pub fn standing(&self) -> &Standing {
        &self.copies.standing
    }

    /// Reads the list behind a page, at most `limit`; and where to go on.
    #[allow(clippy::type_complexity)] // a list and a place in it
    pub fn lacking(
        &self,
        after: Option<&ContentKey>,
        limit: usize,
    ) -> Result<(Vec<(ContentKey, u32)>, Option<ContentKey>), StoreError> {
        let start = after.map_or_else(|| vec![LIST], |key| [&row_key(LIST, &key.to_bytes())[..], &[0]].concat());
        let mut found = Vec::new();
        for row in self.rows("copies", start, vec![LIST]) {
            let (key, value) = row?;
            if found.len() >= limit {
                let next = found.last().map(|(key, _): &(ContentKey, u32)| key.clone());
                return Ok((found, next));
            }
            let bytes: u32 = wire::decode(&value).map_err(|error| StoreError::damaged("copies", error))?;
            found.push((parsed(&key[1..])?, bytes));
        }
        Ok((found, None))
    }

    /// Where pages lie, and what they are.
    pub fn offers(&self, keys: &[ContentKey]) -> Result<Offered, StoreError> {
        let offered = |key: &ContentKey| {
            let row = self.get::<ContentRow>("content", &key.to_bytes())?;
            Ok((key.clone(), row.map(|row| (offer(key, &row), row.position))))
        };
        keys.iter().map(offered).collect()
    }

    /// Which of these offers are not here, by their place.
    pub fn wanted(&self, offers: &[Offer]) -> Result<Vec<u16>, StoreError> {
        let mut places = Vec::new();
        for (place, offer) in offers.iter().enumerate() {
            if self.place_of(offer, &BTreeSet::new())?.is_err() {
                places.push(place as u16); // offers are bounded to a few hundred
            }
        }
        Ok(places)
    }

    /// The versions of a URL's content that are here, newest round first.
    pub fn versions(&self, url: &UrlKey) -> Result<Vec<(Offer, WarcPosition)>, StoreError> {
        let prefix = url.as_bytes().to_vec();
        let mut found = Vec::new();
        for row in self.rows("content", prefix.clone(), prefix).take(VERSIONS_MAX) {
            let (key, value) = row?;
            let row: ContentRow = wire::decode(&value).map_err(|error| StoreError::damaged("content", error))?;
            if let Some(key) = ContentKey::from_bytes(&key).filter(|key| key.url == *url) {
                found.push((offer(&key, &row), row.position));
            }
        }
        Ok(found)
    }

    /// The key under which an offer's records are here, or the key that they would get.
    fn place_of(&self, offer: &Offer, fresh: &BTreeSet<Vec<u8>>) -> Result<Result<Vec<u8>, Vec<u8>>, StoreError> {
        let mut key = ContentKey { url: offer.url.clone(), round: offer.round, other: None };
        let plain = key.to_bytes();
        let there = self.get::<ContentRow>("content", &plain)?;
        match &there {
            None if !fresh.contains(&plain) => return Ok(Err(plain)),
            Some(row) if row.record_id.0 == offer.record_id => return Ok(Ok(plain)),
            _ => {}
        }
        key.other = Some(offer.record_id);
        let other = key.to_bytes();
        let here = fresh.contains(&other) || self.get::<ContentRow>("content", &other)?.is_some();
        Ok(if here { Ok(other) } else { Err(other) })
    }

    /// Counts the rows of `copies`: what the row of `meta` must say.
    pub fn recount_copies(&self) -> Result<Standing, StoreError> {
        let mut standing = Standing::default();
        for row in self.rows("copies", Vec::new(), Vec::new()) {
            let (key, value) = row?;
            if key.first() == Some(&LIST) {
                standing.lacking += 1;
            } else {
                let holding = wire::decode(&value).map_err(|error| StoreError::damaged("copies", error))?;
                *standing.trusted.entry(holding).or_default() += 1;
            }
        }
        Ok(standing)
    }
}

fn offer(key: &ContentKey, row: &ContentRow) -> Offer {
    Offer {
        url: key.url.clone(),
        round: key.round,
        record_id: row.record_id.0,
        payload_digest: row.payload_digest.0,
        unix_ms: row.unix_ms,
        revisit: row.revisit,
        bytes: row.position.length,
    }
}

impl Change<'_> {
    /// Writes down where the content of a page that was fetched here lies, and that it lacks a second copy if it should have one. Returns
    /// its key then. A fetch of the same round that is here already stays: somebody may trust us with it.
    pub fn keep_content(
        &mut self,
        url: UrlKey,
        round: Round,
        fetched: &Fetched,
    ) -> Result<Option<ContentKey>, StoreError> {
        let mut key = ContentKey { url, round, other: None };
        let plain = key.to_bytes();
        if self.contents.contains(&plain) || self.get::<ContentRow>("content", &plain)?.is_some() {
            key.other = Some(fetched.content.record_id.0);
        }
        let bytes = key.to_bytes();
        self.put("content", &bytes, &fetched.content)?;
        if key.other.is_none() {
            self.put_digest(&key.url, round, fetched)?;
        }
        self.contents.insert(bytes.clone());
        if self.store.options.content_copies < 2 {
            return Ok(None);
        }
        self.list(&bytes, fetched.content.position.length)?;
        Ok(Some(key))
    }

    /// Puts a page on the list.
    fn list(&mut self, key: &[u8], bytes: u32) -> Result<(), StoreError> {
        if !self.is_listed(key)? {
            self.store.copies.standing.lacking += 1;
        }
        self.listed.insert(key.to_vec(), true);
        self.put("copies", &row_key(LIST, key), &bytes)?;
        self.put_standing()
    }

    /// Whether a page is on the list as this change leaves it: two nodes may offer each other the same page at one time.
    fn is_listed(&self, key: &[u8]) -> Result<bool, StoreError> {
        match self.listed.get(key) {
            Some(listed) => Ok(*listed),
            None => Ok(self.get::<u32>("copies", &row_key(LIST, key))?.is_some()),
        }
    }

    /// Takes a page off the list: `holding` has it too.
    fn trust(&mut self, key: &[u8], holding: Holding) -> Result<(), StoreError> {
        let standing = &mut self.store.copies.standing;
        standing.lacking = standing.lacking.saturating_sub(1);
        self.listed.insert(key.to_vec(), false);
        *standing.trusted.entry(holding).or_default() += 1;
        self.delete("copies", &row_key(LIST, key));
        self.put("copies", &row_key(HELD, key), &holding)?;
        self.put_standing()
    }

    fn put_standing(&mut self) -> Result<(), StoreError> {
        let standing = self.store.copies.standing.clone();
        self.put("meta", b"copies", &standing)
    }

    /// Takes pages off the list that `holding` has too.
    pub fn mark_copied(&mut self, keys: &[ContentKey], holding: Holding) -> Result<(), StoreError> {
        for key in keys {
            let key = key.to_bytes();
            if self.is_listed(&key)? {
                self.trust(&key, holding)?;
            }
        }
        Ok(())
    }

    /// Puts pages on the list that a lost disk was trusted with: looks at some rows behind `after`, and says where to go on.
    pub fn take_for_lost(&mut self, holding: Holding, after: Option<Vec<u8>>) -> Result<Option<Vec<u8>>, StoreError> {
        let start = after.map_or_else(|| vec![HELD], |key| [&key[..], &[0]].concat());
        let rows: Vec<_> =
            self.store.rows("copies", start, vec![HELD]).take(ROWS_AT_ONCE).collect::<Result<_, StoreError>>()?;
        let last = rows.last().map(|(key, _)| key.to_vec()).filter(|_| rows.len() == ROWS_AT_ONCE);
        for (held, value) in rows {
            let of: Holding = wire::decode(&value).map_err(|error| StoreError::damaged("copies", error))?;
            if of != holding {
                continue;
            }
            let key = &held[1..];
            self.delete("copies", &held);
            let standing = &mut self.store.copies.standing;
            if let Some(count) = standing.trusted.get_mut(&holding) {
                *count = count.saturating_sub(1);
            }
            let row = self.get::<ContentRow>("content", key)?;
            if let Some(row) = row {
                self.list(key, row.position.length)?;
            }
        }
        if last.is_none() {
            self.store.copies.standing.trusted.remove(&holding);
        }
        self.put_standing()?;
        Ok(last)
    }

    /// Removes everything that leads to the contents of URLs whose keys begin with `prefix`; says how many versions those were.
    pub(super) fn remove_contents(&mut self, prefix: &[u8]) -> Result<u64, StoreError> {
        let rows = self.store.rows("content", prefix.to_vec(), prefix.to_vec());
        let mut keys: Vec<Vec<u8>> = rows.map(|row| row.map(|(key, _)| key.into_vec())).collect::<Result<_, _>>()?;
        keys.extend(self.contents.iter().filter(|key| key.starts_with(prefix)).cloned());
        keys.sort();
        keys.dedup();
        for key in &keys {
            self.delete("content", key);
            self.contents.remove(key);
            if self.is_listed(key)? {
                self.store.copies.standing.lacking = self.store.copies.standing.lacking.saturating_sub(1);
                self.listed.insert(key.clone(), false);
                self.delete("copies", &row_key(LIST, key));
            } else if let Some(holding) = self.get::<Holding>("copies", &row_key(HELD, key))? {
                if let Some(count) = self.store.copies.standing.trusted.get_mut(&holding) {
                    *count = count.saturating_sub(1);
                }
                self.delete("copies", &row_key(HELD, key));
            }
        }
        if !keys.is_empty() {
            self.put_standing()?;
        }
        Ok(keys.len() as u64)
    }

    /// Keeps copies of another node's pages, whose records are in the archive by now: that node has them too.
    pub fn keep_copies(&mut self, from: Holding, arriving: Vec<Arriving>) -> Result<(), StoreError> {
        for Arriving { offer, position, .. } in arriving {
            let place = self.store.place_of(&offer, &self.contents)?;
            match (place, position) {
                (Err(key), Some(position)) => {
                    let content = ContentRow {
                        position,
                        record_id: RecordId(offer.record_id),
                        payload_digest: PayloadDigest(offer.payload_digest),
                        unix_ms: offer.unix_ms,
                        revisit: offer.revisit,
                    };
                    self.put("content", &key, &content)?;
                    *self.store.copies.standing.trusted.entry(from).or_default() += 1;
                    self.put("copies", &row_key(HELD, &key), &from)?;
                    self.put_standing()?;
                    self.contents.insert(key);
                }
                (Ok(key), _) if self.is_listed(&key)? => {
                    self.trust(&key, from)?;
                }
                // It is here and somebody else has it as well, or it was here when it was asked for and is not: neither changes anything.
                _ => {}
            }
        }
        Ok(())
    }
}
