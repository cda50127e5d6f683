//! What an operator says to nodes one by one or to all of them: figures and settings of their actors, stopping, forgetting a node,
//! repair and backups. A node that is asked for others asks them in turn, and says which of them did not answer.

use serde::{Deserialize, Serialize};

use super::NodeReport;
use crate::cluster::slot_set::SlotSet;
use crate::id::Slot;

/// Names in one order: classes, settings or slots.
pub const NAMES_MAX: usize = crate::id::SLOTS as usize;

/// Whom an order is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum To {
    /// The node that is asked.
    Here,
    /// Every node, the one that is asked included.
    All,
    /// One node, by its name or its peer id.
    One(String),
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Figures of actors; all of them if none is named.
    Stat {
        /// Their names; `parser` means all parsers.
        classes: Vec<String>,
    },
    /// Settings; those that can be changed if none is named.
    Get {
        /// Their names.
        names: Vec<String>,
    },
    /// Change settings until the node is started again: all of them, or none if one is wrong.
    Set {
        /// Names and values.
        values: Vec<(String, String)>,
    },
    /// Stop the node, its actors in reverse order of their start.
    Stop {
        /// Actors to be stopped alone, which none can be.
        classes: Vec<String>,
    },
    /// A node is gone for ever: it gives its place up.
    Forget {
        /// Its name or peer id.
        peer: String,
    },
    /// Digests of what is on disk.
    Digests {
        /// Of which slots; all if none is named.
        slots: Vec<u16>,
    },
    /// Compare slots with all their replicas now.
    Compare {
        /// Which.
        slots: Vec<u16>,
    },
    /// Begin a backup.
    Backup {
        /// Into which folder on the node's machine.
        folder: String,
        /// Its keys too.
        keys: bool,
    },
    /// How far the last backup has come.
    BackupState,
    /// Everything that a live view shows.
    Glance,
}

impl Order {
    /// Whether it only looks.
    pub fn is_question(&self) -> bool {
        match self {
            Order::Stat { .. } | Order::Get { .. } | Order::Digests { .. } | Order::BackupState | Order::Glance => true,
            Order::Set { .. }
            | Order::Stop { .. }
            | Order::Forget { .. }
            | Order::Compare { .. }
            | Order::Backup { .. } => false,
        }
    }

    /// Says what is wrong with it, if something is: what no node needs to look at.
    pub fn defect(&self) -> Option<String> {
        let (count, slots) = match self {
            Order::Stat { classes } | Order::Stop { classes } => (classes.len(), &[][..]),
            Order::Get { names } => (names.len(), &[][..]),
            Order::Set { values } => (values.len(), &[][..]),
            Order::Digests { slots } | Order::Compare { slots } => (slots.len(), &slots[..]),
            _ => (0, &[][..]),
        };
        if count > NAMES_MAX {
            return Some(format!("{count} names at once are too many; {NAMES_MAX} are allowed"));
        }
        let wrong = slots.iter().find(|slot| **slot >= crate::id::SLOTS)?;
        Some(format!("slot {wrong}: there are {} of them, from 0 on", crate::id::SLOTS))
    }
}

/// What one node said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Which.
    pub node: u64,
    /// Its peer id.
    pub peer: String,
    /// What it said, or why there is nothing.
    pub said: Result<Said, Trouble>,
}

/// Why a node did not do as it was told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Trouble {
    /// It did not answer.
    #[error("{0}")]
    Missing(String),
    /// It answered that it will not, or cannot.
    #[error("{0}")]
    Refused(String),
}

/// What a node says to an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Said {
    /// Figures of actors.
    Stat(Vec<ActorFigures>),
    /// Settings.
    Settings(Vec<Setting>),
    /// It is done, or under way.
    Done(String),
    /// Digests.
    Digests(DigestReport),
    /// A backup.
    Backup(BackupState),
    /// Everything for a live view.
    Glance(Box<Glance>),
}

/// Figures of one actor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActorFigures {
    /// Its name.
    pub name: String,
    /// Messages in its mailbox.
    pub waiting: u64,
    /// Messages that are taken in before others are refused; answers come in beyond that. 0 where there is no bound.
    pub capacity: u64,
    /// Messages handled since the node started.
    pub handled: u64,
    /// Messages that found its mailbox full.
    pub refused: u64,
    /// Messages that were in its mailbox when it died.
    pub lost: u64,
    /// Times that it died and was replaced.
    pub restarts: u64,
    /// What it counts itself.
    pub counters: Vec<(String, u64)>,
}

/// A setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Its name, as in cluster.toml.
    pub name: String,
    /// What it is now.
    pub value: String,
    /// What it was at the start.
    pub configured: String,
    /// What it may be set to; `None` if only a restart changes it.
    pub allowed: Option<String>,
}

/// Digests of what a node has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DigestReport {
    /// Of the slots of which it has anything.
    pub digests: Vec<(Slot, u64)>,
    /// The slots that it is to keep, as it sees the ring.
    pub keeps: SlotSet,
    /// Records that repair brought since it started.
    pub repaired: u64,
}

/// How a backup is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BackupState {
    /// None was made since the node started.
    None,
    /// It is being made.
    Running {
        /// Where.
        folder: String,
        /// Files done.
        files: u64,
        /// Bytes done.
        bytes: u64,
    },
    /// It is there.
    Done {
        /// Where.
        folder: String,
        /// Its files.
        files: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// It failed, and nothing that is there is of use.
    Failed {
        /// Where.
        folder: String,
        /// Why.
        why: String,
    },
}

/// What a live view shows of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Glance {
    /// How it is.
    pub report: NodeReport,
    /// Pages that it keeps, counted since it started.
    pub pages: u64,
    /// Bytes of bodies that came in since it started.
    pub wire_bytes: u64,
    /// URLs in queues on its disk.
    pub ready: u64,
    /// URLs on its disk that wait for their time.
    pub waiting: u64,
    /// URLs handed out and not settled.
    pub flights: u64,
    /// Hosts that have URLs to fetch.
    pub hosts: u64,
    /// Leases that ended since it started.
    pub leases_lost: u64,
    /// Fetches that failed since it started.
    pub failures: u64,
    /// Messages, letters and fetches that were lost since it started.
    pub lost: u64,
    /// Actors that died since it started.
    pub restarts: u64,
}

/// Says which slots differ among the nodes that are to keep them. A node that did not answer is not compared.
pub fn differing(reports: &[&DigestReport]) -> SlotSet {
    let maps: Vec<std::collections::BTreeMap<Slot, u64>> =
        reports.iter().map(|report| report.digests.iter().copied().collect()).collect();
    let differs = |slot: &Slot| {
        let keepers = reports.iter().zip(&maps).filter(|(report, _)| report.keeps.contains(*slot));
        let mut digests = keepers.map(|(_, map)| map.get(slot).copied().unwrap_or(0));
        digests.next().is_some_and(|first| digests.any(|other| other != first))
    };
    (0..crate::id::SLOTS).map(Slot).filter(differs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(keeps: &[u16], digests: &[(u16, u64)]) -> DigestReport {
        DigestReport {
            digests: digests.iter().map(|(slot, digest)| (Slot(*slot), *digest)).collect(),
            keeps: keeps.iter().map(|slot| Slot(*slot)).collect(),
            repaired: 0,
        }
    }

    #[test]
    fn only_who_is_to_keep_a_slot_is_compared() {
        let first = report(&[1, 2, 3], &[(1, 10), (2, 20), (3, 30)]);
        let second = report(&[1, 2, 4], &[(1, 10), (2, 21), (3, 31)]);
        let third = report(&[2, 3], &[(2, 20)]);
        let found: Vec<u16> = differing(&[&first, &second, &third]).iter().map(|slot| slot.0).collect();
        assert_eq!(found, [2, 3], "2 is otherwise on the second, 3 is missing on the third; 4 is nowhere");
        assert!(differing(&[&first]).is_empty(), "nobody to compare with");
        assert!(differing(&[]).is_empty());
    }

    #[test]
    fn viewers_may_only_look() {
        let looks = [
            Order::Stat { classes: Vec::new() },
            Order::Get { names: Vec::new() },
            Order::Digests { slots: Vec::new() },
            Order::BackupState,
            Order::Glance,
        ];
        assert!(looks.iter().all(Order::is_question));
        let acts = [
            Order::Set { values: Vec::new() },
            Order::Stop { classes: Vec::new() },
            Order::Forget { peer: String::new() },
            Order::Compare { slots: Vec::new() },
            Order::Backup { folder: String::new(), keys: false },
        ];
        assert!(!acts.iter().any(Order::is_question));
    }

    #[test]
    fn slots_that_are_none_are_found_at_once() {
        assert!(Order::Compare { slots: vec![0, 4_095] }.defect().is_none());
        assert!(Order::Compare { slots: vec![4_096] }.defect().is_some_and(|why| why.contains("4096")));
        assert!(Order::Get { names: vec![String::new(); NAMES_MAX + 1] }.defect().is_some());
    }
}
