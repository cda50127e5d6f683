//! URLs that clients hand in: read as many as are there, carried out together, acknowledged one by one. While a client does not read its
//! acknowledgements nothing more is read of it.

use futures_util::{FutureExt, StreamExt};
use prost::Message;
use proto::clients::ask::{Item, Taken};
use proto::clients::identity::ITEM_BYTES_MAX;
use proto::clients::record::ClientUrl;
use tonic::{Status, Streaming};

use super::api::{self, url_item};
use super::desk::Desk;
use super::outbox::Outbox;
use super::service::{item, status};
use crate::metrics::frontier::FrontierMetrics;

/// URLs that are read and not acknowledged.
pub(super) const URLS_WINDOW: usize = 1_024;
/// Batches that are read and not acknowledged.
pub(super) const BATCHES_WINDOW: usize = 16;
/// Bytes of URLs that are carried out together, and of names that wait to be acknowledged: more would go in several parcels, one after the other.
const BYTES_MAX: usize = 1 << 20;

/// Carries out PutURLs.
pub(super) async fn urls(
    desk: Desk,
    metrics: FrontierMetrics,
    mut stream: Streaming<api::UrlItem>,
    answers: Outbox<api::AckMessage>,
) {
    loop {
        let (read, end) = read(&mut stream, URLS_WINDOW, understand).await;
        let mut acks = Vec::with_capacity(read.len());
        let mut items = Vec::with_capacity(read.len());
        for (ack, item) in read {
            metrics.put(item.as_ref().map(|item| item.date_s));
            acks.push((ack, item.is_some()));
            items.extend(item);
        }
        let known: Vec<Option<u64>> = items.iter().map(|item| item.date_s).collect();
        let taken = desk.put(items).await;
        metrics.count(&known, &taken);
        let mut taken = taken.into_iter();
        for (id, is_item) in acks {
            let became = if is_item { taken.next().unwrap_or(Taken::Failed) } else { Taken::Skipped };
            let ack = api::AckMessage { id, status: status(became).into() };
            if !answers.send(ack).await {
                return; // nobody listens any more
            }
        }
        if tell_end(end, &answers).await {
            return;
        }
    }
}

/// Carries out PutDiscovered.
pub(super) async fn batches(
    desk: Desk,
    metrics: FrontierMetrics,
    mut stream: Streaming<api::DiscoveredBatch>,
    answers: Outbox<api::BatchAck>,
) {
    loop {
        let (read, end) = read(&mut stream, BATCHES_WINDOW, understand_batch).await;
        let mut acks = Vec::with_capacity(read.len());
        let mut items: Vec<Item> = Vec::new();
        for (id, understood) in read {
            understood.iter().for_each(|item| metrics.put(item.as_ref().map(|item| item.date_s)));
            acks.push((id, understood.iter().map(Option::is_some).collect::<Vec<bool>>()));
            items.extend(understood.into_iter().flatten());
        }
        let known = vec![None; items.len()];
        let taken = if items.is_empty() { Vec::new() } else { desk.put(items).await };
        metrics.count(&known, &taken);
        let mut taken = taken.into_iter();
        for (id, items) in acks {
            let mut became = |is_item| if is_item { taken.next().unwrap_or(Taken::Failed) } else { Taken::Skipped };
            let statuses = items.into_iter().map(|is_item| status(became(is_item)).into()).collect();
            if !answers.send(api::BatchAck { id, statuses }).await {
                return;
            }
        }
        if tell_end(end, &answers).await {
            return;
        }
    }
}

/// How a stream ended.
type End = Option<Result<(), Status>>;

/// Waits for a message and takes what else is there already. Each is understood at once: what is left of one that is larger than can be taken is its name.
async fn read<M, T>(
    stream: &mut Streaming<M>,
    limit: usize,
    understand: impl Fn(M) -> Result<(usize, T), Status>,
) -> (Vec<T>, End) {
    let (mut read, mut size) = (Vec::new(), 0);
    let mut next = Some(stream.next().await);
    while let Some(message) = next {
        match message {
            None => return (read, Some(Ok(()))),
            Some(Err(error)) => return (read, Some(Err(error))),
            Some(Ok(message)) => match understand(message) {
                Ok((bytes, understood)) => {
                    size += bytes;
                    read.push(understood);
                }
                Err(error) => return (read, Some(Err(error))),
            },
        }
        next = if read.len() >= limit || size >= BYTES_MAX { None } else { stream.next().now_or_never() };
    }
    (read, None)
}

/// Tells a client why its stream ended, if it did not end it itself; says whether it has ended.
async fn tell_end<T: Message>(end: End, answers: &Outbox<T>) -> bool {
    if let Some(Err(error)) = &end {
        answers.fail(error.clone()).await;
    }
    end.is_some()
}

/// What a client hands in, and the name it is acknowledged by; and how much that is.
fn understand(url: api::UrlItem) -> Result<(usize, (String, Option<Item>)), Status> {
    let (info, date_s) = match url.item {
        Some(url_item::Item::Discovered(found)) => (found.info, None),
        Some(url_item::Item::Known(known)) => (known.info, Some(known.refetchable_from_date)),
        None => (None, None),
    };
    let id = if url.id.is_empty() { url_for_name(info.as_ref()) } else { name(url.id)? };
    let item = item(info, date_s);
    Ok((id.len() + item.as_ref().map_or(0, item_bytes), (id, item)))
}

fn understand_batch(batch: api::DiscoveredBatch) -> Result<(usize, (String, Vec<Option<Item>>)), Status> {
    let id = name(batch.id)?;
    let items: Vec<Option<Item>> = batch.items.into_iter().map(|info| item(Some(info), None)).collect();
    let bytes = items.iter().map(|item| item.as_ref().map_or(1, item_bytes)).sum::<usize>();
    Ok((id.len() + bytes, (id, items)))
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
