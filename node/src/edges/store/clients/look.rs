//! What can be seen of queues: counts, names and URLs, a bounded number of rows at a time, so that nobody waits for who looks.

use proto::clients::ask::{Counts, Filter, LOOK_BYTES_MAX, LOOK_ROWS_MAX, Look, Said, Told};
use proto::clients::identity::{ClientQueueId, RESERVED, is_queue};
use proto::clients::record::ClientUrl;
use proto::cluster::slot_set::SlotSet;
use proto::key::UrlKey;
use proto::wire;

use super::act::told;
use super::ends::Living;
use super::{Line, Store, StoreError, crawl_prefix, line_key, queue_of_line};

/// Names of crawls in one answer.
const CRAWLS_MAX: usize = 1_000;

/// How far a look goes.
struct Page {
    skip: u64,
    take: u64,
    met: u64,
}

impl Page {
    /// Counts one; says whether it is to be told.
    fn meets(&mut self) -> bool {
        self.met += 1;
        self.met > self.skip && self.met <= self.skip.saturating_add(self.take)
    }
}

impl Store {
    /// Answers a question.
    pub fn look(&self, look: Look, unix_ms: u64) -> Result<Said, StoreError> {
        match look {
            Look::Url { crawl, key, url } => {
                let queue = ClientQueueId::new(&crawl, &key);
                let found = self.client_url(&queue.url(&url))?;
                Ok(Said::Url(found.map(|found| told(&queue, &found))))
            }
            Look::Queue { crawl, key } => {
                let line = self.line(&ClientQueueId::new(&crawl, &key))?.unwrap_or_default();
                let is_there = line.is_there();
                Ok(Said::Queue(line.queue, is_there))
            }
            Look::Stats { slots, crawl, key, after } => self.stats(&slots, &crawl, key.as_deref(), after, unix_ms),
            Look::Crawls { slots, after } => {
                let names = self.crawls_in(after.as_deref(), CRAWLS_MAX)?;
                let more = if names.len() == CRAWLS_MAX { names.last().cloned() } else { None };
                let mut found = Vec::new();
                for name in names {
                    if !name.starts_with(RESERVED) && self.has_queue(&name, &slots)? {
                        found.push(name);
                    }
                }
                Ok(Said::Crawls(found, more))
            }
            Look::Queues { slots, crawl, inactive, skip, take, after } => {
                let page = Page { skip, take, met: 0 };
                self.queues(&slots, &crawl, inactive, page, after, unix_ms)
            }
            Look::Urls { slots, crawl, key, filter, skip, take, after } => {
                let page = Page { skip, take, met: 0 };
                self.client_urls(&slots, &crawl, key.as_deref(), filter.as_ref(), page, after)
            }
        }
    }

    fn stats(
        &self,
        slots: &SlotSet,
        crawl: &str,
        key: Option<&str>,
        after: Option<Vec<u8>>,
        unix_ms: u64,
    ) -> Result<Said, StoreError> {
        let mut counts = Counts::default();
        if let Some(key) = key {
            let queue = ClientQueueId::new(crawl, key);
            if let Some(line) = self.line(&queue)? {
                self.count(&queue, &line, unix_ms, &mut counts)?;
            }
            return Ok(Said::Stats(counts, None));
        }
        let mut rows = 0;
        for line in self.lines(crawl, slots, after.as_deref())? {
            let (queue, line) = line?;
            self.count(&queue, &line, unix_ms, &mut counts)?;
            rows += 1;
            if rows == LOOK_ROWS_MAX {
                return Ok(Said::Stats(counts, Some(queue.prefix().to_vec())));
            }
        }
        Ok(Said::Stats(counts, None))
    }

    fn count(&self, queue: &ClientQueueId, line: &Line, unix_ms: u64, counts: &mut Counts) -> Result<(), StoreError> {
        if !line.is_there() {
            return Ok(());
        }
        let living = if line.leased > 0 { self.living(queue, line, unix_ms)? } else { Living::default() };
        counts.add(Counts {
            scheduled: line.scheduled,
            leased: living.clients + living.own,
            completed: line.completed,
            queues: 1,
            active: u64::from(line.scheduled > 0),
        });
        Ok(())
    }

    fn has_queue(&self, crawl: &str, slots: &SlotSet) -> Result<bool, StoreError> {
        for line in self.lines(crawl, slots, None)? {
            if line?.1.is_there() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn queues(
        &self,
        slots: &SlotSet,
        crawl: &str,
        inactive: bool,
        mut page: Page,
        after: Option<Vec<u8>>,
        unix_ms: u64,
    ) -> Result<Said, StoreError> {
        let (mut keys, mut rows, mut bytes, mut next) = (Vec::new(), 0, 0, None);
        for line in self.lines(crawl, slots, after.as_deref())? {
            let (queue, line) = line?;
            let blocked = line.queue.blocked_until_s > 0 && line.queue.blocked_until_s.saturating_mul(1_000) >= unix_ms;
            if line.is_there() && (inactive || (line.scheduled > 0 && !blocked)) && page.meets() {
                bytes += queue.prefix().len();
                keys.push(queue.key());
            }
            rows += 1;
            if rows == LOOK_ROWS_MAX || bytes >= LOOK_BYTES_MAX {
                next = Some(queue.prefix().to_vec());
                break;
            }
        }
        Ok(Said::Queues { met: page.met, keys, next })
    }

    fn client_urls(
        &self,
        slots: &SlotSet,
        crawl: &str,
        key: Option<&str>,
        filter: Option<&Filter>,
        mut page: Page,
        after: Option<Vec<u8>>,
    ) -> Result<Said, StoreError> {
        let mut urls: Vec<Told> = Vec::new();
        let (mut rows, mut bytes) = (0, 0);
        let at = after.as_deref().map(UrlKey::from_bytes);
        let behind = at.as_ref().and_then(ClientQueueId::of);
        let rest = match key {
            Some(key) => vec![Ok(ClientQueueId::new(crawl, key))].into_iter(),
            None => {
                let lines = self.lines(crawl, slots, behind.as_ref().map(ClientQueueId::prefix))?;
                // One more than can be looked at: every queue takes a look.
                let queues: Vec<_> = lines.take(LOOK_ROWS_MAX + 1).map(|line| line.map(|(queue, _)| queue)).collect();
                queues.into_iter()
            }
        };
        let first = if key.is_none() { behind.map(Ok) } else { None };
        for queue in first.into_iter().chain(rest) {
            let queue = queue?;
            let prefix = queue.prefix().to_vec();
            let start = match &at {
                Some(at) if at.as_bytes().starts_with(&prefix) => [at.as_bytes(), &[0]].concat(),
                _ => prefix.clone(),
            };
            for row in self.rows("client", start, prefix) {
                let (row_key, body) = row?;
                let record = UrlKey::from_bytes(&row_key);
                if is_queue(&record) {
                    continue;
                }
                let url: ClientUrl = wire::decode(&body).map_err(|error| StoreError::damaged("client", error))?;
                if filter.is_none_or(|filter| filter.matches(&url.url)) && page.meets() {
                    bytes += body.len() + queue.prefix().len() + 32;
                    urls.push(told(&queue, &url));
                }
                rows += 1;
                let has_all = page.take > 0 && page.met >= page.skip.saturating_add(page.take);
                if rows >= LOOK_ROWS_MAX || bytes >= LOOK_BYTES_MAX || has_all {
                    return Ok(Said::Urls { met: page.met, urls, next: Some(record.into_bytes()) });
                }
            }
            rows += 1;
            if rows >= LOOK_ROWS_MAX {
                // Behind everything of this queue.
                let end = [queue.prefix(), &[0xff; 16]].concat();
                return Ok(Said::Urls { met: page.met, urls, next: Some(end) });
            }
        }
        Ok(Said::Urls { met: page.met, urls, next: None })
    }

    /// Queues of a crawl in these slots, behind the one with this prefix; forgotten ones included.
    #[allow(clippy::type_complexity)] // a row is a queue and its line
    pub(super) fn lines<'a>(
        &'a self,
        crawl: &str,
        slots: &'a SlotSet,
        after: Option<&[u8]>,
    ) -> Result<impl Iterator<Item = Result<(ClientQueueId, Line), StoreError>> + use<'a>, StoreError> {
        let prefix = crawl_prefix(crawl);
        let start = match after {
            None => prefix.clone(),
            Some(after) => {
                let queue = ClientQueueId::from_prefix(after).filter(|queue| queue.crawl() == crawl);
                let queue = queue.ok_or_else(|| StoreError::damaged("line", "not a queue to go on behind"))?;
                [line_key(&queue).as_slice(), &[0]].concat()
            }
        };
        let rows = self.rows("line", start, prefix).map(|row| {
            let (key, value) = row?;
            let queue = queue_of_line(&key).ok_or_else(|| StoreError::damaged("line", "a key of no queue"))?;
            Ok((queue, Line::read(&value)?))
        });
        Ok(rows.filter(|line| line.as_ref().map_or(true, |(queue, _)| slots.contains(queue.slot()))))
    }

    /// Names of crawls that have rows in a family, behind `after`.
    pub(super) fn crawls_in(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError> {
        let mut names = Vec::new();
        let mut start = after.map_or_else(Vec::new, behind_crawl);
        while names.len() < limit {
            let Some(row) = self.rows("line", start, Vec::new()).next() else { break };
            let (key, _) = row?;
            let name = key.split(|byte| *byte == 0).next().unwrap_or_default();
            let name = String::from_utf8(name.to_vec()).map_err(|error| StoreError::damaged("line", error))?;
            start = behind_crawl(&name);
            names.push(name);
        }
        Ok(names)
    }
}

/// The first key behind all rows of a crawl.
fn behind_crawl(name: &str) -> Vec<u8> {
    [name.as_bytes(), &[1]].concat()
}
