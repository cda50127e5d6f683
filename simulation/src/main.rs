//! The virtual world as a program. For now it serves the synthetic web.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use simulation::world::server::{Server, ServerOptions};
use simulation::world::web::{Web, WebPlan};

#[derive(Parser)]
#[command(about = "The virtual world Orbweaver is tested in", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serves a synthetic web on loopback addresses until Ctrl-C.
    #[command(after_help = "Example: a hundred hosts of a thousand plain pages, with an access log\n  \
        simulation web --preset bench --seed 7 --hosts 100 --pages 1000 --log access.jsonl")]
    Web(WebArguments),
}

#[derive(Args)]
struct WebArguments {
    /// What the web is like before the other options change it.
    #[arg(long, value_enum, default_value_t = Preset::Small)]
    preset: Preset,
    /// Decides every byte of the web.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Hosts of plain pages.
    #[arg(long)]
    hosts: Option<u32>,
    /// Pages of each plain host.
    #[arg(long)]
    pages: Option<u32>,
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
    fn plan(&self) -> WebPlan {
        let mut plan = match self.preset {
            Preset::Small => WebPlan::small(self.seed),
            Preset::Demo => WebPlan::demo(self.seed),
            Preset::Bench => WebPlan::bench(self.seed, self.hosts.unwrap_or(20), self.pages.unwrap_or(100)),
        };
        plan.hosts = self.hosts.unwrap_or(plan.hosts);
        plan.pages_per_host = self.pages.unwrap_or(plan.pages_per_host);
        plan.delay_ms = self.delay_ms.unwrap_or(plan.delay_ms);
        plan.crawl_delay_ms = self.crawl_delay_ms.unwrap_or(plan.crawl_delay_ms);
        if self.names { plan.with_names() } else { plan }
    }
}

fn main() -> anyhow::Result<()> {
    let Command::Web(arguments) = Arguments::parse().command;
    let options = ServerOptions {
        port: arguments.port.unwrap_or(0),
        threads: arguments.threads.max(1),
        keep_log: false,
        log_file: arguments.log.clone(),
    };
    let mut server = Server::start_with(Web::new(arguments.plan()), options)?;
    let first_line = serde_json::json!({
        "seeds": server.seeds(), "port": server.port(), "hosts": server.hosts_table(),
    });
    println!("{first_line}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(tokio::signal::ctrl_c())?;
    server.stop();
    eprintln!("{} requests served", server.requests_total());
    Ok(())
}
