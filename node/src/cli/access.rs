//! How to reach a cluster: a small file beside its data, so that people need not say it each time.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use libp2p::multiaddr::Protocol;
use libp2p::{Multiaddr, PeerId};
use serde::{Deserialize, Serialize};

use super::Complaint;

/// Name of the file.
const FILE: &str = "ctl.toml";

/// How to reach a cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Access {
    /// Name of the cluster.
    pub(super) cluster: String,
    /// The identity with which to ask; relative to the file.
    pub(super) identity: PathBuf,
    /// The cluster's secret; likewise.
    pub(super) swarm_key: PathBuf,
    /// Nodes, the first that answers is asked.
    pub(super) nodes: Vec<String>,
}

impl Access {
    /// Access with the keys that lie beside the file.
    pub(super) fn new(cluster: &str, nodes: Vec<String>) -> Access {
        Access {
            cluster: cluster.to_owned(),
            identity: PathBuf::from("operator.key"),
            swarm_key: PathBuf::from("swarm.key"),
            nodes,
        }
    }

    /// Writes it into `folder`, whole or not at all.
    pub(super) fn save(&self, folder: &Path) -> Result<(), String> {
        let path = folder.join(FILE);
        let failed = |error: &dyn std::fmt::Display| format!("cannot write {}: {error}", path.display());
        let text = toml::to_string(self).map_err(|error| failed(&error))?;
        let fresh = folder.join(format!("{FILE}.new"));
        std::fs::write(&fresh, text).and_then(|()| std::fs::rename(&fresh, &path)).map_err(|error| failed(&error))
    }

    /// Reads it from `folder`.
    pub(super) fn load(folder: &Path) -> Result<Access, Complaint> {
        let path = folder.join(FILE);
        let text = std::fs::read_to_string(&path).map_err(|error| {
            Complaint::usage(format!(
                "{}: {error}; give the folder that was named with --data to `node` or `cluster local`, or say --node, \
                 --cluster, --identity and --swarm-key",
                path.display()
            ))
        })?;
        let mut access: Access =
            toml::from_str(&text).map_err(|error| Complaint::usage(format!("{}: {error}", path.display())))?;
        access.identity = folder.join(&access.identity);
        access.swarm_key = folder.join(&access.swarm_key);
        Ok(access)
    }

    /// The same nodes at another host, another port, or both: as they are reached from elsewhere. What is not said stays.
    pub(super) fn at(mut self, host: Option<&str>, port: Option<u16>) -> Result<Access, Complaint> {
        let host = host.map(|host| match host.parse::<IpAddr>() {
            Ok(address) => Protocol::from(address),
            Err(_) => Protocol::Dns(host.to_owned().into()),
        });
        for node in &mut self.nodes {
            let address: Multiaddr = parse_address(node)
                .map(|(peer, address)| address.with(Protocol::P2p(peer)))
                .map_err(Complaint::usage)?;
            let moved = address.iter().map(|part| match (part, &host, port) {
                (
                    Protocol::Ip4(_) | Protocol::Ip6(_) | Protocol::Dns(_) | Protocol::Dns4(_) | Protocol::Dns6(_),
                    Some(host),
                    _,
                ) => host.clone(),
                (Protocol::Tcp(_), _, Some(port)) => Protocol::Tcp(port),
                (Protocol::Udp(_), _, Some(port)) => Protocol::Udp(port),
                (part, ..) => part,
            });
            *node = moved.collect::<Multiaddr>().to_string();
        }
        Ok(self)
    }

    /// The nodes, taken apart.
    pub(super) fn addresses(&self) -> Result<Vec<(PeerId, Multiaddr)>, Complaint> {
        self.nodes.iter().map(|text| parse_address(text).map_err(Complaint::usage)).collect()
    }
}

/// Takes an address apart that ends in a peer id.
pub(super) fn parse_address(text: &str) -> Result<(PeerId, Multiaddr), String> {
    let wrong = || format!("{text} is no address of a node; one looks like /ip4/192.0.2.7/tcp/7070/p2p/12D3Koo…");
    let mut address: Multiaddr = text.parse().map_err(|_| wrong())?;
    match address.pop() {
        Some(Protocol::P2p(peer)) => Ok((peer, address)),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let peer = crate::edges::swarm::identity::Identity::generate().peer();
        let address = format!("/ip4/127.0.0.1/tcp/7070/p2p/{peer}");
        Access::new("mine", vec![address]).save(dir.path()).unwrap();
        let access = Access::load(dir.path()).unwrap();
        assert_eq!(access.identity, dir.path().join("operator.key"));
        let addresses = access.addresses().unwrap();
        assert_eq!(addresses[0].0, peer);
        assert_eq!(addresses[0].1.to_string(), "/ip4/127.0.0.1/tcp/7070");
    }

    #[test]
    fn nodes_are_asked_at_another_host_and_port() {
        let peer = crate::edges::swarm::identity::Identity::generate().peer();
        let access = Access::new("mine", vec![format!("/ip4/127.0.0.1/tcp/7070/p2p/{peer}")]);
        for (host, port, expected) in [
            (None, None, "/ip4/127.0.0.1/tcp/7070"),
            (Some("192.0.2.7"), None, "/ip4/192.0.2.7/tcp/7070"),
            (None, Some(5504), "/ip4/127.0.0.1/tcp/5504"),
            (Some("2001:db8::1"), Some(1), "/ip6/2001:db8::1/tcp/1"),
            (Some("node.example"), Some(2), "/dns/node.example/tcp/2"),
        ] {
            assert_eq!(access.clone().at(host, port).unwrap().nodes, [format!("{expected}/p2p/{peer}")]);
        }
    }

    #[test]
    fn an_address_without_a_peer_is_refused() {
        for text in ["", "127.0.0.1:7070", "/ip4/127.0.0.1/tcp/7070", "/ip4/x"] {
            assert!(parse_address(text).unwrap_err().contains("looks like"));
        }
        assert!(Access::load(Path::new("/no/such/folder")).is_err());
    }
}
