//! The access log: what was asked of which host, when, and when it was over.
//!
//! The server writes it itself, at the arrival of each request, so that it can bear witness for or against a crawler.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// One request. Times are microseconds since the server started and never run backwards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// Host as it stands in URLs, without port.
    pub host: String,
    /// Path and query.
    pub path: String,
    /// When the request had arrived.
    pub at_us: u64,
    /// When the last piece of the answer was about to be sent, or the client was seen to be gone; `None` while under
    /// way. A client that takes the whole answer has it later than this. One that leaves early (see `aborted`) may have
    /// left a little before the server saw it.
    pub finished_us: Option<u64>,
    /// The client's User-Agent; empty if it sent none.
    pub user_agent: String,
    /// Status sent; 0 while under way, and when the connection was reset or left silent.
    pub status: u16,
    /// Whether the request had If-None-Match or If-Modified-Since.
    pub conditional: bool,
    /// Whether the client left, or was dropped, before the answer was complete.
    pub aborted: bool,
}

/// A line of the log file: first the arrival of request `n`, later its end.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Finished { n: usize, finished_us: u64, status: u16, aborted: bool },
    Arrived { n: usize, host: String, path: String, at_us: u64, user_agent: String, conditional: bool },
}

pub(super) struct Log {
    started: Instant,
    entries: Mutex<Entries>,
    keep: bool,
    file: Option<LogFile>,
}

struct Entries {
    next: usize,
    last_us: u64,
    kept: Vec<Access>,
}

struct LogFile {
    lines: Mutex<Option<mpsc::Sender<Line>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Log {
    pub(super) fn new(keep: bool, file: Option<&Path>) -> anyhow::Result<Log> {
        let file = file.map(LogFile::create).transpose()?;
        let entries = Mutex::new(Entries { next: 0, last_us: 0, kept: Vec::new() });
        Ok(Log { started: Instant::now(), entries, keep, file })
    }

    /// Notes the arrival of a request and returns its number. The time is read under the lock: log order is time order.
    pub(super) fn arrived(&self, host: &str, path: &str, user_agent: &str, conditional: bool) -> usize {
        let mut entries = self.entries.lock().expect("no panic while locked");
        let (n, at_us) = (entries.next, self.now_us(&mut entries));
        entries.next += 1;
        if self.keep {
            let (path, user_agent) = (path.to_owned(), user_agent.to_owned());
            let (finished_us, status, aborted) = (None, 0, false);
            let host = host.to_owned();
            entries.kept.push(Access { host, path, at_us, finished_us, user_agent, status, conditional, aborted });
        }
        if let Some(file) = &self.file {
            let (host, path, user_agent) = (host.to_owned(), path.to_owned(), user_agent.to_owned());
            file.write(Line::Arrived { n, host, path, at_us, user_agent, conditional });
        }
        n
    }

    /// Notes that request `n` is over.
    pub(super) fn finished(&self, n: usize, status: u16, aborted: bool) {
        let mut entries = self.entries.lock().expect("no panic while locked");
        let finished_us = self.now_us(&mut entries);
        if self.keep {
            let entry = &mut entries.kept[n];
            (entry.finished_us, entry.status, entry.aborted) = (Some(finished_us), status, aborted);
        }
        if let Some(file) = &self.file {
            file.write(Line::Finished { n, finished_us, status, aborted });
        }
    }

    pub(super) fn entries(&self) -> Vec<Access> {
        self.entries.lock().expect("no panic while locked").kept.clone()
    }

    /// How many requests have arrived.
    pub(super) fn count(&self) -> usize {
        self.entries.lock().expect("no panic while locked").next
    }

    /// Writes out the rest of the file and closes it.
    pub(super) fn close(&self) {
        if let Some(file) = &self.file {
            file.close();
        }
    }

    fn now_us(&self, entries: &mut Entries) -> u64 {
        entries.last_us = entries.last_us.max(self.started.elapsed().as_micros() as u64);
        entries.last_us
    }
}

impl LogFile {
    fn create(path: &Path) -> anyhow::Result<LogFile> {
        let file = File::create(path).with_context(|| format!("cannot write the access log {}", path.display()))?;
        let (lines, incoming) = mpsc::channel();
        let writer = std::thread::Builder::new()
            .name("access-log".into())
            .spawn(move || write_lines(BufWriter::new(file), &incoming))
            .context("cannot start the thread of the access log")?;
        Ok(LogFile { lines: Mutex::new(Some(lines)), writer: Mutex::new(Some(writer)) })
    }

    fn write(&self, line: Line) {
        if let Some(lines) = &*self.lines.lock().expect("no panic while locked") {
            // The writer ends early only when the disk refuses, which it has reported.
            let _ = lines.send(line);
        }
    }

    fn close(&self) {
        drop(self.lines.lock().expect("no panic while locked").take());
        if let Some(writer) = self.writer.lock().expect("no panic while locked").take() {
            let _ = writer.join();
        }
    }
}

/// Writes lines as they come and flushes whenever none is waiting, so that a reader is never far behind.
fn write_lines(mut file: BufWriter<File>, incoming: &mpsc::Receiver<Line>) {
    let mut write = || -> std::io::Result<()> {
        while let Ok(mut line) = incoming.recv() {
            loop {
                serde_json::to_writer(&mut file, &line)?;
                file.write_all(b"\n")?;
                match incoming.try_recv() {
                    Ok(next) => line = next,
                    Err(_) => break,
                }
            }
            file.flush()?;
        }
        Ok(())
    };
    if let Err(error) = write() {
        eprintln!("access log ends here: {error}");
    }
}

/// Reads a log file back, in order of arrival. A last line that is cut off is left out.
pub fn read_log(path: &Path) -> anyhow::Result<Vec<Access>> {
    let file = File::open(path).with_context(|| format!("cannot read the access log {}", path.display()))?;
    let mut entries: Vec<Access> = Vec::new();
    for line in BufReader::new(file).lines() {
        match serde_json::from_str(&line?) {
            Ok(Line::Arrived { n, host, path, at_us, user_agent, conditional }) => {
                anyhow::ensure!(n == entries.len(), "request {n} stands at place {} of the log", entries.len());
                let (finished_us, status, aborted) = (None, 0, false);
                entries.push(Access { host, path, at_us, finished_us, user_agent, status, conditional, aborted });
            }
            Ok(Line::Finished { n, finished_us, status, aborted }) => {
                let entry = entries.get_mut(n).with_context(|| format!("request {n} ends before it begins"))?;
                (entry.finished_us, entry.status, entry.aborted) = (Some(finished_us), status, aborted);
            }
            Err(_) => break,
        }
    }
    Ok(entries)
}
