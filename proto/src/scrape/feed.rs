//! Entries of feeds, RSS and Atom, as things with the tags that pages have.

use super::harvest::Item;
use super::tree::{Kind, Point, Tree};
use super::{PAGE_BYTES_MAX, VALUE_BYTES_MAX};
use url::Url;

/// Entries of one feed.
const ENTRIES_MAX: usize = 1_000;

/// Elements of an entry, by what stands behind the colon of their names, and the tags that they are.
const TAGS: [(&str, &str); 17] = [
    ("title", "title"),
    ("description", "description"),
    ("summary", "description"),
    ("encoded", "content_encoded"),
    ("content", "content_encoded"),
    ("pubDate", "pubdate"),
    ("published", "pubdate"),
    ("issued", "pubdate"),
    ("updated", "updated"),
    ("modified", "updated"),
    ("date", "dc_date"),
    ("creator", "author"),
    ("author", "author"),
    ("guid", "guid"),
    ("id", "guid"),
    ("comments", "comments"),
    ("source", "source_url"),
];

/// The entries of a feed that came from `url`; `None` if it is no feed.
pub fn entries(tree: &Tree, url: &str) -> Option<Vec<Item>> {
    let root = tree.children(0).find(|child| matches!(tree.at(*child).kind, Kind::Element { .. }))?;
    let name = local(tree, root);
    if !["rss", "feed", "RDF", "rdf"].contains(&name) {
        return None;
    }
    let base = Url::parse(url).ok();
    let title = child(tree, root, "channel")
        .and_then(|channel| child(tree, channel, "title"))
        .or_else(|| child(tree, root, "title"));
    let title = title.map(|title| tree.readable(Point::node(title), 1_024));
    let mut items = Vec::new();
    let (mut at, mut room) = (root + 1, PAGE_BYTES_MAX);
    while at < tree.at(root).end && items.len() < ENTRIES_MAX && room > 0 {
        if !matches!(local(tree, at), "item" | "entry") {
            at += 1;
            continue;
        }
        let mut item = entry(tree, at, base.as_ref(), room);
        item.fill("order_number", (items.len() + 1).to_string());
        item.fill("feed_url", url);
        if let Some(title) = title.as_ref().filter(|title| !title.is_empty()) {
            item.fill("parent_rss_feed", title);
        }
        room = room.saturating_sub(item.0.iter().map(|(_, value)| value.len()).sum());
        items.push(item);
        at = tree.at(at).end;
    }
    Some(items)
}

fn local(tree: &Tree, node: u32) -> &str {
    tree.name_of(Point::node(node)).rsplit(':').next().unwrap_or_default()
}

fn child(tree: &Tree, node: u32, name: &str) -> Option<u32> {
    tree.children(node).find(|child| local(tree, *child) == name)
}

fn entry(tree: &Tree, entry: u32, base: Option<&Url>, room: usize) -> Item {
    let mut item = Item::default();
    let mut keywords: Vec<String> = Vec::new();
    let absolute = |reference: &str| {
        let reference = reference.trim();
        base.and_then(|base| base.join(reference).ok()).map_or_else(|| reference.to_owned(), String::from)
    };
    for element in tree.children(entry) {
        let name = tree.name_of(Point::node(element));
        let attribute = |name: &str| tree.attribute(element, name).filter(|value| !value.trim().is_empty());
        let text = || tree.readable(Point::node(element), VALUE_BYTES_MAX.min(room));
        match (name, local(tree, element)) {
            (_, "link") => {
                let rel = attribute("rel").unwrap_or("alternate");
                let target = attribute("href").map(str::to_owned).unwrap_or_else(text);
                match rel {
                    "alternate" if !target.is_empty() => item.fill("link", absolute(&target)),
                    "enclosure" => item.fill("enclosure", absolute(&target)),
                    _ => {}
                }
            }
            (_, "enclosure") => attribute("url").into_iter().for_each(|url| item.fill("enclosure", absolute(url))),
            (_, "thumbnail") => {
                attribute("url").into_iter().for_each(|url| item.fill("media_thumbnail", absolute(url)))
            }
            ("media:content", _) => {
                attribute("url").into_iter().for_each(|url| item.fill("media_content", absolute(url)))
            }
            (_, "category") => {
                let word = attribute("term").map(str::to_owned).unwrap_or_else(text);
                if !word.is_empty() && keywords.len() < 64 {
                    keywords.push(word);
                }
            }
            (_, "author") if child(tree, element, "name").is_some() => {
                let name = child(tree, element, "name").unwrap_or(element);
                item.fill("author", tree.readable(Point::node(name), 1_024));
            }
            (_, local) => {
                let Some((_, tag)) = TAGS.iter().find(|(known, _)| *known == local) else { continue };
                let has_markup =
                    tree.children(element).any(|child| matches!(tree.at(child).kind, Kind::Element { .. }));
                let value = match *tag {
                    "content_encoded" | "description" if has_markup => {
                        let inner = tree
                            .children(element)
                            .map(|child| tree.markup(Point::node(child), VALUE_BYTES_MAX.min(room)));
                        inner.collect::<String>().trim().to_owned()
                    }
                    "source_url" => attribute("url").map(str::to_owned).unwrap_or_else(text),
                    _ => text(),
                };
                if !value.is_empty() {
                    item.fill(tag, value);
                }
            }
        }
    }
    if !keywords.is_empty() {
        item.fill("keywords", keywords.join(","));
    }
    if let Some(updated) = item.get("updated").map(str::to_owned) {
        item.fill("pubdate", updated);
    }
    // A guid that is a link is one, where there is no other.
    if let Some(guid) = item.get("guid").filter(|guid| guid.starts_with("http")).map(str::to_owned) {
        item.fill("link", guid);
    }
    item
}
