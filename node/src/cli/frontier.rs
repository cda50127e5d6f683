//! `orbweaver frontier`: a client of the URL Frontier API, for our nodes and for every other server of it.

mod files;
mod json;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status};

use super::progress::say;
use super::{Complaint, Exit};
use crate::doors::frontier::api::url_frontier_client::UrlFrontierClient;
use crate::doors::frontier::api::{self, get_params};

const EXAMPLES: &str = "Examples:
  orbweaver frontier put --file urls.txt.gz --crawl news     one URL or one JSON item on a line
  orbweaver frontier get --queues 100 --urls 10 --lease 60   what is due, each URL leased for a minute
  orbweaver frontier stats --crawl news
  orbweaver frontier dump --file backup.jsonl.gz && orbweaver frontier --server https://other:7071 restore --file backup.jsonl.gz
  orbweaver frontier block example.com --until 1800000000

Exit codes: 0 done, 1 the server refused or could not be reached, or not everything was taken, 2 wrong usage";

/// Messages that we take: a page of URLs of another server may be long.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Arguments of `frontier`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct FrontierArguments {
    /// The server; with https:// it must have a certificate
    #[arg(
        long,
        global = true,
        value_name = "URL",
        default_value = "http://127.0.0.1:7071",
        env = "ORBWEAVER_FRONTIER"
    )]
    server: String,
    /// File with the token that the server wants
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// File with the certificate that signed the server's, PEM
    #[arg(long, global = true, value_name = "FILE")]
    authority: Option<PathBuf>,
    /// File with this client's certificate, for a server that wants one, PEM
    #[arg(long, global = true, value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// File with the key of that certificate, PEM
    #[arg(long, global = true, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Print JSON, one value on a line
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: FrontierCommand,
}

/// A queue of a crawl.
#[derive(Args)]
struct OneQueue {
    /// Key of the queue, which is the host unless somebody chose another
    key: String,
    /// Its crawl
    #[arg(long, default_value = "")]
    crawl: String,
    /// Only if the server itself acts for it
    #[arg(long)]
    local: bool,
}

/// URLs of a crawl.
#[derive(Args)]
struct SomeUrls {
    /// Of this crawl
    #[arg(long, default_value = "")]
    crawl: String,
    /// Only of this queue
    #[arg(long, default_value = "")]
    key: String,
    /// Only those with this in their URL
    #[arg(long)]
    filter: Option<String>,
    /// Upper and lower case are the same to the filter
    #[arg(long)]
    ignore_case: bool,
    /// Only what the server itself acts for
    #[arg(long)]
    local: bool,
}

#[derive(Subcommand)]
enum FrontierCommand {
    /// Hand URLs in: one on a line, or one item as JSON
    Put(files::PutArguments),
    /// Take URLs that are due
    Get {
        /// Of this crawl; of any if it is not given
        #[arg(long)]
        crawl: Option<String>,
        /// Of this queue
        #[arg(long, default_value = "", requires = "crawl")]
        key: String,
        /// Queues at most, 0 for no limit
        #[arg(long, default_value_t = 1)]
        queues: u32,
        /// URLs of a queue at most, 0 for no limit
        #[arg(long, default_value_t = 1)]
        urls: u32,
        /// Seconds for which nobody else gets them, 0 for the server's default
        #[arg(long, default_value_t = 0)]
        lease: u32,
    },
    /// Counts of a crawl or a queue
    Stats {
        /// The crawl
        #[arg(long, default_value = "")]
        crawl: String,
        /// Only this queue
        #[arg(long, default_value = "")]
        key: String,
        /// Only what the server itself acts for
        #[arg(long)]
        local: bool,
    },
    /// Names of crawls
    Crawls {
        /// Only what the server itself acts for
        #[arg(long)]
        local: bool,
    },
    /// Names of nodes
    Nodes,
    /// Keys of queues
    Queues {
        /// Of this crawl
        #[arg(long, default_value = "")]
        crawl: String,
        /// How many to leave out
        #[arg(long, default_value_t = 0)]
        start: u32,
        /// How many
        #[arg(long, default_value_t = 100)]
        size: u32,
        /// Blocked ones and those without scheduled URLs too
        #[arg(long)]
        inactive: bool,
        /// Write all of them to this file, page by page; .gz will do; - for what is piped on
        #[arg(long, value_name = "FILE", conflicts_with_all = ["start", "size"])]
        file: Option<PathBuf>,
        /// Only what the server itself acts for
        #[arg(long)]
        local: bool,
    },
    /// URLs with their dates
    List {
        #[command(flatten)]
        urls: SomeUrls,
        /// How many to leave out
        #[arg(long, default_value_t = 0)]
        start: u32,
        /// How many
        #[arg(long, default_value_t = 100)]
        size: u32,
        /// Write them to this file; .gz will do; - for what is piped on
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// Show times as dates, in UTC
        #[arg(long)]
        dates: bool,
    },
    /// How many URLs there are
    Count(#[command(flatten)] SomeUrls),
    /// What is known of a URL
    Status {
        /// The URL
        url: String,
        /// Key of its queue; its host if it is not given
        #[arg(long, default_value = "")]
        key: String,
        /// Its crawl
        #[arg(long, default_value = "")]
        crawl: String,
        /// Show its time as a date, in UTC
        #[arg(long)]
        dates: bool,
    },
    /// Write all URLs, or those of a crawl, as JSON lines
    Dump(files::DumpArguments),
    /// Hand in what `dump` wrote
    Restore(files::PutArguments),
    /// Serve nothing of a queue until a time
    Block {
        #[command(flatten)]
        queue: OneQueue,
        /// Unix seconds; 0 to serve it again
        #[arg(long)]
        until: u64,
    },
    /// Set the least time between two answers from a queue, or from all that have none of their own
    Delay {
        /// Key of the queue; all queues if it is not given
        #[arg(default_value = "")]
        key: String,
        /// Seconds
        #[arg(long)]
        seconds: u32,
        /// Its crawl
        #[arg(long, default_value = "")]
        crawl: String,
        /// Only if the server itself acts for it
        #[arg(long)]
        local: bool,
    },
    /// Set the number of completed URLs after which nothing more of a queue is served
    Limit {
        #[command(flatten)]
        queue: OneQueue,
        /// URLs; 0 for no limit
        #[arg(long)]
        urls: u32,
    },
    /// Say whether URLs are handed out, or change it
    Active {
        /// true or false; not given, it is only asked
        state: Option<bool>,
        /// Only the server itself
        #[arg(long)]
        local: bool,
    },
    /// Forget a queue
    DeleteQueue(#[command(flatten)] OneQueue),
    /// Forget a crawl
    DeleteCrawl {
        /// The crawl
        crawl: String,
        /// Only what the server itself acts for
        #[arg(long)]
        local: bool,
    },
    /// Forget URLs that have been known for longer than so many days
    Purge {
        /// Days
        #[arg(long)]
        days: u32,
        /// Of this crawl
        #[arg(long, default_value = "")]
        crawl: String,
        /// Only of this queue
        #[arg(long, default_value = "")]
        key: String,
    },
    /// Change what the server logs
    LogLevel {
        /// Part of the program
        package: String,
        /// How much of it
        #[arg(value_parser = ["trace", "debug", "info", "warn", "error"])]
        level: String,
        /// Only the server itself
        #[arg(long)]
        local: bool,
    },
}

/// A client with a token, if there is one.
type Client = UrlFrontierClient<InterceptedService<Channel, Bearer>>;

/// Brings the token.
#[derive(Clone)]
struct Bearer(Option<tonic::metadata::MetadataValue<tonic::metadata::Ascii>>);

impl tonic::service::Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert("authorization", token.clone());
        }
        Ok(request)
    }
}

/// Runs a client.
pub(super) fn run(arguments: FrontierArguments) -> Result<Exit, Complaint> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Complaint::failed(format!("cannot start threads: {error}")))?;
    runtime.block_on(call(arguments))
}

async fn connect(arguments: &FrontierArguments) -> Result<Client, Complaint> {
    let read = |path: &PathBuf| {
        std::fs::read_to_string(path)
            .map_err(|error| Complaint::usage(format!("cannot read {}: {error}", path.display())))
    };
    let server = &arguments.server;
    let wrong = |error: &dyn std::fmt::Display| {
        Complaint::usage(format!("--server {server}: {error}; as in http://127.0.0.1:7071"))
    };
    let with_scheme = if server.contains("://") { server.clone() } else { format!("http://{server}") };
    let mut endpoint = Endpoint::from_shared(with_scheme.clone()).map_err(|error| wrong(&error))?;
    if with_scheme.starts_with("https") {
        let mut tls = ClientTlsConfig::new();
        if let Some(path) = &arguments.authority {
            tls = tls.ca_certificate(Certificate::from_pem(read(path)?));
        }
        match (&arguments.certificate, &arguments.key_file) {
            (Some(certificate), Some(key)) => tls = tls.identity(Identity::from_pem(read(certificate)?, read(key)?)),
            (None, None) => {}
            _ => return Err(Complaint::usage("--certificate and --key-file belong together; name both or none")),
        }
        endpoint = endpoint.tls_config(tls).map_err(|error| wrong(&error))?;
    } else if arguments.certificate.is_some() || arguments.key_file.is_some() || arguments.authority.is_some() {
        return Err(Complaint::usage("--certificate, --key-file and --authority need a --server with https://"));
    }
    let token = arguments.token_file.as_ref().map(read).transpose()?;
    let token = token.map(|token| format!("Bearer {}", token.trim()).parse()).transpose();
    let token = token.map_err(|_| Complaint::usage("--token-file: the token has bytes that cannot be sent"))?;
    let endpoint = endpoint.initial_stream_window_size(1 << 20).initial_connection_window_size(4 << 20);
    let channel = endpoint.connect().await;
    let channel = channel.map_err(|error| Complaint::failed(format!("cannot reach {server}: {}", cause(&error))))?;
    Ok(UrlFrontierClient::with_interceptor(channel, Bearer(token)).max_decoding_message_size(MESSAGE_BYTES_MAX))
}

/// The last of what led to an error: what people can do something about.
fn cause(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(next) = last.source() {
        last = next;
    }
    last.to_string()
}

fn refused(status: Status) -> Complaint {
    Complaint::failed(format!("the server says {:?}: {}", status.code(), status.message()))
}

fn written(error: std::io::Error) -> Complaint {
    Complaint::failed(format!("cannot write: {error}"))
}

async fn call(arguments: FrontierArguments) -> Result<Exit, Complaint> {
    let mut client = connect(&arguments).await?;
    let as_json = arguments.json;
    let show = |text: String, value: Value| if as_json { say(&value) } else { say(&text) }.map_err(written);
    let list = |values: Vec<String>| -> Result<(), Complaint> {
        for value in values {
            if as_json { say(&json!(value)) } else { say(&value) }.map_err(written)?;
        }
        Ok(())
    };
    let number = |what: &str, value: u64| show(format!("{value} {what}"), json!({ "urls": value }));
    let done = || show("done".to_owned(), json!({ "done": true }));
    match arguments.command {
        FrontierCommand::Put(put) | FrontierCommand::Restore(put) => return files::put(client, put, as_json).await,
        FrontierCommand::Dump(dump) => return files::dump(client, dump, as_json).await,
        FrontierCommand::Get { crawl, key, queues, urls, lease } => {
            let item = crawl.map(get_params::Item::CrawlId);
            let params =
                api::GetParams { max_urls_per_queue: urls, max_queues: queues, key, delay_requestable: lease, item };
            let mut stream = client.get_ur_ls(params).await.map_err(refused)?.into_inner();
            while let Some(info) = stream.message().await.map_err(refused)? {
                show(info.url.clone(), json::info(&info))?;
            }
        }
        FrontierCommand::Stats { crawl, key, local } => {
            let params = api::QueueWithinCrawlParams { key, crawl_id: crawl, local };
            let stats = client.get_stats(params).await.map_err(refused)?.into_inner();
            let mut lines = vec![
                ("crawl".to_owned(), stats.crawl_id.clone()),
                ("queues".to_owned(), stats.number_of_queues.to_string()),
                ("scheduled".to_owned(), stats.size.to_string()),
                ("in process".to_owned(), stats.in_process.to_string()),
            ];
            lines.extend(stats.counts.iter().map(|(name, count)| (name.replace('_', " "), count.to_string())));
            let text: Vec<String> = lines.iter().map(|(name, value)| format!("{name:<14}{value:>14}")).collect();
            let value = json!({ "crawlID": stats.crawl_id, "size": stats.size, "inProcess": stats.in_process,
                "numberOfQueues": stats.number_of_queues, "counts": stats.counts });
            show(text.join("\n"), value)?;
        }
        FrontierCommand::Crawls { local } => {
            list(client.list_crawls(api::Local { local }).await.map_err(refused)?.into_inner().values)?;
        }
        FrontierCommand::Nodes => list(client.list_nodes(api::Empty {}).await.map_err(refused)?.into_inner().values)?,
        FrontierCommand::Queues { crawl, inactive, local, file: Some(file), .. } => {
            let mut out = files::Out::create(&file)?;
            let keys = files::keys(&mut client, &crawl, inactive, local).await?;
            for key in &keys {
                if as_json { out.line(&json!(key)) } else { out.line(key) }?;
            }
            return out.end_with(keys.len() as u64, "queues", as_json);
        }
        FrontierCommand::Queues { crawl, start, size, inactive, local, file: None } => {
            let params = api::Pagination { start, size, include_inactive: inactive, crawl_id: crawl, local };
            list(client.list_queues(params).await.map_err(refused)?.into_inner().values)?;
        }
        FrontierCommand::List { urls, start, size, file, dates } => {
            let SomeUrls { crawl, key, filter, ignore_case, local } = urls;
            let params =
                api::ListUrlParams { start, size, key, crawl_id: crawl, local, filter, ignore_case: Some(ignore_case) };
            let mut out = file.map(|file| files::Out::create(&file)).transpose()?;
            let (mut stream, mut count) = (client.list_ur_ls(params).await.map_err(refused)?.into_inner(), 0);
            while let Some(item) = stream.message().await.map_err(refused)? {
                match &mut out {
                    Some(out) if as_json => out.line(&json::item(&item))?,
                    Some(out) => out.line(&json::line(&item, dates))?,
                    None => show(json::line(&item, dates), json::item(&item))?,
                }
                count += 1;
            }
            if let Some(out) = out {
                return out.end_with(count, "URLs", as_json);
            }
        }
        FrontierCommand::Count(SomeUrls { crawl, key, filter, ignore_case, local }) => {
            let params = api::CountUrlParams {
                key,
                crawl_id: crawl,
                filter,
                ignore_case: Some(ignore_case),
                local: Some(local),
            };
            number("URLs", client.count_ur_ls(params).await.map_err(refused)?.into_inner().value)?;
        }
        FrontierCommand::Status { url, key, crawl, dates } => {
            let params = api::UrlStatusRequest { url, key, crawl_id: crawl };
            let item = client.get_url_status(params).await.map_err(refused)?.into_inner();
            show(json::line(&item, dates), json::item(&item))?;
        }
        FrontierCommand::Block { queue: OneQueue { key, crawl, local }, until } => {
            client
                .block_queue_until(api::BlockQueueParams { key, time: until, crawl_id: crawl, local })
                .await
                .map_err(refused)?;
            done()?;
        }
        FrontierCommand::Delay { key, seconds, crawl, local } => {
            let params = api::QueueDelayParams { key, delay_requestable: seconds, crawl_id: crawl, local };
            client.set_delay(params).await.map_err(refused)?;
            done()?;
        }
        FrontierCommand::Limit { queue: OneQueue { key, crawl, local }, urls } => {
            client
                .set_crawl_limit(api::CrawlLimitParams { key, limit: urls, crawl_id: crawl, local })
                .await
                .map_err(refused)?;
            done()?;
        }
        FrontierCommand::Active { state: Some(state), local } => {
            client.set_active(api::Active { state, local }).await.map_err(refused)?;
            done()?;
        }
        FrontierCommand::Active { state: None, local } => {
            let state = client.get_active(api::Local { local }).await.map_err(refused)?.into_inner().state;
            show(if state { "active" } else { "paused" }.to_owned(), json!({ "active": state }))?;
        }
        FrontierCommand::DeleteQueue(OneQueue { key, crawl, local }) => {
            let params = api::QueueWithinCrawlParams { key, crawl_id: crawl, local };
            number("URLs are forgotten", client.delete_queue(params).await.map_err(refused)?.into_inner().value)?;
        }
        FrontierCommand::DeleteCrawl { crawl, local } => {
            let params = api::DeleteCrawlMessage { value: crawl, local };
            number("URLs are forgotten", client.delete_crawl(params).await.map_err(refused)?.into_inner().value)?;
        }
        FrontierCommand::Purge { days, crawl, key } => {
            let params = api::PurgeUrlParams { key, crawl_id: crawl, days };
            number("URLs are forgotten", client.purge_ur_ls(params).await.map_err(refused)?.into_inner().value)?;
        }
        FrontierCommand::LogLevel { package, level, local } => {
            let level = api::log_level_params::Level::from_str_name(&level.to_uppercase()).unwrap_or_default().into();
            client.set_log_level(api::LogLevelParams { package, level, local }).await.map_err(refused)?;
            done()?;
        }
    }
    Ok(Exit::Done)
}
