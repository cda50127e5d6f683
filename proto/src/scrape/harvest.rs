//! What templates find on a page: every template is tried, the best one counts.

use std::cmp::Reverse;

use regex::Regex;
use url::Url;

use super::moment::{MomentRules, recognise, with_format};
use super::output::Output;
use super::target::{Found, Target};
use super::template::{Condition, Form, Join, Rule, Tag, Template, Templates};
use super::tree::{Kind, Point, Tree};
use super::{Exhausted, Fuel, PAGE_BYTES_MAX, VALUE_BYTES_MAX};
use crate::date;

/// Things of one page.
const ITEMS_MAX: usize = 1_000;
/// Values of one rule.
const VALUES_MAX: usize = 10_000;
/// Attributes that hold a URL: their values are made absolute.
const URLS: [&str; 9] = ["href", "src", "action", "poster", "data-src", "data-href", "cite", "background", "longdesc"];

/// A page as rules look at it.
#[derive(Clone, Debug)]
pub struct Page<'a> {
    /// Parsed.
    pub tree: &'a Tree,
    /// As text.
    pub source: &'a str,
    /// Where it is from.
    pub url: &'a str,
    /// What references on it are relative to.
    pub base: Option<Url>,
}

impl<'a> Page<'a> {
    /// A page; its `<base>` counts.
    pub fn new(tree: &'a Tree, source: &'a str, url: &'a str) -> Page<'a> {
        let own = Url::parse(url).ok();
        let declared = (0..tree.len().min(10_000) as u32)
            .find(|node| tree.name_of(Point::node(*node)) == "base" && tree.attribute(*node, "href").is_some())
            .and_then(|node| tree.attribute(node, "href"))
            .and_then(|href| own.as_ref()?.join(href.trim()).ok());
        Page { tree, source, url, base: declared.or(own) }
    }

    fn absolute(&self, reference: &str) -> String {
        let reference = reference.trim();
        if reference.is_empty() {
            return String::new();
        }
        self.base.as_ref().and_then(|base| base.join(reference).ok()).map_or_else(|| reference.to_owned(), String::from)
    }
}

/// One thing that was found: its tags, in the order of the template, those that are filled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item(pub Vec<(String, String)>);

impl Item {
    /// The value of a tag.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// Gives a tag a value unless it has one.
    pub fn fill(&mut self, name: &str, value: impl Into<String>) {
        if self.get(name).is_none() {
            self.0.push((name.to_owned(), value.into()));
        }
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(|(name, value)| name.len() + value.len()).sum()
    }
}

/// What was found on a page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Harvest {
    /// The template that counts, by its place; `None` if none applies.
    pub template: Option<usize>,
    /// What it found: one thing, or those of a list.
    pub items: Vec<Item>,
    /// Tags that must be there and are not.
    pub missing: Vec<String>,
    /// A template that must find something found nothing.
    pub mandatory_empty: bool,
    /// It became too much, and is not all.
    pub exhausted: bool,
    /// How it is written, if the template says.
    pub output: Option<Output>,
}

impl Templates {
    /// Applies all templates to a page and gives what the best one found: the fewest mandatory tags missing, then the most tags (or the most text), then priority,
    /// then the first. `several` lets templates with `items` give one thing for each.
    pub fn harvest(&self, page: &Page<'_>, several: bool, moments: &MomentRules, fuel: &mut Fuel) -> Harvest {
        let mut best: Option<(Rank, Harvest)> = None;
        let (mut mandatory_empty, mut exhausted) = (false, false);
        for (at, template) in self.templates.iter().enumerate() {
            let applied = template.apply(page, several, moments, fuel);
            let (items, missing) = match applied {
                Ok(Some(found)) => found,
                Ok(None) => continue,
                Err(Exhausted) => {
                    exhausted = true;
                    break;
                }
            };
            let filled: usize = items.iter().map(|item| item.0.len()).sum();
            mandatory_empty |= template.mandatory && filled == 0;
            let amount = if self.longest { items.iter().map(Item::bytes).sum() } else { filled };
            let rank = (Reverse(missing.len()), amount, template.priority, Reverse(at));
            if best.as_ref().is_none_or(|(before, _)| rank > *before) {
                let output = template.output.clone();
                let found = Harvest { template: Some(at), items, missing, output, ..Harvest::default() };
                best = Some((rank, found));
            }
        }
        let found = best.map(|(_, found)| found).unwrap_or_default();
        Harvest { mandatory_empty, exhausted, ..found }
    }
}

type Rank = (Reverse<usize>, usize, i64, Reverse<usize>);
/// Things, and names of tags that are missing.
type Applied = (Vec<Item>, Vec<String>);

impl Template {
    /// `None` if its condition does not hold.
    fn apply(
        &self,
        page: &Page<'_>,
        several: bool,
        moments: &MomentRules,
        fuel: &mut Fuel,
    ) -> Result<Option<Applied>, Exhausted> {
        let holds = match &self.condition {
            None => true,
            Some(Condition::Url(pattern)) => pattern.is_match(page.url),
            Some(Condition::Page(target)) => target.holds(page.tree, fuel)?,
        };
        if !holds {
            return Ok(None);
        }
        let mut points = vec![Tree::ROOT];
        if let Some(items) = self.items.as_ref().filter(|_| several) {
            points = match items.find(page.tree, Tree::ROOT, fuel)? {
                Found::Points(points) => points,
                Found::Text(_) => Vec::new(),
            };
        }
        let (mut items, mut missing, mut room) = (Vec::new(), Vec::new(), PAGE_BYTES_MAX);
        for point in points.into_iter().take(ITEMS_MAX) {
            let mut item = Item::default();
            let mut lacks = Vec::new();
            for tag in &self.tags {
                let value = tag.value(page, point, moments, room, fuel)?;
                room = room.saturating_sub(value.len());
                match value.is_empty() {
                    false => item.0.push((tag.name.clone(), value)),
                    true if tag.mandatory => lacks.push(tag.name.clone()),
                    true => {}
                }
            }
            // Of a list, what lacks something is no thing of it.
            if lacks.is_empty() || !several || self.items.is_none() {
                items.push(item);
                missing.extend(lacks);
            }
        }
        if items.is_empty() {
            missing.extend(self.tags.iter().filter(|tag| tag.mandatory).map(|tag| tag.name.clone()));
        }
        Ok(Some((items, missing)))
    }
}

impl Tag {
    fn value(
        &self,
        page: &Page<'_>,
        from: Point,
        moments: &MomentRules,
        room: usize,
        fuel: &mut Fuel,
    ) -> Result<String, Exhausted> {
        let mut value = String::new();
        for rule in &self.rules {
            if rule.join == Join::First && !value.is_empty() {
                continue;
            }
            let found = rule.values(page, from, moments, fuel)?;
            match rule.join {
                Join::First => value = found.into_iter().next().unwrap_or_default(),
                Join::Concat => {
                    for piece in found {
                        if !value.is_empty() {
                            value.push_str(&rule.delimiter);
                        }
                        value.push_str(&piece);
                    }
                }
                Join::Best => {
                    // Of equals the first.
                    let longest = found.into_iter().rev().max_by_key(|piece| piece.chars().count()).unwrap_or_default();
                    if longest.chars().count() > value.chars().count() {
                        value = longest;
                    }
                }
            }
        }
        if value.is_empty() {
            value = self.default.clone().unwrap_or_default();
        }
        value.truncate(value.floor_char_boundary(room.min(VALUE_BYTES_MAX)));
        Ok(value)
    }
}

impl Rule {
    /// All that it finds and is not empty.
    fn values(
        &self,
        page: &Page<'_>,
        from: Point,
        moments: &MomentRules,
        fuel: &mut Fuel,
    ) -> Result<Vec<String>, Exhausted> {
        let mut values = Vec::new();
        let mut bytes = 0;
        let mut take = |raw: String, fuel: &mut Fuel| -> Result<bool, Exhausted> {
            fuel.burn_text(&raw)?;
            let value = self.finish(raw, page, moments, fuel)?;
            bytes += value.len();
            if !value.is_empty() {
                values.push(value);
            }
            let enough = self.join == Join::First && !values.is_empty();
            Ok(bytes < VALUE_BYTES_MAX && values.len() < VALUES_MAX && !enough)
        };
        match &self.target {
            None => {
                take(page.source.to_owned(), fuel)?;
            }
            Some(target) => match target.find(page.tree, from, fuel)? {
                Found::Points(points) => {
                    for point in points {
                        let raw = self.raw(page, point, fuel)?;
                        if !take(raw, fuel)? {
                            break;
                        }
                    }
                }
                Found::Text(text) => {
                    take(words(&text), fuel)?;
                }
            },
        }
        Ok(values)
    }

    /// What a point holds, in the form that is wanted.
    fn raw(&self, page: &Page<'_>, point: Point, fuel: &mut Fuel) -> Result<String, Exhausted> {
        let tree = page.tree;
        if point.attribute == 0 {
            fuel.burn(u64::from(tree.at(point.node).end - point.node))?;
        }
        let is_element = point.attribute == 0 && matches!(tree.at(point.node).kind, Kind::Element { .. });
        let attribute = |name: &str| if is_element { tree.attribute(point.node, name) } else { None };
        Ok(match &self.form {
            Form::Html => tree.markup(point, VALUE_BYTES_MAX),
            Form::Attribute(name) if is_element => {
                let value = attribute(name).unwrap_or_default();
                if URLS.contains(&name.to_ascii_lowercase().as_str()) {
                    page.absolute(value)
                } else {
                    value.trim().to_owned()
                }
            }
            Form::Image if is_element => {
                let image =
                    (point.node..tree.at(point.node).end).find(|node| tree.name_of(Point::node(*node)) == "img");
                let own = ["src", "data-src", "content", "href"].into_iter().find_map(attribute);
                let held =
                    image.and_then(|image| tree.attribute(image, "src").or_else(|| tree.attribute(image, "data-src")));
                page.absolute(held.or(own).unwrap_or_default())
            }
            Form::Image => page.absolute(&tree.text_of(point)),
            Form::Moment(_) if attribute("datetime").is_some() => attribute("datetime").unwrap_or_default().to_owned(),
            Form::Text | Form::Moment(_) | Form::Attribute(_) => {
                let text = tree.readable(point, VALUE_BYTES_MAX);
                // What a meta element says stands in an attribute.
                match attribute("content") {
                    Some(content) if text.is_empty() && tree.name_of(point) == "meta" => words(content),
                    _ if point.attribute > 0 && URLS.contains(&tree.name_of(point)) => page.absolute(&text),
                    _ => text,
                }
            }
        })
    }

    /// Cuts, changes and understands a value.
    fn finish(
        &self,
        raw: String,
        page: &Page<'_>,
        moments: &MomentRules,
        fuel: &mut Fuel,
    ) -> Result<String, Exhausted> {
        let mut value = raw;
        if !self.begin.is_empty() {
            value = value.split_once(&self.begin).map_or(String::new(), |(_, after)| after.to_owned());
        }
        if !self.end.is_empty() {
            value = value.split_once(&self.end).map_or(String::new(), |(before, _)| before.to_owned());
        }
        for (pattern, replacement) in &self.post {
            fuel.burn_text(&value)?;
            value = match replacement {
                Some(with) => pattern.replace_all(&value, with).into_owned(),
                None => kept_by(pattern, &value),
            };
            value.truncate(value.floor_char_boundary(VALUE_BYTES_MAX));
        }
        Ok(match &self.form {
            Form::Moment(format) => {
                let at = match format {
                    Some(format) => with_format(&value, format, moments),
                    None => recognise(&value, moments),
                };
                at.map(date::format).unwrap_or_default()
            }
            Form::Image if !self.post.is_empty() || !self.begin.is_empty() => page.absolute(&value),
            _ => value.trim().to_owned(),
        })
    }
}

fn kept_by(pattern: &Regex, value: &str) -> String {
    let Some(found) = pattern.captures(value) else { return String::new() };
    found.get(1).or_else(|| found.get(0)).map_or(String::new(), |part| part.as_str().to_owned())
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Target {
    /// The first value that it finds on a page, as a reader sees it.
    pub fn first(&self, tree: &Tree, fuel: &mut Fuel) -> Option<String> {
        match self.find(tree, Tree::ROOT, fuel).ok()? {
            Found::Points(points) => points.first().map(|point| tree.readable(*point, VALUE_BYTES_MAX)),
            Found::Text(text) => Some(words(&text)),
        }
        .filter(|value| !value.is_empty())
    }
}
