//! Attributes: names and values that people keep for a site or for one of its URLs.

use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::operation::{BadRequest, Criterions, read};
use super::url::parse_id;
use super::{Ignored, text_of_anything};
use crate::date;
use crate::query::{Row, Value};

/// Bytes of an attribute's name, as the original has it.
pub const ATTRIBUTE_NAME_BYTES_MAX: usize = 32;

/// An attribute, as operations name it and as it is told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Attribute {
    /// Whose it is.
    #[serde(rename = "siteId")]
    pub site_id: String,
    /// Its name.
    pub name: String,
    /// The id of the URL that it is for; empty for the site.
    #[serde(rename = "urlMd5")]
    pub url_md5: String,
    /// Its value.
    #[serde(deserialize_with = "text_of_anything")]
    pub value: String,
    /// Instead of a name: all that meet this.
    pub criterions: Option<Criterions>,
    #[serde(rename = "cDate")]
    _c_date: Ignored,
    /// When it was set first, Unix milliseconds.
    #[serde(skip)]
    pub created_ms: u64,
}

impl Attribute {
    /// An attribute that is kept.
    pub fn kept(site_id: &str, name: &str, url_md5: &str, value: &[u8], created_ms: u64) -> Attribute {
        Attribute {
            site_id: site_id.to_owned(),
            name: name.to_owned(),
            url_md5: url_md5.to_owned(),
            value: String::from_utf8_lossy(value).into_owned(),
            created_ms,
            ..Attribute::default()
        }
    }

    /// Reads one that is set: it has a name.
    pub fn read(body: Json) -> Result<Attribute, BadRequest> {
        let attribute = Attribute::read_which(body)?;
        if attribute.name.is_empty() {
            return Err(BadRequest::new("name", "is missing".to_owned()));
        }
        if attribute.criterions.is_some() {
            return Err(BadRequest::new("criterions", "an attribute is set by its name".to_owned()));
        }
        if attribute.value.len() > super::note::VALUE_BYTES_MAX {
            let what = format!("has {} bytes, more than {}", attribute.value.len(), super::note::VALUE_BYTES_MAX);
            return Err(BadRequest::new("value", what));
        }
        Ok(attribute)
    }

    /// Reads which are meant: by name, by URL, by criterions, or all of the site.
    pub fn read_which(body: Json) -> Result<Attribute, BadRequest> {
        let attribute: Attribute = read(body)?;
        if attribute.name.len() > ATTRIBUTE_NAME_BYTES_MAX {
            let what = format!("has {} bytes, more than {ATTRIBUTE_NAME_BYTES_MAX}", attribute.name.len());
            return Err(BadRequest::new("name", what));
        }
        if !attribute.url_md5.is_empty() && parse_id(&attribute.url_md5).is_none() {
            let what = format!("{:?} is no id: 32 hexadecimal digits", attribute.url_md5);
            return Err(BadRequest::new("urlMd5", what));
        }
        Ok(Attribute { url_md5: attribute.url_md5.to_ascii_lowercase(), ..attribute })
    }

    /// Reads which are to go: those of a name, of a URL, or that meet criterions; never all of a site because nothing is said.
    pub fn read_deleted(body: Json) -> Result<Attribute, BadRequest> {
        let which = Attribute::read_which(body)?;
        match &which.criterions {
            Some(criterions) if which.name.is_empty() => criterions.check_meant()?,
            None if which.name.is_empty() && which.url_md5.is_empty() => {
                let what = "is missing: which attributes are to go? By name, urlMd5 or criterions".to_owned();
                return Err(BadRequest::new("name", what));
            }
            _ => {}
        }
        Ok(which)
    }

    /// As it is told.
    pub fn json(&self) -> Json {
        json!({
            "siteId": self.site_id,
            "name": self.name,
            "urlMd5": self.url_md5,
            "value": self.value,
            "cDate": date::format(self.created_ms),
        })
    }
}

impl Row for Attribute {
    fn value(&self, field: &'static str) -> Value {
        match field {
            "siteId" => Value::text(&self.site_id),
            "name" => Value::text(&self.name),
            "urlMd5" => Value::text(&self.url_md5),
            "value" => Value::text(&self.value),
            "cDate" => Value::Time(self.created_ms),
            _ => Value::Null,
        }
    }
}
