//! The tool proves itself on the toy: clean seeds hold, every mutant is caught, and what caught it shrinks and replays.

use super::many::{Many, many};
use super::mutants::{hunt, idle_invariants};
use super::shrink::shrink;
use super::timeline::timeline;
use super::*;
use crate::layer::{Mutant, Point};
use crate::toy::Toy;
use crate::world::trace::Keep;

fn first(count: u64) -> Many {
    let without = Vec::new();
    Many { base: 1, count, without, mutant: None, threads: 2, violations_max: 3, all_twice: false }
}

#[test]
fn clean_seeds_hold_and_reach_every_situation() {
    let summary = many(&Toy, &first(200), |_, _| ());
    assert!(summary.violations.is_empty(), "{summary}");
    assert_eq!((summary.seeds, summary.twice, summary.unequal.len()), (200, 10, 0), "{summary}");
    assert_eq!(summary.not_reached, Vec::<String>::new());
    assert!(summary.fetches > 200 && summary.simulated_s > 200.0 * 30.0, "{summary}");
}

#[test]
fn the_digest_does_not_depend_on_threads() {
    let digest = |threads| many(&Toy, &Many { threads, ..first(20) }, |_, _| ()).digest;
    assert_eq!(digest(1), digest(3));
}

#[test]
fn every_mutant_is_caught_by_the_invariant_it_breaks() {
    let mutants = Toy.mutants();
    let hunts = hunt(&Toy, &mutants, &[], 1, 2, |_| ());
    let by: Vec<(&str, &str)> = hunts
        .iter()
        .map(|hunt| {
            let (_, violation) = hunt.caught.as_ref().unwrap_or_else(|| panic!("{hunt}"));
            (hunt.mutant, violation.invariant.as_str())
        })
        .collect();
    let expected = [
        ("count_from_answer", "I7 one_holder_per_slot"),
        ("server_forgets", "I12 one_promise_per_voter"),
        ("no_delay", "I2 crawl_delay_kept"),
        ("stays_dead", "I5 comes_to_rest"),
    ];
    assert_eq!(by, expected);
}

#[test]
fn a_mutant_that_does_nothing_is_not_caught() {
    let harmless = Mutant { name: "harmless", seeds_max: 5, breaks: &["I2"] };
    let hunts = hunt(&Toy, &[harmless], &[], 1, 1, |_| ());
    assert!(hunts[0].caught.is_none() && hunts[0].seeds == 5);
}

#[test]
fn a_mutant_that_another_invariant_notices_is_not_caught() {
    let elsewhere = Mutant { name: "no_delay", seeds_max: 5, breaks: &["I7"] };
    let hunts = hunt(&Toy, &[elsewhere], &[], 1, 1, |_| ());
    assert!(hunts[0].caught.is_none() && hunts[0].seeds == 5);
    let said = hunts[0].to_string();
    assert!(said.contains("NOT caught by I7") && said.contains("seed 1 broke I2 crawl_delay_kept"), "{said}");
}

#[test]
fn an_invariant_that_notices_no_mutant_is_named() {
    let few: Vec<Mutant> = Toy.mutants().into_iter().filter(|mutant| mutant.name != "no_delay").collect();
    assert_eq!(idle_invariants(&Toy, &hunt(&Toy, &few, &[], 1, 2, |_| ())), ["I2"]);
    assert!(idle_invariants(&Toy, &hunt(&Toy, &Toy.mutants(), &[], 1, 2, |_| ())).is_empty());
}

#[test]
fn a_point_is_missed_when_so_many_seeds_have_not_reached_it() {
    struct Idle;
    impl Layer for Idle {
        fn name(&self) -> &'static str {
            "idle"
        }
        fn run(&self, _plan: &Plan, _options: &RunOptions) -> RunReport {
            RunReport::default()
        }
        fn mutants(&self) -> Vec<Mutant> {
            Vec::new()
        }
        fn judges(&self) -> Vec<&'static str> {
            Vec::new()
        }
        fn points(&self) -> Vec<Point> {
            Point::all(10, ["often"]).chain(Point::all(100, ["seldom"])).collect()
        }
    }
    let missed = |count| {
        let summary = many(&Idle, &first(count), |_, _| ());
        (summary.is_good(), summary.missed, summary.not_reached.len())
    };
    assert_eq!(missed(9), (true, vec![], 2));
    assert_eq!(missed(10), (false, vec!["often".to_owned()], 2));
    assert_eq!(missed(100), (false, vec!["often".to_owned(), "seldom".to_owned()], 2));
}

#[test]
fn what_caught_a_mutant_shrinks_and_replays_from_its_file() {
    let options = RunOptions { mutant: Some("server_forgets"), ..RunOptions::default() };
    let seed =
        (1..50).find(|seed| run(&Toy, &Plan::from_seed(*seed), &options).violation.is_some()).expect("is caught");
    let plan = Plan::from_seed(seed);
    let shrunk = shrink(&Toy, &plan, &options, 500).expect("it breaks something");
    assert!(shrunk.plan.faults.len() < plan.faults.len() / 2, "{}", shrunk.plan.to_toml());
    for number in 0..shrunk.plan.faults.len() {
        let mut without = shrunk.plan.clone();
        without.faults.remove(number);
        assert!(run(&Toy, &without, &options).violation.is_none(), "fault {number} is not needed");
    }
    assert!(shrunk.plan.submissions.is_empty());
    assert_eq!(shrunk.plan.network.loss_ppm, 0);
    let again = Plan::from_toml(&shrunk.plan.to_toml()).expect("a plan survives its file");
    assert_eq!(run(&Toy, &again, &options).violation, Some(shrunk.violation));
    assert!(run(&Toy, &again, &RunOptions::default()).violation.is_none());
}

#[test]
fn a_plan_that_breaks_nothing_does_not_shrink() {
    assert!(shrink(&Toy, &Plan::from_seed(1), &RunOptions::default(), 500).is_none());
}

#[test]
fn a_removed_fault_leaves_the_run_before_it_as_it_was() {
    let options = RunOptions { keep: Keep::Events, ..RunOptions::default() };
    let plan = Plan::from_seed(4);
    let last = plan.faults.last().expect("seed 4 has faults").clone();
    let mut without = plan.clone();
    without.faults.pop();
    let before = |plan: &Plan| -> Vec<String> {
        let report = run(&Toy, plan, &options);
        let early = report.kept_events().filter(|(at, _)| *at < last.begins());
        early.map(|(at, event)| format!("{at} {event:?}")).collect()
    };
    assert_eq!(before(&plan), before(&without));
}

#[test]
fn a_log_changes_nothing() {
    let plan = Plan::from_seed(3);
    let hash = |keep| run(&Toy, &plan, &RunOptions { keep, ..RunOptions::default() }).hash;
    assert_eq!(hash(Keep::Nothing), hash(Keep::Everything));
}

#[test]
fn a_panic_is_a_violation_with_its_place() {
    struct Panics;
    impl Layer for Panics {
        fn name(&self) -> &'static str {
            "panics"
        }
        fn run(&self, _plan: &Plan, _options: &RunOptions) -> RunReport {
            panic!("a core gave up")
        }
        fn mutants(&self) -> Vec<Mutant> {
            Vec::new()
        }
        fn judges(&self) -> Vec<&'static str> {
            Vec::new()
        }
        fn points(&self) -> Vec<Point> {
            Vec::new()
        }
    }
    let violation = run(&Panics, &Plan::from_seed(1), &RunOptions::default()).violation.expect("it panics");
    assert_eq!(violation.invariant, "I0 no_panic");
    assert!(violation.what.contains("a core gave up") && violation.what.contains("tests.rs"), "{}", violation.what);
}

#[test]
fn a_timeline_is_one_page_without_outside() {
    let options = RunOptions { mutant: Some("no_delay"), keep: Keep::Events };
    let plan = Plan::from_seed(1);
    let page = timeline(&plan, &run(&Toy, &plan, &options), "seed 1 </script>");
    assert!(page.contains("I2 crawl_delay_kept"));
    assert_eq!(page.matches("</script>").count(), 1);
    let outside = ["src=", "href=", "@import", "url("];
    assert!(outside.iter().all(|way| !page.contains(way)));
}
