//! `orbweaver ose`: site folders of OpenSearchEngine.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use ipnet::IpNet;
use proto::ose::links::OseRule;
use proto::ose::name::OseFile;
use proto::url::{CanonicalUrl, UrlRules};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use serde_json::json;

use super::crawl::{parse_host, parse_network};
use super::progress::say;
use super::signals::signals;
use super::units::{parse_time, show_count, show_size, show_time};
use super::{Complaint, Exit, tell};
use crate::config::Config;
use crate::edges::clock::unix_ms;
use crate::edges::http::{FetchOptions, HttpClient};
use crate::edges::store::Store;
use crate::node::{extract_rules, fetch_options};
use crate::ose::export::export;
use crate::ose::fetch::FetchSettings;
use crate::ose::folder::Folder;
use crate::ose::import::import;
use crate::ose::parse::ParseSettings;
use crate::ose::run::{Program, RunReport, run as run_programs};
use crate::ose::{Damages, OseError};

/// Damaged records that are named on the terminal; `--json` names more.
const DAMAGES_SHOWN: usize = 20;

const RUN_EXAMPLES: &str = "Examples:
  orbweaver ose run target1.com                          one cycle: fetch what is new, parse it, merge its links
  orbweaver ose run target1.com --program fetch          only the first program; it refuses unless the folder is idle
  */10 * * * * orbweaver ose run /srv/ose/target1.com    every ten minutes; a run that is still under way is left alone

Killed at any moment, the same command goes on; at most the one request that was on its way is made again.
Exit codes: 0 done, 1 failed, or not this program's turn, 2 wrong usage, 130 interrupted (the same command goes on)";

const IMPORT_EXAMPLES: &str = "Examples:
  orbweaver ose import target1.com --data orbweaver-data
  orbweaver crawl http://target1.com/ --data orbweaver-data     goes on with what the folder had not fetched";

const EXPORT_EXAMPLES: &str = "Examples:
  orbweaver ose export target1.com /srv/ose/target1.com --data orbweaver-data";

/// The commands.
#[derive(Subcommand)]
pub(super) enum OseCommand {
    /// Make the folder of a site from URLs
    New(NewArguments),
    /// Say where a folder is in its cycle, and what it has
    Status(StatusArguments),
    /// Run OSE's programs on a folder
    Run(RunArguments),
    /// Take a folder into a data folder
    Import(ImportArguments),
    /// Write what a data folder has of a site as a folder of OSE
    Export(ExportArguments),
}

/// Arguments of `ose new`.
#[derive(Args)]
pub(super) struct NewArguments {
    /// The folder to make, named after the site's host by custom
    folder: PathBuf,
    /// Where the site begins
    #[arg(required = true)]
    urls: Vec<String>,
}

/// Arguments of `ose status`.
#[derive(Args)]
pub(super) struct StatusArguments {
    /// The folder of a site
    folder: PathBuf,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `ose run`.
#[derive(Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(super) struct RunArguments {
    /// The folder of a site
    folder: PathBuf,
    /// Which program
    #[arg(long, value_enum, default_value = "all")]
    program: ProgramArgument,
    /// Count only links that are whole URLs as valid, as the original does; relative ones are malformed then
    #[arg(long)]
    strict: bool,
    /// Ask again for URLs that nobody answered for (code 000)
    #[arg(long)]
    retry: bool,
    /// How long to wait before each request, drawn between these
    #[arg(long, value_name = "TIME-TIME", value_parser = parse_wait, default_value = "10s-30s")]
    wait: Wait,
    /// Draw the waits from this number, to repeat them
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    #[command(flatten)]
    common: CommonArguments,
    /// Who we say we are; give a page where a site's operator can reach you
    #[arg(long, value_name = "TEXT")]
    user_agent: Option<String>,
    /// Network that may be fetched from although it is not public, as in 127.0.0.0/8
    #[arg(long, value_name = "CIDR", value_parser = parse_network)]
    allow_address: Vec<IpNet>,
    /// Address of a host, instead of asking DNS, as in example.com=192.0.2.7
    #[arg(long, value_name = "NAME=ADDRESS", value_parser = parse_host)]
    resolve: Vec<(String, IpAddr)>,
}

/// Arguments of `ose import`.
#[derive(Args)]
#[command(after_help = IMPORT_EXAMPLES)]
pub(super) struct ImportArguments {
    /// The folder of a site
    folder: PathBuf,
    /// Take it in although a program works on it, or died there (states 1, 3 and 4)
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    place: PlaceArguments,
    #[command(flatten)]
    common: CommonArguments,
}

/// Arguments of `ose export`.
#[derive(Args)]
#[command(after_help = EXPORT_EXAMPLES)]
pub(super) struct ExportArguments {
    /// The site's host
    site: String,
    /// The folder to make; it must be empty or not there yet
    folder: PathBuf,
    /// Count only links that are whole URLs as valid, as the original does
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    place: PlaceArguments,
    #[command(flatten)]
    common: CommonArguments,
}

/// Where in a data folder.
#[derive(Args)]
struct PlaceArguments {
    /// The data folder [default: orbweaver-data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Name of the crawl [default: DEFAULT]
    #[arg(long, value_name = "NAME")]
    crawl: Option<String>,
}

/// What most commands take.
#[derive(Args)]
struct CommonArguments {
    /// File with settings; flags go before it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// What was done as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum ProgramArgument {
    /// OSEM001: ask for every URL without an id
    Fetch,
    /// OSEM002: read the links of what came
    Parse,
    /// OSEM003: put the links of the site into its list
    Merge,
    /// From where the folder is to the end of its cycle
    All,
}

/// A wait between two times.
#[derive(Clone)]
struct Wait(RangeInclusive<Duration>);

fn parse_wait(text: &str) -> Result<Wait, String> {
    const LIKE: &str = "a wait looks like 10s-30s";
    let (least, most) = text.split_once('-').ok_or(LIKE)?;
    let (least, most) = (parse_time(least)?, parse_time(most)?);
    if least > most || most > Duration::from_secs(86_400) {
        return Err(format!("the first time is the shorter one, and none is longer than a day; {LIKE}"));
    }
    Ok(Wait(least..=most))
}

/// Runs a command.
pub(super) fn run(command: &OseCommand) -> Result<Exit, Complaint> {
    match command {
        OseCommand::New(arguments) => make(arguments),
        OseCommand::Status(arguments) => status(arguments),
        OseCommand::Run(arguments) => programs(arguments),
        OseCommand::Import(arguments) => take_in(arguments),
        OseCommand::Export(arguments) => give_back(arguments),
    }
}

fn make(arguments: &NewArguments) -> Result<Exit, Complaint> {
    let mut urls = Vec::new();
    for url in &arguments.urls {
        let url = CanonicalUrl::parse(url, &UrlRules::default())
            .map_err(|error| Complaint::usage(format!("{url:?}: {error}; a URL looks like https://example.com/")))?;
        if !urls.contains(&url) {
            urls.push(url);
        }
    }
    Folder::make(&arguments.folder, urls.iter().map(CanonicalUrl::as_str)).map_err(|error| complaint(&error))?;
    tell::note(&format!("{} is made; `orbweaver ose run {0}` fetches it", arguments.folder.display()));
    Ok(Exit::Done)
}

fn status(arguments: &StatusArguments) -> Result<Exit, Complaint> {
    // Whoever looks needs no lock, and does not disturb who has it.
    let look = || -> Result<(serde_json::Value, Damages), OseError> {
        let folder = Folder::look(&arguments.folder);
        let status = folder.status()?;
        let (mut urls, mut asked, mut parsed, mut damages) = (0u64, 0u64, 0u64, Damages::default());
        for line in folder.lines(OseFile::Urls)? {
            match line?.row {
                Ok(row) => {
                    urls += 1;
                    asked += u64::from(row.id.is_some());
                    parsed += u64::from(row.parsed.is_some());
                }
                Err(damaged) => damages.note(damaged),
            }
        }
        let phase = status.phase.to_string();
        let last = status.last.to_string();
        let said = json!({ "state": phase, "last_id": last, "urls": urls, "asked": asked, "parsed": parsed, "damages": damages });
        Ok((said, damages))
    };
    let (said, damages) = look().map_err(|error| complaint(&error))?;
    if arguments.json {
        return print(&said);
    }
    show_damages(&damages);
    let lines = ["state", "last_id", "urls", "asked", "parsed"].map(|name| {
        let value = said[name].as_u64().map_or_else(|| said[name].as_str().unwrap_or_default().to_owned(), show_count);
        format!("{name:<8} {value}")
    });
    print(&lines.join("\n"))
}

fn programs(arguments: &RunArguments) -> Result<Exit, Complaint> {
    let mut config = configure(&arguments.common, None)?;
    if let Some(user_agent) = &arguments.user_agent {
        config.fetch.user_agent.clone_from(user_agent);
    }
    config.fetch.allow_addresses.extend(&arguments.allow_address);
    config.fetch.hosts.extend(arguments.resolve.iter().cloned());
    config.validate().map_err(Complaint::usage)?;
    let program = match arguments.program {
        ProgramArgument::Fetch => Program::Fetch,
        ProgramArgument::Parse => Program::Parse,
        ProgramArgument::Merge => Program::Merge,
        ProgramArgument::All => Program::All,
    };
    let folder = Folder::open(&arguments.folder).map_err(|error| complaint(&error))?;
    let runtime = runtime()?;
    let report = runtime.block_on(async {
        let stop = signals().map_err(|error| Complaint::failed(format!("cannot listen for Ctrl-C: {error}")))?;
        // The answer is kept as it came; what is not encoded can be read by everybody.
        let options = FetchOptions { accept_encoding: String::new(), ..fetch_options(&config) };
        let web = HttpClient::new(&options).map_err(Complaint::usage)?;
        let mut fetching = FetchSettings {
            wait: arguments.wait.0.clone(),
            random: ChaCha8Rng::seed_from_u64(arguments.seed.unwrap_or_else(chance)),
            product_token: config.product_token().to_owned(),
            page_bytes_max: config.fetch.limits.page_bytes_max.min(config.fetch.limits.wire_bytes_max),
            urls: config.url.clone(),
            retry: arguments.retry,
            stop,
        };
        let parsing = parse_settings(&config, arguments.strict);
        let ran = run_programs(&folder, program, &web, &mut fetching, &parsing).await;
        ran.map_err(|error| complaint(&error))
    })?;
    show_damages(&report.damages());
    if arguments.common.json {
        print(&json(&report))?;
    } else {
        print(&told(&report))?;
    }
    Ok(if report.interrupted() { Exit::Interrupted } else { Exit::Done })
}

fn told(report: &RunReport) -> String {
    let time = |ms| show_time(Duration::from_millis(ms));
    let mut lines = Vec::new();
    if let Some(fetch) = &report.fetch {
        let after = if fetch.interrupted { "interrupted; the same command goes on" } else { "done" };
        lines.push(format!(
            "fetch  {:>8} answered, {} unanswered, {} forbidden by robots.txt, {} postponed, {} recovered; {after} in {}",
            show_count(fetch.answered),
            show_count(fetch.unanswered),
            show_count(fetch.forbidden),
            show_count(fetch.postponed),
            show_count(fetch.recovered),
            time(fetch.elapsed_ms)
        ));
    }
    if let Some(parse) = &report.parse {
        lines.push(format!(
            "parse  {:>8} read, {} links, {} malformed; done in {}",
            show_count(parse.parsed),
            show_count(parse.links),
            show_count(parse.malformed),
            time(parse.elapsed_ms)
        ));
    }
    if let Some(merge) = &report.merge {
        lines.push(format!(
            "merge  {:>8} new URLs, {} of other sites, {} left out; done in {}",
            show_count(merge.added),
            show_count(merge.external),
            show_count(merge.left_out),
            time(merge.elapsed_ms)
        ));
    }
    lines.join("\n")
}

fn take_in(arguments: &ImportArguments) -> Result<Exit, Complaint> {
    let config = configure(&arguments.common, Some(&arguments.place))?;
    let folder = Folder::open(&arguments.folder).map_err(|error| complaint(&error))?;
    let imported = runtime()?.block_on(import(&folder, &config, arguments.force));
    let report = imported.map_err(|error| complaint(&error))?;
    show_damages(&report.damages);
    if !report.foreign.is_empty() {
        tell::note(&format!("left where they are, they are not OSE's: {}", report.foreign.join(", ")));
    }
    if arguments.common.json {
        return print(&json(&report));
    }
    print(&format!(
        "{} is imported into crawl {}: {} files ({}), {} new URLs, {} of them with their answers",
        report.site,
        report.crawl,
        show_count(report.files),
        show_size(report.bytes),
        show_count(report.urls),
        show_count(report.pages)
    ))
}

fn give_back(arguments: &ExportArguments) -> Result<Exit, Complaint> {
    let config = configure(&arguments.common, Some(&arguments.place))?;
    let site = CanonicalUrl::parse(&format!("http://{}/", arguments.site), &UrlRules::default())
        .map_err(|_| Complaint::usage(format!("{:?} is no host name, as in example.com", arguments.site)))?;
    let store = Store::open_for_reading(&config.storage.data).map_err(Complaint::data)?;
    let parsing = parse_settings(&config, arguments.strict);
    let exported = export(&store, &config.crawl.name, site.host(), &arguments.folder, &parsing);
    let report = exported.map_err(|error| complaint(&error))?;
    show_damages(&report.damages);
    if arguments.common.json {
        return print(&json(&report));
    }
    print(&format!(
        "{} is exported to {}: {} files as they were imported, {} answers of the crawl, {} URLs that wait, {} answers not in this archive",
        report.site,
        arguments.folder.display(),
        show_count(report.files),
        show_count(report.answers),
        show_count(report.urls),
        show_count(report.missing)
    ))
}

fn configure(common: &CommonArguments, place: Option<&PlaceArguments>) -> Result<Config, Complaint> {
    let mut config = match &common.config {
        Some(path) => Config::read(path).map_err(Complaint::usage)?,
        None => Config::default(),
    };
    if let Some(data) = place.and_then(|place| place.data.as_ref()) {
        config.storage.data.clone_from(data);
    }
    if let Some(crawl) = place.and_then(|place| place.crawl.as_ref()) {
        config.crawl.name.clone_from(crawl);
    }
    config.validate().map_err(Complaint::usage)?;
    Ok(config)
}

fn parse_settings(config: &Config, strict: bool) -> ParseSettings {
    ParseSettings {
        rule: if strict { OseRule::Strict } else { OseRule::Resolved },
        rules: extract_rules(config),
        product_token: config.product_token().to_owned(),
        page_bytes_max: config.fetch.limits.page_bytes_max,
        now_ms: unix_ms,
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, Complaint> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Complaint::failed(format!("cannot start: {error}")))
}

/// Something nobody can tell beforehand.
fn chance() -> u64 {
    use std::hash::BuildHasher;
    std::hash::RandomState::new().hash_one(unix_ms())
}

fn complaint(error: &OseError) -> Complaint {
    match error {
        OseError::Store(_) | OseError::Disk(_) | OseError::Archive(_) => Complaint::data(error),
        OseError::NoUrls(_) | OseError::NotEmpty(_) | OseError::UnknownSite { .. } => Complaint::usage(error),
        _ => Complaint::failed(error),
    }
}

fn show_damages(damages: &Damages) {
    for damaged in damages.named.iter().take(DAMAGES_SHOWN) {
        tell::note(&format!("damaged, left as it is: {damaged}"));
    }
    let more = damages.count.saturating_sub(DAMAGES_SHOWN as u64);
    if more > 0 {
        tell::note(&format!("and {} more damaged records", show_count(more)));
    }
}

fn json(report: &impl Serialize) -> String {
    serde_json::to_string(report).expect("reports are text and numbers")
}

fn print(text: &impl std::fmt::Display) -> Result<Exit, Complaint> {
    say(text).map_err(|error| Complaint::failed(format!("cannot write to standard output: {error}")))?;
    Ok(Exit::Done)
}
