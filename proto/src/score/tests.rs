//! Scores of small graphs by numbers that another program computed, and what must hold on any graph.

use proptest::prelude::*;

use super::hits::Hits;
use super::link_row::{NoRow, Row, read_signed, read_varint, write, write_signed, write_varint};
use super::opic::Opic;
use super::pagerank::PageRank;
use super::priority::{level, priority};
use super::*;

/// A graph with its lists in both directions.
#[derive(Clone, Debug)]
struct Built {
    into: (Vec<u64>, Vec<u32>),
    out: (Vec<u64>, Vec<u32>),
    degrees: Vec<u32>,
    content: Option<Vec<f64>>,
}

impl Built {
    fn new(pages: usize, links: &[(u32, u32)], content: Option<&[f64]>) -> Built {
        let lists = |of: fn(&(u32, u32)) -> (u32, u32)| {
            let mut sorted: Vec<(u32, u32)> = links.iter().map(of).collect();
            sorted.sort_by_key(|(page, _)| *page);
            let start = |page| sorted.partition_point(|(of, _)| (*of as usize) < page) as u64;
            let starts = (0..=pages).map(start).collect();
            (starts, sorted.into_iter().map(|(_, other)| other).collect())
        };
        let out: (Vec<u64>, Vec<u32>) = lists(|link| *link);
        let degrees = out.0.windows(2).map(|ends| (ends[1] - ends[0]) as u32).collect();
        Built { into: lists(|(from, to)| (*to, *from)), out, degrees, content: content.map(<[f64]>::to_vec) }
    }

    fn graph(&self) -> Graph<'_> {
        Graph {
            into: Lists::new(&self.into.0, &self.into.1).unwrap(),
            degrees: &self.degrees,
            out: Lists::new(&self.out.0, &self.out.1),
            content: self.content.as_deref(),
        }
    }
}

const EXACT: Stop = Stop { precision: 1e-12, loops_max: 1_000 };
const CONTENT: [f64; 6] = [0.5, 0.1, 0.9, 0.3, 0.7, 0.2];
const ALL: [(u32, u32); 12] =
    [(0, 1), (0, 2), (0, 3), (1, 0), (1, 2), (2, 3), (2, 4), (2, 0), (3, 4), (3, 5), (4, 2), (4, 0)];
const OTHER: [(u32, u32); 9] = [(0, 2), (0, 3), (1, 2), (2, 4), (2, 0), (3, 4), (3, 5), (4, 2), (4, 0)];

fn assert_close(found: &[f64], expected: &[f64], within: f64) {
    assert_eq!(found.len(), expected.len());
    let far = found.iter().zip(expected).any(|(found, expected)| (found - expected).abs() > within);
    assert!(!far, "{found:?} is not {expected:?}");
}

fn pagerank(built: &Built, damping: f64, stop: &Stop) -> Vec<f64> {
    let mut scorer = PageRank::new(damping);
    scorer.update(&built.graph(), stop, &OneCore).unwrap();
    scorer.scores().to_vec()
}

fn hits(built: &Built) -> (Vec<f64>, Vec<f64>) {
    let mut scorer = Hits::default();
    scorer.update(&built.graph(), &EXACT, &OneCore).unwrap();
    (scorer.scores().to_vec(), scorer.hubs().to_vec())
}

#[test]
fn pagerank_gives_the_numbers_of_aduana() {
    type Case<'a> = (&'a [(u32, u32)], Option<&'a [f64]>, f64, [f64; 6]);
    let cases: [Case<'_>; 5] = [
        (&ALL, None, 0.85, [0.221876, 0.103673, 0.221876, 0.166538, 0.174451, 0.111587]),
        (&ALL, Some(&CONTENT), 0.85, [0.228379, 0.072941, 0.254041, 0.161385, 0.198199, 0.085055]),
        (&OTHER, None, 0.85, [0.242032, 0.039083, 0.265345, 0.141947, 0.212182, 0.099411]),
        (&OTHER, Some(&CONTENT), 0.85, [0.261523, 0.007852, 0.288248, 0.134704, 0.234720, 0.072954]),
        (&ALL, Some(&CONTENT), 0.5, [0.216847, 0.056061, 0.285145, 0.143426, 0.222823, 0.075697]),
    ];
    for (links, content, damping, expected) in cases {
        assert_close(&pagerank(&Built::new(6, links, content), damping, &EXACT), &expected, 1e-6);
    }
    // Where it stood after eight loops, which is where a precision of 1e-4 ended it.
    let eight = Stop { precision: 0.0, loops_max: 8 };
    let expected = [0.221870, 0.103673, 0.221870, 0.166542, 0.174457, 0.111588];
    assert_close(&pagerank(&Built::new(6, &ALL, None), 0.85, &eight), &expected, 1e-6);
    let expected = [0.228374, 0.072952, 0.254023, 0.161416, 0.198198, 0.085038];
    assert_close(&pagerank(&Built::new(6, &ALL, Some(&CONTENT)), 0.85, &eight), &expected, 1e-6);
}

#[test]
fn hits_gives_the_numbers_of_aduana() {
    type Case<'a> = (&'a [(u32, u32)], Option<&'a [f64]>, [f64; 6], [f64; 6]);
    let cases: [Case<'_>; 4] = [
        (
            &ALL,
            None,
            [0.285939, 0.093309, 0.279927, 0.192630, 0.123758, 0.024437],
            [0.231143, 0.231143, 0.246037, 0.060534, 0.231143, 0.0],
        ),
        (
            &ALL,
            Some(&CONTENT),
            [0.307571, 0.094104, 0.332511, 0.163268, 0.085855, 0.016691],
            [0.224931, 0.284926, 0.165319, 0.039896, 0.284926, 0.0],
        ),
        (
            &OTHER,
            None,
            [0.270563, 0.0, 0.388743, 0.128450, 0.159531, 0.052713],
            [0.234281, 0.176095, 0.194826, 0.096143, 0.298656, 0.0],
        ),
        (
            &OTHER,
            Some(&CONTENT),
            [0.244865, 0.0, 0.496674, 0.162852, 0.076729, 0.018880],
            [0.284009, 0.256027, 0.100887, 0.032926, 0.326151, 0.0],
        ),
    ];
    for (links, content, authorities, hubs) in cases {
        let found = hits(&Built::new(6, links, content));
        assert_close(&found.0, &authorities, 2e-6);
        assert_close(&found.1, &hubs, 2e-6);
    }
}

#[test]
fn four_pages_in_a_circle_and_one_that_all_link_to() {
    let links: Vec<(u32, u32)> = (0..4).flat_map(|page| [(page, (page + 1) % 4), (page, 4)]).collect();
    let built = Built::new(5, &links, None);
    let (x, y) = (0.159_362_55, 0.362_549_8);
    assert_close(&pagerank(&built, 0.85, &EXACT), &[x, x, x, x, y], 1e-7);
    let (authorities, hubs) = hits(&built);
    assert_close(&authorities, &[0.125, 0.125, 0.125, 0.125, 0.5], 1e-9);
    assert_close(&hubs, &[0.25, 0.25, 0.25, 0.25, 0.0], 1e-9);
}

#[test]
fn content_scores_that_are_all_zero_say_nothing() {
    let (none, zero) = (Built::new(6, &ALL, None), Built::new(6, &ALL, Some(&[0.0; 6])));
    assert_eq!(pagerank(&none, 0.85, &EXACT), pagerank(&zero, 0.85, &EXACT));
    assert_eq!(hits(&none), hits(&zero));
}

#[test]
fn a_second_computation_begins_where_the_first_ended() {
    let built = Built::new(6, &ALL, None);
    let mut scorer = PageRank::default();
    let cold = scorer.update(&built.graph(), &Stop::default(), &OneCore).unwrap();
    let warm = scorer.update(&built.graph(), &Stop::default(), &OneCore).unwrap();
    assert!(cold.loops > 5 && warm.loops <= 2, "{cold:?} {warm:?}");
    let mut resumed = PageRank::default();
    resumed.resume(Box::new(scorer.state().into_owned()));
    assert!(resumed.update(&built.graph(), &Stop::default(), &OneCore).unwrap().loops <= 2);
    resumed.resume(Box::new(vec![f64::NAN]));
    assert_eq!(resumed.scores().len(), 6, "a damaged state is left alone");
}

#[test]
fn the_rows_of_aduana() {
    type Written<'a> = (u32, &'a [u32], &'a [u32], &'a [u8]);
    let rows: [Written<'_>; 6] = [
        (0, &[2, 3], &[1], &[0x02, 0x04, 0x02, 0x05]),
        (1, &[2], &[0], &[0x01, 0x02, 0x05]),
        (2, &[4, 0], &[3], &[0x02, 0x04, 0x09, 0x06]),
        (3, &[4, 5], &[], &[0x02, 0x02, 0x02]),
        (4, &[2, 0], &[], &[0x02, 0x05, 0x05]),
        (5, &[], &[], &[0x00]),
    ];
    for (page, other, same, bytes) in rows {
        let mut row = Vec::new();
        write(page, other, same, &mut row);
        assert_eq!(row, bytes);
        let read: Vec<u32> = Row::read(page, bytes).unwrap().collect::<Result<_, _>>().unwrap();
        assert_eq!(read, [other, same].concat());
        let others = Row::read(page, bytes).unwrap();
        let count = others.other_domains() as usize;
        assert_eq!(others.take(count).collect::<Result<Vec<u32>, _>>().unwrap(), other);
    }
}

#[test]
fn the_varints_of_aduana_and_those_it_could_not_read() {
    let numbers: [(i64, &[u8]); 8] = [
        (0, &[0x00]),
        (1, &[0x02]),
        (-1, &[0x03]),
        (63, &[0x7e]),
        (64, &[0x80, 0x01]),
        (-64, &[0x81, 0x01]),
        (1_000_000, &[0x80, 0x89, 0x7a]),
        (-1_000_000, &[0x81, 0x89, 0x7a]),
    ];
    for (number, bytes) in numbers {
        let mut written = Vec::new();
        write_signed(number, &mut written);
        assert_eq!(written, bytes, "{number}");
    }
    for number in [1 << 30, -(1 << 30), 1 << 40, i64::MAX, -i64::MAX] {
        let mut written = Vec::new();
        write_signed(number, &mut written);
        assert_eq!(read_signed(&mut written.as_slice()), Ok(number));
    }
}

#[test]
fn opic_finds_who_is_linked_to_most_without_computing() {
    let mut scorer = Opic::default();
    let links: [&[u32]; 6] = [&[1, 2, 3], &[0, 2], &[3, 4, 0], &[4, 5], &[2, 0], &[]];
    for _ in 0..200 {
        links.iter().enumerate().for_each(|(page, links)| scorer.crawled(page as u32, links));
    }
    let built = Built::new(6, &ALL, None);
    scorer.update(&built.graph(), &EXACT, &OneCore).unwrap();
    assert!((total(scorer.scores()) - 1.0).abs() < 1e-9);
    // The estimate of the paper comes to PageRank when every page is crawled over and over.
    assert_close(scorer.scores(), &pagerank(&built, 0.85, &EXACT), 0.01);
    let mut resumed = Opic::default();
    resumed.resume(Box::new(scorer.state().into_owned()));
    resumed.update(&built.graph(), &EXACT, &OneCore).unwrap();
    assert_close(resumed.scores(), scorer.scores(), 1e-9);
}

#[test]
fn a_level_is_a_tenth_and_parts_of_pages_are_not_moved() {
    assert_eq!(level(1e-6, 1_000_000), 0);
    assert_eq!((level(1.1e-6, 1_000_000), level(1e-6 / 1.1, 1_000_000)), (1, -1));
    assert_eq!((level(0.0, 10), level(f64::NAN, 10), level(1e300, 1_000)), (-40, -40, 1_000));
    assert_eq!((priority(100, 7), priority(100, -40), priority(50, 7)), (107, 60, 50));
    assert_eq!(priority(u16::MAX, -3), u16::MAX, "what must be fetched first stays there");
}

#[test]
fn lists_that_do_not_fit_together_are_refused() {
    assert!(Lists::new(&[], &[]).is_none());
    assert!(Lists::new(&[0, 1], &[1]).is_none(), "page 1 has no list");
    assert!(Lists::new(&[0, 2, 1], &[0]).is_none());
    assert!(Lists::new(&[0, 1, 1], &[1]).is_some());
}

/// Parts in another order than theirs, as threads may take them.
struct Backwards;

impl Machine for Backwards {
    fn share(&self, vector: &mut [f64], fill: &(dyn Fn(usize, &mut [f64]) + Sync)) {
        vector.chunks_mut(3).enumerate().rev().for_each(|(number, part)| fill(number * 3, part));
    }
}

fn graphs() -> impl Strategy<Value = Built> {
    (1..40usize).prop_flat_map(|pages| {
        let link = (0..pages as u32, 0..pages as u32); // self loops and links that stand twice among them
        let links = proptest::collection::vec(link, 0..160);
        let content = proptest::option::of(proptest::collection::vec(0.0..1.0f64, pages));
        (links, content).prop_map(move |(links, content)| Built::new(pages, &links, content.as_deref()))
    })
}

proptest! {
    #[test]
    fn scores_sum_to_one_and_are_the_same_on_any_number_of_cores(built in graphs()) {
        let scorers: [fn() -> Box<dyn Scorer>; 2] = [|| Box::new(PageRank::default()), || Box::new(Hits::default())];
        for scorer in scorers {
            let (mut one, mut many) = (scorer(), scorer());
            one.update(&built.graph(), &Stop::default(), &OneCore).unwrap();
            many.update(&built.graph(), &Stop::default(), &Backwards).unwrap();
            prop_assert_eq!(one.scores(), many.scores());
            prop_assert!((total(one.scores()) - 1.0).abs() < 1e-9);
            prop_assert!(is_sound(one.scores()));
        }
    }

    #[test]
    fn pagerank_is_a_fixed_point(built in graphs()) {
        let scores = pagerank(&built, 0.85, &EXACT);
        let pages = scores.len();
        let links: Vec<&[u32]> = (0..pages).map(|page| built.graph().out.unwrap().of(page)).collect();
        let mut next = vec![0.0; pages];
        for (page, links) in links.iter().enumerate() {
            links.iter().for_each(|to| next[*to as usize] += 0.85 * scores[page] / links.len() as f64);
        }
        let (rest, content) = (1.0 - total(&next), built.content.clone().unwrap_or_else(|| vec![1.0; pages]));
        let content = if total(&content) > 0.0 { content } else { vec![1.0; pages] };
        next.iter_mut().zip(&content).for_each(|(score, own)| *score += rest * own / total(&content));
        prop_assert!(distance(&next, &scores) < 1e-9);
    }

    #[test]
    fn hits_is_a_fixed_point(built in graphs()) {
        let mut scorer = Hits::default();
        let done = scorer.update(&built.graph(), &EXACT, &OneCore).unwrap();
        let (pages, graph) = (scorer.scores().len(), built.graph());
        let all_zero = built.content.as_ref().is_none_or(|content| total(content) == 0.0);
        let content = built.content.clone().filter(|_| !all_zero).unwrap_or_else(|| vec![1.0; pages]);
        let normal = |vector: Vec<f64>| match vector.iter().sum::<f64>() {
            0.0 => vec![1.0 / pages as f64; pages],
            sum => vector.into_iter().map(|number| number / sum).collect(),
        };
        // By links and not by lists: a loop more of what the paper says.
        let (mut hubs, mut authorities) = (vec![0.0; pages], vec![0.0; pages]);
        let links = || (0..pages).flat_map(|from| graph.out.unwrap().of(from).iter().map(move |to| (from, *to as usize)));
        links().for_each(|(from, to)| hubs[from] += scorer.scores()[to] * content[to]);
        let hubs = normal(hubs);
        links().for_each(|(from, to)| authorities[to] += hubs[from]);
        let authorities = normal(authorities);
        let near = done.change * 10.0 + 1e-9;
        prop_assert!(distance(&authorities, scorer.scores()) < near && distance(&hubs, scorer.hubs()) < near, "{done:?}");
    }

    #[test]
    fn contents_that_are_all_zero_are_none_on_any_graph(built in graphs()) {
        let zeros = Built { content: Some(vec![0.0; built.degrees.len()]), ..built.clone() };
        let none = Built { content: None, ..built };
        prop_assert_eq!(pagerank(&zeros, 0.85, &EXACT), pagerank(&none, 0.85, &EXACT));
        prop_assert_eq!(hits(&zeros), hits(&none));
    }

    #[test]
    fn cash_is_neither_made_nor_lost(crawled in proptest::collection::vec((0..20u32, proptest::collection::vec(0..20u32, 0..6)), 0..100)) {
        let mut scorer = Opic::default();
        scorer.grow(20);
        crawled.iter().for_each(|(page, links)| scorer.crawled(*page, links));
        let cash: f64 = scorer.state().chunks(2).map(|both| both[0]).sum();
        prop_assert!((cash - 20.0).abs() < 1e-9);
    }

    #[test]
    fn a_row_is_read_as_it_was_written(page in any::<u32>(), other in proptest::collection::vec(any::<u32>(), 0..20), same in proptest::collection::vec(any::<u32>(), 0..20)) {
        let mut bytes = Vec::new();
        write(page, &other, &same, &mut bytes);
        let row = Row::read(page, &bytes).unwrap();
        prop_assert_eq!(row.other_domains(), other.len() as u64);
        prop_assert_eq!(row.collect::<Result<Vec<u32>, _>>().unwrap(), [other, same].concat());
    }

    #[test]
    fn garbage_is_no_row_and_no_panic(page in any::<u32>(), bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        if let Ok(row) = Row::read(page, &bytes) {
            let links: Vec<Result<u32, NoRow>> = row.collect();
            prop_assert!(links.len() <= bytes.len());
        }
        let _ = read_signed(&mut bytes.as_slice());
    }

    #[test]
    fn any_number_can_be_read_back(number in any::<u64>()) {
        let mut bytes = Vec::new();
        write_varint(number, &mut bytes);
        prop_assert_eq!(read_varint(&mut bytes.as_slice()), Ok(number));
    }
}

#[test]
fn no_pages_have_no_scores() {
    let built = Built::new(0, &[], None);
    assert!(pagerank(&built, 0.85, &EXACT).is_empty());
    assert!(hits(&built).0.is_empty());
    // No links: everybody is worth the same.
    assert_close(&pagerank(&Built::new(4, &[], None), 0.85, &EXACT), &[0.25; 4], 1e-12);
    assert_close(&hits(&Built::new(4, &[], None)).0, &[0.25; 4], 1e-12);
}
