//! Names: crawls, queues and URLs of clients, and the keys under which they are kept.
//!
//! A client's key stands where the domain of other records stands, behind a byte that no host begins with: so keys sort by slot, are checked
//! and moved like all others, and can be told apart.

use crate::id::{BESIDE, Slot, UrlId};
use crate::key::{CRAWL_NAME_BYTES_MAX, DEFAULT_CRAWL, UrlKey, crawl_name_is_valid};

/// Longest key of a queue, in UTF-16 units as the reference service counts.
pub const KEY_UNITS_MAX: usize = 255;
/// Longest URL and metadata of one URL together, in bytes: what fits into a record on its way between nodes.
pub const ITEM_BYTES_MAX: usize = 60 << 10;

/// How the names of crawls begin under which the cluster keeps records of its own, as tasks and logs. Clients have no such crawls.
pub const RESERVED: &str = "orbweaver:";

/// What the part of a client's key begins with; no host does.
const MARK: char = '\u{1}';
/// Stands before what stands for a zero byte or for itself.
const ESCAPE: char = '\u{2}';

/// Why a name cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// A crawl.
    #[error("a crawl's name has at most {CRAWL_NAME_BYTES_MAX} bytes and no control characters")]
    Crawl,
    /// A crawl of the cluster itself.
    #[error("names of crawls that begin with {RESERVED:?} are the cluster's own")]
    Reserved,
    /// A key.
    #[error("a queue's key has at most {KEY_UNITS_MAX} UTF-16 units")]
    Key,
    /// A URL that has no host, and no key was given.
    #[error("no key is given, and the URL has no host to take for one")]
    NoKey,
}

/// The crawl that a client means: a blank name is the default one.
pub fn crawl_name(given: &str) -> Result<&str, NameError> {
    if given.trim().is_empty() {
        return Ok(DEFAULT_CRAWL);
    }
    if given.starts_with(RESERVED) {
        return Err(NameError::Reserved);
    }
    if crawl_name_is_valid(given) { Ok(given) } else { Err(NameError::Crawl) }
}

/// The key of a URL's queue: the one that is given, or its host.
pub fn queue_key(given: &str, url: &str) -> Result<String, NameError> {
    let key = if given.is_empty() { host_of(url) } else { given.to_owned() };
    if key.is_empty() {
        return Err(NameError::NoKey);
    }
    check_key(&key)?;
    Ok(key)
}

/// Checks a key that a client gave.
pub fn check_key(key: &str) -> Result<(), NameError> {
    // A unit has at most three bytes, so most keys need not be counted.
    let long = key.len() > KEY_UNITS_MAX && key.encode_utf16().count() > KEY_UNITS_MAX;
    if long { Err(NameError::Key) } else { Ok(()) }
}

/// The host in a URL that need not be one: without user, password and port, in lower case.
fn host_of(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#', '&', '\\']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = match host.find(']') {
        Some(end) if host.starts_with('[') => &host[..=end],
        _ => host.split(':').next().unwrap_or_default(),
    };
    host.to_lowercase()
}

/// Names a queue of clients.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientQueueId {
    /// Slot, marked key and crawl: what the keys of its records begin with.
    prefix: Vec<u8>,
    /// Where the part of the key ends.
    key_end: usize,
}

impl ClientQueueId {
    /// The queue of `crawl` with this key. Both must have been checked.
    pub fn new(crawl: &str, key: &str) -> ClientQueueId {
        let mut part = String::with_capacity(key.len() + 1);
        part.push(MARK);
        for letter in key.chars() {
            match letter {
                '\0' => part.extend([ESCAPE, '0']),
                ESCAPE => part.extend([ESCAPE, '2']),
                other => part.push(other),
            }
        }
        ClientQueueId::of_part(crawl, &part)
    }

    /// The queue of what the cluster keeps beside its own pages of a domain: in the slot of the domain.
    pub fn beside(crawl: &str, domain: &str) -> ClientQueueId {
        debug_assert!(crawl.starts_with(RESERVED) && BESIDE.starts_with([MARK]) && BESIDE[1..].starts_with([ESCAPE]));
        ClientQueueId::of_part(crawl, &format!("{BESIDE}{domain}"))
    }

    /// Whether it is such a queue.
    pub fn is_beside(&self) -> bool {
        self.prefix[2..].starts_with(BESIDE.as_bytes())
    }

    fn of_part(crawl: &str, part: &str) -> ClientQueueId {
        let mut prefix = Vec::with_capacity(part.len() + crawl.len() + 4);
        prefix.extend_from_slice(&Slot::of_domain(part).0.to_be_bytes());
        prefix.extend_from_slice(part.as_bytes());
        let key_end = prefix.len();
        prefix.push(0);
        prefix.extend_from_slice(crawl.as_bytes());
        prefix.push(0);
        ClientQueueId { prefix, key_end }
    }

    /// The queue of a record; `None` if it is not one of clients.
    pub fn of(key: &UrlKey) -> Option<ClientQueueId> {
        let bytes = key.as_bytes();
        if !is_client(key) || bytes.len() < 16 {
            return None;
        }
        ClientQueueId::from_prefix(&bytes[..bytes.len() - 16])
    }

    /// Takes a prefix as read from disk or sent by a peer.
    pub fn from_prefix(prefix: &[u8]) -> Option<ClientQueueId> {
        let key_end = 2 + prefix.get(2..)?.iter().position(|byte| *byte == 0)?;
        let sound = prefix.get(2) == Some(&(MARK as u8)) && prefix.last() == Some(&0) && prefix.len() > key_end + 2;
        let text = sound && std::str::from_utf8(&prefix[2..]).is_ok();
        text.then(|| ClientQueueId { prefix: prefix.to_vec(), key_end })
    }

    /// Its slot.
    pub fn slot(&self) -> Slot {
        Slot(u16::from_be_bytes([self.prefix[0], self.prefix[1]]))
    }

    /// What the keys of its records begin with.
    pub fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// Its crawl.
    pub fn crawl(&self) -> &str {
        text(&self.prefix[self.key_end + 1..self.prefix.len() - 1])
    }

    /// Its key, as the client gave it.
    pub fn key(&self) -> String {
        let part = text(&self.prefix[3..self.key_end]);
        if !part.contains(ESCAPE) {
            return part.to_owned();
        }
        part.replace("\u{2}0", "\0").replace("\u{2}2", "\u{2}")
    }

    /// Key of a URL's record.
    pub fn url(&self, url: &str) -> UrlKey {
        let mut id = UrlId::of(self.crawl(), url).0;
        if id == [0; 16] {
            id[15] = 1; // that one is the queue's
        }
        self.with_id(id)
    }

    /// Key of the queue's own record.
    pub fn record(&self) -> UrlKey {
        self.with_id([0; 16])
    }

    fn with_id(&self, id: [u8; 16]) -> UrlKey {
        let mut key = Vec::with_capacity(self.prefix.len() + 16);
        key.extend_from_slice(&self.prefix);
        key.extend_from_slice(&id);
        UrlKey::from_bytes(&key)
    }
}

/// Says whether a record is one of clients.
pub fn is_client(key: &UrlKey) -> bool {
    key.as_bytes().get(2) == Some(&(MARK as u8))
}

/// Says whether a record of clients is that of a queue.
pub fn is_queue(key: &UrlKey) -> bool {
    key.id().0 == [0; 16]
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("built from text, or checked when read")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_key_is_the_host_without_what_is_nobodys_business() {
        for (url, key) in [
            ("http://example.com/a?b", "example.com"),
            ("https://example.com:8080/", "example.com"),
            ("http://user:secret@example.com/", "example.com"),
            ("http://[2001:db8::1]:80/x", "[2001:db8::1]"),
            ("http://example.com#top", "example.com"),
            ("http://UP.example/", "up.example"),
            ("example.com/x", "example.com"),
            ("example.com?x", "example.com"),
        ] {
            assert_eq!(queue_key("", url).as_deref(), Ok(key), "{url}");
        }
        assert_eq!(queue_key("", "http:///x"), Err(NameError::NoKey));
        assert_eq!(queue_key("", ""), Err(NameError::NoKey));
        assert_eq!(queue_key("k", "").as_deref(), Ok("k"));
    }

    #[test]
    fn keys_of_255_units_are_the_longest() {
        assert!(queue_key(&"k".repeat(255), "").is_ok() && queue_key(&"k".repeat(256), "").is_err());
        assert!(queue_key(&"\u{20ac}".repeat(255), "").is_ok(), "units, not bytes");
        assert!(queue_key(&"\u{1f577}".repeat(128), "").is_err(), "a letter beyond the first plane is two");
    }

    #[test]
    fn a_blank_crawl_is_the_default_one() {
        assert_eq!((crawl_name(""), crawl_name(" \t")), (Ok("DEFAULT"), Ok("DEFAULT")));
        assert_eq!((crawl_name(" x "), crawl_name("a_b-c")), (Ok(" x "), Ok("a_b-c")));
        assert!(crawl_name("a\0b").is_err() && crawl_name(&"x".repeat(129)).is_err());
    }

    proptest! {
        #[test]
        fn what_a_key_says_can_be_read_back(key in "\\PC{1,40}|[\\x00-\\x04a]{1,12}", crawl in "[a-zA-Z_ -]{1,20}", url in "\\PC{0,40}") {
            let queue = ClientQueueId::new(&crawl, &key);
            let record = queue.url(&url);
            prop_assert!(is_client(&record) && !is_queue(&record) && is_queue(&queue.record()));
            prop_assert_eq!(UrlKey::checked(record.as_bytes()), Some(record.clone()));
            prop_assert_eq!(ClientQueueId::of(&record), Some(queue.clone()));
            prop_assert_eq!((queue.key(), queue.crawl(), queue.slot()), (key, crawl.as_str(), record.slot()));
        }

        #[test]
        fn garbage_is_no_queue(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Some(queue) = ClientQueueId::from_prefix(&bytes) {
                let _ = (queue.key(), queue.crawl(), queue.slot());
            }
        }
    }
}
