//! `orbweaver cluster local`: a whole cluster on this machine, for trying out.

use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use ipnet::IpNet;
use libp2p::PeerId;
use proto::crawl::filter::Scope;

use super::access::Access;
use super::crawl::parse_network;
use super::progress::say;
use super::{Complaint, Exit};
use crate::config::Config;
use crate::config::cluster::{ClusterConfig, PeerConfig};
use crate::edges::swarm::identity::Identity;
use crate::edges::swarm::key::SwarmKey;

/// The name of such a cluster.
const NAME: &str = "local";
/// How long nodes may take to stop before they are killed.
const STOP_PATIENCE: Duration = Duration::from_secs(20);
/// How often the nodes are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

const EXAMPLES: &str = "Examples:
  orbweaver cluster local --nodes 3 --data /tmp/try
  orbweaver ctl --data /tmp/try nodes              in another terminal
  orbweaver ctl --data /tmp/try url add https://example.com/

Ctrl-C stops all nodes; the same command goes on with the same data.";

/// What to do with clusters.
#[derive(Subcommand)]
pub(super) enum ClusterCommand {
    /// Start a whole cluster on this machine, for trying out
    Local(LocalArguments),
}

/// Arguments of `cluster local`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct LocalArguments {
    /// How many nodes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=32))]
    nodes: u16,
    /// Folder for their keys, settings and data
    #[arg(long, value_name = "DIR", default_value = "orbweaver-local")]
    data: PathBuf,
    /// Settings that all nodes share, on top of which [cluster] is written
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Network that may be fetched from although it is not public, as in 127.0.0.0/8
    #[arg(long, value_name = "CIDR", value_parser = parse_network)]
    allow_address: Vec<IpNet>,
}

/// Runs a command on clusters.
pub(super) fn run(command: &ClusterCommand) -> Result<Exit, Complaint> {
    let ClusterCommand::Local(arguments) = command;
    let shared = match &arguments.config {
        Some(path) => Config::read(path).map_err(Complaint::usage)?,
        None => {
            let mut config = Config::default();
            config.filter.scope = Scope::Any; // there are no seeds to stay near to
            config
        }
    };
    let _lock = lock(&arguments.data)?;
    let configs = prepare(arguments, &shared)?;
    let program = std::env::current_exe().map_err(|error| Complaint::failed(format!("cannot find myself: {error}")))?;
    let stop =
        super::signals::flag().map_err(|error| Complaint::failed(format!("cannot listen for Ctrl-C: {error}")))?;
    let mut nodes = Nodes(Vec::new());
    for config in &configs {
        let mut command = Command::new(&program);
        command.arg("node").arg("--config").arg(config).stdin(Stdio::null());
        for network in &arguments.allow_address {
            command.arg("--allow-address").arg(network.to_string());
        }
        // Ctrl-C is for us; we pass it on.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command.spawn().map_err(|error| Complaint::failed(format!("cannot start a node: {error}")))?;
        nodes.0.push(child);
    }
    say(&format_args!("{} nodes run; try: orbweaver ctl --data {} nodes", nodes.0.len(), arguments.data.display()))
        .map_err(|error| Complaint::failed(format!("cannot write: {error}")))?;
    let mut ended = vec![false; nodes.0.len()];
    while !stop.is_raised() && !ended.iter().all(|ended| *ended) {
        for (number, (node, ended)) in nodes.0.iter_mut().zip(&mut ended).enumerate().filter(|(_, (_, ended))| !**ended)
        {
            let Ok(Some(status)) = node.try_wait() else { continue };
            let name = number + 1;
            match status.signal() {
                None if status.success() => eprintln!("node {name} was told to stop, or to leave, and has"),
                // Somebody tries what a cluster is for.
                Some(signal) => eprintln!(
                    "node {name} was killed (signal {signal}); the others go on. It comes back with: orbweaver node --config {}",
                    configs[number].display()
                ),
                None => return Err(Complaint::failed(format!("node {name} ended by itself: {status}"))),
            }
            *ended = true;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    nodes.stop();
    Ok(Exit::Done)
}

/// Keeps a second cluster out of the folder, as long as it is held.
fn lock(folder: &Path) -> Result<std::fs::File, Complaint> {
    let failed = |error: std::io::Error| Complaint::data(format!("cannot use {}: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(failed)?;
    let file = std::fs::File::create(folder.join("lock")).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(Complaint::data(format!(
            "a cluster runs in {} already; stop it, or choose another folder with --data",
            folder.display()
        ))),
        Err(std::fs::TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// Running nodes. Whatever happens here, they do not outlive us.
struct Nodes(Vec<Child>);

impl Nodes {
    fn stop(&mut self) {
        for node in &self.0 {
            let pid = rustix::process::Pid::from_raw(node.id() as i32);
            if let Some(pid) = pid {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM); // it may be gone already
            }
        }
        let deadline = Instant::now() + STOP_PATIENCE;
        for node in &mut self.0 {
            while matches!(node.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::sleep(LOOK_EVERY);
            }
            let _ = node.kill(); // those that did not hear
            let _ = node.wait();
        }
        self.0.clear();
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Makes keys and settings of every node, where they are not there yet. Returns their settings.
fn prepare(arguments: &LocalArguments, shared: &Config) -> Result<Vec<PathBuf>, Complaint> {
    let folder = &arguments.data;
    let failed = |what: &Path, error: &dyn std::fmt::Display| Complaint::data(format!("{}: {error}", what.display()));
    std::fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
    let swarm_key = folder.join("swarm.key");
    if !swarm_key.exists() {
        SwarmKey::generate().save(&swarm_key).map_err(Complaint::data)?;
    }
    let operator = Identity::load_or_create(&folder.join("operator.key")).map_err(Complaint::data)?.peer();
    // Ports are free now; whoever takes one before its node does makes that node complain.
    let taken: Vec<TcpListener> = (0..arguments.nodes)
        .map(|_| TcpListener::bind(("127.0.0.1", 0)))
        .collect::<Result<_, _>>()
        .map_err(|error| Complaint::failed(format!("no free port: {error}")))?;
    let mut peers = Vec::new();
    for (number, port) in taken.iter().enumerate() {
        let home = folder.join(format!("node-{}", number + 1));
        std::fs::create_dir_all(&home).map_err(|error| failed(&home, &error))?;
        let peer = Identity::load_or_create(&home.join("node.key")).map_err(Complaint::data)?.peer();
        let port = port.local_addr().map_err(|error| failed(&home, &error))?.port();
        peers.push((home, peer, format!("/ip4/127.0.0.1/tcp/{port}")));
    }
    drop(taken);
    let listed = |(_, peer, address): &(PathBuf, PeerId, String)| PeerConfig {
        id: peer.to_string(),
        addresses: vec![address.clone()],
        weight: 1,
    };
    let mut configs = Vec::new();
    for (home, _, address) in &peers {
        let mut config = shared.clone();
        config.storage.data = std::path::absolute(home.join("data")).map_err(|error| failed(home, &error))?;
        config.cluster = Some(ClusterConfig {
            id: NAME.to_owned(),
            identity: PathBuf::from("node.key"),
            swarm_key: PathBuf::from("../swarm.key"),
            listen: vec![address.clone()],
            peers: peers.iter().map(listed).collect(),
            voters: Vec::new(),
            operators: vec![operator.to_string()],
            replicas: usize::from(arguments.nodes.min(3)),
            write_quorum: usize::from(arguments.nodes.min(2)),
            ..config.cluster.unwrap_or_default()
        });
        let path = home.join("cluster.toml");
        let text = toml::to_string(&config).map_err(|error| failed(&path, &error))?;
        std::fs::write(&path, text).map_err(|error| failed(&path, &error))?;
        configs.push(path);
    }
    let nodes = peers.iter().map(|(_, peer, address)| format!("{address}/p2p/{peer}")).collect();
    Access::new(NAME, nodes).save(folder).map_err(Complaint::data)?;
    Ok(configs)
}
