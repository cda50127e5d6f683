//! Reads `<meta http-equiv="refresh" content="5; url=/next">` as the HTML standard does.

/// The URL that a refresh leads to; `None` if the page only reloads itself or the value is malformed.
pub(super) fn target(content: &str) -> Option<&str> {
    let rest = content.trim_start_matches(is_space);
    let after = rest.trim_start_matches(|character: char| character.is_ascii_digit() || character == '.');
    if after.len() == rest.len() && !after.starts_with('.') {
        return None; // no seconds
    }
    let separated = after.trim_start_matches(is_space);
    let rest = match separated.strip_prefix([';', ',']) {
        Some(rest) => rest.trim_start_matches(is_space),
        None if separated.len() < after.len() => separated,
        None => return None,
    };
    let url = without_name(rest).unwrap_or(rest);
    let url = match url.chars().next() {
        Some(quote @ ('"' | '\'')) => url[1..].split(quote).next().unwrap_or_default(),
        _ => url,
    };
    (!url.is_empty()).then_some(url)
}

/// What follows `url =`, if it is there.
fn without_name(text: &str) -> Option<&str> {
    let name = text.get(..3)?;
    let rest = text[3..].trim_start_matches(is_space);
    if name.eq_ignore_ascii_case("url") { Some(rest.strip_prefix('=')?.trim_start_matches(is_space)) } else { None }
}

fn is_space(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\x0C' | '\r' | ' ')
}

#[cfg(test)]
mod tests {
    use super::target;

    #[test]
    fn refresh_values_are_read_as_the_standard_says() {
        for (content, url) in [
            ("0; url=/next", Some("/next")),
            ("5;URL='/next'", Some("/next")),
            ("5 , url = \"/next\" trailing", Some("/next")),
            ("0.5;/next", Some("/next")),
            ("3 /next", Some("/next")),
            ("0;url", Some("url")),
            ("0; url='/open", Some("/open")),
            ("5", None),
            ("5;", None),
            ("url=/next", None),
            ("5url=/x", None),
            ("", None),
            ("0;ür", Some("ür")),
        ] {
            assert_eq!(target(content), url, "{content}");
        }
    }
}
