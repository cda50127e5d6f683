//! Bodies that are too large, wrongly measured, compressed, cut off, empty or no HTML at all.
//!
//! Compressed answers are sent whether or not the client asked for them, as careless hosts do.

use std::io::Write;
use std::sync::OnceLock;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};

use super::super::expected::Duty::{May, Must};
use super::super::expected::Kind::{Broken, Other, Oversized, Page};
use super::super::{Answer, Delivery};
use super::{Exhibit, Here, Serve};

/// One piece of a huge body.
const PIECE_BYTES: u32 = 64 << 10;
/// The smallest PNG there is: one transparent pixel.
const PNG: &[u8] = &[
    0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 0x0d, b'I', b'H', b'D', b'R', 0, 0, 0, 1, 0, 0, 0, 1, 8,
    6, 0, 0, 0, 0x1f, 0x15, 0xc4, 0x89, 0, 0, 0, 0x0d, b'I', b'D', b'A', b'T', 0x78, 0x9c, 0x63, 0, 1, 0, 0, 5, 0, 1,
    0x0d, 0x0a, 0x2d, 0xb4, 0, 0, 0, 0, b'I', b'E', b'N', b'D', 0xae, 0x42, 0x60, 0x82,
];
const PDF: &[u8] =
    b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Count 0/Kids[]>>endobj\n\
    trailer<</Root 1 0 R>>\n%%EOF\n";

pub(super) const EXHIBITS: &[Exhibit] = &[
    Exhibit::new("/bodies/huge", Oversized, Serve::With(huge)).leading_to(&[("/leaf/start-of-huge", May)]),
    Exhibit::new("/bodies/endless", Oversized, Serve::With(endless)).leading_to(&[("/leaf/start-of-endless", May)]),
    Exhibit::new("/bodies/gzip-bomb", Oversized, Serve::With(bomb)),
    Exhibit::new("/bodies/gzip", Page, Serve::With(gzipped)).leading_to(&[("/leaf/gzip", Must)]),
    Exhibit::new("/bodies/deflate", Page, Serve::With(deflated)).leading_to(&[("/leaf/deflate", Must)]),
    Exhibit::new("/bodies/not-gzip", Broken, Serve::With(not_gzip)).leading_to(&[("/leaf/not-gzip", May)]),
    Exhibit::new("/bodies/cut-gzip", Broken, Serve::With(cut_gzip)).leading_to(&[("/leaf/cut-gzip", May)]),
    Exhibit::new("/bodies/unknown-encoding", Other, Serve::With(unknown_encoding))
        .leading_to(&[("/leaf/unknown-encoding", May)]),
    Exhibit::new("/bodies/truncated", Broken, Serve::With(truncated)).leading_to(&[("/leaf/truncated", May)]),
    // The client reads as much as was declared; the rest is garbage on a connection that is then closed.
    Exhibit::new("/bodies/overlong", Page, Serve::With(overlong)).leading_to(&[("/leaf/overlong", Must)]),
    Exhibit::new("/bodies/reset", Broken, Serve::With(|here| here.page("", "").delivered(Delivery::Reset))),
    Exhibit::new("/bodies/reset-midway", Broken, Serve::With(reset_midway)).leading_to(&[("/leaf/midway", May)]),
    Exhibit::new("/bodies/empty", Other, Serve::With(|_| Answer::ok("text/html", Bytes::new()))),
    Exhibit::new("/bodies/no-content", Other, Serve::With(no_content)),
    Exhibit::new("/bodies/pixel.png", Other, Serve::With(|_| Answer::ok("image/png", PNG))),
    Exhibit::new("/bodies/paper.pdf", Other, Serve::With(|_| Answer::ok("application/pdf", PDF))),
    Exhibit::new("/bodies/png-as-html", Other, Serve::With(|_| Answer::ok("text/html", PNG))),
    Exhibit::new("/bodies/noise", Other, Serve::With(noise)),
    Exhibit::new("/bodies/data.json", Other, Serve::With(|_| Answer::ok("application/json", "{\"a\":[1,2]}"))),
    Exhibit::new("/bodies/plain.txt", Other, Serve::With(|_| Answer::ok("text/plain", "only <a href=x>text</a>\n"))),
    Exhibit::new("/bodies/no-type", Page, Serve::With(no_type)).leading_to(&[("/leaf/no-type", May)]),
    Exhibit::new("/bodies/html-as-octets", Other, Serve::With(as_octets)).leading_to(&[("/leaf/as-octets", May)]),
    Exhibit::new("/bodies/xhtml", Page, Serve::With(xhtml)).leading_to(&[("/leaf/xhtml", Must)]),
];

fn linking(here: &Here<'_>, leaf: &str) -> Answer {
    here.page("", &format!("<a href=\"/leaf/{leaf}\">1</a>"))
}

/// One piece of HTML, to be sent many times. Only whole paragraphs, so that it is well-formed when repeated.
fn piece(here: &Here<'_>, leaf: &str) -> Bytes {
    let mut piece = format!("<p><a href=\"/leaf/{leaf}\">1</a></p>\n").into_bytes();
    let line = b"<p>This paragraph is one of very many that say the same.</p>\n";
    while piece.len() + line.len() <= PIECE_BYTES.min(here.web.plan.huge_bytes.max(256)) as usize {
        piece.extend_from_slice(line);
    }
    piece.into()
}

fn huge(here: &Here<'_>) -> Answer {
    let body = piece(here, "start-of-huge");
    let times = here.web.plan.huge_bytes.div_ceil(body.len() as u32).max(1);
    Answer::ok("text/html; charset=utf-8", body).delivered(Delivery::Repeated { times })
}

fn endless(here: &Here<'_>) -> Answer {
    Answer::ok("text/html; charset=utf-8", piece(here, "start-of-endless")).delivered(Delivery::Endless)
}

fn encoded(mut answer: Answer, encoding: &'static str, body: impl Into<Bytes>) -> Answer {
    answer.header("content-encoding", encoding);
    Answer { body: body.into(), ..answer }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("a vector takes everything");
    encoder.finish().expect("a vector takes everything")
}

fn gzipped(here: &Here<'_>) -> Answer {
    let answer = linking(here, "gzip");
    let body = gzip(&answer.body);
    encoded(answer, "gzip", body)
}

fn deflated(here: &Here<'_>) -> Answer {
    let answer = linking(here, "deflate");
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&answer.body).expect("a vector takes everything");
    encoded(answer, "deflate", encoder.finish().expect("a vector takes everything"))
}

/// A thousandth of its content in size. Made once for each size: it takes a moment.
fn bomb(here: &Here<'_>) -> Answer {
    static MADE: OnceLock<(u32, Bytes)> = OnceLock::new();
    let make = |bytes: u32| -> Bytes {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(b"<!doctype html><title>bomb</title>").expect("a vector takes everything");
        let zeros = vec![b' '; PIECE_BYTES as usize];
        for _ in 0..bytes.div_ceil(PIECE_BYTES) {
            encoder.write_all(&zeros).expect("a vector takes everything");
        }
        encoder.finish().expect("a vector takes everything").into()
    };
    let bytes = here.web.plan.huge_bytes;
    let (made_bytes, body) = MADE.get_or_init(|| (bytes, make(bytes)));
    let body = if *made_bytes == bytes { body.clone() } else { make(bytes) };
    encoded(Answer::ok("text/html; charset=utf-8", Bytes::new()), "gzip", body)
}

fn not_gzip(here: &Here<'_>) -> Answer {
    let answer = linking(here, "not-gzip");
    let body = answer.body.clone();
    encoded(answer, "gzip", body)
}

fn cut_gzip(here: &Here<'_>) -> Answer {
    let answer = linking(here, "cut-gzip");
    let body = gzip(&answer.body);
    let half = body[..body.len() / 2].to_vec();
    encoded(answer, "gzip", half)
}

fn unknown_encoding(here: &Here<'_>) -> Answer {
    let answer = linking(here, "unknown-encoding");
    let body = answer.body.clone();
    encoded(answer, "zebra", body)
}

fn truncated(here: &Here<'_>) -> Answer {
    let answer = linking(here, "truncated");
    let bytes = answer.body.len() as u64 + 10_000;
    answer.delivered(Delivery::Declared { bytes })
}

fn overlong(here: &Here<'_>) -> Answer {
    let mut answer = linking(here, "overlong");
    let bytes = answer.body.len() as u64;
    answer.body = [&answer.body[..], &b"<p>Too much.</p>".repeat(20)].concat().into();
    answer.delivered(Delivery::Declared { bytes })
}

fn reset_midway(here: &Here<'_>) -> Answer {
    linking(here, "midway").delivered(Delivery::ResetAfterBody)
}

fn no_content(_: &Here<'_>) -> Answer {
    Answer { status: 204, headers: Vec::new(), ..Answer::ok("text/html", Bytes::new()) }
}

fn noise(here: &Here<'_>) -> Answer {
    Answer::ok("application/octet-stream", here.web.noise(here.host, 10_000))
}

fn no_type(here: &Here<'_>) -> Answer {
    Answer { headers: Vec::new(), ..linking(here, "no-type") }
}

fn as_octets(here: &Here<'_>) -> Answer {
    Answer::ok("application/octet-stream", linking(here, "as-octets").body)
}

fn xhtml(_: &Here<'_>) -> Answer {
    let body = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<html xmlns=\"http://www.w3.org/1999/xhtml\"><head>\
        <title>XHTML</title></head><body><p>Strictly speaking.<br/><a href=\"/leaf/xhtml\">1</a></p></body></html>\n";
    Answer::ok("application/xhtml+xml", body)
}
