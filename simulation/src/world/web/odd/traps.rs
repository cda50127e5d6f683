//! Hosts without end: whoever follows every link never leaves.

use super::super::Answer;
use super::super::draw::{Draw, For, key};
use super::super::expected::Duty::Must;
use super::super::expected::Kind::Page;
use super::super::plan::Oddity;
use super::{Exhibit, Here, Serve};

const ABOUT: Exhibit = Exhibit::page("/about", "<p>An honest page of a trap.</p>", &[]);

pub(super) const CALENDAR: &[Exhibit] = &[ABOUT, Exhibit::new("/calendar/2024/1", Page, Serve::With(calendar))];
pub(super) const PATH: &[Exhibit] = &[ABOUT, Exhibit::new("/a/b/", Page, Serve::With(path))];
pub(super) const QUERY: &[Exhibit] = &[ABOUT, Exhibit::new("/shop", Page, Serve::With(query))];
/// The pages behind the session ids are few: a crawler that sees through them finds exactly these.
pub(super) const SESSION: &[Exhibit] =
    &[ABOUT, Exhibit::new("/session/0", Page, Serve::With(session)).leading_to(&[("/about", Must)])];

/// Pages behind the session ids.
const SESSION_PAGES: u64 = 5;
const QUERY_KEYS: [&str; 5] = ["color", "material", "page", "size", "sort"];
const QUERY_VALUES: u64 = 6;

/// The part of the host that has no end.
pub(in super::super) fn prefix(oddity: Oddity) -> Option<&'static str> {
    match oddity {
        Oddity::CalendarTrap => Some("/calendar/"),
        Oddity::PathTrap => Some("/a/b/"),
        Oddity::QueryTrap => Some("/shop?"),
        Oddity::SessionTrap => Some("/session/"),
        _ => None,
    }
}

/// Any page inside a trap.
pub(super) fn answer(here: &Here<'_>, oddity: Oddity) -> Answer {
    match oddity {
        Oddity::CalendarTrap => calendar(here),
        Oddity::PathTrap => path(here),
        Oddity::QueryTrap => query(here),
        _ => session(here),
    }
}

fn calendar(here: &Here<'_>) -> Answer {
    let date = here.path.strip_prefix("/calendar/").and_then(|date| date.split_once('/'));
    let date = date.and_then(|(year, month)| Some((year.parse::<u32>().ok()?, month.parse::<u32>().ok()?)));
    let Some((year @ 1..=999_999, month @ 1..=12)) = date else { return Answer::error(404) };
    let (next_year, next_month) = (year + month / 12, month % 12 + 1);
    let (last_year, last_month) = if month == 1 { (year.max(2) - 1, 12) } else { (year, month - 1) };
    let body = format!(
        "<h1>{month}/{year}</h1><p>Nothing happens.</p><a href=\"/calendar/{last_year}/{last_month}\">before</a>\n\
         <a href=\"/calendar/{next_year}/{next_month}\">next</a>"
    );
    here.page("", &body)
}

fn path(here: &Here<'_>) -> Answer {
    if !here.path.ends_with("/a/b/") {
        return Answer::error(404);
    }
    // Meant as a link to the start, and forgotten that it is relative.
    here.page("", "<a href=\"a/b/\">home</a> <a href=\"/about\">about</a>")
}

fn query(here: &Here<'_>) -> Answer {
    let chosen = match here.path.strip_prefix("/shop") {
        Some("") => Vec::new(),
        Some(query) if query.starts_with('?') => query[1..].split('&').collect::<Vec<&str>>(),
        _ => return Answer::error(404),
    };
    let mut body = String::from("<p>Refine your search:</p>\n");
    for name in QUERY_KEYS {
        let others = chosen.iter().filter(|pair| pair.split('=').next() != Some(name)).copied();
        let mut parameters: Vec<String> = others.map(str::to_owned).collect();
        let value = Draw::new(here.web.plan.seed, For::Trap, key(here.path), key(name)).below(QUERY_VALUES);
        parameters.push(format!("{name}={value}"));
        body.push_str(&format!("<a href=\"/shop?{}\">{name} {value}</a>\n", parameters.join("&amp;")));
    }
    here.page("", &body)
}

fn session(here: &Here<'_>) -> Answer {
    let rest = here.path.strip_prefix("/session/").unwrap_or("");
    let number: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let Some(number) = number.parse::<u64>().ok().filter(|number| *number < SESSION_PAGES) else {
        return Answer::error(404);
    };
    // A new id for each page that is read, as from a host that does not recognise its visitor.
    let mut draw = Draw::new(here.web.plan.seed, For::Trap, u64::from(here.host), key(here.path));
    let (next, other) = ((number + 1) % SESSION_PAGES, (number + 2) % SESSION_PAGES);
    let body = format!(
        "<p>Page {number}</p><a href=\"/session/{next}?PHPSESSID={:016x}\">next</a>\n\
         <a href=\"/session/{other};jsessionid={:016X}\">other</a> <a href=\"/about\">about</a>",
        draw.next(),
        draw.next()
    );
    // The prose depends on the page alone: the same content under every session id.
    Answer::ok("text/html; charset=utf-8", here.html("", &body, &format!("/session/{number}")))
}
