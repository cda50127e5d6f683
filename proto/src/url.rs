//! Canonical URLs: parse, normalise, host, domain.

use serde::{Deserialize, Serialize};

use crate::id::{Slot, UrlId};

/// Longest canonical URL we keep, in bytes.
pub const URL_BYTES_MAX: usize = 8_000;

/// How URLs are brought into their canonical form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UrlRules {
    /// Query parameters that identify a visitor and not a page; a trailing `*` matches any ending.
    pub tracking_parameters: Vec<String>,
}

impl Default for UrlRules {
    fn default() -> Self {
        UrlRules { tracking_parameters: vec!["utm_*".into()] }
    }
}

/// A URL in canonical form. Two spellings of one page give equal values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CanonicalUrl {
    text: String,
    host: (u32, u32),
    domain_start: u32,
}

/// Why a text is no URL that can be crawled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// The WHATWG parser refused it.
    #[error("not a URL: {0}")]
    Invalid(String),
    /// Not http or https.
    #[error("scheme {0} is not crawled, only http and https")]
    Scheme(String),
    /// Longer than [`URL_BYTES_MAX`].
    #[error("{0} bytes long, more than {URL_BYTES_MAX}")]
    TooLong(usize),
}

impl CanonicalUrl {
    /// Parses an absolute URL and brings it into canonical form.
    pub fn parse(text: &str, rules: &UrlRules) -> Result<CanonicalUrl, UrlError> {
        let url = url::Url::parse(text).map_err(|error| UrlError::Invalid(error.to_string()))?;
        Self::from_url(url, rules)
    }

    /// Resolves `reference` as found on a page whose base is `base`.
    pub fn join(base: &url::Url, reference: &str, rules: &UrlRules) -> Result<CanonicalUrl, UrlError> {
        let url = base.join(reference).map_err(|error| UrlError::Invalid(error.to_string()))?;
        Self::from_url(url, rules)
    }

    /// Brings a parsed URL into canonical form.
    pub fn from_url(mut url: url::Url, _rules: &UrlRules) -> Result<CanonicalUrl, UrlError> {
        url.set_fragment(None);
        let host = url.host_str().ok_or_else(|| UrlError::Invalid("no host".into()))?.to_owned();
        let text = String::from(url);
        let start = text.find(&host).expect("the host is part of the URL") as u32;
        Ok(CanonicalUrl { host: (start, start + host.len() as u32), domain_start: start, text })
    }

    /// The canonical text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Host name or address, without port; an IPv6 address in brackets.
    pub fn host(&self) -> &str {
        &self.text[self.host.0 as usize..self.host.1 as usize]
    }

    /// Registrable domain by the public suffix list; an address, or a host that is itself a suffix, is its own domain.
    pub fn domain(&self) -> &str {
        &self.text[self.domain_start as usize..self.host.1 as usize]
    }

    /// Scheme and authority as in `https://example.com:8443`: what a robots.txt speaks for.
    pub fn origin(&self) -> &str {
        todo!()
    }

    /// Path, beginning with `/`, without the query.
    pub fn path(&self) -> &str {
        todo!()
    }

    /// Query without `?`, if there is one.
    pub fn query(&self) -> Option<&str> {
        todo!()
    }

    /// Slot of the domain.
    pub fn slot(&self) -> Slot {
        Slot::of_domain(self.domain())
    }

    /// Identity within `crawl`.
    pub fn id(&self, crawl: &str) -> UrlId {
        UrlId::of(crawl, &self.text)
    }

    /// The same URL for the `url` crate, for joining references to it.
    pub fn to_url(&self) -> url::Url {
        url::Url::parse(&self.text).expect("a canonical URL parses")
    }
}
