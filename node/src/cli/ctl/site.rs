//! `orbweaver ctl site`: sites of a cluster, made, changed, looked at, emptied and deleted.

use clap::{Args, Subcommand, ValueEnum};
use proto::control::Request;
use proto::site::{Operation, state};
use serde_json::{Map, Value as Json, json};

use super::Connection;
use crate::cli::progress::say;
use crate::cli::units::{show_count, show_size};
use crate::cli::{Complaint, Exit, dc};

const NEW_EXAMPLES: &str = "Examples:
  orbweaver ctl --data /srv/orbweaver site new https://example.com/ --id news --set maxResources=1000
  orbweaver ctl --data /srv/orbweaver site new https://example.com/ --include '^https://example\\.com/docs/' --exclude '\\.zip$'

Without --include a site takes the hosts of its root URLs. Without --id its id is the MD5 of its first root URL.
All fields and what they do are listed in docs/sites.md.";
const UPDATE_EXAMPLES: &str = "Examples:
  orbweaver ctl --data /srv/orbweaver site update news --set state=3           suspend it
  orbweaver ctl --data /srv/orbweaver site update news --set state=1           go on
  orbweaver ctl --data /srv/orbweaver site update news --restart               begin again with the root URLs, and without errors
  orbweaver ctl --data /srv/orbweaver site update news --url https://example.org/ --property MODES_FLAG=1
  orbweaver ctl --data /srv/orbweaver site update news --lists update --property MODES_FLAG=9     only if it has that property";
const FIND_EXAMPLES: &str = "Examples:
  orbweaver ctl --data /srv/orbweaver site find
  orbweaver ctl --data /srv/orbweaver site find https://example. --where 'errors > 10 AND state = 1' --order 'errors DESC' --limit 50";
const DELETE_EXAMPLES: &str = "Example:
  orbweaver ctl --data /srv/orbweaver site delete news

Nothing of it is fetched any more when this returns. What was archived stays in the WARC files.";
const CLEANUP_EXAMPLES: &str = "Examples:
  orbweaver ctl --data /srv/orbweaver site cleanup news                  forget all its URLs, and begin again with the root URLs
  orbweaver ctl --data /srv/orbweaver site cleanup news --without-roots  forget all its URLs, and wait for new ones";

#[derive(Subcommand)]
pub(super) enum SiteCommand {
    /// Make a site and begin to crawl it; returns when enough nodes have it
    #[command(after_help = NEW_EXAMPLES)]
    New {
        /// Root URLs
        urls: Vec<String>,
        /// Its id
        #[arg(long)]
        id: Option<String>,
        #[command(flatten)]
        fields: Fields,
    },
    /// Change fields of a site, or add to its lists
    #[command(after_help = UPDATE_EXAMPLES)]
    Update {
        /// Its id
        id: String,
        /// A root URL; may be given several times
        #[arg(long, value_name = "URL")]
        url: Vec<String>,
        /// What becomes of the lists that are given
        #[arg(long, value_enum, default_value_t = Lists::Append)]
        lists: Lists,
        /// As --lists overwrite
        #[arg(long, conflicts_with = "lists")]
        overwrite: bool,
        /// Begin again: the root URLs are crawled anew, the site is active, and the errors that it had count no more
        #[arg(long)]
        restart: bool,
        #[command(flatten)]
        fields: Fields,
    },
    /// Show sites and what they have come to
    Status {
        /// Their ids
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Look for sites
    #[command(after_help = FIND_EXAMPLES)]
    Find {
        /// Only sites of which a root URL begins with this
        #[arg(default_value = "")]
        url: String,
        /// Only sites that meet this condition
        #[arg(long = "where", value_name = "CONDITION", default_value = "")]
        condition: String,
        /// In this order [default: newest first]
        #[arg(long, value_name = "FIELDS", default_value = "")]
        order: String,
        /// So many
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: u32,
    },
    /// Delete sites
    #[command(after_help = DELETE_EXAMPLES)]
    Delete {
        /// Their ids
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Forget the URLs of a site
    #[command(after_help = CLEANUP_EXAMPLES)]
    Cleanup {
        /// Its id
        id: String,
        /// Forget the root URLs too
        #[arg(long)]
        without_roots: bool,
    },
}

/// What becomes of lists: root URLs, filters and properties. In the order of the numbers of `updateType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Lists {
    /// What is given is added; what is there already is changed
    Append,
    /// What is given takes the place of all that is there
    Overwrite,
    /// What is there already is changed; what is not is left out
    Update,
}

/// Fields of a site.
#[derive(Args)]
pub(super) struct Fields {
    /// A field by its name in JSON, as in maxResources=100; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_pair)]
    set: Vec<(String, String)>,
    /// Take links that match this regular expression
    #[arg(long, value_name = "REGEX")]
    include: Vec<String>,
    /// Do not take links that match this regular expression
    #[arg(long, value_name = "REGEX")]
    exclude: Vec<String>,
    /// A property
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_pair)]
    property: Vec<(String, String)>,
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("NAME=VALUE is expected")?;
    Ok((name.trim().to_owned(), value.to_owned()))
}

impl Fields {
    fn json(&self, urls: &[String]) -> Map<String, Json> {
        let mut fields = Map::new();
        for (name, value) in &self.set {
            // What is no JSON is a text.
            let value = serde_json::from_str(value).unwrap_or_else(|_| Json::from(value.as_str()));
            fields.insert(name.clone(), value);
        }
        let mut list = |name: &str, items: Vec<Json>| {
            if !items.is_empty() {
                fields.insert(name.to_owned(), Json::Array(items));
            }
        };
        list("urls", urls.iter().map(|url| json!(url)).collect());
        let filter = |pattern: &String, kind: u8| json!({"pattern": pattern, "type": kind});
        let include = self.include.iter().map(|pattern| filter(pattern, 1));
        list("filters", include.chain(self.exclude.iter().map(|pattern| filter(pattern, 0))).collect());
        list("properties", self.property.iter().map(|(name, value)| json!({"name": name, "value": value})).collect());
        fields
    }
}

fn request(command: &SiteCommand) -> (Operation, Json) {
    match command {
        SiteCommand::New { urls, id, fields } => {
            let mut site = fields.json(urls);
            site.extend(id.iter().map(|id| ("id".to_owned(), json!(id))));
            (Operation::SiteNew, Json::Object(site))
        }
        SiteCommand::Update { id, url, lists, overwrite, restart, fields } => {
            let mut site = fields.json(url);
            site.insert("id".to_owned(), json!(id));
            let lists = if *overwrite { Lists::Overwrite } else { *lists };
            site.insert("updateType".to_owned(), json!(lists as u8));
            if *restart {
                site.insert("state".to_owned(), json!(state::RESTART));
            }
            (Operation::SiteUpdate, Json::Object(site))
        }
        SiteCommand::Status { ids } => (Operation::SiteStatus, ids.iter().map(|id| json!({"id": id})).collect()),
        SiteCommand::Find { url, condition, order, limit } => {
            let criterions = json!({"WHERE": condition, "ORDER BY": order, "LIMIT": limit});
            (Operation::SiteFind, json!({"url": url, "criterions": criterions}))
        }
        SiteCommand::Delete { ids } => (Operation::SiteDelete, ids.iter().map(|id| json!({"id": id})).collect()),
        SiteCommand::Cleanup { id, without_roots } => {
            let roots = u8::from(!without_roots);
            (Operation::SiteCleanup, json!({"id": id, "saveRootUrls": roots, "moveURLs": roots}))
        }
    }
}

/// Runs a command.
pub(super) async fn site(connection: &Connection, command: &SiteCommand, as_json: bool) -> Result<Exit, Complaint> {
    let (operation, body) = request(command);
    let request = Request::Operation { operation, body: body.to_string(), merge: true };
    let answer = dc::ask(connection, &request).await?;
    let exit = if dc::is_good(&answer) { Exit::Done } else { Exit::Failed };
    let item = &answer["itemsList"][0];
    let object = &item["itemObject"];
    if as_json {
        return written(&answer).map(|()| exit);
    }
    if let Some(message) = object["errorMessage"].as_str().filter(|_| object["errorCode"] != 0) {
        return Err(Complaint::failed(message.replace(";[", "\n[")));
    }
    match command {
        SiteCommand::New { .. } => {
            written(&format_args!("site {} is kept", object["statuses"][0].as_str().unwrap_or_default()))?;
        }
        SiteCommand::Update { id, .. } => written(&format_args!("site {id} is changed"))?,
        SiteCommand::Delete { ids } => written(&format_args!("{} sites are deleted", ids.len()))?,
        SiteCommand::Cleanup { id, .. } => written(&format_args!("site {id} is empty"))?,
        SiteCommand::Status { .. } | SiteCommand::Find { .. } => {
            let sites = object.as_array().map(Vec::as_slice).unwrap_or_default();
            written(&table(sites))?;
            if sites.iter().any(|site| site["state"] == state::NOT_FOUND) {
                return Ok(Exit::Failed);
            }
        }
    }
    if let Some(warning) = item["errorMessage"].as_str().filter(|text| !text.is_empty()) {
        eprintln!("orbweaver: {warning}");
    }
    Ok(exit)
}

pub(super) fn written(text: &impl std::fmt::Display) -> Result<(), Complaint> {
    say(text).map_err(|error| Complaint::failed(format!("cannot write: {error}")))
}

fn table(sites: &[Json]) -> String {
    if sites.is_empty() {
        return "no site is like that; make one with `orbweaver ctl site new URL`".to_owned();
    }
    let mut lines = vec![format!(
        "{:<32}  {:<9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {}",
        "site", "state", "contents", "new", "errors", "URLs", "size", "root URL"
    )];
    for site in sites {
        let number = |name: &str| site[name].as_u64().unwrap_or(0);
        let state = match number("state") as u8 {
            state::ACTIVE => "active",
            state::DISABLED => "disabled",
            state::SUSPENDED => "suspended",
            state::NOT_FOUND => "not found",
            _ => "?",
        };
        lines.push(format!(
            "{:<32}  {state:<9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {}",
            site["id"].as_str().unwrap_or_default(),
            show_count(number("contents")),
            show_count(number("newURLs")),
            show_count(number("errors")),
            show_count(number("collectedURLs")),
            show_size(number("size")),
            site["urls"][0]["url"].as_str().unwrap_or_default(),
        ));
    }
    lines.join("\n")
}
