//! What nodes say of the page graph and its scores, against what one node would compute.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::fleet::Fleet;
use crate::program::{get, run};

/// How often scores were computed behind a door.
pub fn computed(door: &str) -> u64 {
    let (_, metrics) = get(door, "/metrics");
    let line = metrics.lines().find_map(|line| line.strip_prefix("orbweaver_score_seconds_count "));
    line.map_or(0, |count| count.parse().unwrap())
}

/// The rows about a graph, unless nothing has been taken into it yet.
pub fn graph_rows(arguments: &[&str], data: &Path) -> Option<Vec<Value>> {
    let ended = run(&[arguments, &["--json", "--data", data.to_str().unwrap()]].concat());
    if ended.code == Some(3) && ended.stderr.contains("no page graph") {
        return None;
    }
    assert_eq!(ended.code, Some(0), "{ended}");
    Some(ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

/// The rows about a graph that is there.
pub fn rows(arguments: &[&str], data: &Path) -> Vec<Value> {
    graph_rows(arguments, data).expect("there is a graph")
}

/// The scores that nodes keep of their own pages, together; and what one node alone computes from the whole graph, which every replica has, as exactly as it can.
/// Nothing as long as a node has none.
fn scores_and_oracle(fleet: &Fleet, nodes: &[usize]) -> Option<(BTreeMap<String, f64>, BTreeMap<String, f64>)> {
    let mut scores: BTreeMap<String, f64> = BTreeMap::new();
    for node in nodes {
        for row in graph_rows(&["pages", "dump", "info"], &fleet.data(*node))? {
            *scores.entry(row["url"].as_str().unwrap().to_owned()).or_default() += row["score"].as_f64().unwrap_or(9.0);
        }
    }
    let ranked = graph_rows(&["pages", "rank", "--top", "100000", "--precision", "1e-12"], &fleet.data(nodes[0]))?;
    let ranked = ranked.iter().map(|row| (row["url"].as_str().unwrap().to_owned(), row["score"].as_f64().unwrap()));
    Some((scores, ranked.collect()))
}

/// How far they are from each other; more than any two can be if they are not about the same pages.
pub fn apart(fleet: &Fleet, nodes: &[usize], pages: usize) -> f64 {
    let Some((scores, oracle)) = scores_and_oracle(fleet, nodes) else { return 9.0 };
    if scores.len() != pages || !scores.keys().eq(oracle.keys()) {
        return 9.0;
    }
    scores.iter().map(|(url, score)| (score - oracle[url]).abs()).sum()
}
