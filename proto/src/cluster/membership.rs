//! Who is in the cluster and who of them is alive: SWIM by foca, and the view that the ring is built from.
//!
//! foca is sans-IO: it is fed data and timers, and says what to send and when to be woken. Two things are ours. **Knocking**: foca stops all
//! its timers when it sees no active member, and also when it renews its identity, until somebody speaks to it; it would stay alone for ever,
//! so while nobody is alive or heard we announce ourselves to everybody we know, again and again; and always now and then to a peer that we
//! do not see, because two groups that started on two sides of a partition would never hear of each other. **The view**: a node that is down keeps its place for `forget_after`, because moving its data costs
//! more than waiting for it; a node that leaves gives its place up at once; and a changed view must be stable for a while before
//! anything moves, because views change in bursts.

use std::collections::{BTreeMap, BTreeSet};
use std::num::{NonZeroU8, NonZeroUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Buf, BufMut};
use foca::{AccumulatingRuntime, BroadcastHandler, Codec, Foca, Header, Invalidates, Member, OwnedNotification, Timer};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::departure::{Departure, Stage};
use super::enrolment::Enrolment;
use super::mutant::{Planted, planted};
use crate::crawl::politeness::{Micros, SECOND};
use crate::id::NodeId;
use crate::wire::{self, WireError};

/// A node in one of its lives. A renewed identity (foca believed us dead) is a life of its own to foca, not to the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Which node.
    pub node: NodeId,
    /// Grows with each life, and with each renewal within one.
    pub bump: u32,
    /// Its share of the ring.
    pub weight: u16,
}

impl foca::Identity for Identity {
    type Addr = NodeId;

    fn renew(&self) -> Option<Self> {
        Some(Identity { bump: self.bump.saturating_add(1), ..*self })
    }

    fn addr(&self) -> NodeId {
        self.node
    }

    fn win_addr_conflict(&self, other: &Self) -> bool {
        self.bump > other.bump
    }
}

/// Returns the number of a new life: larger than every renewal of the last one, also when its disk or the clock was lost.
pub fn next_bump(stored: Option<u32>, unix_seconds: u64) -> u32 {
    let after_last = stored.map_or(0, |bump| bump.saturating_add(1_000));
    after_last.max(u32::try_from(unix_seconds).unwrap_or(u32::MAX))
}

/// What a node says about itself, carried by foca's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadReport {
    /// Who.
    pub node: NodeId,
    /// In which life.
    pub boot: u32,
    /// Counts the reports of that life.
    pub number: u32,
    /// Its load, in thousandths; with [`CUT_OFF`] if it reaches too few voters.
    pub load: u32,
    /// It is leaving: its slots go to others.
    pub leaving: bool,
}

/// Set in the load of a node that reaches too few voters to be granted a lease. No load is as large; to a node that does not know the
/// sign it is one too busy for any batch.
pub const CUT_OFF: u32 = 1 << 31;

impl LoadReport {
    /// Its load, in thousandths.
    pub fn load(&self) -> u32 {
        self.load & !CUT_OFF
    }

    /// Whether it reaches too few voters.
    pub fn is_cut_off(&self) -> bool {
        self.load & CUT_OFF != 0
    }
}

impl Invalidates for LoadReport {
    fn invalidates(&self, other: &Self) -> bool {
        self.node == other.node && (self.boot, self.number) >= (other.boot, other.number)
    }
}

/// Keeps the newest report of every node.
#[derive(Default)]
struct Reports {
    newest: BTreeMap<NodeId, LoadReport>,
    /// Nodes heard of since this was last taken.
    heard: BTreeSet<NodeId>,
}

/// Reports kept: a bound against a peer that invents nodes.
const REPORTS_MAX: usize = 4_096;

/// The reports as foca's handler and we both need them: foca gives its handler to nobody.
#[derive(Clone, Default)]
struct SharedReports(Arc<Mutex<Reports>>);

impl SharedReports {
    fn lock(&self) -> MutexGuard<'_, Reports> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BroadcastHandler<Identity> for SharedReports {
    type Key = LoadReport;
    type Error = WireError;

    fn receive_item(&mut self, data: &[u8], _sender: Option<&Identity>) -> Result<Option<LoadReport>, WireError> {
        let report: LoadReport = wire::decode(data)?;
        let mut reports = self.lock();
        let known = reports.newest.get(&report.node);
        let news = known.is_none_or(|known| (report.boot, report.number) > (known.boot, known.number));
        if !news || (known.is_none() && reports.newest.len() >= REPORTS_MAX) {
            return Ok(None);
        }
        reports.newest.insert(report.node, report);
        reports.heard.insert(report.node);
        Ok(Some(report))
    }
}

/// foca's messages in our encoding. They hold no lengths, so decoding from a reader is safe.
struct WireCodec;

/// More than any header or member takes: four identities of 15 bytes and a few numbers.
const ITEM_BYTES_MAX: usize = 128;

impl WireCodec {
    fn put<T: Serialize>(value: &T, mut buffer: impl BufMut) -> Result<(), CodecError> {
        let mut bytes = Vec::with_capacity(ITEM_BYTES_MAX);
        wire::encode_into(value, &mut bytes)?;
        if buffer.remaining_mut() < bytes.len() {
            return Err(CodecError::Full);
        }
        buffer.put_slice(&bytes);
        Ok(())
    }

    fn take<T: serde::de::DeserializeOwned>(mut buffer: impl Buf) -> Result<T, CodecError> {
        let mut bytes = buffer.chunk();
        let before = bytes.len();
        let value = wire::decode_first(&mut bytes)?;
        let taken = before - bytes.len();
        buffer.advance(taken);
        Ok(value)
    }
}

#[derive(Debug, thiserror::Error)]
enum CodecError {
    #[error("the packet is full")]
    Full,
    #[error(transparent)]
    Wire(#[from] WireError),
}

impl Codec<Identity> for WireCodec {
    type Error = CodecError;

    fn encode_header(&mut self, header: &Header<Identity>, buffer: impl BufMut) -> Result<(), CodecError> {
        Self::put(header, buffer)
    }

    fn decode_header(&mut self, buffer: impl Buf) -> Result<Header<Identity>, CodecError> {
        Self::take(buffer)
    }

    fn encode_member(&mut self, member: &Member<Identity>, buffer: impl BufMut) -> Result<(), CodecError> {
        Self::put(member, buffer)
    }

    fn decode_member(&mut self, buffer: impl Buf) -> Result<Member<Identity>, CodecError> {
        Self::take(buffer)
    }
}

/// Times of membership.
#[derive(Clone, Copy, Debug)]
pub struct MembershipRules {
    /// How often a random member is probed.
    pub probe_every: Micros,
    /// A suspect that does not object for so long is down.
    pub suspect_for: Micros,
    /// A node that is down keeps its place on the ring for so long.
    pub forget_after: Micros,
    /// A changed view must be stable for so long before data moves.
    pub stable_for: Micros,
    /// How often a node that is alone knocks at its bootstrap peers.
    pub knock_every: Micros,
}

impl Default for MembershipRules {
    fn default() -> Self {
        MembershipRules {
            probe_every: SECOND,
            suspect_for: 3 * SECOND,
            forget_after: 600 * SECOND,
            stable_for: 5 * SECOND,
            knock_every: 2 * SECOND,
        }
    }
}

impl MembershipRules {
    fn foca(&self) -> foca::Config {
        let one = NonZeroUsize::MIN;
        let every = |time: Micros, members| {
            Some(foca::PeriodicParams { frequency: Duration::from_micros(time), num_members: members })
        };
        foca::Config {
            probe_period: Duration::from_micros(self.probe_every),
            probe_rtt: Duration::from_micros(self.probe_every * 3 / 10),
            num_indirect_probes: NonZeroUsize::new(2).expect("not zero"),
            max_transmissions: NonZeroU8::new(6).expect("not zero"),
            suspect_to_down_after: Duration::from_micros(self.suspect_for),
            remove_down_after: Some(Duration::from_micros(self.forget_after.max(60 * SECOND))),
            notify_down_members: true,
            periodic_announce: every(self.probe_every * 7, one),
            periodic_announce_to_down_members: every(self.probe_every * 3, NonZeroUsize::new(2).expect("not zero")),
            periodic_gossip: every(self.probe_every / 2, one),
            ..foca::Config::simple()
        }
    }
}

struct Known {
    weight: u16,
    /// Since when it is down; `None` while it is alive.
    down_since: Option<Micros>,
}

/// The nodes that have a place on the ring, and their weights.
pub type View = BTreeMap<NodeId, usize>;

/// What a step of membership led to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct News {
    /// Who is alive changed.
    pub alive_changed: bool,
    /// The view that the ring is built from changed.
    pub view_changed: bool,
    /// Nodes that reported their load.
    pub reported: Vec<NodeId>,
    /// Another life of ours is taken for the living one: foca renewed our identity.
    pub renewed: bool,
}

/// Membership of one node.
pub struct Membership {
    rules: MembershipRules,
    planted: Planted,
    me: NodeId,
    boot: u32,
    weight: u16,
    foca: Foca<Identity, WireCodec, ChaCha8Rng, SharedReports>,
    reports: SharedReports,
    runtime: AccumulatingRuntime<Identity>,
    timers: BTreeMap<(Micros, u64), Timer<Identity>>,
    next_timer: u64,
    bootstrap: Vec<NodeId>,
    alive: BTreeSet<NodeId>,
    known: BTreeMap<NodeId, Known>,
    /// Nodes that gave their place up, and the life in which they did: nobody gossips about it for ever.
    departed: BTreeMap<NodeId, u32>,
    /// Those of whom nothing more is to be had, and since which life.
    gone: BTreeMap<NodeId, u32>,
    /// What of it is new since it was written down.
    moved: Vec<Departure>,
    view: View,
    /// A view that is not stable yet, and since when it is as it is.
    coming: Option<(View, Micros)>,
    next_knock: Micros,
    knocks: u64,
    last_heard: Micros,
    report_number: u32,
    leaving: bool,
    closed: bool,
}

/// Renewals of an identity within one life, at most; the next life is a thousand later.
const RENEWALS_MAX: u32 = 500;

/// Times of knocking without a word from anybody, after which a node counts as alone: with others alive it is probed every second.
const SILENCE: u64 = 3;

/// Nodes known: a bound against a peer that invents some.
const KNOWN_MAX: usize = 4_096;

impl Membership {
    /// A node that starts its life `boot` and knows its bootstrap `peers`, which count as down until they are heard of.
    pub fn new(
        now: Micros,
        me: Identity,
        peers: &[(NodeId, u16)],
        rules: MembershipRules,
        rng: ChaCha8Rng,
        planted: Planted,
    ) -> Membership {
        let reports = SharedReports::default();
        let foca = Foca::with_custom_broadcast(me, rules.foca(), rng, WireCodec, reports.clone());
        let known = |weight| Known { weight, down_since: Some(now) };
        let known: BTreeMap<NodeId, Known> =
            peers.iter().filter(|(node, _)| *node != me.node).map(|(node, weight)| (*node, known(*weight))).collect();
        let bootstrap = known.keys().copied().collect();
        let mut membership = Membership {
            rules,
            planted,
            me: me.node,
            boot: me.bump,
            weight: me.weight,
            foca,
            reports,
            runtime: AccumulatingRuntime::new(),
            timers: BTreeMap::new(),
            next_timer: 0,
            bootstrap,
            alive: [me.node].into(),
            known,
            departed: BTreeMap::new(),
            gone: BTreeMap::new(),
            moved: Vec::new(),
            view: View::new(),
            coming: None,
            next_knock: now,
            knocks: 0,
            last_heard: now,
            report_number: 0,
            leaving: false,
            closed: false,
        };
        membership.view = membership.view_now();
        membership
    }

    /// Nodes that are enrolled, as it is on our disk: like those of the configuration they count as down until they are heard of.
    pub fn meet(&mut self, enrolled: impl Iterator<Item = Enrolment>) {
        let since = Some(self.last_heard);
        for Enrolment { node, weight, .. } in enrolled.filter(|said| said.node != self.me).take(KNOWN_MAX) {
            self.known.entry(node).or_insert(Known { weight, down_since: since });
        }
        self.view = self.view_now();
    }

    /// Who gave a place up or is back, as it is on our disk. To be told before anything else.
    pub fn remember(&mut self, written: impl Iterator<Item = Departure>) {
        for Departure { node, boot, stage } in written.filter(|said| said.node != self.me) {
            match stage {
                Stage::Back => {}
                Stage::Left => drop(self.departed.insert(node, boot)),
                Stage::Gone => drop(self.gone.insert(node, boot)),
            }
        }
        self.view = self.view_now();
    }

    /// Takes in what a peer's foca sent.
    pub fn receive(&mut self, now: Micros, data: &[u8], sends: &mut Vec<(NodeId, Vec<u8>)>) -> News {
        if self.closed {
            return News::default();
        }
        // What cannot be understood, or comes from a former life, is no news.
        if self.foca.handle_data(data, &mut self.runtime).is_ok() {
            self.last_heard = now;
        }
        self.drain(now, sends)
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Micros, sends: &mut Vec<(NodeId, Vec<u8>)>) -> News {
        while let Some(entry) = self.timers.first_entry()
            && entry.key().0 <= now
        {
            let timer = entry.remove();
            // An error here is foca's note that a probe was cut short by our own lateness.
            let _ = self.foca.handle_timer(timer, &mut self.runtime);
        }
        if now >= self.next_knock {
            self.next_knock = now + self.rules.knock_every;
            let silence = now >= self.last_heard + SILENCE * self.rules.knock_every;
            let alone = self.foca.num_members() == 0 || silence;
            let gave_up = self.knocks > 0 && planted!(self.planted, NoReannounce);
            if !self.closed && !gave_up {
                self.knock(alone);
            }
        }
        self.drain(now, sends)
    }

    /// Announces us to those we do not see: to all of them while we are alone, else to one at a time. Two groups that started on two
    /// sides of a partition know nothing of each other, and none of them is alone.
    fn knock(&mut self, alone: bool) {
        let everybody: BTreeSet<NodeId> = self.bootstrap.iter().copied().chain(self.known.keys().copied()).collect();
        let strangers: Vec<NodeId> = everybody.into_iter().filter(|node| alone || !self.alive.contains(node)).collect();
        if strangers.is_empty() {
            return;
        }
        self.knocks += 1;
        let chosen = if alone { &strangers[..] } else { &strangers[self.knocks as usize % strangers.len()..][..1] };
        for node in chosen {
            let _ = self.foca.announce(Identity { node: *node, bump: 0, weight: 0 }, &mut self.runtime);
        }
    }

    /// Tells the others how busy we are.
    pub fn report(&mut self, load: u32) {
        self.report_number += 1;
        let (node, boot, number, leaving) = (self.me, self.boot, self.report_number, self.leaving);
        let report = LoadReport { node, boot, number, load, leaving };
        if let Ok(bytes) = wire::encode(&report) {
            let _ = self.foca.add_broadcast(&bytes);
        }
    }

    /// Gives our place up. The others hear of it, and what we have moves to them; we stay alive until it has.
    pub fn leave(&mut self, now: Micros) -> News {
        self.leaving = true;
        self.report(0);
        News { view_changed: self.refresh_view(now), ..News::default() }
    }

    /// Says goodbye: nothing is left here.
    pub fn close(&mut self, now: Micros, sends: &mut Vec<(NodeId, Vec<u8>)>) {
        let _ = self.foca.leave_cluster(&mut self.runtime);
        self.drain(now, sends);
        self.closed = true;
    }

    fn drain(&mut self, now: Micros, sends: &mut Vec<(NodeId, Vec<u8>)>) -> News {
        let mut news = News::default();
        while let Some((to, data)) = self.runtime.to_send() {
            sends.push((to.node, data.to_vec()));
        }
        while let Some((after, timer)) = self.runtime.to_schedule() {
            self.next_timer += 1;
            self.timers.insert((now + after.as_micros() as Micros, self.next_timer), timer);
        }
        while let Some(notification) = self.runtime.to_notify() {
            match notification {
                OwnedNotification::MemberUp(id) | OwnedNotification::Rename(_, id) => self.is_up(id),
                OwnedNotification::MemberDown(_) => {}
                OwnedNotification::Rejoin(_) => news.renewed = true,
                _ => continue,
            }
            news.alive_changed = true;
        }
        news.reported = std::mem::take(&mut self.reports.lock().heard).into_iter().collect();
        for node in &news.reported {
            self.note_leaving(*node);
        }
        if news.alive_changed {
            let members = self.foca.iter_members().map(|member| member.id().node);
            self.alive = members.chain([self.me]).collect();
            // By who is a member now, not by the news: these may speak of an identity that was renewed since.
            for (node, known) in &mut self.known {
                known.down_since = if self.alive.contains(node) { None } else { known.down_since.or(Some(now)) };
            }
        }
        news.view_changed = self.refresh_view(now);
        news
    }

    fn is_up(&mut self, id: Identity) {
        if id.node == self.me || (!self.known.contains_key(&id.node) && self.known.len() >= KNOWN_MAX) {
            return;
        }
        let known = self.known.entry(id.node).or_insert(Known { weight: 1, down_since: None });
        known.weight = id.weight;
    }

    fn note_leaving(&mut self, node: NodeId) {
        let Some(report) = self.report_of(node) else { return };
        if report.leaving {
            self.note_departed(node, report.boot);
        } else if self.departed.get(&node).is_some_and(|left| *left < report.boot) {
            self.is_back(node, report.boot);
        }
    }

    fn is_back(&mut self, node: NodeId, boot: u32) {
        self.departed.remove(&node);
        self.moved.push(Departure { node, boot, stage: Stage::Back });
    }

    fn note_departed(&mut self, node: NodeId, boot: u32) {
        if self.departed.len() < KNOWN_MAX || self.departed.contains_key(&node) {
            let before = self.departed.get(&node).copied();
            if before.is_none_or(|before| before < boot) {
                self.departed.insert(node, boot);
                self.moved.push(Departure { node, boot, stage: Stage::Left });
            }
        }
    }

    fn note_gone(&mut self, node: NodeId, boot: u32) {
        if self.gone.len() < KNOWN_MAX || self.gone.contains_key(&node) {
            let known = self.gone.entry(node).or_insert(0);
            *known = boot.max(*known);
        }
    }

    /// A peer says that these nodes gave their places up.
    pub fn departed_by_others(&mut self, now: Micros, departed: &[(NodeId, u32)]) -> News {
        for (node, boot) in departed {
            let later = self.report_of(*node).is_some_and(|report| report.boot > *boot);
            if *node != self.me && !later {
                self.note_departed(*node, *boot);
            }
        }
        News { view_changed: self.refresh_view(now), ..News::default() }
    }

    /// A node gave its place up or is back, as it is written down, by ourselves or by another.
    pub fn written_down(&mut self, now: Micros, said: Departure) -> News {
        let Departure { node, boot, stage } = said;
        match stage {
            Stage::Back => {}
            Stage::Left => return self.departed_by_others(now, &[(node, boot)]),
            Stage::Gone => {
                self.note_gone(node, boot);
                return News::default();
            }
        }
        if self.departed.get(&node).is_some_and(|left| *left < boot) {
            self.is_back(node, boot);
        }
        News { view_changed: self.refresh_view(now), ..News::default() }
    }

    /// Who gave a place up or took one since this was last asked: to be written down.
    pub fn take_moved(&mut self) -> Vec<Departure> {
        std::mem::take(&mut self.moved)
    }

    /// An operator says that a node is gone for ever: it gives its place up, in the last life that anybody heard of. It is back when it
    /// is heard of in a later one.
    pub fn forget(&mut self, now: Micros, node: NodeId, boot: u32) -> News {
        if node != self.me && !self.alive.contains(&node) {
            let heard = self.report_of(node).map_or(0, |report| report.boot);
            let boot = boot.max(heard).max(self.departed.get(&node).copied().unwrap_or(0));
            self.note_departed(node, boot);
            self.note_gone(node, boot);
            self.moved.push(Departure { node, boot, stage: Stage::Gone });
        }
        News { view_changed: self.refresh_view(now), ..News::default() }
    }

    /// The nodes that gave their places up, and in which life.
    pub fn departed(&self) -> Vec<(NodeId, u32)> {
        self.departed.iter().map(|(node, boot)| (*node, *boot)).collect()
    }

    /// Whether a node gave its place up, and is not back.
    pub fn has_left(&self, node: NodeId) -> bool {
        self.departed.contains_key(&node)
    }

    /// Whether a node gave its place up in this life of it or a later one, and is not back.
    pub fn has_left_since(&self, node: NodeId, boot: u32) -> bool {
        self.departed.get(&node).is_some_and(|left| *left >= boot)
    }

    /// Whether nothing more is to be had from a node that gave its place up.
    pub fn is_gone(&self, node: NodeId) -> bool {
        let left = self.departed.get(&node);
        left.is_some_and(|left| self.gone.get(&node).is_some_and(|gone| gone >= left))
    }

    /// Nodes that gave their places up and may still have something that nobody else has.
    pub fn departing(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.departed.keys().copied().filter(|node| !self.is_gone(*node))
    }

    /// What others are to write down of us when we have handed over everything.
    pub fn handed_over(&self) -> Departure {
        Departure { node: self.me, boot: self.boot, stage: Stage::Gone }
    }

    /// Looks whether the view changed, and whether a changed one was stable for long enough; says whether the view is new.
    fn refresh_view(&mut self, now: Micros) -> bool {
        let forget_after = self.rules.forget_after;
        self.known.retain(|_, known| known.down_since.is_none_or(|since| now < since + forget_after));
        let view = self.view_now();
        if view == self.view {
            self.coming = None;
            return false;
        }
        match &self.coming {
            Some((coming, since)) if *coming == view => {
                if now < since + self.rules.stable_for {
                    return false;
                }
            }
            _ => {
                self.coming = Some((view, now));
                return false;
            }
        }
        (self.view, self.coming) = (view, None);
        true
    }

    fn view_now(&self) -> View {
        let others = self.known.iter().filter(|(node, _)| !self.departed.contains_key(node));
        let mut view: View = others.map(|(node, known)| (*node, usize::from(known.weight))).collect();
        if !self.leaving {
            view.insert(self.me, usize::from(self.weight));
        }
        view
    }

    /// The view that the ring is built from.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Who is alive, ourselves included.
    pub fn alive(&self) -> &BTreeSet<NodeId> {
        &self.alive
    }

    /// The newest report of a node.
    pub fn report_of(&self, node: NodeId) -> Option<LoadReport> {
        self.reports.lock().newest.get(&node).copied()
    }

    /// Says which later life of `node` is known here, if `boot` is so far behind it that no renewal explains it: a node that lost its
    /// disk may start with too small a number, and foca would ignore it without a word.
    pub fn outlived(&self, node: NodeId, boot: u32) -> Option<u32> {
        let lives = self.foca.iter_membership_state().map(|member| member.id()).filter(|id| id.node == node);
        lives.map(|id| id.bump).max().filter(|bump| *bump > boot.saturating_add(RENEWALS_MAX))
    }

    /// Whether this node gives its place up.
    pub fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// When to tick again.
    pub fn next_wake(&self) -> Micros {
        let timer = self.timers.first_key_value().map_or(Micros::MAX, |((at, _), _)| *at);
        let stable = self.coming.as_ref().map_or(Micros::MAX, |(_, since)| since + self.rules.stable_for);
        let forgotten = self.known.values().filter_map(|known| known.down_since).min();
        let forgotten = forgotten.map_or(Micros::MAX, |since| since + self.rules.forget_after);
        timer.min(stable).min(forgotten).min(self.next_knock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    struct Net {
        nodes: Vec<Membership>,
        queue: BTreeMap<(Micros, u64), (usize, Vec<u8>)>,
        counter: u64,
        now: Micros,
        cut: BTreeSet<usize>,
        views_changed: Vec<(usize, Micros)>,
    }

    fn rules() -> MembershipRules {
        MembershipRules { forget_after: 60 * SECOND, ..MembershipRules::default() }
    }

    fn node(now: Micros, number: u64, bump: u32, peers: &[(NodeId, u16)]) -> Membership {
        let me = Identity { node: NodeId(number), bump, weight: 1 };
        let rng = ChaCha8Rng::seed_from_u64(number);
        Membership::new(now, me, peers, rules(), rng, Planted::default())
    }

    impl Net {
        fn new(count: u64) -> Net {
            let peers: Vec<(NodeId, u16)> = (0..count).map(|number| (NodeId(number), 1)).collect();
            let nodes = (0..count).map(|number| node(0, number, 1_000, &peers)).collect();
            let cut = BTreeSet::new();
            Net { nodes, queue: BTreeMap::new(), counter: 0, now: 0, cut, views_changed: Vec::new() }
        }

        fn run(&mut self, until: Micros) {
            while self.now < until {
                let wake = self.nodes.iter().map(Membership::next_wake).min().unwrap_or(until);
                let message = self.queue.first_key_value().map_or(Micros::MAX, |((at, _), _)| *at);
                self.now = wake.min(message).min(until).max(self.now);
                for index in 0..self.nodes.len() {
                    if self.nodes[index].next_wake() <= self.now {
                        let mut sends = Vec::new();
                        let news = self.nodes[index].tick(self.now, &mut sends);
                        self.sent(index, sends, news);
                    }
                }
                while let Some(entry) = self.queue.first_entry()
                    && entry.key().0 <= self.now
                {
                    let (to, data) = entry.remove();
                    let mut sends = Vec::new();
                    let news = self.nodes[to].receive(self.now, &data, &mut sends);
                    self.sent(to, sends, news);
                }
            }
        }

        fn sent(&mut self, from: usize, sends: Vec<(NodeId, Vec<u8>)>, news: News) {
            if news.view_changed {
                self.views_changed.push((from, self.now));
            }
            for (to, data) in sends {
                let to = to.0 as usize;
                if to < self.nodes.len() && self.cut.contains(&from) == self.cut.contains(&to) {
                    self.counter += 1;
                    self.queue.insert((self.now + 20_000, self.counter), (to, data));
                }
            }
        }

        fn all_alive(&self) -> bool {
            self.nodes.iter().all(|node| node.alive().len() == self.nodes.len())
        }
    }

    #[test]
    fn nodes_find_each_other_and_the_ring_does_not_move_for_it() {
        let mut net = Net::new(5);
        net.run(10 * SECOND);
        assert!(net.all_alive());
        assert!(net.views_changed.is_empty(), "bootstrap peers have their place from the beginning");
    }

    #[test]
    fn a_node_that_was_alone_is_found_again() {
        let mut net = Net::new(3);
        net.run(10 * SECOND);
        net.cut.insert(0);
        net.run(40 * SECOND);
        assert_eq!(net.nodes[0].alive().len(), 1, "alone");
        assert_eq!(net.nodes[1].alive().len(), 2);
        net.cut.clear();
        net.run(60 * SECOND);
        assert!(net.all_alive());
        assert!(net.views_changed.is_empty(), "who is down for a while keeps the place");
    }

    #[test]
    fn two_groups_that_started_apart_find_each_other() {
        let mut net = Net::new(5);
        net.cut.extend([0, 1]);
        net.run(30 * SECOND);
        assert_eq!((net.nodes[0].alive().len(), net.nodes[4].alive().len()), (2, 3));
        net.cut.clear();
        net.run(50 * SECOND);
        assert!(net.all_alive());
    }

    #[test]
    fn who_is_down_for_long_is_forgotten_after_a_stable_time() {
        let mut net = Net::new(3);
        net.run(10 * SECOND);
        net.cut.insert(2);
        net.run(60 * SECOND);
        assert!(net.views_changed.is_empty());
        net.run(100 * SECOND);
        assert_eq!(net.nodes[0].view().keys().copied().collect::<Vec<_>>(), [NodeId(0), NodeId(1)]);
        assert!(net.views_changed.iter().all(|(_, at)| *at > 65 * SECOND));
    }

    #[test]
    fn who_leaves_gives_the_place_up_and_stays_alive() {
        let mut net = Net::new(4);
        net.run(10 * SECOND);
        net.nodes[3].leave(net.now);
        net.run(20 * SECOND);
        for node in &net.nodes {
            assert_eq!(node.view().len(), 3);
            assert_eq!(node.alive().len(), 4);
        }
        let gone = net.nodes[3].handed_over();
        let first = &mut net.nodes[0];
        assert!(first.has_left(NodeId(3)) && !first.is_gone(NodeId(3)), "it may have what nobody else has");
        assert_eq!(first.departing().collect::<Vec<_>>(), [NodeId(3)]);
        first.written_down(net.now, gone);
        assert!(first.is_gone(NodeId(3)) && first.departing().next().is_none());
        let left_again = Departure { boot: gone.boot + 1_000, stage: Stage::Left, ..gone };
        first.written_down(net.now, left_again);
        assert!(!first.is_gone(NodeId(3)), "it was back, and leaves in another life");
    }

    #[test]
    fn who_is_forgotten_gives_the_place_up_until_a_later_life() {
        let mut net = Net::new(4);
        net.run(10 * SECOND);
        (0..4).for_each(|index| net.nodes[index].report(1));
        net.run(12 * SECOND);
        net.nodes[0].forget(net.now, NodeId(3), 0);
        assert!(!net.nodes[0].has_left(NodeId(3)), "it is alive");
        net.cut.insert(3);
        net.run(22 * SECOND);
        let departed: Vec<(NodeId, u32)> = {
            net.nodes[0].forget(net.now, NodeId(3), 0);
            net.nodes[0].departed()
        };
        assert_eq!(departed, [(NodeId(3), 1_000)], "the life that it reported from");
        let now = net.now;
        (1..3).for_each(|index| drop(net.nodes[index].departed_by_others(now, &departed)));
        net.run(30 * SECOND);
        assert!((0..3).all(|index| net.nodes[index].view().len() == 3), "long before it would have been forgotten");
        let peers: Vec<(NodeId, u16)> = (0..4).map(|number| (NodeId(number), 1)).collect();
        assert!(net.nodes[0].is_gone(NodeId(3)) && !net.nodes[1].is_gone(NodeId(3)));
        let gone = Departure { node: NodeId(3), boot: 1_000, stage: Stage::Gone };
        assert!(net.nodes[0].take_moved().contains(&gone), "the others are told by what is written down");
        let written = net.nodes[1].take_moved();
        assert_eq!(written, [Departure { node: NodeId(3), boot: 1_000, stage: Stage::Left }]);
        let mut started = node(net.now, 0, 9_000, &peers);
        started.remember(written.into_iter());
        assert!(started.has_left(NodeId(3)) && started.view().len() == 3, "a start does not forget it");
        net.nodes[3] = node(net.now, 3, 5_000, &peers);
        net.nodes[3].report(1);
        net.cut.clear();
        net.run(60 * SECOND);
        assert!(net.nodes.iter().all(|node| node.view().len() == 4), "it is back");
        let back = Departure { node: NodeId(3), boot: 5_000, stage: Stage::Back };
        assert_eq!(net.nodes[1].take_moved(), [back]);
        started.written_down(net.now, back);
        assert!(!started.has_left(NodeId(3)));
    }

    #[test]
    fn a_newcomer_gets_its_place_after_a_stable_time() {
        let mut net = Net::new(3);
        net.run(10 * SECOND);
        let peers: Vec<(NodeId, u16)> = (0..3).map(|number| (NodeId(number), 1)).collect();
        net.nodes.push(node(net.now, 3, 1_000, &peers));
        net.run(20 * SECOND);
        assert!(net.all_alive());
        assert!(net.nodes.iter().all(|node| node.view().len() == 4));
        assert!(net.views_changed.iter().all(|(_, at)| *at >= 15 * SECOND));
    }

    #[test]
    fn loads_travel_with_the_gossip() {
        let mut net = Net::new(4);
        net.run(5 * SECOND);
        net.nodes[1].report(777);
        net.run(10 * SECOND);
        assert!(net.nodes.iter().all(|node| node.report_of(NodeId(1)).unwrap().load == 777));
    }

    #[test]
    fn the_number_of_a_life_grows_whatever_was_lost() {
        assert_eq!(next_bump(Some(5_000), 100), 6_000);
        assert_eq!(next_bump(Some(5), 90_000), 90_000);
        assert_eq!(next_bump(None, 90_000), 90_000);
        assert_eq!(next_bump(Some(u32::MAX), 0), u32::MAX);
    }
}
