//! The language of a text.

/// How much text is looked at: the detector's cost grows with it, its certainty hardly does beyond.
const SAMPLE_BYTES: usize = 1024;

/// ISO 639-3 code of the language of `text`, if it is certain enough.
///
/// The sample is taken from the middle: pages begin with menus and end with legal notes.
pub(super) fn detect(text: &str) -> Option<&'static str> {
    let start = text.floor_char_boundary(text.len().saturating_sub(SAMPLE_BYTES) / 2);
    let end = text.floor_char_boundary(start + SAMPLE_BYTES);
    let guess = whatlang::detect(&text[start..end])?;
    guess.is_reliable().then(|| guess.lang().code())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_of_prose_are_recognised() {
        for (text, code) in [
            ("The quick brown fox jumps over the lazy dog while everybody is watching it from the other side.", "eng"),
            ("Der schnelle braune Fuchs springt über den faulen Hund, während alle anderen ihm dabei zusehen.", "deu"),
            ("Быстрая коричневая лиса прыгает через ленивую собаку, пока все остальные на это смотрят.", "rus"),
            ("素早い茶色の狐がのろまな犬を飛び越えるのを、みんなが向こう側から見ている。", "jpn"),
        ] {
            assert_eq!(detect(text), Some(code));
        }
    }

    #[test]
    fn no_language_is_claimed_without_certainty() {
        for text in ["", "OK", "12345 67890", "a b c"] {
            assert_eq!(detect(text), None, "{text}");
        }
    }

    #[test]
    fn long_texts_are_sampled_at_character_boundaries() {
        for bytes in 1000..1100 {
            let text: String = "ä".repeat(bytes);
            detect(&text);
        }
    }
}
