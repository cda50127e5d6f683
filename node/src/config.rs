//! `cluster.toml` to [`Config`]: read once, checked once, shared.

pub mod cluster;
pub mod frontier;
mod line;
pub mod score;
pub mod sources;
pub mod spiders;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use proto::crawl::filter::FilterRules;
use proto::crawl::politeness::PaceRules;
use proto::crawl::retry::RetryRules;
use proto::key::{DEFAULT_CRAWL, crawl_name_is_valid};
use proto::url::UrlRules;
use serde::{Deserialize, Serialize};

use self::cluster::ClusterConfig;
use self::frontier::FrontierConfig;
use self::score::ScoreConfig;
use self::sources::SourcesConfig;
use self::spiders::SpidersConfig;
use crate::edges::http::FetchLimits;
use crate::extract::ExtractLimits;

/// Where a site's operator finds out who we are, unless the user names a page of their own.
const CONTACT: &str = "+https://orbweaver.example/bot";

/// A setting that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}: {reason}")]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The file is no TOML of ours.
    #[error("{path}: {reason}")]
    Invalid {
        /// Which.
        path: PathBuf,
        /// What is wrong, with line and column.
        reason: String,
    },
    /// A value is out of range.
    #[error("{setting}: {reason}")]
    Value {
        /// Its name, as in the file.
        setting: String,
        /// What is wrong and what to do.
        reason: String,
    },
}

/// Everything a node can be told. Section by section as in `cluster.toml`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// What is crawled.
    pub crawl: CrawlConfig,
    /// Which URLs belong to a crawl.
    pub filter: FilterRules,
    /// The canonical form of URLs.
    pub url: UrlRules,
    /// How hosts are paced.
    pub politeness: PaceRules,
    /// How often what is tried.
    pub retry: RetryRules,
    /// How pages are fetched.
    pub fetch: FetchConfig,
    /// How pages are read.
    pub parse: ParseConfig,
    /// Where and how things are kept.
    pub storage: StorageConfig,
    /// What pages are worth.
    pub score: ScoreConfig,
    /// Scripts that make URIs.
    pub sources: SourcesConfig,
    /// The HTTP door.
    pub http: HttpConfig,
    /// Which pages spiders are told to fetch.
    pub spiders: SpidersConfig,
    /// The gRPC door of a node in a cluster.
    pub url_frontier: FrontierConfig,
    /// The other nodes; absent for a node alone.
    pub cluster: Option<ClusterConfig>,
}

/// What is crawled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CrawlConfig {
    /// Name of the crawl.
    pub name: String,
    /// Pages after which the crawl ends; absent for no limit.
    pub pages_max: Option<u64>,
    /// Bytes of content after which the crawl ends.
    pub bytes_max: Option<u64>,
    /// Seconds after which a run ends.
    pub time_max_s: Option<u64>,
    /// Seconds from one round of a page to the next; absent for one round.
    pub recrawl_period_s: Option<u64>,
    /// Whether robots.txt is obeyed.
    pub obey_robots: bool,
    /// How long a robots.txt is believed, in seconds.
    pub robots_ttl_s: u64,
    /// Whether sitemaps named by robots.txt are read.
    pub read_sitemaps: bool,
    /// Whether `<meta name=robots>` is honoured.
    pub meta_robots: bool,
    /// Whether `X-Robots-Tag` is honoured.
    pub x_robots_tag: bool,
    /// Whether `rel=nofollow` is honoured.
    pub rel_nofollow: bool,
    /// Whether images, scripts and other parts of pages are fetched.
    pub page_parts: bool,
    /// URLs of one host that are admitted; more is taken for a trap.
    pub host_urls_max: u64,
    /// Queries of one path that are admitted; more is taken for a trap.
    pub path_queries_max: u32,
    /// Redirects in a row.
    pub redirects_max: u8,
    /// Links beyond the rules of a run that are kept for a run with wider ones.
    pub links_aside_max: u64,
}

impl Default for CrawlConfig {
    fn default() -> Self {
        CrawlConfig {
            name: DEFAULT_CRAWL.to_owned(),
            pages_max: None,
            bytes_max: None,
            time_max_s: None,
            recrawl_period_s: None,
            obey_robots: true,
            robots_ttl_s: 86_400,
            read_sitemaps: true,
            meta_robots: true,
            x_robots_tag: true,
            rel_nofollow: true,
            page_parts: true,
            host_urls_max: 1_000_000,
            path_queries_max: 1_000,
            redirects_max: 10,
            links_aside_max: 1_000_000,
        }
    }
}

/// How pages are fetched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FetchConfig {
    /// URLs handed out and not yet settled on disk.
    pub concurrency: usize,
    /// Who we are; the first word before a slash is our name in robots.txt.
    pub user_agent: String,
    /// Further request headers.
    pub headers: BTreeMap<String, String>,
    /// Networks that are not public and may be fetched from all the same.
    pub allow_addresses: Vec<IpNet>,
    /// Names with a fixed address, looked up before DNS.
    pub hosts: BTreeMap<String, IpAddr>,
    /// Name servers; the system's if there are none.
    pub dns_servers: Vec<SocketAddr>,
    /// Whether HTTP/2 is spoken.
    pub http2: bool,
    /// Whether the delay is also kept per address.
    pub pace_addresses: bool,
    /// A fetch that nobody settled this long after its time-out is lost, in seconds.
    pub settle_timeout_s: u64,
    /// Bounds on one fetch.
    pub limits: FetchLimits,
}

impl Default for FetchConfig {
    fn default() -> Self {
        FetchConfig {
            concurrency: 128,
            user_agent: format!("orbweaver/{} ({CONTACT})", env!("CARGO_PKG_VERSION")),
            headers: BTreeMap::new(),
            allow_addresses: Vec::new(),
            hosts: BTreeMap::new(),
            dns_servers: Vec::new(),
            http2: true,
            pace_addresses: true,
            settle_timeout_s: 60,
            limits: FetchLimits::default(),
        }
    }
}

/// How pages are read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ParseConfig {
    /// Parsers, each with a thread of its own, the last one for large pages; 0 for half the cores, one more, and that one.
    pub parsers: usize,
    /// How much of a page is kept.
    pub limits: ExtractLimits,
}

/// Where and how things are kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StorageConfig {
    /// The data folder.
    pub data: PathBuf,
    /// Queues in memory at once.
    pub queues_max: usize,
    /// Entries of a queue in memory.
    pub queue_window: usize,
    /// Memory for the rules of robots.txt files, in bytes.
    pub robots_bytes_max: usize,
    /// Memory for reads of the database, in bytes.
    pub cache_bytes: usize,
    /// Memory for writes of the database, in bytes.
    pub write_buffer_bytes: usize,
    /// Size at which a WARC file is closed and the next begun, in bytes.
    pub warc_bytes_max: u64,
    /// Whether content that another URL gave before is only referred to.
    pub dedupe_content: bool,
    /// Milliseconds to wait before each commit: a slow disk, for tests.
    pub commit_pause_ms: u64,
}

impl Default for StorageConfig {
    fn default() -> Self {
        StorageConfig {
            data: PathBuf::from("orbweaver-data"),
            queues_max: 50_000,
            queue_window: 32,
            robots_bytes_max: 64 << 20,
            cache_bytes: 64 << 20,
            write_buffer_bytes: 96 << 20,
            warc_bytes_max: 1_000_000_000,
            dedupe_content: true,
            commit_pause_ms: 0,
        }
    }
}

/// The HTTP door.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpConfig {
    /// Where `/metrics`, `/healthz`, the page for sources and the door for spiders are served; absent for nowhere.
    pub listen: Option<SocketAddr>,
    /// Certificates of this node, PEM; with them the door speaks HTTPS only.
    pub tls_certificate: Option<PathBuf>,
    /// Their key, PEM.
    pub tls_key: Option<PathBuf>,
    /// A file with lines `name:password` of those who may come as spiders.
    pub users_file: Option<PathBuf>,
}

impl HttpConfig {
    /// Makes paths relative to the folder of the settings.
    fn below(&mut self, folder: &Path) {
        for path in [&mut self.tls_certificate, &mut self.tls_key, &mut self.users_file].into_iter().flatten() {
            *path = folder.join(&*path);
        }
    }
}

impl Config {
    /// Reads and checks a file.
    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::Unreadable { path: path.to_owned(), reason: error.to_string() })?;
        let invalid = |reason: String| ConfigError::Invalid { path: path.to_owned(), reason };
        let mut config: Config =
            toml::from_str(&text).map_err(|error| invalid(error.to_string().trim_end().to_owned()))?;
        config.validate().map_err(|error| match &error {
            ConfigError::Value { setting, .. } => match line::line_of(&text, setting) {
                Some(line) => invalid(format!("line {line}: {error}")),
                None => invalid(error.to_string()),
            },
            _ => error,
        })?;
        if let Some(folder) = path.parent() {
            config.url_frontier.below(folder);
            config.http.below(folder);
        }
        if let (Some(cluster), Some(folder)) = (&mut config.cluster, path.parent()) {
            // Keys lie beside the file that names them, wherever the program is started.
            cluster.identity = folder.join(&cluster.identity);
            cluster.swarm_key = folder.join(&cluster.swarm_key);
        }
        Ok(config)
    }

    /// Checks what types cannot say.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let value = |setting: &str, reason: &str| {
            Err(ConfigError::Value { setting: setting.to_owned(), reason: reason.to_owned() })
        };
        if !crawl_name_is_valid(&self.crawl.name) {
            return value("crawl.name", "must be 1 to 128 bytes without control characters");
        }
        self.url_frontier.validate()?;
        if !(1..=10_000).contains(&self.fetch.concurrency) {
            return value("fetch.concurrency", "must be between 1 and 10000");
        }
        if self.product_token().is_empty() {
            return value("fetch.user_agent", "must begin with a name of letters, `-` or `_`, as in \"mybot/1.0\"");
        }
        if self.storage.queues_max < 2 || self.storage.queue_window < 1 {
            return value("storage.queues_max", "must be at least 2, and storage.queue_window at least 1");
        }
        if self.storage.write_buffer_bytes < 4 << 20 {
            return value("storage.write_buffer_bytes", "must be at least 4 MiB");
        }
        if self.crawl.recrawl_period_s == Some(0) {
            return value("crawl.recrawl_period_s", "must be at least 1; leave it out to crawl once");
        }
        if self.crawl.bytes_max == Some(0) || self.crawl.pages_max == Some(0) {
            return value("crawl.bytes_max", "and crawl.pages_max must be at least 1; leave them out for no limit");
        }
        if self.crawl.time_max_s == Some(0) {
            return value("crawl.time_max_s", "must be at least 1; leave it out for no limit");
        }
        if self.fetch.limits.fetch_timeout_ms == 0 {
            return value("fetch.limits.fetch_timeout_ms", "must be at least 1");
        }
        if let Some((setting, reason)) = self.sources.fault() {
            return value(setting, reason);
        }
        if let Some((setting, reason)) = self.score.fault() {
            return value(setting, reason);
        }
        if let Err((setting, reason)) = self.spiders.rules() {
            return value(setting, &reason);
        }
        if self.http.tls_certificate.is_some() != self.http.tls_key.is_some() {
            return value("http.tls_key", "certificate and key belong together; name both or none");
        }
        if let Some(cluster) = &self.cluster {
            cluster.understand(self.fetch.limits.fetch_timeout_ms)?;
        }
        Ok(())
    }

    /// Our name in robots.txt: the user agent up to its first slash or space.
    pub fn product_token(&self) -> &str {
        let end = self.fetch.user_agent.find(|c: char| !(c.is_ascii_alphabetic() || c == '-' || c == '_'));
        &self.fetch.user_agent[..end.unwrap_or(self.fetch.user_agent.len())]
    }

    /// How many parsers run.
    pub fn parsers(&self) -> usize {
        match self.parse.parsers {
            0 => std::thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2)) + 2,
            parsers => parsers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = include_str!("../../cluster.toml");

    #[test]
    fn the_sample_file_says_what_the_defaults_are() {
        let sample: Config = toml::from_str(SAMPLE).unwrap();
        sample.validate().unwrap();
        let cluster = sample.cluster.as_ref().expect("it describes a cluster");
        assert_eq!(cluster.peers.len(), 3);
        assert_eq!(cluster.load, cluster::LoadConfig::default());
        assert_eq!(Config { cluster: None, ..sample }, Config::default());
    }

    #[test]
    fn every_setting_stands_in_the_sample_file() {
        let table = toml::Table::try_from(Config::default()).unwrap();
        let mut missing = Vec::new();
        for (section, settings) in &table {
            for (name, value) in settings.as_table().unwrap() {
                let names: Vec<&String> = match value.as_table() {
                    Some(inner) if !inner.is_empty() => inner.keys().collect(),
                    _ => vec![name],
                };
                missing.extend(
                    names
                        .into_iter()
                        .filter(|name| !SAMPLE.contains(name.as_str()))
                        .map(|name| format!("{section}: {name}")),
                );
            }
        }
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("wrong.toml");
        std::fs::write(&path, "[fetch]\nconcurrency = 4\nspeed = 9\n").unwrap();
        let error = Config::read(&path).unwrap_err().to_string();
        assert!(error.contains("line 3") && error.contains("speed"), "{error}");
    }

    #[test]
    fn values_out_of_range_are_named() {
        type Break = fn(&mut Config);
        let wrong: [(Break, &str); 7] = [
            (|config| config.score.damping = 1.0, "score.damping"),
            (|config| config.crawl.bytes_max = Some(0), "crawl.bytes_max"),
            (|config| config.crawl.time_max_s = Some(0), "crawl.time_max_s"),
            (|config| config.fetch.concurrency = 0, "fetch.concurrency"),
            (|config| config.fetch.user_agent = "1bot".into(), "fetch.user_agent"),
            (|config| config.crawl.name = "a\nb".into(), "crawl.name"),
            (|config| config.crawl.recrawl_period_s = Some(0), "crawl.recrawl_period_s"),
        ];
        for (break_it, setting) in wrong {
            let mut config = Config::default();
            break_it(&mut config);
            assert!(config.validate().unwrap_err().to_string().starts_with(setting), "{setting}");
        }
    }

    #[test]
    fn our_name_in_robots_txt_is_the_first_word() {
        let mut config = Config::default();
        assert_eq!(config.product_token(), "orbweaver");
        config.fetch.user_agent = "My-Bot/2.1 (+https://example.com)".into();
        assert_eq!(config.product_token(), "My-Bot");
    }
}
