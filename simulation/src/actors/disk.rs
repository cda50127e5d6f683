//! The thread behind a node's storage, over the world's disk: it takes what waits as a group, writes and syncs it as one, and answers.

use std::collections::BTreeMap;

use node::edges::disk::{ContentJob, DiskError, Job, Kept, Landing, ReplicaJob, Reply, Stand};
use node::edges::store::{Admitted, Arriving, Begun, Merged, State};
use node::edges::warc::WarcPosition;
use proto::cluster::contents::{ContentKey, Offer};
use proto::cluster::membership::next_bump;
use proto::cluster::message::Stage;
use proto::cluster::mutant::Planted;
use proto::cluster::repair::Changed;
use proto::crawl::outcome::OutcomeRules;
use proto::crawl::retry::RetryRules;
use proto::id::UrlId;
use proto::key::UrlKey;
use tokio::sync::mpsc;

use super::contents::PAGE_BYTES;
use super::edges::Place;
use crate::pure::storage::{Fresh, Pages, PagesWrite, Records, Storage, What};
use crate::world::disk::{Stored, Synced};
use crate::world::random::{For, Random};

/// Longest wait of a retry, in milliseconds; twice it, what is due comes from a clock that was set.
const WAIT_MAX_MS: u64 = 1_000;

/// What a disk holds, written group by group: all of a group, or nothing.
#[derive(Default)]
pub(super) struct Groups(pub(super) Records);

impl Stored for Groups {
    type Write = Vec<What>;
    type Key = UrlId;

    fn apply(&mut self, group: &Vec<What>) {
        group.iter().for_each(|what| self.0.apply(what));
    }

    fn damage(&mut self, draw: &mut Random) -> Option<UrlId> {
        self.0.damage(draw)
    }
}

/// What waits for the group to be on disk, and is answered then.
type Answer = Box<dyn FnOnce(&mut Memory, Result<(), DiskError>)>;

/// What the thread has in memory.
struct Memory {
    storage: Storage,
    /// Hashes of what is on disk, by which digests follow its changes.
    hashes: BTreeMap<UrlKey, u64>,
    life: u32,
    rules: OutcomeRules,
    planted: Planted,
    unix_ms: u64,
}

/// Does the work of a process's disk, until it ends.
pub(super) async fn work(place: Place, mut jobs: mpsc::Receiver<Job>) {
    let Some(mut memory) = Memory::load(&place) else { return };
    while let Some(first) = jobs.recv().await {
        if !place.gets_time().await {
            return;
        }
        let mut group = vec![first];
        while let Ok(job) = jobs.try_recv() {
            group.push(job);
        }
        let (writes, reads): (Vec<Job>, Vec<Job>) = group.into_iter().partition(is_write);
        if !writes.is_empty() && !memory.commit(&place, writes).await {
            return;
        }
        memory.look_at_the_clock(&place);
        for job in reads {
            memory.read(&place, job);
        }
    }
}

fn is_write(job: &Job) -> bool {
    use ReplicaJob::{Begin, Define, Drop, Keep, Merge};
    matches!(
        job,
        Job::KeepFacts(..)
            | Job::Replica(Merge { .. } | Drop { .. } | Keep(..) | Begin { .. } | Define { .. })
            | Job::Content(ContentJob::Mark(..) | ContentJob::TakeBack(..) | ContentJob::Keep(..))
    )
}

impl Memory {
    fn load(place: &Place) -> Option<Memory> {
        let world = place.shared.lock();
        let records = &world.nodes.get(&place.id)?.disk.durable().0;
        let retry = RetryRules {
            attempts_max: 3,
            slow_down_attempts_max: 3,
            wait_min_ms: 300,
            wait_max_ms: WAIT_MAX_MS,
            robots_wait_ms: 1_000,
        };
        Some(Memory {
            storage: Storage::new(place.id, records, 2 * WAIT_MAX_MS),
            hashes: records.copies.values().map(|copy| (copy.key.clone(), copy.hash())).collect(),
            life: 0,
            rules: OutcomeRules { retry, recrawl_period_ms: None, node: place.id },
            planted: world.planted,
            unix_ms: 0,
        })
    }

    fn look_at_the_clock(&mut self, place: &Place) {
        let world = place.shared.lock();
        if let Some(node) = world.nodes.get(&place.id) {
            self.unix_ms = node.clock.unix_ms(world.now);
        }
    }

    /// Writes a group: all of it, or nothing and every sender hears why. Says whether the process still lives.
    async fn commit(&mut self, place: &Place, jobs: Vec<Job>) -> bool {
        let (mut writes, mut answers): (Vec<What>, Vec<Answer>) = (Vec::new(), Vec::new());
        for job in jobs {
            self.write(place, job, &mut writes, &mut answers);
        }
        let sync = {
            let mut world = place.shared.lock();
            let now = world.now;
            let Some(node) = world.nodes.get_mut(&place.id) else { return false };
            match node.disk.write(now, writes) {
                Ok(()) => Some(node.disk.sync(now)),
                Err(_) => {
                    self.fall_back(&node.disk.durable().0);
                    world.sometimes("disk_full");
                    None
                }
            }
        };
        let Some(sync) = sync else {
            let full = || Err(DiskError::Full("the disk is full".to_owned()));
            answers.into_iter().for_each(|answer| answer(self, full()));
            return true;
        };
        if !place.waits(sync.at).await || !place.gets_time().await {
            return false;
        }
        let mut world = place.shared.lock();
        if !world.is_current(place.id, place.process) {
            return false;
        }
        let Some(node) = world.nodes.get_mut(&place.id) else { return false };
        let outcome = match node.disk.synced(&sync) {
            Synced::Durable(written) => {
                written.iter().flatten().for_each(|what| world.record_durable(place.id, what));
                Ok(())
            }
            Synced::Failed => {
                self.fall_back(&node.disk.durable().0);
                world.sometimes("fsync_failed");
                Err(DiskError::Failed("fsync failed".to_owned()))
            }
            Synced::Stale => return false,
        };
        drop(world);
        self.look_at_the_clock(place);
        answers.into_iter().for_each(|answer| answer(self, outcome.clone()));
        true
    }

    fn fall_back(&mut self, records: &Records) {
        self.storage.fall_back(records, std::iter::empty());
    }

    fn write(&mut self, place: &Place, job: Job, writes: &mut Vec<What>, answers: &mut Vec<Answer>) {
        match job {
            Job::KeepFacts(queue, facts, reply) => {
                self.storage.keep_facts(queue.clone(), (*facts).clone());
                writes.push(What::Facts(queue, facts));
                answers.push(Box::new(move |_, done| say(reply, done)));
            }
            Job::Replica(ReplicaJob::Merge { copies, reply, .. }) => {
                let merged = self.storage.merge(copies, self.planted);
                writes.push(What::Records(0, merged.clone()));
                answers.push(Box::new(move |memory, done| say(reply, done.map(|()| memory.merged(merged)))));
            }
            Job::Replica(ReplicaJob::Drop { slot, reply }) => {
                self.storage.drop_slot(slot);
                writes.push(What::Drop(slot));
                answers.push(Box::new(move |memory, done| {
                    if done.is_ok() {
                        memory.hashes.retain(|key, _| key.slot() != slot);
                    }
                    say(reply, done);
                }));
            }
            Job::Replica(ReplicaJob::Keep(landing, reply)) => {
                let Landing { pick, ending, links, captured, .. } = *landing;
                let lacks = captured.map(|_| {
                    let key = self.page_key(place, &pick, writes);
                    writes.push(What::Pages(PagesWrite::Fetched(pick.flight, key.clone())));
                    (key, PAGE_BYTES)
                });
                let kept = Kept { flight: pick.flight, ending, links, lacks };
                answers.push(Box::new(move |_, done| say(reply, done.map(|()| kept))));
            }
            Job::Replica(ReplicaJob::Begin { unix_s, least, reply }) => {
                let (stored, folder) = {
                    let mut world = place.shared.lock();
                    if least.is_some() {
                        world.sometimes("life_outdated");
                    }
                    let records = world.nodes.get(&place.id).map(|node| &node.disk.durable().0);
                    let fresh = records.is_none_or(|records| records.pages.folder == 0);
                    let mut draw = Random::at(world.plan.seed, For::Folder, place.id.0, u64::from(place.process));
                    (records.and_then(|records| records.boot), fresh.then(|| draw.number().max(1)))
                };
                let boot = next_bump(stored.max(least), unix_s);
                writes.push(What::Boot(boot));
                writes.extend(folder.map(|folder| What::Pages(PagesWrite::Folder(folder))));
                let place = place.clone();
                answers.push(Box::new(move |memory, done| {
                    let begun = done.map(|()| memory.begin(&place, boot));
                    say(reply, begun);
                }));
            }
            Job::Replica(ReplicaJob::Define { definitions, reply }) => {
                writes.push(What::Definitions(0, definitions));
                answers.push(Box::new(move |_, done| say(reply, done)));
            }
            Job::Content(ContentJob::Mark(keys, holding, reply)) => {
                writes.push(What::Pages(PagesWrite::Copied(holding, keys)));
                answers.push(Box::new(move |_, done| say(reply, done)));
            }
            Job::Content(ContentJob::TakeBack(holding, _, reply)) => {
                writes.push(What::Pages(PagesWrite::TakenBack(holding)));
                answers.push(Box::new(move |_, done| say(reply, done.map(|()| None))));
            }
            Job::Content(ContentJob::Keep(from, arriving, reply)) => {
                let keys = arriving.into_iter().map(|Arriving { offer, .. }| key_of(&offer)).collect();
                writes.push(What::Pages(PagesWrite::Came(0, from, keys)));
                answers.push(Box::new(move |_, done| say(reply, done)));
            }
            _ => unreachable!("reads go to `read`"),
        }
    }

    /// Names the page that a flight brought: another fetch of the same round may be here already, or come with this group.
    fn page_key(&self, place: &Place, pick: &proto::batch::Pick, writes: &[What]) -> ContentKey {
        let url = UrlKey::new(pick.queue.crawl(), &pick.entry.url);
        let mut key = ContentKey { url, round: pick.entry.progress.round, other: None };
        let comes = |what: &What| match what {
            What::Pages(PagesWrite::Fetched(_, other)) => *other == key,
            What::Pages(PagesWrite::Came(_, _, others)) => others.contains(&key),
            _ => false,
        };
        if pages(place, |pages| pages.here.contains(&key)).unwrap_or(false) || writes.iter().any(comes) {
            let fetch =
                (u128::from(place.id.0 + 1) << 96) | (u128::from(place.process) << 64) | u128::from(pick.flight);
            key.other = Some(fetch.to_be_bytes());
        }
        key
    }

    /// What became durable, and what of it is in its queue now.
    fn merged(&mut self, copies: Vec<proto::cluster::copy::RecordCopy>) -> Merged {
        let mut changed = Vec::with_capacity(copies.len());
        for copy in &copies {
            let hash = copy.hash();
            let before = self.hashes.insert(copy.key.clone(), hash);
            changed.push(Changed::new(&copy.key, before, Some(hash)));
        }
        let keys: Vec<UrlKey> = copies.into_iter().map(|copy| copy.key).collect();
        let admitted = self.storage.fresh(keys, self.unix_ms).into_iter().map(admitted).collect();
        Merged { changed, admitted }
    }

    fn begin(&mut self, place: &Place, boot: u32) -> Begun {
        let mut world = place.shared.lock();
        world.life_begins(place.id, boot);
        let (digests, definitions) = match world.nodes.get(&place.id) {
            Some(node) => {
                let records = &node.disk.durable().0;
                self.storage = Storage::new(place.id, records, 2 * WAIT_MAX_MS);
                (records.digests(), records.definitions.values().cloned().collect())
            }
            None => Default::default(),
        };
        self.life = boot;
        Begun { boot, digests, definitions }
    }

    fn read(&mut self, place: &Place, job: Job) {
        let (storage, unix_ms) = (&mut self.storage, self.unix_ms);
        match job {
            Job::FallDue(at, reply) => {
                let keys = storage.fall_due(at);
                let fallen = storage.fresh(keys, at).into_iter().map(admitted).collect();
                say(reply, Ok((fallen, None)));
            }
            Job::Refill(queue, after, limit, reply) => say(reply, Ok(storage.refill(&queue, after, limit, unix_ms))),
            Job::Load(queue, limit, reply) => say(reply, Ok(storage.load(&queue, limit, unix_ms))),
            Job::Sweep(slot, after, queues, limit, reply) => {
                let (keys, next) = storage.sweep(slot, after.as_ref(), queues);
                let loaded = keys.iter().map(|key| storage.load(key, limit, unix_ms)).collect();
                say(reply, Ok((loaded, next)));
            }
            Job::State(reply) => say(reply, Ok(State::default())),
            Job::Stop => {}
            Job::Replica(job) => self.read_replica(place, job),
            Job::Content(job) => read_contents(place, job),
            _ => unreachable!("only a node alone asks for this"),
        }
    }

    fn read_replica(&mut self, place: &Place, job: ReplicaJob) {
        let (storage, unix_ms) = (&mut self.storage, self.unix_ms);
        match job {
            ReplicaJob::Admit { crawl, parent, urls, unix_ms, reply } => {
                say(reply, Ok(storage.admit(&crawl, parent, urls, unix_ms)));
            }
            ReplicaJob::Select { life, picks, reply } => {
                let current = life == self.life;
                let select = |pick: proto::batch::Pick| {
                    let copy = if current { storage.select(&pick) } else { None };
                    (pick, copy)
                };
                say(reply, Ok(picks.into_iter().map(select).collect()));
            }
            ReplicaJob::Settle { flights, unix_ms, reply } => {
                let settle = |(pick, ending, stage): (Box<proto::batch::Pick>, _, _)| match stage {
                    Stage::Crawled => (storage.crawled(&pick), false),
                    Stage::Processed => {
                        let settled = storage.settle(&pick, ending, unix_ms, &self.rules);
                        settled.map_or((None, false), |(copy, page)| (Some(copy), page))
                    }
                };
                say(reply, Ok(flights.into_iter().map(settle).collect()));
            }
            ReplicaJob::Land { picks, reply } => {
                let key = |pick: &proto::batch::Pick| UrlKey::new(pick.queue.crawl(), &pick.entry.url);
                let landed = picks.iter().map(|pick| (key(pick), pick.flight));
                let keys: Vec<UrlKey> =
                    landed.filter(|(key, flight)| storage.landed(key, *flight)).map(|(key, _)| key).collect();
                say(reply, Ok(storage.fresh(keys, unix_ms).into_iter().map(admitted).collect()));
            }
            ReplicaJob::Forget(slot) => storage.forget_flights(slot),
            ReplicaJob::Read { slot, ranges, after, limit, reply } => {
                let world = place.shared.lock();
                let Some(node) = world.nodes.get(&place.id) else { return };
                say(reply, Ok(node.disk.durable().0.read(slot, ranges.as_deref(), after.as_ref(), limit)));
            }
            ReplicaJob::Totals(_, reply) => say(reply, Ok(Default::default())),
            ReplicaJob::Url(_, reply) => say(reply, Ok(None)),
            ReplicaJob::Failings(reply) => say(reply, Ok(Default::default())),
            ReplicaJob::CountCrawls(_, reply) => say(reply, Ok(Default::default())),
            _ => unreachable!("writes go to `write`"),
        }
    }
}

/// Looks at the pages on a disk.
fn pages<T>(place: &Place, look: impl FnOnce(&Pages) -> T) -> Option<T> {
    let world = place.shared.lock();
    world.nodes.get(&place.id).map(|node| look(&node.disk.durable().0.pages))
}

fn read_contents(place: &Place, job: ContentJob) {
    match job {
        // Before the folder has its number nothing is said of it: whoever asked comes again.
        ContentJob::Stand(reply) => {
            let stand = pages(place, |pages| Stand { folder: pages.folder, standing: pages.standing() });
            say(reply, stand.filter(|stand| stand.folder != 0).ok_or(DiskError::Stopped));
        }
        ContentJob::List(after, limit, reply) => {
            let listed = pages(place, |pages| pages.listed(after.as_ref(), limit, PAGE_BYTES));
            say(reply, Ok(listed.unwrap_or_default()));
        }
        ContentJob::Offers(keys, reply) => {
            let offered = pages(place, |pages| {
                let here = |key: &ContentKey| pages.here.contains(key).then(|| (offer(key), POSITION));
                keys.into_iter().map(|key| (key.clone(), here(&key))).collect()
            });
            say(reply, Ok(offered.unwrap_or_default()));
        }
        ContentJob::Wanted(offers, reply) => {
            let wanted = pages(place, |pages| {
                let lacks =
                    |(place, offer): (usize, &Offer)| (!pages.here.contains(&key_of(offer))).then_some(place as u16);
                offers.iter().enumerate().filter_map(lacks).collect()
            });
            say(reply, Ok(wanted.unwrap_or_default()));
        }
        ContentJob::Versions(_, reply) => say(reply, Ok(Vec::new())), // nobody reads pages here
        _ => unreachable!("writes go to `write`"),
    }
}

/// Where the records of every page lie: nobody reads them.
const POSITION: WarcPosition = WarcPosition { segment: 0, offset: 0, length: PAGE_BYTES };

fn offer(key: &ContentKey) -> Offer {
    Offer {
        url: key.url.clone(),
        round: key.round,
        record_id: key.other.unwrap_or_default(),
        payload_digest: Default::default(),
        unix_ms: 0,
        revisit: false,
        bytes: PAGE_BYTES,
    }
}

/// The key that an offer was made of.
fn key_of(offer: &Offer) -> ContentKey {
    let other = Some(offer.record_id).filter(|id| *id != [0; 16]);
    ContentKey { url: offer.url.clone(), round: offer.round, other }
}

fn admitted(fresh: Fresh) -> Admitted {
    let Fresh { queue, order, entry, new_host } = fresh;
    Admitted { queue, order, entry, new_host }
}

fn say<T>(reply: Reply<T>, answer: Result<T, DiskError>) {
    // Whoever asked may be gone: then nobody needs the answer.
    let _ = reply.send(answer);
}
