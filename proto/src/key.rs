//! Keys on disk. Every key begins with slot, domain and crawl: a slot is one range, a domain is contiguous in it, and
//! neighbours share a prefix that the store does not write twice.
//!
//! ```text
//! url      slot | domain 0 crawl 0 | url id                       record of a URL
//! queue    slot | domain 0 crawl 0 sub 0                          names a queue; sub = host without its domain
//! ready    queue | order                                          order = ¬priority, depth, sequence: bytes sort as we fetch
//! due      slot | unix ms | queue | order                         waits for its time
//! content  url | ¬round                                           newest version first
//! ```
//! Domain, crawl and host never hold a zero byte: hosts are ASCII, crawl names are checked by [`crawl_name_is_valid`].

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::{Round, Slot, UrlId};
use crate::url::CanonicalUrl;

/// The crawl that URLs belong to when nobody names another.
pub const DEFAULT_CRAWL: &str = "DEFAULT";

/// Longest name of a crawl, in bytes.
pub const CRAWL_NAME_BYTES_MAX: usize = 128;

/// Says whether `name` can name a crawl: 1 to 128 bytes, no control characters.
pub fn crawl_name_is_valid(name: &str) -> bool {
    (1..=CRAWL_NAME_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control)
}

/// Key of a URL's record.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UrlKey(Vec<u8>);

impl UrlKey {
    /// Builds the key of `url` within `crawl`.
    pub fn new(crawl: &str, url: &CanonicalUrl) -> UrlKey {
        let domain = url.domain();
        let mut key = Vec::with_capacity(2 + domain.len() + crawl.len() + 18);
        push_domain(&mut key, domain, crawl);
        key.extend_from_slice(&url.id(crawl).0);
        UrlKey(key)
    }

    /// Takes a key as read from disk.
    pub fn from_bytes(bytes: &[u8]) -> UrlKey {
        UrlKey(bytes.to_vec())
    }

    /// The key's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The key's bytes, taken out.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Takes a key that came from elsewhere: slot, domain and crawl must be where they belong.
    pub fn checked(bytes: &[u8]) -> Option<UrlKey> {
        let key = UrlKey(bytes.to_vec());
        let domain = key.part(0)?;
        let whole = 2 + domain.len() + 1 + key.part(1)?.len() + 1 + 16;
        let sound = bytes.len() == whole && !domain.is_empty() && key.slot() == Slot::of_domain(domain);
        (sound && key.crawl().is_some_and(crawl_name_is_valid)).then_some(key)
    }

    /// Slot of the domain.
    pub fn slot(&self) -> Slot {
        match self.0.first_chunk() {
            Some(slot) => Slot(u16::from_be_bytes(*slot)),
            None => Slot(0),
        }
    }

    /// Registrable domain; `None` if these bytes are no key.
    pub fn domain(&self) -> Option<&str> {
        self.part(0)
    }

    /// Name of the crawl; `None` if these bytes are no key.
    pub fn crawl(&self) -> Option<&str> {
        self.part(1)
    }

    fn part(&self, index: usize) -> Option<&str> {
        let parts = self.0.get(2..self.0.len().checked_sub(16)?)?;
        std::str::from_utf8(parts.split(|byte| *byte == 0).nth(index)?).ok()
    }

    /// The URL's id: the last 16 bytes.
    pub fn id(&self) -> UrlId {
        let mut id = [0; 16];
        let start = self.0.len().saturating_sub(16);
        id[..self.0.len() - start].copy_from_slice(&self.0[start..]);
        UrlId(id)
    }

    /// Key of the version of this URL's content that `round` stored; newer rounds sort first.
    pub fn content(&self, round: Round) -> Vec<u8> {
        let mut key = Vec::with_capacity(self.0.len() + 4);
        key.extend_from_slice(&self.0);
        key.extend_from_slice(&(!round).to_be_bytes());
        key
    }
}

impl Serialize for UrlKey {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for UrlKey {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = crate::wire::Bytes::deserialize(deserializer)?.0;
        UrlKey::checked(&bytes).ok_or_else(|| serde::de::Error::custom("not the key of a URL"))
    }
}

impl fmt::Debug for UrlKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "UrlKey({})", self.id())
    }
}

/// Names a queue: the URLs of one crawl on one host.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueKey(Arc<[u8]>);

impl QueueKey {
    /// The queue of `url` within `crawl`.
    pub fn new(crawl: &str, url: &CanonicalUrl) -> QueueKey {
        let (host, domain) = (url.host(), url.domain());
        let sub = &host[..host.len() - domain.len()];
        let mut key = Vec::with_capacity(2 + host.len() + crawl.len() + 3);
        push_domain(&mut key, domain, crawl);
        key.extend_from_slice(sub.as_bytes());
        key.push(0);
        QueueKey(key.into())
    }

    /// Reads the queue at the start of `bytes`, e.g. of a ready key; `None` if there is none.
    pub fn prefix_of(bytes: &[u8]) -> Option<QueueKey> {
        let mut zeros = 0;
        let end = bytes.iter().skip(2).position(|byte| {
            zeros += usize::from(*byte == 0);
            zeros == 3
        })?;
        let key = &bytes[..end + 3];
        std::str::from_utf8(&key[2..]).ok()?;
        Some(QueueKey(key.into()))
    }

    /// Sorts before every queue of `slot`, and names none.
    pub(crate) fn before_all_of(slot: Slot) -> QueueKey {
        QueueKey(slot.0.to_be_bytes().as_slice().into())
    }

    /// The key's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Slot of the domain.
    pub fn slot(&self) -> Slot {
        Slot(u16::from_be_bytes([self.0[0], self.0[1]]))
    }

    /// Registrable domain.
    pub fn domain(&self) -> &str {
        self.part(0)
    }

    /// Name of the crawl.
    pub fn crawl(&self) -> &str {
        self.part(1)
    }

    /// Host name.
    pub fn host(&self) -> String {
        format!("{}{}", self.part(2), self.part(0))
    }

    fn part(&self, index: usize) -> &str {
        let part = self.0[2..].split(|byte| *byte == 0).nth(index).expect("a queue key has three parts");
        std::str::from_utf8(part).expect("built from text or checked when read")
    }

    /// Key of an entry of this queue.
    pub fn ready(&self, order: Order) -> Vec<u8> {
        let mut key = Vec::with_capacity(self.0.len() + Order::BYTES);
        key.extend_from_slice(&self.0);
        key.extend_from_slice(&order.to_bytes());
        key
    }

    /// Key of an entry of this queue that waits until `unix_ms`.
    pub fn due(&self, unix_ms: u64, order: Order) -> Vec<u8> {
        let mut key = Vec::with_capacity(self.0.len() + 8 + Order::BYTES);
        key.extend_from_slice(&self.0[..2]);
        key.extend_from_slice(&unix_ms.to_be_bytes());
        key.extend_from_slice(&self.0);
        key.extend_from_slice(&order.to_bytes());
        key
    }
}

impl fmt::Debug for QueueKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "QueueKey({} {})", self.crawl(), self.host())
    }
}

/// Order within a queue: higher priority first, then smaller depth, then older.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Higher is sooner.
    pub priority: u16,
    /// Links from a seed.
    pub depth: u16,
    /// Counts admissions of the node; unique, so it also tells entries apart.
    pub sequence: u64,
}

impl Order {
    /// Length of its bytes: sequence takes six, enough for 2.8 * 10^14 admissions.
    pub const BYTES: usize = 10;

    /// Bytes that sort as the order does.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..2].copy_from_slice(&(!self.priority).to_be_bytes());
        bytes[2..4].copy_from_slice(&self.depth.to_be_bytes());
        bytes[4..].copy_from_slice(&self.sequence.to_be_bytes()[2..]);
        bytes
    }

    /// Reads the order at the end of a ready or due key.
    pub fn suffix_of(key: &[u8]) -> Option<Order> {
        let bytes = key.len().checked_sub(Self::BYTES).map(|start| &key[start..])?;
        let mut sequence = [0; 8];
        sequence[2..].copy_from_slice(&bytes[4..]);
        Some(Order {
            priority: !u16::from_be_bytes([bytes[0], bytes[1]]),
            depth: u16::from_be_bytes([bytes[2], bytes[3]]),
            sequence: u64::from_be_bytes(sequence),
        })
    }
}

impl Ord for Order {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.to_bytes().cmp(&other.to_bytes())
    }
}

impl PartialOrd for Order {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Reads slot and time at the start of a due key, and the ready key behind them.
pub fn split_due(key: &[u8]) -> Option<(u64, &[u8])> {
    let time: [u8; 8] = key.get(2..10)?.try_into().ok()?;
    Some((u64::from_be_bytes(time), key.get(10..)?))
}

fn push_domain(key: &mut Vec<u8>, domain: &str, crawl: &str) {
    key.extend_from_slice(&Slot::of_domain(domain).0.to_be_bytes());
    key.extend_from_slice(domain.as_bytes());
    key.push(0);
    key.extend_from_slice(crawl.as_bytes());
    key.push(0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::url::UrlRules;
    use proptest::prelude::*;

    fn url(text: &str) -> CanonicalUrl {
        CanonicalUrl::parse(text, &UrlRules::default()).unwrap()
    }

    fn order() -> impl Strategy<Value = Order> {
        (any::<u16>(), any::<u16>(), 0..1u64 << 48).prop_map(|(priority, depth, sequence)| Order {
            priority,
            depth,
            sequence,
        })
    }

    proptest! {
        #[test]
        fn bytes_sort_as_priority_then_depth_then_age(a in order(), b in order()) {
            let expected = b.priority.cmp(&a.priority).then(a.depth.cmp(&b.depth)).then(a.sequence.cmp(&b.sequence));
            prop_assert_eq!(a.cmp(&b), expected);
            prop_assert_eq!(Order::suffix_of(&a.to_bytes()), Some(a));
        }

        #[test]
        fn what_a_ready_key_says_can_be_read_back(order in order(), host in "[a-z]{1,8}(\\.[a-z]{2,8}){1,3}") {
            let queue = QueueKey::new(DEFAULT_CRAWL, &url(&format!("http://{host}/")));
            let key = queue.ready(order);
            prop_assert_eq!(QueueKey::prefix_of(&key), Some(queue.clone()));
            prop_assert_eq!(Order::suffix_of(&key), Some(order));
            prop_assert_eq!(queue.host(), host);
            let due = queue.due(77, order);
            prop_assert_eq!(split_due(&due), Some((77, key.as_slice())));
        }

        #[test]
        fn garbage_is_no_key(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = QueueKey::prefix_of(&bytes);
            let _ = Order::suffix_of(&bytes);
            let _ = split_due(&bytes);
            let _ = UrlKey::from_bytes(&bytes).id();
        }
    }

    #[test]
    fn a_domain_is_contiguous_and_no_queue_is_a_prefix_of_another() {
        let queue = |text| QueueKey::new(DEFAULT_CRAWL, &url(text));
        let (plain, www) = (queue("http://example.com/"), queue("http://www.example.com/"));
        assert_eq!(plain.slot(), www.slot());
        assert!(!www.as_bytes().starts_with(plain.as_bytes()));
        assert_eq!((www.domain(), www.crawl(), www.host().as_str()), ("example.com", "DEFAULT", "www.example.com"));
        let record = UrlKey::new(DEFAULT_CRAWL, &url("http://www.example.com/a"));
        let shared = 2 + "example.com".len() + 1 + DEFAULT_CRAWL.len() + 1;
        assert_eq!(record.as_bytes()[..shared], www.as_bytes()[..shared]);
    }

    #[test]
    fn the_newest_version_of_content_sorts_first() {
        let key = UrlKey::new(DEFAULT_CRAWL, &url("http://example.com/"));
        assert!(key.content(2) < key.content(1));
    }
}
