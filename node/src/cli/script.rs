//! `orbweaver script`: the process between a node and a script of a generator. Nodes start it, people have no use for it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::edges::script::{Entering, enter};

/// Arguments of `script`.
#[derive(Args)]
pub(super) struct ScriptArguments {
    /// Which of the two processes it is
    #[arg(long, value_parser = ["outer", "inner"])]
    stage: String,
    /// There are namespaces around it
    #[arg(long)]
    enclosed: bool,
    /// Folder of the script
    #[arg(long)]
    folder: PathBuf,
    /// What it must not see
    #[arg(long)]
    hide: Vec<PathBuf>,
    /// Seconds of the processor
    #[arg(long)]
    seconds: u64,
    /// Bytes of memory
    #[arg(long)]
    memory: u64,
    /// Processes
    #[arg(long)]
    processes: u64,
    /// Bytes of a file
    #[arg(long)]
    file: u64,
    /// User to become
    #[arg(long)]
    user: Option<u32>,
    /// The script
    #[arg(last = true)]
    command: Vec<OsString>,
}

/// Becomes the script.
pub(super) fn run(arguments: &ScriptArguments) -> ExitCode {
    let ScriptArguments { stage, enclosed, folder, hide, seconds, memory, processes, file, user, command } = arguments;
    let mut again: Vec<OsString> = ["--stage", "inner"].map(OsString::from).to_vec();
    let mut say = |flag: &str, value: OsString| again.extend([OsString::from(flag), value]);
    say("--folder", folder.into());
    hide.iter().for_each(|path| say("--hide", path.into()));
    for (flag, value) in [("--seconds", seconds), ("--memory", memory), ("--processes", processes), ("--file", file)] {
        say(flag, value.to_string().into());
    }
    user.iter().for_each(|user| say("--user", user.to_string().into()));
    ExitCode::from(enter(&Entering {
        outer: stage == "outer",
        enclosed: *enclosed,
        folder: folder.clone(),
        hidden: hide.clone(),
        seconds: *seconds,
        memory: *memory,
        processes: *processes,
        file: *file,
        user: *user,
        command: command.clone(),
        again,
    }))
}
