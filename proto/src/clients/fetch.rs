//! Whose fetchers ask for the URLs of a crawl that is open to clients, and how the nodes' own fetchers get theirs.
//!
//! All URLs of such a crawl wait in queues of clients; what a page of it links to goes there too. The nodes' own fetchers are one more client of these
//! queues: a node takes URLs of slots that it serves by the same gate as anybody, and hands them to the crawl of that name, which fetches them with its own rules,
//! robots.txt and politeness. What became of them is written back, as a client would.
//!
//! **Their lease has no end.** It says since when it is ([`own_lease`]), lies on W disks like every lease, and ends when the URL is settled, given back, or put by a client.
//! So no clock gives a URL to a client while it waits behind a slow host, and who serves the slot next finds on its disk what is out and goes on: [`OwnFetches`] remembers
//! nothing that is not there. Whoever is killed at any moment leaves a URL that is leased, and that the crawl knows or does not know; both are looked up.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::ask::{Item, Told, slot_of};
use super::identity::queue_key;
use super::record::Metadata;
use crate::batch::{Discovered, EntryKind};
use crate::cluster::copy::Kept;
use crate::cluster::slot_set::SlotSet;
use crate::record::{Status, UrlState};
use crate::url::{CanonicalUrl, UrlRules};

/// URLs of a crawl that a node has handed to its own fetchers at once; more wait in their queues. So many that two thousand hosts that do not answer stop no others.
pub const HELD_MAX: usize = 16_384;
/// Those of one queue, about: a slow host must not take the room of all others.
pub const HELD_OF_QUEUE: u32 = 8;
/// What waits long is looked up less and less often, but at least after this time.
const LOOK_AGAIN_MS: u64 = 30_000;

/// Leases of the nodes' own fetchers end here and later: behind every lease that a client can have.
const OWN_LEASES: u64 = 1 << 62;

/// Priority of what nobody ranked.
const PRIORITY: u16 = 100;

/// Who fetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fetch {
    /// The nodes; clients may put URLs and look.
    Own,
    /// Clients; the nodes fetch nothing.
    Clients,
    /// Whoever comes first to a URL.
    Both,
}

/// A word that is none of these.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} does not say who fetches: own (the nodes), clients, or both")]
pub struct UnknownFetch(pub String);

impl Fetch {
    /// As people write it.
    pub const fn name(self) -> &'static str {
        match self {
            Fetch::Own => "own",
            Fetch::Clients => "clients",
            Fetch::Both => "both",
        }
    }

    /// Whether the nodes do.
    pub const fn by_nodes(self) -> bool {
        !matches!(self, Fetch::Clients)
    }

    /// Whether clients do.
    pub const fn by_clients(self) -> bool {
        !matches!(self, Fetch::Own)
    }
}

impl fmt::Display for Fetch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl FromStr for Fetch {
    type Err = UnknownFetch;

    fn from_str(text: &str) -> Result<Fetch, UnknownFetch> {
        let all = [Fetch::Own, Fetch::Clients, Fetch::Both];
        all.into_iter().find(|fetch| fetch.name() == text).ok_or_else(|| UnknownFetch(text.to_owned()))
    }
}

/// The end of a lease that has none, taken at `now_ms`.
pub fn own_lease(now_ms: u64) -> u64 {
    OWN_LEASES + now_ms.min(OWN_LEASES - 1)
}

/// Since when the nodes' own fetchers have a URL, if it is they who have it.
pub fn own_since(leased_until_ms: u64) -> Option<u64> {
    leased_until_ms.checked_sub(OWN_LEASES)
}

// What the nodes find goes into queues of clients with these words, so that depth and kind are known again when it is taken.
const DEPTH: &str = "orbweaver.depth";
const REDIRECTS: &str = "orbweaver.redirects";
const RANK: &str = "orbweaver.priority";
const SITEMAP: &str = "orbweaver.sitemap";

/// What a page of a crawl links to, as it is put into the queue of its host; `None` if no queue can have it.
pub fn item_of(crawl: &str, found: &Discovered) -> Option<Item> {
    let url = found.url.as_str().to_owned();
    let key = queue_key("", &url).ok()?;
    let mut metadata = Metadata::new();
    let mut word = |name: &str, value: u16, usual: u16| {
        if value != usual {
            metadata.push((name.to_owned(), vec![value.to_string()]));
        }
    };
    word(DEPTH, found.depth, 0);
    word(RANK, found.priority, PRIORITY);
    word(REDIRECTS, u16::from(found.redirects), 0);
    word(SITEMAP, u16::from(found.kind == EntryKind::Sitemap), 0);
    Some(Item { crawl: crawl.to_owned(), key, url, metadata, date_s: None })
}

/// A URL of a queue as the crawl takes it; `None` if it is no URL that can be fetched. What a client put counts as a seed: its words about depth are not ours.
pub fn discovered_of(told: &Told, urls: &UrlRules) -> Option<Discovered> {
    let word = |name: &str| {
        let values = told.metadata.iter().find(|(of, _)| of == name).map(|(_, values)| values);
        values.and_then(|values| values.first()?.parse::<u16>().ok())
    };
    let url = CanonicalUrl::parse(&told.url, urls).ok()?;
    let kind = if word(SITEMAP).is_some_and(|is| is > 0) { EntryKind::Sitemap } else { EntryKind::Page };
    let redirects = u8::try_from(word(REDIRECTS).unwrap_or(0)).unwrap_or(u8::MAX);
    Some(Discovered { url, kind, depth: word(DEPTH).unwrap_or(0), priority: word(RANK).unwrap_or(PRIORITY), redirects })
}

/// A URL that the nodes' own fetchers have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Which, and what its queue knows of it.
    pub told: Told,
    /// Since when, Unix milliseconds.
    pub since_ms: u64,
}

impl Lease {
    fn name(&self) -> Name {
        let Told { crawl, key, url, .. } = &self.told;
        (crawl.clone(), key.clone(), url.clone())
    }

    /// Since when a fetch is the one that is wanted: since it was taken; or since it was found, if nobody has said since then when it is to be fetched.
    fn wanted_ms(&self) -> u64 {
        let found_s = self.told.created_s;
        if self.told.date_s == found_s.max(1) {
            self.since_ms.min(found_s.saturating_mul(1_000))
        } else {
            self.since_ms
        }
    }
}

/// Crawl, key and URL.
type Name = (String, String, String);

/// What the crawl knows of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// How far it is.
    pub stage: FoundStage,
    /// When it was last asked for, or given up, Unix milliseconds.
    pub crawled_ms: u64,
}

/// How far the crawl is with a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundStage {
    /// It waits for its turn.
    Waits,
    /// It is being fetched, or its links are on their way.
    UnderWay,
    /// It was taken back, or refused by the rules of the time.
    Withdrawn,
    /// It was fetched, or has failed for good.
    Closed,
}

impl Found {
    /// What a record says.
    pub fn of(kept: &Kept) -> Found {
        let record = &kept.record;
        let stage = match record.progress.status {
            _ if record.state == UrlState::Disabled || record.state.is_gone() => FoundStage::Withdrawn,
            _ if kept.is_closed() => FoundStage::Closed,
            Status::Undefined | Status::New => FoundStage::Waits,
            _ => FoundStage::UnderWay,
        };
        Found { stage, crawled_ms: record.findings.as_ref().map_or(0, |found| found.crawled_at) }
    }
}

/// A crawl at this moment.
#[derive(Clone, Copy, Debug)]
pub struct CrawlNow {
    /// The nodes fetch its URLs now.
    pub fetches: bool,
    /// After what time a page is fetched again.
    pub recrawl_s: Option<u64>,
}

/// A URL that was looked up.
#[derive(Clone, Debug)]
pub struct Looked {
    /// Which.
    pub lease: Lease,
    /// It is a URL, and the crawl's rules admit it.
    pub belongs: bool,
    /// What the crawl knows of it.
    pub found: Option<Found>,
}

/// The end of a lease of the nodes' own fetchers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Which.
    pub lease: Lease,
    /// When it may be handed out again, Unix seconds, 0 for never; as before if absent: it is given back.
    pub date_s: Option<u64>,
}

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// The node serves these slots: what is in others is no longer its business.
    Served(SlotSet),
    /// URLs of one crawl were taken just now, or found on disk as taken.
    Leased(Vec<Lease>),
    /// They were looked up.
    Looked(CrawlNow, Vec<Looked>),
    /// The crawl has put these up once more.
    Renewed(Vec<Lease>),
    /// These are over, on enough disks.
    Ended(Vec<Lease>),
}

/// What to do. Whatever fails is tried again after the next look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Hand URLs to the crawl, which does not know them.
    Submit(Vec<Lease>),
    /// Have the crawl fetch URLs again that it knows.
    Renew(Vec<Lease>),
    /// Take URLs back from the crawl, which has not begun with them.
    Withdraw(Vec<Lease>),
    /// Write down what became of URLs.
    End(Vec<End>),
}

/// What this node's own fetchers have of queues of clients.
#[derive(Debug, Default)]
pub struct OwnFetches {
    held: BTreeMap<Name, Held>,
}

#[derive(Debug)]
struct Held {
    lease: Lease,
    /// The crawl has put it up again for this lease: what is closed now is what we wait for, whatever the clocks say.
    renewed: bool,
    /// When to look it up next, Unix milliseconds.
    look_ms: u64,
}

/// What is to become of a URL.
enum Next {
    Wait,
    Submit,
    Renew,
    Withdraw,
    End(Option<u64>),
}

impl OwnFetches {
    /// How many more of a crawl may be taken.
    pub fn room(&self, crawl: &str) -> usize {
        HELD_MAX.saturating_sub(self.of(crawl).count())
    }

    /// What is to be looked up of a crawl now.
    pub fn due(&self, now_ms: u64, crawl: &str) -> Vec<Lease> {
        self.of(crawl).filter(|held| held.look_ms <= now_ms).map(|held| held.lease.clone()).collect()
    }

    fn of(&self, crawl: &str) -> impl Iterator<Item = &Held> {
        let from = (crawl.to_owned(), String::new(), String::new());
        self.held.range(from..).map(|(_, held)| held).take_while(move |held| held.lease.told.crawl == crawl)
    }

    /// Takes in what happened.
    pub fn step(&mut self, now_ms: u64, input: Input, out: &mut Vec<Effect>) {
        match input {
            Input::Served(slots) => self.held.retain(|(crawl, key, _), _| slots.contains(slot_of(crawl, key))),
            Input::Leased(leases) => {
                // What is found on disk beyond the bound, because another node had it, is found again when there is room.
                let Some(first) = leases.first() else { return };
                let room = (2 * HELD_MAX).saturating_sub(self.of(&first.told.crawl).count());
                leases.into_iter().take(room).for_each(|lease| self.take_in(lease));
            }
            Input::Looked(crawl, urls) => self.looked(now_ms, crawl, urls, out),
            Input::Renewed(leases) => {
                for lease in leases {
                    if let Some(held) = self.held.get_mut(&lease.name()).filter(|held| held.lease == lease) {
                        held.renewed = true;
                    }
                }
            }
            Input::Ended(leases) => {
                for lease in leases {
                    if self.held.get(&lease.name()).is_some_and(|held| held.lease == lease) {
                        self.held.remove(&lease.name());
                    }
                }
            }
        }
    }

    fn take_in(&mut self, lease: Lease) {
        let known = self.held.get(&lease.name()).is_some_and(|held| held.lease.since_ms >= lease.since_ms);
        if !known {
            self.held.insert(lease.name(), Held { lease, renewed: false, look_ms: 0 });
        }
    }

    fn looked(&mut self, now_ms: u64, crawl: CrawlNow, urls: Vec<Looked>, out: &mut Vec<Effect>) {
        let (mut submit, mut renew, mut withdraw, mut ends) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for url in urls {
            let Some(held) = self.held.get_mut(&url.lease.name()).filter(|held| held.lease == url.lease) else {
                continue;
            };
            match next(now_ms, crawl, &url, held.renewed) {
                Next::Wait => {
                    let age_ms = now_ms.saturating_sub(url.lease.since_ms);
                    held.look_ms = now_ms + (age_ms / 4).min(LOOK_AGAIN_MS);
                }
                Next::Submit => submit.push(url.lease),
                Next::Renew => renew.push(url.lease),
                Next::Withdraw => withdraw.push(url.lease),
                Next::End(date_s) => ends.push(End { lease: url.lease, date_s }),
            }
        }
        let lists = [(submit, Effect::Submit as fn(Vec<Lease>) -> Effect), (renew, Effect::Renew)];
        let lists = lists.into_iter().chain([(withdraw, Effect::Withdraw as fn(Vec<Lease>) -> Effect)]);
        out.extend(lists.filter(|(list, _)| !list.is_empty()).map(|(list, effect)| effect(list)));
        if !ends.is_empty() {
            out.push(Effect::End(ends));
        }
    }
}

/// Decides what is to become of a URL.
fn next(now_ms: u64, crawl: CrawlNow, url: &Looked, renewed: bool) -> Next {
    if !url.belongs {
        return Next::End(Some(0));
    }
    let Some(found) = url.found else {
        return if crawl.fetches { Next::Submit } else { Next::End(None) };
    };
    let done = renewed || found.crawled_ms >= url.lease.wanted_ms();
    let settled = || {
        let crawled_s = if found.crawled_ms == 0 { now_ms } else { found.crawled_ms } / 1_000;
        Next::End(Some(crawl.recrawl_s.map_or(0, |period| crawled_s.saturating_add(period).max(1))))
    };
    match (found.stage, crawl.fetches) {
        (FoundStage::UnderWay, _) | (FoundStage::Waits, true) => Next::Wait,
        (FoundStage::Waits, false) => Next::Withdraw,
        (FoundStage::Closed, _) if done => settled(),
        (FoundStage::Withdrawn, true) if renewed => settled(), // its rules refuse it after all
        (FoundStage::Closed | FoundStage::Withdrawn, true) => Next::Renew,
        (FoundStage::Closed | FoundStage::Withdrawn, false) => Next::End(None),
    }
}

#[cfg(test)]
mod tests;
