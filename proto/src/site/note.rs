//! Notes: what people keep beside a site and its URLs, as attributes and contents that they handed in. Kept like records, on R nodes.
//!
//! A note is a [`RecordCopy`] whose key has a mark where others have their domain, which no host begins with; its version stands where others have their
//! progress, so the later of two copies wins. The notes of a site are in seventeen slots: one for those of the site, one for each first digit of a URL's id.
//! A note that was removed stays without a value, so that no copy of the past brings it back; all go when their site's records do.

use serde::{Deserialize, Serialize};

use crate::clients::record::Version;
use crate::cluster::copy::{Body, RecordCopy};
use crate::id::{NodeId, Round, Slot, UrlId};
use crate::key::UrlKey;
use crate::wire::{self, WireError};

/// Bytes of a note's value: with its names it fits into a record on its way between nodes.
pub const VALUE_BYTES_MAX: usize = 48 << 10;
/// Bytes of a note's name.
pub const NAME_BYTES_MAX: usize = 64;

/// What the part of a note's key begins with; no host does, and no queue of clients.
const MARK: char = '\u{3}';
/// The name of the note that says from which round on the contents of a URL are its own: URL_CLEANUP forgot those before.
const CLEANED: &str = "cleaned";
/// Stands for the site itself among the shards.
const OF_SITE: &str = "-";

/// What a note is. Appended only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NoteKind {
    /// An attribute.
    Attribute,
    /// A part of a content that was handed in.
    Content,
}

/// A note.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Which copy.
    pub version: Version,
    /// What it is.
    pub kind: NoteKind,
    /// The id of the URL that it is about, in hexadecimal digits; empty for the site.
    pub url: String,
    /// Its name.
    pub name: String,
    /// What it says; `None` if it was removed.
    pub value: Option<Vec<u8>>,
    /// When it was written first, Unix milliseconds.
    pub created_ms: u64,
}

/// Says whether a record is a note.
pub fn is_note(key: &UrlKey) -> bool {
    key.as_bytes().get(2) == Some(&(MARK as u8))
}

/// The shard of notes about a URL, or about the site.
pub fn shard_of(url: &str) -> &str {
    url.get(..1).unwrap_or(OF_SITE)
}

/// All shards.
pub fn shards() -> impl Iterator<Item = String> {
    std::iter::once(OF_SITE.to_owned()).chain((0..16).map(|digit| format!("{digit:x}")))
}

/// What the keys of the notes of one shard begin with.
pub fn prefix(crawl: &str, shard: &str) -> Vec<u8> {
    let part = format!("{MARK}{crawl}/{shard}");
    let mut prefix = Slot::of_domain(&part).0.to_be_bytes().to_vec();
    prefix.extend_from_slice(part.as_bytes());
    prefix.push(0);
    prefix.extend_from_slice(crawl.as_bytes());
    prefix.push(0);
    prefix
}

/// What the keys of the notes about one URL begin with, or of those about the site. Another URL's may begin so too, by chance.
pub fn prefix_of(crawl: &str, url: &str) -> Vec<u8> {
    let mut key = prefix(crawl, shard_of(url));
    key.extend_from_slice(&UrlId::of(crawl, url).0[..8]);
    key
}

/// The key of a note.
pub fn key(crawl: &str, kind: NoteKind, url: &str, name: &str) -> UrlKey {
    let mut key = prefix_of(crawl, url);
    key.extend_from_slice(&UrlId::of(crawl, &format!("{kind:?}\n{url}\n{name}")).0[..8]);
    UrlKey::from_bytes(&key)
}

/// The first round whose contents are still those of a URL, by the notes about it.
pub fn begins<'a>(notes: impl IntoIterator<Item = &'a Note>, url: &str) -> Round {
    let text =
        notes.into_iter().find(|note| note.is_cleaned() && note.url == url).and_then(|note| note.value.as_deref());
    text.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok()).unwrap_or(0)
}

impl Note {
    /// Says that what was found of a URL before a round was forgotten.
    pub fn cleaned(url: &str, begins: Round) -> Note {
        Note {
            version: Version::default(),
            kind: NoteKind::Content,
            url: url.to_owned(),
            name: CLEANED.to_owned(),
            value: Some(begins.to_string().into_bytes()),
            created_ms: 0,
        }
    }

    /// Whether it says that.
    pub fn is_cleaned(&self) -> bool {
        self.kind == NoteKind::Content && self.name == CLEANED
    }

    /// A note after `before`, if there was one: its time of birth stays as long as it has a value.
    pub fn after(before: Option<&Note>, mut note: Note, node: NodeId, unix_ms: u64) -> Note {
        note.version = before.map(|before| before.version).unwrap_or_default().next(node, unix_ms);
        note.created_ms = before.filter(|before| before.value.is_some()).map_or(unix_ms, |before| before.created_ms);
        note
    }

    /// The copy that travels.
    pub fn copy(&self, crawl: &str) -> Result<RecordCopy, WireError> {
        let body = wire::encode(self)?;
        let key = key(crawl, self.kind, &self.url, &self.name);
        Ok(RecordCopy { key, progress: self.version.progress(), body: Body(body.into()) })
    }

    /// Looks into a copy; `None` if it contradicts itself.
    pub fn open(copy: &RecordCopy) -> Option<Note> {
        let note: Note = wire::decode(&copy.body.0).ok()?;
        let crawl = copy.key.crawl()?;
        let small = note.value.as_ref().is_none_or(|value| value.len() <= VALUE_BYTES_MAX);
        let same = note.version.progress() == copy.progress && key(crawl, note.kind, &note.url, &note.name) == copy.key;
        (small && note.name.len() <= NAME_BYTES_MAX && same).then_some(note)
    }

    /// Reads a note as it lies on disk.
    pub fn stored(key: UrlKey, body: &[u8]) -> Result<RecordCopy, WireError> {
        let note: Note = wire::decode(body)?;
        Ok(RecordCopy { key, progress: note.version.progress(), body: Body(body.into()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(url: &str, value: &str) -> Note {
        let (version, created_ms) = (Version::default(), 0);
        Note {
            version,
            kind: NoteKind::Attribute,
            url: url.into(),
            name: "rank".into(),
            value: Some(value.into()),
            created_ms,
        }
    }

    #[test]
    fn a_url_that_was_cleaned_begins_with_a_later_round() {
        let notes = [note("ab", "7"), Note::cleaned("ab", 3), Note::cleaned("cd", 5)];
        assert_eq!(["ab", "cd", "ef"].map(|url| begins(&notes, url)), [3, 5, 0]);
        let removed = [Note { value: None, ..Note::cleaned("ab", 3) }];
        assert_eq!(begins(&removed, "ab"), 0);
    }

    #[test]
    fn the_later_note_wins_and_a_removed_one_stays_removed() {
        let first = Note::after(None, note("", "1"), NodeId(1), 5_000);
        let second = Note::after(Some(&first), note("", "2"), NodeId(2), 5_000);
        let gone = Note::after(Some(&second), Note { value: None, ..note("", "") }, NodeId(1), 4_000);
        let copies: Vec<RecordCopy> = [&first, &second, &gone].map(|note| note.copy("news~1").unwrap()).into();
        let merged = copies[2].clone().merge(copies[0].clone()).merge(copies[1].clone());
        assert_eq!(Note::open(&merged), Some(gone.clone()));
        assert_eq!(
            (second.created_ms, Note::after(Some(&gone), note("", "3"), NodeId(1), 9_000).created_ms),
            (5_000, 9_000)
        );
    }

    #[test]
    fn a_key_is_told_from_all_others_and_must_be_the_notes() {
        let of_url = "ab".repeat(16);
        let copy = Note::after(None, note(&of_url, "x"), NodeId(1), 1_000).copy("news").unwrap();
        assert!(is_note(&copy.key) && !crate::clients::identity::is_client(&copy.key));
        assert_eq!(UrlKey::checked(copy.key.as_bytes()), Some(copy.key.clone()));
        assert!(copy.key.as_bytes().starts_with(&prefix("news", "a")) && copy.key.crawl() == Some("news"));
        assert_eq!(shards().count(), 17);
        let other = RecordCopy { key: key("news", NoteKind::Attribute, &of_url, "weight"), ..copy.clone() };
        assert_eq!(Note::open(&other), None);
        assert_eq!(Note::stored(copy.key.clone(), &copy.body.0).unwrap(), copy);
    }
}
