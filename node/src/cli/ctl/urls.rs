//! `orbweaver ctl url` and `ctl query`: URLs of sites, handed in, looked for, crawled again, disabled and deleted; and questions over all of them.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use proto::base64::to_base64;
use proto::control::Request;
use proto::site::{Operation, code};
use serde_json::{Value as Json, json};

use super::Connection;
use super::site::written;
use crate::cli::{Complaint, Exit, dc, seeds};

/// URLs in one request.
const URLS_AT_ONCE: usize = 1_000;

pub(super) const NEW_EXAMPLES: &str = "Examples:
  orbweaver ctl --data /srv/orbweaver url new --site news https://example.com/a https://example.com/b
  orbweaver ctl --data /srv/orbweaver url new --seeds urls.txt --select auto     each URL to the site of its origin, made if there is none";
pub(super) const FIND_EXAMPLES: &str = "Examples:
  orbweaver ctl --data /srv/orbweaver url find --site news --where 'httpCode >= 400' --order 'UDate DESC' --limit 50
  orbweaver ctl --data /srv/orbweaver url find --site news --site shop --proportional --json";
pub(super) const CHANGE_EXAMPLES: &str = "Examples:
  orbweaver ctl --data /srv/orbweaver url update --site news https://example.com/a --again
  orbweaver ctl --data /srv/orbweaver url delete --site news --where \"url LIKE '%/tag/%'\" --limit 1000";
pub(super) const PUT_EXAMPLES: &str = "Example:
  orbweaver ctl --data /srv/orbweaver url put --site news https://example.com/a --type 1 --file result.json";
pub(super) const HISTORY_EXAMPLES: &str = "Examples:
  orbweaver ctl --data /srv/orbweaver site update news --property STATS_LOG_ENABLED=1
  orbweaver ctl --data /srv/orbweaver url history --site news https://example.com/a";
pub(super) const UPKEEP_EXAMPLES: &str = "Examples:
  orbweaver ctl --data /srv/orbweaver url age --site news --where \"depth > 3 AND UDate < NOW() - INTERVAL 7 DAY\" --limit 1000
  orbweaver ctl --data /srv/orbweaver url purge --site news
  orbweaver ctl --data /srv/orbweaver url recalculate --site news";
pub(super) const QUERY_EXAMPLES: &str = "Examples:
  orbweaver ctl --data /srv/orbweaver query \"SELECT url, size FROM urls WHERE siteId = 'news' ORDER BY size DESC LIMIT 10\"
  orbweaver ctl --data /srv/orbweaver query 'SELECT siteId, httpCode, COUNT(*) FROM urls GROUP BY siteId, httpCode'
  orbweaver ctl --data /srv/orbweaver query 'SELECT id, errors FROM sites WHERE errors > 0 ORDER BY errors DESC'";

/// URLs to be handed in.
#[derive(Args)]
pub(super) struct NewArguments {
    /// The URLs
    urls: Vec<String>,
    /// File with one URL a line (# begins a comment), - for standard input
    #[arg(long, value_name = "FILE")]
    seeds: Option<PathBuf>,
    /// Their site; else the one with the longest root URL that a URL begins with
    #[arg(long)]
    site: Option<String>,
    /// What to do with a URL that belongs to no site [default: refuse it]
    #[arg(long, value_enum)]
    select: Option<Select>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Select {
    /// It goes to the general site
    Explicit = 0,
    /// It goes to the site of its origin, which is made if there is none
    Auto = 1,
    /// It goes to the site of its origin, or to the general site
    Qualify = 2,
}

/// Which URLs to look for.
#[derive(Args)]
pub(super) struct FindArguments {
    /// Only of this site; may be given several times [default: all that are active]
    #[arg(long)]
    site: Vec<String>,
    /// Only those that meet this condition
    #[arg(long = "where", value_name = "CONDITION", default_value = "")]
    condition: String,
    /// In this order
    #[arg(long, value_name = "FIELDS", default_value = "")]
    order: String,
    /// So many
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// From each site its share
    #[arg(long)]
    proportional: bool,
}

/// Which URLs to change.
#[derive(Args)]
pub(super) struct ChangeArguments {
    /// The URLs
    urls: Vec<String>,
    /// Their site
    #[arg(long, default_value = "0")]
    site: String,
    /// Instead of URLs: all that meet this condition
    #[arg(long = "where", value_name = "CONDITION", conflicts_with = "urls")]
    condition: Option<String>,
    /// So many of those [default: all, up to 10000]
    #[arg(long, value_name = "N", requires = "condition")]
    limit: Option<usize>,
}

/// A content to hand in.
#[derive(Args)]
pub(super) struct PutArguments {
    /// The URL
    url: String,
    /// Its site
    #[arg(long, default_value = "0")]
    site: String,
    /// What it is: one bit of the content type mask, as 1 for processed, 1024 for raw
    #[arg(long = "type", value_name = "BIT", default_value_t = 1)]
    kind: u32,
    /// The file, - for standard input
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
}

/// URLs of a site.
#[derive(Args)]
pub(super) struct NamedArguments {
    /// The URLs
    #[arg(required = true)]
    urls: Vec<String>,
    /// Their site
    #[arg(long, default_value = "0")]
    site: String,
}

/// Which sites and URLs.
#[derive(Args)]
pub(super) struct UpkeepArguments {
    /// Only of this site; may be given several times [default: all]
    #[arg(long)]
    site: Vec<String>,
    /// Only URLs that meet this condition, instead of what the sites say
    #[arg(long = "where", value_name = "CONDITION")]
    condition: Option<String>,
    /// So many of each site
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

/// How to change URLs.
#[derive(Args)]
pub(super) struct UpdateArguments {
    #[command(flatten)]
    which: ChangeArguments,
    /// Crawl them again
    #[arg(long, conflicts_with = "disable", required_unless_present = "disable")]
    again: bool,
    /// Do not crawl them any more
    #[arg(long)]
    disable: bool,
}

/// What is to be done with URLs.
pub(super) enum UrlWork<'a> {
    New(&'a NewArguments),
    Find(&'a FindArguments),
    Update(&'a UpdateArguments),
    Delete(&'a ChangeArguments),
    Cleanup(&'a ChangeArguments),
    Query(&'a str),
    Put(&'a PutArguments),
    History(&'a NamedArguments, Operation),
    Upkeep(&'a UpkeepArguments, Operation),
}

impl ChangeArguments {
    fn orders(&self, more: &Json) -> Result<Vec<Json>, Complaint> {
        let with = |mut order: Json| {
            if let (Json::Object(order), Json::Object(more)) = (&mut order, more) {
                order.extend(more.clone());
            }
            order
        };
        match &self.condition {
            Some(condition) => {
                Ok(vec![with(json!({"siteId": self.site, "criterions": {"WHERE": condition, "LIMIT": self.limit}}))])
            }
            None if self.urls.is_empty() => Err(Complaint::usage("name URLs, or a condition with --where")),
            None => Ok(self.urls.iter().map(|url| with(json!({"siteId": self.site, "url": url}))).collect()),
        }
    }
}

/// Does the work.
pub(super) async fn urls(connection: &Connection, work: UrlWork<'_>, as_json: bool) -> Result<Exit, Complaint> {
    match work {
        UrlWork::New(new) => {
            let urls = seeds::read(&new.urls, new.seeds.as_deref(), &Default::default())?;
            let select = new.select.map_or(3, |select| select as u8);
            let body =
                |url: &proto::url::CanonicalUrl| json!({"url": url.as_str(), "siteId": new.site, "siteSelect": select});
            let bodies: Vec<Json> = urls.iter().map(body).collect();
            each(connection, Operation::UrlNew, bodies, as_json, |statuses| {
                let count = |status: u64| statuses.iter().filter(|one| one.as_u64() == Some(status)).count();
                format!("{} URLs are kept, {} were known, {} failed", count(0), count(2), count(1))
            })
            .await
        }
        UrlWork::Update(update) => {
            let more = if update.again { json!({"status": 1}) } else { json!({"state": 1}) };
            changed(connection, Operation::UrlUpdate, update.which.orders(&more)?, as_json, "changed").await
        }
        UrlWork::Delete(which) => {
            changed(connection, Operation::UrlDelete, which.orders(&json!({}))?, as_json, "deleted").await
        }
        UrlWork::Cleanup(which) => {
            changed(connection, Operation::UrlCleanup, which.orders(&json!({}))?, as_json, "to be crawled anew").await
        }
        UrlWork::Find(find) => {
            let criterions = json!({"WHERE": find.condition, "ORDER BY": find.order});
            let algorithm = u8::from(find.proportional);
            let body = json!({"sitesList": find.site, "urlsCriterions": criterions, "maxURLs": find.limit, "algorithm": algorithm});
            let answer = ask(connection, Operation::UrlFetch, &body).await?;
            shown(&answer, as_json, |urls| {
                let columns = ["status", "httpCode", "size", "UDate", "url"].map(str::to_owned);
                table(&columns, urls.as_array().map(Vec::as_slice).unwrap_or_default())
            })
        }
        UrlWork::Put(put) => {
            let data = if put.file.as_os_str() == "-" {
                let mut data = Vec::new();
                std::io::Read::read_to_end(&mut std::io::stdin(), &mut data).map(|_| data)
            } else {
                std::fs::read(&put.file)
            };
            let data =
                data.map_err(|error| Complaint::usage(format!("cannot read {}: {error}", put.file.display())))?;
            let data = to_base64(&data);
            let body = json!({"siteId": put.site, "url": put.url, "contentType": put.kind, "putDict": {"data": data}});
            each(connection, Operation::UrlPut, vec![body], as_json, |statuses| {
                let done = statuses.first().and_then(Json::as_u64) == Some(0);
                (if done { "the content is kept" } else { "nothing is changed" }).to_owned()
            })
            .await
        }
        UrlWork::History(named, operation) => {
            let bodies: Vec<Json> = named.urls.iter().map(|url| json!({"siteId": named.site, "url": url})).collect();
            let answer = ask(connection, operation, &Json::from(bodies)).await?;
            shown(&answer, as_json, |urls| {
                let of = |url: &Json| {
                    let name = url["url"].as_str().unwrap_or_default();
                    match (&url["logRows"], &url["freqRows"]) {
                        (Json::Array(rows), _) => {
                            format!(
                                "{name}\n{}",
                                table(&["oDate", "opCode", "round", "httpCode"].map(str::to_owned), rows)
                            )
                        }
                        (_, counts) => format!("{name}\n{counts}"),
                    }
                };
                urls.as_array().into_iter().flatten().map(of).collect::<Vec<String>>().join("\n")
            })
        }
        UrlWork::Upkeep(upkeep, operation) => {
            let mut body = json!({"sitesList": upkeep.site, "maxURLs": upkeep.limit});
            if let Some(condition) = &upkeep.condition {
                body["urlsCriterions"] = json!({"WHERE": condition});
            }
            let answer = ask(connection, operation, &body).await?;
            shown(&answer, as_json, |sites| {
                let line = |site: &Json| match site {
                    Json::Array(two) => format!("{}  {}", two[0].as_str().unwrap_or_default(), two[1]),
                    other => other.to_string(),
                };
                let lines: Vec<String> = sites.as_array().into_iter().flatten().map(line).collect();
                if lines.is_empty() { "nothing was to be done".to_owned() } else { lines.join("\n") }
            })
        }
        UrlWork::Query(text) => {
            let answer = ask(connection, Operation::SqlCustom, &json!({"query": text})).await?;
            shown(&answer, as_json, |object| {
                let head: Vec<String> = object["head"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(Json::as_str)
                    .map(str::to_owned)
                    .collect();
                table(&head, object["rows"].as_array().map(Vec::as_slice).unwrap_or_default())
            })
        }
    }
}

pub(super) async fn ask(connection: &Connection, operation: Operation, body: &Json) -> Result<Json, Complaint> {
    let request = Request::Operation { operation, body: body.to_string(), merge: true };
    dc::ask(connection, &request).await
}

async fn changed(
    connection: &Connection,
    operation: Operation,
    orders: Vec<Json>,
    as_json: bool,
    done: &str,
) -> Result<Exit, Complaint> {
    let by_condition = orders.first().is_some_and(|order| order.get("criterions").is_some());
    each(connection, operation, orders, as_json, |statuses| {
        // By condition the status is how many there were.
        let numbers = statuses.iter().filter_map(Json::as_u64);
        let count = if by_condition { numbers.sum() } else { numbers.filter(|status| *status == 0).count() as u64 };
        format!("{count} URLs are {done}")
    })
    .await
}

/// Asks with many objects, some at a time; says what came of all of them.
pub(super) async fn each(
    connection: &Connection,
    operation: Operation,
    bodies: Vec<Json>,
    as_json: bool,
    told: impl Fn(&[Json]) -> String,
) -> Result<Exit, Complaint> {
    let (mut statuses, mut exit) = (Vec::new(), Exit::Done);
    for some in bodies.chunks(URLS_AT_ONCE) {
        let answer = ask(connection, operation, &Json::from(some.to_vec())).await?;
        let object = &answer["itemsList"][0]["itemObject"];
        if !dc::is_good(&answer) {
            exit = Exit::Failed;
            let message = object["errorMessage"].as_str().unwrap_or_default();
            eprintln!("orbweaver: {}", message.replace(";[", "\norbweaver: ["));
        }
        if as_json {
            written(&answer)?;
        }
        // What failed has a code for its status: that counts nothing.
        let failed = |status: &Json| exit == Exit::Failed && status.as_u64() >= Some(u64::from(code::BAD_REQUEST));
        let more = object["statuses"].as_array().cloned().unwrap_or_default();
        statuses.extend(more.into_iter().map(|status| if failed(&status) { Json::Null } else { status }));
    }
    if !as_json {
        written(&told(&statuses))?;
    }
    Ok(exit)
}

pub(super) fn shown(answer: &Json, as_json: bool, text: impl Fn(&Json) -> String) -> Result<Exit, Complaint> {
    let item = &answer["itemsList"][0];
    let object = &item["itemObject"];
    if as_json {
        written(answer)?;
    } else if let Some(message) = object["errorMessage"].as_str().filter(|_| object["errorCode"] != 0) {
        return Err(Complaint::failed(message));
    } else {
        written(&text(object))?;
        if let Some(warning) = item["errorMessage"].as_str().filter(|text| !text.is_empty()) {
            eprintln!("orbweaver: {warning}");
        }
    }
    Ok(if dc::is_good(answer) { Exit::Done } else { Exit::Failed })
}

/// Rows under their heads; numbers to the right.
pub(super) fn table(head: &[String], rows: &[Json]) -> String {
    let cell = |row: &Json, name: &String| match &row[name.as_str()] {
        Json::Null => String::new(),
        Json::String(text) => text.replace(['\n', '\r', '\t'], " "),
        other => other.to_string(),
    };
    let cells: Vec<Vec<String>> = rows.iter().map(|row| head.iter().map(|name| cell(row, name)).collect()).collect();
    let width = |column: usize| {
        let widths = cells.iter().map(|row| row[column].chars().count());
        widths.chain([head[column].chars().count()]).max().unwrap_or(0).min(100)
    };
    let number = |column: usize| rows.iter().any(|row| row[head[column].as_str()].is_number());
    let line = |row: &[String]| {
        let columns = row.iter().enumerate().map(|(at, text)| {
            let width = width(at);
            if number(at) { format!("{text:>width$}") } else { format!("{text:<width$}") }
        });
        columns.collect::<Vec<String>>().join("  ").trim_end().to_owned()
    };
    let mut lines = vec![line(head)];
    lines.extend(cells.iter().map(|row| line(row)));
    lines.push(format!("{} rows", rows.len()));
    lines.join("\n")
}
