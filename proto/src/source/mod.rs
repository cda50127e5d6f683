//! URIs as people hand them in: a text, a CSV or a TXT file, one URI a line. What is accepted, and what is refused for which reason.
//!
//! [`kind_of`] refuses what is no list of URIs at once, with the remedy; [`Importer`] takes lines one by one and judges each. Blanks around a URI are left out. A `;` separates two URIs
//! (spreadsheets write it) where another URI begins behind it; a comma never does, because URIs have commas. A URI that stood there before is refused as such.

//!
//! What makes URIs time and again is a *job* with a *generator*, a script that runs by a cron line: [`job`], [`cron`], [`tab`], [`lanes`], [`dispatch`], [`lend`], [`output`], [`task`], [`log`].

pub mod cron;
pub mod dispatch;
pub mod entry;
pub mod hand_over;
pub mod job;
pub mod lanes;
pub mod lend;
pub mod log;
pub mod output;
pub mod schedule;
pub mod tab;
pub mod task;

use std::collections::BTreeSet;
use std::fmt;

use crate::url::{CanonicalUrl, UrlError, UrlRules};

/// Longest URI, in characters.
pub const URI_CHARS_MAX: usize = 8_000;
/// URIs of one import that are remembered to find those that come again, some 40 bytes each: 160 MB. Beyond them the crawl alone tells what it knows.
pub const REMEMBERED_MAX: usize = 4_000_000;
/// Longest line that is read, in bytes: a URI of the greatest length in characters of four bytes, and its neighbours.
pub const LINE_BYTES_MAX: usize = 256 << 10;
/// What is looked at to tell what a file is.
pub const HEAD_BYTES: usize = 512;
/// How much of a refused URI is told again.
const SHOWN_CHARS_MAX: usize = 200;

/// What is handed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// Lines of URIs, from a text or a TXT file.
    Text,
    /// One column of a spreadsheet, without a heading.
    Csv,
}

/// Why nothing of an input is taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrongInput {
    /// It is no list.
    #[error("{name} is not a list of URIs but {what}; give a CSV or TXT file with one URI a line")]
    FileType {
        /// Its name.
        name: String,
        /// What it is.
        what: String,
    },
    /// It makes URIs when it runs.
    #[error(
        "{name} is a script; run it and hand over what it prints: `{runs} {name} | orbweaver ctl import -`, or have it run by a job: `orbweaver ctl generator add JOB {name}`"
    )]
    Script {
        /// Its name.
        name: String,
        /// What runs it.
        runs: &'static str,
    },
    /// URIs in a row.
    #[error("the URIs are separated by commas; a URI may contain commas itself: enter them again, one a line")]
    Commas,
}

/// Tells what an input is by its name and its first bytes.
pub fn kind_of(name: &str, head: &[u8]) -> Result<InputKind, WrongInput> {
    let file_type = |what: &str| WrongInput::FileType { name: name.to_owned(), what: what.to_owned() };
    let file = name.rsplit(['/', '\\']).next().unwrap_or(name);
    let ending = file.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    let kind = match ending.as_deref() {
        None | Some("txt" | "text" | "list" | "") => InputKind::Text,
        Some("csv") => InputKind::Csv,
        Some("py") => return Err(WrongInput::Script { name: name.to_owned(), runs: "python3" }),
        Some("sh") => return Err(WrongInput::Script { name: name.to_owned(), runs: "sh" }),
        Some("doc" | "docx" | "odt" | "rtf") => return Err(file_type("a document of a word processor")),
        Some("xls" | "xlsx" | "ods") => return Err(file_type("a spreadsheet; save it as CSV")),
        Some("js" | "ts" | "rb" | "pl" | "php") => return Err(file_type("a program")),
        Some(other) => return Err(file_type(&format!("a file of the kind .{other}"))),
    };
    let magic: [(&[u8], &str); 6] = [
        (b"PK\x03\x04", "a packed file, as word processors write them"),
        (b"\xD0\xCF\x11\xE0", "a document of a word processor"),
        (b"%PDF", "a PDF"),
        (b"\x1f\x8b", "a packed file"),
        (b"{\\rtf", "a document of a word processor"),
        (b"#!", "a script"),
    ];
    if let Some((_, what)) = magic.iter().find(|(magic, _)| head.starts_with(magic)) {
        return Err(file_type(what));
    }
    if head.iter().take(HEAD_BYTES).any(|byte| *byte == 0) {
        return Err(file_type("something else than text"));
    }
    Ok(kind)
}

/// Why a URI is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// More than [`URI_CHARS_MAX`] characters.
    TooLong,
    /// The line is longer than [`LINE_BYTES_MAX`].
    LongLine,
    /// The line is no UTF-8.
    NotText,
    /// It is no URI that can be crawled.
    NoUri(UrlError),
    /// Several URIs with commas between them.
    Commas,
    /// It stood there before.
    Duplicate,
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::TooLong => write!(out, "longer than {URI_CHARS_MAX} characters"),
            Refusal::LongLine => write!(out, "the line is longer than {LINE_BYTES_MAX} bytes"),
            Refusal::NotText => out.write_str("not UTF-8"),
            Refusal::NoUri(error) => write!(out, "{error}"),
            Refusal::Commas => out.write_str("several URIs with commas between them; give each a line of its own"),
            Refusal::Duplicate => out.write_str("stood there before"),
        }
    }
}

/// A URI that is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Where it stands, from 1.
    pub line: u64,
    /// Its beginning.
    pub uri: String,
    /// Why.
    pub reason: Refusal,
}

/// What became of a URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judged {
    /// It is one.
    Accepted(CanonicalUrl),
    /// It is none that is taken.
    Refused(Refused),
}

/// Judges the lines of one input.
#[derive(Debug)]
pub struct Importer {
    kind: InputKind,
    rules: UrlRules,
    line: u64,
    /// Whether a line with something in it has come.
    begun: bool,
    seen: BTreeSet<u128>,
}

impl Importer {
    /// Judges an input of this kind.
    pub fn new(kind: InputKind, rules: UrlRules) -> Importer {
        Importer { kind, rules, line: 0, begun: false, seen: BTreeSet::new() }
    }

    /// Judges the next line, without its end. An error means that the whole input is not what it should be; only the first line that has something in it can say so.
    pub fn line(&mut self, bytes: &[u8]) -> Result<Vec<Judged>, WrongInput> {
        self.line += 1;
        let bytes = if self.line == 1 { bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes) } else { bytes };
        if bytes.len() > LINE_BYTES_MAX {
            return Ok(vec![self.refused(&String::from_utf8_lossy(&bytes[..SHOWN_CHARS_MAX]), Refusal::LongLine)]);
        }
        let Ok(text) = std::str::from_utf8(bytes) else {
            return Ok(vec![self.refused(&String::from_utf8_lossy(bytes), Refusal::NotText)]);
        };
        let mut judged = Vec::new();
        for part in parts(text) {
            let uri = if self.kind == InputKind::Csv { unquoted(part) } else { part.to_owned() };
            if uri.is_empty() {
                continue;
            }
            let is_row = has_commas(&uri);
            if is_row && !std::mem::replace(&mut self.begun, true) {
                return Err(WrongInput::Commas);
            }
            self.begun = true;
            judged.push(match is_row {
                true => self.refused(&uri, Refusal::Commas),
                false => self.judge(&uri),
            });
        }
        Ok(judged)
    }

    fn judge(&mut self, uri: &str) -> Judged {
        if uri.chars().count() > URI_CHARS_MAX {
            return self.refused(uri, Refusal::TooLong);
        }
        match CanonicalUrl::parse(uri, &self.rules) {
            Err(error) => self.refused(uri, Refusal::NoUri(error)),
            Ok(url) => {
                let id = u128::from_le_bytes(url.id("").0);
                if self.seen.contains(&id) {
                    return self.refused(uri, Refusal::Duplicate);
                }
                if self.seen.len() < REMEMBERED_MAX {
                    self.seen.insert(id);
                }
                Judged::Accepted(url)
            }
        }
    }

    fn refused(&self, uri: &str, reason: Refusal) -> Judged {
        let uri = uri.trim().chars().take(SHOWN_CHARS_MAX).collect();
        Judged::Refused(Refused { line: self.line, uri, reason })
    }
}

/// Splits a line at each `;` behind which another URI begins, or nothing.
fn parts(line: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    for (at, _) in line.match_indices(';') {
        let rest = line[at + 1..].trim_start_matches([' ', '\t', '"', '\'']);
        if rest.trim().is_empty() || begins_uri(rest) {
            parts.push(line[start..at].trim());
            start = at + 1;
        }
    }
    parts.push(line[start..].trim());
    parts
}

/// Whether another URI begins behind a comma.
fn has_commas(uri: &str) -> bool {
    uri.match_indices(',').any(|(at, _)| begins_uri(uri[at + 1..].trim_start_matches([' ', '\t', '"', '\''])))
}

/// Whether a text begins with a scheme that people crawl.
fn begins_uri(text: &str) -> bool {
    ["http://", "https://", "ftp://", "ftps://"]
        .iter()
        .any(|scheme| text.get(..scheme.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(scheme)))
}

/// A field of a CSV file without its quotes.
fn unquoted(field: &str) -> String {
    match field.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(inner) => inner.replace("\"\"", "\"").trim().to_owned(),
        None => field.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What was accepted, and lines and reasons of what was not.
    type Imported = (Vec<String>, Vec<(u64, String)>);

    fn import(kind: InputKind, input: &str) -> Result<Imported, WrongInput> {
        let mut importer = Importer::new(kind, UrlRules::default());
        let (mut accepted, mut refused) = (Vec::new(), Vec::new());
        for line in input.split('\n') {
            for judged in importer.line(line.as_bytes())? {
                match judged {
                    Judged::Accepted(url) => accepted.push(url.into_string()),
                    Judged::Refused(one) => refused.push((one.line, one.reason.to_string())),
                }
            }
        }
        Ok((accepted, refused))
    }

    #[test]
    fn case_1_a_csv_or_txt_file_of_uris_is_taken() {
        let csv = "\u{feff}http://a.example/1\r\n\"http://a.example/2?x=1,2\"\n";
        let (accepted, refused) = import(kind_of("list.csv", csv.as_bytes()).unwrap(), csv).unwrap();
        assert_eq!(accepted, ["http://a.example/1", "http://a.example/2?x=1,2"]);
        assert!(refused.is_empty(), "{refused:?}");
        let txt = "http://a.example/1\nhttp://b.example/";
        assert_eq!(import(kind_of("LIST.TXT", txt.as_bytes()).unwrap(), txt).unwrap().0.len(), 2);
    }

    #[test]
    fn case_3_a_string_of_lines_is_taken_and_semicolons_separate_too() {
        let text = "  http://a.example/1;http://a.example/2 ; \n\nhttp://a.example/p;v=1;w=2\n";
        let (accepted, refused) = import(InputKind::Text, text).unwrap();
        assert_eq!(accepted, ["http://a.example/1", "http://a.example/2", "http://a.example/p;v=1;w=2"]);
        assert!(refused.is_empty(), "{refused:?}");
    }

    #[test]
    fn case_4_and_5_other_files_are_refused_at_once_with_the_remedy() {
        for name in ["list.doc", "list.docx", "sheet.xlsx", "make.js", "a.pdf", "photo.jpeg"] {
            let error = kind_of(name, b"http://a.example/").unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("CSV or TXT"), "{error}");
        }
        for head in [&b"PK\x03\x04..."[..], b"%PDF-1.7", b"\xD0\xCF\x11\xE0", b"a\0b"] {
            assert!(matches!(kind_of("list.txt", head), Err(WrongInput::FileType { .. })), "whatever it is called");
        }
        assert!(kind_of("make.py", b"").unwrap_err().to_string().contains("python3 make.py |"));
        assert!(kind_of("-", b"http://a.example/").is_ok() && kind_of("dir.d/list", b"").is_ok());
    }

    #[test]
    fn case_6_and_7_each_bad_entry_is_refused_with_its_line_and_the_others_are_taken() {
        let long = format!("http://a.example/{}", "x".repeat(URI_CHARS_MAX));
        let text = format!("url\nhttp://a.example/\nnot a uri\n{long}\nftp://a.example/\nhttp://A.example\n");
        let (accepted, refused) = import(InputKind::Csv, &text).unwrap();
        assert_eq!(accepted, ["http://a.example/"]);
        let lines: Vec<u64> = refused.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [1, 3, 4, 5, 6], "{refused:?}");
        assert!(refused[2].1.contains("8000 characters") && refused[4].1.contains("before"), "{refused:?}");
    }

    #[test]
    fn case_8_a_string_with_commas_is_refused_at_once() {
        for text in ["http://a.example/,http://b.example/", "\n http://a.example/, https://b.example/\n"] {
            assert_eq!(import(InputKind::Text, text), Err(WrongInput::Commas));
        }
        let (accepted, refused) =
            import(InputKind::Text, "http://a.example/1,2\nhttp://b.example/,http://c.example/").unwrap();
        assert_eq!((accepted.len(), refused.len()), (1, 1), "later lines are refused one by one");
    }

    #[test]
    fn case_9_illegal_uris_are_told_and_the_rest_goes_on() {
        let mut importer = Importer::new(InputKind::Text, UrlRules::default());
        let judged = importer.line(b"http://[broken").unwrap();
        let [Judged::Refused(refused)] = judged.as_slice() else { panic!("{judged:?}") };
        assert_eq!((refused.line, refused.uri.as_str()), (1, "http://[broken"));
        let judged = importer.line(b"\xff\xfe").unwrap();
        assert!(matches!(judged.as_slice(), [Judged::Refused(Refused { reason: Refusal::NotText, line: 2, .. })]));
        let judged = importer.line(&vec![b'a'; LINE_BYTES_MAX + 1]).unwrap();
        assert!(matches!(judged.as_slice(), [Judged::Refused(Refused { reason: Refusal::LongLine, .. })]));
    }

    proptest! {
        #[test]
        fn every_line_is_judged_and_none_is_accepted_twice(lines in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), 0..12)) {
            let mut importer = Importer::new(InputKind::Csv, UrlRules::default());
            let mut accepted = Vec::new();
            for line in &lines {
                let Ok(judged) = importer.line(line) else { break };
                accepted.extend(judged.into_iter().filter_map(|judged| match judged {
                    Judged::Accepted(url) => Some(url),
                    Judged::Refused(_) => None,
                }));
            }
            let count = accepted.len();
            accepted.sort_unstable();
            accepted.dedup();
            prop_assert_eq!(accepted.len(), count);
        }

        #[test]
        fn lists_that_are_joined_by_semicolons_come_apart_again(numbers in proptest::collection::btree_set(0..10_000u32, 1..20)) {
            let uris: Vec<String> = numbers.iter().map(|n| format!("http://a.example/{n};p=1,2")).collect();
            let (accepted, refused) = import(InputKind::Csv, &uris.join(" ; ")).unwrap();
            prop_assert_eq!(accepted, uris);
            prop_assert!(refused.is_empty());
        }
    }
}
