//! The links of one page as bytes: how many lead to other domains, then all of them as differences of page numbers.
//!
//! Links to other domains come first, so that who wants only those stops early. Each number is written as the difference to
//! the one before, the first to the page's own: pages that are found together have numbers close to each other, and most
//! differences fit one or two bytes. Seven bits a byte, low ones first, the high bit says that more follow. The sign is the lowest
//! bit of what is written: `2n` for n >= 0, `2|n| + 1` below.

/// Longest varint of 64 bits.
const VARINT_BYTES_MAX: usize = 10;

/// Bytes that are no row of links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a row of links")]
pub struct NoRow;

/// Appends an unsigned number.
pub fn write_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Takes an unsigned number from the front of `bytes`.
pub fn read_varint(bytes: &mut &[u8]) -> Result<u64, NoRow> {
    let mut number = 0u64;
    for (place, byte) in bytes.iter().enumerate().take(VARINT_BYTES_MAX) {
        number |= u64::from(byte & 0x7f).checked_shl(7 * place as u32).ok_or(NoRow)?;
        if byte & 0x80 == 0 {
            *bytes = &bytes[place + 1..];
            return Ok(number);
        }
    }
    Err(NoRow)
}

/// Appends a signed number.
pub fn write_signed(number: i64, out: &mut Vec<u8>) {
    write_varint(number.unsigned_abs() << 1 | u64::from(number < 0), out);
}

/// Takes a signed number from the front of `bytes`.
pub fn read_signed(bytes: &mut &[u8]) -> Result<i64, NoRow> {
    let written = read_varint(bytes)?;
    let magnitude = (written >> 1) as i64;
    Ok(if written & 1 == 1 { -magnitude } else { magnitude })
}

/// Writes the links of `page`.
pub fn write(page: u32, other_domains: &[u32], same_domain: &[u32], out: &mut Vec<u8>) {
    write_varint(other_domains.len() as u64, out);
    let mut last = page;
    for link in other_domains.iter().chain(same_domain) {
        write_signed(i64::from(*link) - i64::from(last), out);
        last = *link;
    }
}

/// The links of a page, as they are read.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    bytes: &'a [u8],
    last: i64,
    other_domains: u64,
}

impl<'a> Row<'a> {
    /// Begins to read the row of `page`.
    pub fn read(page: u32, mut bytes: &'a [u8]) -> Result<Row<'a>, NoRow> {
        let other_domains = read_varint(&mut bytes)?;
        Ok(Row { bytes, last: i64::from(page), other_domains })
    }

    /// How many links to other domains are still to come.
    pub fn other_domains(&self) -> u64 {
        self.other_domains
    }
}

impl Iterator for Row<'_> {
    type Item = Result<u32, NoRow>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.bytes.is_empty() {
            return None;
        }
        self.other_domains = self.other_domains.saturating_sub(1);
        let page = read_signed(&mut self.bytes)
            .and_then(|difference| self.last.checked_add(difference).ok_or(NoRow))
            .and_then(|page| u32::try_from(page).map_err(|_| NoRow));
        match page {
            Ok(page) => self.last = i64::from(page),
            Err(NoRow) => self.bytes = &[], // whatever follows means nothing
        }
        Some(page)
    }
}
