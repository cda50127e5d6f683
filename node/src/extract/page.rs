//! What goes into [`extract`](super::extract) and what comes out.

use proto::url::CanonicalUrl;

use super::kind::Claimed;

/// A fetched page, as the fetcher has it.
#[derive(Clone, Copy)]
pub struct PageInput<'a> {
    /// Where the body came from, after redirects.
    pub url: &'a CanonicalUrl,
    /// Value of the `Content-Type` header.
    pub content_type: Option<&'a str>,
    /// Values of all `X-Robots-Tag` headers.
    pub x_robots_tag: &'a [String],
    /// Values of all `Link` headers.
    pub link_headers: &'a [String],
    /// The body, with its content encoding (gzip, brotli, ...) already undone.
    pub body: &'a [u8],
    /// Our name in robots directives: `<meta name="orbweaver" content="noindex">` is for us alone.
    pub product_token: &'a str,
}

/// What a body turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PageKind {
    /// HTML or XHTML.
    Html,
    /// RSS 0.9x, 1.0, 2.0 or Atom.
    Feed,
    /// A sitemap that lists pages.
    Sitemap,
    /// A sitemap that lists sitemaps.
    SitemapIndex,
    /// Text without markup, or XML of another kind.
    Text,
    /// Anything whose text we do not read: images, archives, scripts, data.
    Binary,
    /// No body at all.
    Empty,
}

/// What a page gave us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extracted {
    /// What the body is.
    pub kind: PageKind,
    /// Media type without parameters, lower case, such as `text/html`: as declared, or as found when none was.
    pub media_type: String,
    /// Name of the character encoding by the WHATWG standard, such as `windows-1252`; `None` for a binary body.
    pub charset: Option<&'static str>,
    /// First `<title>`, or the title of a feed, with its white space collapsed.
    pub title: Option<String>,
    /// What a visitor reads, white space collapsed, blocks on lines of their own.
    pub text: String,
    /// Language of the text as an ISO 639-3 code (`eng`, `deu`); `None` unless the guess is reliable.
    pub language: Option<&'static str>,
    /// Links in order of first appearance, each URL once.
    pub links: Vec<Link>,
    /// Whether the page had more links than we keep.
    pub links_cut: bool,
    /// The URL the page asks to be known by.
    pub canonical: Option<CanonicalUrl>,
    /// The page asks not to be indexed.
    pub noindex: bool,
    /// The page asks that none of its links be followed; every link is then marked too.
    pub nofollow: bool,
    /// BLAKE3 of the body.
    pub digest: [u8; 32],
    /// 64-bit simhash of the text; near duplicates differ in few bits. `None` without text.
    pub fingerprint: Option<u64>,
    /// What went wrong and was worked around; each at most once.
    pub defects: Vec<Defect>,
}

/// A reference found on a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Where it leads.
    pub url: CanonicalUrl,
    /// What held it first.
    pub kind: LinkKind,
    /// Whether every mention of it asks not to be followed.
    pub nofollow: bool,
}

/// What held a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkKind {
    /// `<a href>`.
    Anchor,
    /// `<area href>` of an image map.
    Area,
    /// `<img>`, `srcset`, posters, icons and backgrounds.
    Image,
    /// `<iframe>` and `<frame>`.
    Frame,
    /// Where a form is sent to.
    Form,
    /// `<video>`, `<audio>`, `<source>`, `<track>` and enclosures of feeds.
    Media,
    /// `<script src>` and preloaded scripts.
    Script,
    /// Style sheets.
    Style,
    /// `<object>`, `<embed>` and `<applet>`.
    Object,
    /// `<meta http-equiv="refresh">`.
    Refresh,
    /// A feed of the page.
    Feed,
    /// A sitemap, named by a sitemap index or by `<link rel="sitemap">`.
    Sitemap,
    /// The URL the page asks to be known by.
    Canonical,
    /// The same page in another language or form.
    Alternate,
    /// A related page by `<link>` or `Link`: next, prev, author, help and the like.
    Related,
    /// A page listed by a feed or a sitemap.
    Entry,
    /// The source of a quotation or of a change.
    Cite,
    /// Any other reference: manifests, fonts, preloads.
    Other,
}

impl LinkKind {
    /// Whether the reference usually leads to a page, and not to a part of this one or to an action.
    pub fn leads_to_page(self) -> bool {
        use LinkKind::*;
        matches!(self, Anchor | Area | Frame | Refresh | Canonical | Alternate | Related | Entry | Cite)
    }
}

/// Something that was wrong with a page and cost us part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Defect {
    /// Bytes that are not of the declared encoding were replaced.
    UndecodableBytes,
    /// The HTML parser needed more memory than it may have; what came before is kept.
    ParserMemory,
    /// More text than we keep.
    TextCut,
    /// The XML ended or broke before its end; what came before is kept.
    BrokenXml,
    /// The gzip stream ended or broke before its end; what came before is kept.
    BrokenGzip,
    /// The body is larger, once decompressed, than we read.
    BodyCut,
    /// Some references are no URLs.
    RefusedLinks,
}

impl Extracted {
    /// The result for a page of which nothing is known yet but its bytes.
    pub(super) fn empty(page: &PageInput<'_>, claimed: Claimed) -> Extracted {
        Extracted {
            kind: if claimed == Claimed::Empty { PageKind::Empty } else { PageKind::Binary },
            media_type: String::new(),
            charset: None,
            title: None,
            text: String::new(),
            language: None,
            links: Vec::new(),
            links_cut: false,
            canonical: None,
            noindex: false,
            nofollow: false,
            digest: *blake3::hash(page.body).as_bytes(),
            fingerprint: None,
            defects: Vec::new(),
        }
    }

    /// Notes `defect` once, if `condition` holds.
    pub(super) fn note_if(&mut self, condition: bool, defect: Defect) {
        if condition && !self.defects.contains(&defect) {
            self.defects.push(defect);
        }
    }
}
