//! The functions of XPath 1.0, and four that people expect beside them: `ends-with`, `lower-case` and `upper-case` of later versions, and Scrapy's `has-class`.

use super::ValueKind;

/// A function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Last,
    Position,
    Count,
    Id,
    LocalName,
    Name,
    NamespaceUri,
    Text,
    Concat,
    StartsWith,
    EndsWith,
    Contains,
    SubstringBefore,
    SubstringAfter,
    Substring,
    StringLength,
    NormalizeSpace,
    Translate,
    LowerCase,
    UpperCase,
    HasClass,
    Truth,
    Not,
    True,
    False,
    Lang,
    Number,
    Sum,
    Floor,
    Ceiling,
    Round,
}

/// Name, function, how many arguments at least and at most, and whether the first must be nodes.
const TABLE: [(&str, Function, usize, usize, bool); 31] = [
    ("last", Function::Last, 0, 0, false),
    ("position", Function::Position, 0, 0, false),
    ("count", Function::Count, 1, 1, true),
    ("id", Function::Id, 1, 1, false),
    ("local-name", Function::LocalName, 0, 1, true),
    ("name", Function::Name, 0, 1, true),
    ("namespace-uri", Function::NamespaceUri, 0, 1, true),
    ("string", Function::Text, 0, 1, false),
    ("concat", Function::Concat, 2, 64, false),
    ("starts-with", Function::StartsWith, 2, 2, false),
    ("ends-with", Function::EndsWith, 2, 2, false),
    ("contains", Function::Contains, 2, 2, false),
    ("substring-before", Function::SubstringBefore, 2, 2, false),
    ("substring-after", Function::SubstringAfter, 2, 2, false),
    ("substring", Function::Substring, 2, 3, false),
    ("string-length", Function::StringLength, 0, 1, false),
    ("normalize-space", Function::NormalizeSpace, 0, 1, false),
    ("translate", Function::Translate, 3, 3, false),
    ("lower-case", Function::LowerCase, 1, 1, false),
    ("upper-case", Function::UpperCase, 1, 1, false),
    ("has-class", Function::HasClass, 1, 16, false),
    ("boolean", Function::Truth, 1, 1, false),
    ("not", Function::Not, 1, 1, false),
    ("true", Function::True, 0, 0, false),
    ("false", Function::False, 0, 0, false),
    ("lang", Function::Lang, 1, 1, false),
    ("number", Function::Number, 0, 1, false),
    ("sum", Function::Sum, 1, 1, true),
    ("floor", Function::Floor, 1, 1, false),
    ("ceiling", Function::Ceiling, 1, 1, false),
    ("round", Function::Round, 1, 1, false),
];

impl Function {
    /// The function of this name, its number of arguments, and whether the first must be nodes.
    pub(super) fn of_name(name: &str) -> Option<(Function, std::ops::RangeInclusive<usize>, bool)> {
        TABLE
            .iter()
            .find(|row| row.0 == name)
            .map(|(_, function, least, most, nodes)| (*function, *least..=*most, *nodes))
    }

    /// Whether a text begins with a call of a function.
    pub(crate) fn begins(text: &str) -> bool {
        text.split_once('(').is_some_and(|(name, _)| Function::of_name(name.trim_end()).is_some())
    }

    pub(super) fn kind(self) -> ValueKind {
        use Function::*;
        match self {
            Last | Position | Count | StringLength | Number | Sum | Floor | Ceiling | Round => ValueKind::Number,
            Id => ValueKind::Nodes,
            LocalName | Name | NamespaceUri | Text | Concat | SubstringBefore | SubstringAfter | Substring
            | NormalizeSpace | Translate | LowerCase | UpperCase => ValueKind::Text,
            StartsWith | EndsWith | Contains | HasClass | Truth | Not | True | False | Lang => ValueKind::Truth,
        }
    }
}
