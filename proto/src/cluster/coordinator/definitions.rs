//! The coordinator's part in definitions: it carries what the registry says.

use super::super::departure::Departure;
use super::super::message::Message;
use super::super::mutant::planted;
use super::super::registry::{self, DEFINITIONS_MAX, Definition, Surroundings};
use super::{Coordinator, Effect, Sight, ring_of};
use crate::crawl::politeness::Micros;

/// Changes and writes of definitions under way: as many as there can be definitions, and as many nodes that send them.
pub(super) const UNDER_WAY_MAX: usize = 4 * DEFINITIONS_MAX;

impl Coordinator {
    /// What is defined, as it is on disk. To be told before the first step.
    pub fn with_definitions(mut self, definitions: Vec<Definition>) -> Coordinator {
        self.membership.remember(definitions.iter().filter_map(Departure::read));
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

    /// Everything that is defined, as far as this node knows, removed ones included.
    pub fn definitions(&self) -> impl Iterator<Item = &Definition> {
        self.registry.definitions()
    }

    /// Pages of a limited crawl that other living nodes have or speak for, and how many nodes those are.
    pub fn spoken_by_others(&self, crawl: &str) -> (u64, usize) {
        self.registry.spoken_by_others(crawl, self.membership.alive())
    }

    pub(super) fn step_registry(&mut self, now: Micros, input: registry::Input, out: &mut Vec<Effect>) {
        let members = self.members();
        let needed = (members / 2 + 1).max(self.rules.writes.quorum.min(members));
        let around = Surroundings { alive: self.membership.alive(), needed };
        let mut effects = Vec::new();
        self.registry.step(now, &around, input, &mut effects);
        for effect in effects {
            match effect {
                registry::Effect::Send { to, saying } => self.send(now, to, Message::Registry(saying), out),
                registry::Effect::Store { op, definitions } => out.push(Effect::StoreDefinitions { op, definitions }),
                registry::Effect::Redefined { definitions } => {
                    for said in definitions.iter().filter_map(Departure::read) {
                        let news = self.membership.written_down(now, said);
                        self.heed(now, news, out);
                    }
                    out.push(Effect::Redefined { definitions });
                }
                registry::Effect::Kept { definition } => {
                    let (key, version) = (definition.key, definition.version);
                    out.push(Effect::Saw(Sight::DefinitionKept { key, version }));
                }
                registry::Effect::Defined { ticket, version, by } => out.push(Effect::Defined { ticket, version, by }),
                registry::Effect::NotDefined { ticket, why } => out.push(Effect::NotDefined { ticket, why }),
            }
        }
    }
}
