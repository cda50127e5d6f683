//! `orbweaver crawl-batch` and `orbweaver process-batch`: a batch of the HCE Distributed Crawler in on standard input, the same batch out on standard output with what came of it. Nothing
//! is kept; sites are what the items say (`siteObj`, `properties`). One after the other they try rules on pages without a node.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use ipnet::IpNet;
use proto::site::batch::Batch;

use super::crawl::{parse_host, parse_network};
use super::progress::say;
use super::{Complaint, Exit};
use crate::batch::{BatchCrawler, BatchProcessor};
use crate::config::Config;
use crate::edges::http::HttpClient;
use crate::node::{extract_rules, fetch_options};

const EXAMPLES: &str = r#"Examples:
  echo '{"items": [{"urlObj": {"url": "https://example.com/"}, "properties": {"template": {"tags": {"title": "//h1"}}}}]}' \
    | orbweaver crawl-batch | orbweaver process-batch

Exit codes: 0 the batch was done (its items say what came of each), 1 it could not be."#;

/// Arguments of `crawl-batch`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct CrawlBatchArguments {
    #[command(flatten)]
    common: CommonArguments,
    /// Network that may be fetched from although it is not public, as in 127.0.0.0/8
    #[arg(long, value_name = "CIDR", value_parser = parse_network)]
    allow_address: Vec<IpNet>,
    /// Address of a host, instead of asking DNS, as in example.com=192.0.2.7
    #[arg(long, value_name = "NAME=ADDRESS", value_parser = parse_host)]
    resolve: Vec<(String, IpAddr)>,
}

/// Arguments of `process-batch`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ProcessBatchArguments {
    #[command(flatten)]
    common: CommonArguments,
}

#[derive(Args)]
struct CommonArguments {
    /// Settings, as in cluster.toml
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Crawls a batch.
pub(super) fn crawl(arguments: &CrawlBatchArguments) -> Result<Exit, Complaint> {
    let mut config = configure(&arguments.common)?;
    config.fetch.allow_addresses.extend(&arguments.allow_address);
    config.fetch.hosts.extend(arguments.resolve.iter().cloned());
    let batch = read()?;
    let client = HttpClient::new(&fetch_options(&config)).map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let delay = Duration::from_millis(config.politeness.delay_ms);
    let mut crawler =
        BatchCrawler::new(&client, config.url.clone(), extract_rules(&config), config.product_token(), delay);
    let batch = runtime.block_on(crawler.crawl(batch));
    write(batch)
}

/// Processes a batch.
pub(super) fn process(arguments: &ProcessBatchArguments) -> Result<Exit, Complaint> {
    let config = configure(&arguments.common)?;
    let processor = BatchProcessor {
        extract: extract_rules(&config),
        urls: config.url.clone(),
        product_token: config.product_token().to_owned(),
    };
    write(processor.process(read()?))
}

/// The original knows only 0 and 1.
fn failed(error: impl std::fmt::Display) -> Complaint {
    Complaint::failed(error)
}

fn configure(common: &CommonArguments) -> Result<Config, Complaint> {
    let config = match &common.config {
        Some(path) => Config::read(path).map_err(failed)?,
        None => Config::default(),
    };
    config.validate().map_err(failed)?;
    Ok(config)
}

fn read() -> Result<Batch, Complaint> {
    let text = std::io::read_to_string(std::io::stdin())
        .map_err(|error| failed(format!("cannot read standard input: {error}")))?;
    let body = serde_json::from_str(&text).map_err(|error| failed(format!("standard input is no JSON: {error}")))?;
    Batch::read(body).map_err(failed)
}

fn write(batch: Batch) -> Result<Exit, Complaint> {
    say(&batch.into_json()).map_err(|error| failed(format!("cannot write: {error}")))?;
    Ok(Exit::Done)
}
