//! Slots that are leased, served and taken away.

use super::*;
use crate::cluster::lease::Grants;

const DELAY: Micros = 3 * SECOND;
const LONG: Micros = 1_000 * SECOND;

/// A world whose frontier holds nothing yet.
fn world(seed: u64) -> World {
    let pace = PaceRules { delay_ms: DELAY / 1_000, ..PaceRules::default() };
    let rules = FrontierRules { pace_addresses: false, pace, ..rules() };
    let mut world = World::new(rules.clone(), seed);
    let filter = Filter::new(FilterRules { scope: crate::crawl::filter::Scope::Any, ..FilterRules::default() }, &[]);
    let leases = Leases::Granted(Grants::default());
    let now = Now { mono: 0, unix_ms: 1_000_000 };
    world.core = Frontier::new(now, rules, Arc::new(filter.unwrap()), leases, 0, false);
    world
}

fn slot_of(text: &str) -> Slot {
    Slot::of_domain(url(text).domain())
}

impl World {
    fn lease(&mut self, slot: Slot, until: Micros) {
        self.step(Input::Leased { slots: vec![(slot, until)] });
    }

    fn serve(&mut self, slot: Slot, until: Micros) {
        self.lease(slot, until);
        self.step(Input::Served { slot });
    }

    /// Runs until `end`: a frontier that waits for its lease never comes to rest by itself.
    fn run_until(&mut self, end: Micros) {
        self.step(Input::Tick);
        for _ in 0..10_000 {
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let Some(next) = event.into_iter().chain(self.core.next_wake()).min().filter(|next| *next <= end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(next);
            let input = match self.events.first_entry().filter(|first| first.key().0 <= self.now) {
                Some(first) => first.remove(),
                None => Input::Tick,
            };
            self.step(input);
        }
        panic!("time stands still");
    }

    fn asked(&self) -> Vec<&str> {
        self.requests.iter().map(|request| request.url.as_str()).collect()
    }
}

#[test]
fn nothing_is_asked_before_its_slot_is_leased_and_served() {
    let mut world = world(1);
    let slot = slot_of("http://a.example/");
    world.add("http://a.example/x", 100, 0, true);
    world.run_until(20 * SECOND);
    world.lease(slot, LONG);
    world.run_until(40 * SECOND);
    assert!(world.requests.is_empty(), "{:?}", world.requests);
    world.step(Input::Served { slot });
    world.run_until(80 * SECOND);
    assert_eq!(world.asked(), ["http://a.example/robots.txt", "http://a.example/x"]);
}

#[test]
fn a_slot_that_is_not_held_cannot_be_served() {
    let mut world = world(2);
    world.add("http://a.example/x", 100, 0, false);
    world.step(Input::Served { slot: slot_of("http://a.example/") });
    world.run_until(40 * SECOND);
    assert!(world.requests.is_empty());
}

#[test]
fn hosts_of_an_acquired_slot_are_left_alone_at_first_and_only_once() {
    let mut world = world(3);
    let slot = slot_of("http://a.example/");
    for page in ["x", "y", "z"] {
        world.add(&format!("http://a.example/{page}"), 100, 0, false);
    }
    world.now = 50 * SECOND;
    world.serve(slot, LONG);
    world.run_until(80 * SECOND);
    assert_eq!(world.requests.len(), 4);
    assert!(world.requests[0].start >= 50 * SECOND + DELAY);
    let renewed_at = world.now;
    world.lease(slot, 2 * LONG);
    world.add("http://new.a.example/late", 100, 0, true);
    world.run_until(100 * SECOND);
    assert!(world.requests[4].start < renewed_at + DELAY, "a lease that became longer was held before");
}

#[test]
fn a_new_holder_asks_for_robots_first_and_its_crawl_delay_counts_from_there() {
    let mut world = world(9);
    let slot = slot_of("http://a.example/");
    let slowly = RobotsFetch::Body(b"User-agent: *\nCrawl-delay: 20".to_vec());
    world.hosts.insert("a.example".into(), Host { robots: Some(slowly), ..Host::default() });
    world.add("http://a.example/x", 100, 0, false);
    world.serve(slot, LONG);
    world.run_until(100 * SECOND);
    assert_eq!(world.asked(), ["http://a.example/robots.txt", "http://a.example/x"]);
    assert!(world.requests[0].start >= DELAY && world.requests[0].start < 20 * SECOND);
    assert!(world.requests[1].start >= world.requests[0].end + 20 * SECOND);
}

#[test]
fn no_fetch_starts_that_could_outlast_its_lease() {
    let mut world = world(4);
    let slot = slot_of("http://a.example/");
    for page in 0..40 {
        world.add(&format!("http://a.example/{page}"), 100, 0, false);
    }
    let until = 60 * SECOND;
    world.serve(slot, until);
    world.run_until(until);
    let last = world.requests.last().expect("there was time for some");
    assert!(last.start + rules().fetch_timeout < until);
    let so_far = world.requests.len();
    assert!(so_far > 5);
    world.lease(slot, LONG);
    world.run_until(200 * SECOND);
    assert!(world.requests.len() > so_far, "a longer lease lets it go on");
}

#[test]
fn a_slot_that_is_taken_away_is_idle_when_its_last_request_ended() {
    let mut world = world(5);
    let slot = slot_of("http://a.example/");
    for page in ["x", "y", "z"] {
        world.add(&format!("http://a.example/{page}"), 100, 0, false);
    }
    world.serve(slot, LONG);
    while world.fetched.is_empty() {
        let next = world.now + SECOND / 10;
        world.run_until(next);
    }
    let (ends, asked) = (world.requests.last().expect("just asked").end, world.requests.len());
    assert!(ends > world.now, "it is under way");
    world.step(Input::Unleased { slot });
    assert!(world.idle.is_empty());
    world.run_until(ends - 1);
    assert!(world.idle.is_empty());
    world.run_until(ends + 60 * SECOND);
    assert_eq!(world.idle, [slot], "once");
    world.add("http://a.example/more", 100, 0, true);
    world.run_until(ends + 120 * SECOND);
    assert_eq!(world.requests.len(), asked);
}

#[test]
fn a_slot_with_nothing_under_way_is_idle_at_once() {
    let mut world = world(6);
    world.lease(Slot(3), LONG);
    world.step(Input::Unleased { slot: Slot(3) });
    assert_eq!(world.idle, [Slot(3)]);
}

#[test]
fn a_host_that_is_still_asked_when_its_slot_comes_back_is_waited_for() {
    let mut world = world(7);
    let slot = slot_of("http://a.example/");
    for page in ["x", "y"] {
        world.add(&format!("http://a.example/{page}"), 100, 0, false);
    }
    world.hosts.insert("a.example".into(), Host { lost: true, ..Host::default() });
    world.serve(slot, LONG);
    while world.fetched.is_empty() {
        let next = world.now + SECOND / 10;
        world.run_until(next);
    }
    let (asked_at, asked) = (world.now, world.requests.len());
    world.step(Input::Unleased { slot });
    world.serve(slot, LONG);
    // Nobody ever says how it ended: its deadline does.
    world.run_until(asked_at + rules().flight_timeout - SECOND);
    assert_eq!(world.requests.len(), asked);
    assert!(world.idle.is_empty(), "it is ours again");
    world.run_until(asked_at + 3 * rules().flight_timeout);
    assert!(world.requests.len() > asked);
}

#[test]
fn an_errand_on_a_slot_that_is_taken_away_does_not_leave_its_asker_waiting() {
    let mut world = world(8);
    let (asker, target) = (slot_of("http://a.example/"), slot_of("http://b.example/"));
    assert_ne!(asker, target);
    let elsewhere = RobotsFetch::Redirect("http://b.example/robots.txt".into());
    world.hosts.insert("a.example".into(), Host { robots: Some(elsewhere), ..Host::default() });
    world.add("http://a.example/x", 100, 0, false);
    // The target's host is left alone when the errand comes to it.
    world.serve(asker, LONG);
    world.run_until(DELAY);
    world.serve(target, LONG);
    world.run_until(DELAY + DELAY / 2);
    assert_eq!(world.asked(), ["http://a.example/robots.txt"]);
    world.step(Input::Unleased { slot: target });
    world.run_until(60 * SECOND);
    assert!(world.requests.len() > 1, "it asks again, and again until it gives up");
    world.serve(target, LONG);
    world.run_until(400 * SECOND);
    assert_eq!(world.left(), 0);
}
