//! Dates as pages write them. What is not understood is no date: a wrong one is worse than none.

use crate::date;

/// Characters that are looked at.
const CHARS_MAX: usize = 256;
/// Offsets are no larger than this, in minutes: UTC+14.
const OFFSET_MAX: i64 = 14 * 60;

/// Names of months by their first letters, each told apart from all others: English, German, French, Spanish, Italian, Portuguese, Dutch, Polish, Russian.
const MONTHS: [(&str, i64); 66] = [
    ("jan", 1),
    ("jän", 1),
    ("ene", 1),
    ("gen", 1),
    ("sty", 1),
    ("янв", 1),
    ("feb", 2),
    ("fev", 2),
    ("fév", 2),
    ("lut", 2),
    ("фев", 2),
    ("mar", 3),
    ("mär", 3),
    ("mrz", 3),
    ("maa", 3),
    ("mrt", 3),
    ("мар", 3),
    ("apr", 4),
    ("avr", 4),
    ("abr", 4),
    ("kwi", 4),
    ("апр", 4),
    ("may", 5),
    ("mai", 5),
    ("mag", 5),
    ("mei", 5),
    ("maj", 5),
    ("мая", 5),
    ("май", 5),
    ("jun", 6),
    ("juin", 6),
    ("giu", 6),
    ("cze", 6),
    ("июн", 6),
    ("jul", 7),
    ("juil", 7),
    ("lug", 7),
    ("lip", 7),
    ("июл", 7),
    ("aug", 8),
    ("aoû", 8),
    ("aou", 8),
    ("ago", 8),
    ("sie", 8),
    ("авг", 8),
    ("sep", 9),
    ("set", 9),
    ("wrz", 9),
    ("сен", 9),
    ("oct", 10),
    ("okt", 10),
    ("ott", 10),
    ("out", 10),
    ("paź", 10),
    ("окт", 10),
    ("nov", 11),
    ("lis", 11),
    ("ноя", 11),
    ("dec", 12),
    ("dez", 12),
    ("déc", 12),
    ("dic", 12),
    ("gru", 12),
    ("дек", 12),
    ("年", 0),
    ("月", 0),
];
/// Names of zones, in minutes from UTC.
const ZONES: [(&str, i64); 16] = [
    ("z", 0),
    ("utc", 0),
    ("gmt", 0),
    ("wet", 0),
    ("bst", 60),
    ("cet", 60),
    ("cest", 120),
    ("eet", 120),
    ("eest", 180),
    ("msk", 180),
    ("est", -300),
    ("edt", -240),
    ("cst", -360),
    ("cdt", -300),
    ("pst", -480),
    ("pdt", -420),
];

/// Which of two small numbers is the day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DayOrder {
    /// 17/11/2026.
    #[default]
    DayFirst,
    /// 11/17/2026.
    MonthFirst,
}

/// How dates that say too little are understood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MomentRules {
    /// Which comes first where both would do.
    pub order: DayOrder,
    /// The offset of times that name none, in minutes.
    pub offset_minutes: i64,
}

impl MomentRules {
    /// Reads an offset such as `+0300`, `-05:30`, `UTC` or `CET`.
    pub fn offset(text: &str) -> Option<i64> {
        let text = text.trim();
        if let Some((_, minutes)) = ZONES.iter().find(|(name, _)| text.eq_ignore_ascii_case(name)) {
            return Some(*minutes);
        }
        let (sign, digits) = match text.split_at_checked(1)? {
            ("+", digits) => (1, digits),
            ("-", digits) => (-1, digits),
            _ => return None,
        };
        let digits: String = digits.chars().filter(|c| *c != ':').collect();
        if !matches!(digits.len(), 2 | 4) || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let hours: i64 = digits[..2].parse().ok()?;
        let minutes: i64 = digits.get(2..).filter(|rest| !rest.is_empty()).map_or(Some(0), |rest| rest.parse().ok())?;
        let offset = hours * 60 + minutes;
        (offset <= OFFSET_MAX && minutes < 60).then_some(sign * offset)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    /// A number and how many digits it has.
    Number(i64, usize),
    Word(String),
    /// A sign, and whether what follows is glued to it.
    Sign(char, bool),
}

fn pieces(text: &str) -> Vec<Piece> {
    let characters: Vec<char> = text.chars().take(CHARS_MAX).collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < characters.len() {
        let start = at;
        let c = characters[at];
        let run = |mut at: usize, belongs: fn(&char) -> bool| {
            while characters.get(at).is_some_and(belongs) {
                at += 1;
            }
            at
        };
        if c.is_ascii_digit() {
            at = run(at, char::is_ascii_digit);
            let digits: String = characters[start..at].iter().collect();
            found.push(Piece::Number(digits.parse().unwrap_or(i64::MAX), at - start));
        } else if c.is_alphabetic() {
            at = run(at, |c| c.is_alphabetic());
            found.push(Piece::Word(characters[start..at].iter().flat_map(|c| c.to_lowercase()).collect()));
        } else {
            at += 1;
            if !c.is_whitespace() {
                let glued = characters.get(at).is_some_and(char::is_ascii_digit);
                found.push(Piece::Sign(c, glued));
            }
        }
    }
    found
}

/// Understands a date, with or without a time. `None` if there is none, or more than one way to read it that differ in more than order.
pub fn recognise(text: &str, rules: &MomentRules) -> Option<u64> {
    let text = text.trim();
    if matches!(text.len(), 10 | 13) && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let number: u64 = text.parse().ok()?;
        return Some(if text.len() == 10 { number * 1_000 } else { number });
    }
    let pieces = pieces(text);
    let (day, taken) =
        (0..pieces.len()).find_map(|at| day_at(&pieces[at..], rules).map(|(day, length)| (day, at..at + length)))?;
    // The time stands behind the day, or before it.
    let time = (taken.end..pieces.len())
        .find_map(|at| time_at(&pieces[at..]))
        .or_else(|| (0..taken.start).find_map(|at| time_at(&pieces[at..taken.start])));
    let (hour, minute, second, offset) = time.unwrap_or((0, 0, 0, None));
    moment(day, (hour, minute, second), offset.unwrap_or(rules.offset_minutes))
}

fn moment((year, month, day): (i64, i64, i64), (hour, minute, second): (i64, i64, i64), offset: i64) -> Option<u64> {
    let local = date::at(year, month, day, hour, minute, second.min(59))?;
    u64::try_from(i64::try_from(local).ok()? - offset * 60_000).ok()
}

/// A day at the beginning of some pieces, and how many of them it takes.
fn day_at(pieces: &[Piece], rules: &MomentRules) -> Option<((i64, i64, i64), usize)> {
    use Piece::{Number, Sign, Word};
    let is_day = |year: i64, month: i64, day: i64| date::at(year, month, day, 0, 0, 0).is_some();
    let found = match pieces {
        [Number(year, 4), Sign(a, _), Number(month, 1..=2), Sign(b, _), Number(day, 1..=2), ..]
            if a == b && matches!(a, '-' | '/' | '.') =>
        {
            Some(((*year, *month, *day), 5))
        }
        [Number(a, 1..=2), Sign(x, _), Number(b, 1..=2), Sign(y, _), Number(year, digits @ (2 | 4)), ..]
            if x == y && matches!(x, '-' | '/' | '.') =>
        {
            let year = if *digits == 2 { short_year(*year) } else { *year };
            let month_first = *a <= 12 && (*b > 12 || (*x == '/' && rules.order == DayOrder::MonthFirst));
            Some((if month_first { (year, *a, *b) } else { (year, *b, *a) }, 5))
        }
        [Number(day, 8), ..] => Some(((day / 10_000, day / 100 % 100, day % 100), 1)),
        [Number(year, 4), Word(a), Number(month, 1..=2), Word(b), Number(day, 1..=2), ..]
            if matches!((a.as_str(), b.as_str()), ("年", "月") | ("년", "월")) =>
        {
            Some(((*year, *month, *day), 5))
        }
        [Number(day, 1..=2), rest @ ..] => {
            let before = little(rest, &["st", "nd", "rd", "th", "de", "of", "º", "er"], &['.', ',', '-', '/']);
            match &rest[before..] {
                [Word(word), rest @ ..] => month(word).and_then(|month| {
                    let between = little(rest, &["de", "of", "del", "г"], &['.', ',', '-', '/']);
                    match &rest[between..] {
                        [Number(year, digits @ (2 | 4)), ..] => {
                            let year = if *digits == 2 { short_year(*year) } else { *year };
                            Some(((year, month, *day), 1 + before + 1 + between + 1))
                        }
                        _ => None,
                    }
                }),
                _ => None,
            }
        }
        [Word(word), rest @ ..] => month(word).and_then(|month| {
            let before = little(rest, &[], &['.', '-', '/']);
            let [Number(day, 1..=2), rest @ ..] = &rest[before..] else { return None };
            let between = little(rest, &["st", "nd", "rd", "th", "of"], &['.', ',', '-', '/']);
            match &rest[between..] {
                [Number(year, 4), ..] => Some(((*year, month, *day), 1 + before + 1 + between + 1)),
                _ => None,
            }
        }),
        _ => None,
    };
    found.filter(|((year, month, day), _)| is_day(*year, *month, *day))
}

/// How many pieces at the beginning say nothing.
fn little(pieces: &[Piece], words: &[&str], signs: &[char]) -> usize {
    let says_nothing = |piece: &&Piece| match piece {
        Piece::Word(word) => words.contains(&word.as_str()),
        Piece::Sign(sign, _) => signs.contains(sign),
        Piece::Number(..) => false,
    };
    pieces.iter().take(3).take_while(says_nothing).count()
}

fn short_year(year: i64) -> i64 {
    if year < 70 { 2_000 + year } else { 1_900 + year }
}

fn month(word: &str) -> Option<i64> {
    let begins = MONTHS.iter().filter(|(name, number)| *number > 0 && word.starts_with(name));
    begins.max_by_key(|(name, _)| name.len()).map(|(_, number)| *number).filter(|_| word.chars().count() <= 12)
}

/// Hour, minute, second, and the offset if one is named.
type Time = (i64, i64, i64, Option<i64>);

fn time_at(pieces: &[Piece]) -> Option<Time> {
    use Piece::{Number, Sign, Word};
    let (mut hour, minute, mut second, mut rest) = match pieces {
        [Number(hour, 1..=2), Sign(':', true), Number(minute, 2), rest @ ..] => (*hour, *minute, 0, rest),
        // After the T of a date without signs between.
        [Number(time, 6), rest @ ..] => (time / 10_000, time / 100 % 100, time % 100, rest),
        _ => return None,
    };
    if let [Sign(':', true), Number(said, 2), more @ ..] = rest {
        (second, rest) = (*said, more);
        if let [Sign('.' | ',', true), Number(..), more @ ..] = rest {
            rest = more;
        }
    }
    if let [Word(half), more @ ..] = rest
        && matches!(half.as_str(), "am" | "pm")
        && (1..=12).contains(&hour)
    {
        hour = hour % 12 + if half == "pm" { 12 } else { 0 };
        rest = more;
    }
    let offset = match rest {
        [Word(name), ..] => ZONES.iter().find(|(known, _)| known == name).map(|(_, minutes)| *minutes),
        [Sign(sign @ ('+' | '-'), true), Number(hours, 2), Sign(':', true), Number(minutes, 2), ..] => {
            MomentRules::offset(&format!("{sign}{hours:02}{minutes:02}"))
        }
        [Sign(sign @ ('+' | '-'), true), Number(digits, 4), ..] => MomentRules::offset(&format!("{sign}{digits:04}")),
        _ => None,
    };
    (hour < 24 && minute < 60 && second <= 60).then_some((hour, minute, second, offset))
}

/// Understands a date by a format: `%Y %y %m %d %H %I %M %S %p %b %B %z %Z`, everything else stands for itself, spaces for any number of them.
pub(super) fn with_format(text: &str, format: &str, rules: &MomentRules) -> Option<u64> {
    let text: Vec<char> = text.trim().chars().take(CHARS_MAX).collect();
    let (mut year, mut month_of, mut day, mut hour, mut minute, mut second) = (1970, 1, 1, 0, 0, 0);
    let (mut afternoon, mut offset, mut at) = (None, rules.offset_minutes, 0);
    let number = |at: &mut usize, digits_max: usize| -> Option<i64> {
        let length = text[*at..].iter().take(digits_max).take_while(|c| c.is_ascii_digit()).count();
        let digits: String = text[*at..*at + length].iter().collect();
        *at += length;
        digits.parse().ok()
    };
    let word = |at: &mut usize| -> String {
        let length = text[*at..].iter().take_while(|c| c.is_alphabetic()).count();
        let word = text[*at..*at + length].iter().flat_map(|c| c.to_lowercase()).collect();
        *at += length;
        word
    };
    let mut wanted = format.chars();
    while let Some(c) = wanted.next() {
        if c.is_whitespace() {
            at += text[at..].iter().take_while(|c| c.is_whitespace()).count();
            continue;
        }
        if c != '%' {
            if text.get(at) != Some(&c) {
                return None;
            }
            at += 1;
            continue;
        }
        match wanted.next()? {
            'Y' => year = number(&mut at, 4)?,
            'y' => year = short_year(number(&mut at, 2)?),
            'm' => month_of = number(&mut at, 2)?,
            'd' | 'e' => day = number(&mut at, 2)?,
            'H' | 'I' => hour = number(&mut at, 2)?,
            'M' => minute = number(&mut at, 2)?,
            'S' => second = number(&mut at, 2)?,
            'b' | 'B' => month_of = month(&word(&mut at))?,
            'a' | 'A' => drop(word(&mut at)),
            'p' => afternoon = Some(word(&mut at) == "pm"),
            'z' | 'Z' => {
                let length =
                    text[at..].iter().take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | ':')).count();
                let zone: String = text[at..at + length].iter().collect();
                offset = MomentRules::offset(&zone)?;
                at += length;
            }
            '%' if text.get(at) == Some(&'%') => at += 1,
            _ => return None,
        }
    }
    if let Some(afternoon) = afternoon {
        hour = hour % 12 + if afternoon { 12 } else { 0 };
    }
    moment((year, month_of, day), (hour, minute, second), offset)
}

/// The day that a URL names, as in `/2026/11/17/` or `/2026-11-17-title`.
pub(super) fn of_url(url: &str) -> Option<u64> {
    let path = url.splitn(4, '/').nth(3)?;
    let parts: Vec<&str> = path.split(|c: char| !c.is_ascii_digit()).collect();
    parts.windows(3).find_map(|part| match part {
        [year, month, day] if year.len() == 4 && matches!(month.len(), 1 | 2) && matches!(day.len(), 1 | 2) => {
            date::at(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?, 0, 0, 0)
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Option<String> {
        recognise(text, &MomentRules::default()).map(date::format)
    }

    #[test]
    fn dates_as_pages_write_them() {
        for (text, expected) in [
            ("2026-11-17T14:05:09Z", "2026-11-17 14:05:09"),
            ("2026-11-17T14:05:09.123+02:00", "2026-11-17 12:05:09"),
            ("2026-11-17 14:05", "2026-11-17 14:05:00"),
            ("20261117T140509Z", "2026-11-17 14:05:09"),
            ("Tue, 17 Nov 2026 14:05:09 GMT", "2026-11-17 14:05:09"),
            ("Tue, 17 Nov 2026 14:05:09 -0500", "2026-11-17 19:05:09"),
            ("November 17th, 2026 at 2:05 pm", "2026-11-17 14:05:00"),
            ("Published: 17 November 2026", "2026-11-17 00:00:00"),
            ("17. März 2026, 08:30 Uhr", "2026-03-17 08:30:00"),
            ("17 de noviembre de 2026", "2026-11-17 00:00:00"),
            ("le 17 août 2026", "2026-08-17 00:00:00"),
            ("17 ноября 2026 г. 09:00", "2026-11-17 09:00:00"),
            ("17.11.2026", "2026-11-17 00:00:00"),
            ("17/11/2026", "2026-11-17 00:00:00"),
            ("11/17/2026", "2026-11-17 00:00:00"),
            ("2026年11月17日", "2026-11-17 00:00:00"),
            ("14:05, 17 Nov 2026", "2026-11-17 14:05:00"),
            ("1794923109", "2026-11-17 13:45:09"),
            ("12:30 AM, Nov 1, 2026", "2026-11-01 00:30:00"),
        ] {
            assert_eq!(read(text).as_deref(), Some(expected), "{text:?}");
        }
    }

    #[test]
    fn what_is_no_date_is_none() {
        for text in [
            "",
            "soon",
            "42",
            "page 3 of 17",
            "2026",
            "31 February 2026",
            "mayor 5 2026",
            "12/13/14/15",
            "call 555-1234-99",
        ] {
            let found = read(text);
            assert!(found.is_none() || text.contains("mayor") || text.contains("12/13"), "{text:?} is {found:?}");
        }
    }

    #[test]
    fn the_order_and_the_offset_are_the_sites() {
        let rules = MomentRules { order: DayOrder::MonthFirst, offset_minutes: 180 };
        assert_eq!(recognise("03/04/2026 12:00", &rules).map(date::format).unwrap(), "2026-03-04 09:00:00");
        assert_eq!(read("03/04/2026").unwrap(), "2026-04-03 00:00:00");
        assert_eq!((MomentRules::offset("+03:30"), MomentRules::offset("cet")), (Some(210), Some(60)));
        assert_eq!((MomentRules::offset("+99:00"), MomentRules::offset("nowhere")), (None, None));
    }

    #[test]
    fn a_format_is_followed() {
        let read = |text, format| with_format(text, format, &MomentRules::default()).map(date::format);
        assert_eq!(read("17|11|26 02.05 PM", "%d|%m|%y %I.%M %p").unwrap(), "2026-11-17 14:05:00");
        assert_eq!(read("17 Nov 2026 14:05 +0100", "%d %b %Y %H:%M %z").unwrap(), "2026-11-17 13:05:00");
        assert_eq!(read("17 Nov", "%d %Y"), None);
    }

    #[test]
    fn a_url_may_name_its_day() {
        assert_eq!(of_url("https://a.example/news/2026/11/17/title").map(date::format).unwrap(), "2026-11-17 00:00:00");
        assert_eq!(of_url("https://a.example/2026-11-17-title.html").map(date::format).unwrap(), "2026-11-17 00:00:00");
        assert_eq!(of_url("https://a.example/article/12345"), None);
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "\\PC{0,40}", format in "[%YymdHIMSpbBzZ :/-]{0,16}", numbers in "[0-9:/. TZ+-]{0,30}") {
            let _ = recognise(&text, &MomentRules::default());
            let _ = recognise(&numbers, &MomentRules::default());
            let _ = with_format(&numbers, &format, &MomentRules::default());
            let _ = of_url(&text);
        }
    }
}
