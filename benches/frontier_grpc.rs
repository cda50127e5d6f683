//! The URL Frontier API, client and server on the same processors: URLs put one by one and in batches, taken, and counted; everything durable. Then the same through one of
//! three local nodes that each keep all of it (R = 3), what is left of taking while somebody lists and counts all the time, and how soon a node alone with ten million URLs answers after a kill.
//! The reference service took 7,600, 17,000 to 23,000 and 2,500 URLs a second, and 9.3 s to count 500,000, on a machine of two cores; it keeps one copy, and has no bar for three.
//!
//! `cargo build --release -p node && cargo bench -p benches --bench frontier_grpc`; a quick look: `-- --urls 50000 --cluster-urls 20000 --restart-urls 200000`

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::ensure;
use benches::cluster::LocalCluster;
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
    /// URLs of a run through three nodes; 0 for none
    #[arg(long, default_value_t = 200_000)]
    cluster_urls: usize,
    /// URLs that a node has when it is killed and started again; 0 for no such run
    #[arg(long, default_value_t = 10_000_000)]
    restart_urls: usize,
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

/// Client of a server, and what is done with it.
struct Run<'a> {
    client: UrlFrontierClient<Channel>,
    /// What it is about, in what is printed.
    name: &'a str,
    hosts: usize,
    /// Whether there are bars.
    judged: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let orbweaver = arguments.orbweaver.clone().map_or_else(|| program("orbweaver"), Ok)?;
    let work = tempfile::tempdir()?;
    let data = work.path().join("data");
    let (server, address) = start(&orbweaver, &data)?;
    let mut alone =
        Run { client: connect(&address).await?, name: "a node alone", hosts: arguments.hosts, judged: true };
    alone.put_urls("one", arguments.urls).await?;
    alone.put_batches("batches", arguments.urls).await?;
    alone.get("one", arguments.urls, "").await?;
    alone.count("one", arguments.urls).await?;
    alone.get_beside_looks(&address, "batches", arguments.urls).await?;
    drop((alone, server));
    if arguments.cluster_urls > 0 {
        three(&orbweaver, &arguments).await?;
    }
    if arguments.restart_urls > 0 {
        restart(&orbweaver, &work.path().join("restart"), &arguments).await?;
    }
    Ok(())
}

/// The same through one of three nodes.
async fn three(orbweaver: &Path, arguments: &Arguments) -> anyhow::Result<()> {
    let cluster = LocalCluster::start(orbweaver, 3, 0)?;
    cluster.until("a door is open", |cluster| Ok(cluster.frontier(0)?.is_some()))?;
    let address = cluster.frontier(0)?.expect("just seen");
    let mut run =
        Run { client: connect(&address).await?, name: "three nodes, R = 3", hosts: arguments.hosts, judged: false };
    run.put_urls("one", arguments.cluster_urls).await?;
    run.put_batches("batches", arguments.cluster_urls).await?;
    run.get("one", arguments.cluster_urls, "").await?;
    run.count("one", arguments.cluster_urls).await?;
    run.get_beside_looks(&address, "batches", arguments.cluster_urls).await
}

/// How soon a node with many URLs answers after a kill.
async fn restart(orbweaver: &Path, data: &Path, arguments: &Arguments) -> anyhow::Result<()> {
    let urls = arguments.restart_urls;
    let (server, address) = start(orbweaver, data)?;
    let mut run = Run { client: connect(&address).await?, name: "to be killed", hosts: arguments.hosts, judged: false };
    run.put_batches("many", urls).await?;
    drop((run, server));
    let begun = Instant::now();
    let (_server, address) = start(orbweaver, data)?;
    let mut client = connect(&address).await?;
    let until = begun + Duration::from_secs(300);
    let size = loop {
        // It says that it is starting to who asks meanwhile.
        let asked = api::QueueWithinCrawlParams { crawl_id: "many".into(), ..Default::default() };
        match client.get_stats(asked).await {
            Ok(stats) => break stats.into_inner().size,
            Err(error) => ensure!(Instant::now() < until, "no answer after a kill: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let seconds = begun.elapsed().as_secs_f64();
    ensure!(size == urls as u64, "{size} of {urls} are there after a kill");
    verdict(&format!("restart with {urls} URLs: answers after seconds"), format!("{seconds:.2}"), "5", seconds <= 5.0);
    Ok(())
}

impl Run<'_> {
    async fn put_urls(&mut self, crawl: &'static str, urls: usize) -> anyhow::Result<()> {
        let hosts = self.hosts;
        let item = move |number| {
            let found = api::DiscoveredUrlItem { info: Some(info(crawl, number, hosts)) };
            api::UrlItem { item: Some(url_item::Item::Discovered(found)), ..Default::default() }
        };
        let begun = Instant::now();
        let mut acks = self.client.put_ur_ls(tokio_stream::iter((0..urls).map(item))).await?.into_inner();
        let mut kept = 0;
        while let Some(ack) = acks.message().await? {
            kept += usize::from(ack.status() == api::ack_message::Status::Ok);
        }
        ensure!(kept == urls, "{kept} of {urls} were kept");
        self.show("PutURLs, one stream", urls, begun.elapsed(), 40_000.0);
        Ok(())
    }

    async fn put_batches(&mut self, crawl: &'static str, urls: usize) -> anyhow::Result<()> {
        let hosts = self.hosts;
        let batches = (0..urls.div_ceil(BATCH)).map(move |batch| {
            let numbers = batch * BATCH..((batch + 1) * BATCH).min(urls);
            let items = numbers.map(|number| info(crawl, number, hosts)).collect();
            api::DiscoveredBatch { id: String::new(), items }
        });
        let begun = Instant::now();
        let mut acks = self.client.put_discovered(tokio_stream::iter(batches)).await?.into_inner();
        let mut kept = 0;
        while let Some(ack) = acks.message().await? {
            kept += ack.statuses().filter(|status| *status == api::ack_message::Status::Ok).count();
        }
        ensure!(kept == urls, "{kept} of {urls} were kept");
        self.show("PutDiscovered, batches of 256", urls, begun.elapsed(), 100_000.0);
        Ok(())
    }

    /// Takes while somebody else lists and counts all the time.
    async fn get_beside_looks(&mut self, address: &str, crawl: &'static str, urls: usize) -> anyhow::Result<()> {
        let mut client = connect(address).await?;
        let looks = tokio::spawn(async move {
            let (mut looks, crawl_id) = (0, crawl.to_owned());
            loop {
                let all = api::ListUrlParams { crawl_id: crawl_id.clone(), size: u32::MAX, ..Default::default() };
                let Ok(listed) = client.list_ur_ls(all).await else { return looks };
                let mut listed = listed.into_inner();
                while let Ok(Some(_)) = listed.message().await {
                    looks += 1;
                }
                let filter = Some("pages/1".to_owned());
                let count = api::CountUrlParams { crawl_id: crawl_id.clone(), filter, ..Default::default() };
                let Ok(_) = client.count_ur_ls(count).await else { return looks };
            }
        });
        let (judged, got) =
            (std::mem::take(&mut self.judged), self.get(crawl, urls, " while URLs are listed and counted"));
        let got = got.await;
        self.judged = judged;
        ensure!(!looks.is_finished(), "listing has failed");
        looks.abort();
        got
    }

    async fn get(&mut self, crawl: &str, urls: usize, beside: &str) -> anyhow::Result<()> {
        self.client.set_delay(api::QueueDelayParams::default()).await?;
        let params = api::GetParams {
            max_urls_per_queue: 10,
            max_queues: 100,
            delay_requestable: 3_600,
            item: Some(get_params::Item::CrawlId(crawl.to_owned())),
            ..Default::default()
        };
        let (begun, mut got) = (Instant::now(), 0);
        let calls = (self.hosts.min(urls) / 100).min(100);
        for _ in 0..calls {
            let mut stream = self.client.get_ur_ls(params.clone()).await?.into_inner();
            while stream.message().await?.is_some() {
                got += 1;
            }
        }
        // Every call finds a hundred queues that nobody has asked yet; in a cluster some slots may be on their way to another node.
        let wanted = if self.judged { calls * 100 * (urls / self.hosts).clamp(1, 10) } else { 1 };
        ensure!(got >= wanted && got <= calls * 1_000, "{got} of {wanted} were handed out");
        self.show(&format!("GetURLs, 100 queues of 10{beside}"), got, begun.elapsed(), 50_000.0);
        let begun = Instant::now();
        let asked = api::QueueWithinCrawlParams { crawl_id: crawl.to_owned(), ..Default::default() };
        let leased = self.client.get_stats(asked).await?.into_inner().in_process;
        ensure!(leased as usize == got, "{leased} of {got} are in process");
        println!("       {}: GetStats with {leased} in process: {:.3} s", self.name, begun.elapsed().as_secs_f64());
        Ok(())
    }

    async fn count(&mut self, crawl: &str, urls: usize) -> anyhow::Result<()> {
        let begin_so = (0..urls).filter(|number| number.to_string().starts_with('1')).count();
        let filter = Some("pages/1".to_owned());
        for (filter, name, there) in [(None, "CountURLs", urls), (filter, "CountURLs with a filter", begin_so)] {
            let begun = Instant::now();
            let params = api::CountUrlParams { crawl_id: crawl.to_owned(), filter, ..Default::default() };
            let counted = self.client.count_ur_ls(params).await?.into_inner().value;
            let seconds = begun.elapsed().as_secs_f64();
            ensure!(counted == there as u64, "{counted} of {there} were counted");
            let what = format!("{}: {name}: {counted} in seconds", self.name);
            if self.judged {
                verdict(&what, format!("{seconds:.2}"), "0.5", seconds <= 0.5);
            } else {
                println!("       {what}: {seconds:.2}");
            }
        }
        Ok(())
    }

    fn show(&self, what: &str, urls: usize, took: Duration, bar: f64) {
        let rate = urls as f64 / took.as_secs_f64();
        let what = format!("{}: {what}: URLs a second", self.name);
        if self.judged {
            verdict(&what, format!("{rate:.0}"), format!("{bar:.0}"), rate >= bar);
        } else {
            println!("       {what}: {rate:.0}");
        }
    }
}
