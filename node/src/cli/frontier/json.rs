//! Items as JSON, as protobuf writes it: what other clients of this API dump, we read, and the other way round.

use serde_json::{Map, Value, json};

use crate::doors::frontier::api::{self, url_item};

/// A URL, as JSON.
pub(super) fn info(info: &api::UrlInfo) -> Value {
    let metadata: Map<String, Value> =
        info.metadata.iter().map(|(name, list)| (name.clone(), json!({ "values": list.values }))).collect();
    let mut value = json!({ "url": info.url, "key": info.key, "crawlID": info.crawl_id });
    if !metadata.is_empty() {
        value["metadata"] = Value::Object(metadata);
    }
    value
}

/// An item, as JSON. Large numbers are text there: that is how protobuf keeps them whole.
pub(super) fn item(item: &api::UrlItem) -> Value {
    let mut value = match &item.item {
        Some(url_item::Item::Known(known)) => {
            let mut inner = json!({ "refetchableFromDate": known.refetchable_from_date.to_string() });
            if let Some(of) = &known.info {
                inner["info"] = info(of);
            }
            json!({ "known": inner })
        }
        Some(url_item::Item::Discovered(found)) => {
            json!({ "discovered": { "info": found.info.as_ref().map(info) } })
        }
        None => json!({}),
    };
    if !item.id.is_empty() {
        value["ID"] = json!(item.id);
    }
    if item.creation_date > 0 {
        value["creationDate"] = json!(item.creation_date.to_string());
    }
    value
}

/// An item for people: its time, as seconds or as a date, and the URL.
pub(super) fn line(item: &api::UrlItem, dates: bool) -> String {
    match &item.item {
        Some(url_item::Item::Known(known)) => {
            let date = match known.refetchable_from_date {
                0 => "completed".to_owned(),
                date if dates => proto::date::format(date.saturating_mul(1_000)),
                date => date.to_string(),
            };
            format!("{date:>12}  {}", known.info.as_ref().map_or("", |info| &info.url))
        }
        Some(url_item::Item::Discovered(found)) => {
            found.info.as_ref().map_or_else(String::new, |info| info.url.clone())
        }
        None => String::new(),
    }
}

/// Reads an item.
pub(super) fn read(text: &str) -> Result<api::UrlItem, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let id = value.get("ID").and_then(Value::as_str).unwrap_or_default().to_owned();
    let item = if let Some(known) = value.get("known") {
        let date = match known.get("refetchableFromDate").or_else(|| known.get("refetchable_from_date")) {
            None => 0,
            Some(Value::String(text)) => text.parse().map_err(|_| format!("{text:?} is no date"))?,
            Some(number) => number.as_u64().ok_or_else(|| format!("{number} is no date"))?,
        };
        url_item::Item::Known(api::KnownUrlItem { info: Some(read_info(known)?), refetchable_from_date: date })
    } else if let Some(found) = value.get("discovered") {
        url_item::Item::Discovered(api::DiscoveredUrlItem { info: Some(read_info(found)?) })
    } else {
        return Err("neither \"known\" nor \"discovered\" is in it".to_owned());
    };
    Ok(api::UrlItem { id, creation_date: 0, item: Some(item) })
}

fn read_info(of: &Value) -> Result<api::UrlInfo, String> {
    let info = of.get("info").ok_or("an item without \"info\"")?;
    let text = |name: &str| info.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut metadata = std::collections::BTreeMap::new();
    for (name, list) in info.get("metadata").and_then(Value::as_object).into_iter().flatten() {
        let values = list.get("values").and_then(Value::as_array).into_iter().flatten();
        let values = values.map(|value| value.as_str().unwrap_or_default().to_owned()).collect();
        metadata.insert(name.clone(), api::StringList { values });
    }
    let crawl_id = if info.get("crawlID").is_some() { text("crawlID") } else { text("crawl_id") };
    Ok(api::UrlInfo { url: text("url"), key: text("key"), metadata, crawl_id })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_can_be_read_back() {
        let metadata = [("a".to_owned(), api::StringList { values: vec!["1".into(), "2".into()] })].into();
        let info = api::UrlInfo { url: "http://a/".into(), key: "k".into(), metadata, crawl_id: "c".into() };
        let known = api::KnownUrlItem { info: Some(info.clone()), refetchable_from_date: u64::MAX };
        let known = api::UrlItem { id: "x".into(), creation_date: 0, item: Some(url_item::Item::Known(known)) };
        assert_eq!(read(&item(&known).to_string()).as_ref(), Ok(&known));
        let found = api::DiscoveredUrlItem { info: Some(info) };
        let found = api::UrlItem { id: String::new(), creation_date: 0, item: Some(url_item::Item::Discovered(found)) };
        assert_eq!(read(&item(&found).to_string()).as_ref(), Ok(&found));
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert!(read("{").is_err() && read("{}").unwrap_err().contains("known"));
        assert!(read(r#"{"known":{"info":{"url":"x"},"refetchableFromDate":"soon"}}"#).unwrap_err().contains("soon"));
    }
}
