//! HITS: a good hub links to good authorities, a good authority is linked to by good hubs.
//!
//! Content scores weigh what an authority gives to the hubs that link to it. Both vectors sum to 1. The score of a page, as
//! far as a crawl is concerned, is its authority.
//!
//! Hubs are computed from authorities and authorities from those very hubs, not both from the values of the loop before:
//! that is the same limit in half the loops.

use super::{Computed, Cores, Graph, Scorer, Stop, distance, gather, grow_even, is_sound, normalise};

/// Part of an even vector that is mixed into where the last time ended: what is new must not begin with nothing, or it
/// would stay there.
pub(super) const FRESH: f64 = 0.1;

/// The scorer.
#[derive(Clone, Debug, Default)]
pub struct Hits {
    authorities: Vec<f64>,
    hubs: Vec<f64>,
}

impl Hits {
    /// How good a hub each page is.
    pub fn hubs(&self) -> &[f64] {
        &self.hubs
    }
}

impl Scorer for Hits {
    fn grow(&mut self, pages: usize) {
        grow_even(&mut self.authorities, pages);
    }

    fn needs_out(&self) -> bool {
        true
    }

    fn update(&mut self, graph: &Graph<'_>, stop: &Stop, cores: &dyn Cores) -> Computed {
        let pages = graph.into.len();
        self.grow(pages);
        let mut done = Computed { loops: 0, change: 0.0 };
        let Some(out) = graph.out.filter(|_| pages > 0) else { return done };
        self.authorities.truncate(pages);
        normalise(&mut self.authorities);
        let even = FRESH / pages as f64;
        self.authorities.iter_mut().for_each(|number| *number = *number * (1.0 - FRESH) + even);
        self.hubs = vec![1.0 / pages as f64; pages];
        let content = graph.content();
        let (mut weighed, mut next) = (vec![0.0; pages], vec![0.0; pages]);
        while done.loops < stop.loops_max {
            let worth = match content {
                Some((content, _)) => {
                    let all = weighed.iter_mut().zip(&self.authorities).zip(content);
                    all.for_each(|((weighed, authority), content)| *weighed = authority * content);
                    &weighed
                }
                None => &self.authorities,
            };
            gather(out, worth, &mut next, cores);
            normalise(&mut next);
            done.change = distance(&next, &self.hubs);
            std::mem::swap(&mut self.hubs, &mut next);
            gather(graph.into, &self.hubs, &mut next, cores);
            normalise(&mut next);
            done.change = done.change.max(distance(&next, &self.authorities));
            std::mem::swap(&mut self.authorities, &mut next);
            done.loops += 1;
            if done.change <= stop.precision {
                break;
            }
        }
        done
    }

    fn scores(&self) -> &[f64] {
        &self.authorities
    }

    fn state(&self) -> Vec<f64> {
        self.authorities.clone()
    }

    fn resume(&mut self, state: &[f64]) {
        if is_sound(state) {
            self.authorities = state.to_vec();
        }
    }
}
