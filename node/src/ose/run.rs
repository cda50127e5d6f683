//! Lets the programs follow each other.

use proto::ose::status::Phase;
use serde::Serialize;

use super::fetch::{FetchReport, FetchSettings, fetch};
use super::folder::Folder;
use super::merge::{MergeReport, merge};
use super::parse::{ParseReport, ParseSettings, parse};
use super::{Damages, OseError};
use crate::edges::web::Web;

/// Which programs are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// OSEM001.
    Fetch,
    /// OSEM002.
    Parse,
    /// OSEM003.
    Merge,
    /// From where the folder is to the end of its cycle.
    All,
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RunReport {
    /// By OSEM001, if it ran.
    pub fetch: Option<FetchReport>,
    /// By OSEM002, if it ran.
    pub parse: Option<ParseReport>,
    /// By OSEM003, if it ran.
    pub merge: Option<MergeReport>,
}

impl RunReport {
    /// Damaged rows that were met.
    pub fn damages(&self) -> Damages {
        let mut all = Damages::default();
        let each = [
            self.fetch.as_ref().map(|report| &report.damages),
            self.parse.as_ref().map(|report| &report.damages),
            self.merge.as_ref().map(|report| &report.damages),
        ];
        each.into_iter().flatten().for_each(|damages| all.add(damages.clone()));
        all
    }

    /// Whether a run was ended before it was done.
    pub fn interrupted(&self) -> bool {
        self.fetch.as_ref().is_some_and(|report| report.interrupted)
    }
}

/// Runs one program, or all that are left of the cycle.
pub async fn run(
    folder: &Folder,
    program: Program,
    web: &dyn Web,
    fetching: &mut FetchSettings,
    parsing: &ParseSettings,
) -> Result<RunReport, OseError> {
    let mut report = RunReport::default();
    let all = program == Program::All;
    let phase = folder.status()?.phase;
    if program == Program::Fetch || all && matches!(phase, Phase::Idle | Phase::Fetching) {
        report.fetch = Some(fetch(folder, web, fetching).await?);
        if report.interrupted() {
            return Ok(report);
        }
    }
    if program == Program::Parse || all && phase != Phase::Parsed {
        report.parse = Some(parse(folder, parsing)?);
    }
    if program == Program::Merge || all {
        report.merge = Some(merge(folder, &parsing.rules.urls)?);
    }
    Ok(report)
}
