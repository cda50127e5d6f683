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
use crate::config::cluster::{ClusterConfig, PeerConfig};
use crate::config::{Config, HttpConfig};
use crate::doors::frontier;
use crate::doors::http::sources::{SourcesPage, chance_from_system};
use crate::doors::http::spiders::SpidersDoor;
use crate::doors::http::{Door, sources, spiders, tls};
use crate::doors::spiders::SpiderDesk;
use crate::edges::store::StoreError;
use crate::edges::swarm::identity::Identity;
use crate::edges::swarm::key::SwarmKey;
use crate::node::StartError;

/// File in the data folder with the token that the page for sources wants.
const TOKEN_FILE: &str = "http.token";
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
    /// Serve /metrics, /healthz, the page /sources and the door for spiders here, as in 127.0.0.1:8000
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

/// The secret in a file that only its owner may read; it is made if it is not there.
fn secret(path: &Path) -> Result<String, String> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    match std::fs::read_to_string(path) {
        Ok(text) if text.trim().len() >= 16 => return Ok(text.trim().to_owned()),
        Ok(_) => {
            return Err(format!(
                "{}: a token has at least 16 letters; remove the file, and one is made",
                path.display()
            ));
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let mut chance = [0; 24];
    chance_from_system(&mut chance).map_err(failed)?;
    let token: String = chance.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    writeln!(file, "{token}").map_err(failed)?;
    Ok(token)
}

/// Who may come as a spider: everybody on this machine, or, with users, who knows a name and a password. Elsewhere it takes TLS, too.
fn entry(http: &HttpConfig, address: SocketAddr, tls: bool) -> Result<spiders::Entry, Complaint> {
    let users = match &http.users_file {
        None => None,
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
            let users = text.and_then(|text| spiders::read_users(&text));
            Some(users.map_err(|error| Complaint::usage(format!("http.users_file: {}: {error}", path.display())))?)
        }
    };
    Ok(match users {
        Some(users) if tls || address.ip().is_loopback() => spiders::Entry::Users(Arc::new(users)),
        None if address.ip().is_loopback() => spiders::Entry::Open,
        _ => spiders::Entry::Shut(
            "others can reach this address: spiders need TLS and users (http.tls_certificate, http.tls_key, http.users_file)",
        ),
    })
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
        let token = secret(&config.storage.data.join(TOKEN_FILE)).map_err(Complaint::data)?;
        let page = SourcesPage { ask: clustered.ask_sources(), token: token.into() };
        let door = Door::listen(address).await.map_err(Complaint::usage)?;
        let tls = match (&config.http.tls_certificate, &config.http.tls_key) {
            (Some(certificate), Some(key)) => Some(
                tls::server_config(certificate, key).map_err(|error| Complaint::usage(format!("[http]: {error}")))?,
            ),
            _ => None,
        };
        let mut routes = sources::routes(page);
        if config.spiders.enabled {
            let entry = entry(&config.http, door.address(), tls.is_some())?;
            if let spiders::Entry::Shut(reason) = &entry {
                tracing::warn!("spiders are not let in: {reason}");
            }
            let desk = SpiderDesk::new(clustered.desk().clone());
            routes = routes.merge(spiders::routes(SpidersDoor { desk, urls: config.url.clone(), entry }));
        }
        let scheme = if tls.is_some() { "https" } else { "http" };
        let bound = door.open(metrics, shown_health, routes, tls);
        eprintln!("metrics: {scheme}://{bound}/metrics");
        eprintln!("sources: {scheme}://{bound}/sources");
        if config.spiders.enabled {
            eprintln!("spiders: {scheme}://{bound}/request");
        }
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
