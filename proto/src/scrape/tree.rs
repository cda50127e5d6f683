//! A parsed page as XPath sees it: elements, their attributes and texts, in the order of the document.
//!
//! Nodes stand in one list in document order, each with the place behind its last descendant: a subtree is a range, "after" is "greater", and
//! nothing here is ever recursive, however deep a hostile page is.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Elements that have no content and no closing tag in HTML.
const VOID: [&str; 14] =
    ["area", "base", "br", "col", "embed", "frame", "hr", "img", "input", "link", "meta", "source", "track", "wbr"];
/// Elements whose text is no text for readers.
const SILENT: [&str; 4] = ["script", "style", "template", "noscript"];
/// Elements before and after which a line ends.
const BLOCKS: [&str; 38] = [
    "address",
    "article",
    "aside",
    "blockquote",
    "body",
    "br",
    "dd",
    "details",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "footer",
    "form",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "head",
    "header",
    "hr",
    "html",
    "li",
    "main",
    "nav",
    "ol",
    "p",
    "pre",
    "section",
    "summary",
    "table",
    "title",
    "tr",
    "ul",
];

/// A node, or one of its attributes. The order is that of the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    pub(super) node: u32,
    /// 0 is the node itself, `n` its `n`-th attribute.
    pub(super) attribute: u32,
}

impl Point {
    /// A node itself.
    pub(super) fn node(node: u32) -> Point {
        Point { node, attribute: 0 }
    }
}

/// What a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Root,
    Element { name: Box<str>, attributes: Vec<(Box<str>, Box<str>)> },
    Text(String),
    Comment(Box<str>),
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) kind: Kind,
    pub(super) parent: u32,
    /// The first node behind its last descendant.
    pub(super) end: u32,
}

/// A page.
#[derive(Clone, Debug)]
pub struct Tree {
    pub(super) nodes: Vec<Node>,
    /// Names of elements are compared without regard to case.
    pub(super) html: bool,
}

/// Makes a [`Tree`] from what is met from the first byte to the last.
#[derive(Debug)]
pub struct TreeBuilder {
    tree: Tree,
    open: Vec<u32>,
}

impl TreeBuilder {
    /// A tree with nothing in it yet; `html` if case does not matter in names.
    pub fn new(html: bool) -> TreeBuilder {
        let root = Node { kind: Kind::Root, parent: 0, end: 1 };
        TreeBuilder { tree: Tree { nodes: vec![root], html }, open: vec![0] }
    }

    fn push(&mut self, kind: Kind) -> u32 {
        let at = self.tree.nodes.len() as u32;
        let parent = self.open.last().copied().unwrap_or(0);
        self.tree.nodes.push(Node { kind, parent, end: at + 1 });
        at
    }

    /// An element begins.
    pub fn open(&mut self, name: &str, attributes: Vec<(String, String)>) {
        let attributes = attributes.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let at = self.push(Kind::Element { name: name.into(), attributes });
        self.open.push(at);
    }

    /// Text; pieces that follow each other are one.
    pub fn text(&mut self, text: &str) {
        let parent = self.open.last().copied().unwrap_or(0);
        if let Some(last) = self.tree.nodes.last_mut()
            && last.parent == parent
            && let Kind::Text(before) = &mut last.kind
        {
            before.push_str(text);
            return;
        }
        if !text.is_empty() {
            self.push(Kind::Text(text.to_owned()));
        }
    }

    /// A comment.
    pub fn comment(&mut self, text: &str) {
        self.push(Kind::Comment(text.into()));
    }

    /// The element that was opened last ends; one too many is left out.
    pub fn close(&mut self) {
        if self.open.len() > 1
            && let Some(at) = self.open.pop()
        {
            self.tree.nodes[at as usize].end = self.tree.nodes.len() as u32;
        }
    }

    /// How many elements are open.
    pub fn depth(&self) -> usize {
        self.open.len() - 1
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.tree.nodes.len()
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.len() <= 1
    }

    /// The tree; what is open is closed.
    pub fn finish(mut self) -> Tree {
        while self.open.len() > 1 {
            self.close();
        }
        self.tree.nodes[0].end = self.tree.nodes.len() as u32;
        self.tree
    }
}

impl Tree {
    /// The point above everything.
    pub const ROOT: Point = Point { node: 0, attribute: 0 };

    pub(super) fn at(&self, node: u32) -> &Node {
        &self.nodes[node as usize]
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is nothing on the page.
    pub fn is_empty(&self) -> bool {
        self.nodes.len() <= 1
    }

    pub(super) fn name_of(&self, point: Point) -> &str {
        match (&self.at(point.node).kind, point.attribute) {
            (Kind::Element { name, .. }, 0) => name,
            (Kind::Element { attributes, .. }, n) => attributes.get(n as usize - 1).map_or("", |(name, _)| name),
            _ => "",
        }
    }

    /// The value of an attribute of an element.
    pub(super) fn attribute(&self, node: u32, wanted: &str) -> Option<&str> {
        let Kind::Element { attributes, .. } = &self.at(node).kind else { return None };
        let is_wanted = |name: &str| if self.html { name.eq_ignore_ascii_case(wanted) } else { name == wanted };
        attributes.iter().find(|(name, _)| is_wanted(name)).map(|(_, value)| &**value)
    }

    pub(super) fn children(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        let end = self.at(node).end;
        let first = Some(node + 1).filter(|first| *first < end);
        std::iter::successors(first, move |child| Some(self.at(*child).end).filter(|next| *next < end))
    }

    /// The text in it, as it stands there.
    pub(super) fn text_of(&self, point: Point) -> Cow<'_, str> {
        match (&self.at(point.node).kind, point.attribute) {
            (Kind::Text(text), _) => Cow::Borrowed(text),
            (Kind::Comment(text), _) => Cow::Borrowed(text),
            (Kind::Element { attributes, .. }, n) if n > 0 => {
                attributes.get(n as usize - 1).map_or(Cow::Borrowed(""), |(_, value)| Cow::Borrowed(value))
            }
            _ => {
                let range = point.node as usize + 1..self.at(point.node).end as usize;
                let mut texts = self.nodes[range].iter().filter_map(|node| match &node.kind {
                    Kind::Text(text) => Some(text.as_str()),
                    _ => None,
                });
                match (texts.next(), texts.next()) {
                    (None, _) => Cow::Borrowed(""),
                    (Some(one), None) => Cow::Borrowed(one),
                    (Some(one), Some(two)) => {
                        let mut all = [one, two].concat();
                        texts.for_each(|text| all.push_str(text));
                        Cow::Owned(all)
                    }
                }
            }
        }
    }

    /// The text in it as a reader sees it: white space collapsed, blocks on lines of their own, no scripts. At most about `bytes_max` bytes.
    pub fn readable(&self, point: Point, bytes_max: usize) -> String {
        if point.attribute > 0 || !matches!(self.at(point.node).kind, Kind::Element { .. } | Kind::Root) {
            let mut out = String::new();
            push_words(&mut out, &self.text_of(point), bytes_max);
            return out.trim_end().to_owned();
        }
        let mut out = String::new();
        let (mut at, end) = (point.node, self.at(point.node).end);
        let mut ends: Vec<u32> = Vec::new();
        while at < end && out.len() < bytes_max {
            while ends.last().is_some_and(|block_end| *block_end <= at) {
                ends.pop();
                end_line(&mut out);
            }
            let node = self.at(at);
            match &node.kind {
                Kind::Element { name, .. } if SILENT.contains(&&**name) && self.html => {
                    at = node.end;
                    continue;
                }
                Kind::Element { name, .. } if BLOCKS.binary_search(&&**name).is_ok() => {
                    end_line(&mut out);
                    ends.push(node.end);
                }
                Kind::Element { name, .. } if matches!(&**name, "td" | "th") => push_words(&mut out, " ", bytes_max),
                Kind::Text(text) => push_words(&mut out, text, bytes_max),
                _ => {}
            }
            at += 1;
        }
        out.trim_end().to_owned()
    }

    /// It as markup, itself included; at most about `bytes_max` bytes, then it is cut off and closed.
    pub fn markup(&self, point: Point, bytes_max: usize) -> String {
        if point.attribute > 0 {
            return escaped(&self.text_of(point), true);
        }
        let mut out = String::new();
        let (mut at, end) = (point.node, self.at(point.node).end);
        let mut open: Vec<(u32, &str)> = Vec::new();
        while at < end && out.len() < bytes_max {
            while let Some((_, name)) = open.pop_if(|(element_end, _)| *element_end <= at) {
                let _ = write!(out, "</{name}>");
            }
            let node = self.at(at);
            match &node.kind {
                Kind::Root => {}
                Kind::Element { name, attributes } => {
                    let _ = write!(out, "<{name}");
                    for (name, value) in attributes {
                        let _ = write!(out, " {name}=\"{}\"", escaped(value, true));
                    }
                    out.push('>');
                    if !(self.html && VOID.contains(&&**name)) {
                        open.push((node.end, name));
                    }
                }
                // What is inside a script is no markup.
                Kind::Text(text)
                    if self.html && open.last().is_some_and(|(_, name)| matches!(*name, "script" | "style")) =>
                {
                    out.push_str(text);
                }
                Kind::Text(text) => out.push_str(&escaped(text, false)),
                Kind::Comment(_) => {}
            }
            at += 1;
        }
        while let Some((_, name)) = open.pop() {
            let _ = write!(out, "</{name}>");
        }
        out
    }
}

fn end_line(out: &mut String) {
    let length = out.trim_end().len();
    out.truncate(length);
    if !out.is_empty() {
        out.push('\n');
    }
}

/// Appends text with its white space collapsed; a space is only put between words.
fn push_words(out: &mut String, text: &str, bytes_max: usize) {
    let is_blank = |c: char| c.is_whitespace() || c.is_control();
    for c in text.chars() {
        if out.len() >= bytes_max {
            return;
        }
        if !is_blank(c) {
            out.push(c);
        } else if !out.is_empty() && !out.ends_with([' ', '\n']) {
            out.push(' ');
        }
    }
}

/// Text as it stands in markup.
pub(super) fn escaped(text: &str, in_attribute: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' if in_attribute => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Tree {
        let mut builder = TreeBuilder::new(true);
        builder.open("body", Vec::new());
        builder.open("h1", vec![("class".into(), "a \"b\"".into())]);
        builder.text("A &");
        builder.text(" B");
        builder.close();
        builder.open("script", Vec::new());
        builder.text("1 < 2");
        builder.close();
        builder.open("p", Vec::new());
        builder.text(" one\n\ttwo ");
        builder.open("br", Vec::new());
        builder.close();
        builder.text("three");
        builder.finish()
    }

    #[test]
    fn a_subtree_is_a_range() {
        let tree = page();
        assert_eq!(
            tree.children(1).map(|child| tree.name_of(Point::node(child))).collect::<Vec<_>>(),
            ["h1", "script", "p"]
        );
        assert_eq!(tree.at(1).end as usize, tree.len());
        assert_eq!(tree.text_of(Tree::ROOT), "A & B1 < 2 one\n\ttwo three");
    }

    #[test]
    fn readers_see_lines_and_no_scripts() {
        assert_eq!(page().readable(Tree::ROOT, 1_000), "A & B\none two\nthree");
        assert_eq!(page().readable(Tree::ROOT, 3), "A &");
    }

    #[test]
    fn markup_is_closed_wherever_it_is_cut() {
        let whole = page().markup(Tree::ROOT, 1_000);
        assert_eq!(
            whole,
            "<body><h1 class=\"a &quot;b&quot;\">A &amp; B</h1><script>1 < 2</script><p> one\n\ttwo <br>three</p></body>"
        );
        assert_eq!(page().markup(Tree::ROOT, 10), "<body><h1 class=\"a &quot;b&quot;\"></h1></body>");
    }

    #[test]
    fn what_is_closed_too_often_or_never_makes_a_tree() {
        let mut builder = TreeBuilder::new(true);
        builder.close();
        builder.open("a", Vec::new());
        builder.close();
        builder.close();
        builder.open("b", Vec::new());
        let tree = builder.finish();
        assert_eq!(tree.children(0).count(), 2);
        assert!(BLOCKS.is_sorted());
    }
}
