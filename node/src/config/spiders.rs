//! The section `[spiders]`: which pages crawlers with fetchers of their own are told to fetch next.

use proto::clients::spider::{Schedule, SpiderRules};
use proto::score::revisit::Revisit;
use proto::score::temperature::Rates;
use serde::{Deserialize, Serialize};

/// Which pages spiders are told to fetch next. The same on every node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SpidersConfig {
    /// Whether the HTTP door serves spiders.
    pub enabled: bool,
    /// Which pages are handed out.
    pub schedule: Schedule,
    /// Pages of a domain a second as long as others have pages too.
    pub soft_rate: f64,
    /// Pages of a domain a second at most; 0 for no limit.
    pub hard_rate: f64,
    /// Links from a seed beyond which nothing is crawled; 0 for no limit.
    pub depth_max: u32,
    /// Seconds after which a page that nobody reported is handed out again.
    pub lease_s: u32,
    /// Failures after which a page is given up.
    pub failures_max: u32,
    /// Seconds after which a page that failed is tried again.
    pub retry_s: u32,
    /// Visits a second of a page that nothing else is known of; 0 for none.
    pub revisit_hz: f64,
    /// Visits for every change of a page, where its changes are known; 0 goes by `revisit_hz`.
    pub revisit_scale: f64,
    /// By how much of its frequency a page may be early.
    pub revisit_margin: f64,
    /// Visits after which a page is not fetched again; 0 for no limit.
    pub crawls_max: u32,
    /// Lines `regex action`.
    pub revisit_rules: String,
}

impl Default for SpidersConfig {
    fn default() -> Self {
        SpidersConfig {
            enabled: true,
            schedule: Schedule::BestFirst,
            soft_rate: 0.25,
            hard_rate: 1.0,
            depth_max: 0,
            lease_s: 600,
            failures_max: 3,
            retry_s: 60,
            revisit_hz: 0.0,
            revisit_scale: 0.0,
            revisit_margin: 0.0,
            crawls_max: 0,
            revisit_rules: String::new(),
        }
    }
}

impl SpidersConfig {
    /// The rules, or the setting that is wrong and why.
    pub fn rules(&self) -> Result<SpiderRules, (&'static str, String)> {
        let wrong = |setting, reason: &str| Err((setting, reason.to_owned()));
        let rates = if self.hard_rate == 0.0 { None } else { Rates::new(self.soft_rate, self.hard_rate) };
        if rates.is_none() && self.hard_rate != 0.0 {
            return wrong("spiders.soft_rate", "must be above 0 and at most spiders.hard_rate (0 there for no limit)");
        }
        if self.lease_s == 0 || self.failures_max == 0 {
            return wrong("spiders.lease_s", "and spiders.failures_max must be at least 1");
        }
        for (setting, number) in [
            ("spiders.revisit_hz", self.revisit_hz),
            ("spiders.revisit_scale", self.revisit_scale),
            ("spiders.revisit_margin", self.revisit_margin),
        ] {
            if !number.is_finite() || number < 0.0 {
                return wrong(setting, "must be a number, at least 0");
            }
        }
        let (hz, scale, margin) = (self.revisit_hz, self.revisit_scale, self.revisit_margin);
        let revisit = Revisit::new(hz, scale, margin, self.crawls_max, &self.revisit_rules);
        Ok(SpiderRules {
            schedule: self.schedule,
            rates,
            revisit: revisit.map_err(|error| ("spiders.revisit_rules", error.to_string()))?,
            depth_max: self.depth_max,
            lease_s: self.lease_s,
            failures_max: self.failures_max,
            retry_s: self.retry_s,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_named() {
        assert!(SpidersConfig::default().rules().is_ok());
        let sample = SpidersConfig::default;
        let free = SpidersConfig { hard_rate: 0.0, ..sample() };
        assert!(free.rules().unwrap().rates.is_none());
        for (config, setting) in [
            (SpidersConfig { soft_rate: 2.0, ..sample() }, "spiders.soft_rate"),
            (SpidersConfig { hard_rate: f64::NAN, ..sample() }, "spiders.soft_rate"),
            (SpidersConfig { lease_s: 0, ..sample() }, "spiders.lease_s"),
            (SpidersConfig { revisit_margin: -1.0, ..sample() }, "spiders.revisit_margin"),
            (SpidersConfig { revisit_rules: "( 5".into(), ..sample() }, "spiders.revisit_rules"),
        ] {
            assert_eq!(config.rules().unwrap_err().0, setting);
        }
    }
}
