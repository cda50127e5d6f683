//! Settings that can change while a node runs. They last until it is started again; cluster.toml says what it starts with.
//!
//! A setting is here if changing it at any moment can neither break a promise to a host nor need more room than the node was built
//! with: mailboxes are made for `fetch.concurrency` pages, and nodes leave unknown hosts alone for the longest delay that was
//! configured, so neither may grow beyond that.

use std::collections::BTreeMap;
use std::sync::Mutex;

use proto::control::admin::Setting;
use proto::crawl::frontier::Tuned;

use crate::config::Config;
use crate::logging;

/// Longest time that a robots.txt may be believed, in seconds: RFC 9309 allows a day, some archives want a month.
const ROBOTS_TTL_S_MAX: u64 = 30 * 86_400;
/// Names that a person is told when there is none like the one that was asked for.
const NAMES_SHOWN: usize = 12;

const CONCURRENCY: &str = "fetch.concurrency";
const DELAY: &str = "politeness.delay_ms";
const ROBOTS_TTL: &str = "crawl.robots_ttl_s";
const LOG: &str = "log";

/// What can be changed, by name.
const NAMES: [&str; 4] = [ROBOTS_TTL, CONCURRENCY, LOG, DELAY];

/// What a node goes by now, and what it started with. Everybody who needs it shares one.
pub struct Tuning {
    configured: Tuned,
    delay_ms_max: u64,
    log: String,
    now: Mutex<Tuned>,
    /// Every other setting, by name, which only a restart changes.
    fixed: BTreeMap<String, String>,
}

impl Tuning {
    /// What this configuration says.
    pub fn of(config: &Config) -> Tuning {
        let configured = Tuned {
            flights_max: config.fetch.concurrency,
            delay_ms: config.politeness.delay_ms,
            robots_ttl_ms: config.crawl.robots_ttl_s * 1_000,
        };
        let mut fixed = BTreeMap::new();
        if let Ok(value) = toml::Value::try_from(config) {
            flatten("", &value, &mut fixed);
        }
        NAMES.iter().for_each(|name| drop(fixed.remove(*name)));
        Tuning {
            configured,
            delay_ms_max: config.politeness.delay_ms.max(config.politeness.crawl_delay_max_ms),
            log: logging::filter().unwrap_or_default(),
            now: Mutex::new(configured),
            fixed,
        }
    }

    /// What the frontier goes by now.
    pub fn now(&self) -> Tuned {
        *self.now.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The settings of these names; those that can be changed if none is named.
    pub fn get(&self, names: &[String]) -> Result<Vec<Setting>, String> {
        if names.is_empty() {
            return Ok(NAMES.iter().filter_map(|name| self.changeable(name)).collect());
        }
        let setting = |name: &String| match (self.changeable(name), self.fixed.get(name)) {
            (Some(setting), _) => Ok(setting),
            (None, Some(value)) => {
                let (value, configured) = (value.clone(), value.clone());
                Ok(Setting { name: name.clone(), value, configured, allowed: None })
            }
            (None, None) => Err(self.unknown(name)),
        };
        names.iter().map(setting).collect()
    }

    /// Changes settings: all of them, or none if one is wrong.
    pub fn set(&self, values: &[(String, String)]) -> Result<Vec<Setting>, String> {
        if values.is_empty() {
            return Err("nothing to set; say it as in fetch.concurrency=16".to_owned());
        }
        let mut tuned = self.now();
        let mut log = None;
        for (name, value) in values {
            match name.as_str() {
                CONCURRENCY => {
                    tuned.flights_max = number(name, value, 0, self.configured.flights_max as u64)? as usize;
                }
                DELAY => tuned.delay_ms = number(name, value, 0, self.delay_ms_max)?,
                ROBOTS_TTL => tuned.robots_ttl_ms = number(name, value, 1, ROBOTS_TTL_S_MAX)? * 1_000,
                LOG => {
                    logging::parse(value).map_err(|why| format!("{name}={value}: {why}"))?;
                    log = Some(value);
                }
                _ if self.fixed.contains_key(name) => {
                    return Err(format!(
                        "{name} cannot change while the node runs: change its cluster.toml and start it again; these can: {}",
                        NAMES.join(", ")
                    ));
                }
                _ => return Err(self.unknown(name)),
            }
        }
        if let Some(log) = log {
            logging::set_filter(log)?;
        }
        *self.now.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = tuned;
        let mut names: Vec<String> = values.iter().map(|(name, _)| name.clone()).collect();
        names.dedup();
        self.get(&names)
    }

    fn changeable(&self, name: &str) -> Option<Setting> {
        let (now, was) = (self.now(), self.configured);
        let (value, configured, allowed) = match name {
            CONCURRENCY => (
                now.flights_max.to_string(),
                was.flights_max.to_string(),
                format!("0 to {}; 0 hands out nothing", was.flights_max),
            ),
            DELAY => (now.delay_ms.to_string(), was.delay_ms.to_string(), format!("0 to {}", self.delay_ms_max)),
            ROBOTS_TTL => (
                (now.robots_ttl_ms / 1_000).to_string(),
                (was.robots_ttl_ms / 1_000).to_string(),
                format!("1 to {ROBOTS_TTL_S_MAX}"),
            ),
            LOG => (logging::filter()?, self.log.clone(), "as --log: info, or as in node=debug,warn".to_owned()),
            _ => return None,
        };
        Some(Setting { name: name.to_owned(), value, configured, allowed: Some(allowed) })
    }

    fn unknown(&self, name: &str) -> String {
        let last = name.rsplit('.').next().unwrap_or(name);
        let alike =
            self.fixed.keys().filter(|known| known.contains(last) || (!name.is_empty() && known.contains(name)));
        let alike: Vec<&str> = alike.map(String::as_str).take(NAMES_SHOWN).collect();
        let also = if alike.is_empty() { String::new() } else { format!("; alike: {}", alike.join(", ")) };
        format!("there is no setting {name:?}; these can be changed: {}{also}", NAMES.join(", "))
    }
}

fn number(name: &str, text: &str, least: u64, most: u64) -> Result<u64, String> {
    let wrong = || format!("{name}={text}: must be a whole number from {least} to {most}");
    text.trim().parse().ok().filter(|value| (least..=most).contains(value)).ok_or_else(wrong)
}

/// Headers may hold secrets, and peers are better shown by other commands.
const HIDDEN: [&str; 2] = ["fetch.headers", "cluster.peers"];

fn flatten(prefix: &str, value: &toml::Value, into: &mut BTreeMap<String, String>) {
    if HIDDEN.contains(&prefix) {
        return;
    }
    match value {
        toml::Value::Table(table) => {
            for (name, value) in table {
                let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
                flatten(&path, value, into);
            }
        }
        toml::Value::String(text) => drop(into.insert(prefix.to_owned(), text.clone())),
        other => drop(into.insert(prefix.to_owned(), other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuning() -> Tuning {
        let mut config = Config::default();
        config.fetch.concurrency = 16;
        config.fetch.headers.insert("authorization".to_owned(), "secret".to_owned());
        Tuning::of(&config)
    }

    fn set(tuning: &Tuning, pairs: &[(&str, &str)]) -> Result<Vec<Setting>, String> {
        let pairs: Vec<(String, String)> =
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        tuning.set(&pairs)
    }

    #[test]
    fn what_is_set_is_what_is_got() {
        let tuning = tuning();
        let set = set(&tuning, &[("fetch.concurrency", "0"), ("politeness.delay_ms", "2500")]).unwrap();
        assert_eq!((set[0].value.as_str(), set[0].configured.as_str()), ("0", "16"));
        let expected = Tuned { flights_max: 0, delay_ms: 2_500, ..tuning.configured };
        assert_eq!(tuning.now(), expected);
        let got = tuning.get(&["politeness.delay_ms".to_owned()]).unwrap();
        assert_eq!(got[0].value, "2500");
    }

    #[test]
    fn wrong_names_and_values_change_nothing_and_say_what_there_is() {
        let tuning = tuning();
        for (name, value, word) in [
            ("fetch.concurrency", "17", "0 to 16"),
            ("fetch.concurrency", "many", "whole number"),
            ("politeness.delay_ms", "-1", "whole number"),
            ("politeness.delay_ms", "300001", "300000"),
            ("crawl.robots_ttl_s", "0", "1 to"),
            ("log", "loud", "is no level"),
            ("fetch.limits.fetch_timeout_ms", "1", "start it again"),
            ("fetch.speed", "9", "politeness.delay_ms"),
            ("timeout", "9", "fetch_timeout_ms"),
        ] {
            let why = set(&tuning, &[("politeness.delay_ms", "7"), (name, value)]).unwrap_err();
            assert!(why.contains(word), "{name}={value}: {why}");
        }
        assert_eq!(tuning.now(), tuning.configured, "all of it or nothing");
        assert!(set(&tuning, &[]).is_err());
    }

    #[test]
    fn every_other_setting_can_be_looked_at_but_secrets_cannot() {
        let tuning = tuning();
        let got = tuning.get(&["storage.warc_bytes_max".to_owned()]).unwrap();
        assert_eq!((got[0].value.as_str(), got[0].allowed.clone()), ("1000000000", None));
        assert!(tuning.get(&["fetch.headers.authorization".to_owned()]).is_err());
        assert!(!format!("{:?}", tuning.fixed).contains("secret"));
        let names: Vec<String> = tuning.get(&[]).unwrap().into_iter().map(|setting| setting.name).collect();
        assert!(names.contains(&"fetch.concurrency".to_owned()), "{names:?}");
    }
}
