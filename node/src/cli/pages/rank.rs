//! `orbweaver pages rank`: the best pages by a score that is computed here and now.

use std::io::Write;
use std::path::Path;

use clap::{Args, ValueEnum};
use proto::score::hits::Hits;
use proto::score::pagerank::{DAMPING, PageRank};
use proto::score::rounds::{By, Wish};
use proto::score::{Graph, NoRoom, Scorer, Stop};
use serde::Serialize;

use super::{Failure, Folder, Known, line};
use crate::cli::Complaint;
use crate::edges::cores::Threads;
use crate::scoring::FOLDER;
use crate::scoring::lists::{LinkLists, Wanted};

/// Arguments of `rank`.
#[derive(Args)]
pub(in crate::cli) struct RankArguments {
    /// By what
    #[arg(long, value_enum, default_value = "pagerank")]
    by: RankBy,
    /// How many pages to show
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    /// Count only links from one domain to another
    #[arg(long)]
    other_domains_only: bool,
    /// Count what spiders said that contents are worth
    #[arg(long)]
    use_content: bool,
    /// How often PageRank follows a link instead of beginning anew
    #[arg(long, value_name = "D", default_value_t = DAMPING)]
    damping: f64,
    /// Compute until the scores change by less than this part of their sum
    #[arg(long, value_name = "PART", default_value_t = 1e-9)]
    precision: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RankBy {
    /// PageRank
    Pagerank,
    /// Pages that good hubs link to
    HitsAuthority,
    /// Pages that link to good authorities
    HitsHub,
}

/// A page and its place.
#[derive(Serialize)]
struct Ranked<'a> {
    rank: usize,
    score: f64,
    number: u32,
    id: String,
    url: &'a str,
}

impl RankArguments {
    /// What is needed of the graph.
    fn wanted(&self) -> Result<Wanted, Complaint> {
        if !(0.0..1.0).contains(&self.damping) {
            return Err(Complaint::usage("--damping must be at least 0 and below 1"));
        }
        let (other_domains_only, content) = (self.other_domains_only, self.use_content);
        Ok(Wanted { out: self.by != RankBy::Pagerank, other_domains_only, content })
    }

    /// What a cluster is asked for.
    pub(in crate::cli) fn wish(&self) -> Result<Wish, Complaint> {
        let Wanted { other_domains_only, content, .. } = self.wanted()?;
        let by = if self.by == RankBy::Pagerank { By::PageRank(self.damping) } else { By::Hits };
        let top = u32::try_from(self.top).unwrap_or(u32::MAX);
        let (hubs, precision) = (self.by == RankBy::HitsHub, self.precision);
        let wish = Wish { by, hubs, other_domains_only, content, precision, top };
        wish.fault().map_or(Ok(wish), |fault| Err(Complaint::usage(fault)))
    }

    /// The scores of all pages.
    fn scores(&self, graph: &Graph<'_>, dir: &Path) -> Result<Vec<f64>, NoRoom> {
        let machine = Threads::new(0, dir);
        let stop = Stop { precision: self.precision, loops_max: 1_000 };
        let (mut pagerank, mut hits) = (PageRank::new(self.damping), Hits::default());
        Ok(match self.by {
            RankBy::Pagerank => {
                pagerank.update(graph, &stop, &machine)?;
                pagerank.scores().to_vec()
            }
            RankBy::HitsAuthority => {
                hits.update(graph, &stop, &machine)?;
                hits.scores().to_vec()
            }
            RankBy::HitsHub => {
                hits.update(graph, &stop, &machine)?;
                hits.hubs().to_vec()
            }
        })
    }

    /// The best pages, by their numbers. Equal scores in the order of numbers, so that the same graph is always the same list.
    fn best(&self, scores: &[f64]) -> Vec<u32> {
        let mut best: Vec<u32> = (0..scores.len() as u32).collect();
        let better = |a: &u32, b: &u32| scores[*b as usize].total_cmp(&scores[*a as usize]).then(a.cmp(b));
        let top = self.top.min(best.len());
        if (1..best.len()).contains(&top) {
            best.select_nth_unstable_by(top - 1, better);
        }
        best.truncate(top);
        best.sort_by(better);
        best
    }
}

impl Folder<'_> {
    pub(super) fn rank(&mut self, rank: &RankArguments) -> Result<(), Failure> {
        let wanted = rank.wanted().map_err(Failure::Complaint)?;
        let failed = |error: crate::scoring::lists::ListsError| Failure::Complaint(Complaint::failed(error));
        // Beside the data if that folder is there, because that is where the room is.
        let beside = self.arguments.data.join(FOLDER);
        let dir = if beside.is_dir() { beside } else { std::env::temp_dir() };
        let lists = LinkLists::read(&self.graph, wanted, &dir).map_err(failed)?;
        let scores = rank.scores(&lists.graph().map_err(failed)?, &dir).map_err(|error| failed(error.into()))?;
        for (place, number) in (1..).zip(rank.best(&scores)) {
            let Some(key) = self.graph.key(number)? else { continue };
            let Some(known) = Known::of(&self.store, &key)? else { continue };
            let (score, id, url) = (scores[number as usize], key.id().to_string(), known.url.as_str());
            match self.arguments.json {
                true => line(&mut self.out, &Ranked { rank: place, score, number, id, url })?,
                false => writeln!(self.out, "{place:>8}  {score:.6e}  {url}")?,
            }
        }
        Ok(())
    }
}
