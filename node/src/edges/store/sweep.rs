//! What is left of sites that were emptied or deleted goes from this disk: records, queues, hosts, contents, notes and history.
//!
//! Nobody runs such a crawl again: its name has an epoch below that of its site. So each node removes what it has by itself, some records at a time, takes no copy of
//! such a record from a peer any more, and gives none.

use std::collections::BTreeSet;

use proto::cluster::repair::Changed;
use proto::key::{QueueKey, UrlKey};
use proto::site::{Gone, note};

use super::change::Change;
use super::clients::Decided;
use super::notes::note_copy_of;
use super::{Store, StoreError};

/// Records that one job removes: some tens of milliseconds of the disk thread.
const ROWS_AT_ONCE: usize = 1_000;
/// Rows that one job looks at to find them: most hosts are of sites that live.
const LOOKED_AT_ONCE: usize = 10_000;

/// How far what is left was removed. A job goes on where the last one ended: what lies before is gone, or of the living, and would be walked through once for every thousand records.
pub(super) struct Sweeping {
    /// Where hosts are looked for next; `None` if there are none left.
    hosts: Option<Vec<u8>>,
    /// The same of notes.
    notes: Option<Vec<u8>>,
}

impl Default for Sweeping {
    fn default() -> Self {
        Sweeping { hosts: Some(Vec::new()), notes: Some(Vec::new()) }
    }
}

/// What the rows of a domain of a crawl begin with.
fn domain_of(queue: &QueueKey) -> &[u8] {
    &queue.as_bytes()[..2 + queue.domain().len() + 1 + queue.crawl().len() + 1]
}

impl Store {
    /// What is dead by the definitions that are here.
    pub(super) fn gone(&mut self) -> Result<&Gone, StoreError> {
        if self.gone.is_none() {
            let mut gone = Gone::default();
            for definition in self.definitions()? {
                gone.take(&definition);
            }
            self.gone = Some(gone);
            self.sweeping = Sweeping::default();
        }
        Ok(self.gone.as_ref().expect("just made"))
    }
}

impl Change<'_> {
    /// Removes some of what is left of sites that are gone; says how many records that were, and `None` when nothing is left.
    pub fn sweep(&mut self) -> Result<Decided<Option<usize>>, StoreError> {
        let mut changed = Vec::new();
        let nobody = self.store.gone()?.is_empty();
        let said = match &self.store.sweeping {
            _ if nobody => None,
            Sweeping { hosts: Some(from), .. } => {
                let from = from.clone();
                self.sweep_failings()?;
                Some(self.sweep_hosts(from, &mut changed)?)
            }
            Sweeping { notes: Some(from), .. } => Some(self.sweep_notes(from.clone(), &mut changed)?),
            Sweeping { .. } => None,
        };
        Ok(Decided { said, copies: Vec::new(), changed, life: self.store.life })
    }

    fn sweep_hosts(&mut self, from: Vec<u8>, changed: &mut Vec<Changed>) -> Result<usize, StoreError> {
        let mut domains: Vec<Vec<u8>> = Vec::new();
        let mut next = None;
        for (looked, row) in self.store.rows("host", from, Vec::new()).enumerate() {
            let (key, _) = row?;
            let Some(queue) = QueueKey::prefix_of(&key) else { continue };
            let domain = domain_of(&queue);
            if looked >= LOOKED_AT_ONCE || domains.len() > ROWS_AT_ONCE {
                next = Some(domain.to_vec());
                break;
            }
            let gone = self.store.gone.as_ref().is_some_and(|gone| gone.has(queue.crawl()));
            if gone && domains.last().is_none_or(|last| last != domain) {
                domains.push(domain.to_vec());
            }
        }
        let (mut removed, mut emptied) = (0, BTreeSet::new());
        for domain in domains {
            let left = ROWS_AT_ONCE.saturating_sub(removed);
            let rows = self.store.rows("url", domain.clone(), domain.clone()).take(left);
            let mut keys: Vec<UrlKey> =
                rows.map(|row| row.map(|(key, _)| UrlKey::from_bytes(&key))).collect::<Result<_, _>>()?;
            let whole = keys.len() < left;
            let written = self.overlay.range(UrlKey::from_bytes(&domain)..).map(|(key, _)| key);
            keys.extend(written.take_while(|key| key.as_bytes().starts_with(&domain)).cloned());
            keys.sort();
            keys.dedup();
            for key in keys {
                removed += usize::from(self.remove_record(&key, changed)?);
            }
            if !whole {
                next = Some(domain);
                break;
            }
            emptied.insert(domain);
        }
        self.forget_domains(&emptied)?;
        self.store.sweeping.hosts = next;
        Ok(removed)
    }

    /// Removes a record and all that hangs on it; says whether it was there.
    fn remove_record(&mut self, key: &UrlKey, changed: &mut Vec<Changed>) -> Result<bool, StoreError> {
        let Some((known, queued, place)) = self.as_it_is(key)? else { return Ok(false) };
        if let Some(queued) = queued {
            self.leave_queue(&queued, place);
        }
        if let Some(crawl) = key.crawl() {
            self.count(&QueueKey::new(crawl, &known.url), Some(&known.kept.record), None)?;
        }
        changed.push(self.digest(key, Some(known.copy.hash()), None));
        self.delete("url", key.as_bytes());
        self.forget_level(key, &known);
        changed.extend(self.forget_row(key)?);
        self.forget_touched(key);
        self.remove_contents(key.as_bytes())?;
        let prefix = key.as_bytes().to_vec();
        let rows = self.store.rows("history", prefix.clone(), prefix);
        let keys: Vec<Box<[u8]>> = rows.map(|row| row.map(|(key, _)| key)).collect::<Result<_, _>>()?;
        keys.iter().for_each(|key| self.delete("history", key));
        Ok(true)
    }

    /// Forgets the hosts of domains of crawls that have no records any more.
    fn forget_domains(&mut self, domains: &BTreeSet<Vec<u8>>) -> Result<(), StoreError> {
        for domain in domains {
            for family in ["host", "seen"] {
                let rows = self.store.rows(family, domain.clone(), domain.clone());
                let keys: Vec<Box<[u8]>> = rows.map(|row| row.map(|(key, _)| key)).collect::<Result<_, _>>()?;
                keys.iter().for_each(|key| self.delete(family, key));
            }
        }
        // Once for all of them: what is remembered of hosts and paths is tens of thousands.
        if !domains.is_empty() {
            let lives = |queue: &QueueKey| !domains.contains(domain_of(queue));
            self.touched.retain(lives);
            self.store.hosts.retain(|queue, _| lives(queue));
            self.store.paths.retain(|path, _| QueueKey::prefix_of(path).is_none_or(|queue| lives(&queue)));
        }
        Ok(())
    }

    fn sweep_notes(&mut self, from: Vec<u8>, changed: &mut Vec<Changed>) -> Result<usize, StoreError> {
        let (mut keys, mut next) = (Vec::new(), None);
        for (looked, row) in self.store.rows("note", from, Vec::new()).enumerate() {
            let (key, value) = row?;
            if looked >= LOOKED_AT_ONCE || keys.len() >= ROWS_AT_ONCE {
                next = Some(key.into_vec());
                break;
            }
            let key = UrlKey::from_bytes(&key);
            debug_assert!(note::is_note(&key));
            if self.store.gone.as_ref().is_some_and(|gone| gone.has(key.crawl().unwrap_or_default())) {
                keys.push((note_copy_of(key.clone(), &value)?, key));
            }
        }
        let removed = keys.len();
        for (copy, key) in keys {
            if !self.notes.contains_key(&key) {
                changed.push(self.digest(&key, Some(copy.hash()), None));
                self.delete("note", key.as_bytes());
            }
        }
        self.store.sweeping.notes = next;
        Ok(removed)
    }
}

#[cfg(test)]
mod tests {
    use proto::batch::{Discovered, EntryKind, Pick};
    use proto::clients::record;
    use proto::clients::spider::{SpiderAsk, SpiderRules};
    use proto::cluster::copy::{Kept, RecordCopy};
    use proto::cluster::registry::{Definition, DefinitionKey, DefinitionKind, Version};
    use proto::cluster::repair::Digests;
    use proto::id::NodeId;
    use proto::site::note::{Note, NoteKind};
    use proto::site::{Site, SiteDefinition};
    use proto::url::{CanonicalUrl, UrlRules};

    use super::super::{Admitted, StoreOptions};
    use super::*;

    fn site(number: u64, epoch: u32, deleted: bool) -> Definition {
        let site = Site { id: "news".into(), ..Site::default() };
        let body = SiteDefinition { site, epoch, deleted }.encode().unwrap();
        let key = DefinitionKey { kind: DefinitionKind::Site, name: "news".into() };
        Definition { key, version: Version { number, node: NodeId(1), boot: 1 }, body: Some(body) }
    }

    fn copy(crawl: &str, url: &str) -> RecordCopy {
        let url = CanonicalUrl::parse(url, &UrlRules::default()).unwrap();
        let found = Discovered { url, kind: EntryKind::Page, depth: 0, priority: 1, redirects: 0 };
        RecordCopy::new(UrlKey::new(crawl, &found.url), &Kept::discovered(&found, None, 5, NodeId(1))).unwrap()
    }

    fn note(crawl: &str) -> RecordCopy {
        let (name, version) = ("owner".to_owned(), record::Version { number: 7, node: NodeId(1) });
        let note =
            Note { version, kind: NoteKind::Attribute, url: String::new(), name, value: Some(vec![1]), created_ms: 1 };
        note.copy(crawl).unwrap()
    }

    /// What was found on a page, as a copy that another node made.
    fn links(dir: &std::path::Path, crawl: &str) -> RecordCopy {
        let options = StoreOptions { node: NodeId(1), replica: true, graph: true, ..StoreOptions::default() };
        let mut store = Store::open(&dir.join(crawl), options).unwrap();
        let mut change = store.change();
        let admitted = change.merge(vec![copy(crawl, "http://h0.example/0")], 9).unwrap().admitted;
        let Admitted { queue, order, entry, .. } = admitted[0].clone();
        change.find_untold(&Pick { flight: 1, queue, order, entry }, &[], 9).unwrap();
        change.commit().unwrap();
        let (rows, _) = store.graph().untold(1).unwrap();
        store.change().spider(SpiderAsk::Links(rows), &SpiderRules::default(), 9).unwrap().copies.remove(0)
    }

    fn digests(store: &Store) -> Digests {
        let mut digests = Digests::default();
        for slot in (0..proto::id::SLOTS).map(proto::id::Slot) {
            for copy in store.slot_copies(slot, None, None, 10_000).unwrap().0 {
                digests.change(Changed::new(&copy.key, None, Some(copy.hash())));
            }
        }
        digests
    }

    #[test]
    fn what_is_left_of_a_site_goes_and_never_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let options = StoreOptions { node: NodeId(7), replica: true, ..StoreOptions::default() };
        let mut store = Store::open(dir.path(), options).unwrap();
        let old: Vec<RecordCopy> =
            (0..2_500).map(|n| copy("news", &format!("http://h{}.example/{n}", n % 3))).collect();
        let mut kept: Digests = Digests::default();
        let mut apply = |store: &mut Store, copies: Vec<RecordCopy>| {
            let mut change = store.change();
            let changed = change.merge(copies, 9).unwrap().changed;
            change.commit().unwrap();
            let count = changed.len();
            changed.into_iter().for_each(|change| kept.change(change));
            count
        };
        assert_eq!(apply(&mut store, old.clone()), 2_500);
        assert_eq!(apply(&mut store, vec![note("news"), note("news~1"), copy("news~1", "http://h0.example/")]), 3);
        let links: Vec<RecordCopy> = ["news", "news~1"].map(|crawl| links(dir.path(), crawl)).to_vec();
        assert_eq!(apply(&mut store, links.clone()), 2);
        let mut change = store.change();
        change.keep_definitions(&[site(2, 1, true)]).unwrap();
        change.commit().unwrap();
        assert_eq!(
            apply(&mut store, vec![old[0].clone(), note("news"), links[0].clone()]),
            0,
            "nothing of it is taken any more"
        );
        let mut removed = 0;
        loop {
            let mut change = store.change();
            let swept = change.sweep().unwrap();
            change.commit().unwrap();
            swept.changed.into_iter().for_each(|change| kept.change(change));
            let Some(said) = swept.said else { break };
            removed += said;
        }
        assert_eq!(removed, 2_501, "the records and a note");
        assert_eq!(store.recount().unwrap(), (store.state().counters.clone(), store.state().places));
        assert_eq!(
            (store.state().counters.known, store.hosts().count()),
            (1, 1),
            "the next site of this id is untouched"
        );
        let slots: Vec<proto::id::Slot> = kept.slots().collect();
        assert!(
            slots.iter().all(|slot| kept.of(*slot) == digests(&store).of(*slot)),
            "digests are those of what is left"
        );
    }
}
