use super::*;

#[test]
fn every_seed_gives_a_plan_that_holds_together_and_survives_a_file() {
    for seed in 0..500 {
        let plan = Plan::from_seed(seed);
        plan.check().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(Plan::from_toml(&plan.to_toml()).expect("reads what it wrote"), plan);
        assert_eq!(Plan::from_seed(seed), plan);
    }
}

#[test]
fn some_seed_draws_each_fault() {
    let names: BTreeSet<String> = (0..500)
        .flat_map(|seed| Plan::from_seed(seed).faults)
        .map(|fault| format!("{:?}", fault.what).split([' ', '{']).next().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(names.len(), 22, "{names:?}");
    assert!((0..100).any(|seed| !Plan::from_seed(seed).stays_down.is_empty()));
}

#[test]
fn a_minority_stays_down_and_few_disks_are_lost() {
    for seed in 0..2_000 {
        let plan = Plan::from_seed(seed);
        let voters_down = plan.stays_down.iter().filter(|node| **node < plan.cluster.voters).count() as u64;
        assert!(voters_down * 2 < plan.cluster.voters, "seed {seed}");
        let lost = plan.faults.iter().filter(|fault| fault.what.class() == FaultClass::Wipes).count();
        assert!(lost < plan.cluster.write_quorum, "seed {seed}");
        let leaves = |fault: &TimedFault| matches!(fault.what, Fault::Leave { node } if node < plan.cluster.voters);
        assert!(!plan.faults.iter().any(leaves), "seed {seed}");
    }
}

#[test]
fn some_clusters_are_of_several_releases() {
    let mixed: Vec<Plan> = (0..200).map(Plan::from_seed).filter(|plan| !plan.cluster.versions.is_empty()).collect();
    assert!((10..80).contains(&mixed.len()), "{}", mixed.len());
    let mut plan = mixed[0].clone();
    plan.cluster.versions = vec![4, 2];
    assert_eq!((plan.version(NodeId(1)), plan.version(NodeId(2))), (2, WIRE_VERSION));
    assert_eq!(plan.oldest_spoken(NodeId(0), [2, 3].map(NodeId).into_iter()), 4, "its own");
    assert_eq!(plan.oldest_spoken(NodeId(2), [1, 3].map(NodeId).into_iter()), 2);
}

#[test]
fn hosts_with_long_delays_are_not_asked_for_their_rules_all_the_time() {
    for plan in (0..500).map(Plan::from_seed) {
        let delay_ms = plan.web.crawl_delay_ms.max(plan.web.long_crawl_delay_ms);
        assert!(plan.cluster.robots_ttl_ms >= 10 * u64::from(delay_ms), "seed {}", plan.seed);
    }
}

#[test]
fn a_class_that_is_switched_off_takes_nothing_else_with_it() {
    for seed in 0..50 {
        let plan = Plan::from_seed(seed);
        let without = plan.clone().without(&[FaultClass::Crashes, FaultClass::Loss]);
        let kept = plan.faults.iter().filter(|fault| fault.what.class() != FaultClass::Crashes);
        assert!(without.faults.iter().eq(kept));
        assert_eq!(without.network.loss_ppm, 0);
        assert_eq!(without.network.straggler_ppm, plan.network.straggler_ppm);
    }
}

#[test]
fn a_file_that_makes_no_sense_is_refused() {
    let refused = |change: fn(&mut Plan)| {
        let mut plan = Plan::from_seed(1);
        change(&mut plan);
        assert!(Plan::from_toml(&plan.to_toml()).is_err());
    };
    refused(|plan| plan.cluster.nodes = 0);
    refused(|plan| plan.cluster.voters = 99);
    refused(|plan| plan.cluster.write_quorum = 4);
    refused(|plan| plan.cluster.clock_rates_ppm = vec![20_000]);
    refused(|plan| plan.cluster.versions = vec![0]);
    refused(|plan| plan.cluster.versions = vec![WIRE_VERSION + 1]);
    refused(|plan| plan.cluster.robots_ttl_ms = 0);
    refused(|plan| {
        let fault = TimedFault { id: 1, at_ms: u64::MAX >> 1, lasts_ms: 1, what: Fault::Crash { node: 0 } };
        plan.faults = vec![fault];
    });
    refused(|plan| {
        let fault = TimedFault { id: 1, at_ms: 1, lasts_ms: 1, what: Fault::Crash { node: 0 } };
        plan.faults = vec![fault.clone(), fault];
    });
}
