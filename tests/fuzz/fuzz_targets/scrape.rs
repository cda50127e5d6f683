//! Any text is either refused with a place in it, or a rule that looks at any page without harm and in bounded time. The first line is a target, the rest the page
//! (each `<` opens an element, each `>` closes one) and, if it is JSON, templates and the properties of a site.
#![no_main]

use libfuzzer_sys::fuzz_target;
use proto::scrape::{Fuel, MomentRules, Page, Processing, Target, Templates, Tree, TreeBuilder, recognise};
use proto::site::Site;

fn page(text: &str) -> Tree {
    let mut builder = TreeBuilder::new(true);
    for part in text.split_inclusive(['<', '>']).take(2_000) {
        let (words, sign) = part.split_at(part.len() - usize::from(part.ends_with(['<', '>'])));
        builder.text(words);
        match sign {
            "<" => {
                let name = words.split_whitespace().last().unwrap_or("a").to_owned();
                builder.open(&name, vec![("class".to_owned(), words.to_owned()), ("id".to_owned(), name.clone())]);
            }
            ">" => builder.close(),
            _ => {}
        }
    }
    builder.finish()
}

fuzz_target!(|text: &str| {
    let (first, rest) = text.split_once('\n').unwrap_or((text, text));
    let tree = page(rest);
    match Target::parse(first) {
        Ok(target) => {
            if let Ok(texts) = target.texts(&tree, &mut Fuel::new(200_000)) {
                // Every node and attribute at most once.
                assert!(texts.len() <= tree.len() * 3);
            }
        }
        Err(error) => assert!((1..=first.chars().count() + 1).contains(&error.at), "{error} is beyond {first:?}"),
    }
    let looked_at = Page::new(&tree, rest, "http://a.example/");
    let moments = MomentRules::default();
    if let Ok(templates) = Templates::parse(rest, " ") {
        templates.harvest(&looked_at, true, &moments, &mut Fuel::new(200_000));
    }
    let template = serde_json::json!({"tags": {"a": {"target": first, "join": "concat"}, "b": {"target": first, "type": "datetime"}}});
    if let Ok(templates) = Templates::parse(&template.to_string(), ",") {
        let harvest = templates.harvest(&looked_at, false, &moments, &mut Fuel::new(200_000));
        assert!(harvest.items.len() <= 1);
    }
    let property = serde_json::json!({"name": "template", "value": rest});
    let site = serde_json::json!({"id": "a", "urls": ["http://a.example/"], "properties": [property]});
    if let Ok(site) = Site::read(site) {
        assert!(Processing::of_site(&site).is_ok(), "what was accepted is understood");
    }
    if let Some(at) = recognise(first, &moments) {
        assert!(at < 400_000_000_000_000, "a year of five digits");
    }
});
