//! Registry: what people defined (crawls; later sites, jobs and settings), all of it on every node.
//!
//! A definition is a lattice value like a record: merge = the larger of two, by [`Version`] and then by bytes, so that copies may come
//! twice, late and in any order. **Define**: the node that a client asks gives the definition a version above every one it knows, writes it to
//! its own disk and pushes it to every living node, again and again until each said that it has it fsynced. The client is told that
//! it is *kept* when a majority of all nodes has it (never fewer than W), and which of the living ones have not said so yet.
//! A node that has a newer version answers with that: the client hears that somebody else changed it meanwhile.
//! **Compare**: every node tells the others a digest of everything it holds, on a timer; where digests differ, versions are exchanged
//! and what is newer is sent. So a node that was away, or that joins, learns everything within one round.
//! **Removed** definitions stay as tombstones, without a body: nobody who was away brings them back.
//!
//! **Revocations** are definitions by which names of a site are dead from now on: it was emptied or deleted. Whoever hears that one is kept may rely on it that nothing
//! of those names is asked for any more, by anybody. So a node says that it has one only when nothing can begin any more that it handed out against it, and, if it is a voter, when
//! nobody has a living promise of its who does not know it too ([`Registry::knows`]); it grants nothing to such a node from then on. A change that revokes counts when a majority of
//! the voters has said so besides the majority of all: any lease shares a voter with that one. Numbers of versions grow with the epoch of a site, so that no change by somebody who had
//! not heard of it undoes a revocation.
//!
//! **Enrolments** ([`Enrolment`]) bind in the same way: a node that is no voter keeps nothing before a majority of the voters has said that it knows of it. So whoever is granted a slot
//! after that counts it among those who may have what was acknowledged.
//!
//! What was not acknowledged may still take effect, when the one node that has it comes back: as with every write that timed out.
//!
//! The same comparison carries what a node has done and speaks for of what is limited ([`share`](super::share)), so that limits hold for the whole cluster.

mod step;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use self::step::{Effect, Input, NotDefined, Saying, Surroundings};
use super::departure::Departure;
use super::enrolment::Enrolment;
use super::mutant::{Planted, planted};
use super::share::{Allowed, Around, Counted, Speaking};
use super::slot_set::SlotSet;
use crate::crawl::politeness::{Micros, SECOND};
use crate::id::NodeId;
use crate::site::{Gone, SiteDefinition};

/// Definitions on one node, removed ones included; more are refused.
pub const DEFINITIONS_MAX: usize = 4_096;
/// Bytes of one definition.
pub const DEFINITION_BYTES_MAX: usize = 256 << 10;
/// Bytes of a name.
pub const NAME_BYTES_MAX: usize = crate::key::CRAWL_NAME_BYTES_MAX;
/// Bytes of the definitions of one letter, about; a single one may be longer.
const LETTER_BYTES_MAX: usize = 256 << 10;

/// What is defined. Appended only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum DefinitionKind {
    /// A crawl: [`CrawlDefinition`](crate::crawl::definition::CrawlDefinition).
    Crawl,
    /// A site.
    Site,
    /// A job.
    Job,
    /// A setting.
    Setting,
}

/// Names a definition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DefinitionKey {
    /// What it is.
    pub kind: DefinitionKind,
    /// Its name.
    pub name: String,
}

/// Which of two definitions of the same thing counts: the larger. Never given twice: a life counts upwards, and lives have numbers of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version {
    /// Counts changes.
    pub number: u64,
    /// Who made this one.
    pub node: NodeId,
    /// In which life.
    pub boot: u32,
}

/// A definition, or that there is none any more. Ordered by version, and by bytes among equals.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Definition {
    /// Its name.
    pub key: DefinitionKey,
    /// Its version.
    pub version: Version,
    /// What it says; `None` if it was removed.
    pub body: Option<Vec<u8>>,
}

impl Definition {
    /// Says whether it may be taken from a peer.
    pub fn is_sound(&self) -> bool {
        let body = self.body.as_ref().map_or(0, Vec::len);
        !self.key.name.is_empty() && self.key.name.len() <= NAME_BYTES_MAX && body <= DEFINITION_BYTES_MAX
    }

    /// Whether names of a site are dead by it.
    pub fn revokes(&self) -> bool {
        self.standing().is_some_and(|(epoch, _)| epoch > 0)
    }

    /// Whether nobody may be granted a slot who does not know it.
    pub fn binds(&self) -> bool {
        self.revokes() || Enrolment::read(self).is_some()
    }

    fn standing(&self) -> Option<(u32, bool)> {
        let body = self.body.as_ref().filter(|_| self.key.kind == DefinitionKind::Site)?;
        SiteDefinition::standing(body)
    }

    /// The least number of its version: a later epoch of a site is above every change of an earlier one, and of two that both end an epoch the deletion counts.
    fn number_min(&self) -> u64 {
        self.standing().map_or(0, |(epoch, deleted)| (u64::from(epoch) << 32) | (u64::from(deleted) << 31))
    }

    fn bytes(&self) -> usize {
        self.key.name.len() + self.body.as_ref().map_or(0, Vec::len) + 32
    }

    fn hash(&self) -> u64 {
        let bytes = crate::wire::encode(self).unwrap_or_default();
        xxhash_rust::xxh3::xxh3_64(&bytes)
    }
}

/// Times and bounds.
#[derive(Clone, Copy, Debug)]
pub struct RegistryRules {
    /// How often digests are compared.
    pub compare_every: Micros,
    /// After what time a push is repeated.
    pub repeat_after: Micros,
    /// How long the living ones that have not answered are waited for once enough have.
    pub spread_patience: Micros,
    /// A change that too few nodes have after this is given up.
    pub patience: Micros,
    /// Changes under way at once.
    pub proposals_max: usize,
    /// Where more is held than this, a list of it is long, and the same node is not told it again within `repeat_after`: while thousands of definitions change digests differ
    /// most of the time, and most of what the list would bring comes by itself.
    pub list_short: usize,
    /// How long what binds waits then for more of its kind, to be compared together with it.
    pub compare_gap: Micros,
}

impl Default for RegistryRules {
    fn default() -> Self {
        RegistryRules {
            compare_every: 2 * SECOND,
            repeat_after: SECOND / 2,
            spread_patience: 2 * SECOND,
            patience: 10 * SECOND,
            proposals_max: 256,
            list_short: 256,
            compare_gap: SECOND / 20,
        }
    }
}

/// A change under way.
struct Proposal {
    /// The client that waits for it; nobody waits for that we are enrolled, and it is never given up.
    ticket: Option<u64>,
    definition: Definition,
    binds: bool,
    /// It is on our own disk.
    stored: bool,
    have: BTreeSet<NodeId>,
    /// Enough have it.
    kept: bool,
    next_push: Micros,
    begun: Micros,
}

impl Proposal {
    /// Whether it waits for `me` to say that nothing can begin against it.
    fn owes(&self, me: NodeId) -> bool {
        self.binds && self.stored && !self.have.contains(&me)
    }
}

/// A write to our disk.
struct Storing {
    definitions: Vec<Definition>,
    what: StoringFor,
}

enum StoringFor {
    Proposal(u64),
    Peer { from: NodeId, op: super::message::Op },
    Repair,
}

/// The registry of one node.
pub struct Registry {
    me: NodeId,
    boot: u32,
    rules: RegistryRules,
    planted: Planted,
    /// What is on our disk.
    held: BTreeMap<DefinitionKey, Definition>,
    digest: u64,
    /// The largest number that this life gave to a change of each.
    given: BTreeMap<DefinitionKey, u64>,
    proposals: BTreeMap<u64, Proposal>,
    next_proposal: u64,
    storing: BTreeMap<u64, Storing>,
    next_store: u64,
    next_compare: Micros,
    /// Not again before.
    compare_from: Micros,
    /// Names that nobody crawls under any more.
    gone: Gone,
    /// The nodes that are enrolled.
    enrolled: BTreeMap<NodeId, Enrolment>,
    /// How often there came to be more of what binds.
    bindings: u64,
    /// The last digest that each node told of, and in which life.
    heard: BTreeMap<NodeId, (u32, u64)>,
    /// When each node may be told next what is held here.
    tell_from: BTreeMap<NodeId, Micros>,
    /// Who has everything that binds here: in which life, and as of which of our bindings.
    knowing: BTreeMap<NodeId, (u32, u64)>,
    /// Who waits to hear that we have what binds, and when it is looked next whether that can be said.
    owed: BTreeSet<(NodeId, super::message::Op)>,
    next_look: Micros,
    /// What we and others do of what is limited.
    speaking: Speaking,
}

impl Registry {
    /// The registry of a node that starts at `now` with what is on its disk.
    pub fn new(now: Micros, me: NodeId, boot: u32, rules: RegistryRules, planted: Planted) -> Registry {
        Registry {
            me,
            boot,
            rules,
            planted,
            held: BTreeMap::new(),
            digest: 0,
            given: BTreeMap::new(),
            proposals: BTreeMap::new(),
            next_proposal: 0,
            storing: BTreeMap::new(),
            next_store: 0,
            next_compare: now,
            compare_from: now,
            gone: Gone::default(),
            enrolled: BTreeMap::new(),
            bindings: 0,
            heard: BTreeMap::new(),
            tell_from: BTreeMap::new(),
            knowing: BTreeMap::new(),
            owed: BTreeSet::new(),
            next_look: Micros::MAX,
            speaking: Speaking::new(me, boot, planted),
        }
    }

    /// What is on disk, before the first step.
    pub fn load(&mut self, definitions: Vec<Definition>) {
        for definition in definitions {
            self.hold(definition);
        }
    }

    /// Everything that is held, removed ones included.
    pub fn definitions(&self) -> impl Iterator<Item = &Definition> {
        self.held.values()
    }

    /// Changes and writes under way.
    pub fn under_way(&self) -> usize {
        self.proposals.len() + self.storing.len()
    }

    /// Whether nobody waits for anything.
    pub fn is_idle(&self) -> bool {
        self.storing.is_empty() && self.proposals.values().all(|proposal| proposal.ticket.is_none())
    }

    /// The nodes that are enrolled, as far as this node knows.
    pub fn enrolled(&self) -> &BTreeMap<NodeId, Enrolment> {
        &self.enrolled
    }

    /// Whether it is being made known that this node is there.
    pub fn is_enrolling(&self) -> bool {
        self.proposals.values().any(|proposal| proposal.ticket.is_none())
    }

    /// How many others were last heard to have on their disks what we have on ours.
    pub fn agreeing(&self) -> usize {
        self.heard.values().filter(|(_, digest)| *digest == self.digest).count()
    }

    /// Whether nobody crawls under this name any more.
    pub fn is_gone(&self, crawl: &str) -> bool {
        self.gone.has(crawl)
    }

    /// Whether anything was revoked, as far as this node knows.
    pub fn has_revocations(&self) -> bool {
        !self.gone.is_empty()
    }

    /// Whether a node has said in this life of it that it holds everything that binds here.
    pub fn knows(&self, node: NodeId, boot: u32) -> bool {
        let me = node == self.me && boot == self.boot;
        self.bindings == 0 || me || self.knowing.get(&node) == Some(&(boot, self.bindings))
    }

    /// Whether somebody waits to hear that we have what binds.
    pub fn owes(&self) -> bool {
        !self.owed.is_empty() || self.proposals.values().any(|proposal| proposal.owes(self.me))
    }

    /// Nothing is under way against what binds, nor can anything begin: whoever waits for that hears it.
    pub fn settled(&mut self, now: Micros, around: &Surroundings<'_>, out: &mut Vec<Effect>) {
        for (to, op) in std::mem::take(&mut self.owed) {
            out.push(Effect::Send { to, saying: Saying::DefineDone { op } });
        }
        let me = self.me;
        self.proposals.values_mut().filter(|proposal| proposal.owes(me)).for_each(|proposal| {
            proposal.have.insert(me);
        });
        self.work(now, around, out);
    }

    /// Compares soon: what was said last did not go out.
    pub fn compare_soon(&mut self, now: Micros) {
        self.next_compare = self.next_compare.min(now + self.rules.repeat_after);
    }

    /// Takes in what was counted of what is limited, in these slots, and gives what may be done of each.
    pub fn count(
        &mut self,
        now: Micros,
        around: &Around<'_>,
        slots: &SlotSet,
        counted: &BTreeMap<String, Counted>,
    ) -> BTreeMap<String, Allowed> {
        let left = self.speaking.count(now, around, slots, counted);
        if self.speaking.take_news() {
            self.next_compare = now;
        }
        left
    }

    /// When to step again if nothing happens before.
    pub fn next_wake(&self) -> Micros {
        let proposal = |proposal: &Proposal| {
            // One that binds may be given up later than this; then it is looked at in vain now and then.
            let given_up = (proposal.begun + self.rules.patience).max(proposal.next_push);
            let spread = if proposal.kept { proposal.begun + self.rules.spread_patience } else { given_up };
            proposal.next_push.min(given_up).min(spread)
        };
        self.proposals.values().map(proposal).min().unwrap_or(Micros::MAX).min(self.next_compare).min(self.next_look)
    }

    /// Takes in what happened and adds what to do to `out`.
    pub fn step(&mut self, now: Micros, around: &Surroundings<'_>, input: Input, out: &mut Vec<Effect>) {
        match input {
            Input::Tick => {}
            Input::Proposed { ticket, key, expects, body } => self.proposed(now, ticket, key, expects, body, out),
            Input::Enrol { weight } => self.enrol(now, weight, out),
            Input::Received { from, boot, saying } => self.received(now, from, boot, saying, out),
            Input::Stored { op } => self.stored(now, op, out),
            Input::StoreFailed { op } => {
                if let Some(Storing { what: StoringFor::Proposal(number), .. }) = self.storing.remove(&op) {
                    self.give_up(number, NotDefined::NotWritten, out);
                }
            }
            Input::Learned { mut definitions } => {
                definitions.retain(|learned| self.newest(&learned.key).is_none_or(|known| known < learned));
                if !definitions.is_empty() {
                    self.store(definitions, StoringFor::Repair, out);
                }
            }
        }
        self.work(now, around, out);
    }

    fn work(&mut self, now: Micros, around: &Surroundings<'_>, out: &mut Vec<Effect>) {
        self.next_look = if self.owes() { now + self.rules.repeat_after / 2 } else { Micros::MAX };
        let numbers: Vec<u64> = self.proposals.keys().copied().collect();
        for number in numbers {
            self.pursue(now, number, around, out);
        }
        if now >= self.next_compare {
            self.next_compare = now + self.rules.compare_every;
            self.compare_from = if self.lists_are_long() { now + self.rules.compare_gap } else { now };
            if !planted!(self.planted, DefinitionsNotCompared) {
                for to in around.others(self.me) {
                    out.push(Effect::Send { to, saying: self.comparison(to) });
                }
            }
        }
    }

    fn comparison(&mut self, to: NodeId) -> Saying {
        Saying::Compare { digest: self.digest, counts: self.speaking.tell(to) }
    }

    // Changes.

    fn proposed(
        &mut self,
        now: Micros,
        ticket: u64,
        key: DefinitionKey,
        expects: Option<Version>,
        body: Option<Vec<u8>>,
        out: &mut Vec<Effect>,
    ) {
        let known = self.held.get(&key);
        let there = known.filter(|known| known.body.is_some()).map(|known| known.version);
        // What is on its way to our disk counts: a change of what it replaces would be numbered above it, and undo it.
        let replaced = self.newest(&key).is_some_and(|newest| known.is_none_or(|known| known < newest));
        let refused = if there != expects || replaced {
            Some(NotDefined::Changed)
        } else if known.is_none() && self.held.len() >= DEFINITIONS_MAX {
            Some(NotDefined::TooMany)
        } else if self.proposals.len() >= self.rules.proposals_max {
            Some(NotDefined::Busy)
        } else {
            None
        };
        if let Some(why) = refused {
            return out.push(Effect::NotDefined { ticket, why });
        }
        let newest = self.newest(&key).map_or(0, |known| known.version.number);
        let number = newest.max(self.given.get(&key).copied().unwrap_or(0)) + 1;
        let mut definition = Definition { key, version: Version { number, node: self.me, boot: self.boot }, body };
        if !planted!(self.planted, RevocationUndone) {
            definition.version.number = number.max(definition.number_min());
        }
        self.given.insert(definition.key.clone(), definition.version.number);
        if !definition.is_sound() {
            return out.push(Effect::NotDefined { ticket, why: NotDefined::TooLarge });
        }
        self.propose(now, Some(ticket), definition, out);
    }

    /// Makes it known that this node is there: by what it wrote down in a former life, if it still says the same.
    fn enrol(&mut self, now: Micros, weight: u16, out: &mut Vec<Effect>) {
        let written = self.newest(&Enrolment::key(self.me));
        let holds = |said: Enrolment| {
            said.weight == weight && !self.held.values().filter_map(Departure::read).any(|left| said.is_undone_by(left))
        };
        let same = written.filter(|written| Enrolment::read(written).is_some_and(holds)).cloned();
        let number = written.map_or(0, |written| written.version.number) + 1;
        let enrolment = Enrolment { node: self.me, boot: self.boot, weight };
        let definition = same.unwrap_or_else(|| enrolment.definition(number.max(u64::from(self.boot))));
        self.propose(now, None, definition, out);
    }

    fn propose(&mut self, now: Micros, ticket: Option<u64>, definition: Definition, out: &mut Vec<Effect>) {
        self.next_proposal += 1;
        let number = self.next_proposal;
        let stored = self.held.get(&definition.key) == Some(&definition);
        let proposal = Proposal {
            ticket,
            binds: self.binds(&definition),
            definition: definition.clone(),
            stored,
            have: BTreeSet::new(),
            kept: false,
            next_push: now,
            begun: now,
        };
        self.proposals.insert(number, proposal);
        if !stored {
            self.store(vec![definition], StoringFor::Proposal(number), out);
        }
    }

    /// Pushes a change to who has not said that it has it, and tells the client when it is time to.
    fn pursue(&mut self, now: Micros, number: u64, around: &Surroundings<'_>, out: &mut Vec<Effect>) {
        let Some(proposal) = self.proposals.get_mut(&number) else { return };
        let alone = planted!(self.planted, OneDefinitionIsEnough);
        // To be enrolled the voters are enough: any lease shares one with them.
        let needed = match proposal.ticket {
            None => 0,
            Some(_) if alone => 1,
            Some(_) => around.needed,
        };
        let voters = around.voters.iter().filter(|voter| proposal.have.contains(voter)).count();
        let by_voters = !proposal.binds || voters * 2 > around.voters.len();
        if !proposal.kept && proposal.have.len() >= needed && by_voters {
            proposal.kept = true;
            out.push(Effect::Kept { definition: proposal.definition.clone() });
        }
        if proposal.kept && proposal.ticket.is_none() {
            self.proposals.remove(&number);
            return out.push(Effect::Enrolled);
        }
        let missing: Vec<NodeId> = around.others(self.me).filter(|node| !proposal.have.contains(node)).collect();
        let since = now.saturating_sub(proposal.begun);
        if proposal.kept && (missing.is_empty() || since >= self.rules.spread_patience) {
            let Proposal { ticket, definition, have, .. } = self.proposals.remove(&number).expect("just looked at");
            out.extend(ticket.map(|ticket| Effect::Defined { ticket, version: definition.version, by: have }));
            return;
        }
        let patience = self.rules.patience + if proposal.binds { around.lapse } else { 0 };
        if since >= patience && proposal.ticket.is_some() {
            let (have, needed) = (proposal.have.len(), needed);
            return self.give_up(number, NotDefined::TooFew { have, needed }, out);
        }
        if now >= proposal.next_push {
            proposal.next_push = now + self.rules.repeat_after;
            let definitions = vec![proposal.definition.clone()];
            let op = Some(super::message::Op { boot: self.boot, number });
            for to in missing {
                out.push(Effect::Send { to, saying: Saying::Define { op, definitions: definitions.clone() } });
            }
        }
    }

    fn give_up(&mut self, number: u64, why: NotDefined, out: &mut Vec<Effect>) {
        if let Some(Proposal { ticket: Some(ticket), .. }) = self.proposals.remove(&number) {
            out.push(Effect::NotDefined { ticket, why });
        }
    }

    // Our disk.

    fn store(&mut self, definitions: Vec<Definition>, what: StoringFor, out: &mut Vec<Effect>) {
        self.next_store += 1;
        out.push(Effect::Store { op: self.next_store, definitions: definitions.clone() });
        self.storing.insert(self.next_store, Storing { definitions, what });
    }

    fn stored(&mut self, now: Micros, op: u64, out: &mut Vec<Effect>) {
        let Some(Storing { definitions, what }) = self.storing.remove(&op) else { return };
        let (binds, before) = (definitions.iter().any(|one| self.binds(one)), self.bindings);
        let fresh: Vec<Definition> =
            definitions.into_iter().filter(|definition| self.hold(definition.clone())).collect();
        self.outpaced(out);
        if !fresh.is_empty() {
            // Before anybody hears that we have it, it is in force here.
            out.push(Effect::Redefined { definitions: fresh });
        }
        match what {
            StoringFor::Proposal(number) => {
                if let Some(proposal) = self.proposals.get_mut(&number) {
                    proposal.stored = true;
                    if !proposal.binds {
                        proposal.have.insert(self.me);
                    }
                }
            }
            StoringFor::Peer { from, op } if binds => drop(self.owed.insert((from, op))),
            StoringFor::Peer { from, op } => out.push(Effect::Send { to: from, saying: Saying::DefineDone { op } }),
            StoringFor::Repair => {}
        }
        self.look_who_knows();
        if self.bindings > before {
            self.next_compare = self.next_compare.min(now.max(self.compare_from)); // voters wait to hear that we know
        }
    }

    /// Whether it is to be treated as one that binds.
    fn binds(&self, definition: &Definition) -> bool {
        definition.binds() && !(planted!(self.planted, RevokedByHalf) && definition.revokes())
    }

    /// Those hold all that we hold who told of the same digest.
    fn look_who_knows(&mut self) {
        for (node, (boot, digest)) in &self.heard {
            if *digest == self.digest {
                self.knowing.insert(*node, (*boot, self.bindings));
            }
        }
    }

    /// Holds a definition if it is newer than what is held; says whether it was.
    fn hold(&mut self, definition: Definition) -> bool {
        let before = self.held.get(&definition.key);
        if before.is_some_and(|before| *before >= definition) {
            return false;
        }
        self.digest = self.digest.wrapping_sub(before.map_or(0, Definition::hash)).wrapping_add(definition.hash());
        let enrolment = Enrolment::read(&definition);
        self.bindings += u64::from(self.gone.take(&definition) || enrolment.is_some());
        self.enrolled.extend(enrolment.map(|said| (said.node, said)));
        self.held.insert(definition.key.clone(), definition);
        true
    }

    /// Changes that somebody else's has overtaken: before enough nodes had them, or before anybody was told and by one of the same number. Whoever made that one had
    /// not heard of ours: it says nothing of what ours said, so ours is not what counts though enough nodes had it for a moment. That something is over stays so in any case.
    fn outpaced(&mut self, out: &mut Vec<Effect>) {
        let overtaken = |proposal: &Proposal| {
            let mine = &proposal.definition;
            self.held
                .get(&mine.key)
                .filter(|held| *held > mine)
                .is_some_and(|held| !proposal.kept || (held.version.number == mine.version.number && !proposal.binds))
        };
        let numbers: Vec<u64> =
            self.proposals.iter().filter(|(_, proposal)| overtaken(proposal)).map(|(number, _)| *number).collect();
        for number in numbers {
            self.give_up(number, NotDefined::Changed, out);
        }
    }

    // What others say.

    fn received(&mut self, now: Micros, from: NodeId, boot: u32, saying: Saying, out: &mut Vec<Effect>) {
        match saying {
            Saying::Define { op, definitions } => self.told(from, op, definitions, out),
            Saying::DefineDone { op } => {
                // The numbers of a former life mean something else in this one.
                if op.boot == self.boot
                    && let Some(proposal) = self.proposals.get_mut(&op.number)
                {
                    proposal.have.insert(from);
                }
            }
            Saying::Compare { digest, counts } => {
                if self.speaking.hear(now, from, counts) {
                    let saying = self.comparison(from);
                    out.push(Effect::Send { to: from, saying });
                }
                self.heard.insert(from, (boot, digest));
                self.look_who_knows();
                if digest != self.digest {
                    self.tell_what_is_held(now, from, out);
                }
            }
            Saying::Held { versions, answer } => {
                if self.covers_bindings(&versions) {
                    self.knowing.insert(from, (boot, self.bindings));
                }
                self.compare(from, &versions, answer, out);
            }
        }
    }

    fn lists_are_long(&self) -> bool {
        self.held.len() > self.rules.list_short
    }

    /// Where digests differ the other node hears what is held here; if that is long and it has just heard it, the two compare again instead.
    fn tell_what_is_held(&mut self, now: Micros, to: NodeId, out: &mut Vec<Effect>) {
        let from = self.tell_from.get(&to).copied().unwrap_or(now);
        if self.lists_are_long() && now < from {
            self.next_compare = self.next_compare.min(from);
            return;
        }
        self.tell_from.insert(to, now + self.rules.repeat_after);
        out.push(Effect::Send { to, saying: Saying::Held { versions: self.versions(), answer: false } });
    }

    /// Whether whoever holds these versions knows everything that binds here.
    fn covers_bindings(&self, versions: &[(DefinitionKey, Version)]) -> bool {
        let theirs: BTreeMap<&DefinitionKey, Version> = versions.iter().map(|(key, version)| (key, *version)).collect();
        let sites = self.gone.sites().map(|id| DefinitionKey { kind: DefinitionKind::Site, name: id.to_owned() });
        sites.chain(self.enrolled.keys().map(|node| Enrolment::key(*node))).all(|key| {
            let mine = self.held.get(&key).map(|held| held.version);
            mine.is_none_or(|mine| theirs.get(&key).is_some_and(|theirs| *theirs >= mine))
        })
    }

    fn told(
        &mut self,
        from: NodeId,
        op: Option<super::message::Op>,
        definitions: Vec<Definition>,
        out: &mut Vec<Effect>,
    ) {
        let newer_here: Vec<Definition> = definitions
            .iter()
            .filter_map(|theirs| self.held.get(&theirs.key).filter(|mine| *mine > theirs))
            .cloned()
            .collect();
        self.send_all(from, newer_here, out);
        let mut newer: Vec<Definition> = definitions;
        newer.retain(|theirs| self.newest(&theirs.key).is_none_or(|mine| mine <= theirs));
        let all_held = newer.iter().all(|theirs| self.held.get(&theirs.key) == Some(theirs));
        match op {
            _ if newer.is_empty() => {}
            Some(op) if all_held && newer.iter().any(|one| self.binds(one)) => drop(self.owed.insert((from, op))),
            Some(op) if all_held => out.push(Effect::Send { to: from, saying: Saying::DefineDone { op } }),
            None if all_held => {}
            Some(op) => self.store(newer, StoringFor::Peer { from, op }, out),
            None => self.store(newer, StoringFor::Repair, out),
        }
    }

    /// The newest that is held or on its way to our disk: an older one written after it would undo it there.
    fn newest(&self, key: &DefinitionKey) -> Option<&Definition> {
        let written = self.storing.values().flat_map(|storing| &storing.definitions).filter(|one| one.key == *key);
        written.chain(self.held.get(key)).max()
    }

    fn versions(&self) -> Vec<(DefinitionKey, Version)> {
        self.held.values().map(|definition| (definition.key.clone(), definition.version)).collect()
    }

    /// A peer holds something else: it gets what is newer here, and is asked for what is newer there.
    fn compare(&mut self, from: NodeId, theirs: &[(DefinitionKey, Version)], answer: bool, out: &mut Vec<Effect>) {
        let known: BTreeMap<&DefinitionKey, Version> = theirs.iter().map(|(key, version)| (key, *version)).collect();
        let newer = |mine: &&Definition| known.get(&mine.key).is_none_or(|theirs| mine.version > *theirs);
        let send: Vec<Definition> = self.held.values().filter(newer).cloned().collect();
        self.send_all(from, send, out);
        let lacking = theirs.iter().any(|(key, version)| self.held.get(key).is_none_or(|mine| mine.version < *version));
        if lacking && !answer {
            let saying = Saying::Held { versions: self.versions(), answer: true };
            out.push(Effect::Send { to: from, saying });
        }
    }

    fn send_all(&self, to: NodeId, definitions: Vec<Definition>, out: &mut Vec<Effect>) {
        let (mut letter, mut bytes) = (Vec::new(), 0);
        for definition in definitions {
            if bytes + definition.bytes() > LETTER_BYTES_MAX && !letter.is_empty() {
                let definitions = std::mem::take(&mut letter);
                out.push(Effect::Send { to, saying: Saying::Define { op: None, definitions } });
                bytes = 0;
            }
            bytes += definition.bytes();
            letter.push(definition);
        }
        if !letter.is_empty() {
            out.push(Effect::Send { to, saying: Saying::Define { op: None, definitions: letter } });
        }
    }
}
