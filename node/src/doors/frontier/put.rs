//! URLs that clients hand in: read as many as are there, carried out together, acknowledged one by one. While some are being kept, the next are read and carried out too, but for those
//! that say something of the same URL: they wait, so that updates of a URL take effect in their order. While a client does not read its acknowledgements nothing more is read of it.

use std::collections::{BTreeSet, VecDeque};
use std::future::Future;

use futures_util::{FutureExt, Stream, StreamExt};
use prost::Message;
use proto::clients::ask::{Item, Taken};
use proto::clients::identity::ITEM_BYTES_MAX;
use proto::clients::record::ClientUrl;
use tokio::task::JoinHandle;
use tonic::{Status, Streaming};
use xxhash_rust::xxh3::Xxh3;

use super::api::{self, url_item};
use super::desk::Desk;
use super::outbox::Outbox;
use super::service::{item, status};
use crate::metrics::frontier::FrontierMetrics;

/// URLs that are read and not acknowledged.
pub(super) const URLS_WINDOW: usize = 1_024;
/// Batches that are read and not acknowledged.
pub(super) const BATCHES_WINDOW: usize = 16;
/// Parts of such a window that are carried out at once.
const PARTS: usize = 2;
/// Bytes of URLs and names that are read and not acknowledged, but for one message more: parcels of a larger part would go one after the other.
const BYTES_MAX: usize = 1 << 20;

/// A message of a client, understood: its name, and its URLs but for those that cannot be taken.
struct Said {
    id: String,
    items: Vec<Option<Item>>,
}

/// What a client said, and is being carried out.
struct Part {
    /// Names of messages, and which of their URLs can be taken.
    named: Vec<(String, Vec<bool>)>,
    /// The URLs of which something is said, as numbers: two may have the same, then one waits for the other.
    urls: BTreeSet<u64>,
    bytes: usize,
    /// What becomes of those that can be taken. It goes on also while the client reads nothing: others may wait for the room that it has.
    taken: JoinHandle<Vec<Taken>>,
}

/// Carries out PutURLs.
pub(super) async fn urls(
    desk: Desk,
    metrics: FrontierMetrics,
    stream: Streaming<api::UrlItem>,
    answers: Outbox<api::AckMessage>,
) {
    let ack = |id, mut became: Vec<Taken>| {
        let became = became.pop().unwrap_or(Taken::Failed);
        api::AckMessage { id, status: status(became).into() }
    };
    let put = move |items| {
        let desk = desk.clone();
        async move { desk.put(items).await }
    };
    carry_out(put, &metrics, stream, URLS_WINDOW, understand, &answers, ack).await;
}

/// Carries out PutDiscovered.
pub(super) async fn batches(
    desk: Desk,
    metrics: FrontierMetrics,
    stream: Streaming<api::DiscoveredBatch>,
    answers: Outbox<api::BatchAck>,
) {
    let ack = |id, became: Vec<Taken>| {
        let statuses = became.into_iter().map(|became| status(became).into()).collect();
        api::BatchAck { id, statuses }
    };
    let put = move |items| {
        let desk = desk.clone();
        async move { desk.put(items).await }
    };
    carry_out(put, &metrics, stream, BATCHES_WINDOW, understand_batch, &answers, ack).await;
}

/// `put` has URLs taken in; of `stream` no more is read than the window.
async fn carry_out<M, T: Message, F: Future<Output = Vec<Taken>> + Send + 'static>(
    put: impl Fn(Vec<Item>) -> F,
    metrics: &FrontierMetrics,
    mut stream: impl Stream<Item = Result<M, Status>> + Unpin,
    window: usize,
    understand: impl Fn(M) -> Result<Said, Status>,
    answers: &Outbox<T>,
    ack: impl Fn(String, Vec<Taken>) -> T,
) {
    let (mut under_way, mut end): (VecDeque<Part>, End) = (VecDeque::new(), None);
    loop {
        let room = BYTES_MAX.saturating_sub(under_way.iter().map(|part| part.bytes).sum());
        let may_read = end.is_none() && under_way.len() < PARTS && room > 0;
        tokio::select! {
            biased;
            taken = first(&mut under_way), if !under_way.is_empty() => {
                let Some(part) = under_way.pop_front() else { continue };
                if !acknowledge(part.named, taken, answers, &ack).await {
                    return; // nobody listens any more
                }
            }
            (read, bytes, ended) = read(&mut stream, (window / PARTS, room), &understand), if may_read => {
                end = ended;
                let urls: BTreeSet<u64> = read.iter().flat_map(|said| &said.items).flatten().map(number).collect();
                while under_way.iter().any(|part| !part.urls.is_disjoint(&urls)) {
                    let taken = first(&mut under_way).await;
                    let Some(part) = under_way.pop_front() else { continue };
                    if !acknowledge(part.named, taken, answers, &ack).await {
                        return;
                    }
                }
                under_way.push_back(begin(&put, metrics, read, urls, bytes));
            }
            else => break,
        }
    }
    if let Some(Err(error)) = end {
        answers.fail(error).await;
    }
}

fn begin<F: Future<Output = Vec<Taken>> + Send + 'static>(
    put: impl Fn(Vec<Item>) -> F,
    metrics: &FrontierMetrics,
    read: Vec<Said>,
    urls: BTreeSet<u64>,
    bytes: usize,
) -> Part {
    let (mut named, mut items) = (Vec::with_capacity(read.len()), Vec::with_capacity(read.len()));
    for said in read {
        said.items.iter().for_each(|item| metrics.put(item.as_ref().map(|item| item.date_s)));
        named.push((said.id, said.items.iter().map(Option::is_some).collect()));
        items.extend(said.items.into_iter().flatten());
    }
    let metrics = metrics.clone();
    let dates: Vec<Option<u64>> = items.iter().map(|item| item.date_s).collect();
    let put = (!items.is_empty()).then(|| put(items));
    let taken = tokio::spawn(async move {
        let taken = match put {
            Some(put) => put.await,
            None => Vec::new(),
        };
        metrics.count(&dates, &taken);
        taken
    });
    Part { named, urls, bytes, taken }
}

/// What became of the first part; it may be waited for again.
async fn first(under_way: &mut VecDeque<Part>) -> Vec<Taken> {
    match under_way.front_mut() {
        Some(part) => (&mut part.taken).await.unwrap_or_default(),
        None => Vec::new(),
    }
}

/// Tells a client what became of its URLs; says whether it still listens.
async fn acknowledge<T: Message>(
    named: Vec<(String, Vec<bool>)>,
    taken: Vec<Taken>,
    answers: &Outbox<T>,
    ack: impl Fn(String, Vec<Taken>) -> T,
) -> bool {
    let mut taken = taken.into_iter();
    for (id, items) in named {
        let mut became = |is_item| if is_item { taken.next().unwrap_or(Taken::Failed) } else { Taken::Skipped };
        let became = items.into_iter().map(&mut became).collect();
        if !answers.send(ack(id, became)).await {
            return false;
        }
    }
    true
}

/// How a stream ended.
type End = Option<Result<(), Status>>;

/// Waits for a message and takes what else is there already, up to so many and so many bytes; says how many bytes that is. Each is understood at once: what is left of one that is larger
/// than can be taken is its name.
async fn read<M>(
    stream: &mut (impl Stream<Item = Result<M, Status>> + Unpin),
    (messages_max, bytes_max): (usize, usize),
    understand: impl Fn(M) -> Result<Said, Status>,
) -> (Vec<Said>, usize, End) {
    let (mut read, mut bytes) = (Vec::new(), 0);
    let mut next = Some(stream.next().await);
    while let Some(message) = next {
        match message {
            None => return (read, bytes, Some(Ok(()))),
            Some(Err(error)) => return (read, bytes, Some(Err(error))),
            Some(Ok(message)) => match understand(message) {
                Ok(said) => {
                    let items = said.items.iter().map(|item| item.as_ref().map_or(1, item_bytes));
                    bytes += said.id.len() + items.sum::<usize>();
                    read.push(said);
                }
                Err(error) => return (read, bytes, Some(Err(error))),
            },
        }
        let is_full = read.len() >= messages_max || bytes >= bytes_max;
        next = if is_full { None } else { stream.next().now_or_never() };
    }
    (read, bytes, None)
}

/// What a client hands in, and the name it is acknowledged by.
fn understand(url: api::UrlItem) -> Result<Said, Status> {
    let (info, date_s) = match url.item {
        Some(url_item::Item::Discovered(found)) => (found.info, None),
        Some(url_item::Item::Known(known)) => (known.info, Some(known.refetchable_from_date)),
        None => (None, None),
    };
    let id = if url.id.is_empty() { url_for_name(info.as_ref()) } else { name(url.id)? };
    Ok(Said { id, items: vec![item(info, date_s)] })
}

fn understand_batch(batch: api::DiscoveredBatch) -> Result<Said, Status> {
    let items = batch.items.into_iter().map(|info| item(Some(info), None)).collect();
    Ok(Said { id: name(batch.id)?, items })
}

/// The name that a client gives; too long a one would have to wait for it to read.
fn name(id: String) -> Result<String, Status> {
    match id.len() > ITEM_BYTES_MAX {
        true => Err(Status::invalid_argument(format!("an ID has at most {ITEM_BYTES_MAX} bytes"))),
        false => Ok(id),
    }
}

/// The name of what has none: its URL, of which one that is too long is skipped by its beginning.
fn url_for_name(info: Option<&api::UrlInfo>) -> String {
    let url = info.map_or("", |info| &info.url);
    url[..url.floor_char_boundary(ITEM_BYTES_MAX)].to_owned()
}

fn item_bytes(item: &Item) -> usize {
    let values = |values: &Vec<String>| values.iter().map(|value| value.len() + 24).sum::<usize>();
    let metadata: usize = item.metadata.iter().map(|(name, of)| name.len() + 48 + values(of)).sum();
    ClientUrl::bytes(&item.url, &Vec::new()) + metadata
}

fn number(item: &Item) -> u64 {
    let mut hasher = Xxh3::new();
    for part in [&item.crawl, &item.key, &item.url] {
        hasher.update(part.as_bytes());
        hasher.update(&[0xff]); // stands in no text
    }
    hasher.digest()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::super::outbox::outbox;
    use super::*;

    fn info(url: &str) -> api::UrlInfo {
        api::UrlInfo { url: url.to_owned(), key: "k".to_owned(), ..Default::default() }
    }

    fn found(url: &str) -> api::UrlItem {
        let item = url_item::Item::Discovered(api::DiscoveredUrlItem { info: Some(info(url)) });
        api::UrlItem { item: Some(item), ..Default::default() }
    }

    /// How many of a client's messages are read while what they say is never taken in.
    async fn read_of<M: Send + 'static>(
        message: impl Fn(usize) -> M + Send + 'static,
        window: usize,
        understand: impl Fn(M) -> Result<Said, Status>,
    ) -> usize {
        let count = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&count);
        let all = futures_util::stream::iter(0..).map(move |number| {
            counts.fetch_add(1, Relaxed);
            Ok(message(number))
        });
        let (answers, _unread) = outbox::<api::AckMessage>(window);
        let ack = |id, _| api::AckMessage { id, status: 0 };
        let (never, metrics) = (|_| std::future::pending(), FrontierMetrics::default());
        let carried = carry_out(never, &metrics, all, window, understand, &answers, ack);
        assert!(tokio::time::timeout(std::time::Duration::from_secs(9), carried).await.is_err(), "it goes on for ever");
        count.load(Relaxed)
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_is_read_than_the_window_while_nothing_is_acknowledged() {
        let urls = read_of(|number| found(&number.to_string()), URLS_WINDOW, understand).await;
        assert_eq!(urls, URLS_WINDOW);
        let batch = |number: usize| {
            let items = (0..10).map(|n| info(&format!("{number}-{n}"))).collect();
            api::DiscoveredBatch { id: number.to_string(), items }
        };
        assert_eq!(read_of(batch, BATCHES_WINDOW, understand_batch).await, BATCHES_WINDOW);
        // Of large ones fewer, by their bytes and one message more.
        let large = |number: usize| api::UrlItem {
            id: number.to_string(),
            ..found(&format!("{number}/{}", "x".repeat(50_000)))
        };
        let read = read_of(large, URLS_WINDOW, understand).await;
        assert!((BYTES_MAX / 51_000..=BYTES_MAX / 50_000 + 2).contains(&read), "{read}");
    }
}
