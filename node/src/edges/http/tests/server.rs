//! Servers for the tests: real sockets, answers written byte by byte.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A certificate for secure.test that vouches for itself, and its key. Worth nothing outside these tests.
pub(super) const SECURE_TEST_PEM: &str = include_str!("secure_test.pem");

/// A server on 127.0.0.1 that remembers what it was asked.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    accepts: Arc<AtomicUsize>,
    heads: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Server {
    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// How many connections were made to it.
    pub(super) fn accepts(&self) -> usize {
        self.accepts.load(Ordering::SeqCst)
    }

    /// The heads of the requests it has received.
    pub(super) fn heads(&self) -> Vec<Vec<u8>> {
        self.heads.lock().unwrap().clone()
    }

    /// The head of its only request.
    pub(super) fn head(&self) -> Vec<u8> {
        let heads = self.heads();
        assert_eq!(heads.len(), 1);
        heads[0].clone()
    }
}

/// What a server does with the connection after its answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// Waits for the next request.
    Listen,
    /// Closes in good order.
    Close,
    /// Resets the connection.
    Reset,
    /// Keeps it open and says nothing.
    Hang,
    /// Sends this again and again until the other side has had enough.
    Repeat(&'static [u8]),
    /// Sends this byte now and then, for ever.
    Drip(u8),
}

/// Answers every request with `answer`.
pub(super) async fn serve(answer: impl Into<Vec<u8>>, then: Then) -> Server {
    let answer: Arc<[u8]> = answer.into().into();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (accepts, heads) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let server = Server { address, accepts: Arc::clone(&accepts), heads: Arc::clone(&heads) };
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            accepts.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(converse(stream, Arc::clone(&answer), then, Arc::clone(&heads)));
        }
    });
    server
}

async fn converse(mut stream: TcpStream, answer: Arc<[u8]>, then: Then, heads: Arc<Mutex<Vec<Vec<u8>>>>) {
    while let Some(head) = read_head(&mut stream).await {
        heads.lock().unwrap().push(head);
        if stream.write_all(&answer).await.is_err() {
            return;
        }
        match then {
            Then::Listen => {}
            Then::Close => return,
            Then::Reset => return stream.set_zero_linger().unwrap(),
            Then::Hang => return std::future::pending().await,
            Then::Repeat(bytes) => while stream.write_all(bytes).await.is_ok() {},
            Then::Drip(byte) => {
                while stream.write_all(&[byte]).await.is_ok() {
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                }
            }
        }
    }
}

async fn read_head(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(head)
}

/// What is spoken inside TLS.
#[derive(Clone, Copy)]
pub(super) enum Inside {
    /// This answer in HTTP/1.1, then a close; whether TLS is told of the close.
    Http1 { answer: &'static [u8], close_notify: bool },
    /// One HTTP/2 answer with status 200, `content-type: text/x` and this body.
    Http2 { body: &'static [u8] },
}

/// Serves one request as secure.test over TLS, on a thread of its own, and returns the address.
pub(super) fn serve_tls(inside: Inside) -> SocketAddr {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let certificate = CertificateDer::from_pem_slice(SECURE_TEST_PEM.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(SECURE_TEST_PEM.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    if let Inside::Http2 { .. } = inside {
        config.alpn_protocols = vec![b"h2".to_vec()];
    }
    std::thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        let mut stream = rustls::StreamOwned::new(rustls::ServerConnection::new(Arc::new(config)).unwrap(), socket);
        // The client may hang up at any point, over a certificate it does not trust for one.
        let _ = match inside {
            Inside::Http1 { answer, close_notify } => speak_http1(&mut stream, answer, close_notify),
            Inside::Http2 { body } => speak_http2(&mut stream, body),
        };
    });
    address
}

type TlsStream = rustls::StreamOwned<rustls::ServerConnection, std::net::TcpStream>;

fn speak_http1(stream: &mut TlsStream, answer: &[u8], close_notify: bool) -> std::io::Result<()> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    stream.write_all(answer)?;
    if close_notify {
        stream.conn.send_close_notify();
    }
    stream.flush()
}

fn speak_http2(stream: &mut TlsStream, body: &[u8]) -> std::io::Result<()> {
    let frame = |kind: u8, flags: u8, stream_id: u8, payload: &[u8]| {
        let mut frame = vec![0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream_id];
        frame.extend_from_slice(payload);
        frame
    };
    stream.read_exact(&mut [0; 24])?; // PRI * HTTP/2.0 ...
    stream.write_all(&frame(4, 0, 0, &[]))?; // SETTINGS
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut payload)?;
        match (head[3], head[4]) {
            (4, 0) => stream.write_all(&frame(4, 1, 0, &[]))?, // their SETTINGS, acknowledged
            (1, _) => {
                // :status 200 is entry 8 of the static table, content-type entry 31 with a literal value.
                stream.write_all(&frame(1, 4, head[8], b"\x88\x0f\x10\x06text/x"))?;
                stream.write_all(&frame(0, 1, head[8], body))?;
                stream.flush()?;
            }
            _ => {}
        }
    }
}
