//! I10: what was fsynced on a disk is found there by the next life of its node.
//!
//! Harm: a replica that promised to keep a record forgets it in a power cut; the write quorum counts on disks, not on memory.
//!
//! What is judged is the simulated disk, and that a life begins with all that is on it: I4, I16 and I17 count copies on these disks, and would be worth nothing if one forgot. It proves
//! nothing of the product's own store. That an answer means fsynced is written in `node/src/edges/store/change.rs` and `node/src/edges/disk.rs`; that what was answered is found again is
//! tried by `tests/kill_loop.rs`, with the real program, RocksDB and archives, which are killed at any moment, and record by record for torn archives by `node/src/edges/warc/tests.rs`.
//! A kill leaves what the kernel has: real power cuts are tried nowhere.

use std::collections::BTreeMap;

use proto::crawl::politeness::Micros;
use proto::id::{NodeId, UrlId};
use proto::record::Progress;

use super::{Broken, Invariant};
use crate::world::oracle::Oracle;
use crate::world::trace::Event;

/// See the module.
#[derive(Default)]
pub struct SyncedSurvivesACrash {
    starting: BTreeMap<NodeId, BTreeMap<UrlId, Progress>>,
}

impl Invariant for SyncedSurvivesACrash {
    const NAME: &'static str = "I10 synced_survives_a_crash";

    fn see(&mut self, before: &Oracle, _at: Micros, event: &Event) -> Result<(), Broken> {
        match event {
            Event::NodeStarted { node, .. } => {
                self.starting.insert(*node, BTreeMap::new());
            }
            Event::NodeCrashed { node } => {
                self.starting.remove(node);
            }
            Event::RecordRecovered { node, url, progress } => {
                self.starting.entry(*node).or_default().insert(*url, *progress);
            }
            Event::NodeRecovered { node } => {
                let found = self.starting.remove(node).unwrap_or_default();
                let Some(facts) = before.nodes.get(node) else { return Ok(()) };
                for (url, was) in &facts.disk {
                    match found.get(url) {
                        None => {
                            return Broken::on(
                                *node,
                                format!("url {url} was durable and is not found after the start"),
                            );
                        }
                        Some(is) if *is < was.progress => {
                            let what = format!("url {url} was durable as {:?} and is found as {is:?}", was.progress);
                            return Broken::on(*node, what);
                        }
                        Some(_) => {}
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proto::record::Status;

    use super::super::testing::{A, durable, progress, show, url};
    use super::*;

    fn life(found: &[(u8, Status)]) -> Vec<Event> {
        let mut events = vec![Event::NodeCrashed { node: A }, Event::NodeStarted { node: A, boot: 1 }];
        for (number, status) in found {
            let (url, progress) = (url(*number), progress(*status));
            events.push(Event::RecordRecovered { node: A, url, progress });
        }
        events.push(Event::NodeRecovered { node: A });
        events
    }

    fn judge(before: &[Event], found: &[(u8, Status)]) -> Result<(), Broken> {
        let events = before.iter().cloned().chain(life(found));
        show(&mut SyncedSurvivesACrash::default(), events.map(|event| (0, event)))
    }

    #[test]
    fn all_that_was_durable_and_more_is_fine() {
        let before = [durable(A, 1, Status::New), durable(A, 2, Status::Processed)];
        assert_eq!(judge(&before, &[(1, Status::New), (2, Status::Processed), (3, Status::New)]), Ok(()));
        let wiped = [durable(A, 1, Status::New), Event::DiskWiped { node: A }];
        assert_eq!(judge(&wiped, &[]), Ok(()));
    }

    #[test]
    fn a_record_that_is_gone_or_older_breaks_it() {
        let before = [durable(A, 1, Status::New), durable(A, 2, Status::Processed)];
        assert!(judge(&before, &[(1, Status::New)]).is_err());
        assert!(judge(&before, &[(1, Status::New), (2, Status::New)]).is_err());
    }
}
