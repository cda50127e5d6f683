//! What the plan does to the nodes of this layer.

use std::sync::atomic::Ordering;

use proto::cluster::lease::Seq;
use proto::cluster::message::{Letter, Message};
use proto::id::NodeId;

use super::{Happening, Shared};
use crate::pure::node::CLUSTER;
use crate::world::plan::{Fault, MILLISECOND, TimedFault};
use crate::world::trace::Event;

/// The actors that panic, in the order in which plans count them.
const ACTORS: [&str; 8] = ["coordinator", "frontier", "router", "fetcher", "parser", "scorer", "storage", "copier"];

impl Shared {
    pub(super) fn fault_begins(&self, number: usize) {
        let mut world = self.lock();
        let fault = world.plan.faults[number].clone();
        world.record(Event::FaultBegan(fault.id));
        match fault.what {
            Fault::Crash { node } => world.crash(NodeId(node), false),
            Fault::TornRecord { node } => world.crash(NodeId(node), true),
            Fault::PowerLoss { ref nodes } => nodes.iter().for_each(|node| world.crash(NodeId(*node), false)),
            Fault::Panic { node, actor } => {
                if let Some(process) = world.process(NodeId(node)) {
                    world.sometimes("actor_replaced");
                    process.node.crash(ACTORS[actor as usize % ACTORS.len()]);
                }
            }
            Fault::WipedDisk { node } => {
                let node = NodeId(node);
                world.crash(node, false);
                if let Some(is) = world.nodes.get_mut(&node) {
                    is.disk.wipe();
                    world.record(Event::DiskWiped { node });
                }
            }
            Fault::BitFlip { node } => {
                let node = NodeId(node);
                world.crash(node, false);
                if let Some(url) = world.nodes.get_mut(&node).and_then(|is| is.disk.flip_bit()) {
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
            Fault::SlowActor { node, each_ms, .. } => {
                if let Some(is) = world.nodes.get_mut(&NodeId(node)).filter(|is| is.process.is_some()) {
                    is.slow = (fault.ends(), each_ms * MILLISECOND);
                }
            }
            Fault::WallClockStep { node, by_ms } => {
                if let Some(is) = world.nodes.get_mut(&NodeId(node)) {
                    is.clock.step_wall(by_ms);
                    let wall_ms = is.wall_ms.load(Ordering::Relaxed);
                    is.wall_ms.store(wall_ms.saturating_add_signed(by_ms), Ordering::Relaxed);
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
            Fault::Partition { ref side, .. } => {
                let voters = world.plan.voters().filter(|voter| side.contains(&voter.0)).count() as u64;
                if voters * 2 < world.plan.cluster.voters && voters > 0 {
                    world.sometimes("minority_paused");
                }
            }
            // The world does these.
            Fault::Clog { .. } | Fault::Reset { .. } | Fault::Host { .. } | Fault::Robots { .. } => {}
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
            Fault::Crash { node }
            | Fault::TornRecord { node }
            | Fault::WipedDisk { node }
            | Fault::BitFlip { node } => {
                vec![*node]
            }
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
                Fault::Crash { node: n } | Fault::TornRecord { node: n } | Fault::WipedDisk { node: n } => *n == node,
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
