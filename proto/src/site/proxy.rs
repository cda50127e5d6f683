//! Proxies of a site: through which its pages are fetched, in which order, and when one is given up.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::Ignored;
use super::operation::{BadRequest, Criterions, Operation, read};
use crate::query::{Row, Value};

/// Proxies of a site.
pub const PROXIES_MAX: usize = 64;

/// A proxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SiteProxy {
    /// Host and port, as in `proxy.example:3128`, or a URL with the scheme `http`.
    pub host: String,
    /// Hosts, or domains with all their hosts, that it is used for; none for all.
    pub domains: Vec<String>,
    /// Higher is tried first.
    pub priority: u16,
    /// 0 switches it off.
    pub state: u8,
    /// Failures in a row after which a node gives it up until it is changed; 0 for never.
    #[serde(rename = "faultsMax")]
    pub faults_max: u32,
    /// Kept and told.
    pub description: String,
    /// Kept and told.
    #[serde(rename = "countryCode")]
    pub country_code: String,
    // Where it stands and what it may be used for: kept and told as they were given.
    #[serde(rename = "countryName", skip_serializing_if = "Option::is_none")]
    country_name: Option<Json>,
    #[serde(rename = "regionCode", skip_serializing_if = "Option::is_none")]
    region_code: Option<Json>,
    #[serde(rename = "regionName", skip_serializing_if = "Option::is_none")]
    region_name: Option<Json>,
    #[serde(rename = "cityName", skip_serializing_if = "Option::is_none")]
    city_name: Option<Json>,
    #[serde(rename = "zipCode", skip_serializing_if = "Option::is_none")]
    zip_code: Option<Json>,
    #[serde(rename = "timeZone", skip_serializing_if = "Option::is_none")]
    time_zone: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latitude: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    longitude: Option<Json>,
    #[serde(rename = "metroCode", skip_serializing_if = "Option::is_none")]
    metro_code: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<Json>,
    #[serde(rename = "categoryId", skip_serializing_if = "Option::is_none")]
    category_id: Option<Json>,
    /// Counted by the node that is asked; never kept.
    pub faults: u32,
    #[serde(rename = "siteId", skip_serializing)]
    site_id: Ignored,
    #[serde(rename = "id", skip_serializing)]
    id: Ignored,
    #[serde(rename = "cDate", skip_serializing)]
    c_date: Ignored,
    #[serde(rename = "uDate", skip_serializing)]
    u_date: Ignored,
}

impl Default for SiteProxy {
    fn default() -> Self {
        SiteProxy {
            host: String::new(),
            domains: Vec::new(),
            priority: 0,
            state: 1,
            faults_max: 0,
            description: String::new(),
            country_code: String::new(),
            country_name: None,
            region_code: None,
            region_name: None,
            city_name: None,
            zip_code: None,
            time_zone: None,
            latitude: None,
            longitude: None,
            metro_code: None,
            limits: None,
            category_id: None,
            faults: 0,
            site_id: Ignored,
            id: Ignored,
            c_date: Ignored,
            u_date: Ignored,
        }
    }
}

impl SiteProxy {
    /// One that is used for all hosts, with the lowest priority.
    pub(super) fn at(host: String) -> SiteProxy {
        SiteProxy { host, ..SiteProxy::default() }
    }

    /// Says what is wrong with it, and in which field.
    pub fn checked(mut self) -> Result<SiteProxy, BadRequest> {
        let bad = |what: String| Err(BadRequest::new("host", what));
        let text =
            self.host.trim().strip_prefix("http://").unwrap_or(self.host.trim()).trim_end_matches('/').to_owned();
        if self.host.contains("://") && !self.host.trim().starts_with("http://") {
            return bad(format!("{:?}: proxies that are spoken to by plain HTTP are supported", self.host));
        }
        let Some((name, port)) = text.rsplit_once(':') else {
            return bad(format!("{text:?} has no port; one looks like proxy.example:3128"));
        };
        let name_is_good = !name.is_empty() && !name.contains(['/', '@', ' ', '?', '#']) && name.is_ascii();
        if !name_is_good || port.parse::<u16>().is_ok_and(|port| port == 0) || port.parse::<u16>().is_err() {
            return bad(format!("{text:?} is no host and port; one looks like proxy.example:3128"));
        }
        if self.state > 1 {
            return Err(BadRequest::new("state", format!("{}: 0 switches a proxy off, 1 on", self.state)));
        }
        self.faults = 0;
        self.host = text;
        Ok(self)
    }

    /// With how often it has just failed on a node.
    pub fn with_faults(&self, faults: u32) -> SiteProxy {
        SiteProxy { faults, ..self.clone() }
    }

    /// Whether it is used for a host.
    pub fn serves(&self, host: &str) -> bool {
        let of = |domain: &String| {
            let domain = domain.trim_start_matches("*.");
            domain == "*" || host == domain || host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
        };
        self.state != 0 && (self.domains.is_empty() || self.domains.iter().any(of))
    }
}

/// The proxies that a host of a site may be asked through, the best first; `faults` says how often each has just failed.
pub fn choose<'a>(proxies: &'a [SiteProxy], host: &str, faults: impl Fn(&str) -> u32) -> Vec<&'a SiteProxy> {
    let usable =
        |proxy: &&SiteProxy| proxy.serves(host) && (proxy.faults_max == 0 || faults(&proxy.host) < proxy.faults_max);
    let mut chosen: Vec<&SiteProxy> = proxies.iter().filter(usable).collect();
    chosen.sort_by_key(|proxy| (std::cmp::Reverse(proxy.priority), faults(&proxy.host)));
    chosen
}

impl Row for SiteProxy {
    fn value(&self, field: &'static str) -> Value {
        match field {
            "host" => Value::text(&self.host),
            "priority" => Value::int(self.priority),
            "state" => Value::int(self.state),
            "faults" => Value::int(self.faults),
            "faultsMax" => Value::int(self.faults_max),
            "countryCode" => Value::text(&self.country_code),
            "description" => Value::text(&self.description),
            _ => Value::Null,
        }
    }
}

/// What operations on proxies are asked with: the site, and the proxy or which ones are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyOrder {
    /// Whose.
    pub site_id: String,
    /// The one that is named.
    pub host: String,
    /// Its fields, those that are named.
    pub fields: serde_json::Map<String, Json>,
    /// Instead of one: all that meet this.
    pub criterions: Option<Criterions>,
}

/// Why the proxies of a site are not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSuchChange {
    /// The request is wrong.
    #[error(transparent)]
    Bad(#[from] BadRequest),
    /// There is one of this name.
    #[error("site {site:?} has a proxy {name:?} already")]
    Exists {
        /// The site.
        site: String,
        /// The proxy.
        name: String,
    },
    /// There is none of this name.
    #[error("site {site:?} has no proxy {name:?}")]
    Missing {
        /// The site.
        site: String,
        /// The proxy.
        name: String,
    },
}

impl ProxyOrder {
    /// The proxies of a site after PROXY_NEW, PROXY_UPDATE or PROXY_DELETE. It is decided upon what the site has when it is written, again if somebody else's change came
    /// between; `again` says so: what a former try was refused for may have been done by it nevertheless, through whoever came between.
    pub fn applied(
        &self,
        operation: Operation,
        proxies: &[SiteProxy],
        again: bool,
    ) -> Result<Vec<SiteProxy>, NoSuchChange> {
        let (site, name) = (self.site_id.clone(), self.name()?);
        let mut proxies = proxies.to_vec();
        match (operation, proxies.iter().position(|proxy| proxy.host == name)) {
            (Operation::ProxyNew, Some(at)) if again && self.proxy(None)? == proxies[at] => {}
            (Operation::ProxyNew, Some(_)) => return Err(NoSuchChange::Exists { site, name }),
            (Operation::ProxyNew, None) => proxies.push(self.proxy(None)?),
            (Operation::ProxyUpdate, Some(at)) => proxies[at] = self.proxy(Some(&proxies[at]))?,
            (Operation::ProxyDelete, Some(at)) => drop(proxies.remove(at)),
            (Operation::ProxyDelete, None) if again => {}
            _ => return Err(NoSuchChange::Missing { site, name }),
        }
        if proxies.len() > PROXIES_MAX {
            return Err(BadRequest::new("host", format!("a site has at most {PROXIES_MAX} proxies")).into());
        }
        Ok(proxies)
    }

    /// Reads one.
    pub fn read(body: Json) -> Result<ProxyOrder, BadRequest> {
        let mut fields = super::operation::object(super::operation::without_nulls(body))?;
        let text = |value: Option<Json>, field: &str| match value {
            None => Ok(String::new()),
            Some(Json::String(text)) => Ok(text),
            Some(_) => Err(BadRequest::new(field, "is no text".to_owned())),
        };
        let site_id = text(fields.remove("siteId"), "siteId")?;
        let host = text(fields.get("host").cloned(), "host")?;
        let criterions = fields.remove("criterions").map(read::<Criterions>).transpose()?;
        if site_id.is_empty() {
            return Err(BadRequest::new("siteId", "is missing".to_owned()));
        }
        let order = ProxyOrder { site_id, host, fields, criterions };
        order.understood(None)?;
        Ok(order)
    }

    /// The proxy that it describes, upon what is known of it.
    pub fn proxy(&self, known: Option<&SiteProxy>) -> Result<SiteProxy, BadRequest> {
        self.understood(known)?.checked()
    }

    fn understood(&self, known: Option<&SiteProxy>) -> Result<SiteProxy, BadRequest> {
        let mut all = match serde_json::to_value(known.cloned().unwrap_or_default()) {
            Ok(Json::Object(all)) => all,
            _ => serde_json::Map::new(),
        };
        all.extend(self.fields.clone());
        let one = |name: &str, value: &Json| {
            let one: serde_json::Map<String, Json> = [(name.to_owned(), value.clone())].into_iter().collect();
            serde_json::from_value::<SiteProxy>(Json::Object(one)).err()
        };
        serde_json::from_value(Json::Object(all)).map_err(|error| {
            let wrong = self.fields.iter().find_map(|(name, value)| Some((name, one(name, value)?)));
            wrong.map_or_else(
                || BadRequest::new("", error.to_string()),
                |(name, error)| BadRequest::new(name, error.to_string()),
            )
        })
    }

    /// The name under which the proxy is kept.
    pub fn name(&self) -> Result<String, BadRequest> {
        Ok(SiteProxy { host: self.host.clone(), ..SiteProxy::default() }.checked()?.host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn proxy(body: Json) -> Result<SiteProxy, BadRequest> {
        ProxyOrder::read(body).and_then(|order| order.proxy(None))
    }

    #[test]
    fn a_proxy_is_a_host_and_a_port() {
        assert_eq!(proxy(json!({"siteId": "a", "host": "http://p.example:3128/"})).unwrap().host, "p.example:3128");
        for (body, field) in [
            (json!({"host": "p.example:3128"}), "siteId"),
            (json!({"siteId": "a"}), "host"),
            (json!({"siteId": "a", "host": "p.example"}), "host"),
            (json!({"siteId": "a", "host": "p.example:0"}), "host"),
            (json!({"siteId": "a", "host": "socks5://p.example:1"}), "host"),
            (json!({"siteId": "a", "host": "u@p.example:1"}), "host"),
            (json!({"siteId": "a", "host": "p.example:1", "priority": "x"}), "priority"),
            (json!({"siteId": "a", "host": "p.example:1", "nosuch": 1}), "nosuch"),
            (json!({"siteId": "a", "host": "p.example:1", "state": 2}), "state"),
        ] {
            assert!(proxy(body.clone()).unwrap_err().to_string().contains(field), "{body}");
        }
    }

    #[test]
    fn what_is_said_of_a_proxy_besides_is_kept_as_it_was_given() {
        let said =
            json!({"siteId": "a", "host": "p:1", "countryName": "Ukraine", "latitude": 50.4, "limits": {"day": 100}});
        let told = serde_json::to_value(proxy(said.clone()).unwrap()).unwrap();
        assert_eq!(
            (&told["countryName"], &told["latitude"], &told["limits"]),
            (&said["countryName"], &said["latitude"], &said["limits"])
        );
        assert!(told.get("zipCode").is_none());
    }

    #[test]
    fn a_change_is_made_upon_what_is_there_and_its_repetition_changes_nothing_more() {
        let order = |body: Json| ProxyOrder::read(body).unwrap();
        let one = order(json!({"siteId": "a", "host": "p:1", "priority": 7}));
        let there = one.applied(Operation::ProxyNew, &[], false).unwrap();
        let two = order(json!({"siteId": "a", "host": "q:1"})).applied(Operation::ProxyNew, &there, false).unwrap();
        assert_eq!(two.iter().map(|proxy| proxy.host.as_str()).collect::<Vec<_>>(), ["p:1", "q:1"]);
        let refused = |operation, proxies: &[SiteProxy], again| one.applied(operation, proxies, again).unwrap_err();
        assert!(refused(Operation::ProxyNew, &two, false).to_string().contains("already"));
        assert_eq!(one.applied(Operation::ProxyNew, &two, true).unwrap(), two);
        let other = order(json!({"siteId": "a", "host": "p:1", "priority": 8}));
        assert!(other.applied(Operation::ProxyNew, &two, true).is_err(), "somebody else gave the site this one");
        let changed = other.applied(Operation::ProxyUpdate, &two, false).unwrap();
        assert_eq!((changed[0].priority, &changed[1]), (8, &two[1]));
        let less = one.applied(Operation::ProxyDelete, &two, false).unwrap();
        assert_eq!(less, two[1..]);
        assert!(refused(Operation::ProxyDelete, &less, false).to_string().contains("no proxy"));
        assert_eq!(one.applied(Operation::ProxyDelete, &less, true).unwrap(), less);
        assert!(refused(Operation::ProxyUpdate, &less, true).to_string().contains("no proxy"));
        let full: Vec<SiteProxy> =
            (0..PROXIES_MAX).map(|n| SiteProxy { host: format!("h{n}:1"), ..SiteProxy::default() }).collect();
        assert!(matches!(refused(Operation::ProxyNew, &full, false), NoSuchChange::Bad(_)));
    }

    #[test]
    fn the_best_proxy_for_a_host_that_has_not_failed_too_often_is_first() {
        let of = |host: &str, priority: u16, faults_max: u32, domains: &[&str]| SiteProxy {
            host: host.into(),
            priority,
            faults_max,
            domains: domains.iter().map(|domain| (*domain).to_owned()).collect(),
            ..SiteProxy::default()
        };
        let all = [of("a:1", 1, 0, &[]), of("b:1", 9, 2, &[]), of("c:1", 5, 0, &["shop.example"])];
        let hosts = |host: &str, faults: u32| -> Vec<String> {
            choose(&all, host, |name| if name == "b:1" { faults } else { 0 }).iter().map(|p| p.host.clone()).collect()
        };
        assert_eq!(hosts("www.shop.example", 0), ["b:1", "c:1", "a:1"]);
        assert_eq!(hosts("workshop.example", 1), ["b:1", "a:1"]);
        assert_eq!(hosts("shop.example", 2), ["c:1", "a:1"]);
        assert!(choose(&[SiteProxy { state: 0, ..of("a:1", 1, 0, &[]) }], "x", |_| 0).is_empty());
    }
}
