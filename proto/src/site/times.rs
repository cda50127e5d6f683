//! Times in patterns, as the original writes them: `%@YEAR(+9)%` is the year that it is in nine hours (UTC), `%@MONTH(+0)%` the month now, with two digits as in `/2026/11/18/`.

use std::borrow::Cow;

use super::operation::BadRequest;
use crate::date;

/// Milliseconds of an hour: rules of URLs are made anew as often.
pub(crate) const HOUR_MS: u64 = 3_600_000;
const BEGIN: &str = "%@";
const END: &str = ")%";
/// Names, and where they stand in a time that is written out; the coarse ones first.
const PARTS: [(&str, std::ops::Range<usize>); 7] = [
    ("SHORTYEAR", 2..4),
    ("YEAR", 0..4),
    ("MONTH", 5..7),
    ("DAY", 8..10),
    ("HOUR", 11..13),
    ("MINUTE", 14..16),
    ("SECOND", 17..19),
];
/// So many of them change with the hour or more slowly.
const SLOW: usize = 5;

/// Whether there are times in a pattern.
pub(super) fn has_times(pattern: &str) -> bool {
    pattern.contains(BEGIN)
}

/// A pattern with the times of a moment in their places.
pub(super) fn with_times(pattern: &str, unix_ms: u64) -> Cow<'_, str> {
    if !has_times(pattern) {
        return Cow::Borrowed(pattern);
    }
    let (mut out, mut rest) = (String::with_capacity(pattern.len()), pattern);
    while let Some(at) = rest.find(BEGIN) {
        out.push_str(&rest[..at]);
        match read(&rest[at..]) {
            Some((part, hours, length)) => {
                let moment = unix_ms.saturating_add_signed(hours * HOUR_MS as i64);
                out.push_str(&date::format(moment)[PARTS[part].1.clone()]);
                rest = &rest[at + length..];
            }
            None => {
                out.push_str(BEGIN);
                rest = &rest[at + BEGIN.len()..];
            }
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Says what is wrong with the times of a pattern. Rules of URLs take only those that change with the hour or more slowly.
pub(super) fn checked(pattern: &str, of_urls: bool) -> Result<(), BadRequest> {
    let bad = |what: String| Err(BadRequest::new("pattern", what));
    for (at, _) in pattern.match_indices(BEGIN) {
        let names = PARTS.map(|(name, _)| name);
        match read(&pattern[at..]) {
            None => {
                let written: String = pattern[at..].chars().take(24).collect();
                let known = names.join(", ");
                return bad(format!("{written:?} begins no time; one looks like %@DAY(+9)%, and there are {known}"));
            }
            Some((part, ..)) if of_urls && part >= SLOW => {
                let what =
                    format!("%@{}…% is not supported for URLs, whose rules are made anew every hour", names[part]);
                return bad(what);
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// The time at the beginning of a text: which part of it, how many hours from now, and how long it is written.
fn read(text: &str) -> Option<(usize, i64, usize)> {
    let inside = text.strip_prefix(BEGIN)?;
    let end = inside.find(END)?;
    let (name, hours) = inside[..end].split_once('(')?;
    let part = PARTS.iter().position(|(known, _)| *known == name)?;
    let digits = hours.strip_prefix(['+', '-'])?;
    let few = (1..=2).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let hours = few.then(|| hours.parse::<i64>().ok()).flatten()?;
    Some((part, hours, BEGIN.len() + end + END.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_stand_in_their_places() {
        let at = date::parse("2026-12-31 20:30:05").unwrap();
        for (pattern, expected) in [
            ("/x/", "/x/"),
            ("/%@YEAR(+0)%/%@MONTH(+0)%/%@DAY(+0)%/", "/2026/12/31/"),
            ("/%@YEAR(+9)%-%@MONTH(+9)%-%@DAY(+9)%", "/2027-01-01"),
            ("%@SHORTYEAR(-1)%%@HOUR(-21)%:%@MINUTE(+0)%:%@SECOND(+0)%", "2623:30:05"),
            ("100%@ and %@YEAR(9)%", "100%@ and %@YEAR(9)%"),
        ] {
            assert_eq!(with_times(pattern, at), expected);
        }
        assert_eq!(with_times("%@YEAR(-99)%", 0), "1970", "before the beginning of time is its beginning");
    }

    #[test]
    fn what_is_no_time_is_refused_and_urls_take_no_minutes() {
        assert_eq!(checked("/%@YEAR(+0)%/%@HOUR(-5)%", true), Ok(()));
        assert_eq!(checked("%@SECOND(+0)%", false), Ok(()));
        for (pattern, word) in [
            ("%@SECOND(+0)%", "every hour"),
            ("%@CENTURY(+0)%", "SHORTYEAR, YEAR"),
            ("%@YEAR(9)%", "%@DAY(+9)%"),
            ("%@YEAR(+123)%", "begins no time"),
            ("a %@é", "begins no time"),
        ] {
            assert!(checked(pattern, true).unwrap_err().to_string().contains(word), "{pattern}");
        }
    }
}
