//! Name resolution: from a host to the addresses a crawl may talk to.
//!
//! In this order: an address is itself, a name in the static table has the address given there, every other name is
//! asked of the name servers (cached as long as its TTL says, failures included). What the guard refuses is removed
//! from the answer *here*, in the one resolver the connector has: there is no second look-up that could say otherwise.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::RecordType;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tracing::warn;

use crate::edges::guard::AddressGuard;

/// Answers kept, each a few hundred bytes: some 10 MiB when full; then the least used goes.
const CACHE_ANSWERS_MAX: u64 = 32_768;

/// Longest time for a name, below the default connect timeout of which it is part: so that we know what was too slow.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(8);

/// One question to one server, and how often it is repeated.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(3);
const QUESTION_REPEATS: usize = 1;

/// Bounds on how long answers are believed. The least keeps names with TTL 0 from being asked before every connection,
/// the most lets a moved site be found within a day.
const POSITIVE_TTL: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(86_400));
const NEGATIVE_TTL: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(3_600));

/// Questions open at a time on one connection to a name server; more are refused as busy.
const OPEN_QUESTIONS_MAX: usize = 1_024;

/// Why a host has no address we may use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DnsError {
    /// The name does not exist, or has no address.
    #[error("name {host} has no address")]
    NotFound {
        /// The name asked for.
        host: String,
    },
    /// No name server gave an answer.
    #[error("no answer for name {host}: {reason}")]
    Unavailable {
        /// The name asked for.
        host: String,
        /// What went wrong.
        reason: String,
    },
    /// The guard permits none of its addresses.
    #[error("address {address} of {host} is not public")]
    AddressRefused {
        /// The name or address asked for.
        host: String,
        /// The first of the refused addresses.
        address: IpAddr,
    },
}

/// Resolves hosts; clones share one cache.
#[derive(Clone)]
pub struct DnsResolver {
    shared: Arc<Shared>,
}

struct Shared {
    hosts: BTreeMap<String, IpAddr>,
    guard: AddressGuard,
    servers: Result<TokioResolver, String>,
}

impl DnsResolver {
    /// Returns a resolver with the static names `hosts`, asking `servers`, or those of the system if there are none.
    ///
    /// A system without name servers is no error: addresses and static names still resolve, others are unavailable.
    pub fn new(hosts: &BTreeMap<String, IpAddr>, servers: &[SocketAddr], guard: AddressGuard) -> Self {
        let hosts = hosts.iter().map(|(name, &address)| (normalise(name), address)).collect();
        let servers = connect(servers).map_err(|error| error.to_string());
        if let Err(reason) = &servers {
            warn!(%reason, "no name servers, only addresses and static names resolve");
        }
        DnsResolver { shared: Arc::new(Shared { hosts, guard, servers }) }
    }

    /// Returns the addresses of `host` that may be connected to, never none. An IPv6 address may be in brackets.
    pub async fn resolve(&self, host: &str) -> Result<Vec<IpAddr>, DnsError> {
        self.shared.resolve(host).await
    }
}

impl Shared {
    async fn resolve(&self, host: &str) -> Result<Vec<IpAddr>, DnsError> {
        let literal = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        if let Ok(address) = literal.parse::<IpAddr>() {
            return self.permitted(host, vec![address]);
        }
        let name = normalise(host);
        if let Some(&address) = self.hosts.get(&name) {
            return self.permitted(host, vec![address]);
        }
        let unavailable = |reason: String| DnsError::Unavailable { host: host.to_owned(), reason };
        let servers = self.servers.as_ref().map_err(|reason| unavailable(reason.clone()))?;
        // The final dot: without it the system's search list would turn an unknown name into one of our own network.
        let answer = tokio::time::timeout(LOOKUP_TIMEOUT, look_up(servers, name + ".")).await;
        match answer {
            Ok(Ok(addresses)) => self.permitted(host, addresses),
            Ok(Err(Miss::UnknownName | Miss::NoAddress)) => Err(DnsError::NotFound { host: host.to_owned() }),
            Ok(Err(Miss::Unanswered(reason))) => Err(unavailable(reason)),
            Err(_) => Err(unavailable("no answer in time".to_owned())),
        }
    }

    fn permitted(&self, host: &str, addresses: Vec<IpAddr>) -> Result<Vec<IpAddr>, DnsError> {
        let Some(&first) = addresses.first() else { return Err(DnsError::NotFound { host: host.to_owned() }) };
        let permitted: Vec<IpAddr> = addresses.into_iter().filter(|&address| self.guard.permits(address)).collect();
        if permitted.is_empty() {
            return Err(DnsError::AddressRefused { host: host.to_owned(), address: first });
        }
        Ok(permitted)
    }
}

impl Resolve for DnsResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let addresses = shared.resolve(name.as_str()).await?;
            // Port 0 stands for the port of the URL.
            let addresses: Addrs = Box::new(addresses.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(addresses)
        })
    }
}

/// Why a name server gave no address.
enum Miss {
    UnknownName,
    NoAddress,
    Unanswered(String),
}

/// Asks for IPv4 addresses, and for IPv6 addresses only where there are none: one question for nearly every host, and
/// a node without IPv6 does not try what it cannot reach. (hickory has this order too, but lets the second answer hide
/// the failure of the first.)
async fn look_up(servers: &TokioResolver, name: String) -> Result<Vec<IpAddr>, Miss> {
    match ask(servers, &name, RecordType::A).await {
        Err(Miss::NoAddress) => ask(servers, &name, RecordType::AAAA).await,
        answer => answer,
    }
}

async fn ask(servers: &TokioResolver, name: &str, record_type: RecordType) -> Result<Vec<IpAddr>, Miss> {
    let answer = servers.lookup(name, record_type).await.map_err(|error| match error {
        // A name that no question can carry (a label too long, say) does not exist either.
        NetError::Proto(_) => Miss::UnknownName,
        error if error.is_nx_domain() => Miss::UnknownName,
        error if error.is_no_records_found() => Miss::NoAddress,
        error => Miss::Unanswered(error.to_string()),
    })?;
    let addresses: Vec<IpAddr> = answer.answers().iter().filter_map(|record| record.data.ip_addr()).collect();
    if addresses.is_empty() { Err(Miss::NoAddress) } else { Ok(addresses) }
}

/// Brings a name into the form of the static table: lower case, no final dot.
fn normalise(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

fn connect(servers: &[SocketAddr]) -> Result<TokioResolver, NetError> {
    let mut builder = if servers.is_empty() {
        TokioResolver::builder_tokio()?
    } else {
        let servers = servers.iter().map(|&server| name_server(server)).collect();
        let config = ResolverConfig::from_parts(None, Vec::new(), servers);
        TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
    };
    configure(builder.options_mut());
    builder.build()
}

fn configure(options: &mut ResolverOpts) {
    options.timeout = QUESTION_TIMEOUT;
    options.attempts = QUESTION_REPEATS;
    options.cache_size = CACHE_ANSWERS_MAX;
    options.max_active_requests = OPEN_QUESTIONS_MAX;
    (options.positive_min_ttl, options.positive_max_ttl) = (Some(POSITIVE_TTL.0), Some(POSITIVE_TTL.1));
    (options.negative_min_ttl, options.negative_max_ttl) = (Some(NEGATIVE_TTL.0), Some(NEGATIVE_TTL.1));
    options.preserve_intermediates = false;
    // The machine's own hosts file is for its own services; names for a crawl are given in its configuration.
    options.use_hosts_file = ResolveHosts::Never;
}

fn name_server(server: SocketAddr) -> NameServerConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()];
    let connections = connections.map(|mut connection| {
        connection.port = server.port();
        connection
    });
    NameServerConfig::new(server.ip(), true, connections.to_vec())
}

#[cfg(test)]
mod tests;
