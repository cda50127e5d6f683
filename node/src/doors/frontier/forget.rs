//! Forgetting queues. Only who holds a slot knows every queue of it that anything was acknowledged of: the first living node may have come a moment ago, and would forget what it has heard of
//! and leave the rest. So holders are asked, and where nobody holds a slot, its next holder is waited for.

use std::collections::BTreeMap;
use std::future::Future;

use futures_util::future::join_all;
use proto::cluster::lease::LeaseRules;
use proto::cluster::slot_set::SlotSet;
use proto::crawl::politeness::Micros;
use proto::id::{NodeId, SLOTS};
use tokio::time::{Duration, Instant, sleep};
use tracing::warn;

use super::desk::Unavailable;

/// What a slot needs until it is held again, beside the lease of its dead holder and a stable ring: being noticed, being pulled from who does not answer, and a slow machine.
const SPARE: Duration = Duration::from_secs(15);
/// How long is waited before holders are looked for again.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// How long holders are looked for: by then the slots of a node that died are held by others.
pub(crate) fn patience(lease: &LeaseRules, stable_for: Micros) -> Duration {
    // The voters' clocks may be slower than ours.
    let lease = lease.duration + lease.duration * lease.drift_ppm / 1_000_000 * 2;
    Duration::from_micros(lease + stable_for) + SPARE
}

/// What a node says when it has forgotten something: how many URLs, and where to go on.
pub(super) type Gone = (u64, Option<Vec<u8>>);

/// Has what is in these slots forgotten; says how many URLs went. `held` says who holds what, `ask` has a node forget some of what is in slots that it holds, from where it ended.
pub(super) async fn forget<H, A>(
    mut open: SlotSet,
    patience: Duration,
    held: impl Fn() -> H,
    ask: impl Fn(NodeId, SlotSet, Option<Vec<u8>>) -> A,
) -> Result<u64, Unavailable>
where
    H: Future<Output = Result<Vec<(NodeId, SlotSet)>, Unavailable>>,
    A: Future<Output = Result<Gone, Unavailable>>,
{
    let (mut gone, until) = (0, Instant::now() + patience);
    loop {
        let shares = shares(&open, held().await?);
        for (slots, urls, done) in join_all(shares.into_iter().map(|(node, slots)| forget_on(node, slots, &ask))).await
        {
            gone += urls;
            for slot in slots.iter().filter(|_| done) {
                open.remove(slot);
            }
        }
        if open.is_empty() {
            return Ok(gone);
        }
        if Instant::now() >= until {
            return Err(Unavailable(format!("nobody holds {} of the {SLOTS} slots now; ask again", open.len())));
        }
        sleep(AGAIN_AFTER).await;
    }
}

/// Whom to ask about which slots: a slot may have changed hands between two answers, and is one node's.
fn shares(open: &SlotSet, held: Vec<(NodeId, SlotSet)>) -> BTreeMap<NodeId, SlotSet> {
    let (mut open, mut shares) = (open.clone(), BTreeMap::<NodeId, SlotSet>::new());
    for (node, slots) in held {
        for slot in slots.iter().filter(|slot| open.remove(*slot)) {
            shares.entry(node).or_default().insert(slot);
        }
    }
    shares
}

/// Has a node forget all that is in its share; says how much went, also if that was not all.
async fn forget_on<A>(
    node: NodeId,
    slots: SlotSet,
    ask: impl Fn(NodeId, SlotSet, Option<Vec<u8>>) -> A,
) -> (SlotSet, u64, bool)
where
    A: Future<Output = Result<Gone, Unavailable>>,
{
    let (mut gone, mut after) = (0, None);
    loop {
        match ask(node, slots.clone(), after.take()).await {
            Ok((urls, next)) => {
                gone += urls;
                if next.is_none() {
                    return (slots, gone, true);
                }
                after = next;
            }
            Err(error) => {
                warn!(%error, "looking for the next holder of queues that are to be forgotten");
                return (slots, gone, false);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use proto::id::Slot;

    use super::*;

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);

    fn slots(range: std::ops::Range<u16>) -> SlotSet {
        range.map(Slot).collect()
    }

    /// Two nodes; a URL in each slot, which both have, forgotten by ten in an answer.
    #[derive(Default)]
    struct World {
        /// Who holds what, when it is asked, and asked again.
        holds: RefCell<Vec<Vec<(NodeId, SlotSet)>>>,
        forgotten: RefCell<SlotSet>,
        asked: RefCell<Vec<NodeId>>,
        /// So many answers of A, and none after.
        answers: Cell<usize>,
    }

    impl World {
        async fn forget(&self, open: SlotSet) -> Result<u64, Unavailable> {
            let held = || async {
                let mut holds = self.holds.borrow_mut();
                Ok(if holds.len() > 1 { holds.remove(0) } else { holds[0].clone() })
            };
            forget(open, Duration::from_secs(30), held, |node, slots, _| self.ask(node, slots)).await
        }

        async fn ask(&self, node: NodeId, slots: SlotSet) -> Result<Gone, Unavailable> {
            self.asked.borrow_mut().push(node);
            if node == A {
                let left = self.answers.get().checked_sub(1).ok_or(Unavailable("dead".to_owned()))?;
                self.answers.set(left);
            }
            let mut forgotten = self.forgotten.borrow_mut();
            let some: Vec<Slot> = slots.iter().filter(|slot| !forgotten.contains(*slot)).take(10).collect();
            for slot in &some {
                forgotten.insert(*slot);
            }
            Ok((some.len() as u64, (some.len() == 10).then(Vec::new)))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn holders_forget_and_nobody_is_asked_about_what_it_does_not_hold() {
        let world = World { answers: Cell::new(99), ..World::default() };
        world.holds.borrow_mut().push(vec![(A, slots(0..25)), (B, slots(20..50))]);
        assert_eq!(world.forget(slots(5..60)).await.unwrap_err().0, "nobody holds 10 of the 4096 slots now; ask again");
        assert_eq!(world.forgotten.take(), slots(5..50), "what somebody holds is gone meanwhile");
        assert_eq!(world.forget(SlotSet::default()).await, Ok(0));
    }

    #[test]
    fn holders_are_looked_for_until_the_lease_of_one_that_died_is_over_and_the_next_one_knows_everything() {
        let (lease, second) = (LeaseRules::default(), 1_000_000);
        let died_and_pulled = lease.duration + 5 * second + 10 * second;
        assert!(patience(&lease, 5 * second) > Duration::from_micros(died_and_pulled));
        assert!(patience(&LeaseRules { duration: 8 * second, ..lease }, 2 * second) < Duration::from_secs(30));
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_node_did_not_forget_the_next_holder_does_and_each_url_counts_once() {
        let world = World { answers: Cell::new(2), ..World::default() };
        let [all, none] = [slots(0..40), SlotSet::default()];
        // It dies in the middle; for a while nobody holds its slots.
        *world.holds.borrow_mut() =
            vec![vec![(A, all.clone())], vec![(B, none.clone())], vec![(B, none)], vec![(B, all.clone())]];
        assert_eq!(world.forget(all.clone()).await, Ok(40));
        assert_eq!(world.forgotten.take(), all);
        assert_eq!(world.asked.take(), [A, A, A, B, B, B]);
    }
}
