//! What a crawl may set about extraction. Every number says what it costs.

use proto::url::UrlRules;
use serde::{Deserialize, Serialize};

/// How pages are read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExtractRules {
    /// How links are brought into canonical form.
    pub urls: UrlRules,
    /// How much of a page is kept.
    pub limits: ExtractLimits,
    /// Whether `<meta name="robots">` is honoured.
    pub meta_robots: bool,
    /// Whether `X-Robots-Tag` is honoured.
    pub x_robots_tag: bool,
    /// Whether `rel="nofollow"` is honoured.
    pub rel_nofollow: bool,
}

/// How much of a page is kept. What is beyond a limit is dropped, and the result says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExtractLimits {
    /// Different links kept per page. 10,000 x 100 B = 1 MB, and no page for people has as many.
    pub links_max: usize,
    /// Characters kept of a title. 500: far more than anybody shows of one.
    pub title_chars_max: usize,
    /// Bytes kept of the text. 256 KiB: a book chapter of 40,000 words.
    pub text_bytes_max: usize,
    /// Memory of the HTML parser: its stack of open elements, and a tag left open at the end. 1 MiB: 8,192 levels.
    pub parser_memory_bytes_max: usize,
    /// Bytes of a sitemap once decompressed. 50 MB: the limit of the sitemap protocol.
    pub sitemap_bytes_max: usize,
    /// URLs taken from one sitemap. 50,000: the limit of the sitemap protocol.
    pub sitemap_urls_max: usize,
}

impl Default for ExtractRules {
    fn default() -> Self {
        ExtractRules {
            urls: UrlRules::default(),
            limits: ExtractLimits::default(),
            meta_robots: true,
            x_robots_tag: true,
            rel_nofollow: true,
        }
    }
}

impl Default for ExtractLimits {
    fn default() -> Self {
        ExtractLimits {
            links_max: 10_000,
            title_chars_max: 500,
            text_bytes_max: 256 * 1024,
            parser_memory_bytes_max: 1024 * 1024,
            sitemap_bytes_max: 50_000_000,
            sitemap_urls_max: 50_000,
        }
    }
}
