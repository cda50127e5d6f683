//! GetURLs: every node hands out of the queues that it holds, a fair share of what the client wants each; what one has too little of, the others
//! may fill. Nodes that do not answer are left out: their slots will be somebody else's soon.

use proto::clients::ask::{ANSWER_BYTES_MAX, Act, Ask, Said, Told};
use proto::clients::record::ClientUrl;
use std::time::Duration;

use proto::id::NodeId;
use proto::key::DEFAULT_CRAWL;

use super::api;
use super::desk::{Desk, Unavailable};
use super::outbox::Outbox;
use super::service::info_of;
use crate::edges::store::TAKE_URLS_MAX;
use crate::metrics::frontier::FrontierMetrics;

/// Times that the nodes are asked for what is still wanted.
const ROUNDS_MAX: usize = 16;
/// How long a client may take to read one URL: meanwhile the others are held for it in memory.
const READ_PATIENCE: Duration = Duration::from_secs(10);

/// Hands URLs to a client.
pub(super) async fn take(
    desk: &Desk,
    crawl: Option<String>,
    params: &api::GetParams,
    first: usize,
    answers: &Outbox<api::UrlInfo>,
    metrics: &FrontierMetrics,
) -> Result<(), Unavailable> {
    let (delay_default_s, wanted) = (desk.node().client_settings().0.delay_s, params.max_queues);
    let act = |key: Option<String>, queues_max: u32| {
        Ask::Act(Act::Take {
            crawl: crawl.clone(),
            key,
            queues_max,
            urls_max: params.max_urls_per_queue,
            lease_s: params.delay_requestable,
            delay_default_s,
        })
    };
    if !params.key.is_empty() {
        let crawl = crawl.as_deref().unwrap_or(DEFAULT_CRAWL);
        let said = desk.ask_owner(crawl, &params.key, act(Some(params.key.clone()), 1)).await?;
        if let Said::Given { urls, .. } = said {
            tell(urls, answers, metrics).await;
        }
        return Ok(());
    }
    let mut nodes: Vec<NodeId> = desk.places().await?.alive.into_iter().collect();
    let begins = first % nodes.len().max(1);
    nodes.rotate_left(begins);
    let mut left = wanted;
    for _ in 0..ROUNDS_MAX {
        let count = nodes.len() as u32;
        // Where fewer queues are wanted than there are nodes, the first ones give; the next call begins elsewhere.
        let shares = nodes.iter().zip(0..).map(|(node, place)| {
            let share = if wanted == 0 { 0 } else { left / count + u32::from(place < left % count) };
            (*node, share)
        });
        let asked: Vec<(NodeId, u32)> = shares.filter(|(_, share)| wanted == 0 || *share > 0).collect();
        let calls = asked.iter().map(|(node, share)| desk.ask(*node, act(None, *share)));
        let said = futures_util::future::join_all(calls).await;
        // Who gave less than it was asked for has no more.
        let mut has_more: Vec<NodeId> =
            nodes.iter().filter(|node| !asked.iter().any(|(of, _)| of == *node)).copied().collect();
        for ((node, share), said) in asked.into_iter().zip(said) {
            let Ok(Said::Given { urls, queues }) = said else { continue };
            left = left.saturating_sub(queues);
            // The last queue of an answer that is full may have more, and was served: who wants that calls again.
            let gave_all = !urls.is_empty() && (wanted == 0 || queues >= share) && !is_full(&urls);
            if gave_all {
                has_more.push(node);
            }
            if !tell(urls, answers, metrics).await {
                return Ok(());
            }
        }
        nodes = has_more;
        if (wanted > 0 && left == 0) || nodes.is_empty() {
            break;
        }
    }
    Ok(())
}

/// Whether a node may have left something out because its answer was long enough.
fn is_full(urls: &[Told]) -> bool {
    let bytes = |told: &Told| ClientUrl::bytes(&told.url, &told.metadata) + told.key.len() + told.crawl.len() + 32;
    urls.len() >= TAKE_URLS_MAX || urls.iter().map(bytes).sum::<usize>() >= ANSWER_BYTES_MAX
}

/// Hands URLs on; says whether somebody still listens.
async fn tell(urls: Vec<Told>, answers: &Outbox<api::UrlInfo>, metrics: &FrontierMetrics) -> bool {
    metrics.got.inc_by(urls.len() as u64);
    for Told { crawl, key, url, metadata, .. } in urls {
        let read = answers.send(info_of(crawl, key, url, metadata));
        if tokio::time::timeout(READ_PATIENCE, read).await != Ok(true) {
            return false; // what it does not take comes back when its lease is over
        }
    }
    true
}
