//! Names of the files in a folder.

use std::fmt;

use super::OseId;

/// A file that belongs to the folder of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OseFile {
    /// `.osestatus`.
    Status,
    /// `.bdpstatus`: the same file under the project's former name.
    FormerStatus,
    /// `.urls`.
    Urls,
    /// `.urls2`, `.urls3`, `.urls4`: `.urls` as fetching, parsing and merging write it anew.
    Working(u8),
    /// `.externalurls`.
    External,
    /// `.meta.<id>`: what is known of a fetch.
    Meta(OseId),
    /// `<id>`: head and body of an answer.
    Answer(OseId),
    /// `.links.<id>`: links of an answer.
    Links(OseId),
    /// `.links.malformed.<id>`: links of an answer that are none.
    Malformed(OseId),
}

impl OseFile {
    /// Which file has this name; `None` if it is none of ours.
    pub fn of_name(name: &str) -> Option<OseFile> {
        Some(match name {
            ".osestatus" => OseFile::Status,
            ".bdpstatus" => OseFile::FormerStatus,
            ".urls" => OseFile::Urls,
            ".urls2" => OseFile::Working(2),
            ".urls3" => OseFile::Working(3),
            ".urls4" => OseFile::Working(4),
            ".externalurls" => OseFile::External,
            _ => {
                // The longest beginning first: `.links.` begins them both.
                if let Some(rest) = name.strip_prefix(".links.malformed.") {
                    OseFile::Malformed(id(rest)?)
                } else if let Some(rest) = name.strip_prefix(".links.") {
                    OseFile::Links(id(rest)?)
                } else if let Some(rest) = name.strip_prefix(".meta.") {
                    OseFile::Meta(id(rest)?)
                } else {
                    OseFile::Answer(id(name)?)
                }
            }
        })
    }
}

fn id(text: &str) -> Option<OseId> {
    let is_id = text.len() == 10 && text.bytes().all(|byte| byte.is_ascii_digit());
    is_id.then(|| text.parse().ok().and_then(OseId::new))?
}

impl fmt::Display for OseFile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OseFile::Status => out.write_str(".osestatus"),
            OseFile::FormerStatus => out.write_str(".bdpstatus"),
            OseFile::Urls => out.write_str(".urls"),
            OseFile::Working(number) => write!(out, ".urls{number}"),
            OseFile::External => out.write_str(".externalurls"),
            OseFile::Meta(id) => write!(out, ".meta.{id}"),
            OseFile::Answer(id) => write!(out, "{id}"),
            OseFile::Links(id) => write!(out, ".links.{id}"),
            OseFile::Malformed(id) => write!(out, ".links.malformed.{id}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_which_file_it_is_and_a_file_its_name() {
        let id = OseId::new(42).unwrap();
        let files = [
            OseFile::Status,
            OseFile::FormerStatus,
            OseFile::Urls,
            OseFile::Working(2),
            OseFile::Working(4),
            OseFile::External,
            OseFile::Meta(id),
            OseFile::Answer(id),
            OseFile::Links(id),
            OseFile::Malformed(OseId::LAST),
        ];
        for file in files {
            assert_eq!(OseFile::of_name(&file.to_string()), Some(file));
        }
        for foreign in ["", "readme.txt", "42", "00000000042", ".links.42", ".meta.", ".urls5", ".links.malformed.x"] {
            assert_eq!(OseFile::of_name(foreign), None, "{foreign}");
        }
    }
}
