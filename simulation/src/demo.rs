//! `simulation demo`: serves the synthetic web and lets the real program crawl it, to be watched.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, ensure};
use clap::Args;
use simulation::world::server::{Server, ServerOptions};
use simulation::world::web::{Web, WebPlan};

/// The traps of the demo web lead on for ever: so many URLs of a host are enough to see them.
const HOST_URLS_MAX: u32 = 300;

/// Arguments of `demo`.
#[derive(Args)]
pub(crate) struct DemoArguments {
    /// Where the results go.
    #[arg(long, default_value = "orbweaver-data/demo")]
    data: PathBuf,
    /// Decides every byte of the web.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The program; beside this one if not given.
    #[arg(long, value_name = "FILE")]
    orbweaver: Option<PathBuf>,
}

/// Serves the web and crawls it.
pub(crate) fn run(arguments: &DemoArguments) -> anyhow::Result<ExitCode> {
    let program = match &arguments.orbweaver {
        Some(program) => program.clone(),
        None => std::env::current_exe().context("cannot find this program")?.with_file_name("orbweaver"),
    };
    ensure!(program.exists(), "{} is missing; build it with `cargo build --package node`", program.display());
    // The demo begins anew each time, but removes nothing that is not its own.
    if arguments.data.join("FORMAT").exists() {
        fs::remove_dir_all(&arguments.data).with_context(|| format!("cannot empty {}", arguments.data.display()))?;
    }
    fs::create_dir_all(&arguments.data).with_context(|| format!("cannot make {}", arguments.data.display()))?;
    let plan = WebPlan::demo(arguments.seed);
    let odd: u32 = plan.oddities.values().sum();
    println!(
        "A web of {} hosts is served on loopback, {odd} of them slow, broken, trapping or hostile. This crawls it:\n",
        plan.hosts + odd
    );
    let mut server = Server::start_with(Web::new(plan), ServerOptions { keep_log: false, ..ServerOptions::default() })?;
    let config = arguments.data.join("demo.toml");
    fs::write(&config, settings(&server)).with_context(|| format!("cannot write {}", config.display()))?;
    let status = crawl(&program, &server, &config, &arguments.data)?;
    server.stop();
    Ok(ExitCode::from(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1)))
}

fn crawl(program: &Path, server: &Server, config: &Path, data: &Path) -> anyhow::Result<std::process::ExitStatus> {
    let mut command = Command::new(program);
    command.arg("crawl").args(server.seeds()).arg("--scope").arg("any");
    command.arg("--config").arg(config).arg("--data").arg(data);
    println!("orbweaver crawl {} … --scope any --config {} --data {}\n", server.seeds()[0], config.display(), data.display());
    command.status().with_context(|| format!("cannot run {}", program.display()))
}

/// Settings for a web that is nearby and impatient people: short waits, loopback allowed, the web's names known.
fn settings(server: &Server) -> String {
    let hosts: String = server.hosts_table().iter().map(|(name, address)| format!("\"{name}\" = \"{address}\"\n")).collect();
    format!(
        "[crawl]\nhost_urls_max = {HOST_URLS_MAX}\n\n\
         [politeness]\ndelay_ms = 100\nslow_down_min_ms = 500\nleave_min_ms = 1000\nleave_max_ms = 4000\n\n\
         [retry]\nwait_min_ms = 500\nwait_max_ms = 2000\nrobots_wait_ms = 1000\n\n\
         [fetch]\nallow_addresses = [\"127.0.0.0/8\"]\n\n\
         [fetch.limits]\nfetch_timeout_ms = 5000\nread_timeout_ms = 2000\n\n\
         [fetch.hosts]\n{hosts}"
    )
}
