//! Robots directives inside pages and headers: `<meta name="robots">` and `X-Robots-Tag`.
//!
//! Directives for everybody and directives for us add up: the stricter one wins, as the large engines do it.

/// What a page asks of robots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Directives {
    /// Do not index this page.
    pub(super) noindex: bool,
    /// Do not follow its links.
    pub(super) nofollow: bool,
}

impl Directives {
    fn add(&mut self, directive: &str) {
        let is = |name: &str| directive.eq_ignore_ascii_case(name);
        self.noindex |= is("noindex") || is("none");
        self.nofollow |= is("nofollow") || is("none");
    }

    /// Adds what `<meta name="..." content="...">` says, if it speaks to everybody or to `product_token`.
    pub(super) fn add_meta(&mut self, name: &str, content: &str, product_token: &str) {
        let name = name.trim();
        if name.eq_ignore_ascii_case("robots") || is_us(name, product_token) {
            content.split([',', ';', ' ', '\t', '\n', '\r']).for_each(|directive| self.add(directive));
        }
    }
}

/// Reads all `X-Robots-Tag` headers of a response.
pub(super) fn from_headers(values: &[String], product_token: &str) -> Directives {
    let mut found = Directives::default();
    for value in values {
        let mut for_us = true;
        for part in value.split(',') {
            let mut directive = part.trim();
            // `botname: noindex, nofollow, otherbot: none`: a name speaks until the next one.
            if let Some((name, rest)) = directive.split_once(':') {
                let name = name.trim();
                if takes_value(name) || name.contains(char::is_whitespace) {
                    continue; // `unavailable_after: Friday, 25-Jun-27 15:00:00 UTC` names no bot
                }
                for_us = name == "*" || is_us(name, product_token);
                directive = rest.trim();
            }
            if for_us {
                found.add(directive);
            }
        }
    }
    found
}

fn is_us(name: &str, product_token: &str) -> bool {
    !product_token.is_empty() && name.eq_ignore_ascii_case(product_token)
}

fn takes_value(directive: &str) -> bool {
    ["unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"]
        .iter()
        .any(|known| directive.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[&str]) -> (bool, bool) {
        let values: Vec<String> = values.iter().map(|value| value.to_string()).collect();
        let found = from_headers(&values, "orbweaver");
        (found.noindex, found.nofollow)
    }

    #[test]
    fn headers_speak_to_everybody_to_us_or_to_others() {
        for (values, expected) in [
            (&["noindex"][..], (true, false)),
            (&["NoIndex, nofollow"], (true, true)),
            (&["none"], (true, true)),
            (&["noarchive", "nofollow"], (false, true)),
            (&["otherbot: noindex, nofollow"], (false, false)),
            (&["otherbot: noindex, Orbweaver: nofollow"], (false, true)),
            (&["orbweaver: none"], (true, true)),
            (&["*: noindex"], (true, false)),
            (&["otherbot: noindex", "nofollow"], (false, true)),
            (&["unavailable_after: Wed, 25 Jun 2027 15:00:00 PST, noindex"], (true, false)),
            (&["max-snippet: 20, nofollow"], (false, true)),
            (&["all", "", ":", ",,"], (false, false)),
        ] {
            assert_eq!(headers(values), expected, "{values:?}");
        }
    }

    #[test]
    fn meta_directives_for_us_and_for_everybody_add_up() {
        let mut found = Directives::default();
        found.add_meta("robots", "NOINDEX,follow", "orbweaver");
        found.add_meta("googlebot", "none", "orbweaver");
        assert_eq!(found, Directives { noindex: true, nofollow: false });
        found.add_meta("OrbWeaver", "nofollow", "orbweaver");
        assert_eq!(found, Directives { noindex: true, nofollow: true });
    }

    #[test]
    fn an_empty_product_token_matches_no_name() {
        let mut found = Directives::default();
        found.add_meta("", "none", "");
        assert_eq!(found, Directives::default());
    }
}
