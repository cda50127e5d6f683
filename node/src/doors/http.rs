//! The HTTP door: `/metrics` for Prometheus, `/healthz` for whoever restarts nodes.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;

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

    /// Opens the door; answers where it really listens. It closes when the runtime ends.
    pub fn open(self, metrics: Metrics, health: watch::Receiver<Result<(), String>>) -> SocketAddr {
        let routes = Router::new()
            .route("/metrics", get(show_metrics))
            .route("/healthz", get(show_health))
            .with_state(Shown { metrics, health });
        tokio::spawn(async move {
            if let Err(error) = axum::serve(self.listener, routes).await {
                tracing::error!(%error, "the HTTP door closed");
            }
        });
        self.bound
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
