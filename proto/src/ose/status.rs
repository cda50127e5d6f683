//! `.osestatus`: 12 bytes that say which program runs and which id was given last.
//!
//! ```text
//! 0      OSESTATUS  0 idle, 1 fetching, 2 fetched, 3 parsing, 4 parsed (merging begins and goes on under it)
//! 1      blank
//! 2..12  LAST_URLID_COMPUTED, ten digits, or blank before the first
//! ```

use super::{Damage, OseId, number};

/// Length of the file.
pub const STATUS_BYTES: usize = 12;

/// Where a folder is in its cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// 0: the cycle is over; fetching may begin.
    #[default]
    Idle,
    /// 1: OSEM001 fetches.
    Fetching,
    /// 2: OSEM001 is done; parsing may begin.
    Fetched,
    /// 3: OSEM002 parses.
    Parsing,
    /// 4: OSEM002 is done; OSEM003 merges, or may begin to.
    Parsed,
}

impl Phase {
    /// All of them, in order.
    pub const ALL: [Phase; 5] = [Phase::Idle, Phase::Fetching, Phase::Fetched, Phase::Parsing, Phase::Parsed];

    /// The byte that stands for it.
    pub fn byte(self) -> u8 {
        b'0' + self as u8
    }

    fn of_byte(byte: u8) -> Option<Phase> {
        Phase::ALL.into_iter().find(|phase| phase.byte() == byte)
    }

    /// Whether a program may be at work on the folder, or has died there.
    pub fn is_unfinished(self) -> bool {
        matches!(self, Phase::Fetching | Phase::Parsing | Phase::Parsed)
    }
}

impl std::fmt::Display for Phase {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let meaning = match self {
            Phase::Idle => "idle",
            Phase::Fetching => "fetching",
            Phase::Fetched => "fetched",
            Phase::Parsing => "parsing",
            Phase::Parsed => "parsed",
        };
        write!(out, "{} ({meaning})", char::from(self.byte()))
    }
}

/// What the file says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OseStatus {
    /// Where the folder is in its cycle.
    pub phase: Phase,
    /// The id that was given last.
    pub last: OseId,
}

impl OseStatus {
    /// Reads the file. One end of line behind the twelve bytes is forgiven: editors add it.
    pub fn parse(bytes: &[u8]) -> Result<OseStatus, Damage> {
        let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() != STATUS_BYTES {
            let at = line.len().min(STATUS_BYTES);
            return Err(Damage::at(at, format!("the file has {STATUS_BYTES} bytes, not {}", line.len())));
        }
        let phase = Phase::of_byte(line[0]).ok_or_else(|| Damage::at(0, "OSESTATUS is a digit from 0 to 4"))?;
        if line[1] != b' ' {
            return Err(Damage::at(1, "a blank stands between OSESTATUS and LAST_URLID_COMPUTED"));
        }
        let last = number(&line[2..], 2, "LAST_URLID_COMPUTED")?.unwrap_or(0);
        let last = OseId::new(last).expect("ten digits are an id");
        Ok(OseStatus { phase, last })
    }

    /// The file's bytes.
    pub fn to_bytes(self) -> [u8; STATUS_BYTES] {
        let mut bytes = [b' '; STATUS_BYTES];
        bytes[0] = self.phase.byte();
        bytes[2..].copy_from_slice(self.last.to_string().as_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_can_be_read(phase in 0usize..5, last in 0..=OseId::LAST.number()) {
            let status = OseStatus { phase: Phase::ALL[phase], last: OseId::new(last).unwrap() };
            let bytes = status.to_bytes();
            prop_assert_eq!(OseStatus::parse(&bytes), Ok(status));
            prop_assert_eq!(OseStatus::parse(&[&bytes[..], b"\r\n"].concat()), Ok(status));
        }

        #[test]
        fn any_bytes_are_a_status_or_damage_within_the_line(bytes in proptest::collection::vec(any::<u8>(), 0..20)) {
            if let Err(damage) = OseStatus::parse(&bytes) {
                prop_assert!((1..=bytes.len().min(STATUS_BYTES) + 1).contains(&damage.column), "{}", damage);
            }
        }
    }

    #[test]
    fn the_bytes_stand_where_the_record_says() {
        let status = OseStatus { phase: Phase::Parsing, last: OseId::new(42).unwrap() };
        assert_eq!(&status.to_bytes(), b"3 0000000042");
        assert_eq!(OseStatus::parse(b"0           "), Ok(OseStatus::default()), "before the first id");
    }

    #[test]
    fn damage_is_named_with_its_column() {
        let column = |bytes: &[u8]| OseStatus::parse(bytes).unwrap_err().column;
        assert_eq!(column(b"7 0000000042"), 1);
        assert_eq!(column(b"0_0000000042"), 2);
        assert_eq!(column(b"0 00000x0042"), 8);
        assert_eq!(column(b"0 42"), 5);
        assert_eq!(column(b""), 1);
    }
}
