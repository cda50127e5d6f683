//! `ctl repair`: has replicas compared now, and says what differed and what was mended.

use std::time::Duration;

use clap::Args;
use proto::cluster::slot_set::SlotSet;
use proto::control::admin::{DigestReport, Order, Part, Said, To, differing};
use serde_json::json;

use super::{Complaint, Connection, Exit, admin, name, say};

/// How often it is looked whether the replicas are equal.
const LOOK_EVERY: Duration = Duration::from_secs(1);

#[derive(Args)]
pub(super) struct RepairArguments {
    /// Only this slot; `ctl ring --domain` says which a domain is in
    #[arg(long, value_parser = clap::value_parser!(u16).range(0..i64::from(proto::id::SLOTS)))]
    slot: Option<u16>,
    /// Seconds to wait until what differs is mended; a crawl that goes on makes new differences all the time
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    wait: u64,
}

/// What was found.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    nodes: usize,
    slots: usize,
    differed: SlotSet,
    still: SlotSet,
    /// Writes of repair that changed a record meanwhile.
    writes: u64,
    /// Nodes that did not answer, and why.
    missing: Vec<(u64, String, String)>,
}

pub(super) async fn repair(
    connection: &Connection,
    arguments: &RepairArguments,
    as_json: bool,
) -> Result<Exit, Complaint> {
    let asked: Vec<u16> = arguments.slot.into_iter().collect();
    let first = admin::ask(connection, To::All, Order::Digests { slots: asked }).await?;
    let (reports, missing) = take_apart(&first);
    let with_anything: SlotSet =
        reports.iter().flat_map(|report| report.digests.iter().map(|(slot, _)| *slot)).collect();
    let differed = differing(&reports);
    let writes_before: u64 = reports.iter().map(|report| report.repaired).sum();
    let mut found = Found {
        nodes: reports.len(),
        slots: with_anything.len(),
        still: differed.clone(),
        differed,
        writes: 0,
        missing,
    };
    let mut left = arguments.wait;
    while !found.still.is_empty() {
        let slots: Vec<u16> = found.still.iter().map(|slot| slot.0).collect();
        admin::ask(connection, To::All, Order::Compare { slots: slots.clone() }).await?;
        tokio::time::sleep(LOOK_EVERY).await;
        let parts = admin::ask(connection, To::All, Order::Digests { slots }).await?;
        let (reports, missing) = take_apart(&parts);
        found.still = differing(&reports);
        found.writes = reports.iter().map(|report| report.repaired).sum::<u64>().saturating_sub(writes_before);
        found.missing = missing;
        left = left.saturating_sub(1);
        if left == 0 {
            break;
        }
    }
    let text = if as_json { found.json() } else { found.text() };
    say(&text).map_err(|error| Complaint::failed(format!("cannot write: {error}")))?;
    Ok(if found.still.is_empty() && found.missing.is_empty() { Exit::Done } else { Exit::Failed })
}

fn take_apart(parts: &[Part]) -> (Vec<&DigestReport>, Vec<(u64, String, String)>) {
    let (mut reports, mut missing) = (Vec::new(), Vec::new());
    for part in parts {
        match &part.said {
            Ok(Said::Digests(report)) => reports.push(report),
            Ok(other) => missing.push((part.node, part.peer.clone(), format!("answered {other:?}"))),
            Err(why) => missing.push((part.node, part.peer.clone(), why.to_string())),
        }
    }
    (reports, missing)
}

impl Found {
    fn mended(&self) -> usize {
        self.differed.iter().filter(|slot| !self.still.contains(*slot)).count()
    }

    fn text(&self) -> String {
        let mut lines = vec![format!(
            "{} slots compared on {} nodes: {} differed, {} of them mended by {} writes",
            self.slots,
            self.nodes,
            self.differed.len(),
            self.mended(),
            self.writes
        )];
        if !self.still.is_empty() {
            let slots: Vec<String> = self.still.iter().take(20).map(|slot| slot.0.to_string()).collect();
            let more = self.still.len().saturating_sub(slots.len());
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            lines.push(format!(
                "still different: {}{more}; while a crawl goes on there are always some, look again",
                slots.join(", ")
            ));
        }
        let missing = self
            .missing
            .iter()
            .map(|(node, peer, why)| format!("missing: {} ({peer}): {why}; it was not compared", name(*node)));
        lines.extend(missing);
        lines.join("\n")
    }

    fn json(&self) -> String {
        let numbers = |slots: &SlotSet| slots.iter().map(|slot| slot.0).collect::<Vec<u16>>();
        let missing: Vec<_> =
            self.missing.iter().map(|(node, peer, why)| json!({ "node": node, "peer": peer, "why": why })).collect();
        let repair = json!({
            "nodes": self.nodes,
            "slots": self.slots,
            "differed": numbers(&self.differed),
            "mended": self.mended(),
            "still": numbers(&self.still),
            "writes": self.writes,
            "missing": missing,
        });
        json!({ "Repair": repair }).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::id::Slot;

    #[test]
    fn what_differed_and_what_is_missing_is_told() {
        let found = Found {
            nodes: 2,
            slots: 40,
            differed: [Slot(7), Slot(9)].into_iter().collect(),
            still: [Slot(9)].into_iter().collect(),
            writes: 5,
            missing: vec![(3, "peer".to_owned(), "does not answer".to_owned())],
        };
        let text = found.text();
        assert!(text.starts_with("40 slots compared on 2 nodes: 2 differed, 1 of them mended by 5 writes"), "{text}");
        assert!(text.contains("still different: 9;") && text.contains("0000000000000003 (peer)"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&found.json()).unwrap();
        assert_eq!(json["Repair"]["still"][0], 9);
    }
}
