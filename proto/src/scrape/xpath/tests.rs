use proptest::prelude::*;

use super::super::tree::{Tree, TreeBuilder};
use super::super::{Exhausted, Fuel, Target};
use super::Expression;

/// A shop's page: a list of three, and attributes of all kinds.
fn page() -> Tree {
    let mut builder = TreeBuilder::new(true);
    let attributes =
        |list: &[(&str, &str)]| list.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    builder.open("html", attributes(&[("lang", "en-GB")]));
    builder.open("head", Vec::new());
    builder.open("title", Vec::new());
    builder.text("Shop");
    builder.close();
    builder.close();
    builder.open("body", Vec::new());
    builder.open("h1", attributes(&[("id", "top"), ("class", "big  title")]));
    builder.text("  Three\n things ");
    builder.close();
    builder.comment("a comment");
    builder.open("ul", attributes(&[("class", "list")]));
    for (name, price, stock) in [("Lamp", "10.50", "yes"), ("Chair", "99", "no"), ("Desk", "250", "yes")] {
        builder.open("li", attributes(&[("class", "item"), ("data-stock", stock)]));
        builder.open("a", attributes(&[("href", &format!("/{}", name.to_lowercase())), ("rel", "nofollow item")]));
        builder.text(name);
        builder.close();
        builder.open("span", attributes(&[("class", "price")]));
        builder.text(price);
        builder.close();
        builder.close();
    }
    builder.close();
    builder.open("p", Vec::new());
    builder.text("end");
    builder.close();
    builder.finish()
}

fn find(target: &str) -> Vec<String> {
    let target = Target::parse(target).unwrap_or_else(|error| panic!("{target}: {error}"));
    target.texts(&page(), &mut Fuel::new(1_000_000)).unwrap()
}

#[test]
fn xpath_as_people_use_it() {
    for (target, expected) in [
        ("//h1/text()", vec!["  Three\n things "]),
        ("normalize-space(//h1)", vec!["Three things"]),
        ("/html/body/ul/li[2]/a", vec!["Chair"]),
        ("//li[last()]/a/text()", vec!["Desk"]),
        ("//li[position() < 3]/a", vec!["Lamp", "Chair"]),
        ("(//li/a)[3]", vec!["Desk"]),
        ("//li/a[1]", vec!["Lamp", "Chair", "Desk"]),
        ("//li[@data-stock='yes']/a/@href", vec!["/lamp", "/desk"]),
        ("//li[span > 50]/a", vec!["Chair", "Desk"]),
        ("//a[contains(@href, 'ai')]", vec!["Chair"]),
        ("//a[starts-with(., 'D')]/following-sibling::span", vec!["250"]),
        ("//span[. = '99']/preceding-sibling::a", vec!["Chair"]),
        ("//span[.='99']/..//a/@href", vec!["/chair"]),
        ("//a[text()='Desk']/ancestor::ul/@class", vec!["list"]),
        ("//li[2]/preceding::a", vec!["Lamp"]),
        ("//li[2]/following::a", vec!["Desk"]),
        ("//*[@id='top']", vec!["  Three\n things "]),
        ("id('top')/@class", vec!["big  title"]),
        ("//*[has-class('big')]/@id", vec!["top"]),
        ("//comment()", vec!["a comment"]),
        ("//title | //p", vec!["Shop", "end"]),
        ("//p | //title", vec!["Shop", "end"]),
        ("count(//li)", vec!["3"]),
        ("sum(//span)", vec!["359.5"]),
        ("concat(//li[1]/a, ': ', //li[1]/span)", vec!["Lamp: 10.50"]),
        ("substring-before(//li[1]/span, '.')", vec!["10"]),
        ("substring-after(//li[1]/a/@href, '/')", vec!["lamp"]),
        ("substring('12345', 2, 3)", vec!["234"]),
        ("substring('12345', 1.5, 2.6)", vec!["234"]),
        ("translate('bar', 'abc', 'AB')", vec!["BAr"]),
        ("string-length('äöü')", vec!["3"]),
        ("name(//ul/*[1])", vec!["li"]),
        ("round(2.5) + round(-2.5)", vec!["1"]),
        ("7 mod 3 * 2 - -1", vec!["3"]),
        ("4 div 2", vec!["2"]),
        ("boolean(//nosuch)", vec![""]),
        ("//li[not(@data-stock='no') and lang('en')]/a", vec!["Lamp", "Desk"]),
        ("//LI[1]/A", vec!["Lamp"]),
        ("//li[a[contains(., 'a')]]/span", vec!["10.50", "99"]),
        ("//li[@data-stock != 'yes' or position() = 1]/a", vec!["Lamp", "Chair"]),
        ("//ul/li[count(preceding-sibling::li) = 2]/a", vec!["Desk"]),
        ("//@rel", vec!["nofollow item"; 3]),
        ("string(//nosuch)", vec![""]),
        ("//li/span[. = //li[2]/span]", vec!["99"]),
        ("self::node()/html/head/title", vec!["Shop"]),
        ("xpath: //title", vec!["Shop"]),
    ] {
        assert_eq!(find(target), expected, "{target}");
    }
}

#[test]
fn css_as_people_use_it() {
    for (target, expected) in [
        ("title", vec!["Shop"]),
        ("li a", vec!["Lamp", "Chair", "Desk"]),
        ("ul > li > a", vec!["Lamp", "Chair", "Desk"]),
        ("body > a", vec![]),
        ("#top", vec!["  Three\n things "]),
        ("h1.title.big", vec!["  Three\n things "]),
        ("li[data-stock=no] a", vec!["Chair"]),
        ("li[data-stock=\"yes\"] > a::attr(href)", vec!["/lamp", "/desk"]),
        ("a[href^='/la'], a[href$=sk], p", vec!["Lamp", "Desk", "end"]),
        ("a[href*=ai]::text", vec!["Chair"]),
        ("a[rel~=item]", vec!["Lamp", "Chair", "Desk"]),
        ("html[lang|=en] title", vec!["Shop"]),
        ("a[href='/LAMP' i]", vec!["Lamp"]),
        ("li:first-child a", vec!["Lamp"]),
        ("li:last-child .price", vec!["250"]),
        ("li:nth-child(2) a", vec!["Chair"]),
        ("li:nth-child(odd) a", vec!["Lamp", "Desk"]),
        ("li:nth-child(-n+2) a", vec!["Lamp", "Chair"]),
        ("li:nth-last-child(1) a", vec!["Desk"]),
        ("span:nth-of-type(1)", vec!["10.50", "99", "250"]),
        ("a + span", vec!["10.50", "99", "250"]),
        ("li:nth-child(1) ~ li a", vec!["Chair", "Desk"]),
        ("li:not([data-stock=no], :last-child) a", vec!["Lamp"]),
        ("li:has(> a:contains(\"Chair\")) span", vec!["99"]),
        ("*:is(h1, p)", vec!["  Three\n things ", "end"]),
        ("ul.list li.item:only-child", vec![]),
        ("css: title", vec!["Shop"]),
    ] {
        assert_eq!(find(target), expected, "{target}");
    }
}

#[test]
fn errors_name_the_character() {
    for (target, at) in [
        ("//h1[", 6),
        ("//h1]", 5),
        ("//h1[@]", 7),
        ("//h1[nosuch(1)]", 6),
        ("//h1[contains(1)]", 6),
        ("count('a')", 7),
        ("//a['x]", 5),
        ("//nosuch::a", 3),
        ("//a | 'b'", 7),
        ("('a')/b", 1),
        ("//a[$x]", 5),
        ("//a[. = ]", 9),
        ("xpath://a[", 11),
        ("a >", 4),
        ("a[", 3),
        ("a[b=\"c]", 5),
        ("a:nosuch", 2),
        ("a:nth-child(x)", 13),
        ("a::after", 2),
        ("a..b", 3),
        ("a, ", 4),
        ("", 1),
        ("a:not(b c)", 9),
    ] {
        let error = Target::parse(target).expect_err(target);
        assert_eq!(error.at, at, "{target}: {error}");
    }
    let deep = "(".repeat(100) + "1" + &")".repeat(100);
    assert!(Target::parse(&deep).unwrap_err().what.contains("levels"));
    assert!(Target::parse(&"/a".repeat(3_000)).unwrap_err().what.contains("characters"));
}

#[test]
fn what_becomes_too_much_ends() {
    let mut builder = TreeBuilder::new(true);
    for _ in 0..500 {
        builder.open("div", Vec::new());
        builder.text("text ");
    }
    let tree = builder.finish();
    for target in [
        "//div[.//div[.//div[.//div]]]",
        "//div[contains(., //div)][contains(., 'y')]//div[preceding::text()]",
        "//*[following::* or preceding::*][string-length(.) > count(//*//*)]",
        "div div div:has(div div div)",
    ] {
        let target = Target::parse(target).unwrap();
        assert_eq!(target.texts(&tree, &mut Fuel::new(100_000)), Err(Exhausted));
    }
    // What is below others is met once.
    let simple = Target::parse("div div div div div div div div").unwrap();
    assert_eq!(simple.texts(&tree, &mut Fuel::new(500_000)).unwrap().len(), 493);
}

/// Expressions of this grammar that are built at random.
fn any_expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("//li".to_owned()),
        Just("//a/@href".to_owned()),
        Just(".".to_owned()),
        Just("'text'".to_owned()),
        Just("2".to_owned()),
        Just("position()".to_owned()),
        Just("//*".to_owned()),
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone(), "=|!=|<|>=| or | and | div | mod |\\+|-|\\*")
                .prop_map(|(a, b, sign)| format!("({a}){sign}({b})")),
            inner.clone().prop_map(|a| format!("//*[{a}]")),
            inner.clone().prop_map(|a| format!("string({a})")),
            inner.clone().prop_map(|a| format!("not({a})")),
            (inner.clone(), inner).prop_map(|(a, b)| format!("concat({a}, {b})")),
        ]
    })
}

proptest! {
    #[test]
    fn no_text_panics_and_places_are_in_the_text(text in "[-/@a-z0-9\\[\\]()'\".,*:|=<>!+~^$# ]{0,40}") {
        if let Err(error) = Target::parse(&text) {
            prop_assert!((1..=text.chars().count() + 1).contains(&error.at), "{} is beyond {:?}", error, text);
        }
    }

    #[test]
    fn whatever_is_understood_gives_something_or_ends(text in any_expression()) {
        let target = Target::xpath(&text).unwrap();
        let mut fuel = Fuel::new(200_000);
        if let Ok(texts) = target.texts(&page(), &mut fuel) {
            prop_assert!(texts.len() <= page().len() * 4);
        }
    }

    #[test]
    fn nodes_come_in_order_and_once(a in any_expression(), b in any_expression()) {
        let text = format!("//*[{a}] | //*[{b}]");
        let expression = Expression::parse(&text).unwrap();
        let tree = page();
        if let Ok(nodes) = expression.nodes(super::Scope::new(&tree, Tree::ROOT), &mut Fuel::new(200_000)) {
            prop_assert!(nodes.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }
}
