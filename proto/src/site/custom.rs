//! What SQL_CUSTOM is asked with: a query over sites or URLs, or several.

use serde::Deserialize;
use serde_json::Value as Json;

use super::operation::{BadRequest, read};
use super::{Ignored, flag};
use crate::query::Query;

/// Queries of one request.
const QUERIES_MAX: usize = 100;

/// What SQL_CUSTOM is asked with.
#[derive(Clone, Debug, PartialEq)]
pub struct SqlCustom {
    /// The queries, as they were written and as they are understood.
    pub queries: Vec<(String, Query)>,
    /// They came as a list, and are answered with one.
    pub is_list: bool,
    /// Rows are told by the names of their fields, and not by their places in the head.
    pub by_names: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    query: Json,
    #[serde(rename = "includeFieldsNames", default = "yes", deserialize_with = "flag")]
    by_names: bool,
    #[serde(rename = "rid", default)]
    _rid: Ignored,
    #[serde(rename = "dbName", default)]
    _database: Ignored,
}

fn yes() -> bool {
    true
}

impl SqlCustom {
    /// Reads one.
    pub fn read(body: Json) -> Result<SqlCustom, BadRequest> {
        let Fields { query, by_names, .. } = read(body)?;
        let (is_list, texts) = match query {
            Json::Array(texts) => (true, texts),
            one => (false, vec![one]),
        };
        if texts.len() > QUERIES_MAX {
            return Err(BadRequest::new("query", format!("{} of them, more than {QUERIES_MAX}", texts.len())));
        }
        let understood = |(at, text): (usize, Json)| {
            let field = if is_list { format!("query[{at}]") } else { "query".to_owned() };
            let Json::String(text) = text else {
                return Err(BadRequest::new(&field, "is no text: SELECT … FROM urls or sites …".to_owned()));
            };
            let query = Query::parse(&text).map_err(|error| BadRequest::new(&field, error.to_string()))?;
            Ok((text, query))
        };
        let queries = texts.into_iter().enumerate().map(understood).collect::<Result<_, _>>()?;
        Ok(SqlCustom { queries, is_list, by_names })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const GOOD: &str = "SELECT url FROM urls";

    #[test]
    fn one_query_or_several_by_names_or_places() {
        let one = SqlCustom::read(json!({"rid": 7, "dbName": "dc_urls", "query": GOOD})).unwrap();
        assert_eq!((one.queries[0].0.as_str(), one.is_list, one.by_names), (GOOD, false, true));
        let two = json!({"query": [GOOD, "SELECT id FROM sites"], "includeFieldsNames": 0});
        let two = SqlCustom::read(two).unwrap();
        assert_eq!((two.queries.len(), two.is_list, two.by_names), (2, true, false));
    }

    #[test]
    fn every_bad_request_names_its_field() {
        for (body, words) in [
            (json!({}), "query"),
            (json!({"query": 7}), "query: is no text"),
            (json!({"query": [GOOD, "DROP TABLE urls"]}), "query[1]: at character"),
            (json!({"query": vec![GOOD; QUERIES_MAX + 1]}), "query: 101"),
            (json!({"query": GOOD, "includeFieldsNames": 2}), "includeFieldsNames"),
            (json!({"query": GOOD, "nosuch": 1}), "nosuch"),
            (json!([]), "object"),
        ] {
            let bad = SqlCustom::read(body.clone()).unwrap_err().to_string();
            assert!(bad.contains(words), "{body}: {bad}");
        }
    }
}
