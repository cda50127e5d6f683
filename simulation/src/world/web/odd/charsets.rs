//! Text in encodings other than declared UTF-8. The expected title tells whether it was decoded rightly.

use encoding_rs::{Encoding, SHIFT_JIS, WINDOWS_1251, WINDOWS_1252};

use super::super::Answer;
use super::super::expected::Duty::Must;
use super::super::expected::Kind::Page;
use super::{Exhibit, Here, Serve};

const RUSSIAN: &str = "Тихая гавань и старый маяк";
const JAPANESE: &str = "静かな港と古い灯台";
const FRENCH: &str = "Été à la forêt près du château";
const RUSSIAN_PROSE: &str =
    "Каждое утро смотритель маяка поднимался по лестнице и записывал погоду в толстую тетрадь. ";
const JAPANESE_PROSE: &str = "灯台守は毎朝階段を上り、天気を厚い帳面に書きました。港には小さな船が並んでいます。";
const FRENCH_PROSE: &str = "Chaque matin, le gardien montait l'escalier et notait la météo dans un cahier très épais. ";

macro_rules! titled {
    ($path:expr, $title:expr, $leaf:expr, $make:expr) => {
        Exhibit { title: Some($title), ..Exhibit::new($path, Page, Serve::With($make)).leading_to(&[($leaf, Must)]) }
    };
}

pub(super) const EXHIBITS: &[Exhibit] = &[
    titled!("/charsets/windows-1251", RUSSIAN, "/leaf/windows-1251", |_| encoded(
        "text/html; charset=windows-1251",
        WINDOWS_1251,
        &russian("", "windows-1251")
    )),
    titled!("/charsets/windows-1251-meta", RUSSIAN, "/leaf/windows-1251-meta", |_| encoded(
        "text/html",
        WINDOWS_1251,
        &russian("<meta charset=windows-1251>", "windows-1251-meta")
    )),
    titled!("/charsets/windows-1251-http-equiv", RUSSIAN, "/leaf/windows-1251-http-equiv", |_| encoded(
        "text/html",
        WINDOWS_1251,
        &russian(
            "<meta http-equiv=\"Content-Type\" content=\"text/html; charset=windows-1251\">",
            "windows-1251-http-equiv"
        )
    )),
    // The header wins over the document.
    titled!("/charsets/header-against-meta", RUSSIAN, "/leaf/header-against-meta", |_| encoded(
        "text/html; charset=windows-1251",
        WINDOWS_1251,
        &russian("<meta charset=shift_jis>", "header-against-meta")
    )),
    titled!("/charsets/shift-jis", JAPANESE, "/leaf/shift-jis", |_| encoded(
        "text/html; charset=Shift_JIS",
        SHIFT_JIS,
        &japanese("", "shift-jis")
    )),
    titled!("/charsets/shift-jis-meta", JAPANESE, "/leaf/shift-jis-meta", |_| encoded(
        "text/html",
        SHIFT_JIS,
        &japanese("<meta charset='x-sjis'>", "shift-jis-meta")
    )),
    titled!("/charsets/utf-16le", JAPANESE, "/leaf/utf-16le", |_| utf_16(&japanese("", "utf-16le"), u16::to_le_bytes)),
    titled!("/charsets/utf-16be", RUSSIAN, "/leaf/utf-16be", |_| utf_16(&russian("", "utf-16be"), u16::to_be_bytes)),
    // The byte order mark wins over the header.
    titled!("/charsets/utf-8-mark", JAPANESE, "/leaf/utf-8-mark", |_| Answer::ok(
        "text/html; charset=iso-8859-1",
        format!("\u{feff}{}", japanese("", "utf-8-mark"))
    )),
    titled!("/charsets/undeclared", JAPANESE, "/leaf/undeclared", |_| Answer::ok(
        "text/html",
        japanese("", "undeclared")
    )),
    // By the WHATWG table latin1 means windows-1252.
    titled!("/charsets/latin1", FRENCH, "/leaf/latin1", |_| encoded(
        "text/html; charset=\"latin1\"",
        WINDOWS_1252,
        &document("fr", FRENCH, FRENCH_PROSE, "", "latin1")
    )),
    // A charset that does not exist counts as none.
    titled!("/charsets/unknown", JAPANESE, "/leaf/unknown", |_| Answer::ok(
        "text/html; charset=klingon-8",
        japanese("<meta charset=utf-8>", "unknown")
    )),
    // Declares UTF-8 and is not: no title can be expected, but links survive.
    Exhibit::new("/charsets/lying", Page, Serve::With(lying)).leading_to(&[("/leaf/lying", Must)]),
];

fn lying(_: &Here<'_>) -> Answer {
    encoded("text/html; charset=utf-8", WINDOWS_1251, &russian("", "lying"))
}

fn russian(head: &str, leaf: &str) -> String {
    document("ru", RUSSIAN, RUSSIAN_PROSE, head, leaf)
}

fn japanese(head: &str, leaf: &str) -> String {
    document("ja", JAPANESE, JAPANESE_PROSE, head, leaf)
}

fn document(language: &str, title: &str, prose: &str, head: &str, leaf: &str) -> String {
    let prose = prose.repeat(8);
    format!(
        "<!doctype html>\n<html lang=\"{language}\"><head>{head}<title>{title}</title></head>\n\
         <body><p>{prose}</p>\n<a href=\"/leaf/{leaf}\">{leaf}</a></body></html>\n"
    )
}

fn encoded(content_type: &'static str, encoding: &'static Encoding, text: &str) -> Answer {
    let (bytes, _, unmappable) = encoding.encode(text);
    assert!(!unmappable, "{} has no letters for this text", encoding.name());
    Answer::ok(content_type, bytes.into_owned())
}

fn utf_16(text: &str, bytes: fn(u16) -> [u8; 2]) -> Answer {
    let marked = format!("\u{feff}{text}");
    Answer::ok("text/html", marked.encode_utf16().flat_map(bytes).collect::<Vec<u8>>())
}
