//! HTML into a [`Tree`], as browsers read it: html5ever builds what the standard says of any bytes.
//!
//! The standard has no bounds, so they are here: elements deeper than [`DEPTH_MAX`] are left out and their text stays, and when nodes or work become too many the
//! rest of the page is left out. What one tag may cost with a hundred thousand attributes is bounded by looking at what was fed since the last token.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use html5ever::interface::{ElementFlags, NodeOrText, QuirksMode, TreeSink};
use html5ever::tendril::StrTendril;
use html5ever::tokenizer::{BufferQueue, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts};
use html5ever::tree_builder::{TreeBuilder as HtmlBuilder, TreeBuilderOpts};
use html5ever::{Attribute, ExpandedName, QualName, TokenizerResult};
use proto::scrape::{Tree, TreeBuilder};

/// Deeper than any page for people; browsers have this bound too.
const DEPTH_MAX: u32 = 512;
/// Nodes of a page.
const NODES_MAX: usize = 200_000;
/// Tags, each as often as it is deep: that is how often a parser looks at what is open.
const WORK_MAX: u64 = 30_000_000;
/// Bytes that are fed at once.
const CHUNK_BYTES: usize = 8 << 10;
/// Signs that may begin an attribute, since the last token; each attribute is compared with all before it.
const SEPARATORS_MAX: usize = 20_000;

/// Reads HTML; says whether all of it was read.
pub(super) fn parse(source: &str) -> (Tree, bool) {
    let options = TreeBuilderOpts { scripting_enabled: false, ..TreeBuilderOpts::default() };
    let bounded = Bounded {
        inner: HtmlBuilder::new(Dom::default(), options),
        tokens: Cell::new(0),
        work: Cell::new(0),
        full: Cell::new(false),
    };
    let tokenizer = Tokenizer::new(bounded, TokenizerOpts::default());
    let input = BufferQueue::default();
    let (mut at, mut separators) = (0, 0);
    let mut whole = true;
    while at < source.len() {
        let end = source.ceil_char_boundary((at + CHUNK_BYTES).min(source.len()));
        let chunk = &source[at..end];
        let before = tokenizer.sink.tokens.get();
        input.push_back(StrTendril::from_slice(chunk));
        while !matches!(tokenizer.feed(&input), TokenizerResult::Done) {}
        let quiet = tokenizer.sink.tokens.get() == before;
        let may_begin = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b'/' | b'"' | b'\'');
        separators = if quiet { separators + chunk.bytes().filter(|byte| may_begin(byte)).count() } else { 0 };
        if tokenizer.sink.full.get() || separators > SEPARATORS_MAX {
            whole = false;
            break;
        }
        at = end;
    }
    if whole {
        tokenizer.end();
    }
    let dom = &tokenizer.sink.inner.sink;
    (dom.flat(), whole)
}

/// Hands tokens on while there is room.
struct Bounded {
    inner: HtmlBuilder<Rc<Handle>, Dom>,
    tokens: Cell<u64>,
    work: Cell<u64>,
    full: Cell<bool>,
}

impl TokenSink for Bounded {
    type Handle = Rc<Handle>;

    fn process_token(&self, token: Token, line_number: u64) -> TokenSinkResult<Rc<Handle>> {
        self.tokens.set(self.tokens.get() + 1);
        let dom = &self.inner.sink;
        let depth = dom.depth.get();
        if let Token::TagToken(tag) = &token {
            if tag.kind == TagKind::StartTag && depth > DEPTH_MAX {
                return TokenSinkResult::Continue;
            }
            self.work.set(self.work.get() + u64::from(depth) + 1);
            match tag.kind {
                TagKind::EndTag => dom.depth.set(depth.saturating_sub(1)),
                TagKind::StartTag => {}
            }
        }
        if dom.nodes.borrow().len() > NODES_MAX || self.work.get() > WORK_MAX {
            self.full.set(true);
        }
        if self.full.get() && !matches!(token, Token::EOFToken) {
            return TokenSinkResult::Continue;
        }
        self.inner.process_token(token, line_number)
    }

    fn end(&self) {
        self.inner.end();
    }

    fn adjusted_current_node_present_but_not_in_html_namespace(&self) -> bool {
        self.inner.adjusted_current_node_present_but_not_in_html_namespace()
    }
}

/// A node to the parser: its place, and its name if it is an element.
struct Handle {
    at: usize,
    name: Option<QualName>,
    /// Where the content of a template goes.
    template: Option<Rc<Handle>>,
    annotation: bool,
}

enum Content {
    Nothing,
    Element(Vec<(String, String)>),
    Text(String),
    Comment(String),
}

struct DomNode {
    content: Content,
    name: String,
    parent: Option<usize>,
    children: Vec<usize>,
    depth: u32,
}

/// What the parser builds; nodes move in it until the end.
struct Dom {
    nodes: RefCell<Vec<DomNode>>,
    document: Rc<Handle>,
    /// How deep the last node is that was put somewhere.
    depth: Cell<u32>,
}

impl Default for Dom {
    fn default() -> Self {
        let root =
            DomNode { content: Content::Nothing, name: String::new(), parent: None, children: Vec::new(), depth: 0 };
        let document = Rc::new(Handle { at: 0, name: None, template: None, annotation: false });
        Dom { nodes: RefCell::new(vec![root]), document, depth: Cell::new(0) }
    }
}

impl Dom {
    fn push(&self, content: Content, name: String) -> usize {
        let mut nodes = self.nodes.borrow_mut();
        nodes.push(DomNode { content, name, parent: None, children: Vec::new(), depth: 0 });
        nodes.len() - 1
    }

    fn place(&self, parent: usize, place: usize, child: NodeOrText<Rc<Handle>>) {
        let mut nodes = self.nodes.borrow_mut();
        let depth = nodes[parent].depth.saturating_add(1);
        self.depth.set(depth);
        let child = match child {
            NodeOrText::AppendNode(handle) => {
                if let Some(before) = nodes[handle.at].parent.take() {
                    nodes[before].children.retain(|one| *one != handle.at);
                }
                handle.at
            }
            NodeOrText::AppendText(text) => {
                // Texts that follow each other are one.
                let brother = place.checked_sub(1).and_then(|before| nodes[parent].children.get(before).copied());
                if let Some(brother) = brother
                    && let Content::Text(before) = &mut nodes[brother].content
                {
                    before.push_str(&text);
                    return;
                }
                let content = Content::Text(text.to_string());
                nodes.push(DomNode { content, name: String::new(), parent: None, children: Vec::new(), depth });
                nodes.len() - 1
            }
        };
        nodes[child].parent = Some(parent);
        nodes[child].depth = depth;
        let place = place.min(nodes[parent].children.len());
        nodes[parent].children.insert(place, child);
    }

    /// The nodes in the order of the document.
    fn flat(&self) -> Tree {
        let nodes = self.nodes.borrow();
        let mut out = TreeBuilder::new(true);
        // What is to be done next stands last.
        enum Next {
            Enter(usize),
            Leave,
        }
        let mut next: Vec<Next> = nodes[0].children.iter().rev().map(|child| Next::Enter(*child)).collect();
        while let Some(one) = next.pop() {
            let Next::Enter(at) = one else {
                out.close();
                continue;
            };
            let node = &nodes[at];
            match &node.content {
                Content::Nothing => {}
                Content::Text(text) => out.text(text),
                Content::Comment(text) => out.comment(text),
                Content::Element(attributes) => {
                    out.open(&node.name, attributes.clone());
                    next.push(Next::Leave);
                    next.extend(node.children.iter().rev().map(|child| Next::Enter(*child)));
                }
            }
        }
        out.finish()
    }
}

/// A name with its prefix, where it has one.
fn written(name: &QualName) -> String {
    match &name.prefix {
        Some(prefix) if !prefix.is_empty() => format!("{prefix}:{}", name.local),
        _ => name.local.to_string(),
    }
}

fn pair(attribute: Attribute) -> (String, String) {
    (written(&attribute.name), attribute.value.to_string())
}

impl TreeSink for Dom {
    type Handle = Rc<Handle>;
    type Output = ();
    type ElemName<'a> = ExpandedName<'a>;

    fn finish(self) {}

    fn parse_error(&self, _: Cow<'static, str>) {}

    fn get_document(&self) -> Rc<Handle> {
        Rc::clone(&self.document)
    }

    fn elem_name<'a>(&'a self, target: &'a Rc<Handle>) -> ExpandedName<'a> {
        target.name.as_ref().expect("the parser asks elements only").expanded()
    }

    fn create_element(&self, name: QualName, attributes: Vec<Attribute>, flags: ElementFlags) -> Rc<Handle> {
        let attributes = attributes.into_iter().map(pair).collect();
        let at = self.push(Content::Element(attributes), written(&name));
        // What is inside a template is kept apart: nobody sees it.
        let template = flags.template.then(|| {
            let at = self.push(Content::Nothing, String::new());
            Rc::new(Handle { at, name: None, template: None, annotation: false })
        });
        let annotation = flags.mathml_annotation_xml_integration_point;
        Rc::new(Handle { at, name: Some(name), template, annotation })
    }

    fn create_comment(&self, text: StrTendril) -> Rc<Handle> {
        let at = self.push(Content::Comment(text.to_string()), String::new());
        Rc::new(Handle { at, name: None, template: None, annotation: false })
    }

    fn create_pi(&self, _: StrTendril, _: StrTendril) -> Rc<Handle> {
        let at = self.push(Content::Nothing, String::new());
        Rc::new(Handle { at, name: None, template: None, annotation: false })
    }

    fn append(&self, parent: &Rc<Handle>, child: NodeOrText<Rc<Handle>>) {
        let place = self.nodes.borrow()[parent.at].children.len();
        self.place(parent.at, place, child);
    }

    fn append_based_on_parent_node(&self, element: &Rc<Handle>, previous: &Rc<Handle>, child: NodeOrText<Rc<Handle>>) {
        let has_parent = self.nodes.borrow()[element.at].parent.is_some();
        if has_parent { self.append_before_sibling(element, child) } else { self.append(previous, child) }
    }

    fn append_doctype_to_document(&self, _: StrTendril, _: StrTendril, _: StrTendril) {}

    fn get_template_contents(&self, target: &Rc<Handle>) -> Rc<Handle> {
        target.template.clone().unwrap_or_else(|| Rc::clone(target))
    }

    fn same_node(&self, x: &Rc<Handle>, y: &Rc<Handle>) -> bool {
        x.at == y.at
    }

    fn set_quirks_mode(&self, _: QuirksMode) {}

    fn append_before_sibling(&self, sibling: &Rc<Handle>, child: NodeOrText<Rc<Handle>>) {
        // A node that moves leaves its place first.
        if let NodeOrText::AppendNode(handle) = &child {
            self.remove_from_parent(handle);
        }
        let place = {
            let nodes = self.nodes.borrow();
            let Some(parent) = nodes[sibling.at].parent else { return };
            nodes[parent].children.iter().rposition(|one| *one == sibling.at).map(|place| (parent, place))
        };
        if let Some((parent, place)) = place {
            self.place(parent, place, child);
        }
    }

    fn add_attrs_if_missing(&self, target: &Rc<Handle>, attributes: Vec<Attribute>) {
        let mut nodes = self.nodes.borrow_mut();
        if let Content::Element(there) = &mut nodes[target.at].content {
            for (name, value) in attributes.into_iter().map(pair) {
                if there.iter().all(|(known, _)| *known != name) {
                    there.push((name, value));
                }
            }
        }
    }

    fn remove_from_parent(&self, target: &Rc<Handle>) {
        let mut nodes = self.nodes.borrow_mut();
        if let Some(parent) = nodes[target.at].parent.take()
            && let Some(place) = nodes[parent].children.iter().rposition(|one| *one == target.at)
        {
            nodes[parent].children.remove(place);
        }
    }

    fn reparent_children(&self, node: &Rc<Handle>, new_parent: &Rc<Handle>) {
        let mut nodes = self.nodes.borrow_mut();
        let children = std::mem::take(&mut nodes[node.at].children);
        let depth = nodes[new_parent.at].depth.saturating_add(1);
        for child in &children {
            (nodes[*child].parent, nodes[*child].depth) = (Some(new_parent.at), depth);
        }
        nodes[new_parent.at].children.extend(children);
    }

    fn is_mathml_annotation_xml_integration_point(&self, handle: &Rc<Handle>) -> bool {
        handle.annotation
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn markup(source: &str) -> String {
        parse(source).0.markup(Tree::ROOT, 1 << 20)
    }

    #[test]
    fn broken_html_becomes_what_browsers_make_of_it() {
        for (source, expected) in [
            ("<p>a<p>b", "<html><head></head><body><p>a</p><p>b</p></body></html>"),
            ("<ul><li>a<li>b</ul>", "<html><head></head><body><ul><li>a</li><li>b</li></ul></body></html>"),
            ("<b>1<i>2</b>3</i>", "<html><head></head><body><b>1<i>2</i></b><i>3</i></body></html>"),
            (
                "<table>x<tr><td>y</table>",
                "<html><head></head><body>x<table><tbody><tr><td>y</td></tr></tbody></table></body></html>",
            ),
            ("", "<html><head></head><body></body></html>"),
            (
                "<a href=x title='&amp;'>&lt;",
                "<html><head></head><body><a href=\"x\" title=\"&amp;\">&lt;</a></body></html>",
            ),
            ("<template><p>no</template>yes", "<html><head><template></template></head><body>yes</body></html>"),
        ] {
            assert_eq!(markup(source), expected, "{source}");
        }
    }

    #[test]
    fn hostile_pages_end_soon() {
        let many: String = (0..200_000).map(|n| format!(" a{n}")).collect();
        let deep = "<div>".repeat(200_000) + "text";
        let formats: String = (0..20_000).map(|n| format!("<p><b x={n}></p>")).collect();
        for (source, whole) in [
            (format!("<a{many}>text"), false),
            (deep, true),
            (formats, false),
            ("<b><i><u><table><tr><td>".repeat(20_000), true),
            ("x<table>".repeat(20_000), true),
        ] {
            let (tree, all) = parse(&source);
            assert_eq!(all, whole, "{}", &source[..40]);
            assert!(tree.len() <= NODES_MAX + 2_000);
        }
        assert!(parse(&("<div>".repeat(2_000) + "text")).0.markup(Tree::ROOT, 1 << 20).contains("text"), "text stays");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn nothing_panics(source in "(<(/?)(p|b|i|table|td|template|svg|math|select|option|a|frameset|script)( [a-z]=\"?x)?>|[a-z& ]{0,4}){0,40}") {
            let (tree, _) = parse(&source);
            prop_assert!(tree.len() > 1);
        }
    }
}
