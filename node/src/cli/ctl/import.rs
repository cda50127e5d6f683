//! `orbweaver ctl import`: a list of URIs into a crawl of a cluster, and a word on each that is refused.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use proto::control::source::{NewTask, RefusedTask, SourceRequest};
use proto::control::{Answer, Request};
use proto::key::DEFAULT_CRAWL;
use proto::source::{HEAD_BYTES, Importer, Judged, LINE_BYTES_MAX, Refused, kind_of};
use proto::url::UrlRules;
use serde_json::json;

use super::{Connection, URLS_AT_ONCE, source};
use crate::cli::progress::say;
use crate::cli::units::show_count;
use crate::cli::{Complaint, Exit};

/// Bytes of URIs in one request, about: what nodes take at once, halved.
const BYTES_AT_ONCE: usize = 512 << 10;
/// Refused URIs that are shown at the end; `--errors` keeps them all.
const REFUSED_SHOWN: usize = 20;

pub(super) const EXAMPLES: &str = "Examples:
  orbweaver ctl --data /srv/orbweaver import list.csv --crawl news --errors refused.jsonl
  orbweaver ctl --data /srv/orbweaver import list.csv --job news
  python3 make_uris.py | orbweaver ctl --data /srv/orbweaver import - --crawl news

One URI a line, or several with `;` between them; at most 8,000 characters each. A file is CSV (one column, no heading) or TXT.
What is no URI, too long or there twice is refused, the rest goes on; all refusals are shown together at the end.
Exit codes: 0 all were taken, 1 some were refused or the cluster could not keep them, 2 not a list of URIs: nothing was taken";

/// Arguments of `ctl import`.
#[derive(Args)]
pub(super) struct ImportArguments {
    /// The list, - for standard input
    file: PathBuf,
    /// The crawl that the URIs are for
    #[arg(long, default_value = DEFAULT_CRAWL, conflicts_with = "job")]
    crawl: String,
    /// The job whose tasks the URIs become; what is refused is in its error log too
    #[arg(long)]
    job: Option<String>,
    /// File for everything that is refused, one JSON object a line: line, uri, reason
    #[arg(long, value_name = "FILE")]
    errors: Option<PathBuf>,
}

/// What has come of a list so far.
struct Import<'a> {
    connection: &'a Connection,
    crawl: &'a str,
    job: Option<&'a str>,
    waiting: Vec<NewTask>,
    waiting_bytes: usize,
    /// Refusals that the job's log has not got yet.
    untold: Vec<RefusedTask>,
    kept: u64,
    shown: Vec<String>,
    refused: u64,
    errors: Option<(&'a Path, BufWriter<File>)>,
}

/// Imports a list.
pub(super) async fn import(
    connection: &Connection,
    arguments: &ImportArguments,
    as_json: bool,
) -> Result<Exit, Complaint> {
    let name = arguments.file.display().to_string();
    let unreadable = |error: std::io::Error| Complaint::usage(format!("cannot read {name}: {error}"));
    let source: Box<dyn Read> = if arguments.file == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        Box::new(File::open(&arguments.file).map_err(unreadable)?)
    };
    let mut reader = BufReader::with_capacity(HEAD_BYTES.max(64 << 10), source);
    let head = reader.fill_buf().map_err(unreadable)?;
    let kind = kind_of(&name, &head[..head.len().min(HEAD_BYTES)]).map_err(Complaint::usage)?;
    let errors = match &arguments.errors {
        Some(path) => {
            let file = File::create(path);
            let file = file.map_err(|error| Complaint::usage(format!("cannot write {}: {error}", path.display())))?;
            Some((path.as_path(), BufWriter::new(file)))
        }
        None => None,
    };
    let mut import = Import {
        connection,
        crawl: &arguments.crawl,
        job: arguments.job.as_deref(),
        waiting: Vec::new(),
        waiting_bytes: 0,
        untold: Vec::new(),
        kept: 0,
        shown: Vec::new(),
        refused: 0,
        errors,
    };
    let mut importer = Importer::new(kind, UrlRules::default());
    let (mut line, mut number) = (Vec::new(), 0);
    while read_line(&mut reader, &mut line).map_err(unreadable)? {
        number += 1;
        for judged in importer.line(&line).map_err(Complaint::usage)? {
            match judged {
                Judged::Accepted(url) => import.take(number, url.into_string()).await?,
                Judged::Refused(Refused { line, uri, reason }) => {
                    import.tell_job(line, &uri, &reason.to_string()).await?;
                    let row = json!({ "line": line, "uri": uri, "reason": reason.to_string() });
                    import.refuse(&row, || format!("line {line:>6}  {uri}  {reason}"))?;
                }
            }
        }
    }
    import.hand_over().await?;
    import.finish(as_json)
}

/// Reads one line without its end; of one that is longer than any list has, only so much that this can be seen.
fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> std::io::Result<bool> {
    line.clear();
    let mut any = false;
    loop {
        let available = reader.fill_buf()?;
        if available.is_empty() {
            return Ok(any);
        }
        any = true;
        let end = available.iter().position(|byte| *byte == b'\n');
        let part = &available[..end.unwrap_or(available.len())];
        let room = (LINE_BYTES_MAX + 1).saturating_sub(line.len());
        line.extend_from_slice(&part[..part.len().min(room)]);
        let used = part.len() + usize::from(end.is_some());
        reader.consume(used);
        if end.is_some() {
            return Ok(true);
        }
    }
}

impl Import<'_> {
    async fn take(&mut self, line: u64, uri: String) -> Result<(), Complaint> {
        self.waiting_bytes += uri.len() + 32;
        self.waiting.push(NewTask { line, uri, args: None });
        if self.waiting.len() >= URLS_AT_ONCE || self.waiting_bytes >= BYTES_AT_ONCE {
            self.hand_over().await
        } else {
            Ok(())
        }
    }

    /// Hands over what waits; returns when enough disks have it.
    async fn hand_over(&mut self) -> Result<(), Complaint> {
        self.waiting_bytes = 0;
        if let Some(job) = self.job {
            return self.hand_to_job(job).await;
        }
        if self.waiting.is_empty() {
            return Ok(());
        }
        let urls = std::mem::take(&mut self.waiting).into_iter().map(|task| task.uri).collect();
        let request = Request::AddUrls { crawl: self.crawl.to_owned(), urls };
        let so_far = |why: &str, kept: u64| {
            Complaint::failed(format!(
                "{why}\n{kept} URIs before are kept; the same command takes the rest, none twice"
            ))
        };
        match self.connection.ask(&request).await {
            Ok(Answer::Added { kept, wrong }) => {
                self.kept += kept;
                // A node that is set to other rules of URLs than ours may think otherwise of one.
                for (uri, reason) in wrong {
                    self.refuse(&json!({ "uri": uri, "reason": reason }), || format!("{uri}  {reason}"))?;
                }
            }
            Ok(Answer::Refused(why)) => return Err(so_far(&why, self.kept)),
            Ok(other) => return Err(so_far(&format!("the node answered {other:?}"), self.kept)),
            Err(complaint) => return Err(so_far(&complaint.text, self.kept)),
        }
        Ok(())
    }

    /// Keeps a refusal for the log of the job, if there is one.
    async fn tell_job(&mut self, line: u64, uri: &str, reason: &str) -> Result<(), Complaint> {
        if self.job.is_some() {
            self.untold.push(RefusedTask { line, uri: uri.to_owned(), reason: reason.to_owned() });
            if self.untold.len() >= URLS_AT_ONCE {
                self.hand_over().await?;
            }
        }
        Ok(())
    }

    /// Hands tasks and refusals to a job.
    async fn hand_to_job(&mut self, job: &str) -> Result<(), Complaint> {
        if self.waiting.is_empty() && self.untold.is_empty() {
            return Ok(());
        }
        let (tasks, refused) = (std::mem::take(&mut self.waiting), std::mem::take(&mut self.untold));
        let answer = source::ask(self.connection, SourceRequest::TaskAdd { job: job.to_owned(), tasks, refused }).await;
        let answer = answer.map_err(|complaint| {
            Complaint::failed(format!(
                "{}\n{} URIs before are kept; the same command takes the rest, none twice",
                complaint.text, self.kept
            ))
        })?;
        self.kept += answer["accepted"].as_u64().unwrap_or(0);
        for row in answer["refused"].as_array().map(Vec::as_slice).unwrap_or_default() {
            let text = |name: &str| row[name].as_str().unwrap_or_default();
            self.refuse(row, || format!("line {:>6}  {}  {}", row["line"], text("uri"), text("reason")))?;
        }
        Ok(())
    }

    /// Writes a refusal down, and keeps the first ones for the end.
    fn refuse(&mut self, row: &serde_json::Value, shown: impl FnOnce() -> String) -> Result<(), Complaint> {
        self.refused += 1;
        if let Some((path, errors)) = &mut self.errors {
            let written = serde_json::to_writer(&mut *errors, row).map_err(std::io::Error::from);
            let written = written.and_then(|()| errors.write_all(b"\n"));
            written.map_err(|error| Complaint::failed(format!("cannot write {}: {error}", path.display())))?;
        }
        if self.shown.len() < REFUSED_SHOWN {
            self.shown.push(shown());
        }
        Ok(())
    }

    fn finish(self, as_json: bool) -> Result<Exit, Complaint> {
        if let Some((path, mut errors)) = self.errors {
            let flushed = errors.flush();
            flushed.map_err(|error| Complaint::failed(format!("cannot write {}: {error}", path.display())))?;
        }
        let text = if as_json {
            let (name, place) = self.job.map_or(("crawl", self.crawl), |job| ("job", job));
            json!({ name: place, "kept": self.kept, "refused": self.refused, "first_refused": self.shown }).to_string()
        } else {
            let mut lines = vec![format!(
                "{} URIs are kept in {}, {} were refused",
                show_count(self.kept),
                self.job.map_or_else(|| format!("crawl {}", self.crawl), |job| format!("job {job}")),
                show_count(self.refused)
            )];
            lines.extend(self.shown.iter().map(|one| format!("  {one}")));
            let more = self.refused - self.shown.len() as u64;
            if more > 0 {
                lines.push(format!("  and {} more; --errors FILE keeps them all", show_count(more)));
            }
            lines.join("\n")
        };
        say(&text).map_err(|error| Complaint::failed(format!("cannot write: {error}")))?;
        Ok(if self.refused > 0 { Exit::Failed } else { Exit::Done })
    }
}
