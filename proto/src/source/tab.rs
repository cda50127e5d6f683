//! Tab files: cron entries with the time of their last run, in the two forms that the URI generator had.
//!
//! ```text
//! min hour dom mon dow command #comment #last_time        Form::Hashes
//! min hour dom mon dow command @last_time # comment       Form::At
//! ```
//! A line `NAME=value` without a blank before `=` is a setting of the environment; an entry without a comment of its own adopts a line `#…` before it; blank lines
//! stay. Anything else is told with its line and what is wrong, and kept as it is: reading a file and writing it again loses nothing.

use std::fmt;

use super::cron::{Cron, CronError};
use crate::date;

/// Lines of a tab file that are read.
pub const TAB_LINES_MAX: usize = 100_000;

/// How entries are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `command #comment #last_time`
    Hashes,
    /// `command @last_time # comment`
    At,
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TabEntry {
    /// When it runs.
    pub cron: Cron,
    /// What.
    pub command: String,
    /// A comment on it; empty if there is none.
    pub comment: String,
    /// When it last ran, Unix seconds.
    pub last_s: Option<u64>,
}

/// A line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TabLine {
    /// An entry.
    Entry(TabEntry),
    /// `NAME=value`.
    Environment {
        /// The name.
        name: String,
        /// The value.
        value: String,
    },
    /// A blank line, a comment of nothing, or what is not understood.
    Verbatim(String),
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct TabError {
    /// Which, from 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

/// A tab file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tab {
    /// Its lines.
    pub lines: Vec<TabLine>,
}

impl Tab {
    /// Reads a file; what is not understood is in it as it was, and told.
    pub fn parse(text: &str) -> (Tab, Vec<TabError>) {
        let (mut lines, mut errors) = (Vec::new(), Vec::new());
        for (at, line) in text.lines().enumerate() {
            if at == TAB_LINES_MAX {
                errors.push(TabError { line: at + 1, what: format!("a tab file has at most {TAB_LINES_MAX} lines") });
                break;
            }
            let read = match read_line(line) {
                Ok(read) => read,
                Err(what) => {
                    errors.push(TabError { line: at + 1, what });
                    TabLine::Verbatim(line.to_owned())
                }
            };
            let adopted = match (&read, lines.last()) {
                (TabLine::Entry(entry), Some(TabLine::Verbatim(above))) if entry.comment.is_empty() => {
                    above.trim().strip_prefix('#').map(str::trim).filter(|comment| !comment.is_empty())
                }
                _ => None,
            };
            match (adopted.map(str::to_owned), read) {
                (Some(comment), TabLine::Entry(entry)) => {
                    lines.pop();
                    lines.push(TabLine::Entry(TabEntry { comment, ..entry }));
                }
                (_, read) => lines.push(read),
            }
        }
        (Tab { lines }, errors)
    }

    /// The entries.
    pub fn entries(&self) -> impl Iterator<Item = &TabEntry> {
        self.lines.iter().filter_map(|line| match line {
            TabLine::Entry(entry) => Some(entry),
            _ => None,
        })
    }

    /// Writes a file.
    pub fn write(&self, form: Form) -> String {
        self.lines.iter().map(|line| line.write(form) + "\n").collect()
    }
}

impl TabLine {
    fn write(&self, form: Form) -> String {
        match self {
            TabLine::Verbatim(text) => text.clone(),
            TabLine::Environment { name, value } => format!("{name}={value}"),
            TabLine::Entry(entry) => match form {
                Form::Hashes => {
                    // A time without a comment needs an empty one: alone it would be the comment.
                    let last = entry.last_s.map_or(String::new(), |last| format!(" #{}", Time(last)));
                    let comment = match (entry.comment.as_str(), last.is_empty()) {
                        ("", true) => String::new(),
                        (comment, _) => format!(" #{comment}"),
                    };
                    format!("{} {}{comment}{last}", entry.cron, entry.command)
                }
                Form::At => {
                    let last = entry.last_s.map_or(String::new(), |last| format!(" @{}", Time(last)));
                    let comment = match entry.comment.as_str() {
                        "" => String::new(),
                        comment => format!(" # {comment}"),
                    };
                    format!("{} {}{last}{comment}", entry.cron, entry.command)
                }
            },
        }
    }
}

/// A time as it stands in a tab file.
struct Time(u64);

impl fmt::Display for Time {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&date::format(self.0.saturating_mul(1_000)).replace(' ', "T"))
    }
}

/// Reads a time: as we write it, or Unix seconds.
fn time(text: &str) -> Option<u64> {
    let text = text.trim();
    let seconds = text.split('.').next().unwrap_or_default();
    if (9..=11).contains(&seconds.len()) && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return seconds.parse().ok();
    }
    date::parse(text).map(|unix_ms| unix_ms / 1_000)
}

fn read_line(line: &str) -> Result<TabLine, String> {
    let text = line.trim();
    if text.is_empty() || text.starts_with('#') {
        return Ok(TabLine::Verbatim(line.to_owned()));
    }
    if let Some((name, value)) = text.split_once('=') {
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if is_name && !name.as_bytes()[0].is_ascii_digit() {
            return Ok(TabLine::Environment { name: name.to_owned(), value: value.trim().to_owned() });
        }
    }
    let (cron, rest) = five_fields(text).ok_or_else(|| {
        format!("{text:?} is no entry: five fields of a cron line and a command, as in `*/5 * * * * command`")
    })?;
    let cron = Cron::parse(cron).map_err(|error: CronError| error.to_string())?;
    let (command, comment, last_s) = tail(rest);
    if command.is_empty() {
        return Err(format!("{text:?} has no command"));
    }
    Ok(TabLine::Entry(TabEntry { cron, command, comment, last_s }))
}

/// The first five words, and the rest.
fn five_fields(text: &str) -> Option<(&str, &str)> {
    let mut rest = text;
    for _ in 0..5 {
        rest = rest.trim_start().split_once([' ', '\t'])?.1;
    }
    Some((text[..text.len() - rest.len()].trim(), rest.trim()))
}

/// Command, comment and time, in either form.
fn tail(rest: &str) -> (String, String, Option<u64>) {
    let text = |part: &str| part.trim().to_owned();
    if let Some((before, last)) = rest.rsplit_once(" #") {
        if let Some(last_s) = time(last) {
            let (command, comment) = before.rsplit_once(" #").unwrap_or((before, ""));
            return (text(command), text(comment), Some(last_s));
        }
        if let Some((command, last_s)) = at_time(before) {
            return (text(command), text(last), Some(last_s));
        }
        return (text(before), text(last), None);
    }
    match at_time(rest) {
        Some((command, last_s)) => (text(command), String::new(), Some(last_s)),
        None => (text(rest), String::new(), None),
    }
}

fn at_time(text: &str) -> Option<(&str, u64)> {
    let (command, last) = text.rsplit_once(" @")?;
    time(last).map(|last_s| (command, last_s))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOTH: [Form; 2] = [Form::Hashes, Form::At];

    #[test]
    fn case_18_entries_of_both_forms_are_read() {
        let text = "SHELL=/bin/sh\n\n*/5 * * * * make news #news #2026-11-17T05:00:00\n\
                    0 1 * * mon GeneratorDispatch('5f').run() @1794891600 # job name:shop with id:5f\n# nightly\n0 3 * * * tidy\n";
        let (tab, errors) = Tab::parse(text);
        assert!(errors.is_empty(), "{errors:?}");
        let entries: Vec<(&str, &str, Option<u64>)> =
            tab.entries().map(|entry| (entry.command.as_str(), entry.comment.as_str(), entry.last_s)).collect();
        assert_eq!(
            entries,
            [
                ("make news", "news", Some(1_794_891_600)),
                ("GeneratorDispatch('5f').run()", "job name:shop with id:5f", Some(1_794_891_600)),
                ("tidy", "nightly", None),
            ]
        );
        assert_eq!(tab.lines[0], TabLine::Environment { name: "SHELL".into(), value: "/bin/sh".into() });
        for form in BOTH {
            assert_eq!(Tab::parse(&tab.write(form)), (tab.clone(), Vec::new()), "{}", tab.write(form));
        }
    }

    #[test]
    fn case_19_what_is_malformed_is_told_by_its_line_and_kept() {
        let text = "* * * * *\n61 * * * * x\nnonsense\n* * * * * good\nA B=c\n";
        let (tab, errors) = Tab::parse(text);
        let lines: Vec<usize> = errors.iter().map(|error| error.line).collect();
        assert_eq!(lines, [1, 2, 3, 5], "{errors:?}");
        assert!(errors[1].what.contains("minute"), "{errors:?}");
        assert_eq!(tab.entries().count(), 1);
        assert_eq!(tab.write(Form::At), text, "nothing is lost");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again_in_both_forms(
            command in "[a-z0-9'.()/_=-][a-z0-9 '.()/_=-]{0,30}", comment in "[a-z]?|[a-z][a-z0-9: ]{0,20}[a-z]",
            last in proptest::option::of(200_000_000..9_000_000_000u64), minute in 0..60u8,
        ) {
            let command = command.trim().to_owned();
            let cron = Cron::parse(&format!("{minute} * * * *")).unwrap();
            let tab = Tab { lines: vec![TabLine::Entry(TabEntry { cron, command, comment, last_s: last })] };
            for form in BOTH {
                prop_assert_eq!(Tab::parse(&tab.write(form)), (tab.clone(), Vec::new()));
            }
        }

        #[test]
        fn any_text_is_read_and_the_second_reading_says_the_same(text in "(\\PC{0,30}|[0-9*/ #@=a-zA-Z]{0,40}|\n){0,8}") {
            let (tab, _) = Tab::parse(&text);
            for form in BOTH {
                let (again, _) = Tab::parse(&tab.write(form));
                prop_assert_eq!(again.entries().count(), tab.entries().count());
            }
        }
    }
}
