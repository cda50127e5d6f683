//! What a ranking over three nodes costs: their parts are read from one stored graph, and they exchange numbers in memory, as over a network that costs nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use node::edges::cores::Threads;
use node::edges::store::PageGraph;
use node::scoring::lists::Wanted;
use node::scoring::part::Ours;
use proto::id::{NodeId, SLOTS};
use proto::key::UrlKey;
use proto::score::Stop;
use proto::score::pagerank::DAMPING;
use proto::score::rounds::{By, Ranking, Standing};

use super::measured;

/// The stage in which numbers go over for the first time.
const FIRST_LOOP: u32 = 2;

/// Measures `loops` of PageRank and of HITS.
pub(super) fn run(graph: &PageGraph, loops: u32, dir: &Path) -> anyhow::Result<()> {
    let members = [1, 2, 3].map(NodeId);
    let owners: Vec<NodeId> = (0..SLOTS).map(|slot| members[usize::from(slot) % 3]).collect();
    let links = graph.counts()?.links as f64;
    for (name, by) in [("pagerank", By::PageRank(DAMPING)), ("hits", By::Hits)] {
        let wanted = Wanted { out: by == By::Hits, ..Wanted::default() };
        let (parts, read) = measured(|| {
            let part = |me: NodeId| -> anyhow::Result<(NodeId, Ours)> {
                Ok((me, Ours::read(graph, me, &owners, wanted, 0, dir)?))
            };
            members.into_iter().map(part).collect::<anyhow::Result<Vec<_>>>()
        })?;
        let stop = Stop { precision: 0.0, loops_max: loops };
        let (mut nodes, mut mine) = (BTreeMap::new(), BTreeMap::new());
        let (begun, named) = measured(|| {
            for (me, Ours { mine: numbers, share, .. }) in parts {
                let machine = Arc::new(Threads::new(0, dir));
                nodes.insert(me, Ranking::new(1, me, &members, by, stop, share, machine));
                mine.insert(me, numbers);
            }
            exchange(graph, &mut nodes, &mine, FIRST_LOOP)
        })?;
        let (ended, took) = measured(|| exchange(graph, &mut nodes, &mine, u32::MAX))?;
        anyhow::ensure!(begun && ended, "a ranking failed");
        let (wall, cpu) = (took.wall.as_secs_f64() / f64::from(loops), took.cpu.as_secs_f64() / f64::from(loops));
        println!(
            "{name} in three parts: read in {:.2} processor s, names exchanged in {:.2}; {wall:.3} s a loop, {cpu:.3} processor s, {:.0} million links a processor second",
            read.cpu.as_secs_f64(),
            named.cpu.as_secs_f64(),
            links / cpu / 1e6
        );
    }
    Ok(())
}

/// Lets them draw from each other until all are at this stage or have ended; says whether that is so.
fn exchange(
    graph: &PageGraph,
    nodes: &mut BTreeMap<NodeId, Ranking>,
    mine: &BTreeMap<NodeId, impl std::ops::Deref<Target = [u32]>>,
    stage: u32,
) -> anyhow::Result<bool> {
    let goes = |ranking: &Ranking| ranking.standing() == Standing::Goes && ranking.stage() < stage;
    while nodes.values().any(goes) {
        for me in mine.keys() {
            for (of, question) in nodes[me].wants() {
                let reply = nodes[&of].answer(*me, question);
                let number = |name: &[u8]| {
                    let page = graph.page(&UrlKey::checked(name)?).ok()??;
                    mine[me].get(page.number as usize).copied()
                };
                if let Some(ranking) = nodes.get_mut(me) {
                    ranking.heard(of, question, reply, number);
                }
            }
        }
    }
    Ok(nodes.values().all(|ranking| ranking.standing() != Standing::Failed))
}
