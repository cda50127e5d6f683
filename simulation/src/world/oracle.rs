//! The oracle: what is true of the cluster according to the events so far, whatever the nodes believe. Several invariants
//! need the same facts (which record is durable where, who is up), so they are kept once, here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proto::cluster::registry::Version;
use proto::id::{NodeId, Slot, UrlId};
use proto::record::Progress;

use super::plan::Plan;
use super::sites::{SiteEpoch, SiteFacts};
use super::trace::{Event, Phase};

/// A record on the disk of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durable {
    /// Its slot.
    pub slot: Slot,
    /// Where the URL stands.
    pub progress: Progress,
    /// Nothing more happens to it in its round.
    pub settled: bool,
}

/// A node, as far as the world sees it.
#[derive(Clone, Debug, Default)]
pub struct NodeFacts {
    /// The process runs.
    pub up: bool,
    /// It gets no time.
    pub paused: bool,
    /// Which life it is in, or was.
    pub boot: u32,
    /// It was told to leave, and is no member any more.
    pub left: bool,
    /// Who has on disk that nothing more is to be had from this life of it.
    pub gone_to: BTreeSet<NodeId>,
    /// What is on its disk.
    pub disk: BTreeMap<UrlId, Durable>,
    /// Sites that it knows, by their numbers.
    pub sites: BTreeMap<u32, (Version, SiteFacts)>,
    /// Members of the ring it works with.
    pub members: Option<BTreeMap<NodeId, usize>>,
    /// Owners of all slots on that ring.
    pub owners: Option<Arc<[NodeId]>>,
}

/// A URL, as far as the world sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UrlFacts {
    /// Its slot.
    pub slot: Slot,
    /// Disks that have it.
    pub copies: u32,
    /// Somebody was told that it is kept.
    pub acknowledged: bool,
    /// A client handed it in.
    pub submitted: bool,
}

/// The facts of a run.
#[derive(Clone, Debug)]
pub struct Oracle {
    /// Every node that was ever seen.
    pub nodes: BTreeMap<NodeId, NodeFacts>,
    /// Every URL that was ever handed in, acknowledged or durable.
    pub urls: BTreeMap<UrlId, UrlFacts>,
    /// URLs of sites.
    pub of_sites: BTreeMap<UrlId, SiteEpoch>,
    /// What pages link to, as far as they were fetched: a page that is fetched twice may say something else then.
    pub links: BTreeMap<UrlId, BTreeSet<Vec<UrlId>>>,
    /// Disks that lost something durable.
    pub disks_lost: BTreeSet<NodeId>,
    /// What the world does.
    pub phase: Phase,
    /// Copies that a write needs (W).
    pub write_quorum: usize,
    /// Copies that there should be (R).
    pub replicas: usize,
}

impl Oracle {
    /// The facts before a run of `plan`.
    pub fn new(plan: &Plan) -> Oracle {
        Oracle {
            nodes: BTreeMap::new(),
            urls: BTreeMap::new(),
            of_sites: BTreeMap::new(),
            links: BTreeMap::new(),
            disks_lost: BTreeSet::new(),
            phase: Phase::Faults,
            write_quorum: plan.cluster.write_quorum,
            replicas: plan.cluster.replicas,
        }
    }

    /// Takes note of an event.
    pub fn see(&mut self, event: &Event) {
        match event {
            Event::PhaseChanged(phase) => self.phase = *phase,
            Event::NodeStarted { node, boot } => {
                let facts = self.node(*node);
                (facts.up, facts.paused, facts.boot) = (true, false, *boot);
                facts.gone_to.clear();
            }
            Event::DefinitionDurable { node, key, version } if key.name == format!("gone/{}", version.node.0) => {
                self.node(version.node).gone_to.insert(*node);
            }
            Event::NodeCrashed { node } => {
                let facts = self.node(*node);
                (facts.up, facts.paused) = (false, false);
                (facts.members, facts.owners) = (None, None);
            }
            Event::NodePaused { node } => self.node(*node).paused = true,
            Event::NodeResumed { node } => self.node(*node).paused = false,
            Event::NodeLeaves { node } => self.node(*node).left = true,
            Event::DiskWiped { node } => {
                self.disks_lost.insert(*node);
                self.node(*node).sites.clear();
                let gone = std::mem::take(&mut self.node(*node).disk);
                self.forget_copies(gone.into_keys());
            }
            Event::RecordDamaged { node, url } => {
                self.disks_lost.insert(*node);
                if self.node(*node).disk.remove(url).is_some() {
                    self.forget_copies([*url]);
                }
            }
            Event::SlotDropped { node, slot } => {
                let disk = &mut self.node(*node).disk;
                let gone: Vec<UrlId> = disk.extract_if(.., |_, at| at.slot == *slot).map(|(url, _)| url).collect();
                self.forget_copies(gone);
            }
            Event::UrlSubmitted { slot, url } => self.url(*url, *slot).submitted = true,
            Event::WriteAcknowledged { slot, urls, .. } => {
                for url in urls {
                    self.url(*url, *slot).acknowledged = true;
                }
            }
            Event::RecordDurable { node, slot, url, progress, settled } => {
                let at = Durable { slot: *slot, progress: *progress, settled: *settled };
                if self.node(*node).disk.insert(*url, at).is_none() {
                    self.url(*url, *slot).copies += 1;
                }
            }
            Event::UrlOfSite { url, of } => drop(self.of_sites.insert(*url, *of)),
            Event::SiteDurable { node, version, says } => {
                let known = self.node(*node).sites.entry(says.of.site).or_insert((*version, *says));
                if known.0 < *version {
                    *known = (*version, *says);
                }
            }
            Event::LinksFound { page, links } => {
                self.links.entry(*page).or_default().insert(links.clone());
            }
            Event::RingChanged { node, members, owners } => {
                let facts = self.node(*node);
                facts.members = Some(members.clone());
                facts.owners = Some(Arc::clone(owners));
            }
            _ => {}
        }
    }

    /// Says whether the process of `node` runs but gets no time.
    pub fn is_paused(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|facts| facts.paused)
    }

    /// What those who are `up` say of a site: the newest that one of them has.
    pub fn site(&self, up: &BTreeSet<NodeId>, site: u32) -> Option<SiteFacts> {
        let known = up.iter().filter_map(|node| self.nodes.get(node)?.sites.get(&site));
        known.max_by_key(|(version, _)| *version).map(|(_, says)| *says)
    }

    /// Whether a URL need not come to an end: its site is over, does not run, or has as many pages as it may.
    pub fn may_wait(&self, up: &BTreeSet<NodeId>, url: &UrlId) -> bool {
        let Some(of) = self.of_sites.get(url) else { return false };
        self.site(up, of.site)
            .is_none_or(|says| says.of != *of || !says.runs || says.pages_max > 0 || says.errors_max > 0)
    }

    /// Acknowledged URLs that are on no disk.
    pub fn lost(&self) -> impl Iterator<Item = &UrlId> {
        self.urls.iter().filter(|(_, facts)| facts.acknowledged && facts.copies == 0).map(|(url, _)| url)
    }

    fn node(&mut self, node: NodeId) -> &mut NodeFacts {
        self.nodes.entry(node).or_default()
    }

    fn url(&mut self, url: UrlId, slot: Slot) -> &mut UrlFacts {
        self.urls.entry(url).or_insert(UrlFacts { slot, copies: 0, acknowledged: false, submitted: false })
    }

    fn forget_copies(&mut self, urls: impl IntoIterator<Item = UrlId>) {
        for url in urls {
            if let Some(facts) = self.urls.get_mut(&url) {
                facts.copies = facts.copies.saturating_sub(1);
            }
        }
    }
}
