//! Which links of a page are valid, as the original means it.
//!
//! Its rule, `[http|https]://*.*/+(.*)`, fails as it is written: the brackets are a class of one character. What it means: `http` or `https`, a host with a
//! dot in it, and a slash behind the host. So every relative link is malformed; [`OseRule::Resolved`] resolves them first, which is what a site of
//! more than one page needs.

use crate::url::{CanonicalUrl, UrlRules};

/// How links are judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OseRule {
    /// Relative links are resolved; valid is what can be asked for by HTTP.
    #[default]
    Resolved,
    /// The original's rule, on the link as it stands in the page.
    Strict,
}

impl OseRule {
    /// The link as it is kept, or `None` if it is malformed. `base` is what relative links of the page refer to.
    pub fn valid(self, base: &url::Url, link: &str, rules: &UrlRules) -> Option<String> {
        let link = link.trim();
        if self == OseRule::Strict {
            return is_strictly_valid(link).then(|| link.to_owned());
        }
        CanonicalUrl::join(base, link, rules).ok().map(CanonicalUrl::into_string)
    }
}

/// `http` or `https`, a host with a dot, a slash behind it; no blanks or control characters, which would break the line it is kept in.
fn is_strictly_valid(link: &str) -> bool {
    let Some((scheme, rest)) = link.split_once("://") else { return false };
    let Some((authority, _)) = rest.split_once('/') else { return false };
    let is_web = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    let dotted = authority.split_once('.').is_some_and(|(name, _)| !name.is_empty()) && !authority.ends_with('.');
    is_web && dotted && !link.chars().any(|char| char.is_whitespace() || char.is_control())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn strictly_a_link_has_scheme_dotted_host_and_slash() {
        for valid in ["http://target1.com/", "https://a.b/c?d=e", "HTTP://a.b//"] {
            assert!(is_strictly_valid(valid), "{valid}");
        }
        for malformed in [
            "",
            "/a",
            "a.html",
            "#top",
            "//a.b/c",
            "ftp://a.b/",
            "http://a.b",
            "http://localhost/",
            "http://.b/",
            "http://a./",
            "mailto:x@a.b",
            "javascript:void(0)",
            "http://a.b/c d",
            "h://a.b/",
        ] {
            assert!(!is_strictly_valid(malformed), "{malformed}");
        }
    }

    #[test]
    fn relative_links_are_resolved_unless_strict() {
        let base = url::Url::parse("http://target1.com/a/b").unwrap();
        let rules = UrlRules::default();
        assert_eq!(OseRule::Resolved.valid(&base, " ../c#d ", &rules), Some("http://target1.com/c".to_owned()));
        assert_eq!(OseRule::Strict.valid(&base, "../c", &rules), None);
        assert_eq!(OseRule::Resolved.valid(&base, "mailto:a@b.c", &rules), None);
        assert_eq!(OseRule::Resolved.valid(&base, "http://[broken", &rules), None);
    }

    proptest! {
        #[test]
        fn whatever_is_valid_fits_on_one_line(link in "\\PC{0,60}", strict in any::<bool>()) {
            let base = url::Url::parse("http://target1.com/").unwrap();
            let rule = if strict { OseRule::Strict } else { OseRule::Resolved };
            if let Some(kept) = rule.valid(&base, &link, &UrlRules::default()) {
                prop_assert!(!kept.is_empty() && !kept.contains(['\n', '\r']));
            }
        }
    }
}
