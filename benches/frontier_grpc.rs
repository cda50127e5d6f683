//! The URL Frontier API, client and server on the same processors: URLs put one by one and in batches, taken, and counted; everything durable.
//! The reference service took 7,600, 17,000 to 23,000 and 2,500 URLs a second, and 9.3 s to count 500,000, on a machine of two cores.
//!
//! `cargo build --release -p node && cargo bench -p benches --bench frontier_grpc`

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use benches::{program, verdict};
use clap::Parser;
use node::doors::frontier::api::url_frontier_client::UrlFrontierClient;
use node::doors::frontier::api::{self, get_params, url_item};
use tonic::transport::{Channel, Endpoint};

/// URLs of a batch.
const BATCH: usize = 256;

#[derive(Parser)]
struct Arguments {
    /// URLs of a run
    #[arg(long, default_value_t = 500_000)]
    urls: usize,
    /// Hosts that they lie on
    #[arg(long, default_value_t = 20_000)]
    hosts: usize,
    /// The program to measure [default: orbweaver as built beside this bench]
    #[arg(long)]
    orbweaver: Option<PathBuf>,
    /// What cargo adds
    #[arg(long, hide = true)]
    bench: bool,
}

/// A node alone. Dropping it ends it.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(orbweaver: &Path, data: &Path) -> anyhow::Result<(Server, String)> {
    let log = data.with_extension("log");
    let mut command = Command::new(orbweaver);
    command.arg("node").arg("--data").arg(data).args(["--frontier", "127.0.0.1:0"]);
    let server = Server(command.stdout(Stdio::null()).stderr(std::fs::File::create(&log)?).spawn()?);
    let until = Instant::now() + Duration::from_secs(60);
    while Instant::now() < until {
        let said = std::fs::read_to_string(&log)?;
        if let Some(address) = said.lines().find_map(|line| line.strip_prefix("frontier: ")) {
            return Ok((server, format!("http://{address}")));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    anyhow::bail!("the node does not open its door")
}

async fn connect(address: &str) -> anyhow::Result<UrlFrontierClient<Channel>> {
    let endpoint = Endpoint::from_shared(address.to_owned())?.initial_stream_window_size(1 << 20);
    let client = UrlFrontierClient::new(endpoint.initial_connection_window_size(4 << 20).connect().await?);
    Ok(client.max_decoding_message_size(64 << 20))
}

fn info(crawl: &str, number: usize, hosts: usize) -> api::UrlInfo {
    let url = format!("http://host-{}.example/pages/{number}", number % hosts);
    api::UrlInfo { url, crawl_id: crawl.to_owned(), ..Default::default() }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let orbweaver = arguments.orbweaver.clone().map_or_else(|| program("orbweaver"), Ok)?;
    let work = tempfile::tempdir()?;
    let (server, address) = start(&orbweaver, &work.path().join("data"))?;
    let mut client = connect(&address).await?;
    let (urls, hosts) = (arguments.urls, arguments.hosts);

    let item = move |number| {
        let found = api::DiscoveredUrlItem { info: Some(info("one", number, hosts)) };
        api::UrlItem { item: Some(url_item::Item::Discovered(found)), ..Default::default() }
    };
    let begun = Instant::now();
    let mut acks = client.put_ur_ls(tokio_stream::iter((0..urls).map(item))).await?.into_inner();
    let mut kept = 0;
    while let Some(ack) = acks.message().await? {
        kept += usize::from(ack.status() == api::ack_message::Status::Ok);
    }
    ensure!(kept == urls, "{kept} of {urls} were kept");
    show("PutURLs, one stream", urls, begun.elapsed(), 40_000.0);

    let batches = (0..urls.div_ceil(BATCH)).map(move |batch| {
        let numbers = batch * BATCH..((batch + 1) * BATCH).min(urls);
        api::DiscoveredBatch {
            id: String::new(),
            items: numbers.map(|number| info("batches", number, hosts)).collect(),
        }
    });
    let begun = Instant::now();
    let mut acks = client.put_discovered(tokio_stream::iter(batches)).await?.into_inner();
    let mut kept = 0;
    while let Some(ack) = acks.message().await? {
        kept += ack.statuses().filter(|status| *status == api::ack_message::Status::Ok).count();
    }
    ensure!(kept == urls, "{kept} of {urls} were kept");
    show("PutDiscovered, batches of 256", urls, begun.elapsed(), 100_000.0);

    client.set_delay(api::QueueDelayParams::default()).await?;
    let crawl = Some(get_params::Item::CrawlId("one".to_owned()));
    let params = api::GetParams {
        max_urls_per_queue: 10,
        max_queues: 100,
        delay_requestable: 3_600,
        item: crawl,
        ..Default::default()
    };
    let (begun, mut got) = (Instant::now(), 0);
    for _ in 0..(hosts / 100).min(100) {
        let mut stream = client.get_ur_ls(params.clone()).await?.into_inner();
        while stream.message().await?.is_some() {
            got += 1;
        }
    }
    show("GetURLs, 100 queues of 10", got, begun.elapsed(), 50_000.0);

    for (filter, name) in [(None, "CountURLs"), (Some("pages/1".to_owned()), "CountURLs with a filter")] {
        let begun = Instant::now();
        let params = api::CountUrlParams { crawl_id: "one".into(), filter, ..Default::default() };
        let counted = client.count_ur_ls(params).await?.into_inner().value;
        let seconds = begun.elapsed().as_secs_f64();
        verdict(&format!("{name}: {counted} in seconds"), format!("{seconds:.2}"), "0.5", seconds <= 0.5);
    }

    drop(server);
    let begun = Instant::now();
    let (_server, address) = start(&orbweaver, &work.path().join("data"))?;
    let mut client = connect(&address).await?;
    let stats = client.get_stats(api::QueueWithinCrawlParams { crawl_id: "one".into(), ..Default::default() });
    let size = stats.await.context("the node answers after a kill")?.into_inner().size;
    ensure!(size == urls as u64, "{size} of {urls} are there after a kill");
    println!("after a kill, with {} URLs: answers after {:.2} s", 2 * urls, begun.elapsed().as_secs_f64());
    Ok(())
}

fn show(what: &str, urls: usize, took: Duration, bar: f64) {
    let rate = urls as f64 / took.as_secs_f64();
    verdict(&format!("{what}: URLs a second"), format!("{rate:.0}"), format!("{bar:.0}"), rate >= bar);
}
