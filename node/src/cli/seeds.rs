//! Reads the URLs a crawl begins with.

use std::io::Read;
use std::path::Path;

use proto::url::{CanonicalUrl, UrlRules};

use super::Complaint;

/// Largest seed file, in bytes: ten million URLs of a hundred characters.
const SEED_BYTES_MAX: u64 = 1 << 30;

/// Reads the URLs of the command line and of a seed file (`-` for standard input).
pub(super) fn read(urls: &[String], file: Option<&Path>, rules: &UrlRules) -> Result<Vec<CanonicalUrl>, Complaint> {
    let mut seeds = Vec::new();
    for text in urls {
        seeds.push(parse(text, rules).map_err(|reason| Complaint::usage(format!("{text}: {reason}")))?);
    }
    if let Some(file) = file {
        read_file(file, rules, &mut seeds)?;
    }
    if seeds.is_empty() {
        return Err(Complaint::usage(
            "no URL to begin with; give one, as in `orbweaver crawl https://example.com/`, or a file with --seeds",
        ));
    }
    seeds.sort_unstable();
    seeds.dedup();
    Ok(seeds)
}

fn read_file(file: &Path, rules: &UrlRules, seeds: &mut Vec<CanonicalUrl>) -> Result<(), Complaint> {
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
        let line = std::str::from_utf8(line)
            .map_err(|_| Complaint::usage(format!("{name}, line {number}: not UTF-8")))?
            .trim_start_matches('\u{feff}')
            .trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let seed = parse(line, rules)
            .map_err(|reason| Complaint::usage(format!("{name}, line {number}: {}: {reason}", shortened(line))))?;
        seeds.push(seed);
    }
    Ok(())
}

fn parse(text: &str, rules: &UrlRules) -> Result<CanonicalUrl, String> {
    CanonicalUrl::parse(text, rules).map_err(|error| {
        let with_scheme = format!("https://{text}");
        let guess = !text.contains("://") && CanonicalUrl::parse(&with_scheme, rules).is_ok();
        if guess { format!("{error}; did you mean {}?", shortened(&with_scheme)) } else { error.to_string() }
    })
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
