//! Connections to the HTTP door that come in TLS. Each greets on its own, so that nobody waits for one who is slow at it.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How long a greeting may take.
const GREETING: Duration = Duration::from_secs(10);
/// Connections that greet at once; others wait in the system's queue.
const GREETING_MAX: usize = 256;
/// Pause after the system could not accept a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// Reads certificates and their key.
pub fn server_config(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, String> {
    let failed = |path: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let certificates = CertificateDer::pem_file_iter(certificate).map_err(|error| failed(certificate, &error))?;
    let certificates: Vec<CertificateDer<'static>> =
        certificates.collect::<Result<_, _>>().map_err(|error| failed(certificate, &error))?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| failed(key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?.with_no_client_auth();
    let mut config = builder.with_single_cert(certificates, secret).map_err(|error| failed(certificate, &error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Listens for connections in TLS.
pub(super) struct TlsListener {
    greeted: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
    address: SocketAddr,
}

impl TlsListener {
    pub(super) fn new(listener: TcpListener, address: SocketAddr, config: Arc<ServerConfig>) -> TlsListener {
        let (ready, greeted) = mpsc::channel(GREETING_MAX);
        tokio::spawn(greet(listener, TlsAcceptor::from(config), ready));
        TlsListener { greeted, address }
    }
}

async fn greet(listener: TcpListener, acceptor: TlsAcceptor, ready: mpsc::Sender<(TlsStream<TcpStream>, SocketAddr)>) {
    let room = Arc::new(Semaphore::new(GREETING_MAX));
    while let Ok(place) = Arc::clone(&room).acquire_owned().await {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection to the HTTP door was not accepted");
                sleep(PAUSE).await;
                continue;
            }
        };
        let (acceptor, ready) = (acceptor.clone(), ready.clone());
        tokio::spawn(async move {
            let _place = place;
            match timeout(GREETING, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => drop(ready.send((stream, peer)).await),
                Ok(Err(error)) => tracing::debug!(%peer, %error, "no TLS"),
                Err(_) => tracing::debug!(%peer, "a greeting that takes too long"),
            }
        });
    }
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.greeted.recv().await {
            Some(connection) => connection,
            None => std::future::pending().await, // the runtime ends
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(self.address)
    }
}
