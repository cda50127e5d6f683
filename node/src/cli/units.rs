//! Times as `45s`, sizes as `500MB`: what people write, and what they read.

use std::time::Duration;

/// Parses a time: a number and `ms`, `s`, `m`, `h` or `d`.
pub(super) fn parse_time(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text, "a time looks like 500ms, 45s, 10m, 2h or 1d")?;
    let milliseconds = match unit {
        "ms" => 1.0,
        "s" => 1_000.0,
        "m" => 60_000.0,
        "h" => 3_600_000.0,
        "d" => 86_400_000.0,
        "" if number == 0.0 => 1.0,
        "" => return Err(format!("{text} has no unit; a time looks like 500ms, 45s, 10m, 2h or 1d")),
        _ => return Err(format!("unit {unit} is not known; a time looks like 500ms, 45s, 10m, 2h or 1d")),
    };
    let value = number * milliseconds;
    // A century, so that no sum of times overflows.
    if value > 3.2e12 {
        return Err(format!("{text} is more than a hundred years"));
    }
    Ok(Duration::from_millis(value.round() as u64))
}

/// Parses a size: a number and `B`, `kB`, `MB`, `GB`, `TB` (thousands) or `KiB`, `MiB`, `GiB`, `TiB`.
pub(super) fn parse_size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text, "a size looks like 500MB or 2GiB")?;
    let bytes = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kb" => 1e3,
        "m" | "mb" => 1e6,
        "g" | "gb" => 1e9,
        "t" | "tb" => 1e12,
        "kib" => 1024.0,
        "mib" => 1024.0 * 1024.0,
        "gib" => 1024.0 * 1024.0 * 1024.0,
        "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return Err(format!("unit {unit} is not known; a size looks like 500MB or 2GiB")),
    };
    let value = number * bytes;
    if value > 1e18 {
        return Err(format!("{text} is more than an exabyte"));
    }
    Ok(value.round() as u64)
}

/// Parses a time that must not be zero.
pub(super) fn parse_time_above_zero(text: &str) -> Result<Duration, String> {
    parse_time(text)
        .and_then(|time| if time.is_zero() { Err("must be more than nothing".to_owned()) } else { Ok(time) })
}

/// Parses a size that must not be zero.
pub(super) fn parse_size_above_zero(text: &str) -> Result<u64, String> {
    parse_size(text).and_then(|size| if size == 0 { Err("must be at least one byte".to_owned()) } else { Ok(size) })
}

fn split<'a>(text: &'a str, example: &str) -> Result<(f64, &'a str), String> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let number = text[..end].parse().map_err(|_| format!("{text:?} does not begin with a number; {example}"))?;
    Ok((number, text[end..].trim()))
}

/// Writes a size for people: `1.4 MB`.
pub(super) fn show_size(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "kB", "MB", "GB", "TB"] {
        if value < 999.5 || unit == "TB" {
            return if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1_000.0;
    }
    unreachable!("the last unit returns")
}

/// Writes a time for people: `1h 02m`, `3m 20s`, `12s`.
pub(super) fn show_time(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h {:02}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d {:02}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// Writes a count for people: `12,345`.
pub(super) fn show_count(count: u64) -> String {
    let digits = count.to_string();
    let mut shown = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_units() {
        assert_eq!(parse_time("45s"), Ok(Duration::from_secs(45)));
        assert_eq!(parse_time("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(parse_time("2h"), Ok(Duration::from_secs(7_200)));
        assert_eq!(parse_time("1.5s"), Ok(Duration::from_millis(1_500)));
        assert_eq!(parse_time("0"), Ok(Duration::ZERO));
        for wrong in ["", "s", "5", "5 parsecs", "-1s", "1e9d", "99999999999d", "1.2.3s"] {
            assert!(parse_time(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn sizes_are_read_with_their_units() {
        assert_eq!(parse_size("500MB"), Ok(500_000_000));
        assert_eq!(parse_size("2GiB"), Ok(2 << 30));
        assert_eq!(parse_size("17"), Ok(17));
        assert_eq!((parse_size("0"), parse_size_above_zero("1")), (Ok(0), Ok(1)));
        assert!(parse_size_above_zero("0MB").is_err() && parse_time_above_zero("0s").is_err());
        for wrong in ["", "MB", "5 parsecs", "-1MB", "9999999999TB"] {
            assert!(parse_size(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn numbers_are_shown_as_people_write_them() {
        assert_eq!([show_size(999), show_size(1_400_000)], ["999 B", "1.4 MB"]);
        assert_eq!([show_count(7), show_count(1_234_567)], ["7", "1,234,567"]);
        assert_eq!(show_time(Duration::from_secs(3_725)), "1h 02m");
        assert_eq!(show_time(Duration::from_secs(200)), "3m 20s");
    }
}
