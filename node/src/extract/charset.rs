//! Makes a body UTF-8. In order: byte order mark, `Content-Type`, what the document says of itself, a guess.
//!
//! A body that is UTF-8 already, as nearly all are, is checked and borrowed, not copied.

use std::borrow::Cow;

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252, X_USER_DEFINED};

/// How far into a document its `<meta charset>` is searched. The standard says 1024; large heads come before it.
const PRESCAN_BYTES: usize = 4096;
/// How much the detector looks at: it takes 80 µs per KiB of text that is not ASCII, so 0.6 ms at worst.
const DETECT_BYTES: usize = 8 * 1024;
/// A text with this many good multi-byte characters for each bad one is damaged UTF-8, not another encoding.
const GOOD_PER_BAD: usize = 20;

/// A body as text.
pub(super) struct Decoded<'a> {
    /// The text, borrowed if the body was UTF-8.
    pub(super) text: Cow<'a, str>,
    /// What it was encoded in.
    pub(super) encoding: &'static Encoding,
    /// Whether some bytes made no sense and were replaced.
    pub(super) malformed: bool,
}

/// Decodes `body`. `label` is the charset of the HTTP header; `host` helps to guess, as its country suggests a script.
pub(super) fn decode<'a>(body: &'a [u8], label: Option<&str>, xml: bool, host: &str) -> Decoded<'a> {
    let (encoding, body) = match Encoding::for_bom(body) {
        Some((encoding, length)) => (encoding, &body[length..]),
        None => (choose(body, label, xml, host), body),
    };
    let (text, malformed) = encoding.decode_without_bom_handling(body);
    Decoded { text, encoding, malformed }
}

fn choose(body: &[u8], label: Option<&str>, xml: bool, host: &str) -> &'static Encoding {
    if let Some(encoding) = label.and_then(|label| Encoding::for_label_no_replacement(label.as_bytes())) {
        return encoding;
    }
    if let Some(encoding) = unmarked_utf_16(body) {
        return encoding;
    }
    let head = &body[..body.len().min(PRESCAN_BYTES)];
    let declared = xml_declaration(head).or_else(|| if xml { None } else { prescan(head) });
    match declared.and_then(|label| Encoding::for_label_no_replacement(&label)) {
        // Whoever could read the declaration as ASCII did not read UTF-16.
        Some(encoding) if encoding == UTF_16LE || encoding == UTF_16BE => UTF_8,
        Some(encoding) if encoding == X_USER_DEFINED => WINDOWS_1252,
        Some(encoding) => encoding,
        None => guess(body, host),
    }
}

/// UTF-16 without a byte order mark: a `<`, then another character, with zeros between.
fn unmarked_utf_16(body: &[u8]) -> Option<&'static Encoding> {
    match body {
        [b'<', 0, 1..=255, 0, ..] => Some(UTF_16LE),
        [0, b'<', 0, 1..=255, ..] => Some(UTF_16BE),
        _ => None,
    }
}

fn guess(body: &[u8], host: &str) -> &'static Encoding {
    let first_bad = match std::str::from_utf8(body) {
        Ok(_) if !body.contains(&0x1B) => return UTF_8,
        Ok(_) => 0,                                                // ISO-2022-JP is all ASCII, with escapes
        Err(error) if error.error_len().is_none() => return UTF_8, // cut in the middle of a character
        Err(error) => error.valid_up_to(),
    };
    let start = first_bad.saturating_sub(DETECT_BYTES / 4);
    let sample = &body[start..body.len().min(start + DETECT_BYTES)];
    if is_damaged_utf_8(sample) {
        return UTF_8;
    }
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Allow);
    detector.feed(sample, true);
    let top_level = host.rsplit('.').next().unwrap_or_default().as_bytes();
    let usable = !top_level.is_empty() && top_level.iter().all(|byte| byte.is_ascii_lowercase());
    detector.guess(usable.then_some(top_level), Utf8Detection::Allow)
}

fn is_damaged_utf_8(sample: &[u8]) -> bool {
    let (mut good, mut bad) = (0, 0);
    for chunk in sample.utf8_chunks() {
        good += chunk.valid().chars().filter(|character| !character.is_ascii()).count();
        bad += usize::from(!chunk.invalid().is_empty());
    }
    good > 0 && good >= bad.saturating_mul(GOOD_PER_BAD)
}

/// The encoding that `<?xml ... encoding="..."?>` declares.
fn xml_declaration(head: &[u8]) -> Option<Vec<u8>> {
    let declaration = head.strip_prefix(b"<?xml")?;
    let declaration = &declaration[..declaration.iter().position(|&byte| byte == b'>')?];
    let at = declaration.windows(8).position(|window| window == b"encoding")?;
    let value = declaration[at + 8..].trim_ascii_start().strip_prefix(b"=")?.trim_ascii_start();
    let (&quote, value) = value.split_first().filter(|(quote, _)| matches!(quote, b'"' | b'\''))?;
    Some(value[..value.iter().position(|&byte| byte == quote)?].to_vec())
}

/// The encoding that a `<meta>` declares, found as the HTML standard prescans a byte stream.
fn prescan(head: &[u8]) -> Option<Vec<u8>> {
    let mut at = 0;
    while at < head.len() {
        at += head[at..].iter().position(|&byte| byte == b'<')? + 1;
        let rest = &head[at..];
        if rest.starts_with(b"!--") {
            at += 1 + rest[1..].windows(3).position(|window| window == b"-->")? + 3;
        } else if rest.first().is_some_and(u8::is_ascii_alphabetic) {
            let name_end = rest.iter().position(|&byte| is_space(byte) || matches!(byte, b'/' | b'>'))?;
            let is_meta = rest[..name_end].eq_ignore_ascii_case(b"meta");
            at += name_end;
            let mut meta = Meta::default();
            while let Some((name, value)) = attribute(head, &mut at) {
                if is_meta {
                    meta.add(&name, value);
                }
            }
            if let Some(label) = meta.charset() {
                return Some(label);
            }
        } else if matches!(rest.first(), Some(b'!' | b'/' | b'?')) {
            at += rest.iter().position(|&byte| byte == b'>')?;
        }
    }
    None
}

/// The attributes of a `<meta>` that bear on the encoding; the first of several counts.
#[derive(Default)]
struct Meta {
    charset: Option<Vec<u8>>,
    content: Option<Vec<u8>>,
    is_content_type: Option<bool>,
}

impl Meta {
    fn add(&mut self, name: &[u8], value: Vec<u8>) {
        match name {
            b"charset" => self.charset = self.charset.take().or(Some(value)),
            b"content" => self.content = self.content.take().or(Some(value)),
            b"http-equiv" => {
                self.is_content_type.get_or_insert(value.eq_ignore_ascii_case(b"content-type"));
            }
            _ => {}
        }
    }

    fn charset(self) -> Option<Vec<u8>> {
        let from_content = || self.content.filter(|_| self.is_content_type == Some(true)).and_then(|c| in_content(&c));
        let label = self.charset.or_else(from_content)?;
        Encoding::for_label(&label).map(|_| label)
    }
}

/// The label in `text/html; charset=label`.
fn in_content(content: &[u8]) -> Option<Vec<u8>> {
    let mut rest = content;
    loop {
        let at = rest.windows(7).position(|window| window.eq_ignore_ascii_case(b"charset"))?;
        rest = rest[at + 7..].trim_ascii_start();
        if let Some(value) = rest.strip_prefix(b"=") {
            let value = value.trim_ascii_start();
            return match value.split_first() {
                Some((&quote @ (b'"' | b'\''), value)) => {
                    Some(value[..value.iter().position(|&byte| byte == quote)?].to_vec())
                }
                _ => {
                    let end = value.iter().position(|&byte| is_space(byte) || byte == b';').unwrap_or(value.len());
                    Some(value[..end].to_vec())
                }
            };
        }
    }
}

/// Reads one attribute at `at`: its name in lower case and its value. `None` at the end of the tag.
fn attribute(head: &[u8], at: &mut usize) -> Option<(Vec<u8>, Vec<u8>)> {
    let skip_spaces = |at: &mut usize| {
        while head.get(*at).is_some_and(|&byte| is_space(byte)) {
            *at += 1;
        }
    };
    while head.get(*at).is_some_and(|&byte| is_space(byte) || byte == b'/') {
        *at += 1;
    }
    if matches!(head.get(*at), None | Some(b'>')) {
        return None;
    }
    let mut name = Vec::new();
    while let Some(&byte) = head.get(*at) {
        if is_space(byte) || matches!(byte, b'/' | b'>') || (byte == b'=' && !name.is_empty()) {
            break;
        }
        name.push(byte.to_ascii_lowercase());
        *at += 1;
    }
    skip_spaces(at);
    if head.get(*at) != Some(&b'=') {
        return Some((name, Vec::new()));
    }
    *at += 1;
    skip_spaces(at);
    let quote = head.get(*at).copied().filter(|byte| matches!(byte, b'"' | b'\''));
    *at += usize::from(quote.is_some());
    let start = (*at).min(head.len());
    let is_end = |&byte: &u8| quote.map_or(is_space(byte) || byte == b'>', |quote| byte == quote);
    let length = head[start..].iter().position(is_end).unwrap_or(head.len() - start);
    *at = start + length + usize::from(quote.is_some());
    Some((name, head[start..start + length].to_vec()))
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b'\t' | b'\n' | b'\x0C' | b'\r' | b' ')
}
