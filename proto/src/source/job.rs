//! Jobs and their generators, as every node keeps them.
//!
//! A job is a source of tasks: whose they are, how soon its generator runs, and into which crawl its URIs go. Its generators are versions of one script: the
//! newest is on, the one before it is switched off. Numbers of status and limits of fields are those of the URI generator.

use serde::{Deserialize, Serialize};

use super::cron::{Cron, CronError};
use super::lanes::Priority;
use crate::cluster::registry::DEFINITION_BYTES_MAX;
use crate::wire::{self, WireError};

/// Longest name, info and customer, in characters.
pub const NAME_CHARS_MAX: usize = 128;
/// Longest info.
pub const INFO_CHARS_MAX: usize = 1_024;
/// Longest script, in bytes.
pub const SCRIPT_BYTES_MAX: usize = 32 << 10;
/// Versions of a generator that are kept; the oldest make room.
pub const VERSIONS_MAX: usize = 6;
/// Version of the encoding.
const VERSION: u16 = 1;

/// Status of a job.
pub mod job_status {
    /// It runs.
    pub const ON: u8 = 1;
    /// It does not.
    pub const OFF: u8 = 2;
}

/// Status of a generator.
pub mod generator_status {
    /// Being written.
    pub const ALPHA: u8 = 1;
    /// Being tried.
    pub const BETA: u8 = 2;
    /// Ready.
    pub const PRODUCTION: u8 = 3;
    /// It runs.
    pub const ON: u8 = 4;
    /// It does not.
    pub const OFF: u8 = 5;
    /// It was tried and failed.
    pub const TEST_FAILED: u8 = 6;

    /// The name of a number.
    pub fn name(status: u8) -> Option<&'static str> {
        ["alpha", "beta", "production", "on", "off", "test failed"].get(usize::from(status).checked_sub(1)?).copied()
    }
}

/// What runs a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CodeType {
    /// Python.
    Python,
    /// A shell.
    Shell,
}

impl CodeType {
    /// The number of the URI generator.
    pub fn number(self) -> u8 {
        match self {
            CodeType::Python => 1,
            CodeType::Shell => 2,
        }
    }

    /// The program that runs it, and how the file is called.
    pub fn program(self) -> (&'static str, &'static str) {
        match self {
            CodeType::Python => ("python3", "script.py"),
            CodeType::Shell => ("sh", "script.sh"),
        }
    }

    /// Tells what a script is by its name and its first line.
    pub fn of(name: &str, code: &str) -> Result<CodeType, JobError> {
        let first = code.lines().next().unwrap_or_default();
        let file = name.rsplit(['/', '\\']).next().unwrap_or(name);
        let ending = file.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
        match ending.as_deref() {
            Some("py") => Ok(CodeType::Python),
            Some("sh") => Ok(CodeType::Shell),
            None if first.starts_with("#!") && first.contains("python") => Ok(CodeType::Python),
            None if first.starts_with("#!") && first.trim_end().ends_with("sh") => Ok(CodeType::Shell),
            _ => Err(JobError::ScriptType(file.to_owned())),
        }
    }
}

/// Within what a URI counts as known for a day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Known {
    /// The job.
    #[default]
    InJob,
    /// All jobs that say this.
    Anywhere,
}

/// Where the URIs of a job go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// A site of the job's own, with its id: it is deleted with the job.
    Own,
    /// A crawl that there is.
    Crawl(String),
    /// A site that there is.
    Site(String),
}

/// What is wrong with a job or a generator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// A field is too long.
    #[error("{field}: has {chars} characters, more than {max}")]
    TooLong {
        /// Which.
        field: &'static str,
        /// How long it is.
        chars: usize,
        /// How long it may be.
        max: usize,
    },
    /// A field is missing.
    #[error("{0}: is missing")]
    Missing(&'static str),
    /// A priority that there is not.
    #[error("priority: {0}, and it goes from -1 (soonest) to 5 (last)")]
    Priority(i64),
    /// A status that there is not.
    #[error(
        "status: {0}; a job is 1 (on) or 2 (off), a generator 1 alpha, 2 beta, 3 production, 4 on, 5 off, 6 test failed"
    )]
    Status(u8),
    /// The cron line.
    #[error(transparent)]
    Cron(#[from] CronError),
    /// A script of another kind.
    #[error("{0} is no script that can be run: Python (.py) and shell (.sh) are")]
    ScriptType(String),
    /// A script that is too long.
    #[error("the script has {0} bytes, more than {SCRIPT_BYTES_MAX}")]
    ScriptTooLong(usize),
    /// A script that is empty, or not text.
    #[error("the script is empty, or has zero bytes in it")]
    NoScript,
    /// No generator of this id.
    #[error("the job has no generator {0:?}")]
    NoGenerator(String),
}

/// One version of a job's script.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Generator {
    /// Names it.
    pub id: String,
    /// The script.
    pub code: String,
    /// What runs it.
    pub code_type: CodeType,
    /// When it runs; only when told to if absent.
    pub cron: Option<String>,
    /// See [`generator_status`].
    pub status: u8,
    /// When it was added, Unix milliseconds.
    pub added_ms: u64,
    /// When it last ran, Unix milliseconds, if it was taken over from elsewhere: its first run here is the next after that.
    #[serde(default)]
    pub last_ms: Option<u64>,
    /// When that was said, Unix milliseconds: said again, it counts again.
    #[serde(default)]
    pub set_ms: u64,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Names it.
    pub id: String,
    /// For people.
    pub name: String,
    /// What it is for.
    pub info: String,
    /// Whom it is for.
    pub customer: Option<String>,
    /// Who made it.
    pub creator: String,
    /// See [`job_status`].
    pub status: u8,
    /// −1 … 5.
    pub priority: i8,
    /// Where its URIs go.
    pub target: Target,
    /// Within what a URI counts as known.
    pub known: Known,
    /// Some of its tasks have arguments, so that whoever fetches must ask for them.
    pub has_args: bool,
    /// When it was added, Unix milliseconds.
    pub added_ms: u64,
    /// Versions of its script, the newest last.
    pub generators: Vec<Generator>,
}

fn within(field: &'static str, text: &str, max: usize) -> Result<(), JobError> {
    let chars = text.chars().count();
    if chars > max { Err(JobError::TooLong { field, chars, max }) } else { Ok(()) }
}

impl Job {
    /// Checks what can be checked of it alone.
    pub fn checked(self) -> Result<Job, JobError> {
        if self.name.trim().is_empty() {
            return Err(JobError::Missing("name"));
        }
        within("name", &self.name, NAME_CHARS_MAX)?;
        within("info", &self.info, INFO_CHARS_MAX)?;
        within("customer", self.customer.as_deref().unwrap_or_default(), NAME_CHARS_MAX)?;
        if Priority::new(self.priority.into()).is_none() {
            return Err(JobError::Priority(self.priority.into()));
        }
        if !matches!(self.status, job_status::ON | job_status::OFF) {
            return Err(JobError::Status(self.status));
        }
        Ok(self)
    }

    /// Its priority.
    pub fn priority(&self) -> Priority {
        Priority::new(self.priority.into()).unwrap_or(Priority::DEFAULT)
    }

    /// Adds a version of its script: it is on, the one before it is off.
    pub fn add_generator(&mut self, generator: Generator) -> Result<(), JobError> {
        if generator.code.trim().is_empty() || generator.code.contains('\0') {
            return Err(JobError::NoScript);
        }
        if generator.code.len() > SCRIPT_BYTES_MAX {
            return Err(JobError::ScriptTooLong(generator.code.len()));
        }
        if let Some(cron) = &generator.cron {
            Cron::parse(cron)?;
        }
        for former in &mut self.generators {
            if former.status == generator_status::ON {
                former.status = generator_status::OFF;
            }
        }
        self.generators.push(Generator { status: generator_status::ON, ..generator });
        let too_much = |job: &Job| job.encode().map_or(0, |bytes| bytes.len()) > DEFINITION_BYTES_MAX;
        while self.generators.len() > VERSIONS_MAX || (self.generators.len() > 1 && too_much(self)) {
            self.generators.remove(0);
        }
        Ok(())
    }

    /// Changes the status of a generator. Only the newest can be on.
    pub fn set_generator(&mut self, id: &str, status: u8) -> Result<(), JobError> {
        let newest = self.generators.last().map(|generator| generator.id.clone());
        let generator = self.generators.iter_mut().find(|generator| generator.id == id);
        let generator = generator.ok_or_else(|| JobError::NoGenerator(id.to_owned()))?;
        let former_on = status == generator_status::ON && newest.as_deref() != Some(id);
        if generator_status::name(status).is_none() || former_on {
            return Err(JobError::Status(status));
        }
        generator.status = status;
        Ok(())
    }

    /// The generator that runs: the newest, if job and generator are on.
    pub fn running(&self) -> Option<&Generator> {
        let newest = self.generators.last()?;
        (self.status == job_status::ON && newest.status == generator_status::ON).then_some(newest)
    }

    /// When the running generator runs.
    pub fn cron(&self) -> Option<Cron> {
        self.running()?.cron.as_deref().and_then(|cron| Cron::parse(cron).ok())
    }

    /// The bytes that nodes keep. The fields are JSON in them, so that fields may be added.
    pub fn encode(&self) -> Result<Vec<u8>, WireError> {
        let fields = serde_json::to_string(self).expect("a job has only texts, numbers and lists of them");
        wire::encode(&(VERSION, fields))
    }

    /// Reads what [`encode`](Self::encode) wrote.
    pub fn decode(bytes: &[u8]) -> Option<Job> {
        let (_, fields): (u16, String) = wire::decode(bytes).ok()?;
        serde_json::from_str(&fields).ok()
    }
}

/// An id of 24 digits, as MongoDB makes them: seconds, and what nobody else has.
pub fn new_id(unix_ms: u64, random: u64) -> String {
    format!("{:08x}{random:016x}", (unix_ms / 1_000) as u32)
}

/// Whether a text can be an id.
pub fn is_id(text: &str) -> bool {
    text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn job() -> Job {
        Job {
            id: new_id(1_794_891_600_000, 7),
            name: "news".into(),
            info: String::new(),
            customer: None,
            creator: "me".into(),
            status: job_status::ON,
            priority: 5,
            target: Target::Own,
            known: Known::InJob,
            has_args: false,
            added_ms: 1,
            generators: Vec::new(),
        }
    }

    pub(crate) fn generator(number: u64, cron: Option<&str>) -> Generator {
        Generator {
            id: new_id(0, number),
            code: "echo http://a.example/".into(),
            code_type: CodeType::Shell,
            cron: cron.map(str::to_owned),
            status: generator_status::ALPHA,
            added_ms: number,
            last_ms: None,
            set_ms: 0,
        }
    }

    #[test]
    fn case_2_and_10_a_generator_holds_the_script_and_its_cron() {
        let mut job = job();
        job.add_generator(generator(1, Some("* * * * *"))).unwrap();
        let kept = Job::decode(&job.encode().unwrap()).unwrap();
        assert_eq!(kept.generators[0].code, "echo http://a.example/");
        assert_eq!(kept.generators[0].cron.as_deref(), Some("* * * * *"));
        assert_eq!(CodeType::of("make.py", "").unwrap().number(), 1);
        assert_eq!(CodeType::of("make.SH", "").unwrap().number(), 2);
        assert_eq!(CodeType::of("make", "#!/usr/bin/env python3\n"), Ok(CodeType::Python));
    }

    #[test]
    fn case_5_a_script_of_another_kind_is_refused() {
        let error = CodeType::of("make.js", "console.log(1)").unwrap_err().to_string();
        assert!(error.contains("make.js") && error.contains("Python (.py)"), "{error}");
    }

    #[test]
    fn case_11_a_generator_with_six_fields_is_refused_and_changes_nothing() {
        let mut job = job();
        job.add_generator(generator(1, None)).unwrap();
        assert!(job.add_generator(generator(2, Some("* * * * * *"))).unwrap_err().to_string().contains("6 fields"));
        assert_eq!(job.running().map(|generator| generator.added_ms), Some(1), "the former is still on");
    }

    #[test]
    fn case_17_a_new_generator_is_on_and_the_former_off() {
        let mut job = job();
        for number in 1..=10 {
            job.add_generator(generator(number, Some("* * * * *"))).unwrap();
        }
        let status: Vec<u8> = job.generators.iter().map(|generator| generator.status).collect();
        assert_eq!(status, [5, 5, 5, 5, 5, 4]);
        assert_eq!(job.running().unwrap().added_ms, 10);
        let (newest, former) = (job.generators[5].id.clone(), job.generators[4].id.clone());
        assert!(job.set_generator(&former, generator_status::ON).is_err(), "only the newest can be on");
        job.set_generator(&newest, generator_status::OFF).unwrap();
        assert!(job.running().is_none() && job.cron().is_none(), "the newest is off: none runs");
        job.set_generator(&newest, generator_status::ON).unwrap();
        job.status = job_status::OFF;
        assert!(job.running().is_none(), "the job is off");
        assert!(job.set_generator("x", 4).is_err() && job.set_generator(&newest, 7).is_err());
    }

    #[test]
    fn limits_are_those_of_the_original() {
        let ok = |change: &dyn Fn(&mut Job)| {
            let mut job = job();
            change(&mut job);
            job.checked().is_ok()
        };
        assert!(ok(&|job| job.name = "é".repeat(128)) && !ok(&|job| job.name = "é".repeat(129)));
        assert!(!ok(&|job| job.name = " ".into()) && !ok(&|job| job.info = "i".repeat(1_025)));
        assert!(!ok(&|job| job.customer = Some("c".repeat(129))));
        assert!((-1..=5).all(|priority| ok(&|job| job.priority = priority)));
        assert!(!ok(&|job| job.priority = 6) && !ok(&|job| job.priority = -2));
        assert!(ok(&|job| job.status = 2) && !ok(&|job| job.status = 0) && !ok(&|job| job.status = 3));
        let mut job = job();
        let long = Generator { code: "x".repeat(SCRIPT_BYTES_MAX + 1), ..generator(1, None) };
        assert!(matches!(job.add_generator(long), Err(JobError::ScriptTooLong(_))));
        for number in 0..4 {
            let worst = Generator { code: "\u{1}".repeat(SCRIPT_BYTES_MAX), ..generator(number, None) };
            job.add_generator(worst).unwrap();
        }
        assert!(job.encode().unwrap().len() <= DEFINITION_BYTES_MAX, "every node can keep it");
        assert_eq!(job.running().unwrap().added_ms, 3, "former versions made room");
    }

    proptest! {
        #[test]
        fn a_job_is_read_as_it_was_written(name in "\\PC{1,40}", info in "\\PC{0,40}", code in "\\PC{1,80}", priority in -1..=5i8) {
            let mut job = Job { name, info, priority, ..job() };
            let _ = job.add_generator(Generator { code, ..generator(3, Some("*/7 1 * * *")) });
            prop_assert_eq!(Job::decode(&job.encode().unwrap()), Some(job));
        }

        #[test]
        fn garbage_is_no_job(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = Job::decode(&bytes);
        }
    }
}
