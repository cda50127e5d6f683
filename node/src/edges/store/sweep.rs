//! What is left of sites that were emptied or deleted goes from this disk: records, queues, hosts, contents, notes and history.
//!
//! Nobody runs such a crawl again: its name has an epoch below that of its site. So each node removes what it has by itself, some records at a time, takes no copy of
//! such a record from a peer any more, and gives none.

use proto::cluster::repair::Changed;
use proto::key::{QueueKey, UrlKey};
use proto::site::{Gone, note};

use super::change::Change;
use super::clients::Decided;
use super::notes::note_copy_of;
use super::{Store, StoreError};

/// Records that one job removes: some tens of milliseconds of the disk thread.
const ROWS_AT_ONCE: usize = 1_000;

impl Store {
    /// What is dead by the definitions that are here.
    pub(super) fn gone(&mut self) -> Result<&Gone, StoreError> {
        if self.gone.is_none() {
            let mut gone = Gone::default();
            for definition in self.definitions()? {
                gone.take(&definition);
            }
            self.gone = Some(gone);
            self.swept = false;
        }
        Ok(self.gone.as_ref().expect("just made"))
    }
}

impl Change<'_> {
    /// Removes some of what is left of sites that are gone; says how many records that were.
    pub fn sweep(&mut self) -> Result<Decided<usize>, StoreError> {
        let mut changed = Vec::new();
        self.store.gone()?;
        let mut removed = 0;
        if !self.store.swept {
            removed = self.sweep_hosts(&mut changed)?;
            if removed == 0 {
                removed = self.sweep_notes(&mut changed)?;
            }
            self.store.swept = removed == 0;
        }
        Ok(Decided { said: removed, copies: Vec::new(), changed, life: self.store.life })
    }

    fn sweep_hosts(&mut self, changed: &mut Vec<Changed>) -> Result<usize, StoreError> {
        let mut prefixes: Vec<Vec<u8>> = Vec::new();
        for host in self.store.hosts() {
            let queue = host?.queue;
            let gone = self.store.gone.as_ref().is_some_and(|gone| gone.has(queue.crawl()));
            if gone {
                let length = 2 + queue.domain().len() + 1 + queue.crawl().len() + 1;
                let prefix = queue.as_bytes()[..length].to_vec();
                if prefixes.last() != Some(&prefix) {
                    prefixes.push(prefix);
                }
                if prefixes.len() > ROWS_AT_ONCE {
                    break;
                }
            }
        }
        let mut removed = 0;
        for prefix in prefixes {
            let left = ROWS_AT_ONCE.saturating_sub(removed);
            if left == 0 {
                break;
            }
            let rows = self.store.rows("url", prefix.clone(), prefix.clone()).take(left);
            let mut keys: Vec<UrlKey> =
                rows.map(|row| row.map(|(key, _)| UrlKey::from_bytes(&key))).collect::<Result<_, _>>()?;
            let whole = keys.len() < left;
            keys.extend(self.overlay.keys().filter(|key| key.as_bytes().starts_with(&prefix)).cloned());
            keys.sort();
            keys.dedup();
            for key in keys {
                removed += usize::from(self.remove_record(&key, changed)?);
            }
            if whole {
                removed += 1; // the hosts themselves
                self.forget_domain(&prefix)?;
            }
        }
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

    /// Forgets the hosts of a domain of a crawl that has no records any more.
    fn forget_domain(&mut self, prefix: &[u8]) -> Result<(), StoreError> {
        for family in ["host", "seen"] {
            let rows = self.store.rows(family, prefix.to_vec(), prefix.to_vec());
            let keys: Vec<Box<[u8]>> = rows.map(|row| row.map(|(key, _)| key)).collect::<Result<_, _>>()?;
            keys.iter().for_each(|key| self.delete(family, key));
        }
        self.touched.retain(|queue| !queue.as_bytes().starts_with(prefix));
        self.store.hosts.retain(|queue, _| !queue.as_bytes().starts_with(prefix));
        self.store.paths.retain(|path, _| !path.starts_with(prefix));
        Ok(())
    }

    fn sweep_notes(&mut self, changed: &mut Vec<Changed>) -> Result<usize, StoreError> {
        let mut keys = Vec::new();
        for row in self.store.rows("note", Vec::new(), Vec::new()) {
            let (key, value) = row?;
            let key = UrlKey::from_bytes(&key);
            debug_assert!(note::is_note(&key));
            if self.store.gone.as_ref().is_some_and(|gone| gone.has(key.crawl().unwrap_or_default())) {
                keys.push((note_copy_of(key.clone(), &value)?, key));
                if keys.len() >= ROWS_AT_ONCE {
                    break;
                }
            }
        }
        let removed = keys.len();
        for (copy, key) in keys {
            if !self.notes.contains_key(&key) {
                changed.push(self.digest(&key, Some(copy.hash()), None));
                self.delete("note", key.as_bytes());
            }
        }
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
            if swept.said == 0 {
                break;
            }
            removed += swept.said;
        }
        assert!(removed >= 2_501, "{removed}");
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
