//! A node's part of the page graph in a ranking over several ([`proto::score::rounds`]): the pages of its own slots, the links between them, and those to pages of others.
//!
//! The graph is read as it is at one moment: its pages twice, to see whose they are and to name those of others that ours link to; its links twice, to count and to fill. Everything that grows with
//! the links lies in files without a name.

use std::collections::BTreeMap;
use std::path::Path;

use proto::id::NodeId;
use proto::score::rounds::{Abroad, Flat, Rows, Share};

use super::lists::{ListsError, Room, Wanted, each_link};
use crate::edges::mapped::Numbers;
use crate::edges::store::{PageGraph, StoreError};

/// Marks a page that is not ours.
pub const FOREIGN: u32 = u32::MAX;

/// A node's part, and what its numbers mean.
pub struct Ours {
    /// Our number of each page of the graph; [`FOREIGN`] if it is not ours.
    pub mine: Numbers<u32>,
    /// How many are ours.
    pub count: u32,
    /// For each of ours, whether it was crawled.
    pub has_row: Vec<bool>,
    /// Their links.
    pub share: Share,
}

/// Pages of one other node that ours link to.
#[derive(Default)]
struct Named {
    names: Vec<Vec<u8>>,
    /// How many links lead to each.
    counts: Vec<u64>,
}

/// Lists that are being filled, in any order.
struct Filling {
    starts: Numbers<u64>,
    ends: Numbers<u64>,
    numbers: Numbers<u32>,
}

impl Filling {
    fn new(room: &Room<'_>, counts: impl ExactSizeIterator<Item = u64>) -> Result<Filling, ListsError> {
        let (mut starts, mut ends) = (room.zeros::<u64>(counts.len() + 1)?, room.zeros::<u64>(counts.len() + 1)?);
        let mut all = 0;
        for (start, count) in starts[1..].iter_mut().zip(counts) {
            all += count;
            *start = all;
        }
        ends.copy_from_slice(&starts);
        Ok(Filling { numbers: room.zeros(all as usize)?, starts, ends })
    }

    fn put(&mut self, list: u32, number: u32) -> Result<(), ListsError> {
        let end = self.ends.get_mut(list as usize).ok_or(ListsError::Contradicts)?;
        *self.numbers.get_mut(*end as usize).ok_or(ListsError::Contradicts)? = number;
        *end += 1;
        Ok(())
    }

    fn rows(self) -> Rows {
        Rows { starts: Flat::new(self.starts), numbers: Flat::new(self.numbers) }
    }
}

impl Ours {
    /// Reads the part of node `me`; `owners` says whose each slot is. Behind its pages there is room for `more` that are none of its graph. `dir` is where files go.
    pub fn read(
        graph: &PageGraph,
        me: NodeId,
        owners: &[NodeId],
        wanted: Wanted,
        more: usize,
        dir: &Path,
    ) -> Result<Ours, ListsError> {
        let (graph, room) = (graph.now(), Room(dir));
        let pages = graph.counts()?.pages as usize;
        let mut others: Vec<NodeId> = owners.iter().copied().filter(|node| *node != me).collect();
        others.sort_unstable();
        others.dedup();
        let owner_of = |slot: u16| owners[usize::from(slot) % owners.len()];
        let (mut mine, mut count) = (room.zeros::<u32>(pages)?, 0u32);
        mine.fill(FOREIGN);
        graph.each_page::<StoreError>(|number, key| {
            if let Some(mine) = mine.get_mut(number as usize).filter(|_| owner_of(key.slot().0) == me) {
                (*mine, count) = (count, count + 1);
            }
            Ok(())
        })?;
        let ours = count as usize;
        let (mut degrees, mut linked) = (room.zeros::<u32>(ours + more)?, room.zeros::<u32>(pages)?);
        let mut has_row = vec![false; ours];
        graph.each_row::<StoreError>(|from, _| {
            if let Some(has_row) = mine.get(from as usize).and_then(|mine| has_row.get_mut(*mine as usize)) {
                *has_row = true;
            }
            Ok(())
        })?;
        each_link(&graph, wanted, |from, to| {
            if let Some(degree) = mine.get(from as usize).and_then(|mine| degrees.get_mut(*mine as usize)) {
                *degree += 1;
                *linked.get_mut(to as usize).ok_or(ListsError::Contradicts)? += 1;
            }
            Ok(())
        })?;

        // Pages of others get places in the lists of their nodes: the number of the node, and the place.
        let mut named: Vec<Named> = others.iter().map(|_| Named::default()).collect();
        let (mut node_of, mut place_of) = (vec![0u16; pages], room.zeros::<u32>(pages)?);
        graph.each_page::<StoreError>(|number, key| {
            let at = number as usize;
            let links = linked.get(at).copied().unwrap_or(0);
            if links > 0 && mine[at] == FOREIGN {
                let node = others.binary_search(&owner_of(key.slot().0)).unwrap_or_default();
                let named = &mut named[node];
                (node_of[at], place_of[at]) = (node as u16, named.names.len() as u32);
                named.names.push(key.into_bytes());
                named.counts.push(links.into());
            }
            Ok(())
        })?;
        let mut counts = room.zeros::<u64>(ours)?;
        for (mine, links) in mine.iter().zip(linked.iter()).filter(|(mine, _)| **mine != FOREIGN) {
            counts[*mine as usize] = u64::from(*links);
        }
        let mut into = Filling::new(&room, counts.iter().copied())?;
        let abroad = named.iter().map(|named| Filling::new(&room, named.counts.iter().copied()));
        let mut abroad = abroad.collect::<Result<Vec<Filling>, ListsError>>()?;
        let mut out = match wanted.out {
            true => Some(Filling::new(&room, degrees.iter().map(|degree| u64::from(*degree)))?),
            false => None,
        };
        // Behind our own pages, and those that others may know of us, stand those of the others.
        let behind = |named: &Named| named.names.len() as u32;
        let mut bases = vec![(ours + more) as u32];
        bases.extend(named.iter().map(behind).scan(bases[0], |base, names| {
            *base += names;
            Some(*base)
        }));
        each_link(&graph, wanted, |from, to| {
            let source = mine.get(from as usize).copied().filter(|source| *source != FOREIGN);
            let Some(source) = source else { return Ok(()) };
            let at = to as usize;
            let target = *mine.get(at).ok_or(ListsError::Contradicts)?;
            let place = if target == FOREIGN {
                let node = usize::from(node_of[at]);
                abroad.get_mut(node).ok_or(ListsError::Contradicts)?.put(place_of[at], source)?;
                bases[node] + place_of[at]
            } else {
                into.put(target, source)?;
                target
            };
            out.as_mut().map_or(Ok(()), |out| out.put(source, place))
        })?;
        let mut content = if wanted.content { Some(room.zeros::<f64>(ours)?) } else { None };
        if let Some(content) = &mut content {
            graph.each_content(|number, worth| {
                if let Some(place) = mine.get(number as usize).and_then(|mine| content.get_mut(*mine as usize)) {
                    *place = f64::from(worth);
                }
            })?;
        }
        let abroad = others.into_iter().zip(named).zip(abroad);
        let abroad = abroad.filter(|((_, named), _)| !named.names.is_empty());
        let abroad: BTreeMap<NodeId, Abroad> =
            abroad.map(|((node, named), from)| (node, Abroad { names: named.names, from: from.rows() })).collect();
        let share = Share {
            into: into.rows(),
            out: out.map(Filling::rows).unwrap_or_default(),
            degrees: Flat::new(degrees),
            content: content.map(Flat::new),
            abroad,
            ..Share::default()
        };
        Ok(Ours { mine, count, has_row, share })
    }
}
