//! Links of a page whose site says where they stand.

use std::collections::{BTreeMap, BTreeSet};

use proto::scrape::{FUEL_PER_PAGE, Fuel, Page};
use proto::site::Places;
use proto::url::CanonicalUrl;

use super::html;
use crate::extract::{ExtractRules, Extracted, Link, LinkKind, PageKind};

/// Puts the links that stand at these places into what was read of a page, instead of those that were found everywhere, or beside them.
///
/// Only HTML has places; what feeds and sitemaps list stays. Who names a place wants what it leads to, be that a picture; what a page asks not to be followed is not
/// followed all the same.
pub(crate) fn collect_links(
    places: &Places<'_>,
    url: &CanonicalUrl,
    body: &[u8],
    content_type: Option<&str>,
    rules: &ExtractRules,
    extracted: &mut Extracted,
) {
    if extracted.kind != PageKind::Html {
        return;
    }
    let text = crate::extract::decoded(body, content_type, url.host());
    let (tree, _) = html::parse(&text);
    let base = Page::new(&tree, &text, url.as_str()).base.unwrap_or_else(|| url.to_url());
    let everywhere = std::mem::take(&mut extracted.links);
    let known: BTreeMap<&str, &Link> = everywhere.iter().map(|link| (link.url.as_str(), link)).collect();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut fuel = Fuel::new(FUEL_PER_PAGE);
    for target in &places.targets {
        // At the bound of what a page may cost the rest is left out.
        let Ok(references) = target.references(&tree, &mut fuel) else {
            extracted.links_cut = true;
            break;
        };
        for reference in references {
            let Ok(found) = CanonicalUrl::join(&base, reference.trim(), &rules.urls) else { continue };
            if seen.contains(found.as_str()) {
                continue;
            }
            if extracted.links.len() >= rules.limits.links_max {
                extracted.links_cut = true;
                break;
            }
            let before = known.get(found.as_str());
            let kind = match before.map(|link| link.kind) {
                Some(kind @ (LinkKind::Sitemap | LinkKind::Feed | LinkKind::Refresh)) => kind,
                _ => LinkKind::Anchor,
            };
            let nofollow = extracted.nofollow || before.is_some_and(|link| link.nofollow);
            seen.insert(found.as_str().to_owned());
            extracted.links.push(Link { url: found, kind, nofollow });
        }
    }
    if places.adds {
        let room = rules.limits.links_max.saturating_sub(extracted.links.len());
        let more = everywhere.into_iter().filter(|link| !seen.contains(link.url.as_str()));
        extracted.links.extend(more.take(room));
    }
}
