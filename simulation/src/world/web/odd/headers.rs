//! Headers that are too many, too long, or not quite HTTP.

use super::super::expected::Duty::{May, Must};
use super::super::expected::Kind::{Broken, Oversized, Page};
use super::super::{Answer, Delivery};
use super::{Exhibit, Here, Serve};

const MANY: usize = 5_000;
const LONG_BYTES: usize = 1 << 20;

pub(super) const EXHIBITS: &[Exhibit] = &[
    Exhibit::new("/headers/many", Oversized, Serve::With(many)).leading_to(&[("/leaf/many-headers", May)]),
    Exhibit::new("/headers/long", Oversized, Serve::With(long)).leading_to(&[("/leaf/long-header", May)]),
    Exhibit::new("/headers/cookies", Page, Serve::With(cookies)).leading_to(&[("/leaf/cookies", Must)]),
    Exhibit::new("/headers/folded", Broken, Serve::With(folded)).leading_to(&[("/leaf/folded", May)]),
    Exhibit::new("/headers/latin1", Page, Serve::With(latin1)).leading_to(&[("/leaf/latin1-header", Must)]),
    Exhibit::new("/headers/no-reason", Page, Serve::With(no_reason)).leading_to(&[("/leaf/no-reason", Must)]),
    Exhibit::new("/headers/http-1.0", Page, Serve::With(http_1_0)).leading_to(&[("/leaf/http-1.0", Must)]),
    Exhibit::new("/headers/early-hints", Page, Serve::With(early_hints)).leading_to(&[("/leaf/early-hints", Must)]),
    Exhibit::new("/headers/bad-status", Broken, Serve::With(bad_status)),
    Exhibit::new("/headers/http-0.9", Broken, Serve::With(http_0_9)).leading_to(&[("/leaf/http-0.9", May)]),
    Exhibit::new("/headers/nothing", Broken, Serve::With(nothing)),
];

fn linking(here: &Here<'_>, leaf: &str) -> Answer {
    here.page("", &format!("<a href=\"/leaf/{leaf}\">1</a>"))
}

/// The page with `head` before it instead of proper headers.
fn verbatim(here: &Here<'_>, head: &[u8], leaf: &str) -> Answer {
    let answer = linking(here, leaf);
    let body = [head, &answer.body].concat();
    Answer { body: body.into(), delivery: Delivery::Verbatim, ..answer }
}

fn statusless(here: &Here<'_>, head: &[u8], leaf: &str) -> Answer {
    Answer { status: 0, ..verbatim(here, head, leaf) }
}

fn many(here: &Here<'_>) -> Answer {
    let mut answer = linking(here, "many-headers");
    for number in 0..MANY {
        answer.header(format!("x-number-{number}"), "one of many");
    }
    // By hand: the server's own library has limits too.
    let bytes = answer.body.len() as u64;
    answer.delivered(Delivery::Declared { bytes })
}

fn long(here: &Here<'_>) -> Answer {
    let mut answer = linking(here, "long-header");
    answer.header("x-long", "long ".repeat(LONG_BYTES / 5).trim_end().to_owned());
    let bytes = answer.body.len() as u64;
    answer.delivered(Delivery::Declared { bytes })
}

fn cookies(here: &Here<'_>) -> Answer {
    let mut answer = linking(here, "cookies");
    for number in 0..40 {
        answer.header("set-cookie", format!("c{number}=v{number}; Path=/; HttpOnly"));
    }
    answer
}

fn folded(here: &Here<'_>) -> Answer {
    verbatim(
        here,
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html;\r\n  charset=utf-8\r\nConnection: close\r\n\r\n",
        "folded",
    )
}

fn latin1(here: &Here<'_>) -> Answer {
    let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nX-Place: Caf\xe9\r\nConnection: close\r\n\r\n";
    verbatim(here, head, "latin1-header")
}

fn no_reason(here: &Here<'_>) -> Answer {
    verbatim(here, b"HTTP/1.1 200\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n", "no-reason")
}

fn http_1_0(here: &Here<'_>) -> Answer {
    verbatim(here, b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n", "http-1.0")
}

fn early_hints(here: &Here<'_>) -> Answer {
    let hint = b"HTTP/1.1 103 Early Hints\r\nLink: </leaf/hint>; rel=preload\r\n\r\n".repeat(3);
    let head = [&hint[..], b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n"].concat();
    verbatim(here, &head, "early-hints")
}

/// These three have no status that a client could see.
fn bad_status(here: &Here<'_>) -> Answer {
    statusless(here, b"HTTP/1.1 fine thanks\r\nContent-Type: text/html\r\n\r\n", "bad-status")
}

fn http_0_9(here: &Here<'_>) -> Answer {
    statusless(here, b"", "http-0.9")
}

fn nothing(_: &Here<'_>) -> Answer {
    Answer { status: 0, ..Answer::ok("text/html", "").delivered(Delivery::Verbatim) }
}
