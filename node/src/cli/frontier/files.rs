//! Files of URLs: handed in as fast as the server takes them, and written from what it lists. `.gz` is read and written as such.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::{Client, Complaint, Exit, json as items, refused, written};
use crate::cli::progress::say;
use crate::doors::frontier::api::{self, url_item};

/// Items that are read and not yet acknowledged.
const WINDOW: usize = 10_000;
/// How often it is said how far it has come.
const SAY_EVERY: Duration = Duration::from_secs(30);
/// URLs asked for at once when all are wanted: the largest number that every server of this API understands.
const ALL: u32 = i32::MAX as u32;

/// Arguments of `put` and `restore`.
#[derive(Args)]
pub(super) struct PutArguments {
    /// One URL or one item as JSON on a line; .gz will do; - for what is piped in
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    /// Crawl of plain URLs
    #[arg(long, default_value = "")]
    crawl: String,
    /// Hand plain URLs in by batches of so many; 0 for one by one
    #[arg(long, default_value_t = 0)]
    batch: usize,
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
}

/// What became of what was handed in.
#[derive(Default)]
struct Tally {
    kept: u64,
    skipped: u64,
    failed: u64,
    wrong: u64,
}

impl Tally {
    fn add(&mut self, status: i32) {
        match api::ack_message::Status::try_from(status) {
            Ok(api::ack_message::Status::Ok) => self.kept += 1,
            Ok(api::ack_message::Status::Skipped) => self.skipped += 1,
            _ => self.failed += 1,
        }
    }

    fn all(&self) -> u64 {
        self.kept + self.skipped + self.failed
    }
}

/// Hands a file in.
pub(super) async fn put(client: Client, arguments: PutArguments, as_json: bool) -> Result<Exit, Complaint> {
    let reader = open(&arguments.file)?;
    let (lines, read) = mpsc::channel::<Result<api::UrlItem, String>>(WINDOW);
    let crawl = arguments.crawl;
    // Reading may wait for a pipe: it has a thread of its own.
    let reading = std::thread::spawn(move || read_items(reader, &crawl, &lines));
    let began = Instant::now();
    let mut tally = if arguments.batch > 0 {
        put_batches(client, read, arguments.batch).await?
    } else {
        put_urls(client, read).await?
    };
    let (wrong, failure) = reading.join().map_err(|_| Complaint::failed("reading the file ended badly"))?;
    tally.wrong = wrong;
    let seconds = began.elapsed().as_secs_f64();
    if as_json {
        let value = json!({ "kept": tally.kept, "skipped": tally.skipped, "failed": tally.failed, "wrong": tally.wrong, "seconds": seconds });
        say(&value).map_err(written)?;
    } else {
        let rate = tally.all() as f64 / seconds.max(0.001);
        let text = format!(
            "{} kept, {} skipped, {} failed, {} lines wrong; {rate:.0} URLs/s",
            tally.kept, tally.skipped, tally.failed, tally.wrong
        );
        say(&text).map_err(written)?;
    }
    if let Some(error) = failure {
        return Err(Complaint::failed(format!(
            "{}: {error}; what was read before is handed in",
            arguments.file.display()
        )));
    }
    Ok(if tally.failed > 0 || tally.wrong > 0 { Exit::Failed } else { Exit::Done })
}

async fn put_urls(
    mut client: Client,
    mut read: mpsc::Receiver<Result<api::UrlItem, String>>,
) -> Result<Tally, Complaint> {
    let (send, sent) = mpsc::channel(WINDOW);
    let window = std::sync::Arc::new(tokio::sync::Semaphore::new(WINDOW));
    let credit = std::sync::Arc::clone(&window);
    tokio::spawn(async move {
        while let Some(item) = read.recv().await {
            let Ok(item) = item else { continue };
            let Ok(permit) = credit.acquire().await else { return };
            permit.forget();
            if send.send(item).await.is_err() {
                return;
            }
        }
    });
    let mut acks = client.put_ur_ls(ReceiverStream::new(sent)).await.map_err(refused)?.into_inner();
    let (mut tally, mut said) = (Tally::default(), Instant::now());
    while let Some(ack) = acks.message().await.map_err(refused)? {
        tally.add(ack.status);
        window.add_permits(1);
        tell_progress(&tally, &mut said);
    }
    Ok(tally)
}

async fn put_batches(
    mut client: Client,
    mut read: mpsc::Receiver<Result<api::UrlItem, String>>,
    size: usize,
) -> Result<Tally, Complaint> {
    let (send, sent) = mpsc::channel(16);
    tokio::spawn(async move {
        let mut batch = api::DiscoveredBatch::default();
        loop {
            let item = read.recv().await;
            let ended = item.is_none();
            if let Some(Ok(api::UrlItem { item: Some(url_item::Item::Discovered(found)), .. })) = item {
                batch.items.extend(found.info);
            }
            let gone = (batch.items.len() >= size || ended) && send.send(std::mem::take(&mut batch)).await.is_err();
            if gone || ended {
                return;
            }
        }
    });
    let mut acks = client.put_discovered(ReceiverStream::new(sent)).await.map_err(refused)?.into_inner();
    let (mut tally, mut said) = (Tally::default(), Instant::now());
    while let Some(ack) = acks.message().await.map_err(refused)? {
        ack.statuses.iter().for_each(|status| tally.add(*status));
        tell_progress(&tally, &mut said);
    }
    Ok(tally)
}

fn tell_progress(tally: &Tally, said: &mut Instant) {
    if said.elapsed() >= SAY_EVERY {
        *said = Instant::now();
        eprintln!("{} handed in, {} failed", tally.all(), tally.failed);
    }
}

/// Reads a file line by line; says how many lines are nothing, and why reading ended early.
fn read_items(
    reader: Box<dyn BufRead + Send>,
    crawl: &str,
    to: &mpsc::Sender<Result<api::UrlItem, String>>,
) -> (u64, Option<std::io::Error>) {
    let mut wrong = 0;
    for (number, line) in reader.lines().enumerate() {
        let line = match line {
            Ok(line) => line,
            Err(error) => return (wrong, Some(error)),
        };
        let text = line.trim();
        if text.is_empty() {
            continue;
        }
        let item = if text.starts_with('{') { items::read(text) } else { Ok(found(text, crawl)) };
        if let Err(why) = &item {
            eprintln!("orbweaver: line {}: {why}", number + 1);
            wrong += 1;
        }
        if to.blocking_send(item).is_err() {
            break;
        }
    }
    (wrong, None)
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

/// Writes all URLs.
pub(super) async fn dump(mut client: Client, arguments: DumpArguments, as_json: bool) -> Result<Exit, Complaint> {
    let crawls = match arguments.crawl {
        Some(crawl) => vec![crawl],
        None => client.list_crawls(api::Local { local: false }).await.map_err(refused)?.into_inner().values,
    };
    let piped = arguments.file == Path::new("-");
    let failed =
        |error: std::io::Error| Complaint::failed(format!("cannot write {}: {error}", arguments.file.display()));
    let is_packed = arguments.file.extension().is_some_and(|extension| extension == "gz");
    let mut out: Box<dyn Write> = if piped {
        Box::new(BufWriter::new(std::io::stdout()))
    } else {
        let file = BufWriter::new(File::create(&arguments.file).map_err(failed)?);
        if is_packed { Box::new(GzEncoder::new(file, Compression::default())) } else { Box::new(file) }
    };
    let mut count = 0u64;
    for crawl in crawls {
        let params = api::ListUrlParams { size: ALL, crawl_id: crawl, ..api::ListUrlParams::default() };
        let mut stream = client.list_ur_ls(params).await.map_err(refused)?.into_inner();
        while let Some(item) = stream.message().await.map_err(refused)? {
            writeln!(out, "{}", items::item(&item)).map_err(failed)?;
            count += 1;
        }
    }
    out.flush().map_err(failed)?;
    drop(out); // the end of a packed file
    if !piped {
        if as_json { say(&json!({ "urls": count })) } else { say(&format_args!("{count} URLs are written")) }
            .map_err(written)?;
    }
    Ok(Exit::Done)
}
