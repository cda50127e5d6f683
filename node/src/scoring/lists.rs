//! The page graph of a data folder as lists that scores are computed from.

use std::io;
use std::path::Path;

use proto::score::{Graph, Lists};

use crate::edges::mapped::Numbers;
use crate::edges::store::{PageGraph, StoreError};

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
    /// The links are more, or others, than they were a moment ago.
    #[error("the page graph changed while it was read; try again")]
    Changed,
}

/// For each page a list of pages.
struct Side {
    starts: Vec<u64>,
    pages: Numbers,
}

impl Side {
    fn lists(&self) -> Result<Lists<'_>, ListsError> {
        Lists::new(&self.starts, self.pages.get()).ok_or(ListsError::Changed)
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

/// The lists of a graph. Two numbers a page are in memory; four bytes a link and direction are in files.
pub struct LinkLists {
    into: Side,
    out: Option<Side>,
    degrees: Vec<u32>,
    content: Option<Vec<f64>>,
}

impl LinkLists {
    /// Reads the graph twice: once to count, once to fill. `dir` is where the files go.
    pub fn read(graph: &PageGraph, wanted: Wanted, dir: &Path) -> Result<LinkLists, ListsError> {
        let pages = graph.counts()?.pages as usize;
        let (mut degrees, mut linked) = (vec![0u32; pages], vec![0u64; pages + 1]);
        each_link(graph, wanted, |from, to| {
            *degrees.get_mut(from as usize).ok_or(ListsError::Changed)? += 1;
            *linked.get_mut(to as usize + 1).filter(|_| (to as usize) < pages).ok_or(ListsError::Changed)? += 1;
            Ok(())
        })?;
        for page in 0..pages {
            linked[page + 1] += linked[page];
        }
        let links = linked[pages] as usize;
        let numbers = || Numbers::zeros(dir, links).map_err(|reason| ListsError::Room { dir: dir.to_owned(), reason });
        let mut into = Side { starts: linked, pages: numbers()? };
        let mut out = match wanted.out {
            true => Some(numbers()?),
            false => None,
        };
        let (mut ends, mut count) = (into.starts.clone(), 0);
        let (lists, mut forward) = (into.pages.get_mut(), out.as_mut().map(Numbers::get_mut));
        each_link(graph, wanted, |from, to| {
            let end = ends.get_mut(to as usize).ok_or(ListsError::Changed)?;
            *lists.get_mut(*end as usize).ok_or(ListsError::Changed)? = from;
            *end += 1;
            if let Some(forward) = &mut forward {
                *forward.get_mut(count).ok_or(ListsError::Changed)? = to;
            }
            count += 1;
            Ok(())
        })?;
        let out = out.map(|pages| {
            let mut start = 0;
            let ends = degrees.iter().map(|degree| {
                start += u64::from(*degree);
                start
            });
            Side { starts: std::iter::once(0).chain(ends).collect(), pages }
        });
        let content = match wanted.content {
            true => {
                let mut content = vec![0.0; pages];
                graph.each_content(|page, worth| {
                    if let Some(place) = content.get_mut(page as usize) {
                        *place = f64::from(worth);
                    }
                })?;
                Some(content)
            }
            false => None,
        };
        Ok(LinkLists { into, out, degrees, content })
    }

    /// What a scorer needs.
    pub fn graph(&self) -> Result<Graph<'_>, ListsError> {
        let out = self.out.as_ref().map(Side::lists).transpose()?;
        Ok(Graph { into: self.into.lists()?, degrees: &self.degrees, out, content: self.content.as_deref() })
    }
}

/// Calls `each` with both ends of every link, ordered by where they lead from.
fn each_link(
    graph: &PageGraph,
    wanted: Wanted,
    mut each: impl FnMut(u32, u32) -> Result<(), ListsError>,
) -> Result<(), ListsError> {
    graph.each_row(|from, row| {
        let count = if wanted.other_domains_only { row.other_domains() as usize } else { usize::MAX };
        for to in row.take(count) {
            each(from, to.map_err(|_| ListsError::Changed)?)?;
        }
        Ok(())
    })
}
