//! PageRank: where somebody is who follows links at random, and now and then, or where a page has none, begins anew.
//!
//! Begins anew anywhere, or, if pages have content scores, there in proportion to them (personalised). What pages without
//! links have goes the same way. Damping 0.85 as in the paper.

use super::{Computed, Cores, Graph, Scorer, Stop, distance, gather, grow_even, is_sound, normalise, total};

/// How often a link is followed instead of beginning anew.
pub const DAMPING: f64 = 0.85;

/// The scorer.
#[derive(Clone, Debug)]
pub struct PageRank {
    damping: f64,
    scores: Vec<f64>,
}

impl PageRank {
    /// A scorer of no pages; `damping` is brought between 0 and 1.
    pub fn new(damping: f64) -> PageRank {
        PageRank { damping: damping.clamp(0.0, 1.0), scores: Vec::new() }
    }
}

impl Default for PageRank {
    fn default() -> Self {
        PageRank::new(DAMPING)
    }
}

impl Scorer for PageRank {
    fn grow(&mut self, pages: usize) {
        grow_even(&mut self.scores, pages);
    }

    fn update(&mut self, graph: &Graph<'_>, stop: &Stop, cores: &dyn Cores) -> Computed {
        let pages = graph.into.len();
        self.grow(pages);
        let mut done = Computed { loops: 0, change: 0.0 };
        if pages == 0 {
            return done;
        }
        self.scores.truncate(pages);
        normalise(&mut self.scores);
        let content = graph.content();
        let (mut shares, mut next) = (vec![0.0; pages], vec![0.0; pages]);
        while done.loops < stop.loops_max {
            let (scores, damping) = (&self.scores, self.damping);
            cores.share(&mut shares, &|first, part| {
                for (page, share) in (first..).zip(part) {
                    // A page without links hands nothing on: what it has is in the rest below.
                    *share = damping * scores[page] / f64::from(graph.degrees[page].max(1));
                }
            });
            gather(graph.into, &shares, &mut next, cores);
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
        done
    }

    fn scores(&self) -> &[f64] {
        &self.scores
    }

    fn state(&self) -> Vec<f64> {
        self.scores.clone()
    }

    fn resume(&mut self, state: &[f64]) {
        if is_sound(state) {
            self.scores = state.to_vec();
        }
    }
}
