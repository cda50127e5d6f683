//! Reads the URLs a crawl begins with.

use std::io::Read;
use std::path::Path;

use proto::url::{CanonicalUrl, UrlRules};

use super::{Complaint, tell};

/// Largest seed file, in bytes: ten million URLs of a hundred characters.
const SEED_BYTES_MAX: u64 = 1 << 30;

/// Wrong lines that are named; the others are counted.
const WRONG_NAMED: usize = 10;

/// Reads the URLs of the command line and of a seed file (`-` for standard input).
pub(super) fn read(urls: &[String], file: Option<&Path>, rules: &UrlRules) -> Result<Vec<CanonicalUrl>, Complaint> {
    let mut found = Found::default();
    for text in urls {
        found.add(text, rules, |reason| format!("{text}: {reason}"));
    }
    if let Some(file) = file {
        read_file(file, rules, &mut found)?;
    }
    let Found { mut seeds, wrong, wrong_count, credentials } = found;
    if wrong_count > 0 {
        let more = wrong_count - wrong.len();
        let rest = if more > 0 { format!("\nand {more} more") } else { String::new() };
        return Err(Complaint::usage(wrong.join("\n") + &rest));
    }
    if seeds.is_empty() {
        return Err(Complaint::usage(
            "no URL to begin with; give one, as in `orbweaver crawl https://example.com/`, or a file with --seeds",
        ));
    }
    if credentials > 0 {
        tell::note(&format!(
            "{credentials} seeds have a user name or password, which is left out: orbweaver logs in nowhere"
        ));
    }
    seeds.sort_unstable();
    seeds.dedup();
    Ok(seeds)
}

/// What the seeds turned out to be.
#[derive(Default)]
struct Found {
    seeds: Vec<CanonicalUrl>,
    wrong: Vec<String>,
    wrong_count: usize,
    /// Seeds with a user name or password.
    credentials: usize,
}

impl Found {
    fn add(&mut self, text: &str, rules: &UrlRules, complain: impl Fn(&str) -> String) {
        match parse(text, rules) {
            Ok(seed) => {
                self.credentials += usize::from(has_credentials(text));
                self.seeds.push(seed);
            }
            Err(reason) => self.complain(complain(&reason)),
        }
    }

    fn complain(&mut self, text: String) {
        self.wrong_count += 1;
        if self.wrong.len() < WRONG_NAMED {
            self.wrong.push(text);
        }
    }
}

fn read_file(file: &Path, rules: &UrlRules, found: &mut Found) -> Result<(), Complaint> {
    let name = file.display();
    let unreadable = |error: std::io::Error| Complaint::usage(format!("cannot read seed file {name}: {error}"));
    let mut bytes = Vec::new();
    let read = if file == Path::new("-") {
        std::io::stdin().lock().take(SEED_BYTES_MAX + 1).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(file).and_then(|file| file.take(SEED_BYTES_MAX + 1).read_to_end(&mut bytes))
    };
    if read.map_err(unreadable)? as u64 > SEED_BYTES_MAX {
        return Err(Complaint::usage(format!("seed file {name} is larger than a gigabyte; split it")));
    }
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let number = index + 1;
        let Ok(line) = std::str::from_utf8(line) else {
            found.complain(format!("{name}, line {number}: not UTF-8"));
            continue;
        };
        let line = without_comment(line.trim_start_matches('\u{feff}').trim());
        if line.is_empty() {
            continue;
        }
        found.add(line, rules, |reason| format!("{name}, line {number}: {}: {reason}", shortened(line)));
    }
    Ok(())
}

/// A comment begins a line or stands behind a space: within a URL `#` begins its fragment.
fn without_comment(line: &str) -> &str {
    let begins = |at: &usize| line[..*at].is_empty() || line[..*at].ends_with(char::is_whitespace);
    let comment = line.match_indices('#').map(|(at, _)| at).find(begins);
    line[..comment.unwrap_or(line.len())].trim_end()
}

fn parse(text: &str, rules: &UrlRules) -> Result<CanonicalUrl, String> {
    if text.split_whitespace().skip(1).any(|word| word.contains("://")) {
        return Err("more than one URL; give each a line of its own".to_owned());
    }
    CanonicalUrl::parse(text, rules).map_err(|error| {
        let with_scheme = format!("https://{text}");
        let guess = !text.contains("://") && CanonicalUrl::parse(&with_scheme, rules).is_ok();
        if guess { format!("{error}; did you mean {}?", shortened(&with_scheme)) } else { error.to_string() }
    })
}

/// Whether a URL names a user before its host.
fn has_credentials(text: &str) -> bool {
    let authority = text.split_once("://").map_or("", |(_, rest)| rest);
    authority.split(['/', '?', '#', '\\']).next().is_some_and(|authority| authority.contains('@'))
}

fn shortened(text: &str) -> String {
    const CHARS_MAX: usize = 120;
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Vec<CanonicalUrl>, String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("seeds.txt");
        std::fs::write(&file, text).unwrap();
        read(&[], Some(&file), &UrlRules::default()).map_err(|complaint| complaint.text)
    }

    #[test]
    fn blank_lines_and_comments_are_skipped_and_doubles_dropped() {
        let seeds = read_text("# mine\n\nhttps://b.example/\r\n  https://a.example/  \nhttps://B.example\n").unwrap();
        assert_eq!(seeds.len(), 2);
        assert_eq!(seeds[0].as_str(), "https://a.example/");
    }

    #[test]
    fn the_line_that_is_no_url_is_named() {
        let text = format!("{}not a url\n", "https://a.example/\n".repeat(16));
        let error = read_text(&text).unwrap_err();
        assert!(error.contains("line 17") && error.contains("not a url"), "{error}");
    }

    #[test]
    fn a_comment_behind_a_url_is_no_part_of_it_and_a_fragment_is() {
        let seeds = read_text("https://a.example/x#part # mine\nhttps://b.example/\t#yours\n").unwrap();
        assert_eq!(
            seeds.iter().map(CanonicalUrl::as_str).collect::<Vec<_>>(),
            ["https://a.example/x", "https://b.example/"]
        );
    }

    #[test]
    fn ten_wrong_lines_are_named_and_the_others_counted() {
        let lines =
            (1..=14).map(|n| if n % 2 == 0 { format!("wrong {n}\n") } else { "https://a.example/\n".to_owned() });
        let error = read_text(&lines.collect::<String>()).unwrap_err();
        for line in [2, 4, 6, 8, 10, 12, 14] {
            assert!(error.contains(&format!("line {line}: wrong {line}:")), "{error}");
        }
        let error = read_text(&"rubbish\n".repeat(25)).unwrap_err();
        assert_eq!(error.matches("rubbish:").count(), 10);
        assert!(error.ends_with("and 15 more"), "{error}");
    }

    #[test]
    fn two_urls_on_a_line_are_not_taken_for_one() {
        let error = read_text("https://a.example/ https://b.example/\n").unwrap_err();
        assert!(error.contains("line 1") && error.contains("more than one URL"), "{error}");
        assert_eq!(read_text("https://a.example/a b\n").unwrap()[0].as_str(), "https://a.example/a%20b");
    }

    #[test]
    fn a_user_name_in_a_url_is_noticed() {
        for with in ["https://me@a.example/", "http://me:secret@a.example:81/x"] {
            assert!(has_credentials(with), "{with}");
        }
        for without in ["https://a.example/@me", "https://a.example/?to=x@y", "a.example", "https://a.example#@"] {
            assert!(!has_credentials(without), "{without}");
        }
    }

    #[test]
    fn a_missing_scheme_is_guessed_for_the_user_and_not_for_the_crawl() {
        let error = read(&["example.com/a".into()], None, &UrlRules::default()).unwrap_err();
        assert!(error.text.contains("did you mean https://example.com/a"), "{}", error.text);
    }

    #[test]
    fn a_missing_file_and_no_seed_at_all_are_said() {
        let error = read(&[], Some(Path::new("/no/such/file")), &UrlRules::default()).unwrap_err();
        assert!(error.text.contains("/no/such/file"), "{}", error.text);
        assert_eq!(read(&[], None, &UrlRules::default()).unwrap_err().exit, super::super::Exit::Usage);
    }
}
