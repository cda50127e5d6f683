//! One queue in memory: a window of its entries, and what is known of its host.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use super::{Effect, FrontierRules, HostFacts, Now, ORIGINS_MAX, RobotsCopy, RobotsSay, Trouble, robots_of};
use crate::batch::Entry;
use crate::crawl::politeness::{Micros, Pace};
use crate::crawl::retry::Failure;
use crate::crawl::robots::Robots;
use crate::key::{Order, QueueKey};
use crate::url::{CanonicalUrl, UrlRules};

/// A robots.txt to be fetched from the host it lies on, for the queue that needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Errand {
    pub(super) queue: QueueKey,
    pub(super) origin: String,
    pub(super) url: CanonicalUrl,
    pub(super) hops: u8,
}

impl Errand {
    pub(super) fn robots(queue: &QueueKey, origin: &str, rules: &UrlRules) -> Option<Errand> {
        let url = CanonicalUrl::parse(&format!("{origin}/robots.txt"), rules).ok()?;
        Some(Errand { queue: queue.clone(), origin: origin.to_owned(), url, hops: 0 })
    }
}

pub(super) enum Address {
    Unknown,
    Asked,
    Known { address: IpAddr, until: Micros },
    Failed { failure: Failure, until: Micros },
}

impl Address {
    pub(super) fn known(&self) -> Option<IpAddr> {
        match self {
            Address::Known { address, .. } => Some(*address),
            _ => None,
        }
    }
}

pub(super) enum RobotsState {
    /// Must be asked again.
    Forgotten,
    Asked {
        tries: u16,
    },
    Known {
        rules: Box<Robots>,
        copy: RobotsCopy,
    },
    Unavailable {
        tries: u16,
        until: Micros,
        why: Failure,
    },
    Hopeless {
        until_unix: u64,
    },
}

/// Whether what is known of a host is on disk.
#[derive(Clone, Copy, Default)]
pub(super) struct Keeping {
    /// Writes whose answer has not come.
    asked: u32,
    /// The last one had no room.
    failed: bool,
}

pub(super) struct Queue {
    /// The first entries of the queue.
    pub(super) window: BTreeMap<Order, Entry>,
    /// Every entry on disk up to here is in the window, in flight, or gone.
    pub(super) cursor: Option<Order>,
    /// There are, or may be, entries on disk behind the cursor.
    pub(super) more: bool,
    /// The read behind the cursor that is under way.
    pub(super) refilling: Option<u64>,
    pub(super) loading: bool,
    /// An entry came while the queue was being loaded: that may or may not have seen it.
    missed: bool,
    /// What came behind the cursor while the disk was read there. Boxed: few queues have it at a time.
    came: Option<Box<Came>>,
    /// What is being read may be of the past: read from the beginning when it came.
    doubtful: bool,
    pub(super) errands: VecDeque<Errand>,
    pub(super) busy: bool,
    pub(super) pace: Pace,
    pub(super) heard: bool,
    pub(super) keeping: Keeping,
    pub(super) address: Address,
    /// It stands in the line of its address.
    pub(super) awaits_address: bool,
    robots: Vec<(String, RobotsState)>,
    /// What origins said before that must be asked again: too old to go by, but the best that is known of their delay.
    former: Vec<(String, RobotsCopy)>,
    /// Where it stands in the agenda.
    pub(super) wake: Option<(Micros, u64)>,
}

/// Entries of which nobody knows whether the read under way has seen them.
#[derive(Default)]
struct Came {
    /// The first of them, as many as a window has.
    entries: BTreeMap<Order, Entry>,
    /// The first of the others.
    beyond: Option<Order>,
}

impl Came {
    fn add(&mut self, order: Order, entry: Entry, window_max: usize) {
        self.entries.insert(order, entry);
        while self.entries.len() > window_max
            && let Some((last, _)) = self.entries.pop_last()
        {
            self.beyond = Some(self.beyond.map_or(last, |first| first.min(last)));
        }
    }
}

impl Queue {
    pub(super) fn new(now: Now, rules: &FrontierRules, facts: &HostFacts) -> Queue {
        let robots: Vec<(String, RobotsState)> = facts
            .robots
            .iter()
            .filter(|(_, copy)| copy.until > now.unix_ms)
            .map(|(origin, copy)| {
                let rules = Box::new(robots_of(copy, &rules.product_token));
                (origin.clone(), RobotsState::Known { rules, copy: copy.clone() })
            })
            .collect();
        let delay = delay_said(&facts.robots, rules);
        Queue {
            window: BTreeMap::new(),
            cursor: None,
            more: false,
            refilling: None,
            loading: false,
            missed: false,
            came: None,
            doubtful: false,
            errands: VecDeque::new(),
            busy: false,
            pace: Pace::new(now.mono, &rules.pace, delay, facts.lessons.clone(), !facts.heard),
            heard: facts.heard,
            keeping: Keeping::default(),
            address: Address::Unknown,
            awaits_address: false,
            robots,
            former: facts.robots.iter().filter(|(_, copy)| copy.until <= now.unix_ms).cloned().collect(),
            wake: None,
        }
    }

    /// What must be kept of the host, on its way to the disk.
    pub(super) fn keep_facts(&mut self, key: &QueueKey) -> Effect {
        self.keeping = Keeping { asked: self.keeping.asked + 1, failed: false };
        Effect::KeepFacts { queue: key.clone(), facts: self.facts() }
    }

    /// A write of what is known of the host was answered.
    pub(super) fn facts_kept(&mut self, kept: bool) {
        self.keeping = Keeping { asked: self.keeping.asked.saturating_sub(1), failed: self.keeping.failed || !kept };
    }

    /// Nothing is known of the host that the disk does not have.
    pub(super) fn is_kept(&self) -> bool {
        self.keeping.asked == 0 && !self.keeping.failed
    }

    /// Has facts that the disk had no room for written once more, unless a write is under way.
    pub(super) fn keep_again(&mut self, key: &QueueKey) -> Option<Effect> {
        (self.keeping.asked == 0).then(|| self.keep_facts(key))
    }

    pub(super) fn facts(&self) -> HostFacts {
        let copy = |(origin, state): &(String, RobotsState)| match state {
            RobotsState::Known { copy, .. } => Some((origin.clone(), copy.clone())),
            _ => None,
        };
        HostFacts {
            lessons: self.pace.lessons().clone(),
            robots: self.robots.iter().filter_map(copy).chain(self.former.iter().cloned()).collect(),
            heard: self.heard,
        }
    }

    /// It can do nothing until an answer comes.
    pub(super) fn waits(&self) -> bool {
        self.loading
            || self.awaits_address
            || (self.refilling.is_some() && self.window.is_empty() && self.errands.is_empty())
            || matches!(self.address, Address::Asked)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.window.is_empty() && self.errands.is_empty()
    }

    /// There is something to fetch from its host, now or later.
    pub(super) fn has_work(&self) -> bool {
        self.busy || !self.is_empty() || self.more || self.loading
    }

    /// Why its host is left alone although it has work, and until when.
    pub(super) fn trouble(&self, key: &QueueKey) -> Option<Trouble> {
        if self.busy || !self.has_work() {
            return None;
        }
        let robots = self.robots.iter().find_map(|(_, state)| match state {
            RobotsState::Unavailable { until, why, .. } => Some((*until, Some(*why))),
            _ => None,
        });
        let (until, robots) = robots.unwrap_or((0, None));
        let (until, failures) = (until.max(self.pace.next_ok()), self.pace.lessons().failures);
        Some(Trouble { host: key.host(), robots, failures, until })
    }

    /// Its robots.txt was asked for again and again, and nobody answered.
    pub(super) fn is_unreachable(&self) -> bool {
        let unreachable = |state: &RobotsState| match state {
            RobotsState::Unavailable { tries, why, .. } => *tries >= 2 && !matches!(why, Failure::Http(_)),
            RobotsState::Asked { .. } | RobotsState::Forgotten => false,
            RobotsState::Known { .. } | RobotsState::Hopeless { .. } => false,
        };
        !self.busy && !self.robots.is_empty() && self.robots.iter().all(|(_, state)| unreachable(state))
    }

    /// A placeholder was loaded: what came meanwhile stays.
    pub(super) fn take_over(&mut self, placeholder: Queue) {
        self.more |= placeholder.more;
        if placeholder.missed {
            // An entry came or went while the disk was read, perhaps in front of all that was read: read again.
            self.window.clear();
            (self.cursor, self.more) = (None, true);
        }
        self.errands = placeholder.errands;
        self.busy = placeholder.busy;
        self.heard |= placeholder.heard;
        self.keeping = placeholder.keeping;
    }

    /// An entry is new on disk.
    pub(super) fn admit(&mut self, order: Order, entry: Entry, window_max: usize) {
        if self.loading {
            self.missed = true;
            return;
        }
        let behind = self.cursor.is_none_or(|cursor| order > cursor);
        if behind && self.refilling.is_some() {
            return self.came.get_or_insert_default().add(order, entry, window_max);
        }
        if behind && (self.more || self.window.len() >= window_max) {
            self.more = true;
            return;
        }
        self.window.insert(order, entry);
        if behind {
            self.cursor = Some(order);
        }
        self.trim(window_max);
    }

    /// The disk was read behind the cursor. The answer to a question that was asked before the queue left memory is the past.
    pub(super) fn refilled(&mut self, read: u64, entries: Vec<(Order, Entry)>, more: bool, window_max: usize) {
        if self.refilling != Some(read) {
            return;
        }
        self.refilling = None;
        let Came { entries: came, beyond } = self.came.take().map_or_else(Came::default, |came| *came);
        self.more = more || beyond.is_some();
        if std::mem::take(&mut self.doubtful) {
            return self.read_again();
        }
        let cursor = self.cursor;
        let fits = |order: &Order| {
            // What is at or before the cursor is known already, and perhaps in flight.
            cursor.is_none_or(|cursor| *order > cursor) && beyond.is_none_or(|beyond| *order < beyond)
        };
        // Built in one go, a map takes half the memory.
        let mut read: BTreeMap<Order, Entry> = entries.into_iter().filter(|(order, _)| fits(order)).collect();
        // What came in between lies among what was read, or behind all of it; then it is read when the queue is read on.
        let end = read.last_key_value().map(|(order, _)| *order);
        for (order, entry) in came.into_iter().filter(|(order, _)| fits(order)) {
            if more && end.is_none_or(|end| order > end) {
                self.more = true;
            } else {
                read.insert(order, entry);
            }
        }
        self.cursor = self.cursor.max(read.last_key_value().map(|(order, _)| *order));
        if self.window.is_empty() {
            self.window = read;
        } else {
            self.window.append(&mut read);
        }
        self.trim(window_max);
    }

    /// Forgets where it stands on disk.
    pub(super) fn read_again(&mut self) {
        self.missed |= self.loading;
        self.doubtful |= self.refilling.is_some();
        if !self.loading && self.refilling.is_none() {
            self.window.clear();
            (self.cursor, self.more) = (None, true);
        }
    }

    fn trim(&mut self, window_max: usize) {
        while self.window.len() > window_max {
            self.window.pop_last();
            self.more = true;
            self.cursor = self.window.last_key_value().map(|(order, _)| *order);
        }
    }

    // robots.txt

    /// Its robots.txt could not be had, often enough.
    pub(super) fn is_hopeless(&self, now: Now, url: &CanonicalUrl) -> bool {
        let hopeless =
            |state: &RobotsState| matches!(state, RobotsState::Hopeless { until_unix } if *until_unix > now.unix_ms);
        self.robots.iter().any(|(origin, state)| hopeless(state) && origin == url.origin())
    }

    pub(super) fn may_fetch(&self, now: Now, url: &CanonicalUrl) -> RobotsSay {
        let origin = url.origin();
        match self.robots.iter().find(|(known, _)| known == origin).map(|(_, state)| state) {
            None | Some(RobotsState::Forgotten) => RobotsSay::Ask,
            Some(RobotsState::Asked { .. }) => RobotsSay::Asked,
            Some(RobotsState::Known { copy, .. }) if copy.until <= now.unix_ms => RobotsSay::Ask,
            Some(RobotsState::Known { rules, .. }) => {
                if rules.allows(&url.as_str()[origin.len()..]) {
                    RobotsSay::Yes
                } else {
                    RobotsSay::No
                }
            }
            Some(RobotsState::Unavailable { until, .. }) if *until <= now.mono => RobotsSay::Ask,
            Some(RobotsState::Unavailable { until, .. }) => RobotsSay::NotBefore(*until),
            Some(RobotsState::Hopeless { until_unix }) if *until_unix <= now.unix_ms => RobotsSay::Ask,
            Some(RobotsState::Hopeless { .. }) => RobotsSay::Hopeless,
        }
    }

    /// Memory of its robots.txt files: the bytes, and about as much again for the rules in them.
    pub(super) fn robots_bytes(&self) -> usize {
        let bytes = |(_, state): &(String, RobotsState)| match state {
            RobotsState::Known { copy, .. } => 2 * copy.body.as_ref().map_or(0, Vec::len),
            _ => 0,
        };
        let former = self.former.iter().map(|(_, copy)| copy.body.as_ref().map_or(0, Vec::len));
        self.robots.iter().map(bytes).chain(former).sum()
    }

    pub(super) fn robots_tries(&self, origin: &str) -> u16 {
        match self.robots.iter().find(|(known, _)| known == origin) {
            Some((_, RobotsState::Asked { tries } | RobotsState::Unavailable { tries, .. })) => *tries,
            _ => 0,
        }
    }

    pub(super) fn set_robots(&mut self, origin: &str, state: RobotsState) {
        if let Some(at) = self.robots.iter().position(|(known, _)| known == origin)
            && let (_, RobotsState::Known { copy, .. }) = self.robots.remove(at)
        {
            self.former.push((origin.to_owned(), copy));
        }
        if matches!(state, RobotsState::Known { .. }) {
            self.former.retain(|(known, _)| known != origin);
        }
        if self.former.len() > ORIGINS_MAX {
            self.former.remove(0);
        }
        if self.robots.len() >= ORIGINS_MAX {
            self.robots.remove(0);
        }
        self.robots.push((origin.to_owned(), state));
    }

    pub(super) fn learn_robots(&mut self, origin: &str, copy: RobotsCopy, rules: &FrontierRules) -> Robots {
        let parsed = robots_of(&copy, &rules.product_token);
        self.set_robots(origin, RobotsState::Known { rules: Box::new(parsed.clone()), copy });
        let delay = delay_of(&self.robots).max(delay_said(&self.former, rules));
        self.pace.hear_robots(delay, &rules.pace);
        parsed
    }
}

/// The longest Crawl-delay in any of these, however old.
fn delay_said(copies: &[(String, RobotsCopy)], rules: &FrontierRules) -> Option<u64> {
    copies.iter().filter_map(|(_, copy)| robots_of(copy, &rules.product_token).crawl_delay_ms()).max()
}

/// The longest Crawl-delay that any origin of the host asks for.
fn delay_of(robots: &[(String, RobotsState)]) -> Option<u64> {
    let delay = |state: &RobotsState| match state {
        RobotsState::Known { rules, .. } => rules.crawl_delay_ms(),
        _ => None,
    };
    robots.iter().filter_map(|(_, state)| delay(state)).max()
}
