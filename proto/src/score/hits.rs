//! HITS: a good hub links to good authorities, a good authority is linked to by good hubs.
//!
//! Content scores weigh what an authority gives to the hubs that link to it. Both vectors sum to 1. The score of a page, as
//! far as a crawl is concerned, is its authority.
//!
//! Hubs are computed from authorities and authorities from those very hubs, not both from the values of the loop before:
//! that is the same limit in half the loops.

use std::borrow::Cow;

use super::{Computed, Graph, Machine, NoRoom, Scorer, Stop, Vector, distance, gather, grown, is_sound, normalise};

/// Part of an even vector that is mixed into where the last time ended: what is new must not begin with nothing, or it
/// would stay there.
pub(super) const FRESH: f64 = 0.1;

/// The scorer.
pub struct Hits {
    authorities: Vector,
    hubs: Vector,
}

impl Default for Hits {
    fn default() -> Self {
        Hits { authorities: Box::new(Vec::new()), hubs: Box::new(Vec::new()) }
    }
}

impl Hits {
    /// How good a hub each page is.
    pub fn hubs(&self) -> &[f64] {
        &self.hubs
    }
}

impl Scorer for Hits {
    fn needs_out(&self) -> bool {
        true
    }

    fn update(&mut self, graph: &Graph<'_>, stop: &Stop, machine: &dyn Machine) -> Result<Computed, NoRoom> {
        let pages = graph.into.len();
        let mut done = Computed { loops: 0, change: 0.0 };
        let Some(out) = graph.out.filter(|_| pages > 0) else { return Ok(done) };
        let (mut next, mut hubs) = (machine.zeros(pages)?, machine.zeros(pages)?);
        let content = graph.content();
        let mut weighed = machine.zeros(if content.is_some() { pages } else { 0 })?;
        self.authorities = grown(&self.authorities, pages, machine)?;
        let even = FRESH / pages as f64;
        self.authorities.iter_mut().for_each(|number| *number = *number * (1.0 - FRESH) + even);
        hubs.fill(1.0 / pages as f64);
        self.hubs = hubs;
        while done.loops < stop.loops_max {
            let worth = match content {
                Some((content, _)) => {
                    let all = weighed.iter_mut().zip(&self.authorities[..]).zip(content);
                    all.for_each(|((weighed, authority), content)| *weighed = authority * content);
                    &weighed[..]
                }
                None => &self.authorities[..],
            };
            gather(out, worth, &mut next, machine);
            normalise(&mut next);
            done.change = distance(&next, &self.hubs);
            std::mem::swap(&mut self.hubs, &mut next);
            gather(graph.into, &self.hubs, &mut next, machine);
            normalise(&mut next);
            done.change = done.change.max(distance(&next, &self.authorities));
            std::mem::swap(&mut self.authorities, &mut next);
            done.loops += 1;
            if done.change <= stop.precision {
                break;
            }
        }
        Ok(done)
    }

    fn scores(&self) -> &[f64] {
        &self.authorities
    }

    fn state(&self) -> Cow<'_, [f64]> {
        Cow::Borrowed(&self.authorities)
    }

    fn resume(&mut self, state: Vector) {
        if is_sound(&state) {
            self.authorities = state;
        }
    }
}
