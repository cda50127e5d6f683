//! `orbweaver ctl attribute` and `ctl proxy`: what people keep beside sites and URLs, and through which proxies sites are fetched.

use clap::{Args, Subcommand};
use proto::site::Operation;
use serde_json::{Value as Json, json};

use super::Connection;
use super::urls::{ask, each, shown, table};
use crate::cli::{Complaint, Exit};

const ATTRIBUTE_EXAMPLES: &str = "Examples:
  orbweaver ctl --data /srv/orbweaver attribute set owner ann --site news
  orbweaver ctl --data /srv/orbweaver attribute fetch --site news --where \"name LIKE 'own%'\"
  orbweaver ctl --data /srv/orbweaver attribute delete owner --site news";
const PROXY_EXAMPLES: &str = "Examples:
  orbweaver ctl --data /srv/orbweaver proxy new proxy.example:3128 --site news --priority 10 --faults-max 5
  orbweaver ctl --data /srv/orbweaver proxy update proxy.example:3128 --site news --state 0
  orbweaver ctl --data /srv/orbweaver proxy find --site news";

#[derive(Subcommand)]
pub(super) enum AttributeCommand {
    /// Set an attribute, whether it is there or not
    #[command(after_help = ATTRIBUTE_EXAMPLES)]
    Set(SetArguments),
    /// The same, and the status says whether it is done
    #[command(after_help = ATTRIBUTE_EXAMPLES)]
    Update(SetArguments),
    /// Delete attributes by name, by URL or by a condition
    #[command(after_help = ATTRIBUTE_EXAMPLES)]
    Delete(WhichArguments),
    /// Show attributes by name, by URL or by a condition
    #[command(after_help = ATTRIBUTE_EXAMPLES)]
    Fetch(WhichArguments),
}

/// An attribute and its value.
#[derive(Args)]
pub(super) struct SetArguments {
    /// Its name, at most 32 bytes
    name: String,
    /// Its value
    value: String,
    /// Its site
    #[arg(long, default_value = "0")]
    site: String,
    /// The id of the URL that it is for; without it it is the site's
    #[arg(long, value_name = "MD5", default_value = "")]
    url_md5: String,
}

/// Which attributes.
#[derive(Args)]
pub(super) struct WhichArguments {
    /// Only of this name
    #[arg(default_value = "")]
    name: String,
    /// Their site
    #[arg(long, default_value = "0")]
    site: String,
    /// Only those of the URL with this id
    #[arg(long, value_name = "MD5", default_value = "")]
    url_md5: String,
    /// Only those that meet this condition on name, urlMd5, value and cDate
    #[arg(long = "where", value_name = "CONDITION")]
    condition: Option<String>,
    /// So many of those [default: all, up to 10000]
    #[arg(long, value_name = "N", requires = "condition")]
    limit: Option<usize>,
}

impl WhichArguments {
    fn body(&self) -> Json {
        let mut body = json!({"siteId": self.site, "name": self.name, "urlMd5": self.url_md5});
        if let Some(condition) = &self.condition {
            body["criterions"] = json!({"WHERE": condition, "LIMIT": self.limit});
        }
        body
    }
}

#[derive(Subcommand)]
pub(super) enum ProxyCommand {
    /// Give a site a proxy
    #[command(after_help = PROXY_EXAMPLES)]
    New(ProxyArguments),
    /// Change fields of a proxy
    #[command(after_help = PROXY_EXAMPLES)]
    Update(ProxyArguments),
    /// Take a proxy away
    #[command(after_help = PROXY_EXAMPLES)]
    Delete(OneProxyArguments),
    /// Show one, with how often it has just failed on the node that is asked
    #[command(after_help = PROXY_EXAMPLES)]
    Status(OneProxyArguments),
    /// Show all of a site
    #[command(after_help = PROXY_EXAMPLES)]
    Find {
        /// The site
        #[arg(long)]
        site: String,
        /// Only those that meet this condition on host, priority, state, faults and faultsMax
        #[arg(long = "where", value_name = "CONDITION", default_value = "")]
        condition: String,
    },
}

/// A proxy of a site.
#[derive(Args)]
pub(super) struct OneProxyArguments {
    /// Its host and port, as in proxy.example:3128
    host: String,
    /// The site
    #[arg(long)]
    site: String,
}

/// A proxy and its fields.
#[derive(Args)]
pub(super) struct ProxyArguments {
    #[command(flatten)]
    one: OneProxyArguments,
    /// Higher is tried first
    #[arg(long)]
    priority: Option<u16>,
    /// 0 switches it off, 1 on
    #[arg(long)]
    state: Option<u8>,
    /// Failures in a row after which a node gives it up; 0 never
    #[arg(long)]
    faults_max: Option<u32>,
    /// Only for this host or domain; may be given several times
    #[arg(long)]
    domain: Vec<String>,
}

impl ProxyArguments {
    fn body(&self) -> Json {
        let mut body = json!({
            "siteId": self.one.site, "host": self.one.host,
            "priority": self.priority, "state": self.state, "faultsMax": self.faults_max,
        });
        if !self.domain.is_empty() {
            body["domains"] = json!(self.domain);
        }
        body
    }
}

/// Does what is asked with attributes.
pub(super) async fn attribute(
    connection: &Connection,
    command: &AttributeCommand,
    as_json: bool,
) -> Result<Exit, Complaint> {
    let set =
        |set: &SetArguments| json!({"siteId": set.site, "name": set.name, "urlMd5": set.url_md5, "value": set.value});
    match command {
        AttributeCommand::Set(arguments) => {
            each(connection, Operation::AttributeSet, vec![set(arguments)], as_json, |statuses| {
                match statuses.first().and_then(Json::as_u64) {
                    Some(0) => "the attribute is set".to_owned(),
                    Some(2) => "the attribute was there, and is changed".to_owned(),
                    _ => "nothing is changed".to_owned(),
                }
            })
            .await
        }
        AttributeCommand::Update(arguments) => {
            let told = |statuses: &[Json]| {
                let done = statuses.first().and_then(Json::as_bool) == Some(true);
                (if done { "the attribute is changed" } else { "nothing is changed" }).to_owned()
            };
            each(connection, Operation::AttributeUpdate, vec![set(arguments)], as_json, told).await
        }
        AttributeCommand::Delete(which) => {
            let told = |statuses: &[Json]| {
                let done = statuses.first().and_then(Json::as_bool) == Some(true);
                (if done { "they are deleted" } else { "there were none" }).to_owned()
            };
            each(connection, Operation::AttributeDelete, vec![which.body()], as_json, told).await
        }
        AttributeCommand::Fetch(which) => {
            let answer = ask(connection, Operation::AttributeFetch, &which.body()).await?;
            let columns = ["name", "urlMd5", "value", "cDate"].map(str::to_owned);
            shown(&answer, as_json, |object| table(&columns, object.as_array().map(Vec::as_slice).unwrap_or_default()))
        }
    }
}

/// Does what is asked with proxies.
pub(super) async fn proxy(connection: &Connection, command: &ProxyCommand, as_json: bool) -> Result<Exit, Complaint> {
    let one = |one: &OneProxyArguments| json!({"siteId": one.site, "host": one.host});
    let (operation, body) = match command {
        ProxyCommand::New(arguments) => (Operation::ProxyNew, arguments.body()),
        ProxyCommand::Update(arguments) => (Operation::ProxyUpdate, arguments.body()),
        ProxyCommand::Delete(arguments) => (Operation::ProxyDelete, one(arguments)),
        ProxyCommand::Status(arguments) => (Operation::ProxyStatus, one(arguments)),
        ProxyCommand::Find { site, condition } => {
            (Operation::ProxyFind, json!({"siteId": site, "criterions": {"WHERE": condition, "LIMIT": 64}}))
        }
    };
    if matches!(operation, Operation::ProxyStatus | Operation::ProxyFind) {
        let answer = ask(connection, operation, &body).await?;
        let columns = ["host", "priority", "state", "faults", "faultsMax", "domains"].map(str::to_owned);
        return shown(&answer, as_json, |object| {
            table(&columns, object.as_array().map(Vec::as_slice).unwrap_or_default())
        });
    }
    each(connection, operation, vec![body], as_json, |statuses| {
        let done = statuses.first().and_then(Json::as_u64) == Some(0);
        (if done { "done" } else { "nothing is changed" }).to_owned()
    })
    .await
}
