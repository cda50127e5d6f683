//! One node more, with one command: nobody's settings change and nobody is started again.

use serde_json::Value;
use tests::cluster::Cluster;
use tests::fleet::SETTINGS;
use tests::wait_until;

/// Who owns slots, as every node that answers sees it: members and living ones.
fn seen(cluster: &Cluster) -> Vec<(u64, u64)> {
    let number = |report: &Value, name: &str| report[name].as_u64().unwrap_or(0);
    cluster.reports().iter().map(|report| (number(report, "members"), number(report, "alive"))).collect()
}

#[test]
fn an_operator_admits_a_node_and_every_node_remembers() {
    let work = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::local(work.path(), 3, SETTINGS);
    wait_until("three nodes see each other", || seen(&cluster) == [(3, 3); 3]);
    let newcomer = cluster.prepare_newcomer();
    let (peer, _) = cluster.peer_of(newcomer);
    cluster.ctl_through(0, &["admit", "nobody"]).complains(1, &["no peer id"]);
    cluster.ctl_through(0, &["admit", &cluster.peer_of(1).0]).complains(1, &["cluster.peers"]);
    cluster.ctl_through(0, &["admit", &peer, "--revoke"]).complains(1, &["was not admitted"]);
    let admitted = cluster.ctl_through(0, &["admit", &peer]);
    assert_eq!(admitted.code, Some(0), "{admitted}");
    let said: Value = serde_json::from_str(&admitted.stdout).unwrap();
    assert_eq!(said["Admitted"]["nodes"].as_array().map(Vec::len), Some(3), "{said}");
    cluster.start_node(newcomer);
    wait_until("all four see each other", || seen(&cluster) == [(4, 4); 4]);
    wait_until("the new one holds its share", || {
        let reports = cluster.reports();
        let held: u64 = tests::cluster::sum(&reports, "/held");
        held == 4096 && reports.iter().all(|report| report["held"].as_u64().is_some_and(|held| held > 0))
    });
    // A node that was started again still lets it in: it is on its disk, not in its settings.
    cluster.stop_node(1);
    cluster.start_node(1);
    wait_until("all four see each other again", || seen(&cluster) == [(4, 4); 4]);
    cluster.stop();
}
