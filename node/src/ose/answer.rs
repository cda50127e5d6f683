//! What is kept of a fetch: the answer as it came, and beside it, in `.meta.<id>`, what is known of the request.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use proto::url::CanonicalUrl;
use serde::{Deserialize, Serialize};

use crate::edges::decode::{Decoder, parse_encodings};
use crate::edges::http::{BodyForm, FetchOrder, Fetched, Truncated};

/// Header lines that are read of an answer; a fetch of ours takes no more.
const HEADERS_MAX: usize = 4_096;

/// What `.meta.<id>` says, as JSON. `url`, `http_code` and `streamed_ms` are what the row in `.urls` is made from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Meta {
    /// The URL as it stands in `.urls`.
    pub url: String,
    /// The code of the answer; 0 if nobody answered.
    pub http_code: u16,
    /// When the answer was complete, Unix milliseconds.
    pub streamed_ms: u64,
    /// How long it took.
    pub elapsed_ms: u32,
    /// Who answered, address and port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
    /// The request line and headers that were sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// Why there is no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Why the answer is not whole: `length` or `encoding`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncated: Option<String>,
    /// Bytes of the answer's head.
    pub head_bytes: usize,
    /// Bytes of its body, as kept.
    pub body_bytes: usize,
}

impl Meta {
    /// What is known of an answer.
    pub fn of(url: &str, fetched: &Fetched) -> Meta {
        Meta {
            url: url.to_owned(),
            http_code: fetched.status,
            streamed_ms: fetched.started_unix_ms + u64::from(fetched.elapsed_ms),
            elapsed_ms: fetched.elapsed_ms,
            remote: fetched.remote.map(|remote| remote.to_string()),
            request: Some(String::from_utf8_lossy(&fetched.request_head).into_owned()),
            error: None,
            truncated: fetched.truncated.map(|truncated| match truncated {
                Truncated::Length => "length".to_owned(),
                Truncated::Encoding => "encoding".to_owned(),
            }),
            head_bytes: fetched.response_head.len(),
            body_bytes: fetched.wire_body.len(),
        }
    }

    /// The file's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self).expect("text and numbers are JSON");
        bytes.push(b'\n');
        bytes
    }

    /// Reads the file; `None` if it is none of ours.
    pub fn parse(bytes: &[u8]) -> Option<Meta> {
        serde_json::from_slice(bytes).ok().filter(|meta: &Meta| !meta.url.is_empty())
    }
}

/// An answer, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    /// Its code.
    pub status: StatusCode,
    /// Status line and headers, with the empty line that ends them.
    pub head: &'a [u8],
    /// Its headers; lines that are none are passed over.
    pub headers: HeaderMap,
    /// Its body, as it was transferred.
    pub body: &'a [u8],
}

impl<'a> Answer<'a> {
    /// Takes an answer apart; `None` if it does not begin with a status line.
    pub fn parse(bytes: &'a [u8]) -> Option<Answer<'a>> {
        let (head, body) = bytes.split_at(head_end(bytes));
        let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
        let first = std::str::from_utf8(lines.next()?).ok()?;
        let mut words = first.split_ascii_whitespace();
        words.next().filter(|protocol| protocol.starts_with("HTTP/"))?;
        let status = StatusCode::from_bytes(words.next()?.as_bytes()).ok()?;
        let mut headers = HeaderMap::new();
        for line in lines.take(HEADERS_MAX) {
            let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
            let name = HeaderName::from_bytes(line[..colon].trim_ascii());
            let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
            if let (Ok(name), Ok(value)) = (name, value) {
                headers.append(name, value);
            }
        }
        Some(Answer { status, head, headers, body })
    }

    /// The answer as our fetcher would have brought it at `unix_ms`, its body decoded up to `page_bytes_max`.
    pub fn into_fetched(self, url: &CanonicalUrl, unix_ms: u64, page_bytes_max: usize) -> Fetched {
        let wire = Bytes::copy_from_slice(self.body);
        let values = self.headers.get_all(http::header::CONTENT_ENCODING).iter().map(HeaderValue::as_bytes);
        let encodings = parse_encodings(values);
        let (body, form) = match encodings {
            Some(encodings) if encodings.is_empty() => (wire.clone(), BodyForm::Plain),
            Some(encodings) => {
                let mut decoder = Decoder::new(&encodings, page_bytes_max);
                match decoder.push(&wire) {
                    Ok(()) => (Bytes::from(decoder.finish().body), BodyForm::Decoded),
                    Err(_) => (wire.clone(), BodyForm::StillEncoded),
                }
            }
            None => (wire.clone(), BodyForm::StillEncoded),
        };
        let order = FetchOrder::new(url.clone());
        let mut fetched = Fetched::plain(&order, self.status, self.headers, body, unix_ms);
        (fetched.response_head, fetched.wire_body, fetched.form) = (self.head.to_vec(), wire, form);
        fetched
    }
}

/// Where the body begins: behind the first empty line.
fn head_end(bytes: &[u8]) -> usize {
    let mut start = 0;
    while let Some(length) = bytes[start..].iter().position(|byte| *byte == b'\n') {
        let line = &bytes[start..start + length];
        start += length + 1;
        if line.is_empty() || line == b"\r" {
            return start;
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_taken_apart_and_put_together() {
        let raw = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nbroken line\r\n\r\n<p>\r\n\r\n</p>";
        let answer = Answer::parse(raw).unwrap();
        assert_eq!(answer.status, 200);
        assert_eq!(answer.headers["content-type"], "text/html");
        assert_eq!(answer.body, b"<p>\r\n\r\n</p>");
        assert_eq!([answer.head, answer.body].concat(), raw);
        let bare = Answer::parse(b"HTTP/1.0 404\nA: b\n\nx").unwrap();
        assert_eq!((bare.status.as_u16(), bare.body), (404, &b"x"[..]));
    }

    #[test]
    fn what_is_no_answer_is_none() {
        for bytes in [&b""[..], b"\n", b"<html>", b"HTTP/1.1", b"HTTP/1.1 x", b"HTTP/1.1 99999\r\n\r\n", b"\xff\n\n"] {
            assert_eq!(Answer::parse(bytes), None);
        }
    }

    #[test]
    fn an_encoded_body_is_decoded_and_kept_as_it_came() {
        use std::io::Write;
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(b"hello").unwrap();
        let packed = encoder.finish().unwrap();
        let raw = [b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n", packed.as_slice()].concat();
        let url = CanonicalUrl::parse("http://a.example/", &Default::default()).unwrap();
        let fetched = Answer::parse(&raw).unwrap().into_fetched(&url, 7, 1 << 20);
        assert_eq!((&fetched.body[..], &fetched.wire_body[..]), (&b"hello"[..], packed.as_slice()));
        assert_eq!(fetched.form, BodyForm::Decoded);
    }

    #[test]
    fn meta_is_read_back_and_other_files_are_not_mistaken_for_it() {
        let meta = Meta { url: "http://a.example/".into(), http_code: 200, streamed_ms: 7, ..Meta::default() };
        assert_eq!(Meta::parse(&meta.to_bytes()), Some(meta));
        assert_eq!(Meta::parse(b"{}"), None);
        assert_eq!(Meta::parse(b"target1.com"), None);
    }
}
