//! A spider that speaks HTTP by hand: the door must be usable by whoever can write a request.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::program::Running;
use crate::wait_until;

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its status code.
    pub status: u16,
    /// Its head, in lower case.
    pub head: String,
    /// Its body.
    pub body: String,
}

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// The door for spiders of a node.
#[derive(Clone, Debug)]
pub struct Spider {
    address: String,
    /// A line of the head with name and password.
    login: String,
}

impl Spider {
    /// Comes to this address.
    pub fn at(address: &str) -> Spider {
        Spider { address: address.to_owned(), login: String::new() }
    }

    /// Where it comes to.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Comes with this in its head.
    pub fn with_login(self, base64: &str) -> Spider {
        Spider { login: format!("Authorization: Basic {base64}\r\n"), ..self }
    }

    /// Asks anything; `None` if nobody answers.
    pub fn try_ask(&self, method: &str, path: &str, kind: &str, body: &str) -> Option<Answer> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(60))).ok()?;
        let (address, login, length) = (&self.address, &self.login, body.len());
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\n{login}Content-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some(Answer { status, head: head.to_lowercase(), body: body.to_owned() })
    }

    /// Asks anything.
    pub fn ask(&self, method: &str, path: &str, kind: &str, body: &str) -> Answer {
        self.try_ask(method, path, kind, body).expect("the door is open")
    }

    /// Sends JSON.
    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask("POST", path, "application/json", &body.to_string())
    }

    /// Asks for something.
    pub fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "", "")
    }

    /// Reports a page; links are all worth the same.
    pub fn crawled(&self, url: &str, score: f64, links: &[String]) {
        let links: Vec<Value> = links.iter().map(|link| json!([link, 0.5])).collect();
        let answer = self.post("/crawled", &json!({"url": url, "score": score, "links": links}));
        assert_eq!((answer.status, answer.body.as_str()), (201, ""), "{answer:?}");
    }

    /// Asks what to fetch.
    pub fn request(&self, wanted: usize) -> Vec<String> {
        let answer = self.get(&format!("/request?n={wanted}"));
        assert_eq!(answer.status, 200, "{answer:?}");
        let urls = answer.json();
        urls.as_array().expect("a list").iter().map(|url| url.as_str().expect("a URL").to_owned()).collect()
    }

    /// Asks until there is something, or too long.
    pub fn request_at_last(&self, wanted: usize) -> Vec<String> {
        let mut urls = Vec::new();
        wait_until("a page is handed out", || {
            urls = self.request(wanted);
            !urls.is_empty()
        });
        urls
    }

    /// Counts.
    pub fn stats(&self) -> Value {
        self.get("/stats").json()
    }
}

/// Starts a node alone with these settings, and waits for its door.
pub fn start(work: &Path, settings: &str, name: &str) -> (Running, Spider) {
    let (config, data) = (work.join("node.toml"), work.join("data"));
    std::fs::write(&config, settings).expect("the temporary folder can be written");
    let [config, data] = [&config, &data].map(|path| path.to_str().expect("temporary folders have plain names"));
    let arguments = ["node", "--config", config, "--data", data, "--http", "127.0.0.1:0", "--frontier", "127.0.0.1:0"];
    let running = Running::start(arguments, work, name);
    let door = || {
        let stderr = running.stderr();
        let line = stderr.lines().find_map(|line| line.strip_prefix("spiders: http://"))?.to_owned();
        line.strip_suffix("/request").map(str::to_owned)
    };
    wait_until("the door for spiders is open", || door().is_some());
    let spider = Spider::at(&door().expect("just seen"));
    (running, spider)
}
