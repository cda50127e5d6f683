//! The virtual world as a program: it runs clusters on simulated edges, serves the synthetic web, and shows the crawler at
//! work on it.

mod commands;
mod demo;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::{Args, Parser, Subcommand};
use simulation::world::server::{Server, ServerOptions};
use simulation::world::web::{Oddity, Web, WebPlan};

#[derive(Parser)]
#[command(about = "The virtual world Orbweaver is tested in", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the plan of one seed, and shows what happened.
    #[command(after_help = "Example: draw a run\n  simulation run --seed 7 --timeline run.html")]
    Run(commands::RunArguments),
    /// Runs many seeds on all cores, one in twenty of them twice, and sums up.
    #[command(after_help = "Example: simulation many --seed 1 --count 100000 --without wipes,clocks")]
    Many(commands::ManyArguments),
    /// Runs every seed twice, with another one in between, and compares the hashes of what happened.
    Twice(commands::ManyArguments),
    /// Plants each known defect and looks whether it is caught.
    Mutants(commands::MutantsArguments),
    /// Makes a plan that breaks something as small as it gets.
    Shrink(commands::ShrinkArguments),
    /// Runs a plan from a file.
    Replay(commands::ReplayArguments),
    /// Runs all plans that once broke something.
    Corpus(commands::CorpusArguments),
    /// Prints the plan of a seed.
    Plan(commands::PlanArguments),
    /// Serves a synthetic web on loopback addresses until Ctrl-C.
    ///
    /// The first line printed is a JSON object with the seeds, the port, and the address of every host.
    #[command(after_help = "Example: a hundred hosts of a thousand plain pages, with an access log\n  \
        simulation web --preset bench --seed 7 --hosts 100 --pages 1000 --log access.jsonl")]
    Web(WebArguments),
    /// Serves a synthetic web and crawls it with the real program, to be watched.
    #[command(after_help = "Example: simulation demo --data /tmp/demo")]
    Demo(demo::DemoArguments),
}

#[derive(Args)]
struct WebArguments {
    /// What the web is like before the other options change it.
    #[arg(long, value_enum, default_value_t = Preset::Small)]
    preset: Preset,
    /// A plan as JSON, instead of a preset.
    #[arg(long, value_name = "FILE", conflicts_with = "preset")]
    plan: Option<PathBuf>,
    /// Decides every byte of the web [default: 1].
    #[arg(long)]
    seed: Option<u64>,
    /// Hosts of plain pages.
    #[arg(long)]
    hosts: Option<u32>,
    /// Pages of each plain host.
    #[arg(long)]
    pages: Option<u32>,
    /// Mean size of a plain page.
    #[arg(long)]
    page_bytes: Option<u32>,
    /// One host with this oddity, and no others but those also named: redirects, slow, calendar-trap…
    #[arg(long, value_name = "NAME")]
    oddity: Vec<Oddity>,
    /// Plain hosts only.
    #[arg(long, conflicts_with = "oddity")]
    no_oddities: bool,
    /// Print what a polite crawler must, may and must never request, as JSON, and serve nothing. Without --port the URLs
    /// have no port.
    #[arg(long)]
    list: bool,
    /// Port of all hosts; a free one if not given.
    #[arg(long)]
    port: Option<u16>,
    /// Time each plain page takes to answer.
    #[arg(long)]
    delay_ms: Option<u32>,
    /// Crawl-delay in every robots.txt.
    #[arg(long)]
    crawl_delay_ms: Option<u32>,
    /// Call hosts by name instead of address; the printed table maps them.
    #[arg(long)]
    names: bool,
    /// Write the access log to this file, one JSON object per line.
    #[arg(long)]
    log: Option<PathBuf>,
    /// Threads to serve with.
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Preset {
    /// Everything there is, in a few hundred pages.
    Small,
    /// More of it, with names and delays, to watch.
    Demo,
    /// Plain pages only.
    Bench,
}

impl WebArguments {
    fn plan(&self) -> anyhow::Result<WebPlan> {
        let mut plan = match (&self.plan, self.preset) {
            (Some(file), _) => {
                let text = std::fs::read(file).with_context(|| format!("cannot read the plan {}", file.display()))?;
                serde_json::from_slice(&text).with_context(|| format!("{} is no plan of a web", file.display()))?
            }
            (None, Preset::Small) => WebPlan::small(1),
            (None, Preset::Demo) => WebPlan::demo(1),
            (None, Preset::Bench) => WebPlan::bench(1, self.hosts.unwrap_or(20), 100),
        };
        plan.seed = self.seed.unwrap_or(plan.seed);
        plan.hosts = self.hosts.unwrap_or(plan.hosts);
        plan.pages_per_host = self.pages.unwrap_or(plan.pages_per_host);
        plan.page_bytes = self.page_bytes.unwrap_or(plan.page_bytes);
        plan.delay_ms = self.delay_ms.unwrap_or(plan.delay_ms);
        plan.crawl_delay_ms = self.crawl_delay_ms.unwrap_or(plan.crawl_delay_ms);
        if !self.oddity.is_empty() || self.no_oddities {
            plan.oddities = self.oddity.iter().map(|oddity| (*oddity, 1)).collect();
        }
        ensure!(plan.hosts > 0, "a web needs at least one plain host: its root links to everything else");
        ensure!(plan.pages_per_host > 0, "a host needs at least one page, its root");
        Ok(if self.names { plan.with_names() } else { plan })
    }
}

fn main() -> anyhow::Result<ExitCode> {
    match Arguments::parse().command {
        Command::Run(arguments) => commands::run(&arguments),
        Command::Many(arguments) => commands::many(&arguments, false),
        Command::Twice(arguments) => commands::many(&arguments, true),
        Command::Mutants(arguments) => commands::mutants(&arguments),
        Command::Shrink(arguments) => commands::shrink(&arguments),
        Command::Replay(arguments) => commands::replay(&arguments),
        Command::Corpus(arguments) => commands::corpus(&arguments),
        Command::Plan(arguments) => {
            commands::plan(&arguments);
            Ok(ExitCode::SUCCESS)
        }
        Command::Web(arguments) => serve(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Demo(arguments) => demo::run(&arguments),
    }
}

fn serve(arguments: &WebArguments) -> anyhow::Result<()> {
    let plan = arguments.plan()?;
    if arguments.list {
        let port = arguments.port.unwrap_or(80);
        println!("{}", serde_json::to_string_pretty(&Web::new(WebPlan { port, ..plan }).expected())?);
        return Ok(());
    }
    let options = ServerOptions {
        port: arguments.port.unwrap_or(0),
        threads: arguments.threads.max(1),
        keep_log: false,
        log_file: arguments.log.clone(),
    };
    let mut server = Server::start_with(Web::new(plan), options)?;
    let first_line = serde_json::json!({
        "seeds": server.seeds(),
        "port": server.port(),
        "hosts": server.hosts_table().into_iter().collect::<BTreeMap<_, _>>(),
    });
    println!("{first_line}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(tokio::signal::ctrl_c())?;
    server.stop();
    eprintln!("{} requests served", server.requests_total());
    Ok(())
}
