//! Answers that take their time, or for ever.

use super::super::expected::Duty::Must;
use super::super::expected::Kind::{Broken, Page};
use super::super::{Answer, Delivery};
use super::{Exhibit, Here, Serve};

/// Pieces a dripping page comes in.
const PIECES: u32 = 10;

pub(super) const EXHIBITS: &[Exhibit] = &[
    Exhibit::new("/slow/late", Page, Serve::With(late)).leading_to(&[("/leaf/late", Must)]),
    Exhibit::new("/slow/drip", Page, Serve::With(drip)).leading_to(&[("/leaf/drip", Must)]),
    Exhibit::new("/slow/silent", Broken, Serve::With(|here| here.page("", "").delivered(Delivery::Hang))),
    Exhibit::new(
        "/slow/silent-body",
        Broken,
        Serve::With(|here| here.page("", "").delivered(Delivery::HangAfterHeaders)),
    ),
];

fn late(here: &Here<'_>) -> Answer {
    let answer = here.page("", "<a href=\"/leaf/late\">1</a>");
    Answer { delay_ms: here.web.plan.slow_ms, ..answer }
}

fn drip(here: &Here<'_>) -> Answer {
    let answer = here.page("", "<a href=\"/leaf/drip\">1</a>");
    let piece_bytes = (answer.body.len() as u32).div_ceil(PIECES);
    answer.delivered(Delivery::Drip { piece_bytes, pause_ms: here.web.plan.slow_ms * 2 / PIECES })
}
