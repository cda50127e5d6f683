//! Sitemaps in all their forms, RSS and Atom.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::super::expected::Duty::May;
use super::super::expected::Kind::Other;
use super::super::{Answer, Web};
use super::{Exhibit, Here, Serve, escape};

/// Pages that a plain host lists in its sitemap.
const PLAIN_PAGES: u32 = 50;

pub(super) const EXHIBITS: &[Exhibit] = &[
    // Found through robots.txt and not through a link.
    Exhibit::new("/sitemap.xml", Other, Serve::With(index))
        .leading_to(&[("/sitemap-pages.xml", May), ("/sitemap-more.xml.gz", May), ("/sitemap-list.txt", May)])
        .unlisted(),
    Exhibit::new("/sitemap-pages.xml", Other, Serve::With(|here| xml(urlset(here, "sitemap-xml"))))
        .leading_to(&[("/leaf/sitemap-xml-0", May), ("/leaf/sitemap-xml-1", May), ("/leaf/sitemap-xml-2", May)])
        .unlisted(),
    Exhibit::new("/sitemap-more.xml.gz", Other, Serve::With(gzipped))
        .leading_to(&[("/leaf/sitemap-gzip-0", May), ("/leaf/sitemap-gzip-1", May), ("/leaf/sitemap-gzip-2", May)])
        .unlisted(),
    Exhibit::new("/sitemap-list.txt", Other, Serve::With(list))
        .leading_to(&[("/leaf/sitemap-text-0", May), ("/leaf/sitemap-text-1", May), ("/leaf/sitemap-text-2", May)])
        .unlisted(),
    Exhibit::new("/feed.rss", Other, Serve::With(rss)).leading_to(&[
        ("/leaf/rss-0", May),
        ("/leaf/rss-1", May),
        ("/leaf/rss-2", May),
    ]),
    Exhibit::new("/feed.atom", Other, Serve::With(atom)).leading_to(&[
        ("/leaf/atom-0", May),
        ("/leaf/atom-1", May),
        ("/leaf/atom-2", May),
    ]),
];

fn leaves(here: &Here<'_>, name: &str) -> [String; 3] {
    [0, 1, 2].map(|number| here.web.url(here.host, &format!("/leaf/{name}-{number}")))
}

fn xml(text: String) -> Answer {
    Answer::ok("application/xml", text)
}

fn index(here: &Here<'_>) -> Answer {
    let sitemaps = ["/sitemap-pages.xml", "/sitemap-more.xml.gz", "/sitemap-list.txt"]
        .map(|path| format!("<sitemap><loc>{}</loc></sitemap>\n", here.web.url(here.host, path)));
    xml(format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<sitemapindex xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">\n\
         {}</sitemapindex>\n",
        sitemaps.concat()
    ))
}

fn urlset(here: &Here<'_>, name: &str) -> String {
    write_urlset(&leaves(here, name))
}

fn write_urlset(urls: &[String]) -> String {
    let mut out = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">\n",
    );
    for url in urls {
        out.push_str(&format!("<url><loc>{}</loc><lastmod>2024-05-01</lastmod></url>\n", escape(url)));
    }
    out.push_str("</urlset>\n");
    out
}

fn gzipped(here: &Here<'_>) -> Answer {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(urlset(here, "sitemap-gzip").as_bytes()).expect("a vector takes everything");
    Answer::ok("application/gzip", encoder.finish().expect("a vector takes everything"))
}

fn list(here: &Here<'_>) -> Answer {
    Answer::ok("text/plain; charset=utf-8", leaves(here, "sitemap-text").join("\n"))
}

fn rss(here: &Here<'_>) -> Answer {
    let items = leaves(here, "rss").map(|url| format!("<item><title>One</title><link>{url}</link></item>\n"));
    let text = format!(
        "<?xml version=\"1.0\"?>\n<rss version=\"2.0\"><channel><title>News</title><link>{}</link>\n{}</channel></rss>\n",
        here.web.url(here.host, "/"),
        items.concat()
    );
    Answer::ok("application/rss+xml", text)
}

fn atom(here: &Here<'_>) -> Answer {
    let entries = leaves(here, "atom")
        .map(|url| format!("<entry><title>One</title><id>{url}</id><link href=\"{url}\"/></entry>\n"));
    let text = format!(
        "<?xml version=\"1.0\"?>\n<feed xmlns=\"http://www.w3.org/2005/Atom\"><title>News</title>\n{}</feed>\n",
        entries.concat()
    );
    Answer::ok("application/atom+xml", text)
}

/// The sitemap of a plain host that names one in its robots.txt.
pub(in super::super) fn of_plain_host(web: &Web, host: u32) -> Answer {
    let pages = web.plan.pages_per_host.min(PLAIN_PAGES);
    let urls: Vec<String> = (0..pages).map(|page| web.url(host, &web.page_path(host, page))).collect();
    xml(write_urlset(&urls))
}
