//! What scores are computed with: threads that share the pages, and room in a folder.

use std::path::PathBuf;
use std::sync::Mutex;

use proto::score::{Machine, NoRoom, PART_PAGES, Vector};

use super::mapped::Numbers;

/// So many threads, started for each call: a loop over a million pages takes tens of milliseconds, a thread tens of microseconds. Vectors lie in
/// files without a name, so that they may be more than the memory.
#[derive(Clone, Debug)]
pub struct Threads {
    count: usize,
    dir: PathBuf,
}

impl Threads {
    /// This many; 0 for as many as there are cores. Files go to the folder `dir`.
    pub fn new(threads: usize, dir: impl Into<PathBuf>) -> Threads {
        let count = match threads {
            0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            threads => threads,
        };
        Threads { count, dir: dir.into() }
    }
}

impl Machine for Threads {
    fn zeros(&self, pages: usize) -> Result<Vector, NoRoom> {
        let failed =
            |error| NoRoom { pages, reason: format!("a file in {} cannot be made: {error}", self.dir.display()) };
        Ok(Box::new(Numbers::zeros(&self.dir, pages).map_err(failed)?))
    }

    fn share(&self, vector: &mut [f64], fill: &(dyn Fn(usize, &mut [f64]) + Sync)) {
        let threads = self.count.min(vector.len().div_ceil(PART_PAGES));
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
        let dir = tempfile::tempdir().unwrap();
        for (threads, pages) in [(1, 10), (2, 3 * PART_PAGES + 7), (5, PART_PAGES), (0, 2 * PART_PAGES)] {
            let machine = Threads::new(threads, dir.path());
            let mut vector = machine.zeros(pages).unwrap();
            machine.share(&mut vector, &|first, part| {
                part.iter_mut().zip(first..).for_each(|(number, page)| *number += page as f64);
            });
            assert!(vector.iter().zip(0..).all(|(number, page)| *number == f64::from(page)));
        }
    }

    #[test]
    fn without_room_it_says_where_and_how_much() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("missing");
        let error = Threads::new(1, &missing).zeros(7).err().unwrap().to_string();
        assert!(
            error.starts_with("no room for the numbers of 7 pages: a file in ") && error.contains("missing"),
            "{error}"
        );
    }
}
