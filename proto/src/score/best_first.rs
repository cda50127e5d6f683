//! Best first: which pages are handed out next, over many domains.
//!
//! Pages are taken in the order of their ranks, wherever they are. A domain that is warmer than the limit of the step is passed over as a whole, whatever waits in it: that costs
//! as much for a million pages as for one. If a step ends before there is enough, those that were passed over are looked at again with the limit of the next step.
//!
//! [`Picker`] decides and knows no disk. Who drives it tells, for each step, of domains that are open in it and were not met before, in the order of their best pages, each
//! with a rank that is at least that of its best page ([`Picker::meet`]), says which page a domain really has next when asked ([`Picker::sighted`]), and hands out what it
//! is told to. In the end [`Picker::into_domains`] says how warm they are, for whoever asks next: domains that are put down by the step in which they are open
//! ([`Rates::step`]) are not met while cooler ones have enough.

use std::collections::{BTreeMap, BinaryHeap};

use super::temperature::{Rates, STEPS, Warmth};

/// How early a page is fetched: what the graph says of it (its level, a tenth more each), and among equals what spiders said it is worth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(u64);

impl Rank {
    /// Bits of a rank.
    const BITS: u32 = 48;
    /// The best rank.
    pub const BEST: Rank = Rank((1 << Self::BITS) - 1);

    /// The rank of a page.
    pub fn new(level: i16, score: f32) -> Rank {
        let bits = if score.is_nan() { 0f32.to_bits() } else { (score + 0.0).to_bits() };
        // Order of floats as order of numbers: negative ones the other way round, positive ones above them.
        let ordered = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
        let level = (i32::from(level) - i32::from(i16::MIN)) as u64;
        Rank(level << 32 | u64::from(ordered))
    }

    /// A number that is smaller the better the rank is.
    pub fn place(self) -> u64 {
        Self::BEST.0 - self.0
    }

    /// The rank with this place.
    pub fn of_place(place: u64) -> Rank {
        Rank(Self::BEST.0 - place.min(Self::BEST.0))
    }
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<D> {
    /// Tell of the next domain that may be open in this step, or in one before, or that there is none ([`Picker::met_all`]).
    Meet(usize),
    /// Say which page is next in this domain.
    Look(D),
    /// Hand out the next page of this domain.
    Take(D),
    /// That is all.
    Done,
}

/// A domain as the picker leaves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// How warm it is.
    pub warmth: Warmth,
    /// Its next page has at most this rank; `None` if it has none.
    pub next: Option<Rank>,
    /// Pages that were taken of it.
    pub taken: u32,
}

/// Picks pages.
pub struct Picker<D> {
    wanted: usize,
    rates: Option<Rates>,
    now_ms: u64,
    step: usize,
    /// How many steps are made.
    steps: usize,
    domains: BTreeMap<D, Left>,
    /// Domains that may be served in this step, by the rank of their next page and by who came first; whether that rank is known or only a bound.
    open: BinaryHeap<(Rank, std::cmp::Reverse<D>, bool)>,
    /// Domains that are too warm for this step.
    later: Vec<D>,
    /// The rank of the next domain that was not met is at most this.
    unmet: Option<Rank>,
}

impl<D: Ord + Clone> Picker<D> {
    /// Picks `wanted` pages; without rates all domains are always open.
    pub fn new(wanted: usize, rates: Option<Rates>, now_ms: u64) -> Picker<D> {
        let (domains, open, later) = (BTreeMap::new(), BinaryHeap::new(), Vec::new());
        Picker { wanted, rates, now_ms, step: 0, steps: STEPS, domains, open, later, unmet: Some(Rank::BEST) }
    }

    /// Picks only of domains that are cool enough for the soft rate.
    #[must_use]
    pub fn only_cool(self) -> Picker<D> {
        Picker { steps: 1, ..self }
    }

    /// There is a domain whose pages have at most this rank; so have those of all domains that are met after it in this step.
    pub fn meet(&mut self, domain: D, best: Rank, warmth: Warmth) {
        self.unmet = Some(best);
        self.domains.insert(domain.clone(), Left { warmth, next: Some(best), taken: 0 });
        self.queue(domain, best, false);
    }

    /// There is no other domain in this step.
    pub fn met_all(&mut self) {
        self.unmet = None;
    }

    /// The next page of a domain that was asked about; `None` if it has none.
    pub fn sighted(&mut self, domain: D, next: Option<Rank>) {
        if let Some(left) = self.domains.get_mut(&domain) {
            left.next = next;
        }
        if let Some(rank) = next {
            self.queue(domain, rank, true);
        }
    }

    /// What to do next.
    pub fn step(&mut self) -> Step<D> {
        if self.wanted == 0 {
            return Step::Done;
        }
        loop {
            match self.open.peek() {
                // Somebody who was not met may have a better page.
                Some((rank, ..)) if self.unmet.is_some_and(|unmet| unmet > *rank) => return Step::Meet(self.step),
                None if self.unmet.is_some() => return Step::Meet(self.step),
                None if self.step + 1 == self.steps => return Step::Done,
                None => {
                    (self.step, self.unmet) = (self.step + 1, Some(Rank::BEST));
                    for domain in std::mem::take(&mut self.later) {
                        let next = self.domains.get(&domain).and_then(|left| left.next);
                        if let Some(rank) = next {
                            self.queue(domain, rank, false);
                        }
                    }
                }
                Some(_) => {
                    let Some((rank, std::cmp::Reverse(domain), known)) = self.open.pop() else { return Step::Done };
                    if !known {
                        return Step::Look(domain);
                    }
                    self.wanted -= 1;
                    let (rates, now_ms) = (self.rates, self.now_ms);
                    if let Some(left) = self.domains.get_mut(&domain) {
                        left.taken += 1;
                        left.warmth = rates.map_or(left.warmth, |rates| rates.heat(left.warmth, now_ms));
                    }
                    self.queue(domain.clone(), rank, false);
                    return Step::Take(domain);
                }
            }
        }
    }

    /// Puts a domain where it belongs by its temperature.
    fn queue(&mut self, domain: D, rank: Rank, known: bool) {
        let warmth = self.domains.get(&domain).map_or(Warmth::default(), |left| left.warmth);
        let open = |step| self.rates.is_none_or(|rates| rates.opens_ms(warmth, step) <= self.now_ms);
        if open(self.step) {
            self.open.push((rank, std::cmp::Reverse(domain), known));
        } else if open(STEPS - 1) {
            self.later.push(domain);
        }
    }

    /// All domains that were met.
    pub fn into_domains(self) -> BTreeMap<D, Left> {
        self.domains
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: u64 = 1_790_000_000_000;

    /// Domains with the ranks of their pages, best first; looks at pages are counted.
    struct World {
        domains: BTreeMap<u32, (Warmth, Vec<Rank>)>,
        looks: usize,
    }

    impl World {
        fn request(&mut self, wanted: usize, rates: Option<Rates>, now_ms: u64) -> Vec<(u32, Rank)> {
            let mut order: Vec<(Rank, u32)> = self
                .domains
                .iter()
                .filter(|(_, (warmth, pages))| {
                    !pages.is_empty() && rates.is_none_or(|rates| rates.opens_ms(*warmth, STEPS - 1) <= now_ms)
                })
                .map(|(domain, (_, pages))| (pages[0], *domain))
                .collect();
            order.sort_by_key(|(rank, domain)| (std::cmp::Reverse(*rank), *domain));
            let mut order = order.into_iter();
            let mut picker = Picker::new(wanted, rates, now_ms);
            let (mut taken, mut heads) = (Vec::new(), BTreeMap::<u32, usize>::new());
            loop {
                match picker.step() {
                    Step::Meet(_) => match order.next() {
                        Some((rank, domain)) => picker.meet(domain, rank, self.domains[&domain].0),
                        None => picker.met_all(),
                    },
                    Step::Look(domain) => {
                        self.looks += 1;
                        let head = heads.get(&domain).copied().unwrap_or(0);
                        picker.sighted(domain, self.domains[&domain].1.get(head).copied());
                    }
                    Step::Take(domain) => {
                        let head = heads.entry(domain).or_default();
                        taken.push((domain, self.domains[&domain].1[*head]));
                        *head += 1;
                    }
                    Step::Done => break,
                }
            }
            for (domain, left) in picker.into_domains() {
                let of = self.domains.get_mut(&domain).unwrap();
                of.0 = left.warmth;
                of.1.drain(..left.taken as usize);
            }
            taken
        }
    }

    fn ranks(scores: &[f32]) -> Vec<Rank> {
        scores.iter().map(|score| Rank::new(0, *score)).collect()
    }

    #[test]
    fn ranks_go_by_level_and_then_by_score() {
        let ordered = [
            Rank::new(i16::MIN, f32::MAX),
            Rank::new(-1, 9.0),
            Rank::new(0, f32::NEG_INFINITY),
            Rank::new(0, -1.0),
            Rank::new(0, 0.0),
            Rank::new(0, 0.5),
            Rank::new(1, -1.0),
            Rank::new(i16::MAX, f32::INFINITY),
        ];
        assert!(ordered.is_sorted() && ordered.windows(2).all(|two| two[0] != two[1]));
        assert_eq!((Rank::new(0, -0.0), Rank::new(0, f32::NAN)), (Rank::new(0, 0.0), Rank::new(0, 0.0)));
        assert!(ordered.iter().all(|rank| Rank::of_place(rank.place()) == *rank));
    }

    #[test]
    fn pages_come_in_the_order_of_their_scores_wherever_they_are() {
        let domains = [(1, ranks(&[0.9, 0.5, 0.4])), (2, ranks(&[0.8, 0.5])), (3, ranks(&[0.1]))];
        let domains = domains.into_iter().map(|(domain, pages)| (domain, (Warmth::default(), pages))).collect();
        let mut world = World { domains, looks: 0 };
        let order: Vec<u32> = world.request(5, None, NOW).into_iter().map(|(domain, _)| domain).collect();
        assert_eq!(order, [1, 2, 1, 2, 1], "ties go to who stands first");
    }

    #[test]
    fn a_domain_that_is_too_warm_is_passed_over_as_a_whole() {
        let rates = Rates::new(0.5, 2.0).unwrap();
        let mut hot = Warmth::default();
        (0..50).for_each(|_| hot = rates.heat(hot, NOW));
        let mut domains = BTreeMap::from([(0, (hot, ranks(&vec![1.0; 100_000])))]);
        domains.extend((1..=20).map(|domain| (domain, (Warmth::default(), ranks(&[0.5, 0.4])))));
        let mut world = World { domains, looks: 0 };
        let taken = world.request(10, Some(rates), NOW);
        assert!(taken.len() == 10 && taken.iter().all(|(domain, _)| *domain != 0));
        assert!(world.looks <= 40, "{} looks", world.looks);
    }

    #[test]
    fn the_soft_rate_gives_way_only_when_nobody_else_has_pages() {
        let rates = Rates::new(0.1, 2.0).unwrap();
        let domains = [(1, ranks(&[0.9; 30])), (2, ranks(&[0.1; 3]))];
        let domains = domains.into_iter().map(|(domain, pages)| (domain, (Warmth::default(), pages))).collect();
        let mut world = World { domains, looks: 0 };
        let order: Vec<u32> = world.request(2, Some(rates), NOW).into_iter().map(|(domain, _)| domain).collect();
        assert_eq!(order, [1, 2], "one page each, though the first has better ones");
        let more = world.request(100, Some(rates), NOW);
        assert_eq!(more.iter().filter(|(domain, _)| *domain == 2).count(), 2);
        let of_first = more.iter().filter(|(domain, _)| *domain == 1).count();
        assert!((8..=10).contains(&of_first), "as many as the hard rate lets out at once: {of_first}");
        assert!(world.request(100, Some(rates), NOW).is_empty());
        assert!(!world.request(100, Some(rates), NOW + 500).is_empty());
    }

    proptest! {
        #[test]
        fn without_rates_it_is_the_order_of_a_sort(
            domains in proptest::collection::btree_map(0..20u32, proptest::collection::vec(0..50u8, 0..12), 0..12),
            wanted in 0..60usize,
        ) {
            let domains: BTreeMap<u32, (Warmth, Vec<Rank>)> = domains.into_iter().map(|(domain, mut pages)| {
                pages.sort_by_key(|score| std::cmp::Reverse(*score));
                (domain, (Warmth::default(), ranks(&pages.iter().map(|score| f32::from(*score)).collect::<Vec<_>>())))
            }).collect();
            let mut all: Vec<Rank> = domains.values().flat_map(|(_, pages)| pages.clone()).collect();
            all.sort_by_key(|rank| std::cmp::Reverse(*rank));
            all.truncate(wanted);
            let taken = World { domains, looks: 0 }.request(wanted, None, NOW);
            prop_assert_eq!(taken.into_iter().map(|(_, rank)| rank).collect::<Vec<_>>(), all);
        }

        #[test]
        fn rates_are_kept_and_nothing_that_is_open_is_left_behind(
            domains in proptest::collection::btree_map(0..8u32, 1..60usize, 1..8),
            waits in proptest::collection::vec((0..3_000u64, 1..40usize), 1..30),
            hard in 0.5..20.0f64,
        ) {
            let rates = Rates::new(hard / 10.0, hard).unwrap();
            let domains = domains.into_iter().map(|(domain, pages)| (domain, (Warmth::default(), ranks(&vec![0.5; pages])))).collect();
            let mut world = World { domains, looks: 0 };
            let (mut now, mut served) = (NOW, BTreeMap::<u32, Vec<u64>>::new());
            for (wait, wanted) in waits {
                now += wait;
                let taken = world.request(wanted, Some(rates), now);
                let fewer = taken.len() < wanted;
                taken.into_iter().for_each(|(domain, _)| served.entry(domain).or_default().push(now));
                for (warmth, pages) in world.domains.values() {
                    let open = rates.opens_ms(*warmth, STEPS - 1) <= now && !pages.is_empty();
                    prop_assert!(!(fewer && open), "a page could have been handed out");
                }
            }
            for times in served.values() {
                for (first, from) in times.iter().enumerate() {
                    for (count, to) in (1..).zip(&times[first..]) {
                        prop_assert!(f64::from(count) <= hard * (to - from) as f64 / 1_000.0 + super::super::temperature::BURST + 1.0);
                    }
                }
            }
        }
    }
}
