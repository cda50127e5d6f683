//! PageRank: where somebody is who follows links at random, and now and then, or where a page has none, begins anew.
//!
//! Begins anew anywhere, or, if pages have content scores, there in proportion to them (personalised). What pages without
//! links have goes the same way. Damping 0.85 as in the paper.

use std::borrow::Cow;

use super::{Computed, Graph, Machine, NoRoom, Scorer, Stop, Vector, distance, gather, grown, is_sound, total};

/// How often a link is followed instead of beginning anew.
pub const DAMPING: f64 = 0.85;

/// The scorer.
pub struct PageRank {
    damping: f64,
    scores: Vector,
}

impl PageRank {
    /// A scorer of no pages; `damping` is brought between 0 and 1.
    pub fn new(damping: f64) -> PageRank {
        PageRank { damping: damping.clamp(0.0, 1.0), scores: Box::new(Vec::new()) }
    }
}

impl Default for PageRank {
    fn default() -> Self {
        PageRank::new(DAMPING)
    }
}

impl Scorer for PageRank {
    fn update(&mut self, graph: &Graph<'_>, stop: &Stop, machine: &dyn Machine) -> Result<Computed, NoRoom> {
        let pages = graph.into.len();
        let mut done = Computed { loops: 0, change: 0.0 };
        if pages == 0 {
            return Ok(done);
        }
        let (mut shares, mut next) = (machine.zeros(pages)?, machine.zeros(pages)?);
        self.scores = grown(&self.scores, pages, machine)?;
        let content = graph.content();
        while done.loops < stop.loops_max {
            let (scores, damping) = (&self.scores, self.damping);
            machine.share(&mut shares, &|first, part| {
                for (page, share) in (first..).zip(part) {
                    // A page without links hands nothing on: what it has is in the rest below.
                    *share = damping * scores[page] / f64::from(graph.degrees[page].max(1));
                }
            });
            gather(graph.into, &shares, &mut next, machine);
            let rest = 1.0 - total(&next);
            match content {
                Some((content, sum)) => {
                    next.iter_mut().zip(content).for_each(|(score, content)| *score += rest * content / sum)
                }
                None => next.iter_mut().for_each(|score| *score += rest / pages as f64),
            }
            done.loops += 1;
            done.change = distance(&next, &self.scores);
            std::mem::swap(&mut self.scores, &mut next);
            if done.change <= stop.precision {
                break;
            }
        }
        Ok(done)
    }

    fn scores(&self) -> &[f64] {
        &self.scores
    }

    fn state(&self) -> Cow<'_, [f64]> {
        Cow::Borrowed(&self.scores)
    }

    fn resume(&mut self, state: Vector) {
        if is_sound(&state) {
            self.scores = state;
        }
    }
}
