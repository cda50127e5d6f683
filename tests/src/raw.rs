//! A small server for answers that the synthetic web does not give: a site is a function from a request to a reply. One
//! address, any host names, and an access log of the same kind.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use simulation::world::server::Access;

/// What is asked.
#[derive(Debug)]
pub struct Asked<'a> {
    /// Host header without port, in lower case.
    pub host: &'a str,
    /// Path and query.
    pub path: &'a str,
    /// Port the server listens on.
    pub port: u16,
    /// How often this was asked before.
    pub earlier: usize,
}

/// What is answered.
#[derive(Clone, Debug)]
pub struct Reply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: String,
    delay: Duration,
}

impl Reply {
    /// A status without content.
    pub fn status(status: u16) -> Reply {
        Reply { status, headers: Vec::new(), body: String::new(), delay: Duration::ZERO }
    }

    /// A page with these links.
    pub fn page(links: &[impl AsRef<str>]) -> Reply {
        let links: String = links.iter().map(|link| format!("<a href=\"{0}\">{0}</a>\n", link.as_ref())).collect();
        let reply = Reply::status(200).header("Content-Type", "text/html");
        Reply { body: format!("<!doctype html><title>page</title>\n{links}"), ..reply }
    }

    /// A text file.
    pub fn text(text: impl Into<String>) -> Reply {
        Reply { body: text.into(), ..Reply::status(200).header("Content-Type", "text/plain") }
    }

    /// A file of this type.
    pub fn file(content_type: &str, body: impl Into<String>) -> Reply {
        Reply { body: body.into(), ..Reply::status(200).header("Content-Type", content_type) }
    }

    /// A redirect.
    pub fn redirect(to: impl Into<String>) -> Reply {
        Reply::status(302).header("Location", to)
    }

    /// Adds a header.
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Reply {
        self.headers.push((name, value.into()));
        self
    }

    /// Waits before it answers.
    pub fn after(self, delay: Duration) -> Reply {
        Reply { delay, ..self }
    }
}

/// A server. It stops taking connections when the test ends.
pub struct RawServer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    port: u16,
    site: Box<dyn Fn(&Asked<'_>) -> Reply + Send + Sync>,
    started: Instant,
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    entries: Vec<Access>,
    counts: BTreeMap<(String, String), usize>,
    heads: BTreeMap<String, String>,
}

impl RawServer {
    /// Serves `site` on a free port of 127.0.0.1.
    pub fn start(site: impl Fn(&Asked<'_>) -> Reply + Send + Sync + 'static) -> RawServer {
        RawServer::start_at(Ipv4Addr::LOCALHOST, site)
    }

    /// Serves `site` on a free port of every address of this machine: each of 127.0.0.0/8 is a host of its own, see [`named`](RawServer::named).
    pub fn everywhere(site: impl Fn(&Asked<'_>) -> Reply + Send + Sync + 'static) -> RawServer {
        RawServer::start_at(Ipv4Addr::UNSPECIFIED, site)
    }

    fn start_at(ip: Ipv4Addr, site: impl Fn(&Asked<'_>) -> Reply + Send + Sync + 'static) -> RawServer {
        let listener = TcpListener::bind((ip, 0)).expect("loopback has a free port");
        let port = listener.local_addr().expect("a listener has an address").port();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let shared =
            Shared { port: address.port(), site: Box::new(site), started: Instant::now(), log: Mutex::default() };
        let shared = Arc::new(shared);
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&serving);
                std::thread::spawn(move || drop(shared.serve(stream)));
            }
        });
        RawServer { address, shared }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of `path` under the address.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The URL of `path` on host `name`.
    pub fn named(&self, name: &str, path: &str) -> String {
        format!("http://{name}:{}{path}", self.address.port())
    }

    /// Every request so far, in order of arrival.
    pub fn access_log(&self) -> Vec<Access> {
        self.shared.log.lock().expect("no panic while locked").entries.clone()
    }

    /// The last request for a path, as it came in.
    pub fn head_of(&self, path: &str) -> Option<String> {
        self.shared.log.lock().expect("no panic while locked").heads.get(path).cloned()
    }

    /// The paths that were requested, in order of arrival, robots.txt left out.
    pub fn pages(&self) -> Vec<String> {
        let log = self.access_log().into_iter();
        log.filter(|access| access.path != "/robots.txt").map(|access| access.path).collect()
    }
}

impl Shared {
    fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut stream = stream;
        loop {
            let mut lines = Vec::new();
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line)? == 0 {
                    return Ok(());
                }
                let line = line.trim_end().to_owned();
                if line.is_empty() {
                    break;
                }
                lines.push(line);
            }
            let Some(path) = lines.first().and_then(|line| line.split(' ').nth(1)).map(str::to_owned) else {
                return Ok(());
            };
            self.log.lock().expect("no panic while locked").heads.insert(path.clone(), lines.join("\r\n") + "\r\n");
            let header = |name: &str| {
                let mut values = lines[1..].iter().filter_map(|line| line.split_once(':'));
                values.find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned())
            };
            let host = header("host").unwrap_or_default().to_ascii_lowercase();
            let host = host.split(':').next().unwrap_or_default().to_owned();
            let conditional = header("if-none-match").is_some() || header("if-modified-since").is_some();
            let (n, earlier) = self.arrived(&host, &path, header("user-agent").unwrap_or_default(), conditional);
            let reply = (self.site)(&Asked { host: &host, path: &path, port: self.port, earlier });
            std::thread::sleep(reply.delay);
            let mut head = format!("HTTP/1.1 {} X\r\nContent-Length: {}\r\n", reply.status, reply.body.len());
            for (name, value) in &reply.headers {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
            self.finished(n, reply.status);
            stream.write_all(format!("{head}\r\n{}", reply.body).as_bytes())?;
        }
    }

    fn now_us(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }

    fn arrived(&self, host: &str, path: &str, user_agent: String, conditional: bool) -> (usize, usize) {
        let mut log = self.log.lock().expect("no panic while locked");
        let count = log.counts.entry((host.to_owned(), path.to_owned())).or_default();
        *count += 1;
        let earlier = *count - 1;
        let (at_us, finished_us, status, aborted) = (self.now_us(), None, 0, false);
        let (host, path) = (host.to_owned(), path.to_owned());
        log.entries.push(Access { host, path, at_us, finished_us, user_agent, status, conditional, aborted });
        (log.entries.len() - 1, earlier)
    }

    fn finished(&self, n: usize, status: u16) {
        let mut log = self.log.lock().expect("no panic while locked");
        let now_us = self.now_us();
        let entry = &mut log.entries[n];
        (entry.finished_us, entry.status) = (Some(now_us), status);
    }
}
