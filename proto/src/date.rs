//! Times as people and the Distributed Crawler write them: `2026-11-17 02:00:00`, always UTC.

const DAY_MS: u64 = 86_400_000;
/// The end of the year 9999: later times are written as this one.
const LAST_MS: u64 = 253_402_300_799_999;

/// Days from 1970-01-01 to a day of the Gregorian calendar, by counting from March on so that a leap day is the last of its year.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    365 * year + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468
}

/// Writes a time, to the second.
pub fn format(unix_ms: u64) -> String {
    let unix_ms = unix_ms.min(LAST_MS);
    let day = (unix_ms / DAY_MS) as i64;
    // Years before this one, estimated from above; then months in the same way.
    let mut year = 1970 + day / 365;
    while days(year, 1, 1) > day {
        year -= 1;
    }
    let mut month = 12;
    while days(year, month, 1) > day {
        month -= 1;
    }
    let second = unix_ms % DAY_MS / 1_000;
    format!(
        "{year:04}-{month:02}-{:02} {:02}:{:02}:{:02}",
        day - days(year, month, 1) + 1,
        second / 3_600,
        second / 60 % 60,
        second % 60
    )
}

/// Reads a time: a day, with or without hours, minutes and seconds. `None` if it is none, or before 1970.
pub fn parse(text: &str) -> Option<u64> {
    let text = text.trim().trim_end_matches('Z');
    let (date, time) = text.split_once([' ', 'T']).unwrap_or((text, "00:00:00"));
    let numbers = |text: &str, between: char| -> Option<Vec<i64>> {
        let digits = |part: &str| (part.len() <= 4 && part.bytes().all(|byte| byte.is_ascii_digit())).then_some(());
        text.split(between).map(|part| digits(part).and_then(|()| part.parse().ok())).collect()
    };
    let (date, time) = (numbers(date, '-')?, numbers(time.split('.').next()?, ':')?);
    let ([year, month, day], [hour, minute, second]) = (date.as_slice(), time.as_slice()) else { return None };
    at(*year, *month, *day, *hour, *minute, *second)
}

/// A moment of the Gregorian calendar; `None` if there is no such one, or it is before 1970 or after 9999.
pub(crate) fn at(year: i64, month: i64, day: i64, hour: i64, minute: i64, second: i64) -> Option<u64> {
    let in_range = (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (0..24).contains(&hour)
        && (0..60).contains(&minute)
        && (0..60).contains(&second);
    if !in_range {
        return None;
    }
    let next_month = if month == 12 { days(year + 1, 1, 1) } else { days(year, month + 1, 1) };
    let at = days(year, month, day);
    let there_is_such_a_day = day >= 1 && at < next_month;
    there_is_such_a_day.then(|| (at * 86_400 + hour * 3_600 + minute * 60 + second) as u64 * 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_days_are_where_they_belong() {
        assert_eq!(format(0), "1970-01-01 00:00:00");
        assert_eq!(format(951_782_400_000), "2000-02-29 00:00:00");
        assert_eq!(format(1_794_880_799_999), "2026-11-17 01:59:59");
        assert_eq!(parse("2026-11-17"), Some(1_794_873_600_000));
        assert_eq!(parse("2000-02-29T12:00:00Z"), Some(951_825_600_000));
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in [
            "",
            "soon",
            "2026",
            "2026-13-01",
            "2026-02-30",
            "2026-00-10",
            "1969-12-31",
            "2026-01-01 24:00:00",
            "2026-1--1",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_can_be_read(second in 0..253_402_300_800u64) {
            prop_assert_eq!(parse(&format(second * 1_000)), Some(second * 1_000));
        }

        #[test]
        fn nothing_panics(text in "\\PC{0,24}") {
            let _ = parse(&text);
        }
    }
}
