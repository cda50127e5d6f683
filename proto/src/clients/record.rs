//! What is replicated of a client's URL and of a queue.
//!
//! Both travel as [`RecordCopy`]. The version stands where other records have their progress, so the later of two copies of a URL wins like
//! everywhere; copies of a queue are merged field by field, because a later setting must not undo a cutoff or a turn that somebody else gave.

use serde::{Deserialize, Serialize};

use super::ask::Item;
use super::identity::{ClientQueueId, ITEM_BYTES_MAX, RESERVED};
use crate::cluster::copy::{Body, RecordCopy};
use crate::id::NodeId;
use crate::key::UrlKey;
use crate::record::{Progress, Status};
use crate::wire::{self, WireError};

/// Free words of a client about a URL, by name and in order.
pub type Metadata = Vec<(String, Vec<String>)>;

/// Bits of a version's number.
const NUMBER_BITS: u32 = 56;
/// Those of them that count the writes of one claim.
const WRITES_BITS: u32 = 24;

/// Which of two copies is later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Version {
    /// One more than the one before, and no less than a floor: Unix milliseconds where anybody may write what it knows; the writer's claim where only the holder of the slot may
    /// ([`Version::floor`]); and where something is merely heard of, the time before which everything was forgotten, so that it gives way to whatever anybody knows.
    pub number: u64,
    /// Who wrote it; of a lease, when.
    pub node: NodeId,
}

impl Version {
    /// The one that follows.
    pub fn next(self, node: NodeId, floor: u64) -> Version {
        let number = self.number.saturating_add(1).max(floor).min((1 << NUMBER_BITS) - 1);
        Version { number, node }
    }

    /// That of a lease of what has this version, which is a lease itself or is not. It is one more than what the lease is of, whenever it is written: whatever anybody says of the URL
    /// later beats it, also where it is not known. Leases of the same are in the order of their times, which stand where others say who wrote them.
    pub fn lease(self, is_lease: bool, unix_ms: u64) -> Version {
        match is_lease {
            true => Version { number: self.number, node: NodeId(self.node.0.saturating_add(1).max(unix_ms)) },
            false => Version { number: self.next(NodeId(0), 0).number, node: NodeId(unix_ms) },
        }
    }

    /// The least number of what is written under a claim. Everything written under an earlier claim is smaller, whenever and by whatever clock it was written.
    pub fn floor(claim: u32) -> u64 {
        u64::from(claim) << WRITES_BITS
    }

    /// As other records say it.
    pub fn progress(self) -> Progress {
        let [.., errors, high, low] = self.number.to_be_bytes();
        let round = (self.number >> WRITES_BITS) as u32;
        let attempt = u16::from_be_bytes([high, low]);
        Progress { round, status: Status::New, errors, attempt, node: self.node }
    }
}

/// A URL of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientUrl {
    /// Which copy.
    pub version: Version,
    /// As the client wrote it.
    pub url: String,
    /// Not to be handed out before this time, Unix seconds; 0 for never again: it is completed.
    pub date_s: u64,
    /// When it was first seen, Unix milliseconds.
    pub created_ms: u64,
    /// Handed out until then, Unix milliseconds; 0 if it is not.
    pub leased_until_ms: u64,
    /// The client's words about it; none once it is completed.
    pub metadata: Metadata,
}

impl ClientUrl {
    /// The record when `item` is taken in at `unix_ms` on `node`; `None` if it was merely found, and is known. What was created before `cutoff_ms` is dead. Its version is no less
    /// than the floor of a claim, if it is written under one. Otherwise what somebody knows goes by the clock, and what was merely found does not: others may have handed the URL
    /// out or be done with it, and this node has not heard of it yet. It beats what was forgotten and nothing else.
    pub fn taken_in(
        old: Option<&ClientUrl>,
        item: Item,
        cutoff_ms: u64,
        node: NodeId,
        unix_ms: u64,
        claim: Option<u64>,
    ) -> Option<ClientUrl> {
        let Item { crawl, url, metadata, date_s, .. } = item;
        let old = old.filter(|old| old.created_ms >= cutoff_ms);
        if date_s.is_none() && old.is_some() {
            return None;
        }
        let floor = claim.unwrap_or(match date_s {
            Some(_) => unix_ms.max(cutoff_ms.saturating_add(1)),
            None => cutoff_ms,
        });
        let (version, created_ms) = match old {
            Some(old) => (old.version, old.created_ms),
            None => (Version::default(), unix_ms.max(cutoff_ms)),
        };
        // What the cluster keeps for itself waits for nobody's clock.
        let found_s = if crawl.starts_with(RESERVED) { 1 } else { created_ms.div_euclid(1_000).max(1) };
        let date_s = date_s.unwrap_or(found_s);
        let metadata = if date_s == 0 { Vec::new() } else { metadata };
        let version = version.next(node, floor);
        Some(ClientUrl { version, url, date_s, created_ms, leased_until_ms: 0, metadata })
    }

    /// The record when it is handed out at `unix_ms`, until then.
    pub fn leased(&self, unix_ms: u64, leased_until_ms: u64) -> ClientUrl {
        let version = self.version.lease(self.leased_until_ms > 0, unix_ms);
        ClientUrl { version, leased_until_ms, ..self.clone() }
    }

    /// Whether nothing more is to be done with it.
    pub fn is_completed(&self) -> bool {
        self.date_s == 0
    }

    /// Bytes that a client's words take.
    pub fn bytes(url: &str, metadata: &Metadata) -> usize {
        let values = |values: &Vec<String>| values.iter().map(|value| value.len() + 4).sum::<usize>();
        url.len() + metadata.iter().map(|(name, of)| name.len() + 8 + values(of)).sum::<usize>()
    }

    /// The copy that travels.
    pub fn copy(&self, key: UrlKey) -> Result<RecordCopy, WireError> {
        copy(key, self.version, self)
    }
}

/// What is kept of a queue as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientQueue {
    /// Which copy of the settings.
    pub version: Version,
    /// It is there although it may have no URL.
    pub kept: bool,
    /// Nothing is served at or before this time, Unix seconds.
    pub blocked_until_s: u64,
    /// Least time between two answers; that of all queues if absent.
    pub delay_s: Option<u32>,
    /// Completed URLs after which nothing more is served; 0 for no limit.
    pub limit: u32,
    /// URLs that were created before are dead.
    pub cutoff_ms: u64,
    /// When it was last served, Unix milliseconds.
    pub produced_ms: u64,
}

impl ClientQueue {
    /// The copy that travels.
    pub fn copy(&self, queue: &ClientQueueId) -> Result<RecordCopy, WireError> {
        copy(queue.record(), self.version, self)
    }

    /// The record when the queue is served at `unix_ms`. Its settings are those that it has, so its version is too: who has not heard of the last ones does not undo them.
    pub fn served(&self, node: NodeId, unix_ms: u64) -> ClientQueue {
        ClientQueue { version: self.version_kept(node), kept: true, produced_ms: unix_ms, ..self.clone() }
    }

    /// The record when what was created before is forgotten; likewise.
    pub fn purged(&self, node: NodeId, cutoff_ms: u64) -> ClientQueue {
        ClientQueue { version: self.version_kept(node), kept: true, cutoff_ms, ..self.clone() }
    }

    /// The version of settings that do not change: the first, if there is no record yet.
    fn version_kept(&self, node: NodeId) -> Version {
        if self.version.number > 0 && self.kept { self.version } else { self.version.next(node, 0) }
    }

    /// What two copies say together.
    pub fn merge(self, other: ClientQueue) -> ClientQueue {
        let cutoff_ms = self.cutoff_ms.max(other.cutoff_ms);
        let produced_ms = self.produced_ms.max(other.produced_ms);
        let later = self.order() < other.order();
        let settings = if later { other } else { self };
        ClientQueue { cutoff_ms, produced_ms, ..settings }
    }

    /// Order of settings: by version, and by what they say among equals.
    fn order(&self) -> (Version, bool, u64, Option<u32>, u32) {
        (self.version, self.kept, self.blocked_until_s, self.delay_s, self.limit)
    }
}

/// What a copy of a client's record holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opened {
    /// A URL.
    Url(ClientUrl),
    /// A queue.
    Queue(ClientQueue),
}

/// Looks into a copy; `None` if it contradicts itself.
pub fn open(copy: &RecordCopy) -> Option<(ClientQueueId, Opened)> {
    let queue = ClientQueueId::of(&copy.key)?;
    let (opened, version, key) = if super::identity::is_queue(&copy.key) {
        let said: ClientQueue = wire::decode(&copy.body.0).ok()?;
        let version = said.version;
        (Opened::Queue(said), version, queue.record())
    } else {
        let said: ClientUrl = wire::decode(&copy.body.0).ok()?;
        if ClientUrl::bytes(&said.url, &said.metadata) > ITEM_BYTES_MAX {
            return None;
        }
        let (version, key) = (said.version, queue.url(&said.url));
        (Opened::Url(said), version, key)
    };
    (version.progress() == copy.progress && key == copy.key).then_some((queue, opened))
}

/// The version of the record whose encoding begins with these bytes.
pub fn version_of(body: &[u8]) -> Result<Version, WireError> {
    wire::decode_first(&mut &*body)
}

/// What two copies of one record of clients say together.
pub fn merge(old: RecordCopy, new: RecordCopy) -> RecordCopy {
    if super::identity::is_queue(&old.key)
        && let (Ok(mine), Ok(theirs)) = (wire::decode::<ClientQueue>(&old.body.0), wire::decode(&new.body.0))
        && let Ok(merged) = copy_of_queue(&old.key, mine.merge(theirs))
    {
        return merged;
    }
    if old.cmp_copy(&new) == std::cmp::Ordering::Less { new } else { old }
}

fn copy_of_queue(key: &UrlKey, queue: ClientQueue) -> Result<RecordCopy, WireError> {
    copy(key.clone(), queue.version, &queue)
}

fn copy<T: Serialize>(key: UrlKey, version: Version, what: &T) -> Result<RecordCopy, WireError> {
    let body = wire::encode(what)?;
    Ok(RecordCopy { key, progress: version.progress(), body: Body(body.into()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_version() -> impl Strategy<Value = Version> {
        let number = prop_oneof![0..4u64, 0..1u64 << NUMBER_BITS, (0..4u32).prop_map(Version::floor)];
        (number, 0..2u64).prop_map(|(number, node)| Version { number, node: NodeId(node) })
    }

    fn queue() -> impl Strategy<Value = ClientQueue> {
        let version = (0..3u64, 0..2u64).prop_map(|(number, node)| Version { number, node: NodeId(node) });
        (version, any::<bool>(), 0..3u64, proptest::option::of(0..3u32), 0..2u32, 0..3u64, 0..3u64).prop_map(
            |(version, kept, blocked_until_s, delay_s, limit, cutoff_ms, produced_ms)| ClientQueue {
                version,
                kept,
                blocked_until_s,
                delay_s,
                limit,
                cutoff_ms,
                produced_ms,
            },
        )
    }

    proptest! {
        #[test]
        fn versions_are_ordered_alike_wherever_they_stand(a in any_version(), b in any_version(), floor: u64) {
            prop_assert_eq!(a.cmp(&b), a.progress().cmp(&b.progress()));
            let next = a.next(b.node, floor);
            prop_assert!(next.number > a.number || next.number == (1 << NUMBER_BITS) - 1);
            prop_assert!(next.number >= floor.min((1 << NUMBER_BITS) - 1));
        }

        #[test]
        fn copies_of_a_queue_form_a_lattice(a in queue(), b in queue(), c in queue()) {
            let id = ClientQueueId::new("c", "k");
            let merged = |a: &ClientQueue, b: &ClientQueue| a.clone().merge(b.clone());
            prop_assert_eq!(merged(&a, &b), merged(&b, &a));
            prop_assert_eq!(merged(&merged(&a, &b), &c), merged(&a, &merged(&b, &c)));
            prop_assert_eq!(merged(&a, &a), a.clone());
            let copies = a.copy(&id).unwrap().merge(b.copy(&id).unwrap());
            prop_assert_eq!(open(&copies), Some((id, Opened::Queue(merged(&a, &b)))));
        }
    }

    #[test]
    fn the_later_copy_of_a_url_wins_and_a_false_one_is_refused() {
        let id = ClientQueueId::new("c", "k");
        let first = ClientUrl { url: "http://a/".into(), date_s: 7, ..ClientUrl::default() };
        let first = ClientUrl { version: Version::default().next(NodeId(1), 5_000), ..first };
        let later = ClientUrl { version: first.version.next(NodeId(1), 5_000), date_s: 0, ..first.clone() };
        assert_eq!(later.version.number, 5_001, "also within a millisecond");
        let copies = [&first, &later].map(|record| record.copy(id.url(&record.url)).unwrap());
        for [a, b] in [[0, 1], [1, 0]] {
            let merged = copies[a].clone().merge(copies[b].clone());
            assert_eq!(open(&merged), Some((id.clone(), Opened::Url(later.clone()))));
        }
        let elsewhere = RecordCopy { key: ClientQueueId::new("c", "l").url("http://b/"), ..copies[0].clone() };
        assert_eq!(open(&elsewhere), None);
        let lying = RecordCopy { progress: Version::default().progress(), ..copies[0].clone() };
        assert_eq!(open(&lying), None);
        assert_eq!(version_of(&copies[1].body.0).unwrap(), later.version);
    }

    #[test]
    fn what_was_merely_found_gives_way_to_whatever_anybody_knows_and_beats_what_was_forgotten() {
        let item = |date_s| Item { crawl: "c".into(), key: "k".into(), url: "u".into(), metadata: Vec::new(), date_s };
        let key = ClientQueueId::new("c", "k").url("u");
        // Clocks are not alike, and who merely hears of it has the latest.
        let [early, late] = [(NodeId(1), 50_000), (NodeId(9), 60_000)];
        let by = |(node, unix_ms), old: Option<&ClientUrl>, date_s, cutoff_ms| {
            ClientUrl::taken_in(old, item(date_s), cutoff_ms, node, unix_ms, None).unwrap()
        };
        // Forgotten: up to now, and up to a time that only a faster clock shows yet.
        for cutoff_ms in [0, 50_000, 70_000] {
            let (found, heard) = (by(early, None, None, cutoff_ms), by(late, None, None, cutoff_ms));
            assert!(found.created_ms >= cutoff_ms && heard.date_s > 0);
            let known = [by(early, None, Some(0), cutoff_ms), by(early, Some(&found), Some(0), cutoff_ms)];
            let leased =
                ClientUrl { version: found.version.next(NodeId(1), 50_000), leased_until_ms: 1, ..found.clone() };
            for known in known.into_iter().chain([leased]) {
                let copies = [&heard, &known].map(|record| record.copy(key.clone()).unwrap());
                let merged = copies[0].clone().merge(copies[1].clone());
                assert_eq!(merged, copies[1], "cutoff {cutoff_ms}");
            }
            // What was there before all was forgotten: found, handed out, done with.
            let before = by((NodeId(9), cutoff_ms.saturating_sub(1)), None, Some(0), 0);
            assert!(cutoff_ms == 0 || found.version > before.version, "cutoff {cutoff_ms}");
        }
        let claimed = ClientUrl::taken_in(None, item(None), 0, NodeId(1), 50_000, Some(Version::floor(3))).unwrap();
        assert_eq!(claimed.version.number, Version::floor(3));
    }

    #[test]
    fn a_lease_gives_way_to_whatever_is_said_of_the_url_and_to_a_later_lease_of_the_same() {
        let item = |date_s| Item { crawl: "c".into(), key: "k".into(), url: "u".into(), metadata: Vec::new(), date_s };
        let key = ClientQueueId::new("c", "k").url("u");
        let say = |old: &ClientUrl, node, date_s, unix_ms| {
            ClientUrl::taken_in(Some(old), item(Some(date_s)), 0, NodeId(node), unix_ms, None).unwrap()
        };
        let heard = ClientUrl::taken_in(None, item(None), 0, NodeId(9), 40_000, None).unwrap();
        let merged = |a: &ClientUrl, b: &ClientUrl| {
            let merged = a.copy(key.clone()).unwrap().merge(b.copy(key.clone()).unwrap());
            assert_eq!(merged, b.copy(key.clone()).unwrap().merge(a.copy(key.clone()).unwrap()));
            open(&merged).unwrap().1
        };
        for of in [say(&heard, 9, 7, 45_000), heard] {
            // A holder that is cut off hands it out again and again, after others have acknowledged that it is done with, and after another holder has handed it out.
            let first = of.leased(50_000, 60_000);
            let done = say(&of, 1, 0, 50_001);
            let late = first.leased(70_000, 80_000).leased(90_000, 99_000);
            let other = of.leased(95_000, 96_000);
            assert_eq!(merged(&late, &done), Opened::Url(done.clone()));
            assert_eq!(merged(&late, &other), Opened::Url(other), "the later lease, although it is over earlier");
            assert_eq!(merged(&of, &first), Opened::Url(first.clone()));
            assert_eq!(merged(&first, &first.leased(50_000, 70_000)), Opened::Url(first.leased(50_000, 70_000)));
            // What is said of it ends a lease, and can be leased again.
            let again = say(&late, 1, 5, 90_000);
            assert_eq!(merged(&late, &again), Opened::Url(again.clone()));
            assert_eq!(merged(&again, &again.leased(90_000, 99_000)), Opened::Url(again.leased(90_000, 99_000)));
        }
    }

    #[test]
    fn serving_and_purging_a_queue_undoes_no_setting_of_which_it_was_not_heard() {
        let set = |of: &ClientQueue, unix_ms| {
            let version = of.version.next(NodeId(1), unix_ms);
            ClientQueue { version, kept: true, delay_s: Some(77), ..of.clone() }
        };
        for of in [ClientQueue::default(), set(&ClientQueue::default(), 5)] {
            let told = set(&of, 1_000);
            for later in [of.served(NodeId(9), 2_000), of.purged(NodeId(9), 2_000)] {
                let both = told.clone().merge(later.clone());
                assert_eq!((both.delay_s, both.kept), (Some(77), true));
                assert_eq!((both.produced_ms, both.cutoff_ms), (later.produced_ms, later.cutoff_ms));
            }
        }
        // A queue that was forgotten is made anew by what follows.
        let gone = ClientQueue { version: Version { number: 9, node: NodeId(1) }, ..ClientQueue::default() };
        assert!(gone.clone().merge(gone.served(NodeId(9), 2_000)).kept);
    }

    #[test]
    fn what_is_written_under_a_later_claim_beats_whatever_an_earlier_one_still_writes() {
        let mut late = Version::default().next(NodeId(9), Version::floor(3));
        for _ in 0..1_000 {
            late = late.next(NodeId(9), Version::floor(3));
        }
        let acknowledged = Version::default().next(NodeId(1), Version::floor(4));
        assert!(acknowledged > late && acknowledged.progress() > late.progress());
        let last = Version { number: u64::MAX, node: NodeId(1) }.next(NodeId(2), 0);
        assert_eq!(last.progress().round, u32::MAX, "it stays at the end");
    }
}
