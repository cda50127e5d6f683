//! Definitions on disk: rows of `meta` whose keys begin with `definition/`. Few, small, and all of them on every node.

use std::collections::BTreeMap;

use proto::cluster::registry::{Definition, DefinitionKey, DefinitionKind};
use proto::cluster::slot_set::SlotSet;
use proto::control::Totals;
use proto::control::crawl::CrawlCounts;
use proto::counters::HostCounters;
use proto::crawl::definition::CrawlDefinition;
use proto::crawl::outcome::OutcomeRules;
use proto::key::{QueueKey, split_due};
use proto::site::SiteDefinition;
use proto::wire;

use super::change::Change;
use super::{Store, StoreError};

const PREFIX: &[u8] = b"definition/";
/// Open URLs of a crawl that are counted; who has more has at least so many.
const OPEN_MAX: u64 = 10_000;
/// Rows of what waits for its time that are looked at for that.
const DUE_LOOKED_AT: usize = 20_000;

fn row_key(key: &DefinitionKey) -> Vec<u8> {
    let kind: &[u8] = match key.kind {
        DefinitionKind::Crawl => b"crawl/",
        DefinitionKind::Site => b"site/",
        DefinitionKind::Job => b"job/",
        DefinitionKind::Setting => b"setting/",
    };
    [PREFIX, kind, key.name.as_bytes()].concat()
}

/// The site that a definition is of.
pub(super) fn site_of(definition: &Definition) -> Option<SiteDefinition> {
    let body = definition.body.as_ref().filter(|_| definition.key.kind == DefinitionKind::Site)?;
    SiteDefinition::decode(body)
}

fn learn_period(periods: &mut BTreeMap<String, Option<u64>>, definition: &Definition) {
    let said = match (&definition.body, definition.key.kind) {
        (Some(body), DefinitionKind::Crawl) => CrawlDefinition::decode(body).ok(),
        (None, DefinitionKind::Crawl) => {
            periods.remove(&definition.key.name);
            return;
        }
        _ => site_of(definition).map(|site| site.crawl()),
    };
    let Some(CrawlDefinition { name, recrawl_period_s, fetch, .. }) = said else { return };
    match (fetch, recrawl_period_s) {
        // Its queue says when a URL is fetched again, not the crawl.
        (Some(_), _) => drop(periods.insert(name, None)),
        (None, Some(seconds)) => drop(periods.insert(name, Some(seconds.saturating_mul(1_000)))),
        (None, None) => drop(periods.remove(&name)),
    }
}

fn learn_limit(limits: &mut BTreeMap<String, u64>, site: &SiteDefinition) {
    match Some(site.site.max_urls).filter(|most| *most > 0 && !site.deleted) {
        Some(most) => drop(limits.insert(site.crawl_name(), most)),
        None => drop(limits.remove(&site.crawl_name())),
    }
}

impl Store {
    /// Everything that is defined, removed ones included.
    pub fn definitions(&self) -> Result<Vec<Definition>, StoreError> {
        let rows = self.rows("meta", PREFIX.to_vec(), PREFIX.to_vec());
        rows.map(|row| wire::decode(&row?.1).map_err(|error| StoreError::damaged("meta", error))).collect()
    }

    /// What becomes of URLs of a crawl: as the settings say, and in the period that its definition names.
    pub(super) fn rules_of(&mut self, crawl: &str) -> Result<OutcomeRules, StoreError> {
        if self.periods.is_none() {
            let mut periods = BTreeMap::new();
            self.definitions()?.iter().for_each(|definition| learn_period(&mut periods, definition));
            self.periods = Some(periods);
        }
        let period = self.periods.as_ref().and_then(|periods| periods.get(crawl).copied());
        Ok(OutcomeRules { recrawl_period_ms: period.unwrap_or(self.rules.recrawl_period_ms), ..self.rules })
    }

    /// What was read from definitions is read anew.
    pub(super) fn forget_definitions(&mut self) {
        (self.periods, self.histories, self.url_limits, self.gone) = (None, None, None, None);
    }

    /// Puts a definition that is new into what was read from the others: to read all of them for each would make many take long.
    fn learn(&mut self, definition: &Definition) {
        if let Some(periods) = &mut self.periods {
            learn_period(periods, definition);
        }
        if let Some(gone) = &mut self.gone {
            gone.take(definition);
            self.sweeping = Default::default();
        }
        let Some(site) = site_of(definition) else { return };
        if let Some(limits) = &mut self.url_limits {
            learn_limit(limits, &site);
        }
        if let Some(histories) = &mut self.histories {
            histories.remove(&site.crawl_name());
            histories.extend(Some(site).filter(SiteDefinition::has_history).map(|site| site.crawl_name()));
        }
    }

    /// So many URLs may still become known here.
    pub fn set_room(&mut self, room: BTreeMap<String, u64>) {
        self.room = room;
    }

    /// Whether one more URL of a crawl may become known because a page names it, and counts it. Until somebody has counted it is one:
    /// a crawl of which nothing is here has no count, and needs a first URL to get one.
    pub(super) fn takes_room(&mut self, crawl: &str) -> Result<bool, StoreError> {
        if self.url_limits.is_none() {
            let mut limits = BTreeMap::new();
            for site in self.definitions()?.iter().filter_map(site_of) {
                learn_limit(&mut limits, &site);
            }
            self.url_limits = Some(limits);
        }
        if !self.url_limits.as_ref().is_some_and(|limits| limits.contains_key(crawl)) {
            return Ok(true);
        }
        let room = self.room.entry(crawl.to_owned()).or_insert(1);
        let free = *room > 0;
        *room = room.saturating_sub(1);
        Ok(free)
    }

    /// Counts the URLs of each crawl in `slots`.
    pub fn crawl_counts(&self, slots: &SlotSet) -> Result<BTreeMap<String, CrawlCounts>, StoreError> {
        let mut crawls: BTreeMap<String, CrawlCounts> = BTreeMap::new();
        for host in self.hosts() {
            let host = host?;
            if !slots.contains(host.queue.slot()) {
                continue;
            }
            let counts = crawls.entry(host.queue.crawl().to_owned()).or_default();
            let HostCounters { known, processed, failed, bytes } = host.counters;
            counts.totals.add(Totals { known, processed, failed, bytes });
            if known > processed && counts.open < OPEN_MAX {
                let prefix = host.queue.as_bytes().to_vec();
                let room = (OPEN_MAX - counts.open) as usize;
                for row in self.rows("ready", prefix.clone(), prefix).take(room) {
                    row?;
                    counts.open += 1;
                }
            }
        }
        if self.state.places.retries > 0 {
            for (key, value) in self.rows_after("due", &[], DUE_LOOKED_AT)? {
                let queue = split_due(&key).and_then(|(_, ready)| QueueKey::prefix_of(ready));
                let queue = queue.ok_or_else(|| StoreError::damaged("due", "a key without a queue"))?;
                let (retry, _): (bool, proto::batch::Entry) =
                    wire::decode(&value).map_err(|error| StoreError::damaged("due", error))?;
                if retry && slots.contains(queue.slot()) {
                    crawls.entry(queue.crawl().to_owned()).or_default().open += 1;
                }
            }
        }
        Ok(crawls)
    }
}

impl Change<'_> {
    /// Keeps definitions that are newer than what is here.
    pub fn keep_definitions(&mut self, definitions: &[Definition]) -> Result<(), StoreError> {
        for definition in definitions {
            let key = row_key(&definition.key);
            let before: Option<Definition> = self.get("meta", &key)?;
            if before.is_none_or(|before| before < *definition) {
                self.put("meta", &key, definition)?;
                self.store.learn(definition);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proto::cluster::registry::Version;
    use proto::id::NodeId;

    use super::super::StoreOptions;
    use super::*;

    fn definition(name: &str, number: u64, body: Option<Vec<u8>>) -> Definition {
        let key = DefinitionKey { kind: DefinitionKind::Crawl, name: name.into() };
        Definition { key, version: Version { number, node: NodeId(1), boot: 1 }, body }
    }

    #[test]
    fn definitions_are_found_again_and_older_ones_change_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let keep = |store: &mut Store, definitions: &[Definition]| {
            let mut change = store.change();
            change.keep_definitions(definitions).unwrap();
            change.commit().unwrap();
        };
        let mut store = Store::open(dir.path(), StoreOptions { replica: true, ..StoreOptions::default() }).unwrap();
        assert!(store.definitions().unwrap().is_empty());
        let (news, shop) = (definition("news", 2, Some(vec![1])), definition("shop", 1, None));
        keep(&mut store, &[news.clone(), shop.clone()]);
        keep(&mut store, &[definition("news", 1, Some(vec![9]))]);
        drop(store);
        let store = Store::open(dir.path(), StoreOptions { replica: true, ..StoreOptions::default() }).unwrap();
        assert_eq!(store.definitions().unwrap(), [news, shop]);
    }

    #[test]
    fn a_crawl_has_the_period_that_its_definition_names() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path(), StoreOptions { replica: true, ..StoreOptions::default() }).unwrap();
        assert_eq!(store.rules_of("news").unwrap().recrawl_period_ms, None);
        let said = CrawlDefinition {
            name: "news".into(),
            seeds: vec!["http://a.example/".into()],
            scope: Default::default(),
            include: Vec::new(),
            exclude: Vec::new(),
            depth_max: None,
            pages_max: None,
            delay_ms: None,
            recrawl_period_s: Some(60),
            state: Default::default(),
            defined_at: 0,
            fetch: None,
        };
        let mut change = store.change();
        change.keep_definitions(&[definition("news", 1, Some(said.encode().unwrap()))]).unwrap();
        change.commit().unwrap();
        assert_eq!(store.rules_of("news").unwrap().recrawl_period_ms, Some(60_000));
        assert_eq!(store.rules_of("other").unwrap().recrawl_period_ms, None);
        let open = CrawlDefinition { fetch: Some(proto::clients::fetch::Fetch::Own), ..said };
        let mut change = store.change();
        change.keep_definitions(&[definition("news", 2, Some(open.encode().unwrap()))]).unwrap();
        change.commit().unwrap();
        assert_eq!(store.rules_of("news").unwrap().recrawl_period_ms, None, "its queue says when");
        // What is learnt of a definition alone is what all of them say.
        let learnt = store.periods.clone();
        store.forget_definitions();
        store.rules_of("news").unwrap();
        assert_eq!(store.periods, learnt);
        let mut change = store.change();
        change.keep_definitions(&[definition("news", 3, None)]).unwrap();
        change.commit().unwrap();
        assert_eq!(store.periods, Some(BTreeMap::new()));
    }
}
