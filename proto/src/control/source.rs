//! What people ask about jobs, their generators, tasks and logs. Answers are JSON.

use serde::{Deserialize, Serialize};

use crate::source::lend::Word;

/// Tasks, or entries of a log, in one request.
pub const ITEMS_MAX: usize = 1_000;

/// Where the URIs of a new job go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TargetName {
    /// A site of its own.
    Own,
    /// A crawl that there is.
    Crawl(String),
    /// A site that there is.
    Site(String),
}

/// What a new job is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewJob {
    /// For people.
    pub name: String,
    /// What it is for.
    pub info: String,
    /// Whom it is for.
    pub customer: Option<String>,
    /// −1 … 5.
    pub priority: i8,
    /// Where its URIs go.
    pub target: TargetName,
    /// A URI that another such job has had within a day is known.
    pub known_anywhere: bool,
}

/// A change of a job; what is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobChange {
    /// 1 on, 2 off.
    pub status: Option<u8>,
    /// −1 … 5.
    pub priority: Option<i8>,
    /// What it is for.
    pub info: Option<String>,
    /// Whom it is for.
    pub customer: Option<String>,
}

/// A task to take in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewTask {
    /// Where it stands in what was handed in, from 1; 0 if that means nothing.
    pub line: u64,
    /// As people write it.
    pub uri: String,
    /// Its arguments, as JSON.
    pub args: Option<String>,
}

/// A refusal that whoever reads a list has decided by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedTask {
    /// Where it stands.
    pub line: u64,
    /// What stands there.
    pub uri: String,
    /// Why it is refused.
    pub reason: String,
}

/// A question, or an order. Jobs are named by their id, or by their name if no other job has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SourceRequest {
    /// Make a job.
    JobNew(NewJob),
    /// All jobs, or one.
    JobList(Option<String>),
    /// Change a job.
    JobSet(String, JobChange),
    /// Delete a job with everything of it.
    JobDelete(String),
    /// Give a job a new version of its script.
    GeneratorNew {
        /// Which job.
        job: String,
        /// Name of the file.
        file: String,
        /// The script.
        code: String,
        /// When it runs; only when told to if absent.
        cron: Option<String>,
    },
    /// The versions of a job's script, with their code.
    GeneratorList(String),
    /// Change the status of a version.
    GeneratorSet {
        /// Which job.
        job: String,
        /// Which version; the newest if absent.
        generator: Option<String>,
        /// See [`generator_status`](crate::source::job::generator_status).
        status: u8,
    },
    /// Run the newest version now.
    GeneratorRun(String),
    /// Take tasks in, and write down what was refused.
    TaskAdd {
        /// Which job.
        job: String,
        /// The tasks.
        tasks: Vec<NewTask>,
        /// What was refused before.
        refused: Vec<RefusedTask>,
    },
    /// Tasks of a job.
    TaskList {
        /// Which job.
        job: String,
        /// Where the last answer ended.
        after: Option<Vec<u8>>,
        /// How many at most.
        limit: u32,
    },
    /// What was written down, the newest first.
    LogList {
        /// Of which job; of none in particular if absent.
        job: Option<String>,
        /// Of which kind; of all if absent.
        kind: Option<String>,
        /// How many at most.
        limit: u32,
    },
    /// Everything that was written down, page by page, in no order.
    LogPage {
        /// Of which job; of none in particular if absent.
        job: Option<String>,
        /// Where the last answer ended.
        after: Option<Vec<u8>>,
    },
    /// The entries of the cron as a tab file.
    TabWrite {
        /// `command @last_time # comment`, else `command #comment #last_time`.
        at: bool,
    },
    /// Take a tab file in.
    TabRead(String),
    /// Run this generator on the node that is asked. Only nodes ask this.
    RunHere(String),
    /// Execute a script for the holder of its job, or go on, or stop. Only nodes ask this.
    Lend {
        /// For how long.
        word: Word,
        /// So many bytes of what it printed are known.
        from: u64,
    },
}

impl SourceRequest {
    /// Whether it only looks.
    pub fn is_question(&self) -> bool {
        match self {
            SourceRequest::JobList(_)
            | SourceRequest::GeneratorList(_)
            | SourceRequest::TaskList { .. }
            | SourceRequest::LogList { .. }
            | SourceRequest::LogPage { .. }
            | SourceRequest::TabWrite { .. } => true,
            SourceRequest::JobNew(_)
            | SourceRequest::JobSet(..)
            | SourceRequest::JobDelete(_)
            | SourceRequest::GeneratorNew { .. }
            | SourceRequest::GeneratorSet { .. }
            | SourceRequest::GeneratorRun(_)
            | SourceRequest::TaskAdd { .. }
            | SourceRequest::TabRead(_)
            | SourceRequest::RunHere(_)
            | SourceRequest::Lend { .. } => false,
        }
    }
}
