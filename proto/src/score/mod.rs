//! How much a page is worth, by the links between pages.
//!
//! A [`Scorer`] turns a [`Graph`] into one number a page; all numbers of a graph sum to 1. [`pagerank`] and [`hits`] are
//! computed over the whole graph, again and again until the numbers hardly change, and begin where the last time ended.
//! [`opic`] is cheap and never computed: every crawled page hands on what it has. [`priority`] says what a score means in
//! a queue, [`link_row`] how the links of a page lie on disk. [`best_first`] picks pages over many domains for crawlers with fetchers of their own, as far as
//! the [`temperature`] of each domain lets it; [`revisit`] says when a page is fetched again. [`rounds`] computes scores over several nodes, [`patience`] says how long they wait for each other.
//!
//! The core knows neither threads nor files. Vectors and lists come as slices, so that whoever calls may have mapped them
//! from a file. Room for vectors and the loop over all pages are a [`Machine`]'s, which may map files and share the pages among threads:
//! each page's sum is made by one of them in the order of its links, so the result is the same on any number of cores.

pub mod best_first;
pub mod hits;
pub mod link_row;
pub mod opic;
pub mod pagerank;
pub mod patience;
pub mod priority;
pub mod revisit;
pub mod rounds;
pub mod temperature;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ops::DerefMut;

/// Numbers that are added up in one go; sums of such runs are added again. The error of a sum of a billion numbers stays
/// below what a run and the list of runs lose, some 10^-10 of it.
const RUN: usize = 4_096;

/// Pages that one call of [`Machine::share`] hands to a thread at a time: some ten thousand links, so that the threads end
/// together although pages differ.
pub const PART_PAGES: usize = 8_192;

/// For each page a list of pages, as two flat arrays.
#[derive(Clone, Copy, Debug)]
pub struct Lists<'a> {
    starts: &'a [u64],
    pages: &'a [u32],
}

impl<'a> Lists<'a> {
    /// `starts[p]..starts[p + 1]` is where the list of page `p` lies in `pages`. `None` if that does not fit together, or a
    /// page is named that has no list.
    pub fn new(starts: &'a [u64], pages: &'a [u32]) -> Option<Lists<'a>> {
        let count = starts.len().checked_sub(1)?;
        let ordered = starts.is_sorted() && starts[0] == 0 && starts[count] == pages.len() as u64;
        let known = pages.iter().all(|page| (*page as usize) < count);
        (ordered && known).then_some(Lists { starts, pages })
    }

    /// The list of a page.
    pub fn of(&self, page: usize) -> &'a [u32] {
        &self.pages[self.starts[page] as usize..self.starts[page + 1] as usize]
    }

    /// How many pages have a list.
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// Whether there are no pages.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many links all lists have.
    pub fn links(&self) -> usize {
        self.pages.len()
    }
}

/// What a score is computed from.
#[derive(Clone, Copy, Debug)]
pub struct Graph<'a> {
    /// For each page, the pages that link to it.
    pub into: Lists<'a>,
    /// For each page, how many pages it links to.
    pub degrees: &'a [u32],
    /// For each page, the pages it links to; who does not ask for it ([`Scorer::needs_out`]) does not get it.
    pub out: Option<Lists<'a>>,
    /// For each page, what its content is worth by itself; no page's is negative.
    pub content: Option<&'a [f64]>,
}

impl<'a> Graph<'a> {
    /// The content scores and their sum, if they say anything: all zero is the same as none.
    fn content(&self) -> Option<(&'a [f64], f64)> {
        let content = self.content?;
        let sum = total(content);
        (sum > 0.0 && sum.is_finite()).then_some((content, sum))
    }
}

/// When to stop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stop {
    /// Stop when the numbers change by less than this part of their sum (relative L1 change). A bound on the change of single
    /// numbers, as it is often used, is no bound at all when a number is a millionth of the sum.
    pub precision: f64,
    /// Stop after so many loops in any case; the numbers are good all the same, only less exact.
    pub loops_max: u32,
}

impl Default for Stop {
    /// One in a million: of 20,000 pages all are then in their final order but for neighbours (Spearman above 0.9999, `tests/score_python.rs`).
    fn default() -> Self {
        Stop { precision: 1e-6, loops_max: 100 }
    }
}

/// How a computation ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Computed {
    /// Loops that were made.
    pub loops: u32,
    /// Relative change in the last of them.
    pub change: f64,
}

/// A number for each page, in memory or in a mapped file.
pub type Vector = Box<dyn DerefMut<Target = [f64]> + Send + Sync>;

/// There is no room for a vector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no room for the numbers of {pages} pages: {reason}")]
pub struct NoRoom {
    /// How many were asked for.
    pub pages: usize,
    /// What the system said.
    pub reason: String,
}

/// What a computation is done with: room for its vectors, and threads that share the pages of one.
pub trait Machine {
    /// A vector of zeros; in memory unless it says otherwise.
    fn zeros(&self, pages: usize) -> Result<Vector, NoRoom> {
        Ok(Box::new(vec![0.0; pages]))
    }

    /// Calls `fill` with every part of `vector` once, each with the number of its first page, in any order and at the same
    /// time if it likes.
    fn share(&self, vector: &mut [f64], fill: &(dyn Fn(usize, &mut [f64]) + Sync));
}

/// The thread that asks, and no other.
#[derive(Clone, Copy, Debug, Default)]
pub struct OneCore;

impl Machine for OneCore {
    fn share(&self, vector: &mut [f64], fill: &(dyn Fn(usize, &mut [f64]) + Sync)) {
        fill(0, vector);
    }
}

/// Gives every page of a graph a number.
pub trait Scorer: Send {
    /// A page was crawled and has these links. Only a scorer that goes along with the crawl cares.
    fn crawled(&mut self, _page: u32, _links: &[u32]) {}

    /// Whether a page that was crawled has never been told to it: what it kept last is older than the crawl.
    fn lacks(&self, _page: u32) -> bool {
        false
    }

    /// Whether it is computed over the graph at all.
    fn needs_graph(&self) -> bool {
        true
    }

    /// Whether it needs the links in the direction in which they lead, too.
    fn needs_out(&self) -> bool {
        false
    }

    /// Brings the numbers up to date with the graph, from where they are; pages that are new begin with what an average page has. Without room
    /// for that they stay as they are.
    fn update(&mut self, graph: &Graph<'_>, stop: &Stop, machine: &dyn Machine) -> Result<Computed, NoRoom>;

    /// The number of each page.
    fn scores(&self) -> &[f64];

    /// All that it must be given to go on after a start: some numbers for each page, one page after the other.
    fn state(&self) -> Cow<'_, [f64]>;

    /// Goes on with such a state; one that is not of this scorer, or is no state at all, is left alone.
    fn resume(&mut self, state: Vector);
}

/// Sums up in runs, so that small numbers are not lost beside a large sum.
pub fn total(numbers: &[f64]) -> f64 {
    numbers.chunks(RUN).map(|run| run.iter().sum::<f64>()).sum()
}

/// How far two vectors are from each other, added up over all pages.
pub fn distance(a: &[f64], b: &[f64]) -> f64 {
    let run = |(a, b): (&[f64], &[f64])| a.iter().zip(b).map(|(a, b)| (a - b).abs()).sum::<f64>();
    a.chunks(RUN).zip(b.chunks(RUN)).map(run).sum()
}

/// For each page, adds up what the pages of its list are worth.
fn gather(lists: Lists<'_>, worth: &[f64], sums: &mut [f64], machine: &dyn Machine) {
    machine.share(sums, &|first, part| {
        for (page, sum) in (first..).zip(part) {
            *sum = lists.of(page).iter().map(|other| worth[*other as usize]).sum();
        }
    });
}

/// Makes a vector sum to 1; one that has nothing becomes uniform.
fn normalise(vector: &mut [f64]) {
    let (sum, count) = (total(vector), vector.len());
    if sum > 0.0 && sum.is_finite() {
        vector.iter_mut().for_each(|number| *number /= sum);
    } else {
        vector.fill(1.0 / count as f64);
    }
}

/// Whether these can be numbers of pages: finite, none negative.
fn is_sound(numbers: &[f64]) -> bool {
    numbers.iter().all(|number| number.is_finite() && *number >= 0.0)
}

/// A vector of so many pages that has what another had, sums to 1, and gives pages that the other lacks what an average page has.
fn grown(vector: &[f64], pages: usize, machine: &dyn Machine) -> Result<Vector, NoRoom> {
    let mut grown = machine.zeros(pages)?;
    let (known, new) = grown.split_at_mut(vector.len().min(pages));
    known.copy_from_slice(&vector[..known.len()]);
    new.fill(if known.is_empty() { 1.0 } else { total(known) / known.len() as f64 });
    normalise(&mut grown);
    Ok(grown)
}
