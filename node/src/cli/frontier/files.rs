//! Files of URLs: handed in as fast as the server takes them, and written from what it lists. `.gz` is read and written as such.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use clap::Args;
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use futures_util::{StreamExt, TryStreamExt};
use serde_json::json;
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

use super::{Client, Complaint, Exit, json as items, refused, written};
use crate::cli::progress::say;
use crate::doors::frontier::api::{self, url_item};

/// Batches that are on their way and not yet acknowledged.
const BATCHES_WINDOW: usize = 16;
/// How often it is said how far it has come.
const SAY_EVERY: Duration = Duration::from_secs(30);
/// URLs asked for at once when all are wanted: the largest number that every server of this API understands.
const ALL: u32 = i32::MAX as u32;
/// Keys of queues asked for at once when all are wanted.
const KEYS: u32 = 1_000;

/// Arguments of `put` and `restore`.
#[derive(Args)]
pub(super) struct PutArguments {
    /// One URL or one item as JSON on a line; .gz will do; - for what is piped in
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    /// Crawl of plain URLs
    #[arg(long, default_value = "")]
    crawl: String,
    /// Hand in what was found by batches of so many, if the server takes batches; 0 for one by one, as what is known always is
    #[arg(long, default_value_t = 0)]
    batch: usize,
    /// Streams at once; what is said of one URL goes on one of them
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    streams: u16,
    /// URLs of one stream that are on their way and not yet acknowledged
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    window: u32,
}

/// Arguments of `dump`.
#[derive(Args)]
pub(super) struct DumpArguments {
    /// Where to write; .gz will do; - for what is piped on
    #[arg(long, value_name = "FILE", default_value = "-")]
    file: PathBuf,
    /// Only this crawl
    #[arg(long)]
    crawl: Option<String>,
    /// Streams at once; with more than one a crawl is read queue by queue
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    streams: u16,
}

/// What became of what was handed in.
#[derive(Default)]
struct Tally {
    kept: AtomicU64,
    skipped: AtomicU64,
    failed: AtomicU64,
}

impl Tally {
    fn add(&self, status: i32) {
        let of = match api::ack_message::Status::try_from(status) {
            Ok(api::ack_message::Status::Ok) => &self.kept,
            Ok(api::ack_message::Status::Skipped) => &self.skipped,
            _ => &self.failed,
        };
        of.fetch_add(1, Relaxed);
    }

    fn acknowledged(&self) -> u64 {
        [&self.kept, &self.skipped, &self.failed].iter().map(|count| count.load(Relaxed)).sum()
    }
}

/// Hands a file in.
pub(super) async fn put(mut client: Client, arguments: PutArguments, as_json: bool) -> Result<Exit, Complaint> {
    let reader = open(&arguments.file)?;
    let batch = match arguments.batch {
        0 => 0,
        size if takes_batches(&mut client).await? => size,
        _ => {
            eprintln!("orbweaver: the server takes no batches; URLs go one by one");
            0
        }
    };
    let (tally, window) = (Arc::new(Tally::default()), arguments.window as usize);
    let (lanes, read): (Vec<_>, Vec<_>) =
        (0..arguments.streams).map(|_| mpsc::channel::<api::UrlItem>(window.min(1_024))).unzip();
    let crawl = arguments.crawl;
    // Reading may wait for a pipe: it has a thread of its own.
    let reading = std::thread::spawn(move || read_items(reader, &crawl, &lanes));
    let began = Instant::now();
    let telling = tokio::spawn(tell_progress(Arc::clone(&tally)));
    let sent = read.into_iter().map(|read| put_lane(client.clone(), read, window, batch, &tally));
    futures_util::future::try_join_all(sent).await?;
    telling.abort();
    let Read { items, wrong, failure } =
        reading.join().map_err(|_| Complaint::failed("reading the file ended badly"))?;
    let seconds = began.elapsed().as_secs_f64();
    let [kept, skipped, failed] = [&tally.kept, &tally.skipped, &tally.failed].map(|count| count.load(Relaxed));
    // A server that ends a stream early has not said what became of the rest.
    let unanswered = items.saturating_sub(tally.acknowledged());
    if as_json {
        let value = json!({ "kept": kept, "skipped": skipped, "failed": failed, "unanswered": unanswered, "wrong": wrong,
            "seconds": seconds });
        say(&value).map_err(written)?;
    } else {
        let rate = tally.acknowledged() as f64 / seconds.max(0.001);
        let lost = if unanswered > 0 { format!("{unanswered} not acknowledged, ") } else { String::new() };
        let text =
            format!("{kept} kept, {skipped} skipped, {failed} failed, {lost}{wrong} lines wrong; {rate:.0} URLs/s");
        say(&text).map_err(written)?;
    }
    if let Some(error) = failure {
        return Err(Complaint::failed(format!(
            "{}: {error}; what was read before is handed in",
            arguments.file.display()
        )));
    }
    Ok(if failed + unanswered + wrong > 0 { Exit::Failed } else { Exit::Done })
}

/// Asks whether the server knows PutDiscovered, by a batch of nothing.
async fn takes_batches(client: &mut Client) -> Result<bool, Complaint> {
    let asked =
        async { client.put_discovered(tokio_stream::iter([Default::default()])).await?.into_inner().message().await };
    match asked.await {
        Ok(answer) => Ok(answer.is_some()),
        Err(status) if status.code() == Code::Unimplemented => Ok(false),
        Err(status) => Err(refused(status)),
    }
}

/// Hands in what one stream of lines brings: what was found by batches, if there are any, and everything else one by one. So a URL that was found and is known
/// ends as what is known of it, whichever way is faster.
async fn put_lane(
    client: Client,
    mut read: mpsc::Receiver<api::UrlItem>,
    window: usize,
    batch: usize,
    tally: &Tally,
) -> Result<(), Complaint> {
    if batch == 0 {
        return put_urls(client, read, window, tally).await;
    }
    let (one_by_one, singles) = mpsc::channel(window.min(1_024));
    let (send, batches) = mpsc::channel(BATCHES_WINDOW);
    let split = async move {
        let mut items: Vec<api::UrlInfo> = Vec::new();
        while let Some(item) = read.recv().await {
            match item.item {
                Some(url_item::Item::Discovered(api::DiscoveredUrlItem { info: Some(info) })) => items.push(info),
                // Who does not take it any more has said why.
                other => drop(one_by_one.send(api::UrlItem { item: other, ..item }).await),
            }
            if items.len() >= batch {
                let _ = send.send(std::mem::take(&mut items)).await;
            }
        }
        if !items.is_empty() {
            let _ = send.send(items).await;
        }
        Ok(())
    };
    let (urls, found) = (put_urls(client.clone(), singles, window, tally), put_batches(client, batches, tally));
    tokio::try_join!(split, urls, found).map(drop)
}

async fn put_urls(
    mut client: Client,
    mut read: mpsc::Receiver<api::UrlItem>,
    window: usize,
    tally: &Tally,
) -> Result<(), Complaint> {
    let (send, sent) = mpsc::channel(window.min(1_024));
    let credit = Semaphore::new(window);
    let sending = async {
        while let Some(item) = read.recv().await {
            let Ok(permit) = credit.acquire().await else { break };
            permit.forget();
            if send.send(item).await.is_err() {
                break; // why is said by the answers
            }
        }
        drop(send);
        Ok(())
    };
    let hearing = async {
        let mut acks = client.put_ur_ls(ReceiverStream::new(sent)).await.map_err(refused)?.into_inner();
        while let Some(ack) = acks.message().await.map_err(refused)? {
            tally.add(ack.status);
            credit.add_permits(1);
        }
        credit.close(); // a server that ends the stream hears no more
        Ok(())
    };
    tokio::try_join!(sending, hearing).map(drop)
}

async fn put_batches(
    mut client: Client,
    read: mpsc::Receiver<Vec<api::UrlInfo>>,
    tally: &Tally,
) -> Result<(), Complaint> {
    let batches = ReceiverStream::new(read).map(|items| api::DiscoveredBatch { id: String::new(), items });
    let mut acks = client.put_discovered(batches).await.map_err(refused)?.into_inner();
    while let Some(ack) = acks.message().await.map_err(refused)? {
        ack.statuses.iter().for_each(|status| tally.add(*status));
    }
    Ok(())
}

async fn tell_progress(tally: Arc<Tally>) {
    let mut last = 0;
    loop {
        tokio::time::sleep(SAY_EVERY).await;
        let all = tally.acknowledged();
        let rate = (all - last) / SAY_EVERY.as_secs();
        eprintln!("{all} handed in, {} failed; {rate} URLs/s", tally.failed.load(Relaxed));
        last = all;
    }
}

/// What was read of a file.
#[derive(Default)]
struct Read {
    items: u64,
    /// Lines that are nothing.
    wrong: u64,
    /// Why reading ended early.
    failure: Option<std::io::Error>,
}

/// Reads a file line by line, for some streams, until one of them takes no more.
fn read_items(reader: Box<dyn BufRead + Send>, crawl: &str, lanes: &[mpsc::Sender<api::UrlItem>]) -> Read {
    let mut read = Read::default();
    for (number, line) in reader.lines().enumerate() {
        let line = match line {
            Ok(line) => line,
            Err(error) => return Read { failure: Some(error), ..read },
        };
        let text = line.trim();
        if text.is_empty() {
            continue;
        }
        let item = if text.starts_with('{') { items::read(text) } else { Ok(found(text, crawl)) };
        match item {
            Err(why) => {
                eprintln!("orbweaver: line {}: {why}", number + 1);
                read.wrong += 1;
            }
            Ok(item) => {
                read.items += 1;
                let lane = lane_of(&item, lanes.len());
                if lanes[lane].blocking_send(item).is_err() {
                    eprintln!("orbweaver: line {}: the server takes no more", number + 1);
                    break;
                }
            }
        }
    }
    read
}

/// The stream on which a URL goes: always the same, so that what is said of it stays in order.
fn lane_of(item: &api::UrlItem, lanes: usize) -> usize {
    let info = match &item.item {
        Some(url_item::Item::Discovered(found)) => found.info.as_ref(),
        Some(url_item::Item::Known(known)) => known.info.as_ref(),
        None => None,
    };
    let hash = info.map_or(0, |info| xxhash_rust::xxh3::xxh3_64(info.url.as_bytes()));
    (hash % lanes as u64) as usize
}

fn found(url: &str, crawl: &str) -> api::UrlItem {
    let info = api::UrlInfo { url: url.to_owned(), crawl_id: crawl.to_owned(), ..api::UrlInfo::default() };
    let found = api::DiscoveredUrlItem { info: Some(info) };
    api::UrlItem { id: String::new(), creation_date: 0, item: Some(url_item::Item::Discovered(found)) }
}

fn open(path: &Path) -> Result<Box<dyn BufRead + Send>, Complaint> {
    if path == Path::new("-") {
        return Ok(Box::new(BufReader::new(std::io::stdin())));
    }
    let failed = |error| Complaint::usage(format!("cannot read {}: {error}", path.display()));
    let file = File::open(path).map_err(failed)?;
    let is_packed = path.extension().is_some_and(|extension| extension == "gz");
    Ok(if is_packed { Box::new(BufReader::new(MultiGzDecoder::new(file))) } else { Box::new(BufReader::new(file)) })
}

/// A file that is written, packed if its name says so; - is what is piped on.
pub(super) struct Out {
    file: PathBuf,
    to: Packed,
}

enum Packed {
    No(Box<dyn Write + Send>),
    Gzip(Box<GzEncoder<BufWriter<File>>>),
}

impl Out {
    pub(super) fn create(file: &Path) -> Result<Out, Complaint> {
        let to = if file == Path::new("-") {
            Packed::No(Box::new(BufWriter::new(std::io::stdout())))
        } else {
            let created = File::create(file).map_err(|error| cannot_write(file, &error))?;
            let is_packed = file.extension().is_some_and(|extension| extension == "gz");
            match BufWriter::new(created) {
                out if is_packed => Packed::Gzip(Box::new(GzEncoder::new(out, Compression::default()))),
                out => Packed::No(Box::new(out)),
            }
        };
        Ok(Out { file: file.to_owned(), to })
    }

    pub(super) fn line(&mut self, line: &dyn std::fmt::Display) -> Result<(), Complaint> {
        let written = match &mut self.to {
            Packed::No(out) => writeln!(out, "{line}"),
            Packed::Gzip(out) => writeln!(out, "{line}"),
        };
        written.map_err(|error| cannot_write(&self.file, &error))
    }

    /// Ends the file; what cannot be written is an error until here.
    fn end(self) -> Result<(), Complaint> {
        let ended = match self.to {
            Packed::No(mut out) => out.flush(),
            Packed::Gzip(out) => out.finish().and_then(|mut out| out.flush()),
        };
        ended.map_err(|error| cannot_write(&self.file, &error))
    }

    /// Ends the file and says how much is in it, unless it is what is piped on.
    pub(super) fn end_with(self, count: u64, what: &str, as_json: bool) -> Result<Exit, Complaint> {
        let piped = self.file == Path::new("-");
        self.end()?;
        if !piped {
            let told = if as_json {
                json!({ (what.to_lowercase()): count }).to_string()
            } else {
                format!("{count} {what} are written")
            };
            say(&told).map_err(written)?;
        }
        Ok(Exit::Done)
    }
}

fn cannot_write(file: &Path, error: &std::io::Error) -> Complaint {
    Complaint::failed(format!("cannot write {}: {error}", file.display()))
}

/// Writes all URLs.
pub(super) async fn dump(mut client: Client, arguments: DumpArguments, as_json: bool) -> Result<Exit, Complaint> {
    let crawls = match arguments.crawl {
        Some(crawl) => vec![crawl],
        None => client.list_crawls(api::Local { local: false }).await.map_err(refused)?.into_inner().values,
    };
    let mut out = Out::create(&arguments.file)?;
    let mut parts = Vec::new();
    for crawl in crawls {
        let of = |key: String| api::ListUrlParams { size: ALL, key, crawl_id: crawl.clone(), ..Default::default() };
        if arguments.streams == 1 {
            parts.push(of(String::new()));
        } else {
            parts.extend(keys(&mut client, &crawl, true, false).await?.into_iter().map(of));
        }
    }
    // A slow disk or pipe holds the streams up: a few items wait, and the rest stays with the server.
    let (send, mut items) = mpsc::channel(256);
    let reading = async move {
        let parts = futures_util::stream::iter(parts.into_iter().map(Ok));
        let read = parts.try_for_each_concurrent(usize::from(arguments.streams), |params| {
            let (mut client, send) = (client.clone(), send.clone());
            async move {
                let mut stream = client.list_ur_ls(params).await.map_err(refused)?.into_inner();
                while let Some(item) = stream.message().await.map_err(refused)? {
                    if send.send(item).await.is_err() {
                        break; // it cannot be written
                    }
                }
                Ok(())
            }
        });
        read.await
    };
    let written = AtomicU64::new(0);
    let writing = async {
        while let Some(item) = items.recv().await {
            out.line(&items::item(&item))?;
            written.fetch_add(1, Relaxed);
        }
        out.end_with(written.load(Relaxed), "URLs", as_json)
    };
    let telling = async {
        loop {
            tokio::time::sleep(SAY_EVERY).await;
            eprintln!("{} URLs are written", written.load(Relaxed));
        }
    };
    tokio::select! {
        done = async { tokio::try_join!(reading, writing) } => done.map(|((), exit)| exit),
        _ = telling => unreachable!("it is said for ever"),
    }
}

/// Keys of all queues of a crawl, page by page.
pub(super) async fn keys(
    client: &mut Client,
    crawl: &str,
    inactive: bool,
    local: bool,
) -> Result<Vec<String>, Complaint> {
    let mut keys: Vec<String> = Vec::new();
    loop {
        let start =
            u32::try_from(keys.len()).map_err(|_| Complaint::failed("there are more queues than can be told"))?;
        let (crawl_id, include_inactive) = (crawl.to_owned(), inactive);
        let params = api::Pagination { start, size: KEYS, include_inactive, crawl_id, local };
        let page = client.list_queues(params).await.map_err(refused)?.into_inner();
        // A server that counts them may give fewer than a page, if their names are long; others give as many as are wanted.
        let (is_short, is_empty) = (page.values.len() < KEYS as usize, page.values.is_empty());
        keys.extend(page.values);
        if is_empty || (is_short && page.total <= keys.len() as u64) {
            return Ok(keys);
        }
    }
}
