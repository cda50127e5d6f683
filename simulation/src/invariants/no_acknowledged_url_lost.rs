//! I4: a URL that somebody was told is kept is on W disks at that moment, and on at least one for ever, as long as no more
//! than W − 1 disks lose what they had. So whoever drops a copy must leave enough of them to bear the losses that are still to come.
//!
//! Harm: seeds that a person handed in, or links that a page named, vanish silently; nobody hands them in again, because
//! they were acknowledged.

use proto::crawl::politeness::Micros;
use proto::id::{NodeId, UrlId};

use super::{Broken, Invariant};
use crate::world::oracle::{Durable, Oracle};
use crate::world::trace::Event;

/// See the module.
#[derive(Default)]
pub struct NoAcknowledgedUrlLost;

impl Invariant for NoAcknowledgedUrlLost {
    const NAME: &'static str = "I4 no_acknowledged_url_lost";

    fn see(&mut self, before: &Oracle, _at: Micros, event: &Event) -> Result<(), Broken> {
        match event {
            Event::WriteAcknowledged { node, urls, .. } => {
                // What a lost disk had does not count against the one who waited for it.
                let wanted = before.write_quorum.saturating_sub(before.disks_lost.len()).max(1);
                for url in urls {
                    let copies = before.urls.get(url).map_or(0, |facts| facts.copies);
                    if (copies as usize) < wanted {
                        return Broken::on(*node, format!("url {url} was acknowledged with {copies} durable copies"));
                    }
                }
                Ok(())
            }
            Event::SlotDropped { node, slot } => {
                let enough = before.write_quorum.saturating_sub(before.disks_lost.len()).max(1);
                last_copies(before, *node, 0, enough, |_, at| at.slot == *slot)
            }
            Event::DiskWiped { node } => last_copies(before, *node, 1, 1, |_, _| true),
            Event::RecordDamaged { node, url } => last_copies(before, *node, 1, 1, |gone, _| gone == url),
            _ => Ok(()),
        }
    }
}

/// Looks whether fewer than `enough` copies stay when `node` loses its own. A loss of its disk, `disk_lost`, counts too.
fn last_copies(
    before: &Oracle,
    node: NodeId,
    disk_lost: usize,
    enough: usize,
    goes: impl Fn(&UrlId, &Durable) -> bool,
) -> Result<(), Broken> {
    let already = usize::from(before.disks_lost.contains(&node));
    if before.disks_lost.len() + disk_lost.saturating_sub(already) >= before.write_quorum {
        return Ok(());
    }
    let Some(facts) = before.nodes.get(&node) else { return Ok(()) };
    let last = |url: &UrlId| before.urls.get(url).is_some_and(|url| url.acknowledged && url.copies as usize <= enough);
    match facts.disk.iter().find(|(url, at)| goes(url, at) && last(url)) {
        Some((url, _)) => {
            let left = before.urls.get(url).map_or(0, |url| url.copies).saturating_sub(1);
            Broken::on(node, format!("acknowledged url {url} is dropped or lost, and {left} copies are left"))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proto::record::Status;

    use super::super::testing::{A, B, C, SLOT, acknowledged, durable, show};
    use super::*;

    fn judge<const N: usize>(events: [Event; N]) -> Result<(), Broken> {
        show(&mut NoAcknowledgedUrlLost, events.map(|event| (0, event)))
    }

    #[test]
    fn two_copies_and_one_lost_disk_are_fine() {
        let new = |node| durable(node, 1, Status::New);
        assert_eq!(judge([new(A), new(B), acknowledged(1), Event::DiskWiped { node: A }]), Ok(()));
        // More lost disks than the promise speaks of.
        let wiped = |node| Event::DiskWiped { node };
        assert_eq!(judge([new(A), new(B), acknowledged(1), wiped(A), wiped(B)]), Ok(()));
    }

    #[test]
    fn an_early_acknowledgement_breaks_it() {
        assert!(judge([durable(A, 1, Status::New), acknowledged(1)]).is_err());
    }

    #[test]
    fn dropping_what_must_bear_a_loss_breaks_it() {
        let dropped = |node| Event::SlotDropped { node, slot: SLOT };
        let new = |node| durable(node, 1, Status::New);
        assert_eq!(judge([new(A), new(B), new(C), acknowledged(1), dropped(A)]), Ok(()));
        assert!(judge([new(A), new(B), new(C), acknowledged(1), dropped(A), dropped(B)]).is_err());
        // A disk that was lost is one that need not be borne any more.
        let wiped = Event::DiskWiped { node: C };
        assert_eq!(judge([new(A), new(B), new(C), acknowledged(1), wiped.clone(), dropped(A)]), Ok(()));
        assert!(judge([new(A), new(B), new(C), acknowledged(1), wiped, dropped(A), dropped(B)]).is_err());
    }
}
