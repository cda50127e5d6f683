//! The commands that run plans: `run`, `many`, `twice`, `mutants`, `shrink`, `replay`, `corpus`, `plan`. Results go to
//! standard output, progress to standard error; the exit code is 1 when something did not hold.

use std::fs;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use serde_json::json;
use simulation::layer::{Layer, RunOptions, RunReport};
use simulation::lending::LendingLayer;
use simulation::pure::Pure;
use simulation::ranking::RankingLayer;
use simulation::serving::pages::SpidersLayer;
use simulation::serving::queue::ServingLayer;
use simulation::tool::{self, many::Many, mutants::Hunt, seconds};
use simulation::toy::Toy;
use simulation::world::plan::{FaultClass, Plan};
use simulation::world::trace::{Entry, Keep};

/// Runs that shrinking may take.
const SHRINK_RUNS_MAX: u64 = 2_000;

/// Which layer runs the plan.
#[derive(Clone, Copy, ValueEnum)]
enum LayerName {
    /// A lock service of a page, which proves the tool itself.
    Toy,
    /// L1: the cores of every node in an event loop.
    Pure,
    /// The page graph, ranked by all nodes together.
    Ranking,
    /// Scripts that nodes have others execute.
    Lending,
    /// Queues that clients take URLs from.
    Serving,
    /// Pages that spiders are told to fetch.
    Spiders,
    /// L2: the actors of every node on virtual time.
    #[cfg(feature = "actors")]
    Actors,
}

/// Arguments that every command has.
#[derive(Args)]
pub(crate) struct LayerArguments {
    /// What runs the plans.
    #[arg(long, value_enum, default_value_t = LayerName::Pure)]
    layer: LayerName,
    /// A planted defect, see `mutants --list`.
    #[arg(long, value_name = "NAME")]
    mutant: Option<String>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

impl LayerArguments {
    fn layer(&self) -> &'static dyn Layer {
        match self.layer {
            LayerName::Toy => &Toy,
            LayerName::Pure => &Pure,
            LayerName::Ranking => &RankingLayer,
            LayerName::Lending => &LendingLayer,
            LayerName::Serving => &ServingLayer,
            LayerName::Spiders => &SpidersLayer,
            #[cfg(feature = "actors")]
            LayerName::Actors => &simulation::actors::Actors,
        }
    }

    fn mutant(&self) -> anyhow::Result<Option<&'static str>> {
        let Some(name) = &self.mutant else { return Ok(None) };
        match self.layer().mutants().into_iter().find(|mutant| mutant.name == name) {
            Some(mutant) => Ok(Some(mutant.name)),
            None => bail!("no mutant of the layer {} is called {name:?}", self.layer().name()),
        }
    }

    /// The part of a command line that repeats these arguments.
    fn as_text(&self) -> String {
        let layer = format!("--layer {}", self.layer().name());
        self.mutant.iter().fold(layer, |text, mutant| format!("{text} --mutant {mutant}"))
    }
}

/// Arguments of the commands that show one run.
#[derive(Args)]
pub(crate) struct ShowArguments {
    #[command(flatten)]
    layer: LayerArguments,
    /// Print every event and every message.
    #[arg(long)]
    log: bool,
    /// Begin the log at this second.
    #[arg(long, value_name = "SECONDS", requires = "log", default_value_t = 0.0)]
    log_from: f64,
    /// End the log at this second.
    #[arg(long, value_name = "SECONDS", requires = "log", default_value_t = f64::MAX)]
    log_until: f64,
    /// Draw the run into this file, a page for a browser.
    #[arg(long, value_name = "FILE")]
    timeline: Option<PathBuf>,
    /// Do not shrink a plan that breaks something.
    #[arg(long)]
    no_shrink: bool,
    /// Where the shrunk plan goes.
    #[arg(long, value_name = "FILE", default_value = "shrunk.toml")]
    shrunk: PathBuf,
}

/// Arguments of `run`.
#[derive(Args)]
pub(crate) struct RunArguments {
    /// Draws the plan.
    #[arg(long, value_parser = parse_seed)]
    seed: u64,
    /// Classes of faults to leave out.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "CLASS,…")]
    without: Vec<FaultClass>,
    #[command(flatten)]
    show: ShowArguments,
}

/// Arguments of `replay`.
#[derive(Args)]
pub(crate) struct ReplayArguments {
    /// The plan.
    file: PathBuf,
    #[command(flatten)]
    show: ShowArguments,
}

/// Arguments of `many` and `twice`.
#[derive(Args)]
pub(crate) struct ManyArguments {
    /// The first seed: a number, or `0x` and hexadecimal digits, of which the first 15 count: a commit's hash will do.
    #[arg(long, default_value = "1", value_parser = parse_seed)]
    seed: u64,
    /// How many seeds.
    #[arg(long, default_value_t = 1_000)]
    count: u64,
    /// Classes of faults to leave out.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "CLASS,…")]
    without: Vec<FaultClass>,
    /// Runs at once; as many as there are cores if not given.
    #[arg(long)]
    threads: Option<usize>,
    /// Stop after so many violations.
    #[arg(long, default_value_t = 5)]
    violations_max: usize,
    /// Do not shrink the first plan that breaks something.
    #[arg(long)]
    no_shrink: bool,
    /// Where the shrunk plan goes.
    #[arg(long, value_name = "FILE", default_value = "shrunk.toml")]
    shrunk: PathBuf,
    #[command(flatten)]
    layer: LayerArguments,
}

/// Arguments of `mutants`.
#[derive(Args)]
pub(crate) struct MutantsArguments {
    /// The first seed.
    #[arg(long, default_value = "1", value_parser = parse_seed)]
    seed: u64,
    /// Name them, and hunt none.
    #[arg(long)]
    list: bool,
    /// Where the plans are that were made to catch some of them.
    #[arg(long, value_name = "DIRECTORY", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus"))]
    corpus: PathBuf,
    /// Hunt with seeds only.
    #[arg(long)]
    no_corpus: bool,
    /// Hunts at once; as many as there are cores if not given.
    #[arg(long)]
    threads: Option<usize>,
    #[command(flatten)]
    layer: LayerArguments,
}

/// Arguments of `shrink`.
#[derive(Args)]
pub(crate) struct ShrinkArguments {
    /// Draws the plan.
    #[arg(long, required_unless_present = "plan", value_parser = parse_seed)]
    seed: Option<u64>,
    /// The plan, as a file.
    #[arg(long, value_name = "FILE", conflicts_with = "seed")]
    plan: Option<PathBuf>,
    /// Where the shrunk plan goes.
    #[arg(long, value_name = "FILE", default_value = "shrunk.toml")]
    shrunk: PathBuf,
    #[command(flatten)]
    layer: LayerArguments,
}

/// Arguments of `corpus`.
#[derive(Args)]
pub(crate) struct CorpusArguments {
    /// Where the plans are.
    #[arg(long, value_name = "DIRECTORY", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus"))]
    directory: PathBuf,
    #[command(flatten)]
    layer: LayerArguments,
}

/// Arguments of `plan`.
#[derive(Args)]
pub(crate) struct PlanArguments {
    /// Draws the plan.
    #[arg(long, value_parser = parse_seed)]
    seed: u64,
}

/// `simulation run`.
pub(crate) fn run(arguments: &RunArguments) -> anyhow::Result<ExitCode> {
    let plan = Plan::from_seed(arguments.seed).without(&arguments.without);
    show(&plan, &format!("seed {}", arguments.seed), &arguments.show)
}

/// `simulation replay`.
pub(crate) fn replay(arguments: &ReplayArguments) -> anyhow::Result<ExitCode> {
    show(&read_plan(&arguments.file)?, &arguments.file.display().to_string(), &arguments.show)
}

fn show(plan: &Plan, name: &str, arguments: &ShowArguments) -> anyhow::Result<ExitCode> {
    let layer = arguments.layer.layer();
    let keep = match (arguments.log, &arguments.timeline) {
        (true, _) => Keep::Everything,
        (false, Some(_)) => Keep::Events,
        (false, None) => Keep::Nothing,
    };
    let options = RunOptions { mutant: arguments.layer.mutant()?, keep };
    let began = Instant::now();
    let report = tool::run(layer, plan, &options);
    if arguments.log {
        print_log(&report, arguments.log_from, arguments.log_until)?;
    }
    if let Some(file) = &arguments.timeline {
        let title = format!("Orbweaver, layer {}, {name}", layer.name());
        let page = tool::timeline::timeline(plan, &report, &title);
        fs::write(file, page).with_context(|| format!("cannot write {}", file.display()))?;
        eprintln!("the run is drawn in {}", file.display());
    }
    if arguments.layer.json {
        println!("{}", serde_json::to_string_pretty(&report_as_json(&report))?);
    } else {
        print_report(name, plan, &report, began.elapsed());
    }
    if report.violation.is_none() {
        return Ok(ExitCode::SUCCESS);
    }
    if !arguments.no_shrink {
        shrink_into(layer, plan, &options, &arguments.shrunk, &arguments.layer)?;
    }
    Ok(ExitCode::FAILURE)
}

/// `simulation many`, and `simulation twice`.
pub(crate) fn many(arguments: &ManyArguments, all_twice: bool) -> anyhow::Result<ExitCode> {
    let layer = arguments.layer.layer();
    let what = Many {
        base: arguments.seed,
        count: arguments.count,
        without: arguments.without.clone(),
        mutant: arguments.layer.mutant()?,
        threads: threads(arguments.threads),
        violations_max: arguments.violations_max.max(1),
        all_twice,
    };
    let mut progress = Progress::new(arguments.count);
    let summary = tool::many::many(layer, &what, |so_far, broken| {
        if let Some((seed, violation)) = broken.filter(|_| what.mutant.is_none()) {
            eprintln!("seed {seed}: {violation}"); // a long hunt may be stopped before its summary
        }
        progress.tell(so_far.seeds, so_far.violations.len());
    });
    progress.end();
    if arguments.layer.json {
        println!("{}", serde_json::to_string_pretty(&summary)?);
    } else {
        print!("{summary}");
    }
    if let Some((seed, violation)) = summary.violations.first_key_value() {
        let without = without_as_text(&arguments.without);
        eprintln!("{violation}\nreplay with: simulation run --seed {seed} {}{without}", arguments.layer.as_text());
        if !arguments.no_shrink {
            let plan = Plan::from_seed(*seed).without(&arguments.without);
            let options = RunOptions { mutant: what.mutant, keep: Keep::Nothing };
            shrink_into(layer, &plan, &options, &arguments.shrunk, &arguments.layer)?;
        }
    }
    if !summary.missed.is_empty() {
        eprintln!("no seed reached, and some of so many should: {}", summary.missed.join(", "));
    }
    Ok(if summary.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// `simulation mutants`.
pub(crate) fn mutants(arguments: &MutantsArguments) -> anyhow::Result<ExitCode> {
    let layer = arguments.layer.layer();
    let only = arguments.layer.mutant()?;
    let mut mutants = layer.mutants();
    mutants.retain(|mutant| only.is_none_or(|only| only == mutant.name));
    if mutants.is_empty() {
        bail!("the layer {} has no planted defects in this build; see the feature `mutants`", layer.name());
    }
    if arguments.list {
        for mutant in &mutants {
            println!("{:<28} within {} seeds, by {}", mutant.name, mutant.seeds_max, mutant.breaks.join(" or "));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let plans = if arguments.no_corpus { Vec::new() } else { read_corpus(&arguments.corpus)? };
    let hunts = tool::mutants::hunt(layer, &mutants, &plans, arguments.seed, threads(arguments.threads), |hunt| {
        if !arguments.layer.json {
            println!("{hunt}");
        }
    });
    if arguments.layer.json {
        println!("{}", serde_json::to_string_pretty(&hunts)?);
    }
    let named = |which: fn(&Hunt) -> bool| -> Vec<&str> {
        hunts.iter().filter(|hunt| which(hunt)).map(|hunt| hunt.mutant).collect()
    };
    let (caught, by_plans) = (named(|hunt| hunt.caught.is_some()), named(|hunt| hunt.by_its_plan));
    eprintln!("{} of {} mutants caught by an invariant that they were planted for", caught.len(), hunts.len());
    if !by_plans.is_empty() {
        eprintln!("{} of them by the plans made for them, without a seed: {}", by_plans.len(), by_plans.join(", "));
    }
    // Of one mutant alone nobody expects that it is noticed by everything.
    let idle = if only.is_none() { tool::mutants::idle_invariants(layer, &hunts) } else { Vec::new() };
    if !idle.is_empty() {
        eprintln!("these invariants noticed no mutant: {}", idle.join(", "));
    }
    let all_good = caught.len() == hunts.len() && idle.is_empty();
    Ok(if all_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// `simulation shrink`.
pub(crate) fn shrink(arguments: &ShrinkArguments) -> anyhow::Result<ExitCode> {
    let plan = match (&arguments.plan, arguments.seed) {
        (Some(file), _) => read_plan(file)?,
        (None, Some(seed)) => Plan::from_seed(seed),
        (None, None) => bail!("a seed or a plan is needed"),
    };
    let options = RunOptions { mutant: arguments.layer.mutant()?, keep: Keep::Nothing };
    let found = shrink_into(arguments.layer.layer(), &plan, &options, &arguments.shrunk, &arguments.layer)?;
    if !found {
        eprintln!("the plan breaks nothing");
    }
    Ok(if found { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// `simulation corpus`.
pub(crate) fn corpus(arguments: &CorpusArguments) -> anyhow::Result<ExitCode> {
    let layer = arguments.layer.layer();
    let options = RunOptions { mutant: arguments.layer.mutant()?, keep: Keep::Nothing };
    let plans = read_corpus(&arguments.directory)?;
    let mut bad = 0;
    for (name, plan) in &plans {
        let file = arguments.directory.join(format!("{name}.toml"));
        let replay = format!("simulation replay {} {}", file.display(), arguments.layer.as_text());
        if let Some(violation) = tool::run(layer, plan, &options).violation {
            bad += 1;
            println!("{name:<50} {violation}");
            eprintln!("replay with: {replay}");
            continue;
        }
        let Some(wanted) = &plan.catches else {
            println!("{name:<50} holds");
            continue;
        };
        let Some(mutant) = layer.mutants().into_iter().find(|mutant| mutant.name == wanted) else {
            println!("{name:<50} holds; {wanted} is no mutant of this layer");
            continue;
        };
        match tool::run(layer, plan, &RunOptions { mutant: Some(mutant.name), ..options }).violation {
            Some(violation) if mutant.breaks.contains(&violation.number()) => {
                println!("{name:<50} holds, and catches {wanted}: {}", violation.invariant);
            }
            Some(violation) => {
                bad += 1;
                println!("{name:<50} holds, but catches {wanted} by chance: {violation}");
                eprintln!("it was to break {}; replay with: {replay} --mutant {wanted}", mutant.breaks.join(" or "));
            }
            None => {
                bad += 1;
                println!("{name:<50} holds, but no longer catches {wanted}");
                eprintln!("replay with: {replay} --mutant {wanted}");
            }
        }
    }
    eprintln!("{} plans, {bad} of them not as they should be", plans.len());
    Ok(if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// `simulation plan`.
pub(crate) fn plan(arguments: &PlanArguments) {
    print!("{}", Plan::from_seed(arguments.seed).to_toml());
}

/// The plans of a directory, by name.
fn read_corpus(directory: &Path) -> anyhow::Result<Vec<(String, Plan)>> {
    let entries = fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let mut files: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    let name = |file: &Path| file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    files.iter().map(|file| Ok((name(file), read_plan(file)?))).collect()
}

fn read_plan(file: &Path) -> anyhow::Result<Plan> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    Plan::from_toml(&text).with_context(|| format!("{} is no plan of a run", file.display()))
}

/// Shrinks `plan`, writes and prints what is left. Says whether it broke anything.
fn shrink_into(
    layer: &dyn Layer,
    plan: &Plan,
    options: &RunOptions,
    file: &Path,
    arguments: &LayerArguments,
) -> anyhow::Result<bool> {
    eprintln!("shrinking…");
    let Some(shrunk) = tool::shrink::shrink(layer, plan, options, SHRINK_RUNS_MAX) else { return Ok(false) };
    let text = format!("# {}\n{}", shrunk.violation, shrunk.plan.to_toml());
    fs::write(file, &text).with_context(|| format!("cannot write {}", file.display()))?;
    eprintln!("{text}");
    eprintln!(
        "{} of {} faults and {} of {} submissions are left after {} runs: {}",
        shrunk.plan.faults.len(),
        plan.faults.len(),
        shrunk.plan.submissions.len(),
        plan.submissions.len(),
        shrunk.runs,
        shrunk.violation
    );
    eprintln!("replay with: simulation replay {} {}", file.display(), arguments.as_text());
    Ok(true)
}

fn print_log(report: &RunReport, from: f64, until: f64) -> anyhow::Result<()> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let wanted = |at: u64| (from..=until).contains(&(at as f64 / 1e6));
    for (at, entry) in report.kept.iter().filter(|(at, _)| wanted(*at)) {
        let time = format!("{:>4}.{:06}", at / 1_000_000, at % 1_000_000);
        match entry {
            Entry::Event(event) => writeln!(out, "{time} * {event:?}")?,
            Entry::Note(node, text) => writeln!(out, "{time} {} {text}", node.0)?,
        }
    }
    Ok(out.flush()?)
}

fn print_report(name: &str, plan: &Plan, report: &RunReport, took: Duration) {
    println!(
        "{name}: {} nodes, {} faults, {} simulated in {:.3} s; {} fetches, {} messages, {} events; hash {:016x}",
        plan.cluster.nodes,
        plan.faults.len(),
        seconds(report.ended_at),
        took.as_secs_f64(),
        report.fetches,
        report.messages,
        report.events,
        report.hash
    );
    match (&report.violation, report.rested_after) {
        (Some(violation), _) => println!("VIOLATION {violation}"),
        (None, Some(after)) => println!("all invariants hold; at rest {} after the last fault", seconds(after)),
        (None, None) => println!("all invariants hold"),
    }
}

fn report_as_json(report: &RunReport) -> serde_json::Value {
    json!({
        "hash": format!("{:016x}", report.hash),
        "violation": report.violation,
        "ended_at_us": report.ended_at,
        "rested_after_us": report.rested_after,
        "events": report.events,
        "messages": report.messages,
        "fetches": report.fetches,
        "urls": report.urls,
        "redundant_fetches": report.redundant_fetches,
        "overlaps_with_stopped": report.overlaps_with_stopped,
        "sometimes": report.sometimes,
    })
}

fn without_as_text(classes: &[FaultClass]) -> String {
    let name = |class: &FaultClass| class.to_possible_value().map(|value| value.get_name().to_owned());
    let names: Vec<String> = classes.iter().filter_map(name).collect();
    if names.is_empty() { String::new() } else { format!(" --without {}", names.join(",")) }
}

fn threads(wanted: Option<usize>) -> usize {
    wanted.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1)
}

/// Plans are written as TOML, whose integers are signed: seeds stay below 2^62, which leaves room for those after a base.
fn parse_seed(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits.get(..15).unwrap_or(digits), 16),
        None => text.parse(),
    };
    let seed = parsed.map_err(|error| error.to_string())?;
    if seed >> 62 == 0 { Ok(seed) } else { Err("seeds are below 2^62".to_owned()) }
}

/// Tells how far `many` has come: in place on a terminal, a line now and then in a file.
struct Progress {
    count: u64,
    began: Instant,
    told: Instant,
    every: Duration,
    terminal: bool,
}

impl Progress {
    fn new(count: u64) -> Progress {
        let terminal = std::io::stderr().is_terminal();
        let every = Duration::from_millis(if terminal { 200 } else { 10_000 });
        Progress { count, began: Instant::now(), told: Instant::now(), every, terminal }
    }

    fn tell(&mut self, seeds: u64, violations: usize) {
        if self.told.elapsed() < self.every {
            return;
        }
        self.told = Instant::now();
        let (start, end) = if self.terminal { ("\r\x1b[K", "") } else { ("", "\n") };
        let per_second = seeds as f64 / self.began.elapsed().as_secs_f64();
        eprint!("{start}{seeds} of {} seeds, {per_second:.0} a second, {violations} violations{end}", self.count);
    }

    fn end(&self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
    }
}
