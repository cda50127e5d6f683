//! The synthetic web on real sockets: HTTP/1.1, one loopback address per host, all on one port.
//!
//! ```no_run
//! use simulation::world::{server::Server, web::{Web, WebPlan}};
//! # fn main() -> anyhow::Result<()> {
//! let server = Server::start(Web::new(WebPlan::small(7)))?;
//! for seed in server.seeds() { /* crawl it */ }
//! assert!(server.access_log().iter().all(|access| access.path != "/private/"));
//! # Ok(()) }
//! ```
//!
//! hyper serves what is proper. What is not (resets, lies about lengths, endless bodies) makes the service return an
//! error, whereupon hyper hands back the untouched socket and `wire.rs` writes to it by hand.

mod log;
mod wire;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr, TcpListener as StdListener};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use bytes::Bytes;
use hyper::Method;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Handle, Runtime};
use tokio::task::{AbortHandle, JoinSet};

use log::Log;
pub use log::{Access, read_log};

use super::web::{Answer, Delivery, Request, Visit, Web};

/// How often a free port is looked for: it must be free on every address.
const PORT_ATTEMPTS: u32 = 20;

/// How a web is served.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Port to listen on; 0 takes one that is free on all addresses.
    pub port: u16,
    /// Threads of its own. With 0 it runs on the runtime it is started in, or on one thread when there is none.
    pub threads: usize,
    /// Keep the access log in memory (about 200 bytes a request).
    pub keep_log: bool,
    /// Also write the access log to this file, as it happens; [`read_log`] reads it.
    pub log_file: Option<PathBuf>,
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions { port: 0, threads: 0, keep_log: true, log_file: None }
    }
}

/// A web being served. Dropping it stops it.
pub struct Server {
    shared: Arc<Shared>,
    port: u16,
    hosts: Vec<Mutex<Vec<AbortHandle>>>, // accept loops of each host, one a network; none while it refuses connections
    handle: Handle,
    runtime: Option<Runtime>,
}

/// What all connections use.
struct Shared {
    web: Web,
    names: Vec<String>,
    log: Log,
    counts: Vec<AtomicU64>,
    epoch: AtomicU32,
    visits: Mutex<BTreeMap<(u32, String), u32>>, // only of URLs whose answer depends on it
    stopped: AtomicBool,
}

impl Server {
    /// Serves `web` on a free port of the current runtime. Returns when all hosts listen.
    pub fn start(web: Web) -> anyhow::Result<Server> {
        Server::start_with(web, ServerOptions::default())
    }

    /// Serves `web` as `options` say.
    pub fn start_with(web: Web, options: ServerOptions) -> anyhow::Result<Server> {
        let (port, listeners) = bind_all(&web, options.port)?;
        let web = web.on_port(port);
        let (handle, runtime) = match Handle::try_current() {
            Ok(handle) if options.threads == 0 => (handle, None),
            _ => {
                let runtime = tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(options.threads.max(1))
                    .thread_name("synthetic-web")
                    .enable_all()
                    .build()
                    .context("cannot start the threads of the synthetic web")?;
                (runtime.handle().clone(), Some(runtime))
            }
        };
        let shared = Arc::new(Shared {
            names: (0..web.host_count()).map(|host| web.host_name(host)).collect(),
            counts: (0..web.host_count()).map(|_| AtomicU64::new(0)).collect(),
            log: Log::new(options.keep_log, options.log_file.as_deref())?,
            epoch: AtomicU32::new(0),
            visits: Mutex::new(BTreeMap::new()),
            stopped: AtomicBool::new(false),
            web,
        });
        let mut server = Server { shared, port, hosts: Vec::new(), handle, runtime };
        for (host, listener) in listeners.into_iter().enumerate() {
            let accept = listener.map(|listener| server.spawn_accept(host as u32, listener)).transpose()?;
            server.hosts.push(Mutex::new(accept.into_iter().collect()));
        }
        Ok(server)
    }

    /// Listens a second time, in the network namespace of the thread that calls this: the same addresses, port and log, for
    /// clients to whom another loopback device belongs.
    pub fn listen_here_too(&self) -> anyhow::Result<()> {
        let web = &self.shared.web;
        for host in (0..web.host_count()).filter(|host| !web.is_down(*host)) {
            let accept = self.spawn_accept(host, listen(web, host, self.port)?)?;
            self.hosts[host as usize].lock().expect("no panic while locked").push(accept);
        }
        Ok(())
    }

    /// The web as it is served, with the port in its URLs.
    pub fn web(&self) -> &Web {
        &self.shared.web
    }

    /// The port all hosts listen on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URLs to start from.
    pub fn seeds(&self) -> Vec<String> {
        self.shared.web.seeds()
    }

    /// Every host with its address, those that are down included: what a crawler needs instead of a name service.
    pub fn hosts_table(&self) -> Vec<(String, IpAddr)> {
        let web = &self.shared.web;
        (0..web.host_count()).map(|host| (web.host_name(host), web.address(host).into())).collect()
    }

    /// Every request so far in order of arrival; empty without `keep_log`.
    pub fn access_log(&self) -> Vec<Access> {
        self.shared.log.entries()
    }

    /// How many requests host `name` has had, robots.txt included; 0 if there is no such host.
    pub fn requests(&self, name: &str) -> u64 {
        self.shared.web.host_number(name).map_or(0, |host| self.shared.counts[host as usize].load(Relaxed))
    }

    /// How many requests all hosts have had.
    pub fn requests_total(&self) -> u64 {
        self.shared.log.count() as u64
    }

    /// The URL that was requested, as [`Expected::judge`](super::web::Expected::judge) takes it.
    pub fn url(&self, access: &Access) -> String {
        let host = self.shared.web.host_number(&access.host).expect("the log names hosts of this web");
        self.shared.web.url(host, &access.path)
    }

    /// Begins epoch `epoch`: changing pages have other content from now on.
    pub fn set_epoch(&self, epoch: u32) {
        self.shared.epoch.store(epoch, Relaxed);
    }

    /// Takes a host off the network, connections included, or puts it back. Hosts that are down by plan can be put up.
    /// What comes back does so in the caller's network only, see [`Server::listen_here_too`].
    pub fn set_down(&self, name: &str, down: bool) -> anyhow::Result<()> {
        let host = self.shared.web.host_number(name).with_context(|| format!("there is no host {name}"))?;
        let mut accepts = self.hosts[host as usize].lock().expect("no panic while locked");
        if down {
            accepts.drain(..).for_each(|accept| accept.abort());
        } else if accepts.is_empty() {
            accepts.push(self.spawn_accept(host, listen(&self.shared.web, host, self.port)?)?);
        }
        Ok(())
    }

    /// Stops listening, drops all connections and completes the log file. The log in memory stays readable.
    pub fn stop(&mut self) {
        if self.shared.stopped.swap(true, Relaxed) {
            return;
        }
        for host in &self.hosts {
            host.lock().expect("no panic while locked").drain(..).for_each(|accept| accept.abort());
        }
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background(); // allowed inside another runtime, where waiting is not
        }
        self.shared.log.close();
    }

    fn spawn_accept(&self, host: u32, listener: StdListener) -> anyhow::Result<AbortHandle> {
        let _inside = self.handle.enter();
        let listener = TcpListener::from_std(listener).context("the runtime refuses a listener")?;
        Ok(self.handle.spawn(accept(listener, host, self.shared.clone())).abort_handle())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Listens for every host that is not down, all on one port.
fn bind_all(web: &Web, port: u16) -> anyhow::Result<(u16, Vec<Option<StdListener>>)> {
    let Some(first) = (0..web.host_count()).find(|host| !web.is_down(*host)) else { bail!("the plan has no hosts") };
    let mut last = None;
    for _ in 0..if port == 0 { PORT_ATTEMPTS } else { 1 } {
        let listener = listen(web, first, port)?;
        let chosen = listener.local_addr().context("a listener without address")?.port();
        let mut listeners: Vec<Option<StdListener>> = (0..first).map(|_| None).collect();
        listeners.push(Some(listener));
        for host in first + 1..web.host_count() {
            match (!web.is_down(host)).then(|| listen(web, host, chosen)).transpose() {
                Ok(listener) => listeners.push(listener),
                Err(error) => {
                    last = Some(error);
                    break;
                }
            }
        }
        if listeners.len() == web.host_count() as usize {
            return Ok((chosen, listeners));
        }
    }
    Err(last.expect("an attempt was made"))
}

fn listen(web: &Web, host: u32, port: u16) -> anyhow::Result<StdListener> {
    let address = SocketAddr::from((web.address(host), port));
    let listener = StdListener::bind(address).with_context(|| {
        let count = web.host_count();
        format!("cannot listen on {address} for host {host} of {count} (each needs an open file: see ulimit -n)")
    })?;
    listener.set_nonblocking(true).context("cannot make a listener non-blocking")?;
    Ok(listener)
}

/// Accepts connections to one host. They belong to this task: when it is aborted they are dropped too.
async fn accept(listener: TcpListener, host: u32, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.spawn(serve(stream, host, shared.clone()));
            }
            // Out of files, most likely: connections that end make room.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
        while connections.try_join_next().is_some() {}
    }
}

/// An answer for [`wire`], with what has to be logged when it ends.
struct Scripted {
    answer: Answer,
    head_only: bool,
    under_way: UnderWay,
}

/// Tells hyper to let go of the socket.
#[derive(Debug)]
struct LetGo;

impl std::fmt::Display for LetGo {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("the answer is written by hand")
    }
}

impl std::error::Error for LetGo {}

async fn serve(stream: TcpStream, host: u32, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true); // a failure costs time only
    let scripted: Mutex<Option<Scripted>> = Mutex::new(None);
    let service = service_fn(|request: hyper::Request<Incoming>| {
        let (answer, under_way) = decide(&shared, host, &request);
        Box::pin(deliver(answer, request.method() == Method::HEAD, under_way, &scripted))
    });
    let mut connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    // Clients that leave in the middle are their own business: the log has it.
    let _ = poll_fn(|context| connection.poll_without_shutdown(context)).await;
    let mut stream = connection.into_parts().io.into_inner();
    let script = scripted.lock().expect("no panic while locked").take();
    if let Some(mut script) = script {
        let last = || script.under_way.finish();
        let _ = wire::play(&mut stream, &script.answer, script.head_only, last).await; // as above
    }
}

/// Logs a request and makes its answer. Not async: hyper drops a future unpolled when the client has already left, and
/// then a request that did arrive would be missing from the log.
fn decide(shared: &Arc<Shared>, host: u32, request: &hyper::Request<Incoming>) -> (Answer, UnderWay) {
    let text = |name: HeaderName| request.headers().get(name).and_then(|value| value.to_str().ok());
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let (if_none_match, if_modified_since) = (text(header::IF_NONE_MATCH), text(header::IF_MODIFIED_SINCE));
    let conditional = if_none_match.is_some() || if_modified_since.is_some();
    let n = shared.log.arrived(
        &shared.names[host as usize],
        path,
        text(header::USER_AGENT).unwrap_or_default(),
        conditional,
    );
    shared.counts[host as usize].fetch_add(1, Relaxed);
    let mut under_way = UnderWay { shared: shared.clone(), n, status: 0, finished: false };

    let asked = text(header::HOST).map(|host| host.rsplit_once(':').map_or(host, |(host, _)| host));
    let conditions = [("if-none-match", if_none_match), ("if-modified-since", if_modified_since)];
    let mut headers = [("", ""); 2];
    let mut count = 0;
    for (name, value) in conditions {
        if let Some(value) = value {
            headers[count] = (name, value);
            count += 1;
        }
    }
    let question = Request {
        host: &shared.names[host as usize],
        method: request.method().as_str(),
        path_and_query: path,
        headers: &headers[..count],
    };
    let answer = match asked {
        Some(asked) if asked.eq_ignore_ascii_case(&shared.names[host as usize]) => {
            shared.web.respond_as(host, &question, shared.visit(host, path))
        }
        // A client that connected to the wrong address, or forgot the Host header.
        _ => shared.web.respond(&Request { host: "", ..question }, Visit::default()),
    };
    under_way.status = if answer.delivery.sends_status() { answer.status } else { 0 };
    (answer, under_way)
}

async fn deliver(
    answer: Answer,
    head_only: bool,
    under_way: UnderWay,
    scripted: &Mutex<Option<Scripted>>,
) -> Result<hyper::Response<PageBody>, LetGo> {
    if answer.delay_ms > 0 {
        tokio::time::sleep(Duration::from_millis(answer.delay_ms.into())).await;
    }
    if answer.delivery != Delivery::Whole {
        *scripted.lock().expect("no panic while locked") = Some(Scripted { answer, head_only, under_way });
        return Err(LetGo);
    }
    Ok(proper(answer, head_only, under_way))
}

/// The answer as hyper sends it.
fn proper(answer: Answer, head_only: bool, mut under_way: UnderWay) -> hyper::Response<PageBody> {
    let mut response = hyper::Response::builder().status(answer.status);
    for (name, value) in &answer.headers {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("the web makes valid header names");
        response = response.header(name, HeaderValue::from_str(value).expect("the web makes valid header values"));
    }
    // hyper drops these without asking for their body.
    if head_only || answer.body.is_empty() {
        under_way.finish();
    }
    let body = PageBody { bytes: Some(answer.body).filter(|body| !body.is_empty()), under_way };
    response.body(body).expect("status and headers are valid")
}

impl Shared {
    fn visit(&self, host: u32, path: &str) -> Visit {
        let earlier = self.web.counts_visits(host, path).then(|| {
            let mut visits = self.visits.lock().expect("no panic while locked");
            let count = visits.entry((host, path.to_owned())).or_insert(0);
            *count += 1;
            *count - 1
        });
        let now_unix_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs());
        Visit { earlier, epoch: self.epoch.load(Relaxed), now_unix_s }
    }
}

/// A request that is being answered. If it is dropped unfinished, it was aborted.
struct UnderWay {
    shared: Arc<Shared>,
    n: usize,
    status: u16,
    finished: bool,
}

impl UnderWay {
    /// Logs the end of the answer. Called before the last byte is sent, so that the client's next request, which may
    /// follow at once, never appears to overlap with this one.
    fn finish(&mut self) {
        self.finished = true;
        self.shared.log.finished(self.n, self.status, false);
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if !self.finished {
            self.shared.log.finished(self.n, self.status, true);
        }
    }
}

/// A whole page, handed to hyper in one piece.
struct PageBody {
    bytes: Option<Bytes>,
    under_way: UnderWay,
}

impl Body for PageBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = self.bytes.take();
        if bytes.is_some() {
            self.under_way.finish();
        }
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

#[cfg(test)]
mod tests;
