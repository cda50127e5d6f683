//! The language of a text.
//!
//! whatlang compares trigrams with 37 languages of the Latin script, which takes as long (80 µs) as the whole pass over
//! the HTML of a page of 8 KB. So the large languages are first looked for by small words that no other language has;
//! where these are many and of one language only, that is the answer.

use std::sync::LazyLock;

/// How much text is looked at: more costs time and adds hardly any certainty.
const SAMPLE_BYTES: usize = 1024;
/// Small words that decide: this many in the sample, of which this many different ones ...
const HITS_MIN: u32 = 6;
const DIFFERENT_MIN: u32 = 3;
/// ... at least one word in so many, and so many times those of any other language.
const WORDS_PER_HIT: u32 = 12;
const TIMES_OTHERS: u32 = 4;
/// The longest small word, in bytes.
const WORD_BYTES_MAX: usize = 8;

/// Small words by language; none is common in another language that is written in Latin letters.
const SMALL_WORDS: [(&str, &str); 7] = [
    ("eng", "the and of with that this was from which have are you has been would there their"),
    ("deu", "und der das nicht ist mit für auch sich werden wird eine einer dem bei nach oder sind wurde über zum"),
    ("fra", "dans est pour une sur avec qui sont du aux cette nous vous été ces leur où"),
    ("spa", "los las y más pero muy fue también sus está según donde hasta desde sobre"),
    ("por", "não uma dos são pelo pela foi também ao ou seu sua isso você"),
    ("ita", "che di della sono gli nel anche è alla più dei delle questo ha dal nella"),
    ("nld", "een niet voor zijn ook werd naar deze wordt bij dat heeft worden hij"),
];

/// Each small word, packed into a number, with its language and its place among the words of that language; sorted.
static LANGUAGE_OF: LazyLock<Vec<(u64, usize, u32)>> = LazyLock::new(|| {
    let mut words: Vec<_> = (SMALL_WORDS.iter().enumerate())
        .flat_map(|(language, (_, words))| {
            words.split(' ').enumerate().map(move |(number, word)| (language, number, word))
        })
        .map(|(language, number, word)| (pack(word.as_bytes()), language, 1_u32 << number))
        .collect();
    words.sort_unstable();
    words
});

/// A word of at most eight bytes as a number, ASCII letters in lower case.
fn pack(word: &[u8]) -> u64 {
    word.iter().fold(0, |packed, byte| packed << 8 | u64::from(byte.to_ascii_lowercase()))
}

/// ISO 639-3 code of the language of `text`, if it is certain enough.
///
/// The sample is taken from the middle: pages begin with menus and end with legal notes.
pub(super) fn detect(text: &str) -> Option<&'static str> {
    let start = text.floor_char_boundary(text.len().saturating_sub(SAMPLE_BYTES) / 2);
    let sample = &text[start..text.floor_char_boundary(start + SAMPLE_BYTES)];
    if let Some(language) = by_small_words(sample) {
        return Some(language);
    }
    let guess = whatlang::detect(sample)?;
    guess.is_reliable().then(|| guess.lang().code())
}

fn by_small_words(sample: &str) -> Option<&'static str> {
    let mut hits = [0_u32; SMALL_WORDS.len()];
    let mut different = [0_u32; SMALL_WORDS.len()];
    let mut words = 0;
    let in_word = |byte: &u8| !byte.is_ascii() || byte.is_ascii_alphabetic();
    for word in sample.as_bytes().split(|byte| !in_word(byte)).filter(|word| !word.is_empty()) {
        words += 1;
        if word.len() > WORD_BYTES_MAX {
            continue;
        }
        let packed = pack(word);
        if let Ok(at) = LANGUAGE_OF.binary_search_by_key(&packed, |known| known.0) {
            let (_, language, bit) = LANGUAGE_OF[at];
            hits[language] += 1;
            different[language] |= bit;
        }
    }
    let (best, &most) = hits.iter().enumerate().max_by_key(|(_, hits)| **hits)?;
    let others: u32 = hits.iter().sum::<u32>() - most;
    let certain = most >= HITS_MIN
        && different[best].count_ones() >= DIFFERENT_MIN
        && most * WORDS_PER_HIT >= words
        && most >= others * TIMES_OTHERS;
    certain.then_some(SMALL_WORDS[best].0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROSE: [(&str, &str); 12] = [
        ("eng", "The quick brown fox jumps over the lazy dog while everybody is watching it from the other side."),
        ("deu", "Der schnelle braune Fuchs springt über den faulen Hund, während alle anderen ihm dabei zusehen."),
        ("rus", "Быстрая коричневая лиса прыгает через ленивую собаку, пока все остальные на это смотрят."),
        ("jpn", "素早い茶色の狐がのろまな犬を飛び越えるのを、みんなが向こう側から見ている。"),
        (
            "cat",
            "Tots els éssers humans neixen lliures i iguals en dignitat i en drets. Són dotats de raó i de consciència, \
                 i han de comportar-se fraternalment els uns amb els altres. Tota persona té tots els drets i llibertats \
                 proclamats en aquesta Declaració, sense cap distinció de raça, color, sexe, llengua, religió",
        ),
        (
            "afr",
            "Alle menslike wesens word vry, met gelyke waardigheid en regte, gebore. Hulle het rede en gewete en behoort \
                 in die gees van broederskap teenoor mekaar op te tree. Iedereen is geregtig op alle regte en vryhede wat \
                 in hierdie verklaring uiteengesit word, sonder onderskeid van watter aard ook al",
        ),
        (
            "spa",
            "Todos los seres humanos nacen libres e iguales en dignidad y derechos y, dotados como están de razón y \
                 conciencia, deben comportarse fraternalmente los unos con los otros. Toda persona tiene los derechos y \
                 libertades proclamados en esta Declaración, sin distinción alguna de raza, color, sexo, idioma",
        ),
        (
            "por",
            "Todos os seres humanos nascem livres e iguais em dignidade e em direitos. Dotados de razão e de consciência, \
                 devem agir uns para com os outros em espírito de fraternidade. Todo o indivíduo tem direito à vida, à \
                 liberdade e à segurança pessoal. Ninguém será mantido em escravatura ou em servidão",
        ),
        (
            "ita",
            "Tutti gli esseri umani nascono liberi ed eguali in dignità e diritti. Essi sono dotati di ragione e di \
                 coscienza e devono agire gli uni verso gli altri in spirito di fratellanza. Ad ogni individuo spettano \
                 tutti i diritti e tutte le libertà enunciate nella presente Dichiarazione, senza distinzione alcuna",
        ),
        (
            "nld",
            "Alle mensen worden vrij en gelijk in waardigheid en rechten geboren. Zij zijn begiftigd met verstand en \
                 geweten, en behoren zich jegens elkander in een geest van broederschap te gedragen. Een ieder heeft \
                 aanspraak op alle rechten en vrijheden, in deze Verklaring opgesomd, zonder enig onderscheid",
        ),
        (
            "fra",
            "Tous les êtres humains naissent libres et égaux en dignité et en droits. Ils sont doués de raison et de \
                 conscience et doivent agir les uns envers les autres dans un esprit de fraternité. Chacun peut se \
                 prévaloir de tous les droits et de toutes les libertés proclamés dans la présente Déclaration",
        ),
        (
            "pol",
            "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw. Są oni obdarzeni rozumem \
                 i sumieniem i powinni postępować wobec innych w duchu braterstwa. Każdy człowiek posiada wszystkie prawa",
        ),
    ];

    #[test]
    fn languages_of_prose_are_recognised() {
        for (code, text) in PROSE {
            assert_eq!(detect(text), Some(code));
        }
    }

    #[test]
    fn small_words_never_contradict_the_slow_way() {
        for (code, text) in PROSE {
            assert!(by_small_words(text).is_none_or(|found| found == code), "{code}");
            assert!(by_small_words(&text.to_uppercase()).is_none_or(|found| found == code), "{code}");
        }
        let long =
            "The committee met on Tuesday and most of the members agreed that this was the best of all proposals.";
        assert_eq!(by_small_words(long), Some("eng"));
    }

    #[test]
    fn small_words_are_of_one_language_each_and_short() {
        let all: Vec<&str> = SMALL_WORDS.iter().flat_map(|(_, words)| words.split(' ')).collect();
        assert_eq!(LANGUAGE_OF.len(), all.len());
        assert!(all.iter().all(|word| word.len() <= WORD_BYTES_MAX));
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
