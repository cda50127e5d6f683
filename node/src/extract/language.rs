//! The language of a text.
//!
//! whatlang compares trigrams with 37 languages of the Latin script, which takes as long (80 µs) as the whole pass over
//! the HTML of a page of 8 KB. So the large languages are first looked for by small words that no other language has;
//! where these are many and of one language only, that is the answer.

use std::sync::LazyLock;

/// How much text is looked at: more costs time and adds hardly any certainty.
const SAMPLE_BYTES: usize = 1024;
/// How much is searched for small words where that did not have enough of them: a twentieth of the time that trigrams take.
const LARGE_SAMPLE_BYTES: usize = 4096;
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

/// A small word, packed into a number, with its language and its place among the words of that language.
#[derive(Clone, Copy, Default)]
struct SmallWord {
    packed: u64,
    language: u8,
    bit: u32,
}

/// Places for small words: several times as many as there are words, so that most words of a text are told by one look.
const PLACES: usize = 512;

/// The small words, each at the place of its hash or the next free one behind it.
static LANGUAGE_OF: LazyLock<Box<[SmallWord; PLACES]>> = LazyLock::new(|| {
    let mut places = Box::new([SmallWord::default(); PLACES]);
    for (language, (_, words)) in SMALL_WORDS.iter().enumerate() {
        for (number, word) in words.split(' ').enumerate() {
            let word = SmallWord { packed: pack(word.as_bytes()), language: language as u8, bit: 1 << number };
            let mut place = place_of(word.packed);
            while places[place].packed != 0 {
                place = (place + 1) % PLACES;
            }
            places[place] = word;
        }
    }
    places
});

fn place_of(packed: u64) -> usize {
    (packed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 55) as usize % PLACES
}

fn small_word(places: &[SmallWord; PLACES], packed: u64) -> Option<SmallWord> {
    let mut place = place_of(packed);
    while places[place].packed != packed {
        if places[place].packed == 0 {
            return None;
        }
        place = (place + 1) % PLACES;
    }
    Some(places[place])
}

/// A word of at most eight bytes as a number, ASCII letters in lower case.
fn pack(word: &[u8]) -> u64 {
    word.iter().fold(0, |packed, byte| packed << 8 | u64::from(byte.to_ascii_lowercase()))
}

/// ISO 639-3 code of the language of `text`, if it is certain enough.
///
/// The sample is taken from the middle: pages begin with menus and end with legal notes.
pub(super) fn detect(text: &str) -> Option<&'static str> {
    let sample = middle(text, SAMPLE_BYTES);
    let by_words = by_small_words(sample).or_else(|| {
        let large = middle(text, LARGE_SAMPLE_BYTES);
        if large.len() > sample.len() { by_small_words(large) } else { None }
    });
    by_words.or_else(|| {
        let guess = whatlang::detect(sample)?;
        guess.is_reliable().then(|| guess.lang().code())
    })
}

fn middle(text: &str, bytes: usize) -> &str {
    let start = text.floor_char_boundary(text.len().saturating_sub(bytes) / 2);
    &text[start..text.floor_char_boundary(start + bytes)]
}

fn by_small_words(sample: &str) -> Option<&'static str> {
    let mut hits = [0_u32; SMALL_WORDS.len()];
    let mut different = [0_u32; SMALL_WORDS.len()];
    let mut words = 0;
    let places = &**LANGUAGE_OF;
    // Packs as it goes: bytes that a long word pushes out at the top are not missed, because it is no small word.
    let (mut packed, mut length) = (0_u64, 0);
    for byte in sample.bytes().chain([b' ']) {
        if !byte.is_ascii() || byte.is_ascii_alphabetic() {
            packed = packed << 8 | u64::from(byte.to_ascii_lowercase());
            length += 1;
            continue;
        }
        words += u32::from(length > 0);
        if (1..=WORD_BYTES_MAX).contains(&length)
            && let Some(word) = small_word(places, packed)
        {
            hits[usize::from(word.language)] += 1;
            different[usize::from(word.language)] |= word.bit;
        }
        (packed, length) = (0, 0);
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
        assert_eq!(LANGUAGE_OF.iter().filter(|word| word.packed != 0).count(), all.len());
        assert!(all.iter().all(|word| small_word(&LANGUAGE_OF, pack(word.as_bytes())).is_some()));
        assert!(small_word(&LANGUAGE_OF, pack(b"orbweave")).is_none());
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
