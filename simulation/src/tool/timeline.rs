//! Draws a run as one page that needs nothing else: what happened to the world, who was up and held how many leases, and who
//! asked which host. The page is a fixed text with the run in it as data; its script draws.

use std::collections::{BTreeMap, BTreeSet};

use proto::crawl::politeness::Micros;
use proto::id::{NodeId, Slot};
use serde_json::{Value, json};

use crate::layer::RunReport;
use crate::world::plan::{Fault, Plan};
use crate::world::trace::{Event, FetchEnd, FetchKind, Host};

const PAGE: &str = include_str!("timeline.html");
/// Where the data goes in the page.
const PLACE: &str = "/*RUN*/";

/// Returns the page for a run of `plan` whose report kept its events.
pub fn timeline(plan: &Plan, report: &RunReport, title: &str) -> String {
    // `</script>` in the data would end the script.
    let data = data(plan, report, title).to_string().replace("</", "<\\/");
    PAGE.replacen(PLACE, &data, 1)
}

#[derive(Default)]
struct Drawing {
    nodes: BTreeMap<NodeId, NodeLane>,
    hosts: BTreeMap<Host, HostLane>,
    slot_bars: BTreeMap<Slot, Vec<(NodeId, Micros, Micros)>>,
    holding: BTreeMap<(Slot, NodeId), (Micros, Micros)>,
    under_way: BTreeMap<u64, (Host, usize)>,
}

#[derive(Default)]
struct NodeLane {
    up: Vec<(Micros, Micros)>,
    paused: Vec<(Micros, Micros)>,
    leases: Vec<(Micros, usize)>,
    held: usize,
    marks: Vec<(Micros, String)>,
    up_since: Option<Micros>,
    paused_since: Option<Micros>,
}

#[derive(Default)]
struct HostLane {
    slot: Option<Slot>,
    fetches: Vec<Value>,
}

fn data(plan: &Plan, report: &RunReport, title: &str) -> Value {
    let end = report.ended_at.max(1);
    let mut drawing = Drawing::default();
    for (at, event) in report.kept_events() {
        drawing.see(at, event);
    }
    drawing.close(end);
    let slots: BTreeSet<Slot> = drawing.hosts.values().filter_map(|lane| lane.slot).collect();
    let faults: Vec<Value> = plan
        .faults
        .iter()
        .filter(|fault| fault.begins() < end)
        .map(|fault| {
            let (name, text) = describe(&fault.what);
            json!({ "id": fault.id, "from": fault.begins(), "to": fault.ends().min(end), "name": name, "text": text,
            "nodes": fault.what.nodes() })
        })
        .collect();
    let nodes: Vec<Value> = drawing
        .nodes
        .iter()
        .map(|(node, lane)| {
            json!({ "id": node.0, "up": lane.up, "paused": lane.paused, "leases": lane.leases, "marks": lane.marks,
            "voter": node.0 < plan.cluster.voters })
        })
        .collect();
    let hosts: Vec<Value> = drawing
        .hosts
        .iter()
        .map(|(host, lane)| {
            let held = lane
                .slot
                .and_then(|slot| drawing.slot_bars.get(&slot))
                .map(|bars| bars.iter().map(|(node, from, to)| json!([node.0, from, to])).collect::<Vec<_>>());
            json!({ "id": host, "slot": lane.slot.map(|slot| slot.0), "fetches": lane.fetches, "held": held })
        })
        .collect();
    json!({
        "title": title,
        "end": end,
        "calm": plan.faults_end(),
        "rested": report.rested_after.map(|after| plan.faults_end() + after),
        "violation": report.violation.as_ref().map(|violation| json!({ "at": violation.at, "text": violation.to_string() })),
        "facts": format!(
            "{} nodes, {} voters, R {}, W {}; lease {} ms, fetch at most {} ms, delay {} ms; loss {} ppm, stragglers {} ppm; \
             {} slots drawn; hash {:016x}",
            plan.cluster.nodes, plan.cluster.voters, plan.cluster.replicas, plan.cluster.write_quorum,
            plan.cluster.lease_ms, plan.cluster.fetch_timeout_ms, plan.cluster.crawl_delay_ms,
            plan.network.loss_ppm, plan.network.straggler_ppm, slots.len(), report.hash
        ),
        "sometimes": report.sometimes,
        "faults": faults,
        "nodes": nodes,
        "hosts": hosts,
    })
}

impl Drawing {
    fn see(&mut self, at: Micros, event: &Event) {
        match event {
            Event::NodeStarted { node, .. } => self.node(*node).up_since = Some(at),
            Event::NodeCrashed { node } => {
                let lane = self.node(*node);
                lane.up.extend(lane.up_since.take().map(|from| (from, at)));
                lane.paused.extend(lane.paused_since.take().map(|from| (from, at)));
                let lost: Vec<Slot> = self.holding.keys().filter(|(_, by)| by == node).map(|(slot, _)| *slot).collect();
                for slot in lost {
                    self.lease_ends(at, slot, *node);
                }
            }
            Event::NodePaused { node } => self.node(*node).paused_since = Some(at),
            Event::NodeResumed { node } => {
                let lane = self.node(*node);
                lane.paused.extend(lane.paused_since.take().map(|from| (from, at)));
            }
            Event::NodeJoins { node } => self.mark(at, *node, "joins"),
            Event::NodeLeaves { node } => self.mark(at, *node, "leaves"),
            Event::DiskWiped { node } => self.mark(at, *node, "disk wiped"),
            Event::RecordDamaged { node, .. } => self.mark(at, *node, "record damaged"),
            Event::RingChanged { node, members, .. } => {
                let names: Vec<String> = members.keys().map(|node| node.0.to_string()).collect();
                self.mark(at, *node, &format!("ring of {}", names.join(" ")));
            }
            Event::BatchLost { node, urls, .. } => self.mark(at, *node, &format!("batch of {} lost", urls.len())),
            Event::LeaseHeld { node, slot, until, .. } => {
                let renewed = self.holding.get_mut(&(*slot, *node)).map(|held| held.1 = *until);
                if renewed.is_none() {
                    self.holding.insert((*slot, *node), (at, *until));
                    let lane = self.node(*node);
                    lane.held += 1;
                    let held = lane.held;
                    lane.leases.push((at, held));
                }
            }
            Event::LeaseLost { node, slot } => self.lease_ends(at, *slot, *node),
            Event::FetchStarted(start) => {
                let lane = self.hosts.entry(start.host).or_default();
                lane.slot = Some(start.slot);
                let robots = start.kind == FetchKind::Robots;
                lane.fetches.push(json!({ "node": start.node.0, "from": at, "to": null, "robots": robots,
                    "deadline": start.deadline, "url": start.url.to_string() }));
                self.under_way.insert(start.fetch, (start.host, lane.fetches.len() - 1));
            }
            Event::FetchEnded { fetch, end, .. } => {
                if let Some((host, number)) = self.under_way.remove(fetch)
                    && let Some(lane) = self.hosts.get_mut(&host)
                {
                    lane.fetches[number]["to"] = json!(at);
                    lane.fetches[number]["end"] = json!(match end {
                        FetchEnd::Answered => "answered",
                        FetchEnd::Failed => "failed",
                        FetchEnd::Aborted => "aborted",
                        FetchEnd::Died => "died",
                    });
                }
            }
            _ => {}
        }
    }

    fn close(&mut self, end: Micros) {
        for lane in self.nodes.values_mut() {
            lane.up.extend(lane.up_since.take().map(|from| (from, end)));
            lane.paused.extend(lane.paused_since.take().map(|from| (from, end)));
        }
        let open: Vec<(Slot, NodeId)> = self.holding.keys().copied().collect();
        for (slot, node) in open {
            self.lease_ends(end, slot, node);
        }
    }

    fn lease_ends(&mut self, at: Micros, slot: Slot, node: NodeId) {
        let Some((from, until)) = self.holding.remove(&(slot, node)) else { return };
        self.slot_bars.entry(slot).or_default().push((node, from, at.min(until)));
        let lane = self.node(node);
        lane.held -= 1;
        let held = lane.held;
        lane.leases.push((at, held));
    }

    fn mark(&mut self, at: Micros, node: NodeId, text: &str) {
        self.node(node).marks.push((at, text.to_owned()));
    }

    fn node(&mut self, node: NodeId) -> &mut NodeLane {
        self.nodes.entry(node).or_default()
    }
}

/// The kind of a fault and the rest of it, as people read it.
fn describe(fault: &Fault) -> (String, String) {
    let table = match toml::Value::try_from(fault) {
        Ok(toml::Value::Table(table)) => table,
        _ => return (format!("{fault:?}"), String::new()),
    };
    let text = |key: &str| table.get(key).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    // What tells two faults of a kind apart at a glance; nodes are named beside it.
    let parts = ["kind", "host", "trouble"].into_iter().filter_map(text);
    let name = parts.collect::<Vec<_>>().join(" ").replace('_', " ");
    let rest: Vec<String> =
        table.iter().filter(|(key, _)| *key != "kind").map(|(key, value)| format!("{key} {value}")).collect();
    (name, rest.join(", "))
}
