//! OSEM002: reads the links out of every answer that came and was not read yet.
//!
//! Links that lead to pages go to `.links.<id>`, each once, sorted; what is no link to a page of the web goes to `.links.malformed.<id>` as it stands in the page. Where a
//! redirect leads is a link too. Links that ask not to be followed are in neither. Whatever is done twice after a kill gives the same files.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeSet;

use lol_html::{HtmlRewriter, MemorySettings, Settings, element};
use proto::ose::OseId;
use proto::ose::links::OseRule;
use proto::ose::name::OseFile;
use proto::ose::row::OseRow;
use proto::ose::status::{OseStatus, Phase};
use proto::url::CanonicalUrl;
use serde::Serialize;
use tracing::info;

use super::answer::Answer;
use super::folder::Folder;
use super::{Damages, OseError};
use crate::actors::parser::read_page;
use crate::edges::http::Fetched;
use crate::extract::{ExtractRules, PageKind};

/// How answers are read.
pub struct ParseSettings {
    /// Which links are valid.
    pub rule: OseRule,
    /// How pages are read.
    pub rules: ExtractRules,
    /// Our name in robots directives.
    pub product_token: String,
    /// How much of an answer is read, decoded.
    pub page_bytes_max: usize,
    /// What is written as the time of parsing, Unix milliseconds.
    pub now_ms: fn() -> u64,
}

/// What a run has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ParseReport {
    /// Answers that were read.
    pub parsed: u64,
    /// Links found in them.
    pub links: u64,
    /// Links that are none.
    pub malformed: u64,
    /// Damaged rows.
    pub damages: Damages,
    /// How long it took, in milliseconds.
    pub elapsed_ms: u64,
}

/// Runs the program, in state 2, or in state 3 when a former run died.
pub fn parse(folder: &Folder, settings: &ParseSettings) -> Result<ParseReport, OseError> {
    let status = folder.status()?;
    if !matches!(status.phase, Phase::Fetched | Phase::Parsing) {
        return Err(OseError::NotNow { program: "parse", wanted: Phase::Fetched, found: status.phase });
    }
    let started = std::time::Instant::now();
    let mut old = folder.lines(OseFile::Urls)?;
    if status.phase == Phase::Fetched && folder.has(OseFile::Working(3)) {
        std::fs::remove_file(folder.file(OseFile::Working(3))).map_err(OseError::io("remove", folder.path()))?;
    }
    folder.set_status(OseStatus { phase: Phase::Parsing, ..status })?;
    let (mut new, _) = folder.rewrite(OseFile::Working(3), &mut old)?;
    let mut report = ParseReport::default();
    for line in old {
        let line = line?;
        let row = match &line.row {
            Ok(row) => row,
            Err(damaged) => {
                report.damages.note(damaged.clone());
                new.push(&line.bytes)?;
                continue;
            }
        };
        let parsed = match row.unparsed().map(|id| (id, read(folder, id, row, settings))) {
            None => None,
            Some((id, Ok(found))) => {
                folder.write(OseFile::Links(id), &lines_of(&found.links))?;
                folder.write(OseFile::Malformed(id), &lines_of(&found.malformed))?;
                report.parsed += 1;
                report.links += found.links.len() as u64;
                report.malformed += found.malformed.len() as u64;
                Some(OseRow { parsed: Some((settings.now_ms)()), ..row.clone() })
            }
            Some((_, Err(Unreadable::Row(reason)))) => {
                report.damages.note(line.damaged_url(OseFile::Urls, reason));
                None
            }
            Some((_, Err(Unreadable::Folder(error)))) => return Err(error),
        };
        match parsed {
            Some(row) => new.push(row.to_line().as_bytes())?,
            None => new.push(&line.bytes)?,
        }
    }
    new.sync(folder)?;
    folder.replace_urls(OseFile::Working(3))?;
    folder.set_status(OseStatus { phase: Phase::Parsed, ..status })?;
    report.elapsed_ms = started.elapsed().as_millis() as u64;
    info!(folder = %folder.path().display(), parsed = report.parsed, elapsed_ms = report.elapsed_ms, "parsed");
    Ok(report)
}

enum Unreadable {
    /// The row cannot be parsed; it stays as it is.
    Row(String),
    /// Nothing can.
    Folder(OseError),
}

/// The links of an answer, each once, sorted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Valid ones.
    pub links: BTreeSet<String>,
    /// The others, as they stand there.
    pub malformed: BTreeSet<String>,
}

fn read(folder: &Folder, id: OseId, row: &OseRow, settings: &ParseSettings) -> Result<Found, Unreadable> {
    let file = OseFile::Answer(id);
    if !folder.has(file) {
        return Err(Unreadable::Row(format!("its answer {id} is missing")));
    }
    let url =
        CanonicalUrl::parse(&row.url, &settings.rules.urls).map_err(|error| Unreadable::Row(error.to_string()))?;
    let bytes = folder.read(file).map_err(Unreadable::Folder)?;
    let Some(answer) = Answer::parse(&bytes) else { return Ok(Found::default()) }; // nobody answered, or not by HTTP
    let fetched = answer.into_fetched(&url, 0, settings.page_bytes_max);
    Ok(links_of(&url, &fetched, settings))
}

/// The links of an answer.
pub fn links_of(url: &CanonicalUrl, fetched: &Fetched, settings: &ParseSettings) -> Found {
    let mut found = Found::default();
    let base = url.to_url();
    let judge = |found: &mut Found, base: &url::Url, link: &str| {
        match settings.rule.valid(base, link, &settings.rules.urls) {
            Some(link) => found.links.insert(link),
            None => found.malformed.insert(one_line(link)),
        };
    };
    if let Some(target) = fetched.location().filter(|_| (300..400).contains(&fetched.status)) {
        judge(&mut found, &base, &target);
    }
    if !(200..300).contains(&fetched.status) {
        return found;
    }
    let page = read_page(url, fetched, &settings.product_token, &settings.rules, None);
    if settings.rule == OseRule::Resolved {
        let followed = page.links.iter().filter(|link| !link.nofollow && link.kind.leads_to_page());
        found.links.extend(followed.map(|link| link.url.as_str().to_owned()));
    }
    if page.kind == PageKind::Html && !page.nofollow {
        let anchors = anchors(&fetched.body, page.charset, settings.rules.limits.links_max);
        let base = anchors.base.and_then(|href| base.join(&href).ok()).unwrap_or(base);
        for href in &anchors.hrefs {
            match settings.rule {
                OseRule::Strict => judge(&mut found, &base, href),
                OseRule::Resolved if settings.rule.valid(&base, href, &settings.rules.urls).is_none() => {
                    found.malformed.insert(one_line(href));
                }
                OseRule::Resolved => {} // what leads somewhere was found above
            }
        }
    }
    found
}

/// `<a href>` of a page as they stand there, and its `<base href>`.
#[derive(Default)]
struct Anchors {
    hrefs: Vec<String>,
    base: Option<String>,
}

fn anchors(body: &[u8], charset: Option<&'static str>, max: usize) -> Anchors {
    let encoding = charset.and_then(|name| encoding_rs::Encoding::for_label(name.as_bytes()));
    let (text, ..) = encoding.unwrap_or(encoding_rs::UTF_8).decode(body);
    let found = RefCell::new(Anchors::default());
    let settings = Settings::new()
        .append_element_content_handler(element!("a[href]", |element| {
            let mut found = found.borrow_mut();
            let follow = element.get_attribute("rel").is_none_or(|rel| !names(&rel, "nofollow"));
            if let Some(href) = element.get_attribute("href").filter(|_| follow && found.hrefs.len() < max) {
                found.hrefs.push(unescaped(&href));
            }
            Ok(())
        }))
        .append_element_content_handler(element!("base[href]", |element| {
            let href = element.get_attribute("href").map(|href| unescaped(&href));
            let mut found = found.borrow_mut();
            found.base = found.base.take().or(href);
            Ok(())
        }))
        .with_memory_settings(MemorySettings::new().with_max_allowed_memory_usage(1 << 20))
        .with_strict(false);
    let mut rewriter = HtmlRewriter::new(settings, |_: &[u8]| {});
    // What a page that breaks off has given until then is what there is.
    match rewriter.write(text.as_bytes()) {
        Ok(()) => drop(rewriter.end()),
        Err(_) => drop(rewriter),
    }
    found.into_inner()
}

fn unescaped(text: &str) -> String {
    htmlize::unescape_attribute(text.trim()).into_owned()
}

fn names(rel: &str, word: &str) -> bool {
    rel.split_ascii_whitespace().any(|own| own.eq_ignore_ascii_case(word))
}

/// A link as one line, at most as long as a URL may be.
fn one_line(link: &str) -> String {
    let line: Cow<'_, str> = match link.chars().any(char::is_control) {
        true => link.chars().filter(|char| !char.is_control()).collect(),
        false => Cow::Borrowed(link),
    };
    line.chars().take(proto::url::URL_BYTES_MAX).collect()
}

fn lines_of(links: &BTreeSet<String>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(links.iter().map(|link| link.len() + 1).sum());
    for link in links {
        bytes.extend_from_slice(link.as_bytes());
        bytes.push(b'\n');
    }
    bytes
}
