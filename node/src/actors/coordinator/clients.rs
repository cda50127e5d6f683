//! The coordinator's part in the queues of clients: where they are, and that what was changed is kept on enough disks.

use actix::{Context, Handler, ResponseFuture};
use proto::cluster::coordinator::Input;
use proto::cluster::slot_set::SlotSet;
use tokio::sync::oneshot;

use super::{Client, Coordinator, NotSubmitted};
use crate::messages::{ClientPlaces, GetClientPlaces, KeepClients};

impl Coordinator {
    /// A life has begun: its digests lack what was changed between their counting and now.
    pub(super) fn take_early(&mut self, ctx: &mut Context<Self>) {
        let life = self.life;
        let early = std::mem::take(&mut self.early);
        self.step(early.into_iter().filter(|(of, _)| *of == life).map(|(_, changed)| Input::Changed { changed }), ctx);
    }

    pub(super) fn tell_keeper(
        &self,
        client: oneshot::Sender<Result<bool, NotSubmitted>>,
        served: &SlotSet,
        told: Result<(), NotSubmitted>,
    ) {
        let now = self.parts.clock.now().mono;
        let still = || {
            let serves = self.core.as_ref().map(|core| core.served(now)).unwrap_or_default();
            served.iter().all(|slot| serves.contains(slot))
        };
        // Who does not wait any more need not know.
        let _ = client.send(told.map(|()| served.is_empty() || still()));
    }
}

impl Handler<KeepClients> for Coordinator {
    type Result = ResponseFuture<Result<bool, NotSubmitted>>;

    fn handle(&mut self, keep: KeepClients, ctx: &mut Self::Context) -> Self::Result {
        self.lifeline.handles();
        let KeepClients { copies, changed, life, served } = keep;
        if self.core.is_none() || (life != 0 && life != self.life) {
            // Of a former life: it was counted when this one began. Of one that is about to begin: it was not.
            if life > self.life && !changed.is_empty() {
                self.early.push((life, changed));
            }
            return Box::pin(async { Err(NotSubmitted::StartedAnew) });
        }
        self.next_ticket += 1;
        let (ticket, (client, told)) = (self.next_ticket, oneshot::channel());
        self.clients.insert(ticket, Client::Keeper(client, served));
        self.step([Input::Changed { changed }, Input::Keep { ticket, copies }], ctx);
        Box::pin(async { told.await.unwrap_or(Err(NotSubmitted::StartedAnew)) })
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
