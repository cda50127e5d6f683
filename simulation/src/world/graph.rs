//! A page graph of any size, the same for the same seed everywhere: hosts of very different sizes, a tenth of the pages without links, half of the
//! links within a host and half to pages that are the more popular the smaller their draw. What scores are measured and checked on.
//!
//! SplitMix64 throughout. Hosts are runs of consecutive pages, of size min(⌊4/(1−u)⌋, N/50). A page has no links, or 1 to 22 draws: half uniform
//! within its host, half ⌊N·u³⌋ scattered by (t·2654435761 + 12345) mod N; without links to itself and without doubles.

const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;
const SCATTER: u64 = 2_654_435_761;
const OFFSET: u64 = 12_345;

struct Draws(u64);

impl Draws {
    fn of(seed: u64) -> Draws {
        Draws(finish(seed.wrapping_add(GAMMA)))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GAMMA);
        finish(self.0)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 * 2f64.powi(-53)
    }
}

fn finish(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The graph.
pub struct PageWorld {
    pages: u64,
    seed: u64,
    /// First page of each host, and the number of pages at the end.
    starts: Vec<u64>,
    host_of: Vec<u32>,
}

impl PageWorld {
    /// The graph of this many pages.
    pub fn new(pages: u32, seed: u64) -> PageWorld {
        let pages = u64::from(pages);
        let (mut draws, largest) = (Draws::of(seed ^ 0x486F_7374), (pages / 50).max(4));
        let (mut starts, mut host_of, mut page) = (Vec::new(), Vec::new(), 0);
        while page < pages {
            let wanted = 4.0 / (1.0 - draws.unit());
            let size = if wanted >= largest as f64 { largest } else { wanted as u64 }.min(pages - page);
            host_of.extend(std::iter::repeat_n(starts.len() as u32, size as usize));
            starts.push(page);
            page += size;
        }
        starts.push(pages);
        PageWorld { pages, seed, starts, host_of }
    }

    /// How many pages.
    pub fn pages(&self) -> u32 {
        self.pages as u32
    }

    /// How many hosts.
    pub fn hosts(&self) -> usize {
        self.starts.len() - 1
    }

    /// The links of a page, into `links`.
    pub fn links(&self, page: u32, links: &mut Vec<u32>) {
        links.clear();
        let page = u64::from(page);
        let mut draws = Draws::of(self.seed ^ page.wrapping_mul(0xD134_2543_DE82_EF95).wrapping_add(1));
        if draws.next().is_multiple_of(10) {
            return;
        }
        let count = 1 + draws.next() % 22;
        let host = self.host_of[page as usize] as usize;
        let (start, size) = (self.starts[host], self.starts[host + 1] - self.starts[host]);
        for _ in 0..count {
            let draw = draws.next();
            let target = if draw & 1 == 1 {
                start + (draw >> 1) % size
            } else {
                let u = draws.unit();
                let popular = (self.pages as f64 * (u * u * u)) as u64;
                (popular * SCATTER + OFFSET) % self.pages
            };
            if target != page && !links.contains(&(target as u32)) {
                links.push(target as u32);
            }
        }
    }

    /// The page that is crawled after `order` others.
    pub fn crawled(&self, order: u32) -> u32 {
        ((u64::from(order) * SCATTER + OFFSET) % self.pages) as u32
    }

    /// The URL of a page, some 63 bytes.
    pub fn url(&self, page: u32) -> String {
        let host = self.host_of[page as usize];
        format!("http://www.site-{host}.example.com/section/{}/article-{page}.html", page % 17)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_graph_of_20_000_pages_is_the_one_that_others_made() {
        let (world, mut links) = (PageWorld::new(20_000, 42), Vec::new());
        let (mut edges, mut dangling, mut hash) = (0, 0, 0x1465_0FB0_739D_0383u64);
        for page in 0..world.pages() {
            world.links(page, &mut links);
            edges += links.len();
            dangling += usize::from(links.is_empty());
            for to in &links {
                for byte in page.to_le_bytes().into_iter().chain(to.to_le_bytes()) {
                    hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
                }
            }
        }
        assert_eq!((world.hosts(), edges, dangling), (1_022, 190_028, 1_954));
        assert_eq!(hash, 0x2ba1_15c2_7b6e_d42e);
    }
}
