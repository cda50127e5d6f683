//! The page graph of a data folder as lists that scores are computed from.

use std::io;
use std::path::Path;

use proto::score::{Graph, Lists, NoRoom};

use crate::edges::mapped::{Numbers, Plain};
use crate::edges::store::{GraphNow, PageGraph, StoreError};

/// Why there are no lists.
#[derive(Debug, thiserror::Error)]
pub enum ListsError {
    /// The graph cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no room for the lists.
    #[error("no room for the links in {dir}: {reason}")]
    Room {
        /// Where.
        dir: std::path::PathBuf,
        /// What the system said.
        reason: io::Error,
    },
    /// There is no room for scores.
    #[error(transparent)]
    Scores(#[from] NoRoom),
    /// A link leads to a page that has no number, or the counts are not those of the rows.
    #[error("the page graph contradicts itself: its links are not of its pages")]
    Contradicts,
}

/// For each page a list of pages.
struct Side {
    starts: Numbers<u64>,
    pages: Numbers<u32>,
}

impl Side {
    fn lists(&self) -> Result<Lists<'_>, ListsError> {
        Lists::new(&self.starts, &self.pages).ok_or(ListsError::Contradicts)
    }
}

/// Which lists, and of what.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// Also in the direction in which links lead.
    pub out: bool,
    /// Only links between domains.
    pub other_domains_only: bool,
    /// What contents are worth, too.
    pub content: bool,
}

/// The lists of a graph, all of them in files without a name.
pub struct LinkLists {
    into: Side,
    out: Option<Side>,
    degrees: Numbers<u32>,
    content: Option<Numbers<f64>>,
}

impl LinkLists {
    /// Reads the graph twice: once to count, once to fill; both times as it is now, whatever is taken in meanwhile. `dir` is where the files go.
    pub fn read(graph: &PageGraph, wanted: Wanted, dir: &Path) -> Result<LinkLists, ListsError> {
        let graph = &graph.now();
        let pages = graph.counts()?.pages as usize;
        let room = Room(dir);
        let (mut degrees, mut linked) = (room.zeros::<u32>(pages)?, room.zeros::<u64>(pages + 1)?);
        let (count_out, count_in) = (&mut degrees[..], &mut linked[..]);
        each_link(graph, wanted, |from, to| {
            *count_out.get_mut(from as usize).ok_or(ListsError::Contradicts)? += 1;
            *count_in.get_mut(to as usize + 1).filter(|_| (to as usize) < pages).ok_or(ListsError::Contradicts)? += 1;
            Ok(())
        })?;
        for page in 0..pages {
            count_in[page + 1] += count_in[page];
        }
        let links = linked[pages] as usize;
        let (mut ends, mut lists) = (room.zeros::<u64>(pages + 1)?, room.zeros::<u32>(links)?);
        ends.copy_from_slice(&linked);
        let mut forward = wanted.out.then(|| room.zeros::<u32>(links)).transpose()?;
        let (next, sources, mut targets) = (&mut ends[..], &mut lists[..], forward.as_deref_mut());
        let mut count = 0;
        each_link(graph, wanted, |from, to| {
            let end = next.get_mut(to as usize).ok_or(ListsError::Contradicts)?;
            *sources.get_mut(*end as usize).ok_or(ListsError::Contradicts)? = from;
            *end += 1;
            if let Some(forward) = &mut targets {
                *forward.get_mut(count).ok_or(ListsError::Contradicts)? = to;
            }
            count += 1;
            Ok(())
        })?;
        let out = match forward {
            Some(pages) => {
                let mut starts = ends; // every list is filled
                starts[0] = 0;
                let mut start = 0;
                for (end, degree) in starts[1..].iter_mut().zip(&degrees[..]) {
                    start += u64::from(*degree);
                    *end = start;
                }
                Some(Side { starts, pages })
            }
            None => None,
        };
        let mut content = wanted.content.then(|| room.zeros::<f64>(pages)).transpose()?;
        if let Some(content) = &mut content {
            let content = &mut content[..];
            graph.each_content(|page, worth| {
                if let Some(place) = content.get_mut(page as usize) {
                    *place = f64::from(worth);
                }
            })?;
        }
        Ok(LinkLists { into: Side { starts: linked, pages: lists }, out, degrees, content })
    }

    /// What a scorer needs.
    pub fn graph(&self) -> Result<Graph<'_>, ListsError> {
        let out = self.out.as_ref().map(Side::lists).transpose()?;
        Ok(Graph { into: self.into.lists()?, degrees: &self.degrees, out, content: self.content.as_deref() })
    }
}

/// The folder where numbers go.
pub(super) struct Room<'a>(pub(super) &'a Path);

impl Room<'_> {
    pub(super) fn zeros<N: Plain>(&self, count: usize) -> Result<Numbers<N>, ListsError> {
        Numbers::zeros(self.0, count).map_err(|reason| ListsError::Room { dir: self.0.to_owned(), reason })
    }
}

/// Calls `each` with both ends of every link, ordered by where they lead from.
pub(super) fn each_link(
    graph: &GraphNow<'_>,
    wanted: Wanted,
    mut each: impl FnMut(u32, u32) -> Result<(), ListsError>,
) -> Result<(), ListsError> {
    graph.each_row(|from, row| {
        let count = if wanted.other_domains_only { row.other_domains() as usize } else { usize::MAX };
        for to in row.take(count) {
            each(from, to.map_err(|_| ListsError::Contradicts)?)?;
        }
        Ok(())
    })
}
