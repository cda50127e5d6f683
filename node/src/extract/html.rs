//! Reads HTML in one pass: references, title, visible text, base, canonical and robots.
//!
//! One handler sees every opening tag and one sees every piece of text; both know where in the source they are. What
//! lies between two of them are closing tags and comments, so closing tags are read from there: cheaper than a handler
//! for each. References stay slices of the source until the end, when the base is known; nothing is copied before.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::LazyLock;

use lol_html::errors::RewritingError;
use lol_html::html_content::{Element, TextChunk, TextType};
use lol_html::{ElementContentHandlers, HtmlRewriter, MemorySettings, Selector, Settings, doc_text};
use url::Url;

use super::links::{LinkSet, trim};
use super::page::{Defect, Extracted, LinkKind, PageInput};
use super::robots::Directives;
use super::rules::ExtractRules;
use super::tags::{self, Holds, TagName};
use super::text::{TextBuilder, collapse};
use super::{refresh, rel, srcset};

/// References looked at per link kept: a page repeats its links, and some are refused.
const REFERENCES_PER_LINK: usize = 4;
/// `<noscript>` and `<noframes>` read per page; each costs a parser of its own, about 1 µs.
const NESTED_MAX: usize = 64;

static EVERY_ELEMENT: LazyLock<Selector> = LazyLock::new(|| "*".parse().expect("`*` is a selector"));

/// Reads `source` into `out`.
pub(super) fn read(page: &PageInput<'_>, source: &str, rules: &ExtractRules, out: &mut Extracted) {
    let collector = RefCell::new(Collector::new(source, page.product_token, rules));
    let complete = run(&collector, 0..source.len());
    out.note_if(!complete, Defect::ParserMemory);
    read_nested(&collector);
    let collector = collector.into_inner();

    if rules.meta_robots {
        out.noindex |= collector.robots.noindex;
        out.nofollow |= collector.robots.nofollow;
    }
    out.title = collapse(&collector.title, rules.limits.title_chars_max);
    let mut links = LinkSet::new(rules, rules.limits.links_max);
    rel::from_headers(page, &mut links, out);
    let page_url = page.url.to_url();
    resolve(&collector, &page_url, &mut links, out);
    links.finish(out);
    out.note_if(collector.text.cut(), Defect::TextCut);
    out.text = collector.text.finish();
}

/// Browsers that run no scripts, as we, show what is inside `<noscript>`; its links count, its text is an apology.
fn read_nested(collector: &RefCell<Collector<'_>>) {
    let nested = std::mem::take(&mut collector.borrow_mut().nested);
    if nested.is_empty() {
        return;
    }
    collector.borrow_mut().quiet = true;
    for range in nested {
        run(collector, range);
    }
    collector.borrow_mut().references.sort_by_key(|reference| reference.at);
}

/// Feeds a range of the source to the parser. Returns whether all of it was read.
///
/// Elements that are never closed pile up in the parser until its memory is used up. A new parser then goes on where
/// the old one stopped: what it does not know, which elements are open, matters to nothing here but `<template>`.
fn run(collector: &RefCell<Collector<'_>>, range: Range<usize>) -> bool {
    let mut from = range.start;
    loop {
        collector.borrow_mut().start_at(from);
        let source = collector.borrow().source;
        match parse(collector, &source.as_bytes()[from..range.end]) {
            Ok(()) | Err(RewritingError::ContentHandlerError(_)) => return true,
            Err(_) => {
                let resume_at = collector.borrow().resume_at;
                if resume_at <= from {
                    return false;
                }
                from = resume_at;
            }
        }
    }
}

fn parse(collector: &RefCell<Collector<'_>>, bytes: &[u8]) -> Result<(), RewritingError> {
    let memory_bytes_max = collector.borrow().rules.limits.parser_memory_bytes_max;
    let elements = ElementContentHandlers::default().element(|element: &mut Element<'_, '_>| {
        let mut collector = collector.borrow_mut();
        collector.element(element);
        if collector.is_full() { Err("enough".into()) } else { Ok(()) }
    });
    let settings = Settings::new()
        .append_element_content_handler((Cow::Borrowed(&*EVERY_ELEMENT), elements))
        .append_document_content_handler(doc_text!(|chunk| {
            collector.borrow_mut().text(chunk);
            Ok(())
        }))
        .with_memory_settings(
            MemorySettings::new()
                .with_preallocated_parsing_buffer_size(0)
                .with_max_allowed_memory_usage(memory_bytes_max),
        )
        .with_strict(false);
    let mut rewriter = HtmlRewriter::new(settings, |_: &[u8]| {});
    rewriter.write(bytes)?;
    rewriter.end()
}

/// A reference as it stands in the source, entities and all.
struct Reference<'a> {
    raw: &'a str,
    at: usize,
    kind: LinkKind,
    holds: Holds,
    nofollow: bool,
}

/// What the raw text that follows an opening tag is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RawText {
    /// Styles and the like.
    Hidden,
    /// `<xmp>`.
    Shown,
    /// Markup for browsers that cannot do something, as we cannot.
    Nested,
}

/// What is known of a page while it is read.
struct Collector<'a> {
    source: &'a str,
    product_token: &'a str,
    rules: &'a ExtractRules,
    /// Where in the source the parser's bytes begin.
    shift: usize,
    /// Up to where the source was looked at.
    seen_to: usize,
    /// Where another parser can take over.
    resume_at: usize,
    /// Inside `<noscript>`: links only.
    quiet: bool,
    template_depth: u32,
    raw_text: RawText,
    /// Inside `<svg>`.
    in_drawing: bool,
    /// Inside `<style>`, `<script>` or `<title>` of a drawing, which HTML reads as ordinary text.
    in_drawing_note: bool,
    in_title: bool,
    title_seen: bool,
    body_seen: bool,
    title: String,
    text: TextBuilder,
    references: Vec<Reference<'a>>,
    references_cut: bool,
    nested: Vec<Range<usize>>,
    base: Option<&'a str>,
    canonical: Option<&'a str>,
    robots: Directives,
}

impl<'a> Collector<'a> {
    fn new(source: &'a str, product_token: &'a str, rules: &'a ExtractRules) -> Self {
        Collector {
            source,
            product_token,
            rules,
            shift: 0,
            seen_to: 0,
            resume_at: 0,
            quiet: false,
            template_depth: 0,
            raw_text: RawText::Hidden,
            in_drawing: false,
            in_drawing_note: false,
            in_title: false,
            title_seen: false,
            body_seen: false,
            title: String::new(),
            text: TextBuilder::for_markup(rules.limits.text_bytes_max, source.len()),
            references: Vec::new(),
            references_cut: false,
            nested: Vec::new(),
            base: None,
            canonical: None,
            robots: Directives::default(),
        }
    }

    fn start_at(&mut self, position: usize) {
        self.shift = position;
        self.seen_to = position;
        self.resume_at = position;
        self.template_depth = 0;
        self.in_drawing = false;
        self.in_drawing_note = false;
    }

    /// Whether reading on would find nothing that is kept.
    fn is_full(&self) -> bool {
        self.references_cut && (self.text.cut() || self.quiet)
    }

    fn slice(&self, range: Range<usize>) -> &'a str {
        self.source.get(range).unwrap_or_default()
    }

    /// Reads the closing tags between the last token and the one that begins at `position`.
    fn close_up_to(&mut self, position: usize) {
        let markup = self.slice(self.seen_to..position);
        if markup.is_empty() {
            return;
        }
        tags::closing_tags(markup, |name| {
            if self.template_depth == 0 {
                self.text.separate(tags::separation(name));
            }
            match name {
                b"template" => self.template_depth = self.template_depth.saturating_sub(1),
                b"title" | b"style" | b"script" | b"metadata" | b"svg" => {
                    self.in_title = false;
                    self.in_drawing_note = false;
                    self.in_drawing &= name != b"svg";
                }
                _ => {}
            }
        });
    }

    fn element(&mut self, element: &Element<'_, '_>) {
        let range = shifted(element.source_location().bytes(), self.shift);
        self.close_up_to(range.start);
        self.seen_to = range.end;
        self.resume_at = range.end;
        self.in_title = false;
        let name = TagName::read(self.slice(range.start + 1..range.end));
        let name = name.as_bytes();
        if self.template_depth == 0 {
            self.text.separate(tags::separation(name));
        }
        if self.in_drawing && matches!(name, b"title" | b"style" | b"script" | b"metadata") {
            self.in_drawing_note = !element.is_self_closing();
        }
        match name {
            b"template" => {
                let shown = self.template_depth == 0 && element.has_attribute("shadowrootmode");
                self.template_depth += u32::from(!shown);
            }
            b"title" => {
                self.in_title = !self.title_seen && !self.quiet && !self.in_drawing && self.template_depth == 0;
                self.title_seen |= self.in_title;
            }
            b"body" => self.body_seen = true,
            b"svg" => self.in_drawing = !element.is_self_closing(),
            b"script" | b"style" | b"iframe" | b"noembed" => self.expect_raw_text(RawText::Hidden, range.start),
            b"xmp" => self.expect_raw_text(RawText::Shown, range.start),
            b"noscript" | b"noframes" => self.expect_raw_text(RawText::Nested, range.start),
            _ => {}
        }
        if self.template_depth == 0 && !self.references_cut {
            let attributes = Attributes { element, source: self.source, shift: self.shift };
            match name {
                b"link" => self.link(&attributes),
                b"meta" => self.meta(&attributes),
                b"base" => self.base = self.base.or(attributes.get("href").filter(|_| !self.quiet)),
                _ => self.references_of(name, &attributes),
            }
        }
    }

    /// A parser that took over behind this tag would take the raw text for markup, so it must begin before it.
    fn expect_raw_text(&mut self, raw_text: RawText, start: usize) {
        self.raw_text = raw_text;
        self.resume_at = start;
    }

    fn references_of(&mut self, name: &[u8], attributes: &Attributes<'a, '_, '_, '_>) {
        let known = tags::references(name);
        if known.is_empty() {
            return;
        }
        let mut nofollow = None;
        for &(attribute, kind, holds) in known {
            let Some(raw) = attributes.get(attribute) else { continue };
            let nofollow =
                *nofollow.get_or_insert_with(|| attributes.get("rel").is_some_and(|value| rel::has(value, "nofollow")));
            self.push(raw, kind, holds, nofollow);
        }
    }

    fn link(&mut self, attributes: &Attributes<'a, '_, '_, '_>) {
        let Some(raw) = attributes.get("href") else { return };
        let value = |name| attributes.get(name).map(unescape).unwrap_or_default();
        let relation = value("rel");
        let Some(kind) = rel::classify(&relation, &value("type"), &value("as")) else { return };
        if kind == LinkKind::Canonical && !self.body_seen && !self.quiet {
            self.canonical = self.canonical.or(Some(raw));
        }
        self.push(raw, kind, Holds::Url, rel::has(&relation, "nofollow"));
    }

    fn meta(&mut self, attributes: &Attributes<'a, '_, '_, '_>) {
        let Some(raw) = attributes.get("content") else { return };
        if let Some(name) = attributes.get("name") {
            self.robots.add_meta(&unescape(name), &unescape(raw), self.product_token);
        }
        if attributes.get("http-equiv").is_some_and(|name| trim(name).eq_ignore_ascii_case("refresh")) {
            self.push(raw, LinkKind::Refresh, Holds::Refresh, false);
        }
    }

    fn push(&mut self, raw: &'a str, kind: LinkKind, holds: Holds, nofollow: bool) {
        if self.references.len() >= self.rules.limits.links_max.saturating_mul(REFERENCES_PER_LINK) {
            self.references_cut = true;
            return;
        }
        self.references.push(Reference { raw, at: self.seen_to, kind, holds, nofollow });
    }

    /// The parser splits raw text at every `<`; the pieces belong together.
    fn push_nested(&mut self, piece: Range<usize>) {
        if let Some(last) = self.nested.last_mut().filter(|last| last.end == piece.start) {
            last.end = piece.end;
        } else if self.nested.len() < NESTED_MAX {
            self.nested.push(piece);
        }
    }

    fn text(&mut self, chunk: &TextChunk<'_>) {
        let range = shifted(chunk.source_location().bytes(), self.shift);
        if chunk.as_str().is_empty() {
            return;
        }
        self.close_up_to(range.start);
        self.seen_to = range.end;
        let raw = self.slice(range.clone());
        match chunk.text_type() {
            TextType::ScriptData => return,
            TextType::RawText if self.raw_text == RawText::Nested => {
                if self.template_depth == 0 && !self.quiet {
                    self.push_nested(range);
                }
                return;
            }
            TextType::RawText if self.raw_text == RawText::Hidden => return,
            TextType::RCData if self.in_title => {
                if self.title.len() < self.rules.limits.title_chars_max.saturating_mul(4) {
                    self.title.push_str(&htmlize::unescape(raw));
                }
            }
            _ if self.quiet || self.template_depth > 0 || self.in_drawing_note => {}
            kind if kind.allows_html_entities() => self.text.push(&htmlize::unescape(raw)),
            _ => self.text.push(raw),
        }
        self.resume_at = range.end;
    }
}

/// The attributes of an opening tag as slices of the source.
struct Attributes<'a, 'e, 'r, 't> {
    element: &'e Element<'r, 't>,
    source: &'a str,
    shift: usize,
}

impl<'a> Attributes<'a, '_, '_, '_> {
    /// The value of the first attribute called `name`, with its entities.
    fn get(&self, name: &str) -> Option<&'a str> {
        self.element.attributes().iter().find_map(|attribute| {
            let location = attribute.name_source_location()?.bytes();
            if location.len() != name.len() {
                return None;
            }
            let found = self.source.get(shifted(location, self.shift))?;
            if !found.eq_ignore_ascii_case(name) {
                return None;
            }
            let value = attribute.value_source_location().map(|location| shifted(location.bytes(), self.shift));
            Some(value.and_then(|range| self.source.get(range)).unwrap_or_default())
        })
    }
}

fn shifted(range: Range<usize>, shift: usize) -> Range<usize> {
    range.start + shift..range.end + shift
}

fn unescape(raw: &str) -> Cow<'_, str> {
    htmlize::unescape_attribute(raw)
}

/// Turns the collected references into links, now that the base is known.
fn resolve(collector: &Collector<'_>, page_url: &Url, links: &mut LinkSet<'_>, out: &mut Extracted) {
    let declared = collector.base.and_then(|raw| page_url.join(trim(&unescape(raw))).ok());
    let declared = declared.filter(|base| matches!(base.scheme(), "http" | "https"));
    let base = declared.as_ref().unwrap_or(page_url);
    if out.canonical.is_none() {
        out.canonical = collector.canonical.and_then(|raw| links.resolve(base, &unescape(raw)));
    }
    // A menu repeats its links; the same spelling means the same URL.
    let mut known: HashMap<&str, Option<u32>> = HashMap::with_capacity(collector.references.len());
    let mut attempts_left = collector.rules.limits.links_max.saturating_mul(REFERENCES_PER_LINK);
    for Reference { raw, kind, holds, nofollow, .. } in &collector.references {
        if attempts_left == 0 {
            links.set_cut();
            break;
        }
        match holds {
            Holds::Url => {
                if let Some(index) = known.get(raw) {
                    index.inspect(|index| links.add_again(*index, *nofollow));
                    continue;
                }
                attempts_left -= 1;
                let value = unescape(raw);
                let here = declared.is_none() && matches!(trim(&value).as_bytes(), [] | [b'#', ..]);
                let index = if here { None } else { links.add(base, &value, *kind, *nofollow) };
                known.insert(raw, index);
            }
            Holds::Candidates => {
                for candidate in srcset::candidates(&unescape(raw)).take(attempts_left) {
                    attempts_left -= 1;
                    links.add(base, candidate, *kind, *nofollow);
                }
            }
            Holds::Refresh => {
                attempts_left -= 1;
                if let Some(target) = refresh::target(&unescape(raw)) {
                    links.add(base, target, *kind, *nofollow);
                }
            }
        }
    }
    if collector.references_cut {
        links.set_cut();
    }
}
