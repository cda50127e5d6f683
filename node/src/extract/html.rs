//! Reads HTML in one pass: references, title, visible text, base, canonical and robots.
//!
//! The parser finds the opening tags, which takes knowing what is raw text, what is a comment and what is foreign. One handler sees them
//! all, with their places in the source. What lies between two of them is text, closing tags and comments, and is read from there
//! (`tags.rs`): a handler for each piece of text made the parser take every tag and every text apart and cost as much as all the rest.
//! References stay slices of the source until the end, when the base is known; nothing is copied before.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::LazyLock;

use lol_html::errors::RewritingError;
use lol_html::html_content::Element;
use lol_html::{ElementContentHandlers, HtmlRewriter, MemorySettings, Selector, Settings};
use url::Url;

use super::links::{LinkSet, trim};
use super::page::{Defect, Extracted, LinkKind, PageInput};
use super::robots::Directives;
use super::rules::ExtractRules;
use super::tags::{self, Holds, Markup, Piece, TagName};
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
            Ok(()) => {
                collector.borrow_mut().read_up_to(range.end);
                return true;
            }
            Err(RewritingError::ContentHandlerError(_)) => return true,
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

/// What follows an opening tag, up to its closing tag, and is no markup.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RawText {
    /// Scripts.
    Script,
    /// Styles and the like.
    Hidden,
    /// `<xmp>`.
    Shown,
    /// Markup for browsers that cannot do something, as we cannot.
    Nested,
    /// `<title>` and `<textarea>`, which may have entities.
    Typed,
    /// `<plaintext>`, which nothing ends.
    Rest,
}

impl RawText {
    fn of(name: &[u8]) -> Option<RawText> {
        Some(match name {
            b"script" => RawText::Script,
            b"style" | b"iframe" | b"noembed" => RawText::Hidden,
            b"xmp" => RawText::Shown,
            b"noscript" | b"noframes" => RawText::Nested,
            b"title" | b"textarea" => RawText::Typed,
            b"plaintext" => RawText::Rest,
            _ => return None,
        })
    }
}

/// The namespace in which tags can be followed by raw text.
const HTML: &str = "http://www.w3.org/1999/xhtml";

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
    /// The last tag is followed by raw text, up to its closing tag.
    raw_text: Option<(RawText, TagName)>,
    /// Inside `<svg>`.
    in_drawing: bool,
    /// Where there is character data: in a drawing or a formula, and not in HTML inside of it.
    foreign: bool,
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
            raw_text: None,
            in_drawing: false,
            foreign: false,
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
        self.raw_text = None;
        self.in_drawing = false;
        self.foreign = false;
        self.in_drawing_note = false;
    }

    /// Whether reading on would find nothing that is kept.
    fn is_full(&self) -> bool {
        self.references_cut && (self.text.cut() || self.quiet)
    }

    fn slice(&self, range: Range<usize>) -> &'a str {
        self.source.get(range).unwrap_or_default()
    }

    /// Reads what lies between the last opening tag and the next one, or the end, at `position`.
    fn read_up_to(&mut self, position: usize) {
        let start = std::mem::replace(&mut self.seen_to, position);
        let mut markup = self.slice(start..position);
        if markup.is_empty() {
            return;
        }
        if let Some((kind, name)) = self.raw_text.take() {
            let end = match kind {
                RawText::Script => tags::script_end(markup),
                RawText::Rest => markup.len(),
                _ => tags::raw_text_end(markup, name.as_bytes()),
            };
            self.raw_text(kind, start..start + end);
            markup = self.slice(start + end..position);
        }
        let mut markup = Markup::new(markup);
        while let Some(piece) = markup.next(self.foreign) {
            match piece {
                Piece::Text(raw) => self.text(raw, true),
                Piece::Data(raw) => self.text(raw, false),
                Piece::Closing(name) => self.close(name.as_bytes()),
            }
        }
    }

    fn close(&mut self, name: &[u8]) {
        if self.template_depth == 0 {
            self.text.separate(tags::separation(name));
        }
        match name {
            b"template" => self.template_depth = self.template_depth.saturating_sub(1),
            b"title" | b"style" | b"script" | b"metadata" | b"svg" => {
                self.in_title = false;
                self.in_drawing_note = false;
                self.in_drawing &= name != b"svg";
                self.foreign &= name != b"svg";
            }
            b"math" => self.foreign = false,
            // These end a drawing or a formula too. What is nested in another is told by its next tag: until then character data may pass for text.
            b"p" | b"br" if self.foreign => (self.foreign, self.in_drawing) = (false, false),
            _ => {}
        }
    }

    fn raw_text(&mut self, kind: RawText, range: Range<usize>) {
        let raw = self.slice(range.clone());
        match kind {
            RawText::Script | RawText::Hidden => {}
            RawText::Nested if self.template_depth == 0 && !self.quiet => self.push_nested(range),
            RawText::Nested => {}
            RawText::Typed if self.in_title => {
                if self.title.len() < self.rules.limits.title_chars_max.saturating_mul(4) {
                    self.title.push_str(&htmlize::unescape(raw));
                }
            }
            RawText::Typed => self.text(raw, true),
            RawText::Shown | RawText::Rest => self.text(raw, false),
        }
    }

    fn text(&mut self, raw: &str, has_entities: bool) {
        if self.quiet || self.template_depth > 0 || self.in_drawing_note {
            return;
        }
        if has_entities && raw.contains('&') {
            self.text.push(&htmlize::unescape(raw));
        } else {
            self.text.push(raw);
        }
    }

    fn element(&mut self, element: &Element<'_, '_>) {
        let range = shifted(element.source_location().bytes(), self.shift);
        self.read_up_to(range.start);
        self.seen_to = range.end;
        self.resume_at = range.end;
        self.in_title = false;
        let tag = TagName::read(self.slice(range.start + 1..range.end));
        let name = tag.as_bytes();
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
            _ => {}
        }
        if self.foreign || self.in_drawing || name == b"math" {
            let empty = element.is_self_closing() && matches!(name, b"svg" | b"math");
            self.foreign = element.namespace_uri() != HTML && !empty;
        }
        if let Some(kind) = RawText::of(name)
            && element.namespace_uri() == HTML
        {
            self.raw_text = Some((kind, tag));
            // A parser that took over behind this tag would take the raw text for markup, so it must begin before it.
            self.resume_at = range.start;
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

    fn push_nested(&mut self, range: Range<usize>) {
        if self.nested.len() < NESTED_MAX {
            self.nested.push(range);
        }
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

#[cfg(test)]
mod tests {
    use lol_html::doc_text;
    use lol_html::html_content::TextType;
    use proptest::prelude::*;

    use super::*;

    fn without_blanks(text: &str) -> String {
        text.chars().filter(|character| !character.is_whitespace()).collect()
    }

    /// What the parser itself takes for text that is shown.
    fn text_by_parser(source: &str) -> String {
        let mut text = String::new();
        let handler = doc_text!(|chunk| {
            if !matches!(chunk.text_type(), TextType::ScriptData | TextType::RawText) {
                text.push_str(chunk.as_str());
            }
            Ok(())
        });
        let settings = Settings::new().append_document_content_handler(handler).with_strict(false);
        let mut rewriter = HtmlRewriter::new(settings, |_: &[u8]| {});
        rewriter.write(source.as_bytes()).unwrap();
        rewriter.end().unwrap();
        without_blanks(&text)
    }

    fn text_from_between_tags(source: &str) -> String {
        let url = proto::url::CanonicalUrl::parse("http://a.example/", &Default::default()).unwrap();
        let page = PageInput {
            url: &url,
            content_type: None,
            x_robots_tag: &[],
            link_headers: &[],
            body: source.as_bytes(),
            product_token: "x",
        };
        let mut out = Extracted::empty(&page, crate::extract::kind::Claimed::Html);
        read(&page, source, &ExtractRules::default(), &mut out);
        without_blanks(&out.text)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, ..Default::default() })]

        #[test]
        fn text_from_between_tags_is_what_the_parser_takes_for_text(
            pieces in prop::collection::vec(prop::sample::select(vec![
                "<p>", "</p>", "<b title='>'>", "</b x='>' y=\"", "\">", "<!--", "-->", "--!>", "<!-->", "<!--->", "-",
                "<script>", "</script>", "<SCRIPT x>", "</Script x>", "<style>", "</STYLE >", "</styles>", "<textarea>",
                "</textarea>", "<plaintext>", "<!x>", "<?y?>", "</ z>", "</>", "<", ">", "one ", "two < three", "é",
                "<![CDATA[", "]]>", "<math>", "</math>", "<path d='", "' />", "=", "/",
            ]), 0..24).prop_filter("formulas are not nested", |pieces| {
                pieces.iter().filter(|piece| **piece == "<math>").count() <= 1
            }),
        ) {
            let source = pieces.concat();
            prop_assert_eq!(text_from_between_tags(&source), text_by_parser(&source), "{}", source);
        }
    }
}
