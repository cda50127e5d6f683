//! Site folders of OpenSearchEngine (OSE): its three programs on a folder, and the way into and out of a data folder.
//!
//! Reading order: [`folder`] (files, the lock, and how a kill at any moment is survived), [`answer`] (what is kept of a fetch), the programs
//! [`fetch`], [`parse`] and [`merge`], [`run`] which lets them follow each other, and [`import`] and [`export`].
//! What the bytes mean is in [`proto::ose`]; what we do where the original contradicts itself is in `docs/ose.md`.

pub mod answer;
pub mod export;
pub mod fetch;
pub mod folder;
pub mod import;
pub mod merge;
pub mod parse;
pub mod run;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};

use proto::ose::status::Phase;
use serde::Serialize;

use crate::edges::disk::DiskError;
use crate::edges::store::StoreError;
use crate::edges::warc::WarcError;

/// Damaged records that are named one by one; more are counted.
const DAMAGES_NAMED: usize = 1_000;

/// What can go wrong with a folder.
#[derive(Debug, thiserror::Error)]
pub enum OseError {
    /// The file system said no.
    #[error("cannot {what} {}: {reason}", .path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system said.
        reason: io::Error,
    },
    /// Another process works on it.
    #[error("another process works on {}; wait until it is done", .0.display())]
    InUse(PathBuf),
    /// It is no folder of a site.
    #[error("{} holds no .urls; `orbweaver ose new` makes such a folder", .0.display())]
    NoUrls(PathBuf),
    /// The status cannot be understood.
    #[error("{}, {damage}; correct it, or remove it to begin a cycle anew", .path.display())]
    Status {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        damage: proto::ose::Damage,
    },
    /// A program whose turn it is not.
    #[error("{program} begins in state {wanted}, the folder is in state {found}; nothing was changed")]
    NotNow {
        /// Which.
        program: &'static str,
        /// When it begins.
        wanted: Phase,
        /// Where the folder is.
        found: Phase,
    },
    /// A folder that is being worked on, or was.
    #[error(
        "the folder is in state {0}: a program works on it or died there; let `orbweaver ose run` finish, or import it with --force"
    )]
    Unfinished(Phase),
    /// A working file that does not follow from `.urls`.
    #[error("{}, line {line} does not follow from .urls; somebody changed one of them: remove {} to do its work again", .path.display(), .path.display())]
    Diverged {
        /// Which.
        path: PathBuf,
        /// Where.
        line: u64,
    },
    /// A line without end.
    #[error("{}, line {line} is longer than {max} bytes: this is no list of URLs", .path.display())]
    LongLine {
        /// Which file.
        path: PathBuf,
        /// Where.
        line: u64,
        /// What is read of a line.
        max: usize,
    },
    /// All ten digits are used up.
    #[error("the folder has given its last id, 9999999999")]
    NoMoreIds,
    /// Where something is to be written, there is something.
    #[error("{} is not empty; name a folder that is empty or not there yet", .0.display())]
    NotEmpty(PathBuf),
    /// Nothing is known of the site.
    #[error("nothing is known of {site} in this data folder; `orbweaver export DATA --format urls` lists what is")]
    UnknownSite {
        /// Which.
        site: String,
    },
    /// The folder's site cannot be told.
    #[error("{} names no URL that can be read, so nobody can tell whose folder it is", .0.display())]
    NoSite(PathBuf),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The disk thread.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The archive.
    #[error(transparent)]
    Archive(#[from] WarcError),
}

impl OseError {
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> OseError {
        let path = path.to_owned();
        move |reason| OseError::Io { what, path, reason }
    }
}

/// A damaged record: named, kept as it is, and passed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Damaged {
    /// Which file.
    pub file: String,
    /// Which line, from 1.
    pub line: u64,
    /// Which byte of it, from 1.
    pub column: usize,
    /// What is wrong.
    pub reason: String,
}

impl std::fmt::Display for Damaged {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}, line {}, column {}: {}", self.file, self.line, self.column, self.reason)
    }
}

/// What is wrong with a folder, as far as one looked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Damages {
    /// The first of them.
    pub named: Vec<Damaged>,
    /// All of them.
    pub count: u64,
}

impl Damages {
    pub(crate) fn note(&mut self, damaged: Damaged) {
        self.count += 1;
        if self.named.len() < DAMAGES_NAMED {
            self.named.push(damaged);
        }
    }

    pub(crate) fn add(&mut self, other: Damages) {
        for damaged in other.named {
            if self.named.len() < DAMAGES_NAMED && !self.named.contains(&damaged) {
                self.named.push(damaged);
            }
        }
        self.count = self.count.max(other.count); // programs meet the same lines one after the other
    }
}
