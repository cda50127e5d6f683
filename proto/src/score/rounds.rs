//! Scores over the graph of a cluster: every node has the pages of its own slots, and what links give to pages of others goes over in rounds.
//!
//! A *ranking* has a number and fixed members, who agree on whose each slot is. In stage 0 each node names to each other one the pages of that one which its own pages
//! link to, once; from then on only numbers travel, in the order of the names. In stage 1 they count their pages. Every stage after that is a loop of PageRank, or half
//! a loop of HITS: each node works out what its pages give to those that it named (or, for the hubs of HITS, what those that were named to it are worth), and when it has heard that of
//! everybody for this stage it has the next vector of its own pages. Sums over all pages come with the numbers and are added up in the order of the members,
//! so that all of them come to the same sums and stop after the same loop.
//!
//! Everything is drawn, nothing is pushed: a node asks for what it lacks ([`Ranking::wants`]) until it has it ([`Ranking::heard`]), and answers from what it has
//! ([`Ranking::answer`]). So what is lost is asked for again, what comes twice is not taken twice, and nobody is flooded. A node can be one stage ahead of another and no
//! more; it keeps the numbers of two stages. A member that dies ends the ranking for all: the others begin a new one without it, in which its slots are theirs.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::hits::FRESH;
use super::opic::TO_LINKS;
use super::{Machine, NoRoom, RUN, Stop, Vector, distance, total};
use crate::id::NodeId;

/// Numbers in one answer: a quarter of a megabyte.
pub const PART_NUMBERS: usize = 32_768;
/// Bytes of names in one answer, about.
pub const PART_BYTES: usize = 256 << 10;

/// The stage of names, that of counts, and the first loop.
const NAMES: u32 = 0;
const COUNTS: u32 = 1;
const LOOPS: u32 = 2;

/// Two vectors that sum to 1 are never further apart.
const CHANGE_MAX: f64 = 2.0;

/// What is computed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum By {
    /// PageRank with this damping.
    PageRank(f64),
    /// The authorities of HITS.
    Hits,
    /// What pages have had so far when those that were crawled since the last time have handed on their cash. That is one loop.
    Opic,
}

/// How far the scores of all nodes may be from those that one node would come to if it never stopped, together: two such rankings are no millionth apart.
const APART_MAX: f64 = 3e-7;
/// A loop of HITS brings it nearer by a factor that only the graph knows. Where a loop leaves 99.6 % of the error, it is within [`APART_MAX`] when the change is this.
const HITS_PRECISION: f64 = 1e-9;
/// Loops of a ranking, at most.
const LOOPS_MAX: u32 = 500;

impl By {
    /// When queues can go by it.
    pub fn stop(self) -> Stop {
        let precision = match self {
            // A loop leaves at most this part of the error, so what all further loops change is at most d / (1 - d) of the last change.
            By::PageRank(damping) => APART_MAX * (1.0 - damping) / damping.max(0.5),
            By::Hits | By::Opic => HITS_PRECISION,
        };
        Stop { precision, loops_max: LOOPS_MAX }
    }
}

/// What a page has for OPIC.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Purse {
    /// What it has.
    pub cash: f64,
    /// What it has handed on.
    pub history: f64,
    /// It was crawled since the last time, and hands on what it has.
    pub hands_on: bool,
}

impl Default for Purse {
    /// A page more is a piece of cash more: the average page always has one.
    fn default() -> Self {
        Purse { cash: 1.0, history: 0.0, hands_on: false }
    }
}

/// An array, in memory or in a mapped file.
pub struct Flat<N>(Box<dyn Deref<Target = [N]> + Send + Sync>);

impl<N> Flat<N> {
    /// Whatever lies flat.
    pub fn new(array: impl Deref<Target = [N]> + Send + Sync + 'static) -> Flat<N> {
        Flat(Box::new(array))
    }
}

impl<N: Send + Sync + 'static> From<Vec<N>> for Flat<N> {
    fn from(array: Vec<N>) -> Flat<N> {
        Flat::new(array)
    }
}

impl<N: Send + Sync + 'static> Default for Flat<N> {
    fn default() -> Flat<N> {
        Vec::new().into()
    }
}

impl<N> Deref for Flat<N> {
    type Target = [N];

    fn deref(&self) -> &[N] {
        &self.0
    }
}

impl<N> fmt::Debug for Flat<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} numbers", self.len())
    }
}

/// For each of some pages a list of numbers: `starts[p]..starts[p + 1]` is where that of page `p` lies.
#[derive(Debug, Default)]
pub struct Rows {
    /// Where the lists begin, and where the last one ends.
    pub starts: Flat<u64>,
    /// The lists, one behind the other.
    pub numbers: Flat<u32>,
}

impl Rows {
    /// Lists in memory.
    pub fn of(lists: impl IntoIterator<Item = Vec<u32>>) -> Rows {
        let (mut starts, mut numbers) = (vec![0], Vec::new());
        for list in lists {
            numbers.extend(list);
            starts.push(numbers.len() as u64);
        }
        Rows { starts: starts.into(), numbers: numbers.into() }
    }

    /// How many lists there are.
    pub fn len(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The list of a page; pages that came later have none.
    fn list(&self, page: usize) -> &[u32] {
        match self.starts.get(page..page + 2) {
            Some([start, end]) => &self.numbers[*start as usize..*end as usize],
            _ => &[],
        }
    }

    /// Whether the lists fit together and name nothing from `end` on.
    fn is_sound(&self, end: usize) -> bool {
        let whole = self.starts.is_sorted() && self.starts.last().is_none_or(|end| *end == self.numbers.len() as u64);
        whole && self.numbers.iter().all(|number| (*number as usize) < end)
    }
}

/// Pages of another node that pages of this one link to.
#[derive(Debug, Default)]
pub struct Abroad {
    /// Their keys.
    pub names: Vec<Vec<u8>>,
    /// For each, the numbers of our pages that link to it.
    pub from: Rows,
}

/// A node's part of the graph: pages of its own slots, numbered from 0 on.
#[derive(Debug, Default)]
pub struct Share {
    /// Links between its own pages: for each page, those that link to it.
    pub into: Rows,
    /// For HITS, the other direction: for each page, where it links to. Pages of others stand behind our own, those of each member in the order of its names, members in their order.
    pub out: Rows,
    /// How many pages each page links to, wherever these are.
    pub degrees: Flat<u32>,
    /// What contents are worth by themselves; none or one for each page.
    pub content: Option<Flat<f64>>,
    /// Links to pages of others.
    pub abroad: BTreeMap<NodeId, Abroad>,
    /// What our pages had the last time, from where on it is computed; 0, or nothing, for those that had nothing.
    pub before: Flat<f64>,
    /// What they have for OPIC.
    pub purses: Vec<Purse>,
}

impl Share {
    /// The same with the other direction of its links, in memory.
    #[must_use]
    pub fn with_out(mut self) -> Share {
        let pages = self.degrees.len();
        let mut out = vec![Vec::new(); pages];
        let abroad =
            self.abroad.values().flat_map(|abroad| (0..abroad.from.len()).map(|place| abroad.from.list(place)));
        let into = (0..pages).map(|page| self.into.list(page));
        for (target, sources) in (0..).zip(into.chain(abroad)) {
            sources.iter().for_each(|source| out[*source as usize].push(target));
        }
        self.out = Rows::of(out);
        self
    }

    /// Whether its lists fit together; HITS needs both directions.
    fn is_sound(&self, by: By) -> bool {
        let pages = self.degrees.len();
        let foreign: usize = self.abroad.values().map(|abroad| abroad.from.len()).sum();
        let links: usize = self.abroad.values().map(|abroad| abroad.from.numbers.len()).sum();
        self.into.len() <= pages
            && (by != By::Hits || self.out.numbers.len() == self.into.numbers.len() + links)
            && self.into.is_sound(pages)
            && self.out.is_sound(pages + foreign)
            && self.abroad.values().all(|abroad| abroad.from.is_sound(pages))
    }
}

/// What is asked of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Question {
    /// In which ranking.
    pub ranking: u64,
    /// Of which stage.
    pub stage: u32,
    /// Which part, from 0 on.
    pub part: u32,
}

/// What a member answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// A part.
    Part {
        /// Keys of pages, in the stage of names.
        names: Vec<Vec<u8>>,
        /// Numbers, in the order of names.
        numbers: Vec<f64>,
        /// Its part of sums over all pages.
        sums: [f64; 3],
        /// There is another part.
        more: bool,
    },
    /// It is not that far.
    NotYet,
    /// It takes part in no such ranking, or no longer.
    Unknown,
}

/// Best pages that are shown at once.
pub const BEST_MAX: u32 = 10_000;

/// A ranking that somebody wants to see, whatever queues go by.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wish {
    /// What is computed.
    pub by: By,
    /// The hubs of HITS, not its authorities.
    pub hubs: bool,
    /// Only links from one domain to another count.
    pub other_domains_only: bool,
    /// What contents are worth counts, too.
    pub content: bool,
    /// Until the scores change by less than this part of their sum.
    pub precision: f64,
    /// How many of the best pages are shown.
    pub top: u32,
}

impl Wish {
    /// What is wrong with it.
    pub fn fault(&self) -> Option<String> {
        match self.by {
            By::PageRank(damping) if !(0.0..1.0).contains(&damping) => {
                Some("the damping must be at least 0 and below 1".to_owned())
            }
            _ if self.top > BEST_MAX => Some(format!("a cluster shows at most {BEST_MAX} pages at once")),
            _ => None,
        }
    }
}

/// A page among the best: its score, and its key.
pub type Best = (f64, Vec<u8>);

/// The best of what several nodes said, best first; equal ones in the order of their keys, so that the same graph is always the same list.
pub fn best_of(said: impl IntoIterator<Item = Best>, top: u32) -> Vec<Best> {
    let mut best: Vec<Best> = said.into_iter().collect();
    let better = |a: &Best, b: &Best| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1));
    let top = (top as usize).min(best.len());
    if (1..best.len()).contains(&top) {
        best.select_nth_unstable_by(top - 1, better);
    }
    best.truncate(top);
    best.sort_by(better);
    best
}

/// What nodes ask each other about rankings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RankAsk {
    /// Take part in a ranking, if you see the members and their slots as I do.
    Begin {
        /// Its number: newer ones are larger.
        number: u64,
        /// Who takes part.
        members: Vec<NodeId>,
        /// A digest of whose each slot is.
        ring: u64,
    },
    /// Give me this.
    Draw {
        /// Who asks.
        from: NodeId,
        /// What.
        question: Question,
    },
    /// Take part in a ranking that somebody wants to see, if you see the members and their slots as I do.
    BeginWish {
        /// Its number.
        number: u64,
        /// Who takes part.
        members: Vec<NodeId>,
        /// A digest of whose each slot is.
        ring: u64,
        /// What is wanted.
        wish: Wish,
    },
    /// Tell the best of your pages in that ranking.
    Best {
        /// Its number.
        number: u64,
    },
}

/// What nodes answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RankSaid {
    /// Whether it takes part.
    Begun(bool),
    /// What was asked for.
    Reply(Reply),
    /// The best pages of the node that is asked.
    Best(Vec<Best>),
}

/// What is heard of a member in the stage under way.
#[derive(Clone, Debug, Default)]
struct Hearing {
    parts: u32,
    numbers: Vec<f64>,
    sums: [f64; 3],
    is_whole: bool,
}

/// Numbers that were worked out for a stage: for each member, and our part of the sums.
#[derive(Default)]
struct Spoken {
    numbers: BTreeMap<NodeId, Vector>,
    sums: [f64; 3],
}

/// How a ranking stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It goes on.
    Goes,
    /// It has ended, after so many loops: scores are there.
    Ended(u32),
    /// There was no room for its numbers.
    Failed,
}

/// One node's part in a ranking.
pub struct Ranking {
    number: u64,
    me: NodeId,
    members: Vec<NodeId>,
    by: By,
    stop: Stop,
    share: Share,
    machine: Arc<dyn Machine + Send + Sync>,
    /// For each member, the numbers of our pages that it named.
    named: BTreeMap<NodeId, Vec<u32>>,
    stage: u32,
    heard: BTreeMap<NodeId, Hearing>,
    /// What was worked out for this stage and the one before.
    spoken: BTreeMap<u32, Spoken>,
    /// Pages of all members, and what all contents are worth.
    pages: f64,
    content: f64,
    /// Our pages, and what all members have together.
    ours: usize,
    /// PageRank, or authorities.
    scores: Vector,
    hubs: Vector,
    /// Scores and hubs as they were in the loop before, once they were; only HITS needs them.
    last: [Vector; 2],
    has_last: [bool; 2],
    /// What our pages hand on, or are worth, and the vector that is made of that.
    worth: Vector,
    next: Vector,
    /// What pages of others are worth to ours; only HITS needs it.
    foreign: Vector,
    /// Our part of the last change of scores and hubs.
    change: [f64; 2],
    standing: Standing,
    failure: Option<NoRoom>,
}

fn nothing() -> Vector {
    Box::new(Vec::new())
}

impl Ranking {
    /// Takes part in a ranking of these members, of which this node is one. What it computes is computed by `machine`.
    pub fn new(
        number: u64,
        me: NodeId,
        members: &[NodeId],
        by: By,
        stop: Stop,
        share: Share,
        machine: Arc<dyn Machine + Send + Sync>,
    ) -> Ranking {
        let mut members = members.to_vec();
        members.extend((!members.contains(&me)).then_some(me));
        members.sort();
        members.dedup();
        let spoken = BTreeMap::from([(NAMES, Spoken::default())]);
        let mut ranking = Ranking {
            number,
            me,
            members,
            by,
            stop,
            share,
            machine,
            named: BTreeMap::new(),
            stage: NAMES,
            heard: BTreeMap::new(),
            spoken,
            pages: 0.0,
            content: 0.0,
            ours: 0,
            scores: nothing(),
            hubs: nothing(),
            last: [nothing(), nothing()],
            has_last: [false; 2],
            worth: nothing(),
            next: nothing(),
            foreign: nothing(),
            change: [CHANGE_MAX; 2],
            standing: Standing::Goes,
            failure: None,
        };
        assert!(ranking.share.is_sound(by), "whoever lists its own pages lists them well");
        ranking.advance();
        ranking
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Who takes part.
    pub fn members(&self) -> &[NodeId] {
        &self.members
    }

    /// Why it failed.
    pub fn failure(&self) -> Option<&NoRoom> {
        self.failure.as_ref()
    }

    /// How it stands.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// The stage that it is in; it only grows.
    pub fn stage(&self) -> u32 {
        self.stage
    }

    /// The scores of our pages by number, and how many pages all members have together. They mean something once it has ended.
    pub fn scores(&self) -> (&[f64], u64) {
        (&self.scores, self.pages as u64)
    }

    /// What our pages have for OPIC once it has ended.
    pub fn purses(&self) -> &[Purse] {
        &self.share.purses
    }

    /// The same for the hubs of HITS.
    pub fn hubs(&self) -> &[f64] {
        &self.hubs
    }

    /// What is lacking, and from whom.
    pub fn wants(&self) -> Vec<(NodeId, Question)> {
        if self.standing != Standing::Goes {
            return Vec::new();
        }
        let lacking = self.others().filter(|member| !self.heard.get(member).is_some_and(|heard| heard.is_whole));
        let part = |member: &NodeId| self.heard.get(member).map_or(0, |heard| heard.parts);
        lacking
            .map(|member| (member, Question { ranking: self.number, stage: self.stage, part: part(&member) }))
            .collect()
    }

    fn others(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.members.iter().copied().filter(|member| *member != self.me)
    }

    /// Answers a member.
    pub fn answer(&self, from: NodeId, question: Question) -> Reply {
        let Question { ranking, stage, part } = question;
        if ranking != self.number || !self.members.contains(&from) || from == self.me {
            return Reply::Unknown;
        }
        if stage == NAMES {
            return self.names(from, part as usize);
        }
        match self.spoken.get(&stage) {
            Some(spoken) => {
                let all = spoken.numbers.get(&from).map_or(&[][..], |numbers| &numbers[..]);
                let begin = (part as usize).saturating_mul(PART_NUMBERS).min(all.len());
                let end = (begin + PART_NUMBERS).min(all.len());
                let (numbers, names) = (all[begin..end].to_vec(), Vec::new());
                Reply::Part { names, numbers, sums: spoken.sums, more: end < all.len() }
            }
            None if stage > self.stage => Reply::NotYet,
            None => Reply::Unknown,
        }
    }

    fn names(&self, to: NodeId, part: usize) -> Reply {
        let all = self.share.abroad.get(&to).map_or(&[][..], |abroad| abroad.names.as_slice());
        // Parts have no fixed length: the whole list is cut in the same places every time.
        let (mut begin, mut end, mut number) = (0, 0, 0);
        loop {
            let mut bytes = 0;
            while end < all.len() && end - begin < PART_NUMBERS && bytes < PART_BYTES {
                bytes += all[end].len() + 8;
                end += 1;
            }
            if number == part || end == all.len() {
                break;
            }
            (begin, number) = (end, number + 1);
        }
        let names = if number == part { all[begin..end].to_vec() } else { Vec::new() };
        Reply::Part { names, numbers: Vec::new(), sums: [0.0; 3], more: end < all.len() }
    }

    /// Takes in what a member answered. `number` is asked for the number of our page with a key, in the stage of names; a page that is new to us gets the next number.
    /// What was not asked for, or was asked for twice, changes nothing. Says whether anything changed.
    pub fn heard(
        &mut self,
        from: NodeId,
        question: Question,
        reply: Reply,
        mut number: impl FnMut(&[u8]) -> Option<u32>,
    ) -> bool {
        let Reply::Part { names, numbers, sums, more } = reply else { return false };
        let asked = self.wants().contains(&(from, question));
        if !asked || !sums.iter().chain(&numbers).all(|number| number.is_finite()) {
            return false;
        }
        if self.stage == NAMES {
            let named = self.named.entry(from).or_default();
            // A name that is none of ours gets no page: what is given to it is left out.
            named.extend(names.iter().map(|name| number(name).unwrap_or(u32::MAX)));
        }
        let heard = self.heard.entry(from).or_default();
        heard.numbers.extend(numbers);
        (heard.sums, heard.is_whole, heard.parts) = (sums, !more, heard.parts + 1);
        self.advance();
        true
    }

    /// Goes on as far as what was heard lets it.
    fn advance(&mut self) {
        while self.standing == Standing::Goes
            && self.others().all(|member| self.heard.get(&member).is_some_and(|heard| heard.is_whole))
        {
            let heard = std::mem::take(&mut self.heard);
            let mut sums = [0.0; 3];
            for member in &self.members {
                let part = if *member == self.me { self.spoken[&self.stage].sums } else { heard[member].sums };
                sums.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
            }
            let next = match self.stage {
                NAMES => Ok(self.counts()),
                COUNTS => self.begin(sums),
                _ => self.turn(&heard, sums),
            };
            let next = match next {
                Ok(Some(next)) => next,
                Ok(None) => return,
                Err(failure) => {
                    (self.standing, self.failure) = (Standing::Failed, Some(failure));
                    return;
                }
            };
            self.stage += 1;
            self.spoken.insert(self.stage, next);
            self.spoken.retain(|stage, _| stage + 1 >= self.stage);
        }
    }

    /// All names are known: so are our pages.
    fn counts(&mut self) -> Option<Spoken> {
        let named =
            self.named.values().flatten().filter(|number| **number != u32::MAX).map(|number| *number as usize + 1);
        self.ours = named.max().unwrap_or(0).max(self.share.degrees.len());
        self.share.purses.resize(if self.by == By::Opic { self.ours } else { 0 }, Purse::default());
        let content = self.share.content.as_ref().map_or(0.0, |content| total(content));
        Some(Spoken { numbers: BTreeMap::new(), sums: [self.ours as f64, content, 0.0] })
    }

    /// All pages are counted: the first vector is what they had, and even where that is not known. It need not sum to 1, the next one does.
    fn begin(&mut self, sums: [f64; 3]) -> Result<Option<Spoken>, NoRoom> {
        (self.pages, self.content) = (sums[0], sums[1]);
        let even = 1.0 / self.pages.max(1.0);
        let zeros = |pages| self.machine.zeros(pages);
        let of_hits = |pages| zeros(if self.by == By::Hits { pages } else { 0 });
        let foreign = self.share.abroad.values().map(|abroad| abroad.from.len()).sum();
        let (scores, worth, next) = (zeros(self.ours)?, zeros(self.ours)?, zeros(self.ours)?);
        let (hubs, last) = (of_hits(self.ours)?, [of_hits(self.ours)?, of_hits(self.ours)?]);
        (self.foreign, self.scores, self.worth, self.next) = (of_hits(foreign)?, scores, worth, next);
        (self.hubs, self.last) = (hubs, last);
        self.hubs.fill(even);
        self.scores.fill(even);
        // What is new must not begin with nothing: with HITS it would stay there.
        let fresh = if self.by == By::Hits { FRESH } else { 0.0 };
        let known = self.scores.iter_mut().zip(self.share.before.iter()).filter(|(_, before)| **before > 0.0);
        known.for_each(|(score, before)| *score = before * (1.0 - fresh) + even * fresh);
        if self.pages == 0.0 {
            self.standing = Standing::Ended(0);
            return Ok(None);
        }
        // Everybody is past the names, or nobody would have counted.
        self.share.abroad.values_mut().for_each(|abroad| abroad.names = Vec::new());
        self.speak(LOOPS).map(Some)
    }

    fn has_content(&self) -> bool {
        self.content > 0.0 && self.content.is_finite()
    }

    /// Whether a stage of HITS goes from authorities to the hubs that link to them.
    fn is_backward(stage: u32) -> bool {
        (stage - LOOPS).is_multiple_of(2)
    }

    /// Works out what our pages hand on along their links, or are worth to those that link to them.
    fn weigh(&mut self, stage: u32) {
        let (by, has_content) = (self.by, self.has_content());
        let Ranking { scores, hubs, share, worth, machine, .. } = self;
        let (scores, hubs, purses, degrees) = (&scores[..], &hubs[..], &share.purses, &share.degrees);
        let content =
            |page: usize| share.content.as_ref().and_then(|content| content.get(page)).copied().unwrap_or(0.0);
        let degree = |page: usize| f64::from(degrees.get(page).copied().unwrap_or(0));
        let backward = by == By::Hits && Self::is_backward(stage);
        let of = |page: usize| match by {
            By::PageRank(damping) => damping * scores[page] / degree(page).max(1.0),
            By::Hits if !backward => hubs[page],
            By::Hits if has_content => scores[page] * content(page),
            By::Hits => scores[page],
            By::Opic if purses[page].hands_on && degree(page) > 0.0 => purses[page].cash * TO_LINKS / degree(page),
            By::Opic => 0.0,
        };
        machine.share(worth, &|first, part| (first..).zip(part).for_each(|(page, worth)| *worth = of(page)));
    }

    /// Works out what the others need in a stage.
    fn speak(&mut self, stage: u32) -> Result<Spoken, NoRoom> {
        self.weigh(stage);
        let (worth, machine) = (&self.worth[..], &self.machine);
        let backward = self.by == By::Hits && Self::is_backward(stage);
        let mut numbers = BTreeMap::new();
        for member in self.others() {
            let given = if backward {
                let named = self.named.get(&member).map_or(&[][..], Vec::as_slice);
                let mut given = machine.zeros(named.len())?;
                machine.share(&mut given, &|first, part| {
                    for (page, given) in named[first..].iter().zip(part) {
                        *given = worth.get(*page as usize).copied().unwrap_or(0.0);
                    }
                });
                given
            } else {
                let Some(abroad) = self.share.abroad.get(&member) else { continue };
                let mut given = machine.zeros(abroad.from.len())?;
                machine.share(&mut given, &|first, part| {
                    for (place, given) in (first..).zip(part) {
                        *given = abroad.from.list(place).iter().map(|page| worth[*page as usize]).sum();
                    }
                });
                given
            };
            numbers.insert(member, given);
        }
        let first = match self.by {
            // What is handed on by pages that have links.
            By::PageRank(damping) => {
                let runs = self.scores.chunks(RUN).zip(self.share.degrees.chunks(RUN));
                let run = |(scores, degrees): (&[f64], &[u32])| {
                    let flows = scores.iter().zip(degrees).filter(|(_, degree)| **degree > 0);
                    flows.map(|(score, _)| *score).sum::<f64>()
                };
                damping * runs.map(run).sum::<f64>()
            }
            By::Hits if backward => total(&self.scores),
            By::Hits => total(&self.hubs),
            By::Opic => return Ok(Spoken { numbers, sums: self.purse_sums() }),
        };
        Ok(Spoken { numbers, sums: [first, self.change[0], self.change[1]] })
    }

    /// What goes to all pages alike, what all pages have and had, and what of it is handed on now.
    fn purse_sums(&self) -> [f64; 3] {
        let purses = &self.share.purses;
        let had: Vec<f64> = purses.iter().map(|purse| purse.cash + purse.history).collect();
        let handed: Vec<f64> = purses.iter().map(|purse| if purse.hands_on { purse.cash } else { 0.0 }).collect();
        let has_links = |page: usize| self.share.degrees.get(page).is_some_and(|degree| *degree > 0);
        let to_all = |(page, handed): (usize, &f64)| handed * if has_links(page) { 1.0 - TO_LINKS } else { 1.0 };
        let to_all: Vec<f64> = handed.iter().enumerate().map(to_all).collect();
        [total(&to_all), total(&had), total(&handed)]
    }

    /// Everybody was heard: what was handed on has arrived.
    fn settle_purses(&mut self, heard: &BTreeMap<NodeId, Hearing>, [to_all, had, handed]: [f64; 3]) {
        self.gather(heard, [to_all, had, handed], false);
        let all = self.share.purses.iter_mut().zip(self.scores.iter_mut()).zip(self.next.iter());
        for ((purse, score), received) in all {
            if purse.hands_on {
                *purse = Purse { cash: 0.0, history: purse.history + purse.cash, hands_on: false };
            }
            purse.cash += received + to_all / self.pages;
            *score = (purse.cash + purse.history) / (had + handed);
        }
        self.standing = Standing::Ended(1);
    }

    /// Everybody was heard in this stage: the next vector, unless the last one was good enough.
    fn turn(&mut self, heard: &BTreeMap<NodeId, Hearing>, mut sums: [f64; 3]) -> Result<Option<Spoken>, NoRoom> {
        if self.by == By::Opic {
            self.settle_purses(heard, sums);
            return Ok(None);
        }
        let is_hits = self.by == By::Hits;
        let halves = if is_hits { 2 } else { 1 };
        let loops = (self.stage - LOOPS) / halves;
        let backward = is_hits && Self::is_backward(self.stage);
        if is_hits {
            // What was sent is not divided by its sum yet; whoever has heard all sums does that.
            let (vector, place) = if backward { (&mut self.scores, 0) } else { (&mut self.hubs, 1) };
            let (even, last) = (1.0 / self.pages, &mut self.last[place]);
            vector.iter_mut().for_each(|number| *number = if sums[0] > 0.0 { *number / sums[0] } else { even });
            self.change[place] = if self.has_last[place] { distance(&vector[..], &last[..]) } else { CHANGE_MAX };
            self.has_last[place] = true;
            last.copy_from_slice(&vector[..]);
        }
        let change = if is_hits { sums[1].max(sums[2]) } else { sums[1] };
        let begins_loop = (self.stage - LOOPS).is_multiple_of(halves);
        if begins_loop && loops > 0 && (change <= self.stop.precision || loops >= self.stop.loops_max) {
            self.standing = Standing::Ended(loops);
            return Ok(None);
        }
        if is_hits && sums[0] <= 0.0 {
            sums[0] = 1.0; // nothing links to anything: nothing was sent
        }
        self.gather(heard, sums, backward);
        if !is_hits {
            self.change[0] = distance(&self.next, &self.scores);
        }
        std::mem::swap(if backward { &mut self.hubs } else { &mut self.scores }, &mut self.next);
        self.speak(self.stage + 1).map(Some)
    }

    /// The next vector of our pages, from what was heard and what our own pages hand on.
    fn gather(&mut self, heard: &BTreeMap<NodeId, Hearing>, sums: [f64; 3], backward: bool) {
        if self.by == By::Hits {
            self.weigh(self.stage); // its vector was divided by its sum since
        }
        let has_content = self.has_content();
        let Ranking { share, worth, next, foreign, machine, .. } = self;
        let (worth, next) = (&worth[..], &mut next[..]);
        let scale = if self.by == By::Hits { 1.0 / sums[0] } else { 1.0 };
        if backward {
            let mut places = foreign.iter_mut();
            for (member, abroad) in &share.abroad {
                let numbers = heard.get(member).map_or(&[][..], |heard| heard.numbers.as_slice());
                let numbers = numbers.iter().map(|number| number * scale).chain(std::iter::repeat(0.0));
                places.by_ref().take(abroad.from.len()).zip(numbers).for_each(|(place, number)| *place = number);
            }
            let (foreign, known, out) = (&foreign[..], share.degrees.len(), &share.out);
            let of = |page: u32| match (page as usize).checked_sub(known) {
                None => worth[page as usize],
                Some(place) => foreign[place],
            };
            return machine.share(next, &|first, part| {
                for (page, sum) in (first..).zip(part) {
                    *sum = out.list(page).iter().map(|page| of(*page)).sum();
                }
            });
        }
        let into = &share.into;
        machine.share(next, &|first, part| {
            for (page, sum) in (first..).zip(part) {
                *sum = into.list(page).iter().map(|source| worth[*source as usize]).sum();
            }
        });
        for (member, heard) in heard {
            let named = self.named.get(member).map_or(&[][..], Vec::as_slice);
            for (page, number) in named.iter().zip(&heard.numbers) {
                if let Some(sum) = next.get_mut(*page as usize) {
                    *sum += number * scale;
                }
            }
        }
        if let By::PageRank(_) = self.by {
            let rest = 1.0 - sums[0];
            if has_content {
                let weighed = next.iter_mut().zip(share.content.iter().flat_map(|content| content.iter()));
                weighed.for_each(|(score, content)| *score += rest * content / self.content);
            } else {
                next.iter_mut().for_each(|score| *score += rest / self.pages);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::super::hits::Hits;
    use super::super::pagerank::PageRank;
    use super::super::{Graph, Lists, OneCore, Scorer};
    use super::*;

    const EXACT: Stop = Stop { precision: 1e-10, loops_max: 500 };

    /// A graph that every node keeps as a whole, as replicas of all slots would; whose a page is goes by the members.
    struct World {
        pages: u32,
        links: Vec<(u32, u32)>,
        content: Option<Vec<f64>>,
    }

    impl World {
        fn random(random: &mut ChaCha8Rng) -> World {
            let pages = random.random_range(1..60);
            let count = random.random_range(0..pages * 4);
            let mut links: Vec<(u32, u32)> =
                (0..count).map(|_| (random.random_range(0..pages), random.random_range(0..pages))).collect();
            links.sort_unstable();
            links.dedup();
            let content = random.random_bool(0.5).then(|| (0..pages).map(|_| random.random_range(0.0..1.0)).collect());
            World { pages, links, content }
        }

        fn owner(page: u32, members: &[NodeId]) -> NodeId {
            members[(page as usize * 7 + 3) % members.len()]
        }

        /// Pages that a node knows of its own accord: those that have links, and those that its own pages link to.
        fn share(&self, me: NodeId, members: &[NodeId]) -> (Share, Vec<u32>) {
            let mine = |page: u32| Self::owner(page, members) == me;
            let links: Vec<(u32, u32)> = self.links.iter().copied().filter(|(from, _)| mine(*from)).collect();
            let mut pages: Vec<u32> =
                links.iter().flat_map(|(from, to)| [*from, *to]).filter(|page| mine(*page)).collect();
            // Pages without any link are known to whoever has them.
            let alone = (0..self.pages).filter(|page| !self.links.iter().any(|(from, to)| from == page || to == page));
            pages.extend(alone.filter(|page| mine(*page)));
            pages.sort_unstable();
            pages.dedup();
            let number = |page: u32| pages.binary_search(&page).expect("a page of ours") as u32;
            let mut into: Vec<Vec<u32>> = vec![Vec::new(); pages.len()];
            let mut degrees = vec![0; pages.len()];
            let mut foreign: BTreeMap<NodeId, BTreeMap<u32, Vec<u32>>> = BTreeMap::new();
            for (from, to) in links {
                degrees[number(from) as usize] += 1;
                if mine(to) {
                    into[number(to) as usize].push(number(from));
                } else {
                    foreign.entry(Self::owner(to, members)).or_default().entry(to).or_default().push(number(from));
                }
            }
            let abroad = foreign.into_iter().map(|(node, named)| {
                let names = named.keys().map(|page| page.to_be_bytes().to_vec()).collect();
                (node, Abroad { names, from: Rows::of(named.into_values()) })
            });
            let of = |content: &Vec<f64>| pages.iter().map(|page| content[*page as usize]).collect::<Vec<f64>>();
            let (content, abroad) = (self.content.as_ref().map(|content| of(content).into()), abroad.collect());
            let share = Share { into: Rows::of(into), degrees: degrees.into(), content, abroad, ..Share::default() };
            (share.with_out(), pages)
        }

        /// What one node alone computes.
        fn oracle(&self, by: By) -> Vec<f64> {
            let pages = self.pages as usize;
            let lists = |of: fn(&(u32, u32)) -> (u32, u32)| {
                let mut sorted: Vec<(u32, u32)> = self.links.iter().map(of).collect();
                sorted.sort_unstable();
                let start = |page: usize| sorted.partition_point(|(of, _)| (*of as usize) < page) as u64;
                (
                    (0..=pages).map(start).collect::<Vec<u64>>(),
                    sorted.iter().map(|(_, other)| *other).collect::<Vec<u32>>(),
                )
            };
            let (out, into) = (lists(|link| *link), lists(|(from, to)| (*to, *from)));
            let degrees: Vec<u32> = out.0.windows(2).map(|ends| (ends[1] - ends[0]) as u32).collect();
            let graph = Graph {
                into: Lists::new(&into.0, &into.1).unwrap(),
                degrees: &degrees,
                out: Lists::new(&out.0, &out.1),
                content: self.content.as_deref(),
            };
            let mut scorer: Box<dyn Scorer> = match by {
                By::PageRank(damping) => Box::new(PageRank::new(damping)),
                By::Hits => Box::<Hits>::default(),
                By::Opic => unreachable!("it goes by the order of the crawl"),
            };
            scorer.update(&graph, &EXACT, &OneCore).unwrap();
            scorer.scores().to_vec()
        }
    }

    /// A node: its part in the ranking, and the pages behind its numbers.
    struct Node {
        ranking: Ranking,
        pages: Vec<u32>,
    }

    fn start(world: &World, number: u64, members: &[NodeId], by: By) -> BTreeMap<NodeId, Node> {
        let node = |me: &NodeId| {
            let (share, pages) = world.share(*me, members);
            // What nobody has a content score for is worth nothing by itself; here the oracle has one for every page.
            (*me, Node { ranking: Ranking::new(number, *me, members, by, EXACT, share, Arc::new(OneCore)), pages })
        };
        members.iter().map(node).collect()
    }

    /// Lets the nodes ask each other in a random order, with answers lost, late and twice, until all have ended or `steps` are over.
    fn run(nodes: &mut BTreeMap<NodeId, Node>, world: &World, random: &mut ChaCha8Rng, steps: usize) -> bool {
        let mut late: Vec<(NodeId, NodeId, Question, Reply)> = Vec::new();
        for _ in 0..steps {
            if nodes.values().all(|node| node.ranking.standing() != Standing::Goes) {
                return true;
            }
            let names: Vec<NodeId> = nodes.keys().copied().collect();
            let asks = names[random.random_range(0..names.len())];
            let wants = nodes[&asks].ranking.wants();
            if !wants.is_empty() {
                let (of, question) = wants[random.random_range(0..wants.len())];
                let Some(asked) = nodes.get(&of) else { continue }; // it is dead
                let reply = asked.ranking.answer(asks, question);
                assert_ne!(reply, Reply::Unknown, "nobody is two stages behind");
                late.push((asks, of, question, reply));
            }
            if !late.is_empty() {
                let at = random.random_range(0..late.len());
                let (to, from, question, reply) = match random.random_range(0..10) {
                    0 => {
                        late.swap_remove(at); // lost
                        continue;
                    }
                    1 => late[at].clone(), // and once more, some time
                    _ => late.swap_remove(at),
                };
                let Some(node) = nodes.get_mut(&to) else { continue };
                let pages = &mut node.pages;
                node.ranking.heard(from, question, reply, |name| {
                    let page = u32::from_be_bytes(name.try_into().ok()?);
                    assert!(page < world.pages);
                    let known = pages.iter().position(|known| *known == page);
                    Some(known.unwrap_or_else(|| {
                        pages.push(page);
                        pages.len() - 1
                    }) as u32)
                });
            }
            late.truncate(200);
        }
        false
    }

    fn assert_is_oracle(nodes: &BTreeMap<NodeId, Node>, world: &World, by: By, what: &str) {
        let mut scores = vec![f64::NAN; world.pages as usize];
        for node in nodes.values() {
            let (found, pages) = node.ranking.scores();
            assert_eq!((found.len(), pages), (node.pages.len(), u64::from(world.pages)), "{what}");
            node.pages.iter().zip(found).for_each(|(page, score)| scores[*page as usize] = *score);
        }
        let apart = distance(&scores, &world.oracle(by));
        assert!(apart < 1e-6, "{what}: {apart} apart");
    }

    #[test]
    fn several_nodes_compute_what_one_would_whatever_is_lost_or_late() {
        for seed in 0..150 {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            // Contents of pages that only others know are not told: personalised by content only where each page is crawled.
            let world = World { content: None, ..World::random(&mut random) };
            for by in [By::PageRank(0.85), By::Hits] {
                let members: Vec<NodeId> = (1..=random.random_range(1..6)).map(NodeId).collect();
                let mut nodes = start(&world, 7, &members, by);
                let what = format!("seed {seed}, {} nodes, {by:?}", members.len());
                assert!(run(&mut nodes, &world, &mut random, 400_000), "{what} does not end");
                assert_is_oracle(&nodes, &world, by, &what);
            }
        }
    }

    #[test]
    fn a_node_dies_mid_way_and_the_others_come_to_the_same_result() {
        for seed in 0..60 {
            let mut random = ChaCha8Rng::seed_from_u64(1_000 + seed);
            let world = World { content: None, ..World::random(&mut random) };
            let by = if seed % 2 == 0 { By::PageRank(0.85) } else { By::Hits };
            let members: Vec<NodeId> = (1..=random.random_range(2..6)).map(NodeId).collect();
            let mut nodes = start(&world, 7, &members, by);
            let steps = random.random_range(0..500);
            if run(&mut nodes, &world, &mut random, steps) {
                continue; // it was quick
            }
            let dead = members[random.random_range(0..members.len())];
            nodes.remove(&dead);
            let what = format!("seed {seed}");
            assert!(
                !run(&mut nodes, &world, &mut random, 2_000) || nodes.is_empty(),
                "{what}: without one member nobody ends"
            );
            // Who is left has all slots among them.
            let rest: Vec<NodeId> = members.iter().copied().filter(|member| *member != dead).collect();
            let mut nodes = start(&world, 8, &rest, by);
            assert!(run(&mut nodes, &world, &mut random, 400_000), "{what} does not end");
            assert_is_oracle(&nodes, &world, by, &what);
        }
    }

    #[test]
    fn contents_personalise_over_nodes_too() {
        for seed in 0..40 {
            let mut random = ChaCha8Rng::seed_from_u64(2_000 + seed);
            let world = World::random(&mut random);
            // Every page links to itself, so that every page is known to its own node.
            let mut links: Vec<(u32, u32)> =
                world.links.iter().copied().chain((0..world.pages).map(|page| (page, page))).collect();
            links.sort_unstable();
            links.dedup();
            let world = World { links, ..world };
            for by in [By::PageRank(0.85), By::Hits] {
                let members: Vec<NodeId> = (1..=random.random_range(1..4)).map(NodeId).collect();
                let mut nodes = start(&world, 7, &members, by);
                assert!(run(&mut nodes, &world, &mut random, 400_000));
                assert_is_oracle(&nodes, &world, by, &format!("seed {seed} {by:?}"));
            }
        }
    }

    #[test]
    fn a_second_ranking_begins_where_the_first_ended() {
        let mut random = ChaCha8Rng::seed_from_u64(3_000);
        let world = World { content: None, ..World::random(&mut random) };
        let members: Vec<NodeId> = (1..=3).map(NodeId).collect();
        for by in [By::PageRank(0.85), By::Hits] {
            let loops = |nodes: &BTreeMap<NodeId, Node>| match nodes[&members[0]].ranking.standing() {
                Standing::Ended(loops) => loops,
                Standing::Goes | Standing::Failed => panic!("it has ended"),
            };
            let mut nodes = start(&world, 7, &members, by);
            assert!(run(&mut nodes, &world, &mut random, 400_000));
            let mut again = BTreeMap::new();
            for (me, node) in &nodes {
                let (share, pages) = world.share(*me, &members);
                let scores = node.ranking.scores().0[..pages.len()].to_vec();
                let ranking = Ranking::new(
                    8,
                    *me,
                    &members,
                    by,
                    EXACT,
                    Share { before: scores.into(), ..share },
                    Arc::new(OneCore),
                );
                again.insert(*me, Node { ranking, pages });
            }
            assert!(run(&mut again, &world, &mut random, 400_000));
            assert_is_oracle(&again, &world, by, &format!("{by:?}"));
            assert!(loops(&again) < loops(&nodes), "{by:?}: {} and {} loops", loops(&again), loops(&nodes));
        }
    }

    #[test]
    fn cash_goes_over_to_pages_of_other_nodes_and_none_is_lost() {
        for seed in 0..100 {
            let mut random = ChaCha8Rng::seed_from_u64(4_000 + seed);
            let world = World { content: None, ..World::random(&mut random) };
            let cash: Vec<f64> = (0..world.pages).map(|_| random.random_range(0.0..3.0)).collect();
            let handing: Vec<bool> = (0..world.pages).map(|_| random.random_bool(0.5)).collect();
            let settled = |members: &[NodeId], random: &mut ChaCha8Rng| {
                let mut nodes = BTreeMap::new();
                for me in members {
                    let (mut share, mut pages) = world.share(*me, members);
                    // Pages that only others link to are known here because they were crawled.
                    let more: Vec<u32> = (0..world.pages)
                        .filter(|page| World::owner(*page, members) == *me && !pages.contains(page))
                        .collect();
                    pages.extend(more);
                    let mut degrees = share.degrees.to_vec();
                    degrees.resize(pages.len(), 0);
                    share.degrees = degrees.into();
                    let purse = |page: &u32| {
                        let (cash, hands_on) = (cash[*page as usize], handing[*page as usize]);
                        Purse { cash, history: 0.5, hands_on }
                    };
                    share.purses = pages.iter().map(purse).collect();
                    nodes.insert(
                        *me,
                        Node {
                            ranking: Ranking::new(7, *me, members, By::Opic, EXACT, share, Arc::new(OneCore)),
                            pages,
                        },
                    );
                }
                assert!(run(&mut nodes, &world, random, 400_000));
                let (mut scores, mut left) = (vec![f64::NAN; world.pages as usize], 0.0);
                for node in nodes.values() {
                    assert_eq!(node.ranking.standing(), Standing::Ended(1));
                    let found = node.pages.iter().zip(node.ranking.scores().0);
                    found.for_each(|(page, score)| scores[*page as usize] = *score);
                    left += node.ranking.purses().iter().map(|purse| purse.cash).sum::<f64>();
                }
                assert!((left - cash.iter().sum::<f64>()).abs() < 1e-9, "seed {seed}: {left} of {cash:?}");
                scores
            };
            let one = settled(&[NodeId(1)], &mut random);
            let members: Vec<NodeId> = (1..=random.random_range(2..6)).map(NodeId).collect();
            let several = settled(&members, &mut random);
            assert!((total(&one) - 1.0).abs() < 1e-9 && distance(&one, &several) < 1e-9, "seed {seed}");
        }
    }

    #[test]
    fn the_best_of_several_nodes_are_the_best_of_all() {
        let said = [(0.1, vec![3]), (0.5, vec![9]), (0.1, vec![1]), (0.3, vec![4])];
        let best = |top| best_of(said.clone(), top).into_iter().map(|(_, key)| key[0]).collect::<Vec<u8>>();
        assert_eq!((best(0), best(3), best(9)), (vec![], vec![9, 4, 1], vec![9, 4, 1, 3]));
    }

    #[test]
    fn long_lists_go_over_in_parts() {
        // Everybody links to everything of the other node.
        let (ours, theirs) = (2u32, PART_NUMBERS as u32 + 100);
        let names = (0..theirs).map(|page| [page.to_be_bytes().to_vec(), vec![0; 60]].concat()).collect::<Vec<_>>();
        let from = Rows::of((0..theirs).map(|_| (0..ours).collect()));
        let abroad = BTreeMap::from([(NodeId(2), Abroad { names, from })]);
        let share = Share { degrees: vec![theirs; 2].into(), abroad, ..Share::default() };
        let members = [NodeId(1), NodeId(2)];
        let by = By::PageRank(0.85);
        let mut one = Ranking::new(1, NodeId(1), &members, by, EXACT, share, Arc::new(OneCore));
        let mut two = Ranking::new(1, NodeId(2), &members, by, EXACT, Share::default(), Arc::new(OneCore));
        let mut parts = 0;
        while one.standing() == Standing::Goes || two.standing() == Standing::Goes {
            for (of, question) in one.wants() {
                let reply = two.answer(NodeId(1), question);
                one.heard(of, question, reply, |_| None);
            }
            for (of, question) in two.wants() {
                let reply = one.answer(NodeId(2), question);
                parts += u32::from(question.stage == NAMES);
                two.heard(of, question, reply, |name| Some(u32::from_be_bytes(name[..4].try_into().unwrap())));
            }
        }
        assert!(parts > 8, "{parts} parts of names");
        let all = total(one.scores().0) + total(two.scores().0);
        assert!((all - 1.0).abs() < 1e-9 && two.scores().0.len() == theirs as usize, "{all}");
    }

    #[test]
    fn strangers_and_other_rankings_are_told_nothing() {
        let members = [NodeId(1), NodeId(2)];
        let ranking = Ranking::new(5, NodeId(1), &members, By::Hits, EXACT, Share::default(), Arc::new(OneCore));
        let question = Question { ranking: 5, stage: 0, part: 0 };
        assert_eq!(ranking.answer(NodeId(3), question), Reply::Unknown);
        assert_eq!(ranking.answer(NodeId(2), Question { ranking: 4, ..question }), Reply::Unknown);
        assert_eq!(ranking.answer(NodeId(2), Question { stage: 9, ..question }), Reply::NotYet);
        assert!(matches!(
            ranking.answer(NodeId(2), Question { part: u32::MAX, ..question }),
            Reply::Part { more: false, .. }
        ));
    }
}
