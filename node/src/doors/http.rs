//! The HTTP door: `/metrics` for Prometheus, `/healthz` for whoever restarts nodes, the pages for people, and the door for spiders.

pub mod sources;
pub mod spiders;
pub mod tls;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use axum::serve::ListenerExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use self::tls::TlsListener;
use crate::metrics::Metrics;

/// Why the door could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {reason}; choose another address with --http or in [http] listen")]
pub struct DoorError {
    address: SocketAddr,
    reason: String,
}

/// What the door shows.
#[derive(Clone)]
struct Shown {
    metrics: Metrics,
    health: watch::Receiver<Result<(), String>>,
}

/// A door that has its address and shows nothing yet: an address that is taken is found out before anything is started.
pub struct Door {
    listener: TcpListener,
    bound: SocketAddr,
}

impl Door {
    /// Takes the address.
    pub async fn listen(address: SocketAddr) -> Result<Door, DoorError> {
        let failed = |error: std::io::Error| DoorError { address, reason: error.to_string() };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        Ok(Door { listener, bound })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.bound
    }

    /// Opens the door with more routes; answers where it really listens. It closes when the runtime ends.
    pub fn open(
        self,
        metrics: Metrics,
        health: watch::Receiver<Result<(), String>>,
        more: Router,
        tls: Option<Arc<rustls::ServerConfig>>,
    ) -> SocketAddr {
        let Door { listener, bound } = self;
        let routes = Router::new()
            .route("/metrics", get(show_metrics))
            .route("/healthz", get(show_health))
            .with_state(Shown { metrics, health })
            .merge(more);
        tokio::spawn(async move {
            let closed = match tls {
                None => axum::serve(listener.tap_io(no_delay), routes).await,
                Some(config) => {
                    let listener = TlsListener::new(listener, bound, config);
                    axum::serve(listener.tap_io(|stream| no_delay(stream.get_mut().0)), routes).await
                }
            };
            if let Err(error) = closed {
                tracing::error!(%error, "the HTTP door closed");
            }
        });
        bound
    }
}

/// An answer that leaves in two parts must not wait for the first to be acknowledged.
fn no_delay(stream: &mut TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection whose answers wait for each other");
    }
}

async fn show_metrics(State(shown): State<Shown>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], shown.metrics.text())
}

async fn show_health(State(shown): State<Shown>) -> impl IntoResponse {
    match &*shown.health.borrow() {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
    }
}
