//! What the plan does to the nodes of the pure layer.

use proto::cluster::coordinator;
use proto::crawl::politeness::Micros;
use proto::id::{NodeId, Slot};

use super::node::Node;
use super::{Happening, World};
use crate::world::plan::{Fault, MILLISECOND, SECOND};
use crate::world::trace::Event;

impl World<'_> {
    pub(super) fn fault_begins(&mut self, at: Micros, number: usize) {
        let fault = &self.plan.faults[number];
        self.trace.record(at, Event::FaultBegan(fault.id));
        match &fault.what {
            Fault::Crash { node } | Fault::Panic { node, .. } => self.crash(at, NodeId(*node)),
            Fault::PowerLoss { nodes } => {
                for node in nodes {
                    self.crash(at, NodeId(*node));
                }
            }
            Fault::WipedDisk { node } => {
                let node = NodeId(*node);
                self.crash(at, node);
                if let Some(is) = self.nodes.get_mut(&node) {
                    is.disk.wipe();
                    self.trace.record(at, Event::DiskWiped { node });
                }
            }
            Fault::BitFlip { node } => {
                let node = NodeId(*node);
                self.crash(at, node);
                if let Some(url) = self.nodes.get_mut(&node).and_then(|is| is.disk.flip_bit()) {
                    self.trace.sometimes(at, "bit_flipped");
                    self.trace.record(at, Event::RecordDamaged { node, url });
                }
            }
            Fault::PowerLossAtAcknowledgement => self.power_loss_waits = Some(fault.ends()),
            Fault::Pause { node } => self.pause(at, NodeId(*node), fault.ends()),
            Fault::SlowActor { node, each_ms, .. } => {
                if let Some(is) = self.nodes.get_mut(&NodeId(*node)).filter(|is| is.is_up()) {
                    is.slow = (fault.ends(), each_ms * MILLISECOND);
                }
            }
            Fault::WallClockStep { node, by_ms } => {
                if let Some(is) = self.nodes.get_mut(&NodeId(*node)) {
                    is.clock.step_wall(*by_ms);
                    self.trace.record(at, Event::WallClockSet { node: NodeId(*node) });
                }
            }
            Fault::Join { node } => self.join(at, NodeId(*node)),
            Fault::Leave { node } => self.leave(at, NodeId(*node)),
            Fault::Stranger { node } => {
                self.at(at, Happening::StrangerSpeaks { node: NodeId(*node), times: 5 });
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

    pub(super) fn fault_ends(&mut self, at: Micros, number: usize) {
        let fault = &self.plan.faults[number];
        self.trace.record(at, Event::FaultEnded(fault.id));
        let restarts = match &fault.what {
            Fault::Crash { node } | Fault::Panic { node, .. } | Fault::WipedDisk { node } | Fault::BitFlip { node } => {
                vec![*node]
            }
            Fault::PowerLoss { nodes } => nodes.clone(),
            Fault::Pause { node } => {
                if self.nodes.get(&NodeId(*node)).is_some_and(|is| is.is_up() && is.paused_until <= at) {
                    self.trace.record(at, Event::NodeResumed { node: NodeId(*node) });
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
            let still = self.plan.faults.iter().any(|other| other.lasts_at(at) && down(&other.what));
            if !still {
                self.start(at, NodeId(node));
            }
        }
    }

    pub(super) fn crash(&mut self, at: Micros, id: NodeId) {
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.is_up()) else { return };
        node.stop();
        let mut kept = Vec::new();
        self.sights.forget(id);
        let report = node.disk.crash(|write| kept.push(write.clone()));
        self.trace.record(at, Event::NodeCrashed { node: id });
        self.trace.sometimes(at, "node_crashed");
        if report.lost > 0 {
            self.trace.sometimes(at, "unsynced_writes_lost");
        }
        if report.kept > 0 {
            self.trace.sometimes(at, "unsynced_writes_kept");
        }
        for what in kept {
            self.record_durable(at, id, &what);
        }
    }

    fn pause(&mut self, at: Micros, id: NodeId, until: Micros) {
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.is_up()) else { return };
        let first = node.paused_until <= at;
        node.paused_until = node.paused_until.max(until);
        if first {
            self.trace.record(at, Event::NodePaused { node: id });
            self.trace.sometimes(at, "node_paused");
        }
    }

    fn join(&mut self, at: Micros, id: NodeId) {
        let partitioned = |fault: &crate::world::plan::TimedFault| {
            fault.lasts_at(at) && matches!(fault.what, Fault::Partition { .. })
        };
        if self.plan.faults.iter().any(partitioned) {
            self.trace.sometimes(at, "join_while_partitioned");
        }
        self.trace.record(at, Event::NodeJoins { node: id });
        let plan = self.plan;
        self.nodes.entry(id).or_insert_with(|| Node::new(plan, id));
        self.start(at, id);
    }

    fn leave(&mut self, at: Micros, id: NodeId) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.leave();
        self.trace.record(at, Event::NodeLeaves { node: id });
        self.step(at, id, coordinator::Input::Leave);
    }

    /// In some plans the nodes that keep a URL lose power in the instant in which somebody is told that it is kept.
    pub(super) fn power_loss_at_acknowledgement(&mut self, at: Micros, id: NodeId, slot: Slot) {
        let Some(until) = self.power_loss_waits.take() else { return };
        self.trace.sometimes(at, "power_lost_at_acknowledgement");
        for node in self.keepers(id, slot) {
            self.crash(at, node);
            self.at(until.max(at + SECOND), Happening::Starts(node));
        }
    }
}
