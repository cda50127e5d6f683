//! The coordinator's part in the queues of clients: where they are, and that what was changed is kept on enough disks.

use std::collections::BTreeMap;
use std::time::Duration;

use actix::{Context, Handler, ResponseFuture};
use proto::cluster::coordinator::Input;
use proto::cluster::slot_set::SlotSet;
use proto::crawl::politeness::Micros;
use proto::id::Slot;
use tokio::sync::oneshot;

use super::{Client, Coordinator, NotSubmitted};
use crate::messages::{ClientPlaces, GetClientPlaces, HoldJobs, KeepClients};

/// A tenure that does not end by itself, in numbers that clocks can add.
const LONGEST: Duration = Duration::from_secs(86_400);

impl Coordinator {
    /// A life has begun: its digests lack what was changed between their counting and now.
    pub(super) fn take_early(&mut self, ctx: &mut Context<Self>) {
        let life = self.life;
        let early = std::mem::take(&mut self.early);
        self.happens(
            early.into_iter().filter(|(of, _)| *of == life).map(|(_, changed)| Input::Changed { changed }),
            ctx,
        );
    }

    pub(super) fn tell_keeper(
        &self,
        client: oneshot::Sender<Result<bool, NotSubmitted>>,
        served: &SlotSet,
        tenures: &BTreeMap<Slot, u64>,
        told: Result<(), NotSubmitted>,
    ) {
        let now = self.parts.clock.now().mono;
        let still = || {
            let serves = self.core.as_ref().map(|core| core.served(now)).unwrap_or_default();
            served.iter().all(|slot| serves.contains(slot))
        };
        let still_holds = || {
            let slots: SlotSet = tenures.keys().copied().collect();
            let held = self.core.as_ref().map(|core| core.assured(now, &slots)).unwrap_or_default();
            tenures.iter().all(|(slot, number)| held.get(slot).is_some_and(|tenure| tenure.number == *number))
        };
        // Who does not wait any more need not know.
        let is_ours = |()| (served.is_empty() || still()) && (tenures.is_empty() || still_holds());
        let _ = client.send(told.map(is_ours));
    }
}

impl Handler<KeepClients> for Coordinator {
    type Result = ResponseFuture<Result<bool, NotSubmitted>>;

    fn handle(&mut self, keep: KeepClients, ctx: &mut Self::Context) -> Self::Result {
        self.lifeline.handles();
        let KeepClients { copies, changed, life, served, tenures } = keep;
        if self.core.is_none() || (life != 0 && life != self.life) {
            // Of a former life: it was counted when this one began. Of one that is about to begin: it was not.
            if life > self.life && !changed.is_empty() {
                self.early.push((life, changed));
            }
            return Box::pin(async { Err(NotSubmitted::StartedAnew) });
        }
        self.next_ticket += 1;
        let (ticket, (client, told)) = (self.next_ticket, oneshot::channel());
        self.clients.insert(ticket, Client::Keeper(client, served, tenures));
        self.happens([Input::Changed { changed }, Input::Keep { ticket, copies }], ctx);
        Box::pin(async { told.await.unwrap_or(Err(NotSubmitted::StartedAnew)) })
    }
}

impl Handler<HoldJobs> for Coordinator {
    type Result = Option<BTreeMap<Slot, (u64, Duration)>>;

    fn handle(&mut self, HoldJobs { slots, busy }: HoldJobs, ctx: &mut Self::Context) -> Self::Result {
        self.lifeline.handles();
        self.core.as_ref()?;
        self.happens([Input::Jobs { slots: slots.clone(), busy }], ctx);
        self.step(ctx); // the answer below needs it
        let now = self.parts.clock.now().mono;
        let left = |until: Micros| Duration::from_micros(until.saturating_sub(now).min(LONGEST.as_micros() as u64));
        let held = self.core.as_ref()?.assured(now, &slots).into_iter();
        Some(held.map(|(slot, tenure)| (slot, (tenure.number, left(tenure.until)))).collect())
    }
}

impl Handler<GetClientPlaces> for Coordinator {
    type Result = Option<ClientPlaces>;

    fn handle(&mut self, _: GetClientPlaces, _ctx: &mut Self::Context) -> Option<ClientPlaces> {
        self.lifeline.handles();
        let core = self.core.as_ref()?;
        let served = core.served(self.parts.clock.now().mono);
        Some(ClientPlaces { ring: core.ring_now(), alive: core.alive().clone(), served })
    }
}
