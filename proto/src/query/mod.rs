//! The query language over sites and URLs: conditions, order, limit, groups and aggregates; it can look and nothing else.
//!
//! ```text
//! SELECT url, size FROM urls WHERE siteId = 'news' AND status = 7 AND UDate > NOW() - INTERVAL 1 HOUR ORDER BY size DESC LIMIT 10
//! SELECT contentType, COUNT(*), SUM(size) FROM urls GROUP BY contentType
//! SELECT id, errors FROM sites WHERE errors > maxErrors AND maxErrors > 0
//! ```
//! The words are those of SQL, whose conditions the criterions of the HCE Distributed Crawler were. Names of fields and words may be written in any
//! case. Every field has a kind, and what compares a number with a text is refused when the query is read, with the place. A comparison with
//! NULL is neither true nor false, and a row is taken only if its condition is true.
//!
//! A query is answered in parts ([`Collector`]): each node looks at its own rows, and whoever was asked puts the parts together. Everything is bounded: the
//! text, its depth, the rows and groups of an answer.

mod collect;
mod evaluate;
mod parse;
#[cfg(test)]
mod tests;
mod token;
mod value;

pub use self::collect::{CollectError, Collector, Part, Table};
pub use self::evaluate::Row;
pub use self::value::{Kind, Value};

/// Bytes of a query.
pub const QUERY_BYTES_MAX: usize = 16 << 10;
/// Depth of parentheses, NOT and signs.
pub const DEPTH_MAX: usize = 32;
/// Values in one IN list.
pub const LIST_MAX: usize = 1_000;
/// Rows of an answer, those that OFFSET leaves out included, and groups.
pub const ROWS_MAX: usize = 10_000;
/// Rows of an answer if nothing is said, as the Distributed Crawler has it for URL_FETCH.
pub const ROWS_DEFAULT: usize = 20;

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// URLs.
    Urls,
    /// Sites.
    Sites,
    /// Attributes of a site and its URLs.
    Attributes,
    /// Proxies of a site.
    Proxies,
}

impl Source {
    /// Its fields.
    pub fn fields(self) -> &'static [(&'static str, Kind)] {
        match self {
            Source::Urls => URL_FIELDS,
            Source::Sites => SITE_FIELDS,
            Source::Attributes => ATTRIBUTE_FIELDS,
            Source::Proxies => PROXY_FIELDS,
        }
    }
}

/// Fields of a URL, by their names in JSON.
pub const URL_FIELDS: &[(&str, Kind)] = &[
    ("url", Kind::Text),
    ("siteId", Kind::Text),
    ("urlMd5", Kind::Text),
    ("parentMd5", Kind::Text),
    ("host", Kind::Text),
    ("domain", Kind::Text),
    ("status", Kind::Number),
    ("state", Kind::Number),
    ("errorMask", Kind::Number),
    ("failure", Kind::Text),
    ("httpCode", Kind::Number),
    ("contentType", Kind::Text),
    ("charset", Kind::Text),
    ("language", Kind::Text),
    ("title", Kind::Text),
    ("size", Kind::Number),
    ("depth", Kind::Number),
    ("priority", Kind::Number),
    ("crawled", Kind::Number),
    ("processed", Kind::Number),
    ("changes", Kind::Number),
    ("unchanged", Kind::Number),
    ("round", Kind::Number),
    ("freq", Kind::Number),
    ("linksI", Kind::Number),
    ("linksE", Kind::Number),
    ("crawlingTime", Kind::Number),
    ("processingTime", Kind::Number),
    ("totalTime", Kind::Number),
    ("rawContentMd5", Kind::Text),
    ("contentURLMd5", Kind::Text),
    ("eTag", Kind::Text),
    ("lastModified", Kind::Text),
    ("noindex", Kind::Number),
    ("CDate", Kind::Time),
    ("UDate", Kind::Time),
    ("tcDate", Kind::Time),
    ("pDate", Kind::Time),
    ("tagsCount", Kind::Number),
    ("mRate", Kind::Number),
    ("mRateCounter", Kind::Number),
    ("contentMask", Kind::Number),
    ("md5", Kind::Text),
];

/// Fields of a site, by their names in JSON.
pub const SITE_FIELDS: &[(&str, Kind)] = &[
    ("id", Kind::Text),
    ("description", Kind::Text),
    ("url", Kind::Text),
    ("state", Kind::Number),
    ("priority", Kind::Number),
    ("urlType", Kind::Number),
    ("userId", Kind::Number),
    ("categoryId", Kind::Number),
    ("resources", Kind::Number),
    ("contents", Kind::Number),
    ("collectedURLs", Kind::Number),
    ("newURLs", Kind::Number),
    ("errors", Kind::Number),
    ("size", Kind::Number),
    ("iterations", Kind::Number),
    ("errorMask", Kind::Number),
    ("maxURLs", Kind::Number),
    ("maxURLsFromPage", Kind::Number),
    ("maxResources", Kind::Number),
    ("maxErrors", Kind::Number),
    ("maxResourceSize", Kind::Number),
    ("requestDelay", Kind::Number),
    ("processingDelay", Kind::Number),
    ("httpTimeout", Kind::Number),
    ("fetchType", Kind::Number),
    ("recrawlPeriod", Kind::Number),
    ("recrawlDate", Kind::Time),
    ("cDate", Kind::Time),
    ("uDate", Kind::Time),
    ("tcDate", Kind::Time),
];

/// Fields of an attribute.
pub const ATTRIBUTE_FIELDS: &[(&str, Kind)] = &[
    ("siteId", Kind::Text),
    ("name", Kind::Text),
    ("urlMd5", Kind::Text),
    ("value", Kind::Text),
    ("cDate", Kind::Time),
];

/// Fields of a proxy.
pub const PROXY_FIELDS: &[(&str, Kind)] = &[
    ("host", Kind::Text),
    ("priority", Kind::Number),
    ("state", Kind::Number),
    ("faults", Kind::Number),
    ("faultsMax", Kind::Number),
    ("countryCode", Kind::Text),
    ("description", Kind::Text),
];

/// Why a text is no query.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at character {at}: {what}")]
pub struct QueryError {
    /// Where, counted from 1.
    pub at: usize,
    /// What is wrong there.
    pub what: String,
}

/// A query, understood.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// What is looked at.
    pub source: Source,
    /// What is told of each row, or group.
    pub columns: Vec<Column>,
    condition: Option<Condition>,
    groups: Vec<&'static str>,
    order: Vec<(Column, bool)>,
    /// Rows at most.
    pub limit: usize,
    /// Rows left out before them.
    pub offset: usize,
}

/// Something that is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// A field.
    Field(&'static str),
    /// A figure over the rows of a group; of no field in particular for COUNT(*).
    Figure(Figure, Option<&'static str>),
}

/// A figure over rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// How many rows have a value.
    Count,
    /// Their sum.
    Sum,
    /// Their mean.
    Avg,
    /// The smallest.
    Min,
    /// The largest.
    Max,
}

impl Figure {
    const ALL: [(&'static str, Figure); 5] = [
        ("COUNT", Figure::Count),
        ("SUM", Figure::Sum),
        ("AVG", Figure::Avg),
        ("MIN", Figure::Min),
        ("MAX", Figure::Max),
    ];

    fn name(self) -> &'static str {
        Figure::ALL.iter().find(|(_, figure)| *figure == self).map_or("", |(name, _)| name)
    }
}

impl Column {
    /// As it stands in the head of an answer.
    pub fn name(self) -> String {
        match self {
            Column::Field(name) => name.to_owned(),
            Column::Figure(figure, field) => format!("{}({})", figure.name(), field.unwrap_or("*")),
        }
    }
}

/// A condition on a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition(Test);

/// A test that is true, false, or neither because something is not known.
#[derive(Clone, Debug, PartialEq)]
enum Test {
    All(Vec<Test>),
    Any(Vec<Test>),
    Not(Box<Test>),
    Compare(Operand, Comparison, Operand),
    In(Operand, Vec<Value>),
    Like(Operand, String),
    IsNull(Operand),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    Different,
    Less,
    AtMost,
    More,
    AtLeast,
}

/// Something that has a value.
#[derive(Clone, Debug, PartialEq)]
enum Operand {
    Field(&'static str),
    Literal(Value),
    Now,
    Calculated(Box<Operand>, Arithmetic, Box<Operand>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arithmetic {
    Plus,
    Minus,
    Times,
    Over,
    And,
}

impl Query {
    /// Reads a whole query.
    pub fn parse(text: &str) -> Result<Query, QueryError> {
        parse::query(text)
    }

    /// A query for whole rows, of criterions as the Distributed Crawler has them: each a piece of SQL, and each may be empty.
    pub fn of_criterions(
        source: Source,
        condition: &str,
        order: &str,
        limit: Option<usize>,
        offset: usize,
    ) -> Result<Query, QueryError> {
        parse::criterions(source, condition, order, limit, offset)
    }

    /// Whether rows are put together in groups.
    pub fn is_grouped(&self) -> bool {
        !self.groups.is_empty() || self.columns.iter().any(|column| matches!(column, Column::Figure(..)))
    }

    /// Whether it is only about URLs of some sites: those that its condition names as `siteId = '…'` in every case. `None` for all sites.
    pub fn sites(&self) -> Option<Vec<&str>> {
        self.condition.as_ref().and_then(|condition| condition.0.sites())
    }
}

impl Condition {
    /// Reads a condition alone.
    pub fn parse(source: Source, text: &str) -> Result<Condition, QueryError> {
        parse::condition(source, text)
    }
}

impl Test {
    fn sites(&self) -> Option<Vec<&str>> {
        match self {
            Test::Compare(Operand::Field("siteId"), Comparison::Equal, Operand::Literal(Value::Text(id)))
            | Test::Compare(Operand::Literal(Value::Text(id)), Comparison::Equal, Operand::Field("siteId")) => {
                Some(vec![id])
            }
            Test::In(Operand::Field("siteId"), values) => Some(
                values
                    .iter()
                    .filter_map(|value| match value {
                        Value::Text(id) => Some(id.as_str()),
                        _ => None,
                    })
                    .collect(),
            ),
            Test::All(tests) => tests.iter().find_map(Test::sites),
            Test::Any(tests) => {
                let all: Option<Vec<Vec<&str>>> = tests.iter().map(Test::sites).collect();
                all.map(|all| all.concat())
            }
            _ => None,
        }
    }
}
