//! Runs a node within the test, where its actors can be made to die and its state be read at any moment.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use node::config::Config;
use node::messages::DiscoveredUrls;
use node::node::Node;
use proto::batch::{Discovered, EntryKind};
use proto::crawl::filter::{Filter, Scope};
use proto::url::CanonicalUrl;
use simulation::world::server::Server;

use crate::PATIENCE;

/// Settings for a crawl of everything on loopback without delay, into `data`; `toml` overrides.
pub fn config(data: &Path, toml: &str) -> Config {
    let mut config: Config = toml::from_str(toml).expect("the settings of a test are valid");
    config.storage.data = data.to_owned();
    config.filter.scope = Scope::Any;
    config.politeness.delay_ms = 0;
    config.fetch.allow_addresses = vec!["127.0.0.0/8".parse().expect("a network")];
    config.validate().expect("the settings of a test are valid");
    config
}

/// Starts a node on `server`'s seeds, has `watch` look on, and stops it. `watch` must return when the crawl is over.
pub fn crawl<F: Future<Output = ()>>(config: &Config, server: &Server, watch: impl FnOnce(Arc<Node>) -> F) {
    let system = actix::System::with_tokio_rt(|| {
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads can be started")
    });
    system.block_on(async {
        let seeds: Vec<CanonicalUrl> =
            server.seeds().iter().map(|seed| CanonicalUrl::parse(seed, &config.url).expect("seeds are URLs")).collect();
        let filter = Filter::new(config.filter.clone(), &seeds).expect("no patterns");
        let node = Arc::new(Node::start(config, Arc::new(filter)).expect("the node starts"));
        let discovered = |url| Discovered { url, kind: EntryKind::Page, depth: 0, priority: 100, redirects: 0 };
        let urls = seeds.into_iter().map(discovered).collect();
        node.discover(DiscoveredUrls { crawl: config.crawl.name.clone(), urls }).await.expect("seeds are taken");
        watch(Arc::clone(&node)).await;
        assert_eq!(node.doomed(), None);
        let node = Arc::into_inner(node).expect("whoever watched has stopped");
        node.stop().await;
        actix::System::current().stop();
    });
    system.run().expect("the actors stop");
}

/// Whether nothing is left to do. Panics when the node cannot go on, or after too long.
pub async fn is_over(node: &Node, started: Instant) -> bool {
    if let Some(reason) = node.doomed() {
        panic!("the node stopped: {reason}");
    }
    let state = node.state().await.expect("the disk answers");
    let standing = node.standing().await;
    assert!(started.elapsed() < PATIENCE, "not done after {PATIENCE:?}: {standing:?}, {:?}", state.places);
    standing.is_some_and(|standing| standing.core.flights == 0 && standing.admitting == 0) && state.places.is_done()
}
