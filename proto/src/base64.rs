//! Bytes in JSON: base64 of RFC 4648, section 4.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Bytes in base64, as contents travel in JSON.
pub fn to_base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let number = three.iter().fold(0u32, |number, byte| number << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for at in 0..4 {
            let digit = DIGITS[(number >> (18 - 6 * at)) as usize & 63];
            text.push(if at <= three.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

/// The bytes of a text in base64; `None` if it is none. White space is left out.
pub fn from_base64(text: &str) -> Option<Vec<u8>> {
    let letters: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let padding = letters.iter().rev().take_while(|byte| **byte == b'=').count();
    if !letters.len().is_multiple_of(4) || padding > 2 {
        return None;
    }
    let digits = &letters[..letters.len() - padding];
    let mut bytes = Vec::with_capacity(letters.len() / 4 * 3);
    for four in digits.chunks(4) {
        let mut number = 0u32;
        for letter in four {
            number = number << 6 | DIGITS.iter().position(|digit| digit == letter)? as u32;
        }
        number <<= 6 * (4 - four.len());
        bytes.extend_from_slice(&number.to_be_bytes()[1..four.len()]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_are_those_of_the_standard() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(
                (to_base64(bytes.as_bytes()).as_str(), from_base64(text).as_deref()),
                (text, Some(bytes.as_bytes()))
            );
        }
        assert_eq!(
            (from_base64("Zg="), from_base64("Z*=="), from_base64(" Zg\n== ")),
            (None, None, Some(b"f".to_vec()))
        );
    }

    proptest! {
        #[test]
        fn what_is_written_can_be_read(bytes: Vec<u8>) {
            prop_assert_eq!(from_base64(&to_base64(&bytes)), Some(bytes));
        }
    }
}
