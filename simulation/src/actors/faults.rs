//! What the plan does to the nodes of this layer.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use proto::cluster::lease::Seq;
use proto::cluster::message::{Letter, Message};
use proto::crawl::politeness::Micros;
use proto::id::NodeId;
use tokio::time::Duration;

use super::edges::Place;
use super::world::Process;
use super::{Happening, Shared};
use crate::pure::node::CLUSTER;
use crate::world::plan::{Fault, MILLISECOND, TimedFault};
use crate::world::trace::Event;

/// The actors that panic or are slow, in the order in which plans count them.
const ACTORS: [&str; 8] = ["coordinator", "frontier", "router", "fetcher", "parser", "scorer", "storage", "copier"];

impl Shared {
    pub(super) fn fault_begins(&self, number: usize) {
        let mut world = self.lock();
        let fault = world.plan.faults[number].clone();
        world.record(Event::FaultBegan(fault.id));
        match fault.what {
            Fault::Crash { node } => world.crash(NodeId(node)),
            Fault::PowerLoss { ref nodes } => nodes.iter().for_each(|node| world.crash(NodeId(*node))),
            Fault::Panic { node, actor } => {
                if let Some(process) = world.process(NodeId(node)) {
                    world.sometimes("actor_replaced");
                    world.record(Event::ActorDied { node: NodeId(node) });
                    process.node.crash(ACTORS[actor as usize % ACTORS.len()]);
                }
            }
            Fault::WipedDisk { node } => {
                let node = NodeId(node);
                world.crash(node);
                if let Some(is) = world.nodes.get_mut(&node) {
                    is.disk.wipe();
                    world.record(Event::DiskWiped { node });
                }
            }
            Fault::BitFlip { node } => {
                let node = NodeId(node);
                world.crash(node);
                if let Some(url) = world.nodes.get_mut(&node).and_then(|is| is.disk.flip_bit()) {
                    world.sometimes("bit_flipped");
                    world.record(Event::RecordDamaged { node, url });
                }
            }
            Fault::PowerLossAtAcknowledgement => world.power_loss_waits = Some(fault.ends()),
            Fault::Pause { node } => {
                let (node, now) = (NodeId(node), world.now);
                let Some(is) = world.nodes.get_mut(&node).filter(|is| is.process.is_some()) else { return };
                let first = is.paused_until <= now;
                is.paused_until = is.paused_until.max(fault.ends());
                if first {
                    world.record(Event::NodePaused { node });
                    world.sometimes("node_paused");
                }
            }
            Fault::SlowActor { node, actor, each_ms } => {
                if let Some(process) = world.process(NodeId(node)) {
                    world.sometimes("actor_slowed");
                    drop(world);
                    let (name, each) = (ACTORS[actor as usize % ACTORS.len()], each_ms * MILLISECOND);
                    self.slow_down(NodeId(node), process, name, each, fault.ends());
                }
            }
            Fault::WallClockStep { node, by_ms } => {
                if let Some(is) = world.nodes.get_mut(&NodeId(node)) {
                    is.clock.step_wall(by_ms);
                    let wall_ms = is.wall_ms.load(Ordering::Relaxed);
                    is.wall_ms.store(wall_ms.saturating_add_signed(by_ms), Ordering::Relaxed);
                    world.record(Event::WallClockSet { node: NodeId(node) });
                }
            }
            Fault::Join { node } => {
                let (node, now) = (NodeId(node), world.now);
                let partitioned =
                    |fault: &TimedFault| fault.lasts_at(now) && matches!(fault.what, Fault::Partition { .. });
                if world.plan.faults.iter().any(partitioned) {
                    world.sometimes("join_while_partitioned");
                }
                world.record(Event::NodeJoins { node });
                world.add_node(node);
                world.at(now, Happening::Starts(node));
            }
            Fault::Leave { node } => {
                let node = NodeId(node);
                let Some(is) = world.nodes.get_mut(&node) else { return };
                is.leaving = true;
                let process = is.process.clone();
                world.record(Event::NodeLeaves { node });
                drop(world);
                if let Some(process) = process {
                    actix_rt::spawn(async move { process.node.leave().await });
                }
            }
            Fault::Stranger { node } => {
                let now = world.now;
                world.at(now, Happening::StrangerSpeaks { node: NodeId(node), times: 5 });
            }
            // The world does these.
            Fault::Partition { .. }
            | Fault::Clog { .. }
            | Fault::Reset { .. }
            | Fault::Host { .. }
            | Fault::Robots { .. } => {}
            Fault::SlowDisk { .. } | Fault::HangingSync { .. } | Fault::FailingSync { .. } | Fault::FullDisk { .. } => {
            }
            Fault::Load { .. } => {} // looked up when loads are measured
        }
    }

    pub(super) fn fault_ends(&self, number: usize) {
        let mut world = self.lock();
        let (now, fault) = (world.now, world.plan.faults[number].clone());
        world.record(Event::FaultEnded(fault.id));
        let restarts = match &fault.what {
            Fault::Crash { node } | Fault::WipedDisk { node } | Fault::BitFlip { node } => vec![*node],
            Fault::PowerLoss { nodes } => nodes.clone(),
            Fault::Pause { node } => {
                let resumed = |is: &super::world::NodeState| is.process.is_some() && is.paused_until <= now;
                if world.nodes.get(&NodeId(*node)).is_some_and(resumed) {
                    world.record(Event::NodeResumed { node: NodeId(*node) });
                }
                return;
            }
            _ => return,
        };
        for node in restarts {
            // Another fault may keep it down for longer.
            let down = |what: &Fault| match what {
                Fault::Crash { node: n } | Fault::WipedDisk { node: n } => *n == node,
                Fault::BitFlip { node: n } => *n == node,
                Fault::PowerLoss { nodes } => nodes.contains(&node),
                _ => false,
            };
            let still = world.plan.faults.iter().any(|other| other.lasts_at(now) && down(&other.what));
            if !still {
                world.at(now, Happening::Starts(NodeId(node)));
            }
        }
    }

    /// Until then, an actor comes to its mailbox only after the time that what it handled the last time takes.
    fn slow_down(&self, id: NodeId, process: Process, name: &'static str, each: Micros, until: Micros) {
        let Some(desk) = process.node.desks().iter().find(|(of, _)| *of == name).map(|(_, desk)| Arc::clone(desk))
        else {
            return;
        };
        let place = Place { shared: self.clone(), id, process: process.number, end: process.end.subscribe() };
        actix_rt::spawn(async move {
            let mut handled = desk.handled();
            loop {
                let now = place.shared.lock().now;
                if now >= until {
                    return;
                }
                let since = desk.handled() - std::mem::replace(&mut handled, desk.handled());
                let takes = (each * since.max(1)).min(until - now);
                process.node.hold(name, Duration::from_micros(takes));
                if !place.waits(now + takes).await {
                    return;
                }
            }
        });
    }

    pub(super) fn stranger_speaks(&self, node: NodeId, times: u32) {
        let (now, nodes, slots) = {
            let mut world = self.lock();
            if times > 0 {
                let next = world.now + 700 * MILLISECOND;
                world.at(next, Happening::StrangerSpeaks { node, times: times - 1 });
            }
            (world.now, world.nodes.keys().copied().collect::<Vec<NodeId>>(), world.slots.clone())
        };
        for to in nodes {
            let seq = Seq { boot: 1, counter: u64::from(times) };
            let message = Message::LeaseRequest { seq, slots: slots.clone() };
            self.transmit(node, to, Letter { cluster: CLUSTER + 1, from: node, boot: 1, clock: now, message });
        }
    }
}
