//! URL_FETCH: looks for URLs of sites, and claims them if that is asked for.
//!
//! A claim is made under a lock that the whole cluster has once ([`FetchLock`]): look, change, answer. Only URLs that this call changed are given out, so of two who
//! ask at once each gets its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};

use proto::cluster::registry::Version;
use proto::control::records::{QueryText, UrlName};
use proto::crawl::crawls::Crawls;
use proto::query::ROWS_MAX;
use proto::site::{Attribute, FetchLock, KEPT, UrlFetch, code, shares, with_site, with_window};
use serde_json::{Value as Json, json};
use tokio::time::{Duration, Instant, sleep};

use super::Shared;
use super::site::{Change, Failed};
use super::urls::{objects, update_of};
use crate::edges::clock::unix_ms;
use crate::edges::swarm::Swarm;
use crate::edges::swarm::identity::node_of;
use crate::messages::Define;
use crate::node::Node;

/// How long somebody else's claim is waited for.
const LOCK_PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks at the lock, and this much more at most: those who wait do not all come at once.
const LOCK_AGAIN: Duration = Duration::from_millis(100);
const LOCK_SPREAD: u64 = 100;

/// What each site is to give, and what could not be counted.
struct SharedOut<'a> {
    of: Vec<(&'a str, usize)>,
    missing: Option<String>,
}

impl Shared {
    /// URLs of sites that meet criterions, of each request in a list; and what could not be looked at.
    pub(super) async fn url_fetch(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        bodies: Vec<Json>,
    ) -> Result<(Json, Option<String>), Failed> {
        let bodies = if bodies.is_empty() { vec![Json::Null] } else { bodies };
        let mut fetches = Vec::with_capacity(bodies.len());
        for body in bodies {
            let fetch = UrlFetch::read(body)?;
            fetch.checked()?;
            fetch.url_update()?.as_ref().map(update_of).transpose()?;
            fetches.push(fetch);
        }
        let (mut urls, mut missing) = (Vec::new(), None);
        for fetch in &fetches {
            let lock = if fetch.locks() { Some(self.lock_fetches(node).await?) } else { None };
            let found = self.fetch(node, swarm, fetch, lock.map(|(lock, _)| lock)).await;
            if let Some((lock, version)) = lock {
                self.unlock_fetches(node, lock, version).await;
            }
            let (found, silent) = found?;
            urls.extend(found);
            missing = missing.or(silent);
        }
        Ok((Json::Array(urls), missing))
    }

    async fn fetch(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        fetch: &UrlFetch,
        lock: Option<FetchLock>,
    ) -> Result<(Vec<Json>, Option<String>), Failed> {
        let crawls = node.crawls();
        let (sites, uncounted) = self.sites_of(node, swarm, fetch, &crawls).await?;
        // What cannot be done is said before anything is.
        for id in &sites {
            if let (Some(update), Some((known, _))) = (fetch.site_update(id)?, crawls.site(id)) {
                update.apply(known, unix_ms())?;
            }
        }
        let (mut urls, missing) = self.looked_for(node, swarm, fetch, &sites).await?;
        let missing = uncounted.or(missing);
        if let Some(order) = fetch.url_update()? {
            if let Some(why) = missing {
                return Err(Failed::new(code::NOT_KEPT, format!("{why}; which URLs are meant cannot be said now")));
            }
            if lock.is_some_and(|lock| !lock.is_fresh(unix_ms())) {
                let why = "looking for URLs took so long that others may claim them by now; ask for fewer sites";
                return Err(Failed::new(code::NOT_KEPT, why));
            }
            urls = self.claimed(node, swarm, urls, update_of(&order)?).await?;
        }
        for id in &sites {
            if let Some(update) = fetch.site_update(id)? {
                self.change_site(node, swarm, id, &Change::Update(update)).await?;
            }
        }
        if fetch.wants_attributes() {
            self.put_attributes(node, swarm, fetch, &mut urls).await?;
        }
        let told = |url: Json| {
            let site = url["siteId"].as_str().and_then(|id| crawls.site(id)).map(|(site, _)| Arc::clone(site));
            match site {
                Some(site) => with_window(with_site(url, &site.site), &crawls, unix_ms()),
                None => url,
            }
        };
        Ok((urls.into_iter().map(told).collect(), missing))
    }

    /// The URLs that are meant, as they are now.
    async fn looked_for(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        fetch: &UrlFetch,
        sites: &[&str],
    ) -> Result<(Vec<Json>, Option<String>), Failed> {
        let query = fetch.checked()?;
        let criterions = |limit: Option<usize>| {
            let said = fetch.limited(limit);
            QueryText::Criterions {
                condition: said.condition,
                order: said.order,
                limit: limit.unwrap_or(query.limit),
                offset: query.offset,
                urls_only: false,
            }
        };
        let mut groups = vec![(criterions(None), sites.to_vec())];
        let (mut urls, mut missing) = (Vec::new(), None);
        if fetch.algorithm == 1 && sites.len() > 1 {
            let wanted = query.limit;
            let shared = self.shared_out(node, swarm, fetch, sites, wanted, query.offset).await?;
            missing = shared.missing;
            groups = shared.of.into_iter().map(|(site, share)| (criterions(Some(share)), vec![site])).collect();
        }
        for (text, sites) in groups {
            let answered = self.look(node, swarm, &text, &sites).await?;
            missing = missing.or(answered.missing);
            urls.extend(objects(answered.table));
        }
        urls.truncate(query.limit);
        Ok((urls, missing))
    }

    /// How many URLs each site is to give, in the order in which they are asked; they are counted before, so that others fill up what one has not.
    async fn shared_out<'a>(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        fetch: &UrlFetch,
        sites: &[&'a str],
        wanted: usize,
        offset: usize,
    ) -> Result<SharedOut<'a>, Failed> {
        let (mut have, mut missing) = (BTreeMap::new(), None);
        for sites in sites.chunks(ROWS_MAX) {
            let answered = self.look(node, swarm, &QueryText::Whole(fetch.counting()), sites).await?;
            missing = missing.or(answered.missing);
            for row in objects(answered.table) {
                if let (Some(site), Some(count)) = (row["siteId"].as_str(), row["COUNT(*)"].as_u64()) {
                    have.insert(site.to_owned(), (count as usize).saturating_sub(offset));
                }
            }
        }
        let crawls = node.crawls();
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = sites.iter().filter_map(|id| crawls.site(id)).map(|(site, _)| &site.site);
        let place: BTreeMap<&str, &'a str> = sites.iter().map(|id| (*id, *id)).collect();
        let order: Vec<&'a str> = turns.order(asked).into_iter().filter_map(|id| place.get(id).copied()).collect();
        let counts: Vec<usize> = order.iter().map(|id| have.get(*id).copied().unwrap_or(0)).collect();
        let of: Vec<(&'a str, usize)> =
            order.into_iter().zip(shares(wanted, &counts)).filter(|(_, share)| *share > 0).collect();
        turns
            .gave(of.iter().map(|(id, _)| *id), unix_ms(), |id| crawls.site(id).is_some_and(|(site, _)| !site.deleted));
        Ok(SharedOut { of, missing })
    }

    /// Those of the URLs that were changed now, and not by somebody before.
    async fn claimed(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        urls: Vec<Json>,
        amendment: proto::cluster::amend::Amendment,
    ) -> Result<Vec<Json>, Failed> {
        let mut by_site: BTreeMap<String, Vec<(usize, UrlName)>> = BTreeMap::new();
        for (at, url) in urls.iter().enumerate() {
            if let (Some(site), Some(name)) = (url["siteId"].as_str(), url["url"].as_str()) {
                by_site.entry(site.to_owned()).or_default().push((at, UrlName::Url(name.to_owned())));
            }
        }
        let mut changed: BTreeSet<usize> = BTreeSet::new();
        for (site, named) in by_site {
            let crawl = self.crawl_of(node, &site)?;
            let (places, names): (Vec<usize>, Vec<UrlName>) = named.into_iter().unzip();
            let done = self.amend(node, swarm, &crawl, names, amendment).await;
            let done = done.map_err(|error| Failed::new(code::NOT_KEPT, error))?;
            changed.extend(places.into_iter().zip(done).filter(|(_, done)| *done == Some(true)).map(|(at, _)| at));
        }
        Ok(urls.into_iter().enumerate().filter(|(at, _)| changed.contains(at)).map(|(_, url)| url).collect())
    }

    /// Puts the attributes that are asked for beside the URLs that have them.
    async fn put_attributes(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        fetch: &UrlFetch,
        urls: &mut [Json],
    ) -> Result<(), Failed> {
        let mut of_sites: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for url in urls.iter() {
            if let (Some(site), Some(id)) = (url["siteId"].as_str(), url["urlMd5"].as_str()) {
                of_sites.entry(site.to_owned()).or_default().insert(id.to_owned());
            }
        }
        let mut found: BTreeMap<(String, String), Vec<Json>> = BTreeMap::new();
        for (site, ids) in of_sites {
            for attribute in self.attributes_of(node, swarm, &site, &ids).await? {
                if fetch.wants_attribute(&attribute.name) {
                    let of = (site.clone(), attribute.url_md5.clone());
                    found.entry(of).or_default().push(Attribute::json(&attribute));
                }
            }
        }
        for url in urls {
            let of = (url["siteId"].as_str().unwrap_or_default(), url["urlMd5"].as_str().unwrap_or_default());
            let attributes = found.remove(&(of.0.to_owned(), of.1.to_owned())).unwrap_or_default();
            for name in KEPT {
                let kept = attributes.iter().find(|attribute| attribute["name"] == name);
                let value = kept.and_then(|attribute| attribute["value"].as_str()?.parse::<u64>().ok());
                value.into_iter().for_each(|value| url[name] = json!(value));
            }
            url["attributes"] = json!(attributes);
        }
        Ok(())
    }

    /// Takes the lock, or says that somebody else has it for too long.
    async fn lock_fetches(&self, node: &Node) -> Result<(FetchLock, Version), Failed> {
        let (me, deadline) = (node_of(&self.me), Instant::now() + LOCK_PATIENCE);
        let mut why = "somebody else is claiming URLs".to_owned();
        for attempt in 0_u64.. {
            let (known, expects) = node.fetch_lock();
            if let Some(lock) = FetchLock::taken(known, me, unix_ms()) {
                let body = lock.encode().map_err(|error| Failed::new(code::NOT_KEPT, error))?;
                match node.define(Define { key: FetchLock::key(), expects, body: Some(body) }).await {
                    Ok(defined) => return Ok((lock, defined.version)),
                    Err(error) => why = error.to_string(),
                }
            }
            if Instant::now() >= deadline {
                break;
            }
            sleep(LOCK_AGAIN + Duration::from_millis((me.0 ^ attempt.wrapping_mul(37)) % LOCK_SPREAD)).await;
        }
        Err(Failed::new(code::NOT_KEPT, format!("{why}; ask again")))
    }

    /// Gives the lock back; if that fails its time ends.
    async fn unlock_fetches(&self, node: &Node, lock: FetchLock, version: Version) {
        if let Ok(body) = lock.released().encode() {
            let given_back = Define { key: FetchLock::key(), expects: Some(version), body: Some(body) };
            if let Err(error) = node.define(given_back).await {
                tracing::warn!(%error, "the lock of URL_FETCH was not given back; others wait until its time is over");
            }
        }
    }

    /// The sites that a request is about, and what is not counted of them now.
    async fn sites_of<'a>(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        fetch: &'a UrlFetch,
        crawls: &'a Crawls,
    ) -> Result<(Vec<&'a str>, Option<String>), Failed> {
        let mut sites: Vec<&str> = fetch.sites.iter().map(String::as_str).collect();
        if let Some(unknown) = sites.iter().find(|id| crawls.site(id).is_none_or(|(site, _)| site.deleted)) {
            return Err(Failed::no_site(unknown));
        }
        if sites.is_empty() {
            let active = crawls.sites().filter(|site| site.site.state == proto::site::state::ACTIVE);
            sites = active.map(|site| site.site.id.as_str()).collect();
        }
        let mut missing = None;
        if let Some(criterions) = &fetch.sites_criterions {
            let (chosen, silent) = self.sites_that_meet(node, swarm, criterions).await?;
            let chosen: BTreeSet<String> = chosen.into_iter().collect();
            sites.retain(|id| chosen.contains(*id));
            missing = silent;
        }
        Ok((sites, missing))
    }
}
