//! The frontier's part in a cluster: what it hands out goes to the coordinator, together with the record that says so, and what it
//! hears comes from there.

use actix::{AsyncContext, Context, Handler};
use proto::batch::Pick;
use proto::cluster::coordinator;
use proto::cluster::message::Stage;
use proto::crawl::frontier::{Input, Why};
use proto::crawl::outcome::Ending;
use proto::crawl::politeness::Micros;
use tracing::debug;

use super::{Frontier, Way};
use crate::edges::disk::{Job, ReplicaJob};
use crate::edges::store::Admitted;
use crate::messages::{Heard, NewLife, Told};

impl Frontier {
    /// Tells the coordinator, as part of this life.
    fn say(&self, inputs: Vec<coordinator::Input>) {
        if let Way::Clustered { coordinator, .. } = &self.parts.way
            && !inputs.is_empty()
        {
            coordinator.answer(Heard { life: self.life, inputs }); // bounded by the flights
        }
    }

    /// Has entries marked as handed out, and passes those on that still may be. `at` is when that was decided.
    pub(super) fn hand_out(&mut self, at: Micros, picks: Vec<Pick>, ctx: &mut Context<Self>) {
        let Way::Clustered { coordinator, .. } = &self.parts.way else { return };
        let (coordinator, me, life) = (coordinator.clone(), ctx.address(), self.life);
        let desk = self.lifeline.desk();
        for pick in &picks {
            self.aloft.insert(pick.flight, pick.clone());
        }
        self.ask_disk(
            |reply| Job::Replica(ReplicaJob::Select { life, picks, reply }),
            move |selected| {
                let (mut handed_out, mut moved_on) = (Vec::new(), Vec::new());
                for (pick, copy) in selected {
                    match copy {
                        Some(copy) => handed_out.push((pick, copy)),
                        None => moved_on.push(Input::Settled { flight: pick.flight, page: false }),
                    }
                }
                if !handed_out.is_empty() {
                    let inputs = vec![coordinator::Input::Picked { at, picks: handed_out }];
                    coordinator.answer(Heard { life, inputs });
                }
                if !moved_on.is_empty() {
                    debug!(urls = moved_on.len(), "entries have come further since they were queued");
                    desk.enters();
                    me.do_send(Told { life, inputs: moved_on }); // an answer
                }
            },
        );
    }

    /// Has entries settled that are not to be fetched.
    pub(super) fn refuse_clustered(&self, refused: Vec<(Pick, Why)>) {
        let Way::Clustered { coordinator, .. } = &self.parts.way else { return };
        if refused.is_empty() {
            return;
        }
        let (coordinator, life, unix_ms) = (coordinator.clone(), self.life, self.parts.clock.now().unix_ms);
        let numbers: Vec<u64> = refused.iter().map(|(pick, _)| pick.flight).collect();
        let ended = |(pick, why)| {
            let ending = match why {
                Why::Failed(failure) => Ending::Failed(failure, None, None),
                Why::Filtered(_) => Ending::Filtered,
            };
            (Box::new(pick), ending, Stage::Processed)
        };
        let flights = refused.into_iter().map(ended).collect();
        self.ask_disk(
            |reply| Job::Replica(ReplicaJob::Settle { flights, unix_ms, reply }),
            move |settled| {
                let settlement = |(flight, (copy, _))| coordinator::Input::Settlement {
                    flight,
                    stage: Stage::Processed,
                    copy,
                    page: false,
                };
                coordinator.answer(Heard { life, inputs: numbers.into_iter().zip(settled).map(settlement).collect() });
            },
        );
    }

    pub(super) fn lost_clustered(&self, pick: Pick) {
        self.parts.metrics.lost.inc();
        self.say(vec![coordinator::Input::Lost { pick: Box::new(pick) }]);
    }

    pub(super) fn idle(&self, slot: proto::id::Slot) {
        self.say(vec![coordinator::Input::Idle { slot }]);
    }

    /// Flights are over: their entries may be in their queues again.
    fn land(&mut self, flights: Vec<u64>, ctx: &mut Context<Self>) {
        let picks: Vec<Pick> = flights.into_iter().filter_map(|flight| self.aloft.remove(&flight)).collect();
        if picks.is_empty() {
            return;
        }
        let (me, life, desk) = (ctx.address(), self.life, self.lifeline.desk());
        self.ask_disk(
            |reply| Job::Replica(ReplicaJob::Land { picks, reply }),
            move |again| {
                if !again.is_empty() {
                    desk.enters();
                    let inputs = again.into_iter().map(Admitted::into_input).collect();
                    me.do_send(Told { life, inputs }); // an answer
                }
            },
        );
    }
}

impl Handler<NewLife> for Frontier {
    type Result = ();

    fn handle(&mut self, NewLife(life): NewLife, ctx: &mut Self::Context) {
        self.lifeline.handles();
        self.life = life;
        self.core = Self::core(&self.parts, 0);
        self.aloft.clear();
        self.held_back.clear();
        self.ready = true;
        self.step([Input::Tick], ctx);
    }
}

impl Handler<Told> for Frontier {
    type Result = ();

    fn handle(&mut self, Told { life, inputs }: Told, ctx: &mut Self::Context) {
        self.lifeline.handles();
        if life != self.life {
            return;
        }
        let landed: Vec<u64> = inputs
            .iter()
            .filter_map(|input| match input {
                Input::Settled { flight, .. } => Some(*flight),
                _ => None,
            })
            .collect();
        for input in &inputs {
            if let Input::Unleased { slot } = input {
                self.forget_slot(*slot);
            }
        }
        self.step(inputs, ctx);
        self.land(landed, ctx);
    }
}
