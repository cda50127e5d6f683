//! Why something failed, as bits of one u64 (the numbers of the HCE Distributed Crawler).
//!
//! A URL carries the bits of its current run, a site the bits of all its URLs. The numbers below 53 are those of the
//! Distributed Crawler, whose documentation and code disagree on six of them. The documentation is what was promised to
//! users, so it wins; the meaning in the code moves to one of the bits that were free.
//!
//! | bit | documentation, taken | code | where the code's meaning is now |
//! |---|---|---|---|
//! | 7 | bad redirection | macro | 53, [`ErrorBit::Macro`] |
//! | 15 | site has its resources | URL not in step with the database | not taken over: there is no second database |
//! | 16 | raw content not stored | stopped by the crawler's filters | 54, [`ErrorBit::CrawlerFilters`] |
//! | 32 | errors limit reached (processing) | database | 55, [`ErrorBit::Database`] |
//! | 33 | resources limit reached (processing) | site has its bytes | 56, [`ErrorBit::SiteBytesMax`] |
//! | 35 | raw content does not decode | URL encoding | 57, [`ErrorBit::UrlEncoding`] |
//!
//! The documentation lists 22 to 30 without a meaning, so there the code's counts. Ours alone is 58.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Bits that keep a page from being processed: 0 to 11 and 22 (4,198,399).
const UNFIT: u64 = 0xFFF | 1 << 22;

/// Writes the enum, the list of all its values and their names from one table.
macro_rules! error_bits {
    ($($bit:literal $variant:ident $name:literal $doc:literal,)+) => {
        /// One reason for a failure; the discriminant is the number of the bit.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum ErrorBit {
            $(#[doc = $doc] $variant = $bit,)+
        }

        impl ErrorBit {
            /// Every bit that has a meaning, lowest first.
            pub const ALL: &[ErrorBit] = &[$(ErrorBit::$variant,)+];

            /// Stable name for logs, metrics and summaries.
            pub const fn name(self) -> &'static str {
                match self {
                    $(ErrorBit::$variant => $name,)+
                }
            }
        }
    };
}

error_bits! {
    0 BadUrl "bad_url" "The URL cannot be requested.",
    1 Timeout "timeout" "The request took too long.",
    2 Http "http" "The server answered with an error status.",
    3 EmptyContent "empty_content" "The answer has no body.",
    4 WrongMime "wrong_mime" "The content type is not what was asked for.",
    5 Connection "connection" "No connection, or it broke.",
    6 PageConvert "page_convert" "The text does not convert to UTF-8.",
    7 BadRedirect "bad_redirect" "A redirect leads nowhere.",
    8 Size "size" "The answer is larger than allowed.",
    9 Authorization "authorization" "The server wants a login.",
    10 File "file" "A file could not be written.",
    11 Robots "robots" "robots.txt does not allow it.",
    12 HtmlParse "html_parse" "The HTML could not be parsed.",
    13 BadEncoding "bad_encoding" "The encoding the page names is wrong or unknown.",
    14 SiteErrorsMax "site_errors_max" "The site has had as many errors as it may.",
    15 SiteResourcesMax "site_resources_max" "The site has as many resources as it may.",
    16 RawContentNotStored "raw_content_not_stored" "The body could not be kept.",
    17 HttpRedirectsMax "http_redirects_max" "Too many HTTP redirects.",
    18 HtmlRedirectsMax "html_redirects_max" "Too many redirects by meta refresh.",
    19 Crawler "crawler" "The crawler itself failed.",
    20 DtdInvalid "dtd_invalid" "The document type definition is invalid.",
    21 MacroDeserialization "macro_deserialization" "What a macro gave could not be read.",
    22 FetchAmbiguous "fetch_ambiguous" "The fetcher failed without saying why.",
    23 FetchConnection "fetch_connection" "The fetcher lost its connection.",
    24 FetchHttp "fetch_http" "The fetcher met broken HTTP.",
    25 FetchInvalidUrl "fetch_invalid_url" "The fetcher refused the URL.",
    26 FetchRedirectsMax "fetch_redirects_max" "The fetcher met too many redirects.",
    27 FetchConnectTimeout "fetch_connect_timeout" "The fetcher could not connect in time.",
    28 FetchReadTimeout "fetch_read_timeout" "The fetcher could not read in time.",
    29 FetchTimeout "fetch_timeout" "The fetcher took too long in all.",
    30 FetchInternal "fetch_internal" "The fetcher failed by its own fault.",
    31 SiteResourcesNumberMax "site_resources_number_max" "The site has the number of resources it may have.",
    32 ErrorsMax "errors_max" "Processing stopped at the site's limit of errors.",
    33 ResourcesMax "resources_max" "Processing stopped at the site's limit of resources.",
    34 UnsupportedContentType "unsupported_content_type" "Nothing processes this content type.",
    35 RawContentDecoding "raw_content_decoding" "The body does not decode.",
    36 Scraper "scraper" "The scraper failed.",
    37 RawContentMissing "raw_content_missing" "The body to process is not there.",
    38 RegularExpression "regular_expression" "A regular expression is invalid.",
    39 MandatoryTemplate "mandatory_template" "A mandatory template field stayed empty.",
    40 ProcessorFilters "processor_filters" "The processor's filters stopped it.",
    41 SiteState "site_state" "The site is not active.",
    42 ItemsMax "items_max" "The batch has as many items as it may.",
    43 UrlsFromPageMax "urls_from_page_max" "The page has more links than are taken from one.",
    44 TemplateSource "template_source" "A template could not be had.",
    45 RssEmpty "rss_empty" "The feed has no items.",
    46 UrlsSchemaExternal "urls_schema_external" "An external URL schema failed.",
    47 NoValidProxy "no_valid_proxy" "No proxy works.",
    48 Forbidden "forbidden" "The server forbids it (403).",
    49 NoTimeWindow "no_time_window" "The site's request frequency leaves no time now.",
    50 FatalInit "fatal_init" "The application could not start.",
    51 ProcessorBatchItem "processor_batch_item" "An item of the batch could not be processed.",
    52 ExecutionTimeMax "execution_time_max" "The batch ran out of time before it came to this.",
    53 Macro "macro" "A macro failed (7 in the code).",
    54 CrawlerFilters "crawler_filters" "The crawler's filters stopped it (16 in the code).",
    55 Database "database" "The store failed (32 in the code).",
    56 SiteBytesMax "site_bytes_max" "The site has as many bytes as it may (33 in the code).",
    57 UrlEncoding "url_encoding" "The URL's encoding is wrong (35 in the code).",
    58 AddressRefused "address_refused" "The host points to an address that is not to be reached (ours).",
}

/// A set of [`ErrorBit`]s. Bits without a meaning that came from elsewhere are kept.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ErrorMask(pub u64);

impl ErrorBit {
    /// The mask with this bit alone.
    pub const fn mask(self) -> ErrorMask {
        ErrorMask(1 << self as u8)
    }
}

impl ErrorMask {
    /// Nothing failed.
    pub const NONE: ErrorMask = ErrorMask(0);

    /// Adds `bit`.
    pub const fn set(&mut self, bit: ErrorBit) {
        self.0 |= bit.mask().0;
    }

    /// Adds every bit of `other`, as a site does with the masks of its URLs.
    pub const fn merge(&mut self, other: ErrorMask) {
        self.0 |= other.0;
    }

    /// Says whether `bit` is set.
    pub const fn contains(self, bit: ErrorBit) -> bool {
        self.0 & bit.mask().0 != 0
    }

    /// Says whether nothing failed.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Says whether a page with this mask may be processed: bits 0 to 11 and 22 are clear.
    pub const fn is_fit_for_processing(self) -> bool {
        self.0 & UNFIT == 0
    }

    /// Returns the bits that have a meaning, lowest first.
    pub fn iter(self) -> impl Iterator<Item = ErrorBit> {
        ErrorBit::ALL.iter().copied().filter(move |&bit| self.contains(bit))
    }

    /// Returns the names of the bits, lowest first.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        self.iter().map(ErrorBit::name)
    }
}

/// Which bits URLs of a crawl have had, and when the last one had each. Of two the later counts, so whoever saw a part of it may be asked in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ErrorTimes(BTreeMap<u8, u64>);

impl ErrorTimes {
    /// A URL had these bits at a moment, Unix milliseconds.
    pub fn see(&mut self, mask: ErrorMask, unix_ms: u64) {
        self.merge(&ErrorTimes((0..64).filter(|bit| mask.0 >> bit & 1 == 1).map(|bit| (bit, unix_ms)).collect()));
    }

    /// Takes in what somebody else saw; says whether any of it is news.
    pub fn merge(&mut self, other: &ErrorTimes) -> bool {
        let mut news = false;
        for (bit, at) in &other.0 {
            let known = self.0.entry(*bit).or_default();
            news |= *known < *at;
            *known = (*known).max(*at);
        }
        news
    }

    /// The bits that some URL has had since a moment.
    pub fn since(&self, unix_ms: u64) -> ErrorMask {
        let bits = self.0.iter().filter(|(bit, at)| **bit < 64 && **at >= unix_ms);
        ErrorMask(bits.fold(0, |mask, (bit, _)| mask | 1 << bit))
    }
}

impl From<ErrorBit> for ErrorMask {
    fn from(bit: ErrorBit) -> ErrorMask {
        bit.mask()
    }
}

impl FromIterator<ErrorBit> for ErrorMask {
    fn from_iter<I: IntoIterator<Item = ErrorBit>>(bits: I) -> ErrorMask {
        bits.into_iter().fold(ErrorMask::NONE, |mask, bit| ErrorMask(mask.0 | bit.mask().0))
    }
}

impl fmt::Display for ErrorBit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// Names with commas between them; a bit without a name as `bit_63`; `none` if nothing is set.
impl fmt::Display for ErrorMask {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return out.write_str("none");
        }
        let mut separator = "";
        for number in (0..64).filter(|number| self.0 >> number & 1 == 1) {
            out.write_str(separator)?;
            match ErrorBit::ALL.iter().find(|&&bit| bit as u8 == number) {
                Some(bit) => out.write_str(bit.name())?,
                None => write!(out, "bit_{number}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for ErrorMask {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ErrorMask({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_seed() {
        for (bit, number) in [
            (ErrorBit::BadUrl, 0),
            (ErrorBit::BadRedirect, 7),
            (ErrorBit::Robots, 11),
            (ErrorBit::SiteResourcesMax, 15),
            (ErrorBit::RawContentNotStored, 16),
            (ErrorBit::HttpRedirectsMax, 17),
            (ErrorBit::FetchAmbiguous, 22),
            (ErrorBit::FetchInternal, 30),
            (ErrorBit::ErrorsMax, 32),
            (ErrorBit::ResourcesMax, 33),
            (ErrorBit::RawContentDecoding, 35),
            (ErrorBit::Forbidden, 48),
            (ErrorBit::ExecutionTimeMax, 52),
        ] {
            assert_eq!(bit.mask().0, 1 << number, "{bit}");
        }
    }

    #[test]
    fn bits_are_in_order_and_names_differ() {
        assert!(ErrorBit::ALL.iter().enumerate().all(|(at, &bit)| bit as usize == at));
        let names: std::collections::BTreeSet<_> = ErrorBit::ALL.iter().map(|bit| bit.name()).collect();
        assert_eq!(names.len(), ErrorBit::ALL.len());
    }

    #[test]
    fn twelve_bits_and_the_twenty_second_keep_a_page_from_processing() {
        assert_eq!(UNFIT, 4_198_399);
        for &bit in ErrorBit::ALL {
            let number = bit as u8;
            assert_eq!(bit.mask().is_fit_for_processing(), number > 11 && number != 22, "{bit}");
        }
        assert!(ErrorMask::NONE.is_fit_for_processing());
    }

    #[test]
    fn a_mask_shows_its_names_and_the_bits_that_have_none() {
        let mut mask: ErrorMask = [ErrorBit::Timeout, ErrorBit::Robots].into_iter().collect();
        assert_eq!(mask.to_string(), "timeout,robots");
        mask.merge(ErrorMask(1 << 63));
        assert_eq!(mask.to_string(), "timeout,robots,bit_63");
        assert_eq!(mask.names().collect::<Vec<_>>(), ["timeout", "robots"]);
        assert_eq!(ErrorMask::NONE.to_string(), "none");
    }

    #[test]
    fn a_mask_is_stored_as_its_number() {
        let text = serde_json::to_string(&ErrorMask(1 << 63 | 5)).unwrap();
        assert_eq!(text, "9223372036854775813");
        assert_eq!(serde_json::from_str::<ErrorMask>(&text).unwrap(), ErrorMask(1 << 63 | 5));
    }
}
