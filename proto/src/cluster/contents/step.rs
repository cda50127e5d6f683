//! What the core of contents takes in, what it says to do, and the rules between them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{ContentKey, Contents, Holding, PAGE_BYTES_MAX, PUSH_BYTES_MAX, PUSH_PAGES_MAX, Page, Rest};
use crate::cluster::mutant::planted;
use crate::cluster::ring::Ring;
use crate::crawl::politeness::Micros;
use crate::id::NodeId;

/// What the disk says of its pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Standing {
    /// Pages on the list of those without a second copy.
    pub lacking: u64,
    /// How many pages each disk is trusted with.
    pub trusted: BTreeMap<Holding, u64>,
}

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// Time passed.
    Tick,
    /// Who has a place on the ring, and who of them is alive.
    View {
        /// The ring.
        ring: Arc<Ring>,
        /// The nodes on it.
        members: BTreeSet<NodeId>,
        /// The living ones.
        alive: BTreeSet<NodeId>,
        /// How many nodes the cluster has. The ring forgets who is away for long; only who left no longer counts.
        size: usize,
    },
    /// A page was fetched and is on this disk; its acknowledgement waits.
    Kept {
        /// Names what waits.
        ticket: u64,
        /// The page; it is on the list.
        key: ContentKey,
        /// Bytes of its records.
        bytes: u32,
    },
    /// Part of the list.
    Listed {
        /// Pages and the bytes of their records.
        pages: Vec<(ContentKey, u32)>,
        /// Where to go on.
        next: Option<ContentKey>,
    },
    /// A push is over.
    Pushed {
        /// To whom.
        to: NodeId,
        /// The folder that the other has; `None` if it did not say.
        folder: Option<u64>,
        /// Pages that it has on its disk.
        copied: Vec<ContentKey>,
        /// Pages whose records cannot be read here.
        unreadable: Vec<ContentKey>,
        /// Whether all went well.
        whole: bool,
    },
    /// Copies are written down, or could not be: then their pages are still on the list.
    Marked {
        /// Which.
        keys: Vec<ContentKey>,
        /// What the disk says now.
        standing: Standing,
    },
    /// Some of the copies of a lost disk are on the list again.
    TakenBack {
        /// Whether that is all of them.
        done: bool,
        /// What the disk says now.
        standing: Standing,
    },
    /// What the disk says: copies came from other nodes.
    Standing(Standing),
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Read part of the list, behind this page.
    List {
        /// Behind which.
        after: Option<ContentKey>,
        /// How many.
        limit: usize,
    },
    /// Offer these pages to a node, and send what it wants; without pages, ask for its folder.
    Push {
        /// To whom.
        to: NodeId,
        /// Which.
        keys: Vec<ContentKey>,
    },
    /// Write down that these pages have a second copy.
    Mark {
        /// Which.
        keys: Vec<ContentKey>,
        /// Where.
        holding: Holding,
    },
    /// Put pages whose copies a disk was trusted with on the list again.
    TakeBack {
        /// Which disk.
        holding: Holding,
    },
    /// The page may be acknowledged.
    Release {
        /// Which.
        ticket: u64,
    },
    /// The page has no second copy in time, and is not acknowledged.
    Lapse {
        /// Which.
        ticket: u64,
    },
}

impl Contents {
    /// Takes in what happened and adds what to do to `out`.
    pub fn step(&mut self, now: Micros, input: Input, out: &mut Vec<Effect>) {
        match input {
            Input::Tick => {}
            Input::View { ring, members, alive, size } => {
                (self.ring, self.members, self.alive, self.size) = (ring, members, alive, size);
                // What is on its way to a node that died may take long to fail: others get it.
                self.pushes.retain(|to, _| self.alive.contains(to));
            }
            Input::Kept { ticket, key, bytes } => self.kept(now, ticket, key, bytes, out),
            Input::Listed { pages, next } => self.listed(pages, next),
            Input::Pushed { to, folder, copied, unreadable, whole } => {
                self.pushed(now, to, folder, copied, unreadable, whole, out);
            }
            Input::Marked { keys, standing } => {
                self.marking.retain(|key| !keys.contains(key));
                self.list_has_more |= self.stands(standing);
            }
            Input::TakenBack { done, standing } => {
                let holding = self.taking_back;
                if done || holding.is_some_and(|holding| !standing.trusted.contains_key(&holding)) {
                    self.taking_back = None;
                } else if let Some(holding) = holding {
                    out.push(Effect::TakeBack { holding });
                }
                self.list_has_more |= self.stands(standing);
            }
            Input::Standing(standing) => self.list_has_more |= self.stands(standing),
        }
        self.take_back_lost(now, out);
        self.push_all(now, out);
        self.end_waiting(now, out);
        self.read_list(now, out);
    }

    /// When to step again if nothing happens before.
    pub fn next_wake(&self, now: Micros) -> Micros {
        let pages = self.pages.values().flatten().map(|page| page.until).min();
        let rests = self.resting.values().map(|rest| rest.until).filter(|until| *until > now).min();
        let absent = self.absent.values().map(|since| since + self.rules.gone_after).filter(|at| *at > now).min();
        let greet = self.greeted.values().map(|asked| asked + self.rules.greet_every).filter(|at| *at > now).min();
        let list = self.list_has_more.then_some(self.next_pass);
        [pages, rests, absent, greet, list].into_iter().flatten().min().unwrap_or(Micros::MAX)
    }

    /// Takes over what the disk says; tells whether the list on it holds more than is known in memory.
    fn stands(&mut self, standing: Standing) -> bool {
        self.standing = standing;
        self.standing.lacking > (self.waiting.len() + self.marking.len() + self.unreadable.len()) as u64
    }

    fn kept(&mut self, now: Micros, ticket: u64, key: ContentKey, bytes: u32, out: &mut Vec<Effect>) {
        self.standing.lacking += 1; // the disk will say so itself, later
        if planted!(self.rules.planted, PageNotCopied) {
            self.list_has_more = true;
            return out.push(Effect::Release { ticket });
        }
        if bytes > PAGE_BYTES_MAX {
            self.unreadable.insert(key);
            return out.push(Effect::Release { ticket }); // nobody takes it: it stays where it is
        }
        self.waiting.insert(key.clone(), bytes);
        let until = now + self.rules.patience;
        self.ends_first = self.ends_first.min(until);
        self.pages.entry(key).or_default().push(Page { ticket, until });
    }

    fn listed(&mut self, pages: Vec<(ContentKey, u32)>, next: Option<ContentKey>) {
        self.reading = false;
        for (key, bytes) in pages {
            if !self.marking.contains(&key) && !self.unreadable.contains(&key) {
                self.waiting.entry(key).or_insert(bytes);
            }
        }
        self.pass = next.map(Some);
    }

    #[allow(clippy::too_many_arguments)] // the parts of one message
    fn pushed(
        &mut self,
        now: Micros,
        to: NodeId,
        folder: Option<u64>,
        copied: Vec<ContentKey>,
        unreadable: Vec<ContentKey>,
        whole: bool,
        out: &mut Vec<Effect>,
    ) {
        self.pushes.remove(&to);
        if let Some(folder) = folder {
            self.folders.insert(to, folder);
        }
        if whole {
            self.resting.remove(&to);
            self.greeted.insert(to, now);
        } else {
            let wait = self.resting.get(&to).map_or(self.rules.rest_min, |rest| rest.wait * 2);
            let wait = wait.min(self.rules.rest_max);
            self.resting.insert(to, Rest { until: now + wait, wait });
        }
        for key in unreadable {
            self.waiting.remove(&key);
            self.lapse(&key, out);
            self.unreadable.insert(key);
        }
        let Some(folder) = folder.filter(|_| !copied.is_empty()) else { return };
        for key in &copied {
            self.waiting.remove(key);
            self.release(key, out);
        }
        self.marking.extend(copied.iter().cloned());
        out.push(Effect::Mark { keys: copied, holding: Holding { node: to, folder } });
    }

    fn release(&mut self, key: &ContentKey, out: &mut Vec<Effect>) {
        let pages = self.pages.remove(key).unwrap_or_default();
        out.extend(pages.into_iter().map(|page| Effect::Release { ticket: page.ticket }));
    }

    fn lapse(&mut self, key: &ContentKey, out: &mut Vec<Effect>) {
        let pages = self.pages.remove(key).unwrap_or_default();
        out.extend(pages.into_iter().map(|page| Effect::Lapse { ticket: page.ticket }));
    }

    /// Pages whose copy is late are given up; they stay on the list. Who is alone waits for nobody.
    fn end_waiting(&mut self, now: Micros, out: &mut Vec<Effect>) {
        let alone = self.size == 1;
        if !alone && now < self.ends_first {
            return;
        }
        let over = |pages: &[Page]| alone || pages.iter().any(|page| page.until <= now);
        let keys: Vec<ContentKey> =
            self.pages.iter().filter(|(_, pages)| over(pages)).map(|(key, _)| key.clone()).collect();
        for key in keys {
            if alone {
                self.release(&key, out);
            } else {
                self.lapse(&key, out);
            }
            if self.waiting.len() > self.rules.window_max && !self.is_pushed(&key) {
                self.waiting.remove(&key);
                self.list_has_more = true;
            }
        }
        self.ends_first = self.pages.values().flatten().map(|page| page.until).min().unwrap_or(Micros::MAX);
    }

    /// Looks for disks that are trusted with copies and are lost, one at a time.
    fn take_back_lost(&mut self, now: Micros, out: &mut Vec<Effect>) {
        let nodes: BTreeSet<NodeId> = self.standing.trusted.keys().map(|holding| holding.node).collect();
        self.absent.retain(|node, _| nodes.contains(node) && !self.members.contains(node));
        if self.members.is_empty() {
            return; // nobody has told us yet
        }
        for node in nodes.into_iter().filter(|node| !self.members.contains(node)) {
            self.absent.entry(node).or_insert(now);
        }
        if self.taking_back.is_some() {
            return;
        }
        let gone_after = self.rules.gone_after;
        let is_lost = |holding: &&Holding| {
            let gone = self.absent.get(&holding.node).is_some_and(|since| now >= since + gone_after);
            let other = self.folders.get(&holding.node).is_some_and(|folder| *folder != holding.folder);
            let (gone, other) =
                if planted!(self.rules.planted, LostPagesCount) { (false, false) } else { (gone, other) };
            #[cfg(test)]
            let (gone, other) = self.defect.map_or((gone, other), |defect| defect.sees_lost(gone, other));
            gone || other
        };
        if let Some(holding) = self.standing.trusted.keys().find(is_lost).copied() {
            self.taking_back = Some(holding);
            out.push(Effect::TakeBack { holding });
        }
    }

    /// Gives every node that is free its part of what waits: pages whose acknowledgement waits first.
    fn push_all(&mut self, now: Micros, out: &mut Vec<Effect>) {
        #[cfg(test)]
        if self.defect == Some(super::tests::Defect::TriesOnce) && self.resting.values().any(|rest| rest.until <= now) {
            return;
        }
        let mut batches: BTreeMap<NodeId, (Vec<ContentKey>, u64)> = BTreeMap::new();
        let first = self.pages.keys().filter_map(|key| Some((key, *self.waiting.get(key)?)));
        let rest = self.waiting.iter().filter(|(key, _)| !self.pages.contains_key(key));
        let busy = |node: &NodeId| self.pushes.contains_key(node);
        // Most steps find everybody busy: then what waits need not be looked at.
        let takes = self.alive.iter().any(|node| self.is_free(now, node) && !busy(node));
        let some_free = takes && self.pushes.len() < self.rules.pushes_max;
        let waiting = first.chain(rest.map(|(key, bytes)| (key, *bytes)));
        for (key, bytes) in waiting.take_while(|_| some_free) {
            if self.is_pushed(key) {
                continue;
            }
            let Some(to) = self.target(now, key).filter(|to| !busy(to)) else { continue };
            let full = batches.len() + self.pushes.len() >= self.rules.pushes_max && !batches.contains_key(&to);
            let (keys, sum) = batches.entry(to).or_default();
            if full || keys.len() >= PUSH_PAGES_MAX || *sum >= PUSH_BYTES_MAX {
                continue;
            }
            keys.push(key.clone());
            *sum += u64::from(bytes);
        }
        batches.retain(|_, (keys, _)| !keys.is_empty());
        self.greet(now, &mut batches);
        for (to, (keys, _)) in batches {
            self.pushes.insert(to, keys.iter().cloned().collect());
            out.push(Effect::Push { to, keys });
        }
    }

    /// Nodes that are trusted with copies are asked for their folder now and then; a push asks for it too.
    fn greet(&mut self, now: Micros, batches: &mut BTreeMap<NodeId, (Vec<ContentKey>, u64)>) {
        let nodes: BTreeSet<NodeId> = self.standing.trusted.keys().map(|holding| holding.node).collect();
        self.greeted.retain(|node, _| nodes.contains(node));
        for node in nodes {
            let due = self.greeted.get(&node).is_none_or(|asked| now >= asked + self.rules.greet_every);
            let rests = self.resting.get(&node).is_some_and(|rest| rest.until > now);
            let room = batches.len() + self.pushes.len() < self.rules.pushes_max;
            if due && room && !rests && self.alive.contains(&node) && !self.pushes.contains_key(&node) {
                self.greeted.insert(node, now);
                batches.entry(node).or_default();
            }
        }
    }

    /// Reads on in the list while there is room in memory.
    fn read_list(&mut self, now: Micros, out: &mut Vec<Effect>) {
        if self.pass.is_none() && self.list_has_more && now >= self.next_pass {
            (self.pass, self.list_has_more) = (Some(None), false);
            self.next_pass = now + self.rules.list_every;
        }
        let room = self.rules.window_max.saturating_sub(self.waiting.len());
        if let Some(after) = &self.pass
            && !self.reading
            && room >= self.rules.window_max / 2
        {
            self.reading = true;
            out.push(Effect::List { after: after.clone(), limit: room });
        }
    }
}
