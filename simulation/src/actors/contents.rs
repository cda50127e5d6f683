//! Streams of pages between nodes: the program's own copiers talk over the world's network, and the one that receives asks its disk what the
//! program's intake does. A stream is reliable while its connection lasts: what the network loses is sent again. A reset, or the
//! end of either process, breaks it; what is cut off is silent until somebody's patience ends.

use std::pin::Pin;

use node::edges::contents::{Line, Pushed};
use node::edges::disk::{ContentJob, Disk, Job};
use node::edges::store::{Arriving, Offered};
use node::edges::warc::WarcPosition;
use proto::cluster::contents::{ContentKey, Holding, Offer};
use proto::crawl::politeness::Micros;
use proto::id::NodeId;

use super::edges::Place;
use crate::world::plan::{MILLISECOND, SECOND};

/// A push without an end has failed after this.
const PUSH_PATIENCE: Micros = 4 * SECOND;
/// What was lost on the way is sent again after this.
const SEND_AGAIN: Micros = 200 * MILLISECOND;
/// Bytes of the records of a page.
pub(super) const PAGE_BYTES: u32 = 1_000;

type Failed = String;

impl Line for Place {
    fn push(&self, to: NodeId, folder: u64, pages: Offered) -> Pin<Box<dyn Future<Output = Pushed> + Send>> {
        let place = self.clone();
        Box::pin(async move {
            let mut pushed = Pushed::default();
            let (there, gone): (Vec<_>, Vec<_>) = pages.into_iter().partition(|(_, page)| page.is_some());
            pushed.unreadable = gone.into_iter().map(|(key, _)| key).collect();
            let (keys, offers): (Vec<ContentKey>, Vec<Offer>) =
                there.into_iter().filter_map(|(key, page)| Some((key, page?.0))).unzip();
            let until = place.shared.lock().now + PUSH_PATIENCE;
            let said = tokio::select! {
                biased;
                said = place.offer(to, folder, offers, &mut pushed.folder) => said,
                _ = place.waits(until) => Err("says nothing".to_owned()),
            };
            match said {
                Ok(()) => pushed.copied = keys,
                Err(failure) => pushed.failure = Some(failure),
            }
            pushed
        })
    }
}

impl Place {
    /// Offers pages and sends what is wanted; says when the other has all of them on its disk.
    async fn offer(&self, to: NodeId, folder: u64, offers: Vec<Offer>, theirs: &mut Option<u64>) -> Result<(), Failed> {
        let (other, disk) = self.shared.receiver(to).ok_or("not connected")?;
        let (there, back) = ((self, &other), (&other, self));
        carry(there).await?;
        let stand =
            disk.ask(|reply| Job::Content(ContentJob::Stand(reply))).await.map_err(|error| error.to_string())?;
        if offers.is_empty() {
            carry(back).await?;
            *theirs = Some(stand.folder);
            return Ok(());
        }
        let asked = offers.clone();
        let wanted = disk.ask(|reply| Job::Content(ContentJob::Wanted(asked, reply))).await;
        let wanted = wanted.map_err(|error| error.to_string())?;
        carry(back).await?;
        *theirs = Some(stand.folder);
        carry(there).await?;
        let arrives = |(place, offer): (usize, Offer)| {
            let came = wanted.contains(&(place as u16));
            let position = came.then_some(WarcPosition { segment: 0, offset: 0, length: offer.bytes });
            Arriving { offer, members: None, position }
        };
        let arriving = offers.into_iter().enumerate().map(arrives).collect();
        let from = Holding { node: self.id, folder };
        let kept = disk.ask(|reply| Job::Content(ContentJob::Keep(from, arriving, reply))).await;
        carry(back).await?;
        kept.map_err(|error| error.to_string())
    }
}

impl super::Shared {
    /// The process that runs a node now, and its disk.
    fn receiver(&self, id: NodeId) -> Option<(Place, Disk)> {
        let process = self.lock().process(id)?;
        let place = Place { shared: self.clone(), id, process: process.number, end: process.end.subscribe() };
        Some((place, process.disk))
    }
}

/// Has something get from one process to the other.
async fn carry((from, to): (&Place, &Place)) -> Result<(), Failed> {
    let shared = &from.shared;
    loop {
        if !from.gets_time().await {
            return Err("the sender is dead".to_owned());
        }
        let sent = {
            let mut world = shared.lock();
            let now = world.now;
            world.network.send(now, from.id, to.id)
        };
        let mut arrived = None;
        for delivery in sent.deliveries.into_iter().flatten() {
            shared.sleep_until(delivery.at).await;
            let arrives = shared.lock().network.arrives(&delivery);
            arrived = Some(arrived.unwrap_or(false) | arrives);
        }
        match arrived {
            Some(true) if to.gets_time().await => return Ok(()),
            Some(true) => return Err("the receiver is dead".to_owned()),
            Some(false) => return Err("the connection was reset".to_owned()),
            None => {
                let again = shared.lock().now + SEND_AGAIN;
                if !from.waits(again).await {
                    return Err("the sender is dead".to_owned());
                }
            }
        }
    }
}
