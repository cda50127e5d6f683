//! A client of the URL Frontier API, as tests use it.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use node::doors::frontier::api::ack_message::Status as Ack;
use node::doors::frontier::api::url_frontier_client::UrlFrontierClient;
use node::doors::frontier::api::{self, get_params, url_item};
use tokio_stream::StreamExt;
use tonic::Code;
use tonic::transport::Channel;

use crate::program::Running;
use crate::{PATIENCE, wait_until};

/// A client.
pub type Client = UrlFrontierClient<Channel>;

/// Where a node that runs serves the API.
fn address(running: &Running) -> Option<String> {
    running.said("frontier: ").map(|address| format!("http://{address}"))
}

/// Starts a node alone that serves the API; and where it does.
pub fn start(data: &Path, work: &Path, name: &str) -> (Running, String) {
    let data = data.to_str().unwrap();
    let running = Running::start(["node", "--data", data, "--frontier", "127.0.0.1:0"], work, name);
    wait_until("the door is open", || address(&running).is_some());
    let address = address(&running).unwrap();
    (running, address)
}

/// A client of the server at `address`.
pub async fn connect(address: &str) -> Client {
    let client = UrlFrontierClient::connect(address.to_owned()).await.expect("the door is open");
    client.max_decoding_message_size(64 << 20)
}

/// A URL of a queue of a crawl.
pub fn info(crawl: &str, key: &str, url: &str) -> api::UrlInfo {
    api::UrlInfo { url: url.into(), key: key.into(), crawl_id: crawl.into(), ..Default::default() }
}

/// It was found.
pub fn found(info: api::UrlInfo) -> api::UrlItem {
    let item = Some(url_item::Item::Discovered(api::DiscoveredUrlItem { info: Some(info) }));
    api::UrlItem { item, ..Default::default() }
}

/// It is known, and to be fetched again at `date`; never, if that is 0.
pub fn known(info: api::UrlInfo, date: u64) -> api::UrlItem {
    let item = url_item::Item::Known(api::KnownUrlItem { info: Some(info), refetchable_from_date: date });
    api::UrlItem { item: Some(item), ..Default::default() }
}

/// Hands URLs in on one stream; what was said to each.
pub async fn put(client: &mut Client, items: Vec<api::UrlItem>) -> Vec<(String, Ack)> {
    let acks = client.put_ur_ls(tokio_stream::iter(items)).await.unwrap().into_inner();
    acks.map(|ack| ack.map(|ack| (ack.id.clone(), ack.status())).unwrap()).collect().await
}

/// Hands URLs in, which must all be taken.
pub async fn put_all(client: &mut Client, items: Vec<api::UrlItem>) {
    let acks = put(client, items).await;
    assert!(acks.iter().all(|(_, ack)| *ack == Ack::Ok), "{acks:?}");
}

/// What to ask for: `urls` URLs each of `queues` queues, for `lease` seconds; without bound where it is 0.
pub fn wanted(crawl: &str, key: &str, queues: u32, urls: u32, lease: u32) -> api::GetParams {
    let item = Some(get_params::Item::CrawlId(crawl.into()));
    api::GetParams { max_urls_per_queue: urls, max_queues: queues, key: key.into(), delay_requestable: lease, item }
}

/// Takes URLs.
pub async fn take(client: &mut Client, params: api::GetParams) -> Vec<api::UrlInfo> {
    let stream = client.get_ur_ls(params).await.unwrap().into_inner();
    stream.map(|info| info.unwrap()).collect().await
}

/// Takes URLs; their texts.
pub async fn urls(client: &mut Client, params: api::GetParams) -> Vec<String> {
    take(client, params).await.into_iter().map(|info| info.url).collect()
}

/// Takes until something comes: in a cluster a slot's lease may be on its way to another node.
pub async fn urls_at_last(client: &mut Client, params: api::GetParams) -> Vec<String> {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let urls = urls(client, params.clone()).await;
        if !urls.is_empty() || Instant::now() > until {
            return urls;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Seconds since 1970.
pub fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Waits until the server answers.
pub async fn wait_until_ready(client: &mut Client) {
    let until = Instant::now() + PATIENCE;
    while client.list_nodes(api::Empty {}).await.is_err() && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Counts of a crawl or a queue: scheduled, in process, completed, queues, active queues.
pub async fn stats(client: &mut Client, crawl: &str, key: &str) -> (u64, u32, u64, u64, u64) {
    let params = api::QueueWithinCrawlParams { key: key.into(), crawl_id: crawl.into(), local: false };
    let stats = client.get_stats(params).await.unwrap().into_inner();
    let names: Vec<&str> = stats.counts.keys().map(String::as_str).collect();
    assert_eq!(names, ["active_queues", "completed"]);
    (stats.size, stats.in_process, stats.counts["completed"], stats.number_of_queues, stats.counts["active_queues"])
}

/// What is known of a URL, or why nothing is told.
pub async fn status(client: &mut Client, crawl: &str, key: &str, url: &str) -> Result<api::UrlItem, Code> {
    let params = api::UrlStatusRequest { url: url.into(), key: key.into(), crawl_id: crawl.into() };
    client.get_url_status(params).await.map(|item| item.into_inner()).map_err(|status| status.code())
}

/// The date of an item.
pub fn date(item: &api::UrlItem) -> u64 {
    match &item.item {
        Some(url_item::Item::Known(known)) => known.refetchable_from_date,
        other => panic!("always the known variant, not {other:?}"),
    }
}

/// URLs of a page of a crawl.
pub async fn list(client: &mut Client, crawl: &str, start: u32, size: u32) -> Vec<String> {
    let params = api::ListUrlParams { crawl_id: crawl.into(), start, size, ..Default::default() };
    let stream = client.list_ur_ls(params).await.unwrap().into_inner();
    let url = |item: api::UrlItem| match item.item {
        Some(url_item::Item::Known(known)) => known.info.unwrap().url,
        other => panic!("always the known variant, not {other:?}"),
    };
    stream.map(|item| url(item.unwrap())).collect().await
}

/// How many URLs of a crawl there are.
pub async fn count(client: &mut Client, crawl: &str, filter: Option<&str>, ignore_case: bool) -> u64 {
    let filter = filter.map(str::to_owned);
    let params =
        api::CountUrlParams { crawl_id: crawl.into(), filter, ignore_case: Some(ignore_case), ..Default::default() };
    client.count_ur_ls(params).await.unwrap().into_inner().value
}

/// Queues of a crawl.
pub async fn queues(client: &mut Client, crawl: &str, inactive: bool) -> api::QueueList {
    let params = api::Pagination { crawl_id: crawl.into(), include_inactive: inactive, ..Default::default() };
    client.list_queues(params).await.unwrap().into_inner()
}

/// Forgets a crawl; how many URLs that were.
pub async fn delete_crawl(client: &mut Client, crawl: &str) -> u64 {
    let params = api::DeleteCrawlMessage { value: crawl.into(), local: false };
    client.delete_crawl(params).await.unwrap().into_inner().value
}
