//! The folder of a site as OpenSearchEngine (OSE) keeps it: what its files are called and what stands in them, byte for byte.
//!
//! [`status`] is the 12 bytes of `.osestatus`, [`row`] a line of `.urls`, [`name`] the names of files, [`links`] which links of a page count
//! as valid. Nothing here reads a file: lines come in as bytes, and what is wrong with one is said with its column.
//! Where the original contradicts itself, `docs/ose.md` says what we do.

pub mod links;
pub mod name;
pub mod row;
pub mod status;

use std::fmt;

/// Number of a URL in its folder, written with ten digits. Ids go up by one and are never given twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OseId(u64);

impl OseId {
    /// Before the first.
    pub const NONE: OseId = OseId(0);
    /// The last that has ten digits.
    pub const LAST: OseId = OseId(9_999_999_999);

    /// The id of this number; `None` beyond ten digits.
    pub fn new(number: u64) -> Option<OseId> {
        (number <= Self::LAST.0).then_some(OseId(number))
    }

    /// The next one; `None` when all are given.
    pub fn next(self) -> Option<OseId> {
        OseId::new(self.0 + 1)
    }

    /// As a number.
    pub fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for OseId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:010}", self.0)
    }
}

/// Something in a file that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {reason}")]
pub struct Damage {
    /// Where in the line, in bytes from 1.
    pub column: usize,
    /// What is wrong.
    pub reason: String,
}

impl Damage {
    /// Damage at the byte of this index.
    pub(crate) fn at(index: usize, reason: impl Into<String>) -> Damage {
        Damage { column: index + 1, reason: reason.into() }
    }
}

/// Reads a number of at most `bytes.len()` digits; blanks may stand before and behind it, and alone they mean that there is none.
/// `start` is where the field begins in its line.
pub(crate) fn number(bytes: &[u8], start: usize, field: &str) -> Result<Option<u64>, Damage> {
    let lead = bytes.iter().take_while(|byte| **byte == b' ').count();
    let text = bytes[lead..].trim_ascii_end();
    if let Some(at) = text.iter().position(|byte| !byte.is_ascii_digit()) {
        return Err(Damage::at(start + lead + at, format!("{field} has digits or is blank")));
    }
    if text.is_empty() {
        return Ok(None);
    }
    let digits = std::str::from_utf8(text).expect("digits are ASCII");
    digits.parse().map(Some).map_err(|_| Damage::at(start + lead, format!("{field} is too large")))
}
