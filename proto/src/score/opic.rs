//! OPIC (on-line page importance computation): every page has some cash and hands it to the pages it links to when it is
//! crawled. What a page has had so far is how important it is.
//!
//! Nothing is computed over the graph: a crawled page costs as much as it has links. A part of what a page hands on goes to
//! all pages alike, and so does everything that a page without links has; otherwise cash would gather where no link leads
//! out. That is kept as one number for all pages and what each has already taken of it.

use std::borrow::Cow;

use super::{Computed, Graph, Machine, NoRoom, Scorer, Stop, Vector, is_sound, total};

/// What a page hands to the pages it links to; the rest goes to all. As PageRank's damping, which OPIC estimates.
pub(super) const TO_LINKS: f64 = super::pagerank::DAMPING;

/// A page's cash, what it has had, and how much of what goes to all it has taken.
#[derive(Clone, Copy, Debug, Default)]
struct Purse {
    cash: f64,
    history: f64,
    taken: f64,
}

/// The scorer.
#[derive(Clone, Debug, Default)]
pub struct Opic {
    purses: Vec<Purse>,
    /// What every page could have taken since the beginning.
    for_each: f64,
    scores: Vec<f64>,
}

impl Opic {
    /// Takes up to `pages` pages in.
    pub(super) fn grow(&mut self, pages: usize) {
        // A page more is a piece of cash more: the average page always has one.
        if pages > self.purses.len() {
            self.purses.resize(pages, Purse { cash: 1.0, history: 0.0, taken: self.for_each });
        }
    }

    fn take(&mut self, page: usize) -> &mut Purse {
        let purse = &mut self.purses[page];
        purse.cash += self.for_each - purse.taken;
        purse.taken = self.for_each;
        purse
    }
}

impl Scorer for Opic {
    fn crawled(&mut self, page: u32, links: &[u32]) {
        let highest = links.iter().chain([&page]).max().copied().unwrap_or(page);
        self.grow(highest as usize + 1);
        let purse = self.take(page as usize);
        let cash = std::mem::take(&mut purse.cash);
        purse.history += cash;
        let to_links = if links.is_empty() { 0.0 } else { cash * TO_LINKS };
        for link in links {
            self.purses[*link as usize].cash += to_links / links.len() as f64;
        }
        self.for_each += (cash - to_links) / self.purses.len() as f64;
    }

    fn lacks(&self, page: u32) -> bool {
        // Every page has some cash, and has handed it on if it was told of.
        self.purses.get(page as usize).is_none_or(|purse| purse.history == 0.0)
    }

    fn needs_graph(&self) -> bool {
        false
    }

    fn update(&mut self, _graph: &Graph<'_>, _stop: &Stop, _machine: &dyn Machine) -> Result<Computed, NoRoom> {
        let for_each = self.for_each;
        self.scores.clear();
        self.scores.extend(self.purses.iter().map(|purse| purse.history + purse.cash + (for_each - purse.taken)));
        let sum = total(&self.scores);
        self.scores.iter_mut().for_each(|score| *score /= sum);
        Ok(Computed { loops: 0, change: 0.0 })
    }

    fn scores(&self) -> &[f64] {
        &self.scores
    }

    fn state(&self) -> Cow<'_, [f64]> {
        let both = |purse: &Purse| [purse.cash + (self.for_each - purse.taken), purse.history];
        Cow::Owned(self.purses.iter().flat_map(both).collect())
    }

    fn resume(&mut self, state: Vector) {
        if is_sound(&state) && state.len().is_multiple_of(2) {
            let purse = |both: &[f64]| Purse { cash: both[0], history: both[1], taken: 0.0 };
            self.purses = state.chunks(2).map(purse).collect();
            self.for_each = 0.0;
        }
    }
}
