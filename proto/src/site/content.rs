//! What URL_CONTENT and URL_PUT are asked with, and the kinds of contents.

use serde::Deserialize;
use serde_json::Value as Json;

use super::operation::{BadRequest, read};
use super::{UrlFetch, UrlOrder, text_of_anything};
use crate::base64::from_base64;

/// Kinds of contents, as bits of the mask.
pub mod mask {
    /// What processing made of the page.
    pub const PROCESSED: u32 = 1;
    /// The newest version of the page.
    pub const RAW_LAST: u32 = 2;
    /// The oldest version.
    pub const RAW_FIRST: u32 = 4;
    /// All versions.
    pub const RAW_ALL: u32 = 8;
    /// Heads of the answers.
    pub const HEADERS: u32 = 16;
    /// Heads of the requests.
    pub const REQUESTS: u32 = 32;
    /// What is known of the exchange.
    pub const META: u32 = 64;
    /// Cookies that the answers set.
    pub const COOKIES: u32 = 128;
    /// The page, tidied up.
    pub const TIDY: u32 = 256;
    /// The page as a browser made it.
    pub const DYNAMIC: u32 = 512;
    /// The bodies themselves.
    pub const RAW: u32 = 1_024;
    /// Pages of an article of several.
    pub const CHAIN: u32 = 2_048;
    /// Processed contents by our own extractors.
    pub const PROCESSED_INTERNAL: u32 = 4_096;
    /// Processed contents of the site's own making.
    pub const PROCESSED_CUSTOM: u32 = 8_192;
    /// All processed contents.
    pub const PROCESSED_ALL: u32 = 16_384;
    /// Attributes.
    pub const ATTRIBUTES: u32 = 32_768;
    /// Every bit that means something.
    pub const ALL: u32 = 65_535;
    /// Those that ask for versions of the page.
    pub const VERSIONS: u32 = RAW_LAST | RAW_FIRST | RAW_ALL | HEADERS | REQUESTS | META | COOKIES | RAW;
    /// Those that ask for what was processed.
    pub const PROCESSED_ANY: u32 = PROCESSED | PROCESSED_INTERNAL | PROCESSED_CUSTOM | PROCESSED_ALL;
    /// Those that may be handed in with URL_PUT.
    pub const PUT: u32 = ALL & !(RAW_LAST | RAW_FIRST | RAW_ALL | PROCESSED_ALL | ATTRIBUTES);
}

/// What is answered of the contents of a URL.
pub mod status {
    /// All that was asked for is there.
    pub const OK: u32 = 0;
    /// There is no such URL.
    pub const URL_MISSED: u32 = 1;
    /// No version of the page is there.
    pub const RAW_MISSED: u32 = 2;
    /// It was not processed.
    pub const PROCESSED_MISSED: u32 = 3;
}

/// Bytes of a content that is handed in.
pub const PUT_BYTES_MAX: usize = 512 << 10;

/// What URL_CONTENT is asked with.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UrlContent {
    #[serde(default)]
    url: String,
    #[serde(rename = "urlMd5", default)]
    url_md5: String,
    #[serde(rename = "siteId", default)]
    site_id: String,
    #[serde(rename = "urlType", default)]
    url_type: u8,
    /// Which kinds.
    #[serde(rename = "contentTypeMask", default = "newest")]
    pub mask: u32,
    /// Instead of one URL: those that this finds.
    #[serde(rename = "urlFetch", default)]
    pub fetch: Option<Json>,
    /// Fields of the URL that are told with its contents; all for an empty list.
    #[serde(rename = "dbFieldsList", default)]
    pub fields: Option<Vec<String>>,
}

fn newest() -> u32 {
    mask::RAW_LAST | mask::RAW
}

impl UrlContent {
    /// Reads one.
    pub fn read(body: Json) -> Result<UrlContent, BadRequest> {
        let request: UrlContent = read(body)?;
        request.order().check_type()?;
        if request.mask == 0 || request.mask & !mask::ALL != 0 {
            let what = format!("{}: bits from 1 (processed) to 32768 (attributes), at least one", request.mask);
            return Err(BadRequest::new("contentTypeMask", what));
        }
        match &request.fetch {
            Some(fetch) if UrlFetch::is_change(&fetch.to_string()) => {
                let what = "contents are read here, nothing is changed; ask with URL_FETCH".to_owned();
                return Err(BadRequest::new("urlFetch", what));
            }
            Some(fetch) => drop(UrlFetch::read(fetch.clone())?.checked()?),
            None if request.url.is_empty() && request.url_md5.is_empty() => {
                return Err(BadRequest::new("url", "is missing; name a URL, an id, or a urlFetch".to_owned()));
            }
            None => {}
        }
        let unknown = |name: &&String| !crate::query::URL_FIELDS.iter().any(|(known, _)| known == name);
        if let Some(name) = request.fields.iter().flatten().find(unknown) {
            return Err(BadRequest::new("dbFieldsList", format!("URLs have no field {name:?}")));
        }
        Ok(request)
    }

    /// The URL that it names.
    pub fn order(&self) -> UrlOrder {
        UrlOrder::naming(&self.site_id, &self.url, &self.url_md5, self.url_type)
    }
}

/// What URL_PUT is asked with.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UrlPut {
    #[serde(default)]
    url: String,
    #[serde(rename = "urlMd5", default)]
    url_md5: String,
    #[serde(rename = "siteId", default)]
    site_id: String,
    #[serde(rename = "urlType", default)]
    url_type: u8,
    /// One bit of the mask.
    #[serde(rename = "contentType")]
    pub kind: u32,
    #[serde(rename = "putDict")]
    put: PutFields,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PutFields {
    /// The content, in base64.
    #[serde(deserialize_with = "text_of_anything")]
    data: String,
    #[serde(rename = "cDate", default)]
    c_date: Option<String>,
}

impl UrlPut {
    /// Reads one.
    pub fn read(body: Json) -> Result<UrlPut, BadRequest> {
        let put: UrlPut = read(body)?;
        put.order().check_type()?;
        if put.kind.count_ones() != 1 || put.kind & !mask::PUT != 0 {
            let what = format!("{}: one of 1, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192", put.kind);
            return Err(BadRequest::new("contentType", what));
        }
        if let Some(text) = &put.put.c_date
            && crate::date::parse(text).is_none()
        {
            return Err(BadRequest::new("putDict.cDate", format!("{text:?} is no time")));
        }
        put.data()?;
        Ok(put)
    }

    /// The URL that it names.
    pub fn order(&self) -> UrlOrder {
        UrlOrder::naming(&self.site_id, &self.url, &self.url_md5, self.url_type)
    }

    /// The content.
    pub fn data(&self) -> Result<Vec<u8>, BadRequest> {
        let data = from_base64(&self.put.data)
            .ok_or_else(|| BadRequest::new("putDict.data", "is no base64 (RFC 4648, section 4)".to_owned()))?;
        if data.len() > PUT_BYTES_MAX {
            let what = format!("has {} bytes, more than {PUT_BYTES_MAX}", data.len());
            return Err(BadRequest::new("putDict.data", what));
        }
        Ok(data)
    }

    /// When it was made, if that is said.
    pub fn made_ms(&self) -> Option<u64> {
        self.put.c_date.as_deref().and_then(crate::date::parse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_bad_request_names_its_field() {
        let put =
            |kind: u32, data: &str| json!({"url": "http://a.example/", "contentType": kind, "putDict": {"data": data}});
        assert_eq!(UrlPut::read(put(mask::RAW, "Zm9v")).unwrap().data().unwrap(), b"foo");
        for (body, field) in [
            (put(3, "Zm9v"), "contentType"),
            (put(0, "Zm9v"), "contentType"),
            (put(mask::RAW_LAST, "Zm9v"), "contentType"),
            (put(mask::RAW, "Zm9"), "putDict.data"),
            (json!({"url": "http://a.example/", "contentType": 1}), "putDict"),
        ] {
            assert!(UrlPut::read(body.clone()).unwrap_err().to_string().contains(field), "{body}");
        }
        for (body, field) in [
            (json!({"url": "x", "contentTypeMask": 0}), "contentTypeMask"),
            (json!({"url": "x", "contentTypeMask": 65536}), "contentTypeMask"),
            (json!({"siteId": "a"}), "url"),
            (json!({"urlFetch": {"urlsCriterions": {"WHERE": "nosuch = 1"}}}), "nosuch"),
            (json!({"url": "x", "dbFieldsList": ["nosuch"]}), "dbFieldsList"),
        ] {
            assert!(UrlContent::read(body.clone()).unwrap_err().to_string().contains(field), "{body}");
        }
        assert_eq!(UrlContent::read(json!({"url": "x"})).unwrap().mask, mask::RAW | mask::RAW_LAST);
    }
}
