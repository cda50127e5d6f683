//! `orbweaver node`: a node of a cluster, until it is told to stop.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use ipnet::IpNet;
use proto::crawl::filter::{Filter, Scope};
use tokio::sync::watch;

use super::access::Access;
use super::crawl::{parse_host, parse_network};
use super::progress::say;
use super::signals::signals;
use super::{Complaint, Exit};
use crate::clustered::{ClusterStartError, ClusteredNode};
use crate::config::Config;
use crate::config::cluster::{ClusterConfig, PeerConfig};
use crate::doors::frontier;
use crate::doors::http::Door;
use crate::edges::store::StoreError;
use crate::edges::swarm::identity::Identity;
use crate::edges::swarm::key::SwarmKey;
use crate::node::StartError;

/// The name of a cluster of one.
const ALONE: &str = "alone";

const EXAMPLES: &str = "Examples:
  orbweaver node --data /srv/orbweaver              a cluster of one, on this machine only
  orbweaver node --config /etc/orbweaver/cluster.toml
  orbweaver ctl --data /srv/orbweaver status        look at it

Ctrl-C stops it cleanly; started again it goes on. `orbweaver keygen` makes identities and the swarm key.";

/// Arguments of `node`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct NodeArguments {
    /// File with settings; without it, or without its section [cluster], the node is a cluster of one
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Folder for everything the node keeps [default: orbweaver-data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Serve /metrics and /healthz here, as in 127.0.0.1:8000
    #[arg(long, value_name = "ADDRESS")]
    http: Option<SocketAddr>,
    /// Serve the URL Frontier API here [default: 127.0.0.1:7071, or a free port if that one is taken]
    #[arg(long, value_name = "ADDRESS")]
    frontier: Option<SocketAddr>,
    /// Network that may be fetched from although it is not public, as in 127.0.0.0/8
    #[arg(long, value_name = "CIDR", value_parser = parse_network)]
    allow_address: Vec<IpNet>,
    /// Address of a host, instead of asking DNS, as in example.com=192.0.2.7
    #[arg(long, value_name = "NAME=ADDRESS", value_parser = parse_host)]
    resolve: Vec<(String, IpAddr)>,
}

/// Runs a node.
pub(super) fn run(arguments: &NodeArguments) -> Result<Exit, Complaint> {
    let mut config = match &arguments.config {
        Some(path) => Config::read(path).map_err(Complaint::usage)?,
        None => {
            let mut config = Config::default();
            config.filter.scope = Scope::Any; // a cluster crawls what it is told to, there are no seeds to stay near to
            config
        }
    };
    if let Some(data) = &arguments.data {
        config.storage.data.clone_from(data);
    }
    config.http.listen = arguments.http.or(config.http.listen);
    config.url_frontier.listen = arguments.frontier.or(config.url_frontier.listen);
    config.fetch.allow_addresses.extend(&arguments.allow_address);
    config.fetch.hosts.extend(arguments.resolve.iter().cloned());
    let alone = config.cluster.is_none();
    if alone {
        config.cluster = Some(alone_in(&config.storage.data)?);
    }
    config.validate().map_err(Complaint::usage)?;
    let filter = Filter::new(config.filter.clone(), &[]).map_err(Complaint::usage)?;
    let system = actix::System::with_tokio_rt(|| {
        tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .thread_name("node")
            .build()
            .expect("the system lets us start threads")
    });
    system.block_on(serve(config, Arc::new(filter), alone))
}

/// The section of a cluster of one, with keys of its own in its folder.
fn alone_in(data: &Path) -> Result<ClusterConfig, Complaint> {
    std::fs::create_dir_all(data)
        .map_err(|error| Complaint::data(format!("cannot make {}: {error}", data.display())))?;
    let (identity, swarm_key, operator) = (data.join("node.key"), data.join("swarm.key"), data.join("operator.key"));
    if !swarm_key.exists() {
        SwarmKey::generate().save(&swarm_key).map_err(Complaint::data)?;
    }
    let peer = Identity::load_or_create(&identity).map_err(Complaint::data)?.peer();
    let operator = Identity::load_or_create(&operator).map_err(Complaint::data)?.peer();
    Ok(ClusterConfig {
        id: ALONE.to_owned(),
        identity,
        swarm_key,
        listen: vec!["/ip4/127.0.0.1/tcp/0".to_owned()],
        peers: vec![PeerConfig { id: peer.to_string(), addresses: Vec::new(), weight: 1 }],
        operators: vec![operator.to_string()],
        replicas: 1,
        write_quorum: 1,
        content_copies: 1,
        ..ClusterConfig::default()
    })
}

async fn serve(config: Config, filter: Arc<Filter>, alone: bool) -> Result<Exit, Complaint> {
    let mut signals = signals().map_err(|error| Complaint::failed(format!("cannot listen for Ctrl-C: {error}")))?;
    let clustered = ClusteredNode::start(&config, filter).await.map_err(|error| match error {
        ClusterStartError::Node(StartError::Store(StoreError::DiskFull(_))) => Complaint::failed(error),
        ClusterStartError::Node(StartError::Store(_) | StartError::Disk(_)) => Complaint::data(error),
        _ => Complaint::usage(error),
    })?;
    let served = watch_over(&clustered, &config, alone, &mut signals).await;
    clustered.stop().await;
    actix::System::current().stop();
    served
}

async fn watch_over(
    clustered: &ClusteredNode,
    config: &Config,
    alone: bool,
    signals: &mut tokio::sync::mpsc::Receiver<()>,
) -> Result<Exit, Complaint> {
    let (health, shown_health) = watch::channel(Ok(()));
    if let Some(address) = config.http.listen {
        let metrics = clustered.node().metrics().clone();
        let bound = Door::listen(address).await.map_err(Complaint::usage)?.open(metrics, shown_health);
        eprintln!("metrics: http://{bound}/metrics");
    }
    if let Some(door) = frontier::Door::listen(&config.url_frontier).await.map_err(Complaint::usage)? {
        let metrics = clustered.node().metrics().frontier.clone();
        let bound = door.open(&config.url_frontier, clustered.desk().clone(), metrics).await;
        eprintln!("frontier: {}", bound.map_err(Complaint::usage)?);
    }
    let me = clustered.peer();
    let written = |error: std::io::Error| Complaint::failed(format!("cannot write: {error}"));
    for address in clustered.swarm().addresses() {
        say(&format_args!("node {me} listens on {address}/p2p/{me}")).map_err(written)?;
    }
    if alone {
        // So that `ctl --data` finds it.
        let addresses = clustered.swarm().addresses().iter().map(|address| format!("{address}/p2p/{me}")).collect();
        Access::new(ALONE, addresses).save(&config.storage.data).map_err(Complaint::data)?;
    }
    tokio::select! {
        biased;
        _ = signals.recv() => Ok(Exit::Done),
        reason = clustered.node().doom() => {
            let _ = health.send_replace(Err(reason.clone()));
            Err(Complaint::failed(reason))
        }
        () = clustered.told_to_stop() => {
            say(&"told to stop: what is in flight is settled first").map_err(written)?;
            tokio::select! {
                biased;
                _ = signals.recv() => {} // at once, then
                () = clustered.settle() => {}
            }
            Ok(Exit::Done)
        }
        () = clustered.left() => {
            say(&"this node has left its cluster; nothing is on it that others lack").map_err(written)?;
            Ok(Exit::Done)
        }
    }
}
