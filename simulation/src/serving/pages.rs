//! Pages that spiders are told to fetch: the product's ranks, temperatures, dates and leases over several domains. Spiders find pages, report them, fail, and forget what they were told.
//! What was found is taken in by whoever is asked, also again and by nodes that have not heard what became of the page; when faults stop, spiders go on until every page is crawled.

use std::collections::BTreeMap;

use proto::clients::identity::ClientQueueId;
use proto::clients::page::PageState;
use proto::clients::record::{ClientQueue, ClientUrl};
use proto::clients::spider::{PAGES, SpiderRules};
use proto::cluster::copy::RecordCopy;
use proto::crawl::politeness::Micros;
use proto::id::NodeId;
use proto::score::best_first::{Picker, Rank, Step};
use proto::score::temperature::{BURST, Rates, Warmth};

use super::{Offer, REMEMBERED, Tell, World, number_of};
use crate::layer::{Layer, Mutant, Point, RunOptions, RunReport};
use crate::world::plan::{Plan, SECOND};
use crate::world::random::Random;
use crate::world::trace::Event;

/// Domains, and pages of all together that spiders find.
const DOMAINS: usize = REMEMBERED;
const PAGES_MAX: u64 = 60;
/// For how long spiders lease pages.
const LEASE_S: u32 = 10;
/// Pages of a domain a second.
const SOFT_RATE: f64 = 0.1;
const HARD_RATE: f64 = 0.4;

/// The layer.
pub struct SpidersLayer;

impl Layer for SpidersLayer {
    fn name(&self) -> &'static str {
        "spiders"
    }

    fn run(&self, plan: &Plan, options: &RunOptions) -> RunReport {
        let queues = (0..DOMAINS).map(|domain| ClientQueueId::new(PAGES, &domain_name(domain))).collect();
        World::new(plan, options, Offer::Pages, queues).run()
    }

    fn mutants(&self) -> Vec<Mutant> {
        let mutant = |name| Mutant { name, seeds_max: 200, breaks: &["I24", "I25"] };
        vec![
            mutant("told_at_once"),
            mutant("told_late"),
            mutant("acknowledged_late"),
            mutant("acknowledged_at_once"),
            mutant("serves_at_once"),
            mutant("hearsay_by_the_clock"),
            mutant("better_link_ends_lease"),
            mutant("warmth_in_memory"),
            mutant("warmed_once_a_call"),
            mutant("lease_has_no_end"),
            mutant("failure_gives_up"),
        ]
    }

    fn judges(&self) -> Vec<&'static str> {
        vec!["I24", "I25"]
    }

    fn points(&self) -> Vec<Point> {
        let often = [
            "message_cut",
            "node_crashed",
            "slot_changed_hands",
            "page_found",
            "page_found_again",
            "page_forgotten_by_its_spider",
            "page_failed",
            "url_served",
            "url_served_again",
            "not_told_because_slot_is_lost",
            "write_given_up",
            "domain_too_warm",
            "url_completed",
        ];
        Point::all(200, often).collect()
    }
}

fn domain_name(domain: usize) -> String {
    format!("d{domain}.example")
}

fn domain_of(page: u64) -> usize {
    page as usize % DOMAINS
}

fn state(page: &ClientUrl) -> PageState {
    PageState::read(&page.metadata).unwrap_or_default()
}

/// Whether a page was crawled and is not to be crawled again.
pub(super) fn is_crawled(page: &ClientUrl) -> bool {
    page.is_completed() && state(page).crawls > 0
}

/// What the judge is told when pages of a domain are handed out.
pub(super) fn domain_served(node: NodeId, domain: usize, pages: u32, decided_at: Micros) -> Event {
    let spacing = (SECOND as f64 / HARD_RATE) as Micros;
    Event::DomainServed { node, domain, pages, decided_at, spacing, at_once: BURST as u64 + 1 }
}

fn rules() -> SpiderRules {
    SpiderRules {
        rates: Rates::new(SOFT_RATE, HARD_RATE),
        lease_s: LEASE_S,
        retry_s: 1,
        failures_max: u32::MAX,
        ..SpiderRules::default()
    }
}

impl World<'_> {
    fn page_copy(&self, number: u64, page: &ClientUrl) -> RecordCopy {
        page.copy(self.queues[domain_of(number)].url(&page.url)).expect("a small record")
    }

    /// Takes in that somebody links to a page, as `found_page` of `edges/store/clients/spiders.rs` does.
    fn found(&mut self, at: Micros, node: NodeId, number: u64, score: f32) {
        let (now_ms, old) = (self.wall(node, at), self.urls(node).remove(&number));
        let page = match old.as_ref().map(state) {
            None => PageState { score, depth: 1, ..PageState::default() },
            Some(page) if page.crawls == 0 && score > page.score => PageState { score, ..page },
            Some(_) => return,
        };
        let mut new = old.unwrap_or_else(|| {
            let url = format!("http://{}/{number}", domain_name(domain_of(number)));
            let date_s = rules().date_s(&url, &page, now_ms);
            ClientUrl { url, date_s, created_ms: now_ms, ..ClientUrl::default() }
        });
        // What was heard gives way to what somebody knows.
        let floor = if self.has("hearsay_by_the_clock") { now_ms } else { 0 };
        (new.version, new.metadata) = (new.version.next(node, floor), page.to_metadata());
        if self.has("better_link_ends_lease") {
            new.leased_until_ms = 0;
        }
        let copies = vec![self.page_copy(number, &new)];
        self.write(at, node, copies, Tell::Found { url: number });
    }

    /// Takes in what a spider says of a page that it fetched, as `crawled_page` and `change_page` do.
    fn reported(&mut self, at: Micros, node: NodeId, number: u64, failed: bool) {
        let (now_ms, Some(old)) = (self.wall(node, at), self.urls(node).remove(&number)) else { return };
        let mut page = state(&old);
        if failed {
            page.failures += 1;
        } else {
            page.crawled(page.score, None, now_ms);
        }
        let gives_up = failed && self.has("failure_gives_up");
        let date_s = if gives_up { 0 } else { rules().date_s(&old.url, &page, now_ms) };
        let (version, metadata) = (old.version.next(node, now_ms), page.to_metadata());
        let new = ClientUrl { version, date_s, leased_until_ms: 0, metadata, ..old };
        let copies = vec![self.page_copy(number, &new)];
        let (url, completed, elsewhere) = (number, is_crawled(&new), false);
        self.write(at, node, copies, Tell::Acknowledged { url, said_at: at, completed, elsewhere });
    }

    /// Hands the best pages out, as `take_best` does.
    fn take_best(&mut self, at: Micros, node: NodeId, wanted: usize) {
        let (now_ms, rules) = (self.wall(node, at), rules());
        let mut waiting: Vec<Vec<(Rank, ClientUrl)>> = vec![Vec::new(); DOMAINS];
        for (number, page) in self.urls(node) {
            if page.date_s > 0 && page.date_s <= now_ms / 1_000 && page.leased_until_ms <= now_ms {
                waiting[domain_of(number)].push((state(&page).rank(), page));
            }
        }
        waiting
            .iter_mut()
            .for_each(|pages| pages.sort_by_key(|(rank, page)| (*rank, std::cmp::Reverse(page.created_ms))));
        let mut order: Vec<usize> = (0..DOMAINS).filter(|domain| !waiting[*domain].is_empty()).collect();
        order.sort_by_key(|domain| waiting[*domain].last().map(|(rank, _)| *rank)); // the best one last
        let mut picker: Picker<usize> = Picker::new(wanted, rules.rates, now_ms);
        let mut taken: Vec<ClientUrl> = Vec::new();
        loop {
            match picker.step() {
                Step::Meet(_) => match order.pop() {
                    Some(domain) => {
                        let best = waiting[domain].last().map_or(Rank::BEST, |(rank, _)| *rank);
                        picker.meet(domain, best, self.warmth(node, domain));
                    }
                    None => picker.met_all(),
                },
                Step::Look(domain) => picker.sighted(domain, waiting[domain].last().map(|(rank, _)| *rank)),
                Step::Take(domain) => taken.extend(waiting[domain].pop().map(|(_, page)| page)),
                Step::Done => break,
            }
        }
        let domains = picker.into_domains();
        if taken.len() < wanted && domains.values().any(|left| left.next.is_some()) {
            self.trace.sometimes(at, "domain_too_warm");
        }
        if taken.is_empty() {
            return;
        }
        let ends = if self.has("lease_has_no_end") { u64::MAX } else { now_ms + u64::from(LEASE_S) * 1_000 };
        let lease =
            |old: ClientUrl| ClientUrl { version: old.version.next(node, now_ms), leased_until_ms: ends, ..old };
        let taken: BTreeMap<u64, ClientUrl> =
            taken.into_iter().filter_map(|page| Some((number_of(&page)?, lease(page)))).collect();
        let mut copies: Vec<RecordCopy> = taken.iter().map(|(number, page)| self.page_copy(*number, page)).collect();
        let domains: BTreeMap<usize, (u32, Warmth)> = domains
            .into_iter()
            .filter(|(_, left)| left.taken > 0)
            .map(|(domain, left)| (domain, (left.taken, left.warmth)))
            .collect();
        for (domain, (_, warmth)) in &domains {
            let before = self.warmth(node, *domain);
            let once = rules.rates.map_or(*warmth, |rates| rates.heat(before, now_ms));
            let produced_ms = if self.has("warmed_once_a_call") { once.0 } else { warmth.0 };
            self.node(node).memory[*domain] = produced_ms;
            let produced_ms = if self.has("warmth_in_memory") { 0 } else { produced_ms };
            let kept = self.kept_of(node, &self.queues[*domain]);
            let kept = ClientQueue { version: kept.version.next(node, now_ms), kept: true, produced_ms, ..kept };
            copies.push(kept.copy(&self.queues[*domain]).expect("a small record"));
        }
        let tell = Tell::Served {
            urls: taken.into_keys().collect(),
            decided_at: at,
            lease: Micros::from(LEASE_S) * SECOND,
            delay: 0,
            domains: domains.into_iter().map(|(domain, (pages, _))| (domain, pages)).collect(),
        };
        self.write(at, node, copies, tell);
    }

    fn warmth(&self, node: NodeId, domain: usize) -> Warmth {
        match self.has("warmth_in_memory") {
            true => Warmth(self.nodes[&node].memory[domain]),
            false => Warmth(self.kept_of(node, &self.queues[domain]).produced_ms),
        }
    }

    /// What a spider asks of a node, or tells it.
    pub(super) fn asks_pages(&mut self, at: Micros, node: NodeId, draw: &mut Random) {
        let score = draw.below(100) as f32 / 100.0;
        match draw.below(20) {
            0..9 if self.brought < PAGES_MAX && !self.calm => {
                self.brought += 1;
                let page = self.brought;
                self.found(at, node, page, score);
            }
            0..6 if self.brought > 0 && !self.calm => {
                let page = draw.between(1, self.brought);
                self.trace.sometimes(at, "page_found_again");
                self.found(at, node, page, score);
            }
            _ if !self.serves(at, node) => {}
            6..12 => self.take_best(at, node, draw.between(1, 8) as usize),
            12..20 => {
                let Some(page) = self.clients.iter().copied().nth(draw.below(8) as usize) else { return };
                self.clients.remove(&page);
                if draw.below(8) == 0 && !self.calm {
                    return self.trace.sometimes(at, "page_forgotten_by_its_spider");
                }
                let failed = draw.below(4) == 0 && !self.calm && self.failed.insert(page);
                if failed {
                    self.trace.sometimes(at, "page_failed");
                }
                self.trace.record(at, Event::ClientPuts { url: page });
                self.reported(at, node, page, failed);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::many::{Many, many};
    use crate::tool::mutants::hunt;

    #[test]
    fn spiders_get_every_page_and_no_domain_too_often() {
        let without = Vec::new();
        let seeds =
            Many { base: 1, count: 100, without, mutant: None, threads: 2, violations_max: 3, all_twice: false };
        let summary = many(&SpidersLayer, &seeds, |_, _| ());
        assert!(summary.violations.is_empty(), "{summary}");
        assert_eq!((summary.seeds, summary.unequal.len()), (100, 0), "{summary}");
        assert_eq!(summary.not_reached, Vec::<String>::new());
    }

    #[test]
    fn every_planted_defect_is_caught() {
        for hunt in hunt(&SpidersLayer, &SpidersLayer.mutants(), &[], 1, 2, |_| ()) {
            let (_, violation) = hunt.caught.as_ref().unwrap_or_else(|| panic!("{hunt}"));
            let by = match hunt.mutant {
                "warmth_in_memory" | "warmed_once_a_call" | "lease_has_no_end" | "failure_gives_up" => "I25",
                _ => "I24",
            };
            assert!(violation.invariant.starts_with(by), "{hunt}");
        }
    }
}
