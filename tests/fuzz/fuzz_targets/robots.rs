//! Any robots.txt gives rules that are bounded, repeatable and deaf to what is said to other crawlers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use proto::crawl::robots::{CRAWL_DELAY_MS_MAX, Robots, SITEMAPS_MAX};

const PATHS: [&str; 8] = ["/", "/a", "/a/b.html", "/private/x?y=1", "/%7Euser", "/a%2fb", "/index.php?id=1&x=*", "/$"];

fuzz_target!(|body: &[u8]| {
    let robots = Robots::parse(body, "orbweaver");
    assert_eq!(robots, Robots::parse(body, "ORBWEAVER"), "names of crawlers have no case");
    assert!(robots.allows("/robots.txt"), "the file itself may always be read");
    assert!(robots.sitemaps().len() <= SITEMAPS_MAX);
    assert!(robots.crawl_delay_ms().is_none_or(|delay| delay <= CRAWL_DELAY_MS_MAX));

    let bom = b"\xEF\xBB\xBF";
    let for_another = [b"User-agent: somebody\nDisallow: /\nCrawl-delay: 9\n", body].concat();
    let for_another = (!body.starts_with(bom)).then(|| Robots::parse(&for_another, "orbweaver"));
    // A record needs a colon, or a blank where somebody forgot it.
    let no_records: Vec<u8> =
        body.iter().map(|byte| if matches!(byte, b':' | b' ' | b'\t' | b'\x0C') { b';' } else { *byte }).collect();
    let nobody = Robots::parse(&no_records, "orbweaver");
    for path in PATHS {
        if let Some(for_another) = &for_another {
            assert_eq!(for_another.allows(path), robots.allows(path), "obeyed what was said to another: {path}");
            assert_eq!(for_another.crawl_delay_ms(), robots.crawl_delay_ms());
        }
        assert!(nobody.allows(path), "a file without a single record forbids {path}");
    }
});
