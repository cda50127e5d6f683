//! The gRPC door: the URL Frontier API for crawlers with fetchers of their own, with server reflection and gRPC's health service.
//!
//! Away from this machine it opens only with TLS and a client certificate or a token, or when the settings say in words that it need not.

mod bounded;
pub mod desk;
mod doubtful;
pub(crate) mod forget;
mod holders;
mod outbox;
mod parcels;
mod put;
mod service;
mod take;

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use tokio::net::TcpListener;
use tonic::server::NamedService;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use tonic::{Request, Status};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use self::bounded::{Bounded, Stay, connections};
use self::desk::Desk;
use self::service::Service;
use crate::config::frontier::FrontierConfig;
use crate::metrics::frontier::FrontierMetrics;

/// What the proto file says, made by `build.rs`.
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub mod api {
    tonic::include_proto!("urlfrontier");
    /// The proto file, for reflection.
    pub const DESCRIPTOR: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/urlfrontier.bin"));
}

/// The address of the door if nobody names another, and the port that clients of this API know.
pub const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7_071);

/// Room for what a client sends on one stream before it is read, and on one connection.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;
/// Streams of one connection at once.
const CONNECTION_STREAMS_MAX: u32 = 256;
/// Connections at once; one more is closed.
const CONNECTIONS_MAX: usize = 1_024;
/// Calls of the API that are no streams, at once; and streams of health and reflection.
const CALLS_MAX: usize = 1_024;
const ASIDE_MAX: usize = 256;
/// Longest message to health and reflection, which are told names.
const ASIDE_BYTES_MAX: usize = 64 << 10;
/// How often the door looks whether it can serve.
const HEALTH_EVERY: Duration = Duration::from_millis(500);
/// Silence after which a connection is asked whether it lives, and how long it has to say so.
const KEEPALIVE: Duration = Duration::from_secs(60);
const KEEPALIVE_PATIENCE: Duration = Duration::from_secs(20);

/// Why the door cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum DoorError {
    /// The address.
    #[error("url_frontier.listen: cannot listen at {address}: {reason}")]
    Address {
        /// Which.
        address: SocketAddr,
        /// Why.
        reason: String,
    },
    /// A file.
    #[error("cannot read {path}: {reason}")]
    File {
        /// Which.
        path: String,
        /// Why.
        reason: String,
    },
    /// TLS.
    #[error("url_frontier: certificate or key cannot be used: {0}")]
    Tls(String),
}

/// A door that is about to open.
pub struct Door {
    listener: TcpListener,
    address: SocketAddr,
}

impl Door {
    /// Listens where the settings say, or where clients of this API look; `None` if the door is to stay closed.
    pub async fn listen(config: &FrontierConfig) -> Result<Option<Door>, DoorError> {
        if !config.enabled {
            return Ok(None);
        }
        let address = config.listen.unwrap_or(ADDRESS);
        let failed = |error: std::io::Error| DoorError::Address { address, reason: error.to_string() };
        let listener = match TcpListener::bind(address).await {
            // Several nodes on one machine: the first has the usual port, the others say which they have.
            Err(error) if error.kind() == ErrorKind::AddrInUse && config.listen.is_none() => {
                TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(failed)?
            }
            bound => bound.map_err(failed)?,
        };
        let address = listener.local_addr().map_err(failed)?;
        Ok(Some(Door { listener, address }))
    }

    /// Opens the door; answers where it listens. It closes when the runtime ends.
    pub async fn open(
        self,
        config: &FrontierConfig,
        desk: Desk,
        metrics: FrontierMetrics,
    ) -> Result<SocketAddr, DoorError> {
        let mut server = Server::builder()
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_concurrent_streams(CONNECTION_STREAMS_MAX)
            .http2_keepalive_interval(Some(KEEPALIVE))
            .http2_keepalive_timeout(Some(KEEPALIVE_PATIENCE))
            .tcp_nodelay(true);
        if let (Some(certificate), Some(key)) = (&config.tls_certificate, &config.tls_key) {
            let identity = Identity::from_pem(read(certificate)?, read(key)?);
            let mut tls = ServerTlsConfig::new().identity(identity);
            if let Some(authority) = &config.client_authority {
                tls = tls.client_ca_root(Certificate::from_pem(read(authority)?));
            }
            server = server.tls_config(tls).map_err(|error| DoorError::Tls(error.to_string()))?;
        }
        let guard = Guard::new(config)?;
        tokio::spawn(Service::new(desk.clone(), metrics.clone(), 1, config.message_bytes_max).observe());
        let service = Service::new(desk.clone(), metrics, config.streams_max, config.message_bytes_max);
        let service = api::url_frontier_server::UrlFrontierServer::new(service)
            .max_decoding_message_size(config.message_bytes_max)
            .max_encoding_message_size(config.message_bytes_max);
        let service = Bounded::new(service, CALLS_MAX, |path| {
            let puts = ["/urlfrontier.URLFrontier/PutURLs", "/urlfrontier.URLFrontier/PutDiscovered"];
            puts.contains(&path).then_some(Stay::CountedElsewhere)
        });
        // Who brings no token takes nobody's room.
        let service = InterceptedService::new(service, guard.clone());
        let (health, health_service) = tonic_health::server::health_reporter();
        let health_service = health_service.max_decoding_message_size(ASIDE_BYTES_MAX);
        tell_health(&health, false).await;
        tokio::spawn(look_after_health(health, desk));
        let until_over = |_: &str| Some(Stay::UntilOver);
        let reflection =
            || tonic_reflection::server::Builder::configure().register_encoded_file_descriptor_set(api::DESCRIPTOR);
        let routes = server.add_service(Bounded::new(health_service, ASIDE_MAX, until_over)).add_service(service);
        let failed = |error: tonic_reflection::server::Error| DoorError::Tls(error.to_string());
        let routes = if config.reflection {
            let newer = reflection().build_v1().map_err(failed)?.max_decoding_message_size(ASIDE_BYTES_MAX);
            let older = reflection().build_v1alpha().map_err(failed)?.max_decoding_message_size(ASIDE_BYTES_MAX);
            routes
                .add_service(InterceptedService::new(Bounded::new(newer, ASIDE_MAX, until_over), guard.clone()))
                .add_service(InterceptedService::new(Bounded::new(older, ASIDE_MAX, until_over), guard))
        } else {
            routes
        };
        let incoming = connections(self.listener, CONNECTIONS_MAX);
        tokio::spawn(async move {
            if let Err(error) = routes.serve_with_incoming(incoming).await {
                tracing::error!(%error, "the gRPC door closed");
            }
        });
        Ok(self.address)
    }
}

/// Says whether the door serves, of the API and of the server as a whole.
async fn tell_health(health: &HealthReporter, serves: bool) {
    let status = if serves { ServingStatus::Serving } else { ServingStatus::NotServing };
    for name in ["", <api::url_frontier_server::UrlFrontierServer<Service> as NamedService>::NAME] {
        health.set_service_status(name, status).await;
    }
}

/// Follows whether this node knows where queues are: it does not while it starts, and while it begins a new life.
async fn look_after_health(health: HealthReporter, desk: Desk) {
    let mut told = false;
    loop {
        let serves = desk.node().client_places().await.is_some();
        if serves != told {
            tell_health(&health, serves).await;
            told = serves;
        }
        tokio::time::sleep(HEALTH_EVERY).await;
    }
}

/// Lets calls in that bring the token, if there is one.
#[derive(Clone)]
struct Guard {
    wanted: Option<String>,
}

impl Guard {
    fn new(config: &FrontierConfig) -> Result<Guard, DoorError> {
        let token = config.token_file.as_deref().map(read).transpose()?;
        Ok(Guard { wanted: token.map(|token| format!("Bearer {}", token.trim())) })
    }
}

impl tonic::service::Interceptor for Guard {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        let Some(wanted) = &self.wanted else { return Ok(request) };
        let given = request.metadata().get("authorization").map(|value| value.as_bytes()).unwrap_or_default();
        // Digests are compared, so that the time says nothing of how much was right.
        if blake3::hash(given) == blake3::hash(wanted.as_bytes()) {
            Ok(request)
        } else {
            Err(Status::unauthenticated("this server wants a token: authorization: Bearer TOKEN"))
        }
    }
}

fn read(path: impl AsRef<Path>) -> Result<String, DoorError> {
    let path = path.as_ref();
    std::fs::read_to_string(path)
        .map_err(|error| DoorError::File { path: path.display().to_string(), reason: error.to_string() })
}
