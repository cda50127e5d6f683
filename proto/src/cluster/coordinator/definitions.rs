//! The coordinator's part in definitions: it carries what the registry says, and knows what may still begin against what is revoked.

use std::collections::BTreeMap;

use super::super::departure::Departure;
use super::super::enrolment::Enrolment;
use super::super::message::Message;
use super::super::mutant::planted;
use super::super::registry::{self, DEFINITIONS_MAX, Definition, Saying, Surroundings};
use super::super::share::{Allowed, Around, Counted};
use super::super::slot_set::SlotSet;
use super::batches::Batch;
use super::{ClusterRules, Coordinator, Effect, Registry, Sight, Voter, ring_of};
use crate::crawl::politeness::{Micros, SECOND};
use crate::id::BatchId;

/// Whether a batch of a crawl that is over is on its way to another node, which may not know that.
fn hands_out(registry: &Registry, batches: &BTreeMap<BatchId, Batch>, now: Micros, rules: &ClusterRules) -> bool {
    registry.has_revocations()
        && batches.values().any(|batch| batch.is_on_its_way(now, rules.me) && registry.is_gone(batch.crawl()))
}

/// Whether nothing can begin any more against what is revoked, by what we handed out or by leases that we granted.
fn nothing_begins(
    registry: &Registry,
    batches: &BTreeMap<BatchId, Batch>,
    voter: &Option<Voter>,
    now: Micros,
    rules: &ClusterRules,
) -> bool {
    let knows = |node, boot| registry.knows(node, boot) || planted!(rules.planted, UnawarePromised);
    !hands_out(registry, batches, now, rules) && voter.as_ref().is_none_or(|voter| voter.promises_only_to(now, knows))
}

/// Changes and writes of definitions under way: as many as there can be definitions, and as many nodes that send them.
pub(super) const UNDER_WAY_MAX: usize = 4 * DEFINITIONS_MAX;

/// After what time it is looked whether our enrolment failed on our own disk, and has to begin again.
const ENROL_AGAIN: Micros = 5 * SECOND;

impl Coordinator {
    /// What is defined, as it is on disk. To be told before the first step.
    pub fn with_definitions(mut self, definitions: Vec<Definition>) -> Coordinator {
        self.membership.meet(definitions.iter().filter_map(Enrolment::read));
        self.membership.remember(definitions.iter().filter_map(Departure::read));
        // Whoever was told that we left must hear that we are back before we keep anything, also if it has us in its configuration.
        let mut left = definitions.iter().filter_map(Departure::read);
        self.enrolled &= self.rules.voters.is_empty() || left.all(|said| said.node != self.rules.me);
        self.ring = ring_of(&self.rules, &self.rings, self.membership.view());
        self.owned = self.owned_now();
        self.registry.load(definitions);
        self
    }

    /// Writes down who left and who is back.
    pub(super) fn write_departures(&mut self, now: Micros, out: &mut Vec<Effect>) {
        let moved = self.membership.take_moved();
        if moved.is_empty() || planted!(self.rules.planted, DeparturesForgotten) {
            return;
        }
        let definitions = moved.into_iter().map(Departure::definition).collect();
        self.step_registry(now, registry::Input::Learned { definitions }, out);
    }

    /// Makes it known that this node is there, until it is known enough.
    pub(super) fn enrol(&mut self, now: Micros, out: &mut Vec<Effect>) {
        if self.enrolled || now < self.next_enrol {
            return;
        }
        self.next_enrol = now + ENROL_AGAIN;
        if !self.registry.is_enrolling() {
            self.step_registry(now, registry::Input::Enrol { weight: self.rules.weight }, out);
        }
    }

    /// Whether the others count us out and we did not know: an operator said that we are gone for ever while we were cut off, or we left in a life of
    /// which our disk knows nothing. They ask us for nothing then, so nothing may be kept here before we have enrolled, in a life that is not over for them.
    fn left_unawares(&self, said: Departure) -> bool {
        let enrolment = self.registry.enrolled().get(&self.rules.me);
        let is_about_us = said.node == self.rules.me && enrolment.is_none_or(|enrolment| enrolment.is_undone_by(said));
        is_about_us && self.enrolled && !self.rules.voters.is_empty() && !self.membership.is_leaving()
    }

    /// Everything that is defined, as far as this node knows, removed ones included.
    pub fn definitions(&self) -> impl Iterator<Item = &Definition> {
        self.registry.definitions()
    }

    /// The slots whose records are counted here: those that are held and served.
    pub fn counted_slots(&self, now: Micros) -> SlotSet {
        self.served.iter().filter(|slot| self.holder.until(now, *slot).is_some()).collect()
    }

    /// URLs of a crawl that are handed out and have no outcome.
    pub fn flying(&self, crawl: &str) -> u64 {
        self.flights.values().filter(|flight| flight.crawl() == crawl).count() as u64
    }

    /// Takes in what was counted of what is limited, in these slots, and gives what may be done of each before the next count. The others hear of it with the next step.
    pub fn count(
        &mut self,
        now: Micros,
        slots: &SlotSet,
        counted: &BTreeMap<String, Counted>,
    ) -> BTreeMap<String, Allowed> {
        let lapse = self.rules.lease.at_least(self.rules.lease.duration);
        let around = Around { alive: self.membership.alive(), lapse, slots: &self.rules.slots };
        self.registry.count(now, &around, slots, counted)
    }

    pub(super) fn step_registry(&mut self, now: Micros, input: registry::Input, out: &mut Vec<Effect>) {
        let members = self.members();
        let needed = (members / 2 + 1).max(self.rules.writes.quorum.min(members));
        let lapse = self.rules.lease.at_least(self.rules.lease.duration);
        let around = Surroundings { alive: self.membership.alive(), needed, voters: &self.rules.voters, lapse };
        let mut effects = Vec::new();
        self.registry.step(now, &around, input, &mut effects);
        if self.registry.owes() && nothing_begins(&self.registry, &self.batches, &self.voter, now, &self.rules) {
            self.registry.settled(now, &around, &mut effects);
        }
        for effect in effects {
            match effect {
                // Who hears what we hold takes it that nothing can begin that we handed out against it.
                registry::Effect::Send { saying: Saying::Compare { .. } | Saying::Held { .. }, .. }
                    if hands_out(&self.registry, &self.batches, now, &self.rules) =>
                {
                    self.registry.compare_soon(now);
                }
                registry::Effect::Send { to, saying } => self.send(now, to, Message::Registry(saying), out),
                registry::Effect::Store { op, definitions } => out.push(Effect::StoreDefinitions { op, definitions }),
                registry::Effect::Redefined { definitions } => {
                    for said in definitions.iter().filter_map(Departure::read) {
                        if self.left_unawares(said) {
                            out.push(Effect::Outdated { boot: said.boot.max(self.rules.boot) });
                        }
                        let news = self.membership.written_down(now, said);
                        self.heed(now, news, out);
                    }
                    out.push(Effect::Redefined { definitions });
                }
                registry::Effect::Kept { definition } => {
                    let (key, version) = (definition.key, definition.version);
                    out.push(Effect::Saw(Sight::DefinitionKept { key, version }));
                }
                registry::Effect::Enrolled => {
                    self.enrolled = true;
                    self.next_renew = self.next_renew.min(self.asks_from.max(now));
                    out.push(Effect::Saw(Sight::Sometimes("enrolled")));
                }
                registry::Effect::Defined { ticket, version, by } => out.push(Effect::Defined { ticket, version, by }),
                registry::Effect::NotDefined { ticket, why } => out.push(Effect::NotDefined { ticket, why }),
            }
        }
    }
}
