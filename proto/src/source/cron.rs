//! Cron lines of five fields: minute, hour, day of the month, month, weekday; always in UTC.
//!
//! A field is `*`, a number, a range `a-b`, either with a step `/n`, or several of them with commas; months and weekdays may be named by three letters, and
//! Sunday is 0 or 7. When both the day of the month and the weekday say something, a day that meets either is meant, as in every cron.
//! [`Cron::next`] is the first minute *after* a moment; [`Cron::is_due`] is the rule by which an entry runs: its next run after the last one lies before now.
//! So however many runs were missed, one makes up for them.

use std::fmt;

/// Longest cron line, in characters.
pub const CRON_CHARS_MAX: usize = 128;
/// No day is farther away than the leap days around 2100, eight years apart.
const DAYS_MAX: u64 = 8 * 366 + 1;
const DAY_S: u64 = 86_400;

const FIELDS: [Field; 5] = [
    Field { name: "minute", low: 0, high: 59, words: &[] },
    Field { name: "hour", low: 0, high: 23, words: &[] },
    Field { name: "day of the month", low: 1, high: 31, words: &[] },
    Field {
        name: "month",
        low: 1,
        high: 12,
        words: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    },
    Field { name: "weekday", low: 0, high: 7, words: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] },
];

/// What a field may say.
struct Field {
    name: &'static str,
    low: u32,
    high: u32,
    words: &'static [&'static str],
}

/// Why a line is no cron line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    /// Too many or too few fields.
    #[error(
        "cron {text:?} has {found} fields, and five are needed: minute, hour, day of the month, month, weekday, as in `*/5 * * * *`"
    )]
    Fields {
        /// The line.
        text: String,
        /// How many it has.
        found: usize,
    },
    /// A field that says nothing sensible.
    #[error("cron {text:?}: the {field} {part:?} {what}")]
    Field {
        /// The line.
        text: String,
        /// Which.
        field: &'static str,
        /// What it says.
        part: String,
        /// What is wrong with it.
        what: String,
    },
    /// It never comes, as the 30th of February.
    #[error("cron {0:?} names no day that there is")]
    Never(String),
    /// It is too long.
    #[error("a cron line has at most {CRON_CHARS_MAX} characters, this one has {0}")]
    TooLong(usize),
}

/// A cron line that was understood.
#[derive(Clone, PartialEq, Eq)]
pub struct Cron {
    text: String,
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// The day of the month, and the weekday, say nothing.
    any_day: bool,
    any_weekday: bool,
}

impl fmt::Debug for Cron {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Cron({})", self.text)
    }
}

impl fmt::Display for Cron {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl Cron {
    /// Understands a line.
    pub fn parse(text: &str) -> Result<Cron, CronError> {
        let length = text.chars().count();
        if length > CRON_CHARS_MAX {
            return Err(CronError::TooLong(length));
        }
        let parts: Vec<&str> = text.split_whitespace().collect();
        let text = parts.join(" ");
        let parts: [&str; 5] = match parts.try_into() {
            Ok(parts) => parts,
            Err(parts) => return Err(CronError::Fields { text, found: parts.len() }),
        };
        let mut sets = [0; 5];
        for ((set, field), part) in sets.iter_mut().zip(&FIELDS).zip(parts) {
            *set = field.set(part).map_err(|what| CronError::Field {
                text: text.clone(),
                field: field.name,
                part: part.to_owned(),
                what,
            })?;
        }
        let [minutes, hours, days, months, mut weekdays] = sets;
        weekdays = (weekdays | weekdays >> 7) & 0x7f;
        // A field that names every day says nothing if the other one has a star in it; if that names days, either will do.
        let says_nothing = |mine: &str, is_full: bool, other: &str| mine == "*" || (is_full && other.contains('*'));
        let any_day = says_nothing(parts[2], days == 0xffff_fffe, parts[4]);
        let any_weekday = says_nothing(parts[4], weekdays == 0x7f, parts[2]);
        let cron = Cron { text: text.clone(), minutes, hours, days, months, weekdays, any_day, any_weekday };
        if cron.next(0).is_none() { Err(CronError::Never(text)) } else { Ok(cron) }
    }

    /// The line.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The first run after a moment, both in Unix seconds.
    pub fn next(&self, after_s: u64) -> Option<u64> {
        let first = (after_s / 60).checked_add(1)?.checked_mul(60)?;
        let today = first / DAY_S;
        for day in today..=today.checked_add(DAYS_MAX)? {
            if !self.has_day(day) {
                continue;
            }
            let from = if day == today { first % DAY_S / 60 } else { 0 };
            if let Some(minute) = self.next_minute(from) {
                return (day * DAY_S).checked_add(minute * 60);
            }
        }
        None
    }

    /// Whether an entry that last ran at `last_ms` runs at `now_ms`, both Unix milliseconds: its next run lies before now.
    pub fn is_due(&self, last_ms: u64, now_ms: u64) -> bool {
        self.next(last_ms / 1_000).is_some_and(|next_s| next_s.saturating_mul(1_000) < now_ms)
    }

    fn next_minute(&self, from: u64) -> Option<u64> {
        let has = |minute: &u64| self.hours & 1 << (minute / 60) != 0 && self.minutes & 1 << (minute % 60) != 0;
        (from..1_440).find(has)
    }

    fn has_day(&self, day: u64) -> bool {
        let (month, of_month) = month_and_day(day);
        if self.months & 1 << month == 0 {
            return false;
        }
        let by_day = self.days & 1 << of_month != 0;
        let by_weekday = self.weekdays & 1 << ((day + 4) % 7) != 0; // the first day of 1970 was a Thursday
        match (self.any_day, self.any_weekday) {
            (true, true) => true,
            (true, false) => by_weekday,
            (false, true) => by_day,
            (false, false) => by_day || by_weekday,
        }
    }
}

/// Month and day of the month of a day since 1970, by counting years from March on, so that a leap day is the last of its year.
fn month_and_day(day: u64) -> (u64, u64) {
    let shifted = day + 719_468;
    let of_era = shifted % 146_097;
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    (if month < 10 { month + 3 } else { month - 9 }, of_year - (153 * month + 2) / 5 + 1)
}

impl Field {
    fn set(&self, text: &str) -> Result<u64, String> {
        text.split(',').try_fold(0, |set, item| Ok(set | self.item(item)?))
    }

    fn item(&self, item: &str) -> Result<u64, String> {
        let (range, step) = match item.split_once('/') {
            Some((range, step)) => (range, Some(step)),
            None => (item, None),
        };
        let step = match step {
            None => 1,
            Some(step) => match number(step) {
                Some(0) | None => return Err(format!("has the step {step:?}; a step is a number from 1 on")),
                Some(step) => step,
            },
        };
        let has_step = range.len() < item.len();
        // Sunday is 0 and 7, and a week that goes on and on does not have it twice.
        let end = self.high.min(if self.words.len() == 7 { 6 } else { self.high });
        let (low, high) = match range.split_once('-') {
            _ if range == "*" => (self.low, end),
            Some((low, high)) => (self.value(low)?, self.value(high)?),
            None => {
                let low = self.value(range)?;
                (low, if has_step { end.max(low) } else { low })
            }
        };
        if low > high {
            return Err(format!("ends before it begins; write {low}-{end},{}-{high}", self.low));
        }
        Ok((low..=high).step_by(step as usize).fold(0, |set, value| set | 1 << value))
    }

    fn value(&self, text: &str) -> Result<u32, String> {
        let named = self.words.iter().position(|word| word.eq_ignore_ascii_case(text));
        let value = named.map(|at| at as u32 + self.low).or_else(|| number(text));
        match value {
            Some(value) if (self.low..=self.high).contains(&value) => Ok(value),
            _ => Err(format!("has {text:?}; it goes from {} to {}", self.low, self.high)),
        }
    }
}

fn number(text: &str) -> Option<u32> {
    let is_number = !text.is_empty() && text.len() <= 4 && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::date;
    use proptest::prelude::*;

    fn next(cron: &str, after: &str) -> String {
        let after_s = date::parse(after).unwrap() / 1_000;
        date::format(Cron::parse(cron).unwrap().next(after_s).unwrap() * 1_000)
    }

    #[test]
    fn the_next_run_is_the_first_minute_after() {
        assert_eq!(next("* * * * *", "2026-11-17 05:00:00"), "2026-11-17 05:01:00");
        assert_eq!(next("* * * * *", "2026-11-17 05:00:59"), "2026-11-17 05:01:00");
        assert_eq!(next("0 0 1 1 *", "2026-01-01 00:00:00"), "2027-01-01 00:00:00");
        assert_eq!(next("*/20 9-17 * * mon-fri", "2026-11-20 17:40:00"), "2026-11-23 09:00:00");
        assert_eq!(next("0 12 29 feb *", "2096-02-29 12:00:00"), "2104-02-29 12:00:00");
        assert_eq!(next("0 0 13 * 5", "2026-11-17 00:00:00"), "2026-11-20 00:00:00", "either day will do");
        assert_eq!(next("0 0 * * 7", "2026-11-17 00:00:00"), "2026-11-22 00:00:00", "Sunday is 0 and 7");
    }

    #[test]
    fn case_11_a_line_of_six_fields_is_refused_with_the_remedy() {
        let error = Cron::parse("* * * * * *").unwrap_err().to_string();
        assert!(error.contains("6 fields") && error.contains("`*/5 * * * *`"), "{error}");
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_the_name_of_its_field() {
        for (text, word) in [
            ("", "0 fields"),
            ("60 * * * *", "minute"),
            ("* 24 * * *", "hour"),
            ("* * 0 * *", "day of the month"),
            ("* * * 13 *", "month"),
            ("* * * * 8", "weekday"),
            ("*/0 * * * *", "step"),
            ("5-1 * * * *", "write 5-59,0-1"),
            ("a * * * *", "from 0 to 59"),
            ("1,,2 * * * *", "from 0 to 59"),
            ("-1 * * * *", "minute"),
            ("* * 30 2 *", "no day"),
            (&"* ".repeat(100), "at most 128"),
        ] {
            let error = Cron::parse(text).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn missed_runs_come_to_one_and_the_minute_itself_is_too_early() {
        let cron = Cron::parse("*/5 * * * *").unwrap();
        let last = 1_000 * 300_000;
        assert!(!cron.is_due(last, last + 300_000), "strictly before now");
        assert!(cron.is_due(last, last + 300_001));
        let late = last + 7 * 300_000 + 1;
        assert!(cron.is_due(last, late) && !cron.is_due(late, late + 1), "seven were missed, one runs");
    }

    proptest! {
        #[test]
        fn a_run_is_after_and_nothing_of_the_line_lies_between(
            minute in 0..60u32, step in 1..30u32, weekday in 0..7u32, after in 0..4_000_000_000u64,
        ) {
            let cron = Cron::parse(&format!("{minute}/{step} * * * {weekday}")).unwrap();
            let next = cron.next(after).unwrap();
            prop_assert!(next > after && next.is_multiple_of(60));
            prop_assert_eq!((next / DAY_S + 4) % 7, u64::from(weekday));
            prop_assert_eq!(cron.next(next - 1), Some(next));
            prop_assert_eq!(cron.next((after + next) / 2), Some(next), "none lies between");
        }

        #[test]
        fn any_text_is_understood_or_refused(text in "\\PC{0,40}|[0-9*/,a-z -]{0,30}", after in any::<u64>()) {
            if let Ok(cron) = Cron::parse(&text) {
                prop_assert!(cron.next(after).is_none_or(|next| next > after));
                prop_assert_eq!(Cron::parse(cron.text()).unwrap(), cron.clone());
            }
        }
    }
}
