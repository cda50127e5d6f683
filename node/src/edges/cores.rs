//! Shares a computation among threads.

use std::sync::Mutex;

use proto::score::{Cores, PART_PAGES};

/// So many threads, started for each call: a loop over a million pages takes tens of milliseconds, a thread tens of microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Threads(usize);

impl Threads {
    /// This many; 0 for as many as there are cores.
    pub fn new(threads: usize) -> Threads {
        match threads {
            0 => Threads(std::thread::available_parallelism().map_or(1, std::num::NonZero::get)),
            threads => Threads(threads),
        }
    }
}

impl Cores for Threads {
    fn share(&self, vector: &mut [f64], fill: &(dyn Fn(usize, &mut [f64]) + Sync)) {
        let threads = self.0.min(vector.len().div_ceil(PART_PAGES));
        if threads <= 1 {
            return fill(0, vector);
        }
        let parts = Mutex::new(vector.chunks_mut(PART_PAGES).enumerate());
        let work = || {
            loop {
                let next = parts.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).next();
                let Some((number, part)) = next else { return };
                fill(number * PART_PAGES, part);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_filled_once_whatever_the_number_of_threads() {
        for (threads, pages) in [(1, 10), (2, 3 * PART_PAGES + 7), (5, PART_PAGES), (0, 2 * PART_PAGES)] {
            let mut vector = vec![0.0; pages];
            Threads::new(threads).share(&mut vector, &|first, part| {
                part.iter_mut().zip(first..).for_each(|(number, page)| *number += page as f64);
            });
            assert!(vector.iter().zip(0..).all(|(number, page)| *number == f64::from(page)));
        }
    }
}
