//! Plain pages: the bulk of the web, and all of it in benchmarks.
//!
//! Every page of a host hangs on a tree below its root, and every plain host on a tree below host 0, so that all can be
//! reached; the other links are drawn so that few pages get most of them.

use super::draw::{Draw, For};
use super::text::{Language, path_word, push_number};
use super::{Answer, PageDates, Visit, Web, http_date};

/// Children of a page in the tree of its host.
const PAGE_BRANCHES: u64 = 4;
/// Children of a host in the tree of hosts.
const HOST_BRANCHES: u32 = 8;

/// A link from a plain page to the page `page` of `host`. Page 0 is the root, also of odd hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) host: u32,
    pub(super) page: u32,
    pub(super) nofollow: bool,
    spelling: Spelling,
}

/// How a link is written. All spellings of a link have one canonical form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spelling {
    /// `/path`, or `http://host/path` to another host.
    Simple,
    /// `../../path`; to another host as `Simple`.
    Relative,
    Absolute,
    /// `//host/path`
    ProtocolRelative,
    Fragment,
    Tracking,
    UpperCaseHost,
    /// `http://host:80/path` where the port is 80 anyway.
    DefaultPort,
    /// Slashes as `&#x2F;`, spaces around.
    Entities,
}

const SPELLINGS: [Spelling; 16] = [
    Spelling::Simple,
    Spelling::Simple,
    Spelling::Simple,
    Spelling::Simple,
    Spelling::Simple,
    Spelling::Relative,
    Spelling::Relative,
    Spelling::Relative,
    Spelling::Absolute,
    Spelling::Absolute,
    Spelling::ProtocolRelative,
    Spelling::Fragment,
    Spelling::Tracking,
    Spelling::UpperCaseHost,
    Spelling::DefaultPort,
    Spelling::Entities,
];

impl Web {
    /// Whether other plain hosts are first linked from the root of `host`.
    pub(super) fn has_child_hosts(&self, host: u32) -> bool {
        u64::from(host) * u64::from(HOST_BRANCHES) + 1 < u64::from(self.plan.hosts)
    }

    /// The path of page `page` of plain host `host`, with its query.
    pub fn page_path(&self, host: u32, page: u32) -> String {
        let mut out = Vec::with_capacity(48);
        self.push_page_path(&mut out, host, page);
        String::from_utf8(out).expect("paths are ASCII")
    }

    fn push_page_path(&self, out: &mut Vec<u8>, host: u32, page: u32) {
        if page == 0 {
            return out.push(b'/');
        }
        let mut draw = Draw::new(self.plan.seed, For::Path, u64::from(host), u64::from(page));
        let (directories, name, end): (u32, &str, &str) = match draw.below(32) {
            0 => (0, "/private/", ".html"),
            1 => (0, "/list?id=", "&sort=asc"),
            2 => (0, "/print/", ".htm"),
            3 => (0, "/view?id=", ""),
            4..10 => (3, "/", ".html"),
            10..20 => (1, "/", ".html"),
            20..26 => (2, "/", ""),
            _ => (0, "/", ""),
        };
        for _ in 0..directories {
            out.push(b'/');
            out.extend_from_slice(path_word(&mut draw).as_bytes());
        }
        out.extend_from_slice(name.as_bytes());
        if !name.ends_with('=') {
            out.extend_from_slice(path_word(&mut draw).as_bytes());
            out.push(b'-');
        }
        push_number(out, u64::from(page));
        out.extend_from_slice(end.as_bytes());
    }

    /// The page of plain host `host` at `path`.
    pub(super) fn page_at(&self, host: u32, path: &str) -> Option<u32> {
        if path == "/" {
            return Some(0);
        }
        let end = [".html", ".htm", "&sort=asc"].iter().find_map(|end| path.strip_suffix(end)).unwrap_or(path);
        let digits = end.len() - end.bytes().rev().take_while(u8::is_ascii_digit).count();
        let page: u32 = end[digits..].parse().ok()?;
        let mut right = Vec::with_capacity(48);
        if page == 0 || page >= self.plan.pages_per_host {
            return None;
        }
        self.push_page_path(&mut right, host, page);
        (right == path.as_bytes()).then_some(page)
    }

    /// The links of a plain page in the order in which they stand on it.
    pub(super) fn page_links(&self, host: u32, page: u32) -> Vec<Link> {
        let plan = &*self.plan;
        let mut draw = Draw::new(plan.seed, For::Links, u64::from(host), u64::from(page));
        let mut links = Vec::with_capacity(plan.links_per_page as usize + 4);
        let tree = |host, page| Link { host, page, nofollow: false, spelling: Spelling::Simple };
        let first = u64::from(page) * PAGE_BRANCHES + 1;
        let pages = first..(first + PAGE_BRANCHES).min(u64::from(plan.pages_per_host));
        links.extend(pages.map(|child| tree(host, child as u32)));
        if page == 0 && plan.hosts_linked {
            let first = host.saturating_mul(HOST_BRANCHES).saturating_add(1);
            let hosts = first..first.saturating_add(HOST_BRANCHES).min(plan.hosts);
            links.extend(hosts.map(|child| tree(child, 0)));
            if host == 0 {
                links.extend((plan.hosts..self.host_count()).map(|odd| tree(odd, 0)));
            }
        }
        while links.len() < plan.links_per_page as usize {
            let other = draw.percent(plan.cross_host_percent);
            let host = if other { draw.popular_below(u64::from(plan.hosts)) as u32 } else { host };
            let page = draw.popular_below(u64::from(plan.pages_per_host)) as u32;
            links.push(Link { host, page, nofollow: draw.below(32) == 0, spelling: Spelling::Simple });
        }
        if plan.spellings {
            for link in &mut links {
                link.spelling = SPELLINGS[draw.below(SPELLINGS.len() as u64) as usize];
            }
        }
        links
    }

    /// How often a plain page has changed by `epoch`.
    fn page_version(&self, host: u32, page: u32, epoch: u32) -> u32 {
        let mut draw = Draw::new(self.plan.seed, For::Change, u64::from(host), u64::from(page));
        if draw.percent(self.plan.changing_percent) { epoch } else { 0 }
    }

    pub(super) fn page_answer(&self, host: u32, page: u32, visit: &Visit) -> Answer {
        let version = self.page_version(host, page, visit.epoch);
        let dates = PageDates::draw(self.plan.seed, host, page.into(), version);
        let mut answer = Answer::ok("text/html; charset=utf-8", self.page_html(host, page, version));
        answer.header("etag", dates.etag());
        answer.header("last-modified", http_date(dates.modified_unix_s));
        answer.delay_ms = self.plan.delay_ms;
        answer
    }

    fn page_html(&self, host: u32, page: u32, version: u32) -> Vec<u8> {
        let language = self.language(host);
        let mut draw = Draw::new(self.plan.seed, For::Prose, u64::from(host) << 32 | u64::from(page), version.into());
        let mut size = Draw::new(self.plan.seed, For::Size, u64::from(host), u64::from(page));
        let wanted = u64::from(self.plan.page_bytes / 2) + size.below(u64::from(self.plan.page_bytes) + 1);
        let wanted = wanted as usize;
        let links = self.page_links(host, page);
        let mut path = Vec::with_capacity(48);
        self.push_page_path(&mut path, host, page);

        let mut out = Vec::with_capacity(wanted + 1_024);
        out.extend_from_slice(b"<!doctype html>\n<html lang=\"");
        out.extend_from_slice(language.tag().as_bytes());
        out.extend_from_slice(b"\"><head><meta charset=\"utf-8\"><title>");
        out.extend_from_slice(self.prose.sentence(language, &mut draw).trim_ascii_end());
        out.extend_from_slice(b"</title>\n<meta name=\"description\" content=\"");
        out.extend_from_slice(self.prose.sentence(language, &mut draw).trim_ascii_end());
        out.extend_from_slice(b"\"></head>\n<body><h1>");
        out.extend_from_slice(self.prose.sentence(language, &mut draw).trim_ascii_end());
        out.extend_from_slice(b"</h1>\n");
        // Prose is spread evenly between the links, about 100 bytes of markup each.
        let markup = out.len() + links.len() * 100;
        let prose_per_link = wanted.saturating_sub(markup) / (links.len() + 1);
        for link in &links {
            out.extend_from_slice(b"<p>");
            self.prose.append(&mut out, language, &mut draw, prose_per_link);
            out.extend_from_slice(if link.nofollow { b"<a rel=\"nofollow\" href=\"" } else { b"<a href=\"" });
            self.push_href(&mut out, host, &path, link, &mut draw);
            out.extend_from_slice(b"\">");
            out.extend_from_slice(path_word(&mut draw).as_bytes());
            out.extend_from_slice(b"</a></p>\n");
        }
        out.extend_from_slice(b"<p>");
        let rest = prose_per_link.min(wanted.saturating_sub(out.len()));
        self.prose.append(&mut out, language, &mut draw, rest);
        out.extend_from_slice(b"</p>\n</body></html>\n");
        out
    }

    /// The language host `host` writes in.
    pub(super) fn language(&self, host: u32) -> Language {
        if !self.plan.languages {
            return Language::English;
        }
        match Draw::new(self.plan.seed, For::Language, u64::from(host), 0).below(8) {
            0 | 1 => Language::German,
            2 => Language::Russian,
            _ => Language::English,
        }
    }

    fn push_href(&self, out: &mut Vec<u8>, from: u32, from_path: &[u8], link: &Link, draw: &mut Draw) {
        let mut path = Vec::with_capacity(48);
        self.push_page_path(&mut path, link.host, link.page);
        let local = link.host == from;
        let start = out.len();
        match link.spelling {
            Spelling::Relative if local => {
                // Up to the root from the directory of this page, then down.
                let end = from_path.iter().position(|byte| *byte == b'?').unwrap_or(from_path.len());
                let depth = from_path[1..end].iter().filter(|byte| **byte == b'/').count();
                out.extend_from_slice(if depth == 0 { b"./" } else { b"" });
                for _ in 0..depth {
                    out.extend_from_slice(b"../");
                }
                push_escaped(out, &path[1..]);
            }
            Spelling::ProtocolRelative => {
                out.extend_from_slice(b"//");
                self.push_authority(out, link.host);
                push_escaped(out, &path);
            }
            Spelling::Absolute | Spelling::UpperCaseHost => {
                self.push_origin(out, link.host);
                if link.spelling == Spelling::UpperCaseHost {
                    out[start..].make_ascii_uppercase();
                }
                push_escaped(out, &path);
            }
            Spelling::DefaultPort => {
                self.push_origin(out, link.host);
                out.extend_from_slice(if self.plan.port == 80 { b":80" } else { b"" });
                push_escaped(out, &path);
            }
            Spelling::Entities => {
                out.extend_from_slice(b" ");
                self.push_origin(out, link.host);
                for byte in path {
                    match byte {
                        b'/' => out.extend_from_slice(b"&#x2F;"),
                        b'&' => out.extend_from_slice(b"&#38;"),
                        _ => out.push(byte),
                    }
                }
                out.extend_from_slice(b"\n");
            }
            _ => {
                if !local {
                    self.push_origin(out, link.host);
                }
                push_escaped(out, &path);
            }
        }
        match link.spelling {
            Spelling::Fragment => {
                out.extend_from_slice(b"#part-");
                push_number(out, draw.below(9));
            }
            Spelling::Tracking => {
                out.extend_from_slice(if path_has_query(&out[start..]) { b"&amp;" } else { b"?" });
                out.extend_from_slice(b"utm_source=");
                out.extend_from_slice(path_word(draw).as_bytes());
                out.extend_from_slice(b"&amp;utm_medium=web");
            }
            _ => {}
        }
    }
}

fn path_has_query(href: &[u8]) -> bool {
    href.contains(&b'?')
}

/// Appends a path as the value of an attribute.
fn push_escaped(out: &mut Vec<u8>, path: &[u8]) {
    for piece in path.split_inclusive(|byte| *byte == b'&') {
        match piece.strip_suffix(b"&") {
            Some(before) => {
                out.extend_from_slice(before);
                out.extend_from_slice(b"&amp;");
            }
            None => out.extend_from_slice(piece),
        }
    }
}
