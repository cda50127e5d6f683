//! A line of `.urls`, `.urls2` or `.urls3`: 55 bytes of fixed fields, then the URL.
//!
//! ```text
//!  0..10  URLID     ten digits; blank until the URL was asked for
//! 11..14  HTTPRC    the answer's code; 000 if there was none
//! 15..34  STREAMED  when OSEM001 asked last, Unix milliseconds, 19 digits
//! 35..54  PARSED    when OSEM002 read the answer
//! 55..    URL       to the end of the line
//! ```
//! The bytes between are blanks. Numbers are written with leading zeros; blanks around them are read too.

use super::{Damage, OseId, number};
use crate::url::URL_BYTES_MAX;

/// Bytes before the URL.
pub const PREFIX_BYTES: usize = 55;
/// Longest line, without its end.
pub const LINE_BYTES_MAX: usize = PREFIX_BYTES + URL_BYTES_MAX;
/// Largest time: 19 digits, a signed 64-bit number.
pub const TIME_MAX: u64 = i64::MAX as u64;

/// A URL of a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OseRow {
    /// Its id, once it was asked for.
    pub id: Option<OseId>,
    /// The code of the answer; 0 if nobody answered.
    pub code: Option<u16>,
    /// When it was asked for, Unix milliseconds.
    pub streamed: Option<u64>,
    /// When its links were read.
    pub parsed: Option<u64>,
    /// The URL as it stands there.
    pub url: String,
}

impl OseRow {
    /// A URL that nobody has asked for.
    pub fn new(url: impl Into<String>) -> OseRow {
        OseRow { url: url.into(), ..OseRow::default() }
    }

    /// Reads a line without its end (a carriage return is taken for a part of the end).
    pub fn parse(line: &[u8]) -> Result<OseRow, Damage> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() <= PREFIX_BYTES {
            return Err(Damage::at(line.len(), format!("the URL is missing; {PREFIX_BYTES} bytes stand before it")));
        }
        for at in [10, 14, 34, 54] {
            if line[at] != b' ' {
                return Err(Damage::at(at, "a blank stands between fields"));
            }
        }
        let id = number(&line[..10], 0, "URLID")?.map(|id| OseId::new(id).expect("ten digits are an id"));
        let code = number(&line[11..14], 11, "HTTPRC")?.map(|code| code as u16); // three digits
        let streamed = time(&line[15..34], 15, "STREAMED")?;
        let parsed = time(&line[35..54], 35, "PARSED")?;
        if id.is_none() && (streamed.is_some() || parsed.is_some()) {
            return Err(Damage::at(0, "a URL with a time has an id"));
        }
        Ok(OseRow { id, code, streamed, parsed, url: url(&line[PREFIX_BYTES..])? })
    }

    /// Writes the line, without an end.
    pub fn to_line(&self) -> String {
        let id = self.id.map_or_else(|| " ".repeat(10), |id| id.to_string());
        let code = self.code.map_or_else(|| " ".repeat(3), |code| format!("{:03}", code.min(999)));
        let time =
            |time: Option<u64>| time.map_or_else(|| " ".repeat(19), |time| format!("{:019}", time.min(TIME_MAX)));
        format!("{id} {code} {} {} {}", time(self.streamed), time(self.parsed), self.url)
    }

    /// Whether OSEM001 has it still to do.
    pub fn is_new(&self) -> bool {
        self.id.is_none()
    }

    /// The id of the answer that OSEM002 has still to read.
    pub fn unparsed(&self) -> Option<OseId> {
        self.id.filter(|_| self.streamed.is_some() && self.parsed.is_none())
    }
}

fn time(bytes: &[u8], start: usize, field: &str) -> Result<Option<u64>, Damage> {
    let time = number(bytes, start, field)?;
    match time {
        Some(time) if time > TIME_MAX => Err(Damage::at(start, format!("{field} is too large"))),
        time => Ok(time),
    }
}

fn url(bytes: &[u8]) -> Result<String, Damage> {
    if bytes.len() > URL_BYTES_MAX {
        return Err(Damage::at(LINE_BYTES_MAX, format!("a URL has at most {URL_BYTES_MAX} bytes")));
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|error| Damage::at(PREFIX_BYTES + error.valid_up_to(), "the URL is not UTF-8"))?;
    match text.char_indices().find(|(_, char)| char.is_control()) {
        Some((at, _)) => Err(Damage::at(PREFIX_BYTES + at, "a control character in the URL")),
        None if text.trim().is_empty() => Err(Damage::at(PREFIX_BYTES, "the URL is blank")),
        None => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn row() -> impl Strategy<Value = OseRow> {
        let asked = (0..=OseId::LAST.number(), 0..1000u16, 0..=TIME_MAX, proptest::option::of(0..=TIME_MAX));
        (proptest::option::of(asked), "[!-~\u{e0}-\u{ff}]{1,60}").prop_map(|(asked, url)| match asked {
            None => OseRow::new(url),
            Some((id, code, streamed, parsed)) => {
                OseRow { id: OseId::new(id), code: Some(code), streamed: Some(streamed), parsed, url }
            }
        })
    }

    proptest! {
        #[test]
        fn what_is_written_can_be_read(row in row()) {
            let line = row.to_line();
            prop_assert_eq!(line.as_bytes()[PREFIX_BYTES..].to_vec(), row.url.as_bytes().to_vec());
            prop_assert_eq!(OseRow::parse(line.as_bytes()), Ok(row.clone()));
            prop_assert_eq!(OseRow::parse(format!("{line}\r").as_bytes()), Ok(row));
        }

        #[test]
        fn any_bytes_are_a_row_or_damage_with_a_column(line in proptest::collection::vec(any::<u8>(), 0..120)) {
            match OseRow::parse(&line) {
                Ok(row) => prop_assert_eq!(OseRow::parse(row.to_line().as_bytes()), Ok(row)),
                Err(damage) => prop_assert!((1..=line.len() + 1).contains(&damage.column), "{}", damage),
            }
        }

        #[test]
        fn one_wrong_byte_in_the_prefix_is_found_where_it_is(row in row(), at in 0..PREFIX_BYTES) {
            let mut line = row.to_line().into_bytes();
            line[at] = b'x';
            let damage = OseRow::parse(&line).unwrap_err();
            prop_assert_eq!(damage.column, at + 1);
        }
    }

    #[test]
    fn the_bytes_stand_where_the_record_says() {
        let row = OseRow {
            id: OseId::new(7),
            code: Some(200),
            streamed: Some(1_700_000_000_000),
            parsed: None,
            url: "http://target1.com/".into(),
        };
        assert_eq!(row.to_line(), "0000000007 200 0000001700000000000                     http://target1.com/");
        assert_eq!(OseRow::new("http://a.b/").to_line().len(), PREFIX_BYTES + "http://a.b/".len());
    }

    #[test]
    fn padding_of_other_hands_is_read() {
        let line = "         7 404 1700000000000       1700000000001       http://target1.com/x y";
        let row = OseRow::parse(line.as_bytes()).unwrap();
        assert_eq!((row.id, row.code), (OseId::new(7), Some(404)));
        assert_eq!((row.streamed, row.parsed), (Some(1_700_000_000_000), Some(1_700_000_000_001)));
        assert_eq!(row.url, "http://target1.com/x y");
    }

    #[test]
    fn a_line_that_is_too_long_or_too_short_is_damaged() {
        let long = OseRow::new("a".repeat(URL_BYTES_MAX + 1)).to_line();
        assert_eq!(OseRow::parse(long.as_bytes()).unwrap_err().column, LINE_BYTES_MAX + 1);
        assert_eq!(OseRow::parse(&[b' '; PREFIX_BYTES]).unwrap_err().column, PREFIX_BYTES + 1);
        assert_eq!(OseRow::parse(b"").unwrap_err().column, 1);
        assert!(OseRow::parse(OseRow::new("a".repeat(URL_BYTES_MAX)).to_line().as_bytes()).is_ok());
    }

    #[test]
    fn a_time_without_an_id_is_damaged() {
        let line = OseRow { streamed: Some(1), ..OseRow::new("http://a.b/") }.to_line();
        assert_eq!(OseRow::parse(line.as_bytes()).unwrap_err().column, 1);
    }
}
