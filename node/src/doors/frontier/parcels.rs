//! URLs on their way to the nodes of their queues: packed into questions, sent one after the other, and in the same order to the next node of their
//! queues when one does not answer. So updates of one URL take effect in the order in which a client made them, whoever dies meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;

use futures_util::future::join_all;
use proto::clients::ask::{Item, PUT_BYTES_MAX, PUT_ITEMS_MAX, Taken, slot_of};
use proto::clients::record::ClientUrl;
use proto::id::NodeId;
use tracing::warn;

use super::desk::{TRIES, Unavailable};
use super::holders::Places;

/// A URL, and its place among those that were handed in together.
type Placed = (usize, Item);

/// What became of URLs that were handed in together.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Delivered {
    /// Of each, in their order.
    pub(super) taken: Vec<Taken>,
    /// How many went on to another node, because the one of their queue did not answer.
    pub(super) sent_on: usize,
}

/// Brings URLs to the nodes that act for their queues. `ask` has one node, which may be this one, take a parcel in.
pub(super) async fn deliver<P, A>(
    me: NodeId,
    items: Vec<Item>,
    places: impl Fn() -> P,
    ask: impl Fn(NodeId, Vec<Item>) -> A,
) -> Delivered
where
    P: Future<Output = Result<Places, Unavailable>>,
    A: Future<Output = Result<Vec<Taken>, Unavailable>>,
{
    let mut delivered = Delivered { taken: vec![Taken::Failed; items.len()], sent_on: 0 };
    let mut open: Vec<Placed> = items.into_iter().enumerate().collect();
    let mut passed_over = BTreeSet::new();
    for _ in 0..TRIES {
        let Ok(places) = places().await else { break };
        let mut shares: BTreeMap<NodeId, Vec<Placed>> = BTreeMap::new();
        for (place, item) in std::mem::take(&mut open) {
            let owner = places.owner(slot_of(&item.crawl, &item.key), &passed_over);
            // A node that knows of nobody alive acts for all.
            if let Some(node) = owner.or_else(|| passed_over.is_empty().then_some(me)) {
                shares.entry(node).or_default().push((place, item));
            }
        }
        let sent = shares.into_iter().map(|(node, items)| hand_over(me, node, items, &ask));
        for HandedOver { node, done, left } in join_all(sent).await {
            done.into_iter().for_each(|(place, became)| delivered.taken[place] = became);
            if !left.is_empty() {
                passed_over.insert(node);
                open.extend(left);
            }
        }
        if open.is_empty() {
            break;
        }
        // Those of a queue were one node's, so they follow each other already.
        delivered.sent_on += open.len();
    }
    delivered
}

/// What a node did with its share.
struct HandedOver {
    node: NodeId,
    done: Vec<(usize, Taken)>,
    /// What it did not answer, and what was to come behind that.
    left: Vec<Placed>,
}

/// Sends a node its share, parcel by parcel, until it does not answer.
async fn hand_over<A>(me: NodeId, node: NodeId, items: Vec<Placed>, ask: impl Fn(NodeId, Vec<Item>) -> A) -> HandedOver
where
    A: Future<Output = Result<Vec<Taken>, Unavailable>>,
{
    let mut done = Vec::with_capacity(items.len());
    let mut items = items.into_iter().peekable();
    while items.peek().is_some() {
        let (mut places, mut parcel, mut room) = (Vec::new(), Vec::new(), Room::default());
        while let Some((place, item)) = items.next_if(|(_, item)| room.takes(item)) {
            places.push(place);
            parcel.push(item);
        }
        let count = parcel.len();
        // What this node itself cannot keep, it tells the client: another would need it as a replica.
        let spare = if node == me { None } else { Some(parcel.clone()) };
        match (ask(node, parcel).await, spare) {
            (Ok(taken), _) if taken.len() == count => done.extend(places.into_iter().zip(taken)),
            (_, None) => done.extend(places.into_iter().map(|place| (place, Taken::Failed))),
            (answer, Some(parcel)) => {
                warn!(?answer, "URLs go to the next nodes of their queues");
                let left = places.into_iter().zip(parcel).chain(items).collect();
                return HandedOver { node, done, left };
            }
        }
    }
    HandedOver { node, done, left: Vec::new() }
}

/// What is in a parcel already.
#[derive(Default)]
struct Room {
    items: usize,
    bytes: usize,
}

impl Room {
    /// Whether one more fits, which is in it then. The first one always does.
    fn takes(&mut self, item: &Item) -> bool {
        let bytes = self.bytes + ClientUrl::bytes(&item.url, &item.metadata) + item.key.len() + item.crawl.len() + 16;
        let fits = self.items == 0 || (self.items < PUT_ITEMS_MAX && bytes <= PUT_BYTES_MAX);
        if fits {
            (self.items, self.bytes) = (self.items + 1, bytes);
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::sync::Arc;

    use futures_util::FutureExt;
    use proto::cluster::ring::Ring;
    use proto::cluster::slot_set::SlotSet;

    use super::*;
    use crate::messages::ClientPlaces;

    const NODES: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];
    const ME: NodeId = NODES[0];

    /// Three nodes that note what they take in. Each answers so many parcels and is dead then, of which nobody has heard.
    struct World {
        places: Places,
        lives: BTreeMap<NodeId, Cell<usize>>,
        /// By URL, what was said of it, in the order in which it took effect.
        took: RefCell<BTreeMap<(String, String), Vec<u64>>>,
        asked: Cell<usize>,
    }

    impl World {
        fn new(lives: [usize; 3]) -> World {
            let ring = Arc::new(Ring::new(&NODES.map(|node| (node, 1)).into()));
            let ring = ClientPlaces { ring, alive: NODES.into(), served: SlotSet::default() };
            let places = Places { me: ME, ring, by_slot: Arc::default(), is_new: false };
            let lives = NODES.into_iter().zip(lives.map(Cell::new)).collect();
            World { places, lives, took: RefCell::default(), asked: Cell::new(0) }
        }

        async fn ask(&self, node: NodeId, items: Vec<Item>) -> Result<Vec<Taken>, Unavailable> {
            self.asked.set(self.asked.get() + 1);
            assert!(items.len() <= PUT_ITEMS_MAX);
            // Who is asked later is the faster one: what is asked at once comes in another order.
            for _ in 0..1_000usize.saturating_sub(7 * self.asked.get()) {
                tokio::task::yield_now().await;
            }
            let lives = &self.lives[&node];
            if lives.get() == 0 {
                return Err(Unavailable("dead".to_owned()));
            }
            lives.set(lives.get() - 1);
            for item in &items {
                let of = (item.key.clone(), item.url.clone());
                self.took.borrow_mut().entry(of).or_default().push(item.date_s.unwrap());
            }
            Ok(vec![Taken::Kept; items.len()])
        }

        fn deliver(&self, items: Vec<Item>) -> Delivered {
            let places = || async { Ok(self.places.clone()) };
            let sent = deliver(ME, items, places, |node, items| self.ask(node, items));
            // Nothing here waits for anything but its turn.
            let mut sent = Box::pin(sent);
            (0..100_000).find_map(|_| sent.as_mut().now_or_never()).expect("it ends")
        }

        fn owner(&self, queue: usize) -> NodeId {
            self.places.ring.ring.owner(slot_of("c", &format!("q{queue}"))).unwrap()
        }
    }

    fn update(queue: usize, url: usize, date_s: u64) -> Item {
        let (key, url) = (format!("q{queue}"), format!("u{url}"));
        Item { crawl: "c".into(), key, url, metadata: Vec::new(), date_s: Some(date_s) }
    }

    const QUEUES: usize = 40;
    const ROUNDS: u64 = 100;

    /// Every URL of 40 queues, updated again and again.
    fn updates() -> Vec<Item> {
        (1..=ROUNDS).flat_map(|round| (0..QUEUES * 2).map(move |n| update(n % QUEUES, n / QUEUES, round))).collect()
    }

    #[test]
    fn updates_of_a_url_keep_their_order_when_nodes_die_in_the_middle() {
        for lives in [[9_999, 1, 9_999], [9_999, 0, 1], [9_999, 1, 0]] {
            let world = World::new(lives);
            let Delivered { taken, sent_on } = world.deliver(updates());
            assert!(taken.iter().all(|taken| *taken == Taken::Kept), "{lives:?}: some node lives");
            assert!(sent_on >= PUT_ITEMS_MAX, "{lives:?}: {sent_on} went on");
            let took = world.took.borrow();
            assert_eq!(took.len(), QUEUES * 2);
            for (url, dates) in took.iter() {
                assert!(dates.iter().copied().eq(1..=ROUNDS), "{lives:?}: {url:?} became {dates:?}");
            }
        }
    }

    #[test]
    fn what_nobody_takes_has_failed_and_the_rest_has_not() {
        // This node can keep nothing, and no other one is asked for what is its own.
        let world = World::new([0, 9_999, 9_999]);
        let Delivered { taken, sent_on } = world.deliver(updates());
        assert_eq!(sent_on, 0);
        for (place, taken) in taken.into_iter().enumerate() {
            let expected = if world.owner(place % QUEUES) == ME { Taken::Failed } else { Taken::Kept };
            assert_eq!(taken, expected);
        }
        let world = World::new([0, 0, 0]);
        assert!(world.deliver(updates()).taken.iter().all(|taken| *taken == Taken::Failed));
        assert!(world.asked.get() < 50, "a dead node is not asked again for every parcel");
    }

    #[test]
    fn a_parcel_is_bounded_and_takes_one_item_however_large() {
        let large = |bytes| Item { url: "x".repeat(bytes), ..update(0, 0, 1) };
        let mut room = Room::default();
        assert!(room.takes(&large(PUT_BYTES_MAX)) && !room.takes(&update(0, 0, 1)));
        let mut room = Room::default();
        assert_eq!((0..9_999).take_while(|_| room.takes(&update(0, 0, 1))).count(), PUT_ITEMS_MAX);
    }
}
