//! Pages that spiders crawl: queues by rank, served best first as far as the temperatures of their domains let them.
//!
//! In `turn` a page stands under the place of its rank if it can be handed out, under its date if it must wait, and under the end of its lease if a spider has it. What falls due is
//! moved to its rank when the agenda says so, on every replica alike: that changes no record, so nobody has to hear of it. A domain's temperature is the
//! `produced_ms` of its queue's record, which is merged by taking the later, so that whoever serves the slot next knows it.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use proto::clients::ask::{ANSWER_BYTES_MAX, LOOK_ROWS_MAX};
use proto::clients::identity::{ClientQueueId, is_client, is_queue};
use proto::clients::page::PageState;
use proto::clients::record::{ClientQueue, ClientUrl};
use proto::clients::spider::{
    AT_ONCE, Crawled, Found, LINKS, PAGES, ROW_BYTES_MAX, SpiderAsk, SpiderRules, SpiderSaid, crawl_of_row, is_pages,
    links_metadata, page_key, queue_of, read_links, read_row, row_metadata, row_place,
};
use proto::cluster::repair::Changed;
use proto::cluster::slot_set::SlotSet;
use proto::id::{SLOTS, Slot};
use proto::key::UrlKey;
use proto::score::best_first::{Picker, Rank, Step};
use proto::score::temperature::{Rates, STEPS, Warmth};
use proto::url::{CanonicalUrl, UrlRules};
use proto::wire;

use super::ends::ENDS;
use super::fronts::LATE;
use super::served::{BEHIND, better};
use super::{Change, Decided, Line, Store, StoreError, crawl_prefix, split_agenda};
use crate::edges::store::found::{page_of_row, says_the_same};

/// Pages that one call hands out, or puts up again: each is a record to be replicated, and the coordinator has room for some thousands.
const PAGES_AT_ONCE: usize = 1_000;
/// Domains that one call looks at, those that are too warm included.
const LOOKS_MAX: usize = 50_000;
/// Queues in which things fall due that one call moves, and rows of each.
const WAKES_MAX: usize = 4_096;
const WAKE_ROWS_MAX: usize = 4_096;
/// Domains that are brought in front, or put behind, in one call, and rows of the agenda that are looked at for those in front.
const SERVES_MAX: usize = 4_096;
const SERVE_ROWS_MAX: usize = 65_536;
/// Rows of the agenda, and the first rows of a queue, that are read at once.
const AGENDA_ROWS: usize = 256;
const AGENDA_ROWS_FIRST: usize = 32;
const QUEUE_ROWS: usize = 4;
const QUEUE_ROWS_MAX: usize = 1_024;

/// Pages that one look at the schedule gives.
const GIVEN: usize = 500;

/// Pages with their domains, and the times before which they are not handed out; and behind which row to go on.
type SomePages = (Vec<(String, u64, String, PageState)>, Option<Vec<u8>>);

/// What the graph notes as the priority that a page was found with; pages of spiders stand in no queue of the crawl that goes by it.
const OWN_PRIORITY: u16 = 100;

/// Places of ranks have so many bits; above them stands the step in which a domain is open, as far as it was known when it was put down, so that whoever looks for the
/// coolest does not walk past those that are warm.
const RANK_BITS: u32 = 48;
/// Where times stand in the agenda: behind all places of ranks.
pub(super) const TIMES: u64 = (LATE as u64) << 56;

/// Parts of a queue's rows in `turn`.
const RANKED: u8 = 0;
const LEASED: u8 = 1;
const DATED: u8 = 2;

/// Where a queue stands in the agenda that is to be looked at then.
pub(super) fn wake_place(unix_ms: u64) -> u64 {
    TIMES | unix_ms
}

impl Line {
    /// A page of this queue waits for its turn, its date, or the end of its lease.
    pub(super) fn await_page(&mut self, page: &ClientUrl) {
        if page.leased_until_ms > 0 {
            self.wake_ms = self.wake_ms.min(page.leased_until_ms);
        } else if page.date_s > AT_ONCE {
            self.wake_ms = self.wake_ms.min(page.date_s.saturating_mul(1_000));
        } else {
            self.agenda_ms = better(self.agenda_ms, state(page).rank().place());
        }
    }
}

/// What is kept of a page.
fn state(page: &ClientUrl) -> PageState {
    PageState::read(&page.metadata).unwrap_or_default()
}

/// Where a page stands that can be handed out: by rank, and by who came first among equals.
pub(super) fn ranked_key(queue: &ClientQueueId, page: &ClientUrl) -> Vec<u8> {
    let place = &state(page).rank().place().to_be_bytes()[2..];
    [queue.prefix(), &[RANKED], place, &page.created_ms.to_be_bytes(), page.url.as_bytes()].concat()
}

/// Where a page stands that no spider has.
pub(super) fn waiting_key(queue: &ClientQueueId, page: &ClientUrl) -> Vec<u8> {
    if page.date_s > AT_ONCE {
        [queue.prefix(), &[DATED], &page.date_s.to_be_bytes(), page.url.as_bytes()].concat()
    } else {
        ranked_key(queue, page)
    }
}

/// Rank and URL of a row that [`ranked_key`] made.
fn split_ranked(key: &[u8], prefix: &[u8]) -> Result<(Rank, String), StoreError> {
    let rest = key.get(prefix.len()..).filter(|rest| rest.len() >= 14);
    let rest = rest.ok_or_else(|| damaged("a page without a rank"))?;
    let mut place = [0; 8];
    place[2..].copy_from_slice(&rest[..6]);
    let url = String::from_utf8(rest[14..].to_vec()).map_err(|_| damaged("a URL that is no text"))?;
    Ok((Rank::of_place(u64::from_be_bytes(place)), url))
}

fn damaged(reason: &str) -> StoreError {
    StoreError::damaged("turn", reason)
}

fn canonical(url: &str) -> Option<CanonicalUrl> {
    CanonicalUrl::parse(url, &UrlRules::AS_IT_IS).ok()
}

impl Store {
    /// What is kept of a page of spiders: its URL and its state.
    pub fn spider_page(&self, key: &UrlKey) -> Result<Option<(String, PageState)>, StoreError> {
        Ok(self.client_url(key)?.map(|page| (page.url.clone(), state(&page))))
    }

    /// Calls `each` with every page that waits or that a spider has, domain by domain in the order in which they are handed out; with the time, Unix milliseconds,
    /// before which it is not, or 0.
    pub fn each_scheduled<E: From<StoreError>>(
        &self,
        mut each: impl FnMut(&str, u64, &str, &PageState) -> Result<(), E>,
    ) -> Result<(), E> {
        let slots: SlotSet = (0..SLOTS).map(Slot).collect();
        for line in self.lines(PAGES, &slots, None)? {
            let (queue, _) = line?;
            let domain = queue.key();
            for part in [RANKED, DATED, LEASED] {
                let prefix = [queue.prefix(), &[part]].concat();
                for row in self.rows("turn", prefix.clone(), prefix.clone()) {
                    let (key, _) = row?;
                    let (at_ms, url) = match part {
                        RANKED => (0, split_ranked(&key, &prefix)?.1),
                        _ => super::act::split_turn(&key, &prefix)?,
                    };
                    let at_ms = if part == DATED { at_ms.saturating_mul(1_000) } else { at_ms };
                    if let Some(page) = self.client_url(&queue.url(&url))? {
                        each(&domain, at_ms, &url, &state(&page))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Some pages of these slots that wait or that a spider has, behind the row `after`, as [`Store::each_scheduled`] tells them; and behind which row to go on.
    pub fn some_scheduled(&self, slots: &SlotSet, after: &[u8]) -> Result<SomePages, StoreError> {
        let mut given = Vec::new();
        let rows = self.rows_after("turn", after, LOOK_ROWS_MAX)?;
        let next = rows.last().filter(|_| rows.len() == LOOK_ROWS_MAX).map(|(key, _)| key.clone());
        for (key, _) in rows {
            // A queue's own bytes end with the second zero behind its slot.
            let zeros = key.iter().enumerate().skip(2).filter(|(_, byte)| **byte == 0);
            let Some(end) = zeros.map(|(at, _)| at + 1).nth(1) else { return Err(damaged("a turn of nothing")) };
            let (prefix, part) = (&key[..=end.min(key.len() - 1)], key.get(end).copied());
            let Some(queue) = ClientQueueId::from_prefix(&key[..end]) else { continue };
            if !is_pages(queue.crawl()) || !slots.contains(queue.slot()) || part == Some(ENDS) {
                continue;
            }
            let (at_ms, url) = match part {
                Some(RANKED) => (0, split_ranked(&key, prefix)?.1),
                _ => super::act::split_turn(&key, prefix)?,
            };
            let at_ms = if part == Some(DATED) { at_ms.saturating_mul(1_000) } else { at_ms };
            if let Some(page) = self.client_url(&queue.url(&url))? {
                given.push((queue.key(), at_ms, url, state(&page)));
            }
            if given.len() >= GIVEN {
                return Ok((given, Some(key)));
            }
        }
        Ok((given, next))
    }

    /// Does what needs to look at many rows, as a batch of its own. `slots` are those that this node may hand pages out of.
    pub fn spider_act(
        &mut self,
        ask: SpiderAsk,
        rules: &SpiderRules,
        slots: &SlotSet,
        unix_ms: u64,
    ) -> Result<Decided<SpiderSaid>, StoreError> {
        if ask.takes() {
            let mut change = self.change();
            change.bring_in_front(slots)?;
            change.wake(unix_ms)?;
            change.commit_client()?;
        }
        let only_cool = matches!(ask, SpiderAsk::TakeCool { .. });
        let mut change = self.change();
        let said = match ask {
            SpiderAsk::Take { wanted, lease_s } | SpiderAsk::TakeCool { wanted, lease_s } => {
                let lease_s = if lease_s == 0 { rules.lease_s } else { lease_s };
                let until_ms = unix_ms + u64::from(lease_s.max(1)) * 1_000;
                let picker = Picker::new((wanted as usize).min(PAGES_AT_ONCE), rules.rates, unix_ms);
                let picker = if only_cool { picker.only_cool() } else { picker };
                SpiderSaid::Given(change.take_best(picker, until_ms, rules, slots, unix_ms)?)
            }
            SpiderAsk::Reload { after } => change.reload(after, rules, slots, unix_ms)?,
            other => {
                let decided = change.spider(other, rules, unix_ms)?;
                change.commit()?;
                return Ok(decided);
            }
        };
        let decided = change.decided(said);
        change.commit_client()?;
        Ok(decided)
    }
}

impl Change<'_> {
    /// Takes in what spiders report, or others say of their pages.
    pub fn spider(
        &mut self,
        ask: SpiderAsk,
        rules: &SpiderRules,
        unix_ms: u64,
    ) -> Result<Decided<SpiderSaid>, StoreError> {
        let said = match ask {
            SpiderAsk::Crawled(pages) => {
                let mut depths = Vec::with_capacity(pages.len());
                for page in pages {
                    depths.push(self.crawled_page(page, rules, unix_ms)?);
                }
                SpiderSaid::Crawled(depths)
            }
            SpiderAsk::Found(pages) => {
                let mut new = 0;
                for page in pages {
                    new += u64::from(self.found_page(page, rules, unix_ms)?);
                }
                SpiderSaid::Changed(new)
            }
            SpiderAsk::Failed(urls) => {
                let mut known = 0;
                for url in urls.iter().filter_map(|url| canonical(url)) {
                    let failed = |page: &mut PageState| page.failures = page.failures.saturating_add(1);
                    known += u64::from(self.change_page(&page_key(&url), rules, unix_ms, true, failed)?);
                }
                SpiderSaid::Changed(known)
            }
            SpiderAsk::Worth(worth) => {
                let mut changed = 0;
                for (key, level) in worth {
                    if let Some(key) = UrlKey::checked(&key) {
                        changed += u64::from(self.change_page(&key, rules, unix_ms, false, |page| page.level = level)?);
                    }
                }
                SpiderSaid::Changed(changed)
            }
            SpiderAsk::Frequencies(pages) => {
                let mut changed = 0;
                for (url, hz) in pages {
                    let Some(url) = canonical(&url) else { continue };
                    let set = |page: &mut PageState| page.frequency_hz = (hz > 0.0).then_some(hz);
                    changed += u64::from(self.change_page(&page_key(&url), rules, unix_ms, false, set)?);
                }
                SpiderSaid::Changed(changed)
            }
            SpiderAsk::Links(rows) => {
                let mut changed = 0;
                for row in rows {
                    changed += u64::from(self.keep_row(&row, unix_ms)?);
                }
                SpiderSaid::Changed(changed)
            }
            SpiderAsk::Take { .. } | SpiderAsk::TakeCool { .. } | SpiderAsk::Reload { .. } => {
                return Err(damaged("asked of the wrong part"));
            }
        };
        Ok(self.decided(said))
    }

    /// A page as it is kept, if it was not forgotten.
    fn page(&mut self, queue: &ClientQueueId, key: &UrlKey) -> Result<Option<ClientUrl>, StoreError> {
        let cutoff_ms = self.touched_line(queue)?.queue.cutoff_ms;
        Ok(self.client_url(key)?.filter(|page| page.created_ms >= cutoff_ms))
    }

    /// Writes down what somebody knows of a page; what it was is given up, its lease too.
    fn put_page(
        &mut self,
        queue: &ClientQueueId,
        key: UrlKey,
        old: Option<ClientUrl>,
        new: ClientUrl,
        unix_ms: u64,
    ) -> Result<(), StoreError> {
        let node = self.store.options.node;
        let version = old.as_ref().map(|old| old.version).unwrap_or_default().next(node, unix_ms);
        self.replace_client(queue, key, old, Some(ClientUrl { version, ..new }), unix_ms)
    }

    /// Writes down what was merely heard of a page. Others may have handed it out or crawled it since the copy that is here, and this node has not heard of it yet: what they
    /// wrote down is later than this.
    fn put_hearsay(
        &mut self,
        queue: &ClientQueueId,
        key: UrlKey,
        old: Option<ClientUrl>,
        new: ClientUrl,
        unix_ms: u64,
    ) -> Result<(), StoreError> {
        let node = self.store.options.node;
        let version = old.as_ref().map(|old| old.version).unwrap_or_default().next(node, 0);
        self.replace_client(queue, key, old, Some(ClientUrl { version, ..new }), unix_ms)
    }

    /// A page was crawled; says how deep it is.
    fn crawled_page(&mut self, crawled: Crawled, rules: &SpiderRules, unix_ms: u64) -> Result<u32, StoreError> {
        let Some(url) = canonical(&crawled.url) else { return Ok(0) };
        let queue = queue_of(&url);
        let key = queue.url(url.as_str());
        let old = self.page(&queue, &key)?;
        let cutoff_ms = self.touched_line(&queue)?.queue.cutoff_ms;
        let mut page = old.as_ref().map(state).unwrap_or_default();
        page.crawled(crawled.score, crawled.content_hash, unix_ms);
        let created_ms = old.as_ref().map_or(unix_ms.max(cutoff_ms), |old| old.created_ms);
        let date_s = rules.date_s(url.as_str(), &page, unix_ms);
        let (metadata, version) = (page.to_metadata(), Default::default());
        let new = ClientUrl { version, url: crawled.url, date_s, created_ms, leased_until_ms: 0, metadata };
        self.put_page(&queue, key, old, new, unix_ms)?;

        let queue = ClientQueueId::new(LINKS, url.domain());
        let key = queue.url(url.as_str());
        let old = self.client_url(&key)?;
        let metadata = links_metadata(crawled.score, &crawled.links);
        let kept: usize = metadata.iter().map(|(_, links)| links.len()).sum();
        self.store.leave_out(crawled.links.len().saturating_sub(kept) as u64);
        if old.as_ref().is_none_or(|old| old.metadata != metadata) {
            let created_ms = old.as_ref().map_or(unix_ms, |old| old.created_ms);
            let url = url.into_string();
            let new = ClientUrl { version, url, date_s: 0, created_ms, leased_until_ms: 0, metadata };
            self.put_page(&queue, key, old, new, unix_ms)?;
        }
        Ok(page.depth)
    }

    /// Somebody linked to a page; says whether that is news.
    fn found_page(&mut self, found: Found, rules: &SpiderRules, unix_ms: u64) -> Result<bool, StoreError> {
        let Some(url) = canonical(&found.url) else { return Ok(false) };
        let queue = queue_of(&url);
        let key = queue.url(url.as_str());
        let old = self.page(&queue, &key)?;
        let cutoff_ms = self.touched_line(&queue)?.queue.cutoff_ms;
        let page = match old.as_ref().map(state) {
            None => PageState {
                score: found.score,
                depth: found.depth,
                linked_from: found.linked_from,
                ..PageState::default()
            },
            // The best of its links says what a page is worth, until somebody has seen it.
            Some(page) if page.crawls == 0 && (found.score > page.score || found.depth < page.depth) => {
                PageState { score: found.score.max(page.score), depth: found.depth.min(page.depth), ..page }
            }
            Some(_) => return Ok(false),
        };
        let new = match &old {
            None => {
                let date_s = rules.date_s(url.as_str(), &page, unix_ms);
                let created_ms = unix_ms.max(cutoff_ms);
                ClientUrl { url: found.url, date_s, created_ms, metadata: page.to_metadata(), ..ClientUrl::default() }
            }
            Some(old) => {
                let date_s = if old.date_s == 0 { rules.date_s(url.as_str(), &page, unix_ms) } else { old.date_s };
                ClientUrl { metadata: page.to_metadata(), date_s, ..old.clone() }
            }
        };
        self.put_hearsay(&queue, key, old, new, unix_ms)?;
        Ok(true)
    }

    /// Changes what is kept of a page; says whether there is such a page. Who `ends` its lease gives it back.
    fn change_page(
        &mut self,
        key: &UrlKey,
        rules: &SpiderRules,
        unix_ms: u64,
        ends: bool,
        change: impl FnOnce(&mut PageState),
    ) -> Result<bool, StoreError> {
        let Some(queue) = ClientQueueId::of(key).filter(|queue| is_pages(queue.crawl())) else { return Ok(false) };
        let Some(old) = self.page(&queue, key)? else { return Ok(false) };
        let before = state(&old);
        let mut page = before;
        change(&mut page);
        if page == before && !(ends && old.leased_until_ms > 0) {
            return Ok(true);
        }
        let mut new = ClientUrl { metadata: page.to_metadata(), ..old.clone() };
        if ends || page.frequency_hz != before.frequency_hz {
            new.date_s = rules.date_s(&old.url, &page, unix_ms);
        }
        if ends {
            new.leased_until_ms = 0;
        }
        match ends {
            true => self.put_page(&queue, key.clone(), Some(old), new, unix_ms)?,
            false => self.put_hearsay(&queue, key.clone(), Some(old), new, unix_ms)?,
        }
        Ok(true)
    }

    /// The cluster itself crawled a page: its row is kept beside it. Says whether that is news.
    fn keep_row(&mut self, row: &[u8], unix_ms: u64) -> Result<bool, StoreError> {
        let Some((queue, name)) = page_of_row(row).as_ref().and_then(row_place).filter(|_| row.len() <= ROW_BYTES_MAX)
        else {
            tracing::warn!("the links of a page are left out: what was told of them contradicts itself");
            return Ok(false);
        };
        if self.is_row_of_nothing(&name)? {
            return Ok(false);
        }
        let key = queue.url(&name);
        let old = self.client_url(&key)?;
        let before = old.as_ref().and_then(|old| read_row(&old.metadata));
        if before.is_some_and(|before| says_the_same(&before, row)) {
            return Ok(false);
        }
        let created_ms = old.as_ref().map_or(unix_ms, |old| old.created_ms);
        let new = ClientUrl { url: name, created_ms, metadata: row_metadata(row), ..ClientUrl::default() };
        self.put_page(&queue, key, old, new, unix_ms)?;
        Ok(true)
    }

    /// Whether a row is of a crawl that nobody runs any more.
    pub(super) fn is_row_of_nothing(&mut self, name: &str) -> Result<bool, StoreError> {
        let gone = self.store.gone()?;
        Ok(crawl_of_row(name).is_none_or(|crawl| gone.has(crawl)))
    }

    /// A page of the cluster's own is gone, and so is its row; what that changes.
    pub(in crate::edges::store) fn forget_row(&mut self, page: &UrlKey) -> Result<Vec<Changed>, StoreError> {
        let Some((queue, name)) = row_place(page).filter(|_| !is_client(page)) else { return Ok(Vec::new()) };
        let key = queue.url(&name);
        let Some(old) = self.client_url(&key)? else { return Ok(Vec::new()) };
        self.replace_client(&queue, key, Some(old), None, 0)?;
        Ok(std::mem::take(&mut self.clients.changed))
    }

    /// The graph hears of the links of a page.
    pub(super) fn find_links(&mut self, page: &ClientUrl, unix_ms: u64) -> Result<(), StoreError> {
        if let Some(row) = read_row(&page.metadata) {
            let place = page_of_row(&row).as_ref().and_then(row_place);
            return match place.is_some_and(|(_, name)| name == page.url) {
                true => self.find_row(&row),
                false => Ok(()), // a peer's fault
            };
        }
        self.find_reported(page, unix_ms);
        Ok(())
    }

    fn find_reported(&mut self, page: &ClientUrl, unix_ms: u64) {
        let (Some((content, links)), Some(url)) = (read_links(&page.metadata), canonical(&page.url)) else { return };
        self.begin_finding_worth(&page_key(&url), OWN_PRIORITY, content, unix_ms);
        for link in links.iter().filter_map(|link| canonical(link)) {
            let key = page_key(&link);
            self.find_link_of(&key, key.domain().unwrap_or_default(), OWN_PRIORITY);
        }
        self.end_finding();
    }

    /// Has domains of these slots stand in front of all others, as far as one call goes.
    fn bring_in_front(&mut self, slots: &SlotSet) -> Result<(), StoreError> {
        let prefix = crawl_prefix(PAGES);
        self.store.served.now(slots, [prefix.as_slice(), &BEHIND.to_be_bytes()].concat());
        let Some(start) = self.store.served.look_from.take() else { return Ok(()) };
        let (mut ours, mut goes_on) = (Vec::new(), None);
        for (count, row) in self.store.rows("agenda", start, prefix.clone()).enumerate() {
            let (key, _) = row?;
            let (place, queue) = split_agenda(&key, prefix.len()).ok_or_else(|| damaged("an agenda of nothing"))?;
            if place >= TIMES {
                break;
            }
            if ours.len() == SERVES_MAX || count == SERVE_ROWS_MAX {
                goes_on = Some(key.into_vec());
                break;
            }
            ours.extend(slots.contains(queue.slot()).then_some(queue));
        }
        self.store.served.look_from = goes_on;
        for queue in ours {
            self.touched_line(&queue)?; // it is put where it belongs when it is written
        }
        Ok(())
    }

    /// Puts what has fallen due where its rank is, in all queues in which something has.
    fn wake(&mut self, now_ms: u64) -> Result<(), StoreError> {
        let prefix = crawl_prefix(PAGES);
        let times = [prefix.as_slice(), &[LATE]].concat();
        let (mut due, mut first) = (Vec::new(), None);
        for row in self.store.rows("agenda", self.store.fronts.of("agenda", &times), prefix.clone()).take(WAKES_MAX) {
            let (key, _) = row?;
            first.get_or_insert_with(|| key.to_vec());
            let (place, queue) = split_agenda(&key, prefix.len()).ok_or_else(|| damaged("an agenda of nothing"))?;
            if place & !TIMES > now_ms {
                break;
            }
            due.push(queue);
        }
        self.clients.seen.note("agenda", &times, first);
        for queue in due {
            self.wake_queue(&queue, now_ms)?;
        }
        Ok(())
    }

    fn wake_queue(&mut self, queue: &ClientQueueId, now_ms: u64) -> Result<(), StoreError> {
        let mut next_ms = u64::MAX;
        let mut due: Vec<(Vec<u8>, String)> = Vec::new();
        for (part, now) in [(LEASED, now_ms), (DATED, now_ms / 1_000)] {
            let prefix = [queue.prefix(), &[part]].concat();
            let mut first = None;
            for row in self.store.rows("turn", self.store.fronts.of("turn", &prefix), prefix.clone()) {
                let (key, _) = row?;
                first.get_or_insert_with(|| key.to_vec());
                let (time, url) = super::act::split_turn(&key, &prefix)?;
                if time > now || due.len() >= WAKE_ROWS_MAX {
                    let at = if part == DATED { time.saturating_mul(1_000) } else { time };
                    next_ms = next_ms.min(at);
                    break;
                }
                due.push((key.into_vec(), url));
            }
            self.clients.seen.note("turn", &prefix, first);
        }
        let mut best = None;
        for (key, url) in due {
            self.delete("turn", &key);
            let Some(page) = self.client_url(&queue.url(&url))? else { continue };
            best = best.max(Some(state(&page).rank()));
            self.rows.put("turn", &ranked_key(queue, &page), |_| Ok::<(), StoreError>(()))?;
        }
        // A domain that was too warm may be served again: how much so is seen when it is looked at.
        let ranked = [queue.prefix(), &[RANKED]].concat();
        let first =
            self.store.rows("turn", self.store.fronts.of("turn", &ranked), ranked.clone()).next().transpose()?;
        if let Some((key, _)) = &first {
            best = best.max(Some(split_ranked(key, &ranked)?.0));
        }
        self.clients.seen.note("turn", &ranked, first.map(|(key, _)| key.into_vec()));
        let line = self.touched_line(queue)?;
        line.wake_ms = next_ms;
        if let Some(best) = best {
            line.agenda_ms = better(line.agenda_ms, best.place());
        }
        Ok(())
    }

    /// Hands the best pages out.
    fn take_best(
        &mut self,
        mut picker: Picker<usize>,
        until_ms: u64,
        rules: &SpiderRules,
        slots: &SlotSet,
        now_ms: u64,
    ) -> Result<Vec<String>, StoreError> {
        let mut domains: Vec<Domain> = Vec::new();
        let mut agenda = Agenda::new();
        let (mut given, mut bytes) = (Vec::new(), 0);
        loop {
            match picker.step() {
                Step::Meet(step) => match agenda.next(self, slots, step)? {
                    Some((best, queue)) if domains.len() < LOOKS_MAX => {
                        let warmth = Warmth(self.touched_line(&queue)?.queue.produced_ms);
                        picker.meet(domains.len(), best, warmth);
                        domains.push(Domain::new(queue));
                    }
                    _ => picker.met_all(),
                },
                Step::Look(domain) => {
                    let next = domains[domain].peek(self)?;
                    picker.sighted(domain, next);
                }
                Step::Take(domain) => {
                    let domain = &mut domains[domain];
                    let Some((key, url)) = domain.take() else { return Err(damaged("a page that is not there")) };
                    let record = domain.queue.url(&url);
                    self.delete("turn", &key);
                    let free = |page: &ClientUrl| !page.is_completed() && page.leased_until_ms <= now_ms;
                    let Some(old) = self.client_url(&record)?.filter(free) else { continue };
                    bytes += url.len() + 16;
                    given.push(url);
                    let version = old.version.next(self.store.options.node, now_ms);
                    let new = ClientUrl { version, leased_until_ms: until_ms, ..old.clone() };
                    self.replace_client(&domain.queue, record, Some(old), Some(new), now_ms)?;
                    if bytes >= ANSWER_BYTES_MAX {
                        break;
                    }
                }
                Step::Done => break,
            }
        }
        for queue in &agenda.others {
            self.touched_line(queue)?; // it is put where it belongs when it is written
        }
        for (number, left) in picker.into_domains() {
            let queue = &domains[number].queue;
            if left.taken > 0 && rules.rates.is_some() {
                let record = self.touched_line(queue)?.queue.clone();
                let version = record.version.next(self.store.options.node, now_ms);
                let record = ClientQueue { version, kept: true, produced_ms: left.warmth.0, ..record };
                self.set_queue(queue, record, now_ms)?;
            }
            let (step, cooler_ms) = rules.rates.map_or((Some(0), None), |rates| stands(rates, left.warmth, now_ms));
            let line = self.touched_line(queue)?;
            line.agenda_ms = match (left.next, step) {
                (Some(next), Some(step)) => (step as u64) << RANK_BITS | next.place(),
                _ => u64::MAX,
            };
            if let Some(cooler_ms) = cooler_ms.filter(|_| left.next.is_some()) {
                line.wake_ms = line.wake_ms.min(cooler_ms);
            }
        }
        Ok(given)
    }

    /// Puts up again what was never crawled and nobody is to crawl any more, as far as one look goes.
    fn reload(
        &mut self,
        after: Option<Vec<u8>>,
        rules: &SpiderRules,
        slots: &SlotSet,
        unix_ms: u64,
    ) -> Result<SpiderSaid, StoreError> {
        let at = after.as_deref().map(UrlKey::from_bytes);
        let behind = at.as_ref().and_then(ClientQueueId::of);
        let lines = self.store.lines(PAGES, slots, behind.as_ref().map(ClientQueueId::prefix))?;
        let rest: Vec<ClientQueueId> =
            lines.take(LOOK_ROWS_MAX).map(|line| line.map(|(queue, _)| queue)).collect::<Result<_, _>>()?;
        let (mut rows, mut found, mut next) = (0, Vec::new(), None);
        'queues: for queue in behind.into_iter().chain(rest) {
            let prefix = queue.prefix().to_vec();
            let start = match &at {
                Some(at) if at.as_bytes().starts_with(&prefix) => [at.as_bytes(), &[0]].concat(),
                _ => prefix.clone(),
            };
            for row in self.store.rows("client", start, prefix) {
                let (key, body) = row?;
                let key = UrlKey::from_bytes(&key);
                rows += 1;
                if !is_queue(&key) {
                    let page: ClientUrl = wire::decode(&body).map_err(|error| StoreError::damaged("client", error))?;
                    if page.is_completed() && state(&page).crawls == 0 {
                        found.push((queue.clone(), key.clone(), page));
                    }
                }
                if rows >= LOOK_ROWS_MAX || found.len() >= PAGES_AT_ONCE {
                    next = Some(key.into_bytes());
                    break 'queues;
                }
            }
            rows += 1;
            if rows >= LOOK_ROWS_MAX {
                next = Some([queue.prefix(), &[0xff; 16]].concat());
                break;
            }
        }
        let mut reloaded = 0;
        for (queue, key, old) in found {
            let page = PageState { failures: 0, ..state(&old) };
            let date_s = rules.date_s(&old.url, &page, unix_ms);
            if date_s > 0 {
                let new = ClientUrl { date_s, metadata: page.to_metadata(), ..old.clone() };
                self.put_hearsay(&queue, key, Some(old), new, unix_ms)?;
                reloaded += 1;
            }
        }
        Ok(SpiderSaid::Reloaded(reloaded, next))
    }
}

/// In which step a domain is open, and when it is in the one before.
fn stands(rates: Rates, warmth: Warmth, now_ms: u64) -> (Option<usize>, Option<u64>) {
    let step = rates.step(warmth, now_ms);
    let cooler = step.unwrap_or(STEPS).checked_sub(1);
    (step, cooler.map(|cooler| rates.opens_ms(warmth, cooler)))
}

/// A queue whose pages are read, some at a time.
struct Domain {
    queue: ClientQueueId,
    /// Pages that were read: their rows, ranks and URLs.
    read: VecDeque<(Vec<u8>, Rank, String)>,
    /// Where to go on: empty before the first read, `None` at the end.
    start: Option<Vec<u8>>,
    at_once: usize,
}

impl Domain {
    fn new(queue: ClientQueueId) -> Domain {
        Domain { queue, read: VecDeque::new(), start: Some(Vec::new()), at_once: QUEUE_ROWS }
    }

    /// The rank of its next page.
    fn peek(&mut self, change: &mut Change<'_>) -> Result<Option<Rank>, StoreError> {
        if self.read.is_empty()
            && let Some(start) = self.start.take()
        {
            let prefix = [self.queue.prefix(), &[RANKED]].concat();
            let begins = start.is_empty();
            let start = if begins { change.store.fronts.of("turn", &prefix) } else { start };
            for row in change.store.rows("turn", start, prefix.clone()).take(self.at_once) {
                let (key, _) = row?;
                let (rank, url) = split_ranked(&key, &prefix)?;
                self.read.push_back((key.into_vec(), rank, url));
            }
            if begins {
                change.clients.seen.note("turn", &prefix, self.read.front().map(|(key, ..)| key.clone()));
            }
            if self.read.len() == self.at_once {
                self.start = self.read.back().map(|(key, ..)| [key.as_slice(), &[0]].concat());
            }
            self.at_once = (self.at_once * 4).min(QUEUE_ROWS_MAX);
        }
        Ok(self.read.front().map(|(_, rank, _)| *rank))
    }

    fn take(&mut self) -> Option<(Vec<u8>, String)> {
        self.read.pop_front().map(|(key, _, url)| (key, url))
    }
}

/// Reads the agenda in the order of steps and ranks, some rows at a time.
struct Agenda {
    prefix: Vec<u8>,
    /// Where to go on: empty before the first read, `None` at the end.
    start: Option<Vec<u8>>,
    at_once: usize,
    read: VecDeque<(u64, ClientQueueId)>,
    /// Domains that stand in front and are served by others.
    others: Vec<ClientQueueId>,
}

impl Agenda {
    fn new() -> Agenda {
        Agenda {
            start: Some(Vec::new()),
            prefix: crawl_prefix(PAGES),
            at_once: AGENDA_ROWS_FIRST,
            read: VecDeque::new(),
            others: Vec::new(),
        }
    }

    /// The next domain that is put down for this step or one before.
    fn next(
        &mut self,
        change: &mut Change<'_>,
        slots: &SlotSet,
        step: usize,
    ) -> Result<Option<(Rank, ClientQueueId)>, StoreError> {
        if self.read.is_empty()
            && let Some(start) = self.start.take()
        {
            let (begins, mut first) = (start.is_empty(), None);
            let start = if begins { change.store.fronts.of("agenda", &self.prefix) } else { start };
            for row in change.store.rows("agenda", start, self.prefix.clone()) {
                let (key, _) = row?;
                let nothing = || damaged("an agenda of nothing");
                let (place, queue) = split_agenda(&key, self.prefix.len()).ok_or_else(nothing)?;
                if place >= BEHIND {
                    break;
                }
                first.get_or_insert_with(|| key.to_vec());
                if !slots.contains(queue.slot()) {
                    if self.others.len() < SERVES_MAX {
                        self.others.push(queue);
                    }
                    continue;
                }
                self.read.push_back((place, queue));
                if self.read.len() == self.at_once {
                    self.start = Some([key.as_ref(), &[0]].concat());
                    break;
                }
            }
            if begins {
                change.clients.seen.note("agenda", &self.prefix, first);
            }
            self.at_once = AGENDA_ROWS;
        }
        if self.read.front().is_none_or(|(place, _)| place >> RANK_BITS > step as u64) {
            return Ok(None);
        }
        let rank = |place| Rank::of_place(place & ((1 << RANK_BITS) - 1));
        Ok(self.read.pop_front().map(|(place, queue)| (rank(place), queue)))
    }
}
