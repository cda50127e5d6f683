//! Who holds which slots, as the nodes say themselves. A holder knows everything that was acknowledged of a slot; the first living node on the ring may have come back a moment ago and know
//! nothing of it. So calls go to holders. Where nobody holds a slot, because it changes hands or its holder died, they go to the last holder if that lives, and to the ring's next node.
//!
//! The nodes are asked once a second at most, by whoever calls then, so a call seldom waits for that and a put never does while others are made.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use proto::cluster::slot_set::SlotSet;
use proto::id::{NodeId, SLOTS, Slot};
use tokio::time::{Duration, Instant};

use crate::messages::ClientPlaces;

/// What was said is good for so long; beyond, the nodes are asked anew.
const FRESH_FOR: Duration = Duration::from_secs(1);
/// Puts need not wait for that until it is as old as this: a node that does not hold a slot any more still takes them.
const GOOD_FOR_PUTS: Duration = Duration::from_secs(10);

/// How new it must be what nodes said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// For a put.
    Lately,
    /// For everything else.
    Fresh,
    /// After somebody has said that it does not hold what he was taken to hold.
    Anew,
}

/// Who holds a slot, or was the last to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    node: NodeId,
    holds: bool,
}

/// What the nodes said.
#[derive(Clone, Default)]
pub(super) struct Holders {
    said: Arc<Mutex<Heard>>,
    /// Whoever asks holds it.
    asking: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
struct Heard {
    by_slot: Arc<Vec<Option<Known>>>,
    at: Option<Instant>,
}

impl Holders {
    /// Who holds what. `ask` asks a living node, which says nothing if it does not answer: it is taken to hold what it held.
    pub(super) async fn of<A, F>(&self, alive: &BTreeSet<NodeId>, wanted: Wanted, ask: A) -> Arc<Vec<Option<Known>>>
    where
        A: Fn(NodeId) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Option<SlotSet>> + Send + 'static,
    {
        let called_at = Instant::now();
        let age = self.heard().at.map(|at| called_at - at);
        match (wanted, age) {
            (Wanted::Lately | Wanted::Fresh, Some(age)) if age < FRESH_FOR => {}
            (Wanted::Lately, Some(age)) if age < GOOD_FOR_PUTS => {
                if let Ok(turn) = Arc::clone(&self.asking).try_lock_owned() {
                    let (holders, alive, ask) = (self.clone(), alive.clone(), ask.clone());
                    tokio::spawn(async move {
                        holders.ask_all(&alive, ask).await;
                        drop(turn);
                    });
                }
            }
            _ => {
                let _turn = self.asking.lock().await;
                // Somebody else may have asked while this call waited for its turn.
                if self.heard().at.is_none_or(|at| at < called_at) {
                    self.ask_all(alive, ask).await;
                }
            }
        }
        Arc::clone(&self.heard().by_slot)
    }

    /// Whether anything was said yet.
    pub(super) fn knows(&self) -> bool {
        self.heard().at.is_some()
    }

    async fn ask_all<A, F>(&self, alive: &BTreeSet<NodeId>, ask: A)
    where
        A: Fn(NodeId) -> F,
        F: Future<Output = Option<SlotSet>>,
    {
        let at = Instant::now(); // what changes while they are asked is not heard of
        let calls = alive.iter().map(|node| async { (*node, ask(*node).await) });
        let said = futures_util::future::join_all(calls).await;
        let before = Arc::clone(&self.heard().by_slot);
        let mut by_slot: Vec<Option<Known>> = vec![None; usize::from(SLOTS)];
        for (slot, known) in before.iter().enumerate() {
            by_slot[slot] =
                known.filter(|known| alive.contains(&known.node)).map(|known| Known { holds: false, ..known });
        }
        for (node, slots) in said {
            match slots {
                Some(slots) => {
                    slots.iter().for_each(|slot| by_slot[usize::from(slot.0)] = Some(Known { node, holds: true }))
                }
                None => {
                    let held =
                        before.iter().zip(&mut by_slot).filter(|(held, _)| **held == Some(Known { node, holds: true }));
                    held.for_each(|(held, now)| {
                        if now.is_none_or(|now| !now.holds) {
                            *now = *held;
                        }
                    });
                }
            }
        }
        *self.heard() = Heard { by_slot: Arc::new(by_slot), at: Some(at) };
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where queues are, and who holds them.
#[derive(Clone)]
pub(super) struct Places {
    pub(super) me: NodeId,
    pub(super) ring: ClientPlaces,
    pub(super) by_slot: Arc<Vec<Option<Known>>>,
    /// This node may not have heard yet what it missed.
    pub(super) is_new: bool,
}

impl Places {
    /// Who is alive and holds a slot.
    pub(super) fn holder(&self, slot: Slot) -> Option<NodeId> {
        if self.ring.served.contains(slot) {
            return Some(self.me);
        }
        // What was said of this node itself is older than what it knows.
        let known = self.known(slot).filter(|known| known.holds && known.node != self.me);
        known.map(|known| known.node)
    }

    fn known(&self, slot: Slot) -> Option<Known> {
        let known = self.by_slot.get(usize::from(slot.0)).copied().flatten();
        known.filter(|known| self.ring.alive.contains(&known.node))
    }

    /// Who acts for a slot, but for who is passed over: its holder, or the last one, or the next living node on the ring.
    pub(super) fn owner(&self, slot: Slot, passed_over: &BTreeSet<NodeId>) -> Option<NodeId> {
        let known = self.holder(slot).or_else(|| Some(self.known(slot)?.node));
        known.filter(|node| !passed_over.contains(node)).or_else(|| self.next(slot, passed_over))
    }

    /// The next living node of the ring; one that has just started takes any other one.
    fn next(&self, slot: Slot, passed_over: &BTreeSet<NodeId>) -> Option<NodeId> {
        let living = |node: &NodeId| self.ring.alive.contains(node) && !passed_over.contains(node);
        let mut nodes = self.ring.ring.preference(slot).iter().copied().filter(living);
        let first = nodes.next()?;
        if first == self.me && self.is_new { nodes.next().or(Some(first)) } else { Some(first) }
    }

    /// Who acts for which of these slots, but for who is passed over.
    pub(super) fn shares(&self, slots: &SlotSet, passed_over: &BTreeSet<NodeId>) -> BTreeMap<NodeId, SlotSet> {
        let mut shares: BTreeMap<NodeId, SlotSet> = BTreeMap::new();
        for slot in slots.iter() {
            if let Some(node) = self.owner(slot, passed_over) {
                shares.entry(node).or_default().insert(slot);
            }
        }
        shares
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use proto::cluster::ring::Ring;

    use super::*;

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);
    const C: NodeId = NodeId(3);

    fn slots(range: std::ops::Range<u16>) -> SlotSet {
        range.map(Slot).collect()
    }

    fn places(served: SlotSet, by_slot: Arc<Vec<Option<Known>>>, alive: &[NodeId]) -> Places {
        let ring = Arc::new(Ring::new(&[A, B, C].map(|node| (node, 1)).into()));
        let ring = ClientPlaces { ring, alive: alive.iter().copied().collect(), served };
        Places { me: A, ring, by_slot, is_new: false }
    }

    #[tokio::test(start_paused = true)]
    async fn holders_act_and_the_ring_where_there_is_none() {
        let said = |node| async move {
            match node {
                A => Some(slots(0..100)),
                B => Some(slots(100..4_000)),
                _ => None,
            }
        };
        let by_slot = Holders::default().of(&[A, B, C].into(), Wanted::Fresh, said).await;
        // Meanwhile this node has lost ten of its slots and got ten.
        let places = places((10..100).chain(4_000..4_010).map(Slot).collect(), by_slot, &[A, B, C]);
        let none = BTreeSet::new();
        for slot in (0..SLOTS).map(Slot) {
            let first = places.ring.ring.owner(slot);
            match slot.0 {
                10..100 | 4_000..4_010 => assert_eq!(places.holder(slot), Some(A)),
                100..4_000 => assert_eq!(places.holder(slot), Some(B)),
                // It was the last to hold them.
                0..10 => assert_eq!((places.holder(slot), places.owner(slot, &none)), (None, Some(A))),
                _ => assert_eq!((places.holder(slot), places.owner(slot, &none)), (None, first)),
            }
            assert_ne!(places.owner(slot, &[B].into()), Some(B));
        }
        // Who has just started lets others act where nobody holds anything, if there are others.
        for (alive, mine) in [(&[A, B, C][..], false), (&[A], true)] {
            let new = Places { is_new: true, ..self::places(SlotSet::default(), Arc::default(), alive) };
            assert!((0..SLOTS).map(Slot).all(|slot| (new.owner(slot, &none) == Some(A)) == mine));
        }
        // A slot changes hands: until the next one holds it, the last one acts for it; not if that has died meanwhile.
        let (holders, all) = (Holders::default(), BTreeSet::from([A, B, C]));
        holders
            .of(&all, Wanted::Fresh, |node| async move {
                Some(if node == C { slots(0..SLOTS) } else { SlotSet::default() })
            })
            .await;
        let nobody = |_| async { Some(SlotSet::default()) };
        tokio::time::advance(Duration::from_millis(1)).await;
        let by_slot = holders.of(&all, Wanted::Anew, nobody).await;
        let between = Places { by_slot, ..self::places(SlotSet::default(), Arc::default(), &[A, B, C]) };
        assert!(
            (0..SLOTS).map(Slot).all(|slot| between.holder(slot).is_none() && between.owner(slot, &none) == Some(C))
        );
        tokio::time::advance(Duration::from_millis(1)).await;
        holders.of(&[A, B].into(), Wanted::Anew, nobody).await;
        tokio::time::advance(Duration::from_millis(1)).await;
        let by_slot = holders.of(&all, Wanted::Anew, nobody).await;
        assert!(by_slot.iter().all(Option::is_none), "it missed something");
        let dead = Places { ring: ClientPlaces { alive: [A, C].into(), ..places.ring.clone() }, ..places.clone() };
        assert_eq!(dead.holder(Slot(200)), None);
        assert!((0..SLOTS).map(Slot).all(|slot| dead.owner(slot, &none) != Some(B)));
        assert_eq!(
            places.shares(&slots(0..SLOTS), &none).values().map(SlotSet::len).sum::<usize>(),
            usize::from(SLOTS)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn nodes_are_asked_once_a_second_and_puts_do_not_wait_for_it() {
        let (holders, asked, alive) = (Holders::default(), Arc::new(AtomicUsize::new(0)), BTreeSet::from([B]));
        let ask = {
            let asked = Arc::clone(&asked);
            move |_| {
                let number = asked.fetch_add(1, Relaxed) as u16;
                async move {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    (number != 1).then(|| slots(number..number + 1))
                }
            }
        };
        let of = |wanted| holders.of(&alive, wanted, ask.clone());
        let held =
            |by_slot: Arc<Vec<Option<Known>>>| by_slot.iter().position(|known| known.is_some_and(|known| known.holds));
        let (one, other) = tokio::join!(of(Wanted::Lately), of(Wanted::Fresh));
        assert_eq!((held(one), held(other), asked.load(Relaxed)), (Some(0), Some(0), 1), "both wait for one answer");
        assert_eq!((held(of(Wanted::Fresh).await), asked.load(Relaxed)), (Some(0), 1));
        tokio::time::sleep(Duration::from_secs(2)).await;
        let before = Instant::now();
        for _ in 0..9 {
            assert_eq!(held(of(Wanted::Lately).await), Some(0));
        }
        assert_eq!(before.elapsed(), Duration::ZERO, "nothing was waited for");
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(
            (held(of(Wanted::Fresh).await), asked.load(Relaxed)),
            (Some(0), 2),
            "it was silent, and holds what it held"
        );
        assert_eq!((held(of(Wanted::Anew).await), asked.load(Relaxed)), (Some(2), 3));
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!((held(of(Wanted::Lately).await), asked.load(Relaxed)), (Some(3), 4), "too old for puts");
    }
}
