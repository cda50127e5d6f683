//! XML into a [`Tree`]: names as they are written, bounds as for HTML.

use proto::scrape::{Tree, TreeBuilder};

use crate::extract::xml::{Token, XmlReader, attributes};

/// Deeper elements are left out; their text stays.
const DEPTH_MAX: usize = 512;
/// Nodes of a document.
const NODES_MAX: usize = 200_000;

/// Reads XML; says whether all of it was read.
pub(super) fn parse(source: &str) -> (Tree, bool) {
    let mut reader = XmlReader::new(source);
    let mut out = TreeBuilder::new(false);
    // How many elements are open that were left out.
    let mut beyond = 0;
    while let Some(token) = reader.next() {
        match token {
            Token::Open(_) if beyond > 0 || out.depth() >= DEPTH_MAX => beyond += 1,
            Token::Open(start) => out.open(start.name().into_inner(), attributes(&start)),
            Token::Close if beyond > 0 => beyond -= 1,
            Token::Close => out.close(),
            Token::Text(text) => out.text(&text),
        }
        if out.len() > NODES_MAX {
            return (out.finish(), false);
        }
    }
    (out.finish(), !reader.broken())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_attributes_and_entities_are_kept() {
        let (tree, whole) = parse("<?xml version='1.0'?><a:b c='1 &amp; 2'>x&amp;y<![CDATA[<z>]]><d/></a:b>");
        assert!(whole);
        assert_eq!(tree.markup(Tree::ROOT, 1_000), "<a:b c=\"1 &amp; 2\">x&amp;y&lt;z&gt;<d></d></a:b>");
    }

    #[test]
    fn what_is_broken_or_too_deep_is_read_as_far_as_it_goes() {
        let (tree, whole) = parse("<a><b>x");
        assert!(!whole && tree.markup(Tree::ROOT, 1_000) == "<a><b>x</b></a>");
        let deep = "<a>".repeat(100_000) + "text" + &"</a>".repeat(100_000);
        let (tree, whole) = parse(&deep);
        assert!(whole && tree.len() < 1_000 && tree.readable(Tree::ROOT, 100) == "text");
    }
}
