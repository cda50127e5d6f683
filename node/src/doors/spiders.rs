//! What spiders report and ask for, carried to the nodes that keep their pages. Whoever is asked sends each part to the first living node of its slot, as for all clients.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use proto::clients::ask::{Ask, Counts, Look, Said};
use proto::clients::spider::{Crawled, Found, Link, PAGES, SpiderAsk, SpiderSaid, page_key, queue_of};
use proto::id::{NodeId, Slot};
use proto::url::{CanonicalUrl, UrlRules};

use super::frontier::desk::{Desk, Unavailable, owner};
use crate::edges::store::page_of_row;

/// Pages, and bytes of pages, that are sent to a node at once.
const PARCEL_PAGES: usize = 500;
const PARCEL_BYTES: usize = 512 << 10;
/// Pages that one node hands out at once.
const TAKE_MAX: u32 = 1_000;
/// Times that the nodes are asked for what is still wanted.
const ROUNDS_MAX: usize = 16;
/// Nodes that are tried for one slot.
const TRIES: usize = 3;

/// A page as a spider reports it, in canonical form.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The page; none for a list of seeds.
    pub url: Option<CanonicalUrl>,
    /// What its content is worth.
    pub score: f32,
    /// What tells its content from others.
    pub content_hash: Option<u64>,
    /// Its links.
    pub links: Vec<Link>,
}

/// The desk for spiders; clones share it.
#[derive(Clone)]
pub struct SpiderDesk {
    desk: Desk,
    /// The node that is asked first, so that they take turns.
    first: Arc<AtomicUsize>,
}

/// Something for the node of a slot: slot, bytes, what.
type Parcel<T> = (Slot, usize, T);

impl SpiderDesk {
    /// Spiders come to this desk.
    pub fn new(desk: Desk) -> SpiderDesk {
        SpiderDesk { desk, first: Arc::default() }
    }

    /// Takes in pages that were crawled, and what they link to.
    pub async fn crawled(&self, reports: Vec<Report>) -> Result<(), Unavailable> {
        let pages: Vec<Parcel<Crawled>> = reports.iter().filter_map(crawled).collect();
        let mut depths = vec![0; pages.len()];
        for (places, said) in self.send(pages, SpiderAsk::Crawled).await? {
            let SpiderSaid::Crawled(told) = said else { return Err(strange()) };
            places.into_iter().zip(told).for_each(|(place, depth)| depths[place] = depth);
        }
        // One page may be linked to by many: its best link counts.
        let mut found: BTreeMap<&str, Found> = BTreeMap::new();
        let mut depths = depths.into_iter();
        for report in &reports {
            let (depth, linked_from) = match &report.url {
                None => (0, None),
                Some(url) => (depths.next().unwrap_or(0) + 1, Some(page_key(url).id())),
            };
            for Link { url, score } in &report.links {
                let new = || Found { url: url.clone(), score: *score, depth, linked_from };
                let page = found.entry(url).or_insert_with(new);
                (page.score, page.depth) = (page.score.max(*score), page.depth.min(depth));
            }
        }
        let found = found.into_values().filter_map(|page| {
            let slot = queue_of(&canonical(&page.url)?).slot();
            Some((slot, page.url.len() + 40, page))
        });
        self.send(found.collect(), SpiderAsk::Found).await.map(drop)
    }

    /// Takes back pages that could not be fetched; says how many are known.
    pub async fn failed(&self, urls: Vec<CanonicalUrl>) -> Result<u64, Unavailable> {
        let urls = urls.into_iter().map(|url| (queue_of(&url).slot(), url.as_str().len() + 16, url.into_string()));
        sum(self.send(urls.collect(), SpiderAsk::Failed).await?)
    }

    /// Has pages crawled so often, in Hz; says how many are known.
    pub async fn frequencies(&self, pages: Vec<(CanonicalUrl, f64)>) -> Result<u64, Unavailable> {
        let slot = |url: &CanonicalUrl| queue_of(url).slot();
        let pages =
            pages.into_iter().map(|(url, hz)| (slot(&url), url.as_str().len() + 24, (url.into_string(), hz))).collect();
        sum(self.send(pages, SpiderAsk::Frequencies).await?)
    }

    /// Hands pages out: of domains that are cool enough for the soft rate as long as any node has some, then of all that the hard rate lets out.
    pub async fn request(&self, wanted: u32, lease_s: u32) -> Result<Vec<String>, Unavailable> {
        let mut given = self.take(wanted, |wanted| SpiderAsk::TakeCool { wanted, lease_s }).await?;
        let left = wanted.saturating_sub(given.len() as u32);
        if left > 0 {
            given.extend(self.take(left, |wanted| SpiderAsk::Take { wanted, lease_s }).await?);
        }
        Ok(given)
    }

    /// Every node gives of those that it holds, a fair share of what is wanted; what one has too little of, the others may fill.
    async fn take(&self, wanted: u32, ask: impl Fn(u32) -> SpiderAsk) -> Result<Vec<String>, Unavailable> {
        let mut nodes: Vec<NodeId> = self.desk.places().await?.alive.into_iter().collect();
        let begins = self.first.fetch_add(1, Relaxed) % nodes.len().max(1);
        nodes.rotate_left(begins);
        let (mut given, mut left) = (Vec::new(), wanted);
        for _ in 0..ROUNDS_MAX {
            let count = nodes.len() as u32;
            let share = |place: u32| (left / count + u32::from(place < left % count)).min(TAKE_MAX);
            let asked: Vec<(NodeId, u32)> = nodes
                .iter()
                .zip(0..)
                .map(|(node, place)| (*node, share(place)))
                .filter(|(_, share)| *share > 0)
                .collect();
            let calls = asked.iter().map(|(node, wanted)| self.desk.ask(*node, Ask::Spider(ask(*wanted))));
            let said = futures_util::future::join_all(calls).await;
            // Who gave less than it was asked for has no more; who did not answer is left out.
            nodes.retain(|node| !asked.iter().any(|(of, _)| of == node));
            for ((node, share), said) in asked.into_iter().zip(said) {
                let Ok(Said::Spider(SpiderSaid::Given(urls))) = said else { continue };
                left = left.saturating_sub(urls.len() as u32);
                if urls.len() >= share as usize {
                    nodes.push(node);
                }
                given.extend(urls);
            }
            if left == 0 || nodes.is_empty() {
                break;
            }
        }
        Ok(given)
    }

    /// Puts up again what was never crawled and nobody is to crawl any more; says how many pages.
    pub async fn reload(&self) -> Result<u64, Unavailable> {
        let nodes = self.desk.places().await?.alive;
        let mut reloaded = 0;
        for node in nodes {
            let mut after = None;
            loop {
                match self.desk.ask(node, Ask::Spider(SpiderAsk::Reload { after })).await? {
                    Said::Spider(SpiderSaid::Reloaded(pages, next)) => (reloaded, after) = (reloaded + pages, next),
                    _ => return Err(strange()),
                }
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(reloaded)
    }

    /// Counts pages and domains.
    pub async fn stats(&self) -> Result<Counts, Unavailable> {
        let count = |node, slots| async move {
            let (mut counts, mut after) = (Counts::default(), None);
            loop {
                let look = Look::Stats { slots: Clone::clone(&slots), crawl: PAGES.to_owned(), key: None, after };
                match self.desk.ask(node, Ask::Look(look)).await? {
                    Said::Stats(part, next) => (after, ()) = (next, counts.add(part)),
                    _ => return Err(strange()),
                }
                if after.is_none() {
                    return Ok(counts);
                }
            }
        };
        let mut all = Counts::default();
        self.desk.ask_all(false, count).await?.into_iter().for_each(|counts| all.add(counts));
        Ok(all)
    }

    /// Tells what the page graph says of pages, by their keys; says how many are known.
    pub async fn worth(&self, pages: Vec<(proto::key::UrlKey, i16)>) -> Result<u64, Unavailable> {
        let parcel =
            |(key, level): (proto::key::UrlKey, i16)| (key.slot(), key.as_bytes().len() + 8, (key.into_bytes(), level));
        sum(self.send(pages.into_iter().map(parcel).collect(), SpiderAsk::Worth).await?)
    }

    /// Tells what was found on pages that the cluster crawls itself to the nodes that keep these; rows that are none are left out.
    pub async fn links(&self, rows: Vec<Vec<u8>>) -> Result<(), Unavailable> {
        let parcel = |row: Vec<u8>| Some((page_of_row(&row)?.slot(), row.len() + 8, row));
        self.send(rows.into_iter().filter_map(parcel).collect(), SpiderAsk::Links).await.map(drop)
    }

    /// Sends things to the nodes of their slots; answers with the places of those that each answer is about. What a node does not answer, the next one does.
    async fn send<T: Clone>(
        &self,
        things: Vec<Parcel<T>>,
        ask: impl Fn(Vec<T>) -> SpiderAsk,
    ) -> Result<Vec<(Vec<usize>, SpiderSaid)>, Unavailable> {
        let mut open: Vec<usize> = (0..things.len()).collect();
        let (mut answers, mut passed_over) = (Vec::new(), BTreeSet::new());
        let mut last = Unavailable("no node of these pages is alive".to_owned());
        for _ in 0..TRIES {
            if open.is_empty() {
                break;
            }
            let places = self.desk.places().await?;
            let mut shares: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
            for place in std::mem::take(&mut open) {
                let owner = owner(&places, things[place].0, &passed_over).ok_or_else(|| last.clone())?;
                shares.entry(owner).or_default().push(place);
            }
            let sent = shares.into_iter().map(|(node, places)| self.send_to(node, places, &things, &ask));
            for (node, said, unsent) in futures_util::future::join_all(sent).await {
                answers.extend(said);
                if let Some((error, places)) = unsent {
                    tracing::warn!(%error, "asking the next node of these pages");
                    (last, open) = (error, [open, places].concat());
                    passed_over.insert(node);
                }
            }
        }
        if open.is_empty() { Ok(answers) } else { Err(last) }
    }

    /// Sends things to one node, some at a time; answers with what it did not take, too.
    #[allow(clippy::type_complexity)] // answers, and what is left
    async fn send_to<T: Clone>(
        &self,
        node: NodeId,
        places: Vec<usize>,
        things: &[Parcel<T>],
        ask: impl Fn(Vec<T>) -> SpiderAsk,
    ) -> (NodeId, Vec<(Vec<usize>, SpiderSaid)>, Option<(Unavailable, Vec<usize>)>) {
        let (mut answers, mut begin) = (Vec::new(), 0);
        while begin < places.len() {
            let (mut end, mut bytes) = (begin, 0);
            while end < places.len() && end - begin < PARCEL_PAGES && (end == begin || bytes < PARCEL_BYTES) {
                bytes += things[places[end]].1;
                end += 1;
            }
            let parcel = places[begin..end].iter().map(|place| things[*place].2.clone()).collect();
            match self.desk.ask(node, Ask::Spider(ask(parcel))).await {
                Ok(Said::Spider(said)) => answers.push((places[begin..end].to_vec(), said)),
                Ok(_) => return (node, answers, Some((strange(), places[begin..].to_vec()))),
                Err(error) => return (node, answers, Some((error, places[begin..].to_vec()))),
            }
            begin = end;
        }
        (node, answers, None)
    }
}

fn crawled(report: &Report) -> Option<Parcel<Crawled>> {
    let Report { url, score, content_hash, links } = report;
    let url = url.as_ref()?;
    let links: Vec<String> = links.iter().map(|link| link.url.clone()).collect();
    let bytes = url.as_str().len() + 32 + links.iter().map(|link| link.len() + 8).sum::<usize>();
    let page = Crawled { url: url.as_str().to_owned(), score: *score, content_hash: *content_hash, links };
    Some((queue_of(url).slot(), bytes, page))
}

fn canonical(url: &str) -> Option<CanonicalUrl> {
    CanonicalUrl::parse(url, &UrlRules::AS_IT_IS).ok()
}

fn sum(answers: Vec<(Vec<usize>, SpiderSaid)>) -> Result<u64, Unavailable> {
    answers.into_iter().try_fold(0, |all, (_, said)| match said {
        SpiderSaid::Changed(count) => Ok(all + count),
        _ => Err(strange()),
    })
}

fn strange() -> Unavailable {
    Unavailable("a node answered something else".to_owned())
}
