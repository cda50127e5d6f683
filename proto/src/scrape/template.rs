//! Templates: which tags a page has, and where each is looked for. The JSON is that of the original.
//!
//! ```json
//! {"templates": [{"priority": 1, "tags": {
//!     "title": [{"target": "//h1", "mandatory": 1}, {"target": "title"}],
//!     "content_encoded": [{"target": "article p", "join": "concat", "delimiter": "\n"}],
//!     "pubdate": [{"target": "//time/@datetime", "type": {"name": "datetime"}}],
//!     "source": {"default": "example"}}}],
//!  "select": "first_nonempty"}
//! ```

use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value as Json};

use super::output::Output;
use super::target::Target;

/// Templates of a site.
const TEMPLATES_MAX: usize = 32;
/// Tags of a template.
const TAGS_MAX: usize = 128;
/// Rules of a tag.
const RULES_MAX: usize = 32;
/// Bytes that a regular expression may take when it is compiled.
const REGEX_BYTES_MAX: usize = 1 << 20;

/// What is wrong with a template: the way to the rule, and what is wrong there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}{what}", path, if path.is_empty() { "" } else { ": " })]
pub struct TemplateError {
    /// As in `templates[0].tags.title[1].target`.
    pub path: String,
    /// What.
    pub what: String,
}

impl TemplateError {
    pub(super) fn new(path: impl Into<String>, what: impl ToString) -> TemplateError {
        TemplateError { path: path.into(), what: what.to_string() }
    }
}

/// The templates of a site, understood.
#[derive(Clone, Debug)]
pub struct Templates {
    pub(super) templates: Vec<Template>,
    /// The one that gives most text wins, not the one that fills most tags.
    pub(super) longest: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Template {
    pub(super) priority: i64,
    /// It is an error if nothing of it is found.
    pub(super) mandatory: bool,
    pub(super) condition: Option<Condition>,
    /// Where the things of a list are; without it a page is one thing.
    pub(super) items: Option<Target>,
    pub(super) tags: Vec<Tag>,
    pub(super) output: Option<Output>,
}

#[derive(Clone, Debug)]
pub(super) enum Condition {
    Url(Regex),
    Page(Target),
}

#[derive(Clone, Debug)]
pub(super) struct Tag {
    pub(super) name: String,
    pub(super) rules: Vec<Rule>,
    pub(super) default: Option<String>,
    pub(super) mandatory: bool,
}

/// What becomes of what a rule finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Join {
    /// The first of it, if the tag has nothing yet.
    First,
    /// All of it, after what the tag has.
    Concat,
    /// The longest of it, if it is longer than what the tag has.
    Best,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    Html,
    Moment(Option<String>),
    Image,
    Attribute(String),
}

#[derive(Clone, Debug)]
pub(super) struct Rule {
    /// Without a target the whole source is looked at, between `begin` and `end`.
    pub(super) target: Option<Target>,
    pub(super) begin: String,
    pub(super) end: String,
    pub(super) form: Form,
    pub(super) join: Join,
    pub(super) delimiter: String,
    pub(super) post: Vec<(Regex, Option<String>)>,
}

type Read<T> = Result<T, TemplateError>;

impl Templates {
    /// Reads templates. `delimiter` stands between values where a rule says none.
    pub fn parse(text: &str, delimiter: &str) -> Read<Templates> {
        let json: Json =
            serde_json::from_str(text).map_err(|error| TemplateError::new("", format!("no JSON: {error}")))?;
        Templates::read(&json, delimiter)
    }

    fn read(json: &Json, delimiter: &str) -> Read<Templates> {
        // One template alone, or a list of them, is what it looks like.
        let (list, select) = match json {
            Json::Object(fields) if fields.contains_key("tags") => (std::slice::from_ref(json), None),
            Json::Array(list) => (list.as_slice(), None),
            _ => {
                let fields = object(json, "", &["templates", "select"])?;
                let Some(Json::Array(list)) = fields.get("templates") else {
                    return Err(TemplateError::new("templates", "is missing: a list of templates"));
                };
                (list.as_slice(), fields.get("select"))
            }
        };
        if list.is_empty() || list.len() > TEMPLATES_MAX {
            return Err(TemplateError::new("templates", format!("1 to {TEMPLATES_MAX} of them")));
        }
        let longest = match select {
            None | Some(Json::Null) => false,
            Some(Json::String(text)) => text != "first_nonempty",
            Some(_) => return Err(TemplateError::new("select", "is a text: first_nonempty, or longest")),
        };
        let mut templates = Vec::new();
        for (at, json) in list.iter().enumerate() {
            templates.extend(template(json, &format!("templates[{at}]"), delimiter)?);
        }
        Ok(Templates { templates, longest })
    }
}

/// Reads a template; `None` if it is switched off.
fn template(json: &Json, path: &str, delimiter: &str) -> Read<Option<Template>> {
    let known = [
        "priority",
        "mandatory",
        "is_filled",
        "state",
        "condition",
        "tags",
        "output_format",
        "items",
        "itemsType",
        "name",
        "id",
    ];
    let fields = object(json, path, &known)?;
    let priority = match fields.get("priority") {
        None | Some(Json::Null) => 0,
        Some(value) => integer(value).ok_or_else(|| TemplateError::new(format!("{path}.priority"), "is a number"))?,
    };
    let mandatory = flag(fields, "mandatory", path)?.unwrap_or(false);
    let on = flag(fields, "state", path)?.unwrap_or(true);
    let condition = match fields.get("condition") {
        None | Some(Json::Null) => None,
        Some(Json::String(text)) if text.is_empty() => None,
        Some(value) => Some(condition(value, &format!("{path}.condition"))?),
    };
    let items = target(fields, "items", "itemsType", path)?;
    let Some(Json::Object(all)) = fields.get("tags") else {
        return Err(TemplateError::new(format!("{path}.tags"), "is missing: an object of tags"));
    };
    if all.is_empty() || all.len() > TAGS_MAX {
        return Err(TemplateError::new(format!("{path}.tags"), format!("1 to {TAGS_MAX} of them")));
    }
    let mut tags = Vec::new();
    for (name, json) in all {
        tags.push(tag(name, json, &format!("{path}.tags.{name}"), delimiter)?);
    }
    let output = match fields.get("output_format") {
        None | Some(Json::Null) => None,
        Some(json) => Some(Output::read(json, &format!("{path}.output_format"))?),
    };
    Ok(on.then_some(Template { priority, mandatory, condition, items, tags, output }))
}

fn condition(json: &Json, path: &str) -> Read<Condition> {
    match json {
        Json::String(text) => read_target(text, path).map(Condition::Page),
        Json::Object(fields) if fields.len() == 1 && fields.contains_key("url") => {
            let Some(Json::String(text)) = fields.get("url") else {
                return Err(TemplateError::new(format!("{path}.url"), "is a regular expression"));
            };
            regex(text, &format!("{path}.url")).map(Condition::Url)
        }
        _ => Err(TemplateError::new(
            path,
            "is a target that must be found on the page, or {\"url\": a regular expression}",
        )),
    }
}

fn tag(name: &str, json: &Json, path: &str, delimiter: &str) -> Read<Tag> {
    let list: Vec<(String, &Json)> = match json {
        Json::Array(list) => list.iter().enumerate().map(|(at, one)| (format!("{path}[{at}]"), one)).collect(),
        one => vec![(path.to_owned(), one)],
    };
    if list.is_empty() || list.len() > RULES_MAX {
        return Err(TemplateError::new(path, format!("1 to {RULES_MAX} rules")));
    }
    let mut tag = Tag { name: name.to_owned(), rules: Vec::new(), default: None, mandatory: false };
    for (path, json) in list {
        if let Json::String(text) = json {
            let target = Some(read_target(text, &path)?);
            tag.rules.push(Rule { target, ..Rule::new(delimiter) });
            continue;
        }
        let known = [
            "target",
            "targetType",
            "begin",
            "end",
            "type",
            "format",
            "join",
            "delimiter",
            "mandatory",
            "attribute",
            "postProcessing",
            "default",
        ];
        let fields = object(json, &path, &known)?;
        if let Some(text) = text(fields, "default", &path)? {
            tag.default = Some(text);
        }
        tag.mandatory |= flag(fields, "mandatory", &path)?.unwrap_or(false);
        if fields.contains_key("target") || fields.contains_key("begin") {
            tag.rules.push(rule(fields, &path, delimiter)?);
        } else if tag.default.is_none() {
            return Err(TemplateError::new(format!("{path}.target"), "is missing: where is the tag looked for?"));
        }
    }
    Ok(tag)
}

impl Rule {
    fn new(delimiter: &str) -> Rule {
        Rule {
            target: None,
            begin: String::new(),
            end: String::new(),
            form: Form::Text,
            join: Join::First,
            delimiter: delimiter.to_owned(),
            post: Vec::new(),
        }
    }
}

fn rule(fields: &Map<String, Json>, path: &str, delimiter: &str) -> Read<Rule> {
    let target = target(fields, "target", "targetType", path)?;
    let named = |name: &str| format!("{path}.{name}");
    let attribute = text(fields, "attribute", path)?;
    let (name, format) = match fields.get("type") {
        None | Some(Json::Null) => (if attribute.is_some() { "attribute" } else { "text" }.to_owned(), None),
        Some(Json::String(name)) => (name.clone(), None),
        Some(json) => {
            let kind = object(json, &named("type"), &["name", "format"])?;
            let name = text(kind, "name", &named("type"))?;
            let name = name.ok_or_else(|| TemplateError::new(named("type.name"), "is missing"))?;
            (name, text(kind, "format", &named("type"))?)
        }
    };
    let format = format.or(text(fields, "format", path)?).filter(|format| !format.is_empty());
    let form = match (name.as_str(), attribute) {
        ("text", _) => Form::Text,
        ("html", _) => Form::Html,
        ("datetime", _) => Form::Moment(format),
        ("image", _) => Form::Image,
        ("attribute", Some(attribute)) => Form::Attribute(attribute),
        ("attribute", None) => return Err(TemplateError::new(named("attribute"), "is missing: which attribute?")),
        (other, _) => {
            let what = format!("{other:?}: there are text, html, datetime, image and attribute");
            return Err(TemplateError::new(named("type.name"), what));
        }
    };
    let join = match text(fields, "join", path)?.as_deref() {
        None | Some("first") => Join::First,
        Some("concat") => Join::Concat,
        Some("best") => Join::Best,
        Some(other) => {
            return Err(TemplateError::new(named("join"), format!("{other:?}: there are first, concat and best")));
        }
    };
    Ok(Rule {
        target,
        begin: text(fields, "begin", path)?.unwrap_or_default(),
        end: text(fields, "end", path)?.unwrap_or_default(),
        form,
        join,
        delimiter: text(fields, "delimiter", path)?.unwrap_or_else(|| delimiter.to_owned()),
        post: post(fields.get("postProcessing"), &named("postProcessing"))?,
    })
}

/// What is done with a value: a regular expression of which the first group, or all, is kept; or one that is replaced.
fn post(json: Option<&Json>, path: &str) -> Read<Vec<(Regex, Option<String>)>> {
    let list: Vec<(String, &Json)> = match json {
        None | Some(Json::Null) => Vec::new(),
        Some(Json::Array(list)) => list.iter().enumerate().map(|(at, one)| (format!("{path}[{at}]"), one)).collect(),
        Some(one) => vec![(path.to_owned(), one)],
    };
    let mut all = Vec::new();
    for (path, json) in list {
        match json {
            Json::String(pattern) if pattern.is_empty() => {}
            Json::String(pattern) => all.push((regex(pattern, &path)?, None)),
            _ => {
                let fields = object(json, &path, &["pattern", "replace"])?;
                let pattern = text(fields, "pattern", &path)?;
                let pattern = pattern.ok_or_else(|| TemplateError::new(format!("{path}.pattern"), "is missing"))?;
                all.push((regex(&pattern, &format!("{path}.pattern"))?, text(fields, "replace", &path)?));
            }
        }
    }
    Ok(all)
}

fn target(fields: &Map<String, Json>, name: &str, kind: &str, path: &str) -> Read<Option<Target>> {
    let here = format!("{path}.{name}");
    let Some(said) = text(fields, name, path)?.filter(|said| !said.trim().is_empty()) else { return Ok(None) };
    let wrong = |error: super::RuleError| TemplateError::new(here.clone(), format!("{error} in {said:?}"));
    let read = match text(fields, kind, path)?.map(|kind| kind.to_ascii_lowercase()).as_deref() {
        None => Target::parse(&said),
        Some("xpath") => Target::xpath(&said),
        Some("css") => Target::css(&said),
        Some(other) => {
            return Err(TemplateError::new(format!("{path}.{kind}"), format!("{other:?}: there are xpath and css")));
        }
    };
    read.map(Some).map_err(wrong)
}

fn read_target(text: &str, path: &str) -> Read<Target> {
    Target::parse(text).map_err(|error| TemplateError::new(path, format!("{error} in {text:?}")))
}

pub(super) fn regex(text: &str, path: &str) -> Read<Regex> {
    RegexBuilder::new(text).size_limit(REGEX_BYTES_MAX).build().map_err(|error| {
        let what = error.to_string();
        TemplateError::new(path, what.lines().last().unwrap_or("is no regular expression"))
    })
}

pub(super) fn object<'a>(json: &'a Json, path: &str, known: &[&str]) -> Read<&'a Map<String, Json>> {
    let Json::Object(fields) = json else { return Err(TemplateError::new(path, "is no object")) };
    if let Some(name) = fields.keys().find(|name| !known.contains(&name.as_str())) {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        return Err(TemplateError::new(path, format!("is not known; there are {}", known.join(", "))));
    }
    Ok(fields)
}

pub(super) fn text(fields: &Map<String, Json>, name: &str, path: &str) -> Read<Option<String>> {
    match fields.get(name) {
        None | Some(Json::Null) => Ok(None),
        Some(Json::String(text)) => Ok(Some(text.clone())),
        Some(Json::Number(number)) => Ok(Some(number.to_string())),
        Some(_) => Err(TemplateError::new(format!("{path}.{name}"), "is no text")),
    }
}

fn integer(json: &Json) -> Option<i64> {
    match json {
        Json::Number(number) => number.as_i64(),
        Json::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// The original writes yes and no as `true`, `1` and `"1"`.
fn flag(fields: &Map<String, Json>, name: &str, path: &str) -> Read<Option<bool>> {
    match fields.get(name) {
        None | Some(Json::Null) => Ok(None),
        Some(Json::Bool(said)) => Ok(Some(*said)),
        Some(value) => match integer(value) {
            Some(number) => Ok(Some(number != 0)),
            None => Err(TemplateError::new(format!("{path}.{name}"), "is neither yes (1) nor no (0)")),
        },
    }
}
