//! The same page in every encoding that the web still uses.

use encoding_rs::Encoding;

use super::*;

/// A text in `label`'s script, in that encoding.
fn encoded(label: &str, text: &str) -> Vec<u8> {
    let encoding = Encoding::for_label(label.as_bytes()).unwrap();
    match encoding.name() {
        "UTF-16LE" => text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
        "UTF-16BE" => text.encode_utf16().flat_map(u16::to_be_bytes).collect(),
        _ => {
            let (bytes, _, unmappable) = encoding.encode(text);
            assert!(!unmappable, "{label}: {text}");
            bytes.into_owned()
        }
    }
}

const SAMPLES: [(&str, &str); 14] = [
    ("utf-8", "Grüße, мир, 世界"),
    ("windows-1252", "Grüße – naïve café"),
    ("iso-8859-2", "Příliš žluťoučký kůň"),
    ("iso-8859-15", "prix en €, œuvre"),
    ("windows-1251", "Съешь ещё этих мягких булок"),
    ("koi8-r", "Съешь ещё этих мягких булок"),
    ("windows-1253", "Ξεσκεπάζω την ψυχοφθόρα"),
    ("windows-1255", "דג סקרן שט בים"),
    ("windows-1256", "نص حكيم له سر قاطع"),
    ("shift_jis", "いろはにほへと 漢字"),
    ("euc-jp", "いろはにほへと 漢字"),
    ("euc-kr", "키스의 고유조건은"),
    ("gbk", "视野无限广"),
    ("big5", "視野無限廣"),
];

#[test]
fn the_header_decides() {
    for (label, text) in SAMPLES {
        let body = encoded(label, &format!("<meta charset=x-user-defined><p>{text}"));
        let found = bytes(&body, Some(&format!("text/html; charset={label}")));
        assert_eq!(found.text, text, "{label}");
        assert_eq!(found.charset, Some(name_of(label)));
        assert_eq!(found.defects, [], "{label}");
    }
}

#[test]
fn without_a_header_the_meta_tag_decides() {
    for (label, text) in SAMPLES {
        for meta in [
            format!("<meta charset=\"{label}\">"),
            format!("<META HTTP-EQUIV='Content-Type' CONTENT='text/html; charset={label}'>"),
            format!(
                "<!-- <meta charset=utf-7> --><html lang='x>y'><meta content='text/html;charset=\"{label}\"' http-equiv=content-type>"
            ),
            format!("<?xml version='1.0' encoding='{label}'?><html>"),
        ] {
            let found = bytes(&encoded(label, &format!("{meta}<p>{text}")), Some("text/html"));
            assert_eq!(found.text, text, "{meta}");
        }
    }
}

#[test]
fn a_byte_order_mark_beats_everything() {
    for (mark, label) in [(&b"\xEF\xBB\xBF"[..], "utf-8"), (b"\xFF\xFE", "utf-16le"), (b"\xFE\xFF", "utf-16be")] {
        let text = "Grüße, мир, 世界";
        let body = [mark, &encoded(label, &format!("<meta charset=koi8-r><a href='/ä'>{text}</a>"))].concat();
        let found = bytes(&body, Some("text/html; charset=windows-1251"));
        assert_eq!((found.text.as_str(), found.charset), (text, Some(name_of(label))));
        assert_eq!(urls(&found), ["https://example.com/%C3%A4"]);
    }
}

fn name_of(label: &str) -> &'static str {
    Encoding::for_label(label.as_bytes()).unwrap().name()
}

#[test]
fn utf_16_is_known_without_a_mark() {
    for label in ["utf-16le", "utf-16be"] {
        let found = bytes(&encoded(label, "<html><p>Grüße"), Some("text/html"));
        assert_eq!(found.text, "Grüße", "{label}");
    }
}

#[test]
fn a_meta_tag_that_says_utf_16_means_utf_8() {
    assert_eq!(bytes("<meta charset=utf-16><p>Grüße".as_bytes(), Some("text/html")).text, "Grüße");
}

#[test]
fn without_any_label_the_encoding_is_guessed() {
    for (label, text) in [
        ("utf-8", "Grüße"),
        ("windows-1251", "Съешь ещё этих мягких французских булок, да выпей же чаю. Широкая электрификация"),
        ("shift_jis", "いろはにほへと ちりぬるを わかよたれそ つねならむ うゐのおくやま"),
        ("iso-2022-jp", "いろはにほへと ちりぬるを"),
        ("windows-1252", "Die Würde des Menschen ist unantastbar, sagt man, und hält es für selbstverständlich"),
    ] {
        let found = bytes(&encoded(label, &format!("<html><p>{text}")), Some("text/html"));
        assert_eq!(found.text, text, "{label}");
    }
}

#[test]
fn damaged_or_truncated_utf_8_stays_utf_8() {
    let mut body = format!("<p>{}", "äöü ".repeat(50)).into_bytes();
    body.push(0xC3);
    assert_eq!(bytes(&body, Some("text/html")).charset, Some("UTF-8"));
    body[20] = 0xFF;
    let found = bytes(&body, Some("text/html"));
    assert_eq!(found.charset, Some("UTF-8"));
    assert_eq!(found.defects, [Defect::UndecodableBytes]);
}

#[test]
fn unknown_labels_are_passed_over() {
    let found =
        bytes("<meta charset=klingon><meta charset=utf-8><p>Grüße".as_bytes(), Some("text/html; charset=elvish"));
    assert_eq!((found.text.as_str(), found.charset), ("Grüße", Some("UTF-8")));
}
