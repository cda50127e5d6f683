//! Prose: sentences made once, appended by the thousand.
//!
//! Pages are generated while benchmarks share the processor, so a page is put together from ready sentences instead of
//! words. There are enough of them that two pages of equal length share few: unrelated pages are no near-duplicates.

use super::draw::{Draw, For};

/// Sentences per language. At 60 to a page, two unrelated pages share about three and a half percent of their text.
const SENTENCES: u64 = 2_048;

const ENGLISH: &str = "the of and to in is that for was with as on by this are from at which have has not they their \
    been more when will would about there other into only some time than these also after first water river stone \
    lantern harbour meadow orchard garden winter summer morning evening market bridge tower village mountain valley \
    forest letter window kitchen table carpenter sailor teacher doctor painter journey story history science music \
    paper silver copper iron bread butter apple cherry honey pepper candle mirror ladder wagon bicycle engine railway \
    station ticket weather storm thunder island lighthouse anchor captain compass map northern southern eastern \
    western ancient modern narrow quiet bright gentle heavy simple early late open closed found made called written \
    carried travelled remembered discovered measured followed between under over across through against towards";
const GERMAN: &str = "der die das und ist nicht ein eine mit auf für von dem den sich auch als nach wie über aus bei \
    noch nur werden wurde haben hatte kann sind oder aber wenn zwischen während Wasser Stein Laterne Hafen Wiese \
    Garten Winter Sommer Morgen Abend Markt Brücke Turm Dorf Berg Wald Brief Fenster Küche Tisch Lehrer Ärztin Reise \
    Geschichte Wissenschaft Musik Papier Silber Kupfer Brot Apfel Kirsche Honig Pfeffer Kerze Spiegel Leiter Fahrrad \
    Bahnhof Fahrkarte Wetter Sturm Insel Leuchtturm Anker Karte nördlich südlich alt neu eng ruhig hell schwer früh \
    spät offen geschlossen gefunden gemacht geschrieben getragen erinnert entdeckt gemessen gegen durch unter";
const RUSSIAN: &str = "и в не на что он как это по но из у за от так о для же все она был было мы они если только \
    когда уже или под над между через вода камень фонарь гавань луг сад зима лето утро вечер рынок мост башня деревня \
    гора долина лес письмо окно кухня стол учитель врач художник путешествие история наука музыка бумага серебро медь \
    хлеб масло яблоко вишня мёд перец свеча зеркало лестница велосипед дорога станция билет погода буря гром остров \
    маяк якорь капитан карта северный южный древний новый узкий тихий светлый тяжёлый простой ранний поздний открытый";

/// Words that may stand in a path or in a host name.
pub(super) const PATH_WORDS: [&str; 64] = [
    "amber", "anchor", "apple", "arbor", "basil", "beacon", "birch", "bridge", "cable", "candle", "cedar", "cherry",
    "cliff", "clover", "copper", "coral", "delta", "dune", "ember", "engine", "fable", "falcon", "fern", "flint",
    "garden", "glacier", "granite", "harbour", "hazel", "heron", "honey", "island", "ivory", "jasper", "juniper",
    "kestrel", "ladder", "lagoon", "lantern", "laurel", "linden", "maple", "marble", "meadow", "mirror", "nectar",
    "north", "oak", "olive", "orchard", "pepper", "pine", "quarry", "raven", "river", "saffron", "silver", "spruce",
    "thistle", "timber", "velvet", "violet", "willow", "winter",
];

/// What a host writes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    English,
    German,
    Russian,
}

impl Language {
    pub(super) fn tag(self) -> &'static str {
        ["en", "de", "ru"][self as usize]
    }
}

/// The sentences of all languages, each followed by a space.
pub(super) struct Prose {
    sentences: [Sentences; 3],
}

struct Sentences {
    bytes: Vec<u8>,
    starts: Vec<u32>, // one more than there are sentences
}

impl Prose {
    pub(super) fn new(seed: u64) -> Prose {
        let make = |language: Language, words: &str| Sentences::new(seed, language as u64, words);
        Prose {
            sentences: [
                make(Language::English, ENGLISH),
                make(Language::German, GERMAN),
                make(Language::Russian, RUSSIAN),
            ],
        }
    }

    /// One sentence with its full stop and a space; plain UTF-8 without `<`, `>` or `&`.
    #[inline]
    pub(super) fn sentence(&self, language: Language, draw: &mut Draw) -> &[u8] {
        let sentences = &self.sentences[language as usize];
        let at = draw.below(SENTENCES) as usize;
        &sentences.bytes[sentences.starts[at] as usize..sentences.starts[at + 1] as usize]
    }

    /// Sentences until `out` has grown by at least `bytes`.
    pub(super) fn append(&self, out: &mut Vec<u8>, language: Language, draw: &mut Draw, bytes: usize) {
        let end = out.len() + bytes;
        while out.len() < end {
            out.extend_from_slice(self.sentence(language, draw));
        }
    }
}

impl Sentences {
    fn new(seed: u64, language: u64, words: &str) -> Sentences {
        let words: Vec<&str> = words.split_whitespace().collect();
        let mut bytes = Vec::with_capacity(SENTENCES as usize * 96);
        let mut starts = vec![0];
        for number in 0..SENTENCES {
            let mut draw = Draw::new(seed, For::Prose, language, number);
            let length = 8 + draw.below(14);
            for position in 0..length {
                let word = words[draw.below(words.len() as u64) as usize];
                if position == 0 {
                    let mut letters = word.chars();
                    bytes.extend(letters.next().into_iter().flat_map(char::to_uppercase).collect::<String>().bytes());
                    bytes.extend_from_slice(letters.as_str().as_bytes());
                } else {
                    bytes.push(b' ');
                    bytes.extend_from_slice(word.as_bytes());
                }
            }
            bytes.extend_from_slice(b". ");
            starts.push(bytes.len() as u32);
        }
        Sentences { bytes, starts }
    }
}

/// A word for a path.
pub(super) fn path_word(draw: &mut Draw) -> &'static str {
    PATH_WORDS[draw.below(PATH_WORDS.len() as u64) as usize]
}

/// Appends a number in decimal, without the machinery of `format!`.
#[inline]
pub(super) fn push_number(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}
