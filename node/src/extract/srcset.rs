//! Reads `srcset` as the HTML standard does: candidates separated by commas, in URLs of which commas may occur too.

/// The URLs of all candidates, in order.
pub(super) fn candidates(value: &str) -> impl Iterator<Item = &str> {
    let mut rest = value;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches(|character: char| is_space(character) || character == ',');
        if rest.is_empty() {
            return None;
        }
        let end = rest.find(is_space).unwrap_or(rest.len());
        let (url, after) = rest.split_at(end);
        let trimmed = url.trim_end_matches(',');
        // A URL that ends in a comma has no descriptor: what follows is the next candidate.
        rest = if trimmed.len() < url.len() { after } else { skip_descriptors(after) };
        Some(trimmed)
    })
}

/// What follows the comma that ends the descriptors; commas inside parentheses do not.
fn skip_descriptors(text: &str) -> &str {
    let mut inside = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => inside = true,
            b')' => inside = false,
            b',' if !inside => return &text[at + 1..],
            _ => {}
        }
    }
    ""
}

fn is_space(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\x0C' | '\r' | ' ')
}

#[cfg(test)]
mod tests {
    use super::candidates;

    #[test]
    fn candidates_are_read_as_the_standard_says() {
        let table: [(&str, &[&str]); 10] = [
            ("", &[]),
            (" , ,", &[]),
            ("a.jpg", &["a.jpg"]),
            ("a.jpg 1x, b.jpg 2x", &["a.jpg", "b.jpg"]),
            ("a.jpg, b.jpg 2x", &["a.jpg", "b.jpg"]),
            ("a.jpg 100w,b.jpg 200w", &["a.jpg", "b.jpg"]),
            ("/w_1,h_2/a.jpg 1x, /w_3,h_4/a.jpg 2x", &["/w_1,h_2/a.jpg", "/w_3,h_4/a.jpg"]),
            ("a,b", &["a,b"]),
            ("a.jpg (1x, 2x) 3w, b.jpg", &["a.jpg", "b.jpg"]),
            ("data:image/png;base64,AAAA 1x,\n b.jpg", &["data:image/png;base64,AAAA", "b.jpg"]),
        ];
        for (value, urls) in table {
            assert_eq!(candidates(value).collect::<Vec<_>>(), urls, "{value}");
        }
    }
}
