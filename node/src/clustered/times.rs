//! How long other nodes were waited for while an operation was carried out. Who asks them is spread over many places, so it is written down where all of them pass, and belongs to the task that
//! carries the operation out.

use std::cell::RefCell;
use std::collections::BTreeMap;

use libp2p::PeerId;
use tokio::time::Duration;

/// How long each node took for all that it was asked.
pub(super) type Times = BTreeMap<PeerId, Duration>;

tokio::task_local! {
    static TIMES: RefCell<Times>;
}

/// Does `work`; says how long the nodes that it asked took.
pub(super) async fn taken<W: Future>(work: W) -> (W::Output, Times) {
    let work = async {
        let done = work.await;
        (done, TIMES.with(RefCell::take))
    };
    TIMES.scope(RefCell::default(), work).await
}

/// Adds what a node took, if somebody wants to know.
pub(super) fn took(peer: PeerId, time: Duration) {
    // Who looks after the cluster by itself asks nodes too, and nobody waits for that.
    let _ = TIMES.try_with(|times| *times.borrow_mut().entry(peer).or_default() += time);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_nodes_took_belongs_to_the_operation_that_asked_them() {
        let (a, b) = (PeerId::random(), PeerId::random());
        took(a, Duration::from_millis(7));
        let asks = |peer, ms| async move {
            tokio::task::yield_now().await;
            took(peer, Duration::from_millis(ms));
        };
        let first = taken(async {
            futures_util::future::join_all([asks(a, 1), asks(b, 2), asks(a, 3)]).await;
            "done"
        });
        let (first, second) = tokio::join!(first, taken(asks(b, 5)));
        let ms = Duration::from_millis;
        assert_eq!(first, ("done", Times::from([(a, ms(4)), (b, ms(2))])));
        assert_eq!(second.1, Times::from([(b, ms(5))]));
    }
}
