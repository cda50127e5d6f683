//! A node that has records, a disk that keeps them, and a line between them that loses what it likes.

use proptest::prelude::*;

use super::super::copy::tests::copy;
use super::*;
use crate::record::Progress;

const FROM: NodeId = NodeId(2);
const SLOT: Slot = Slot(9);
const WHOLE: Ended = Ended { from: FROM, slot: SLOT, whole: true, parted: None, asked: None };

/// `from` answers the comparison that is due, if it was asked.
fn compare(transfers: &mut Transfers, now: Micros, from: NodeId, ranges: Vec<u8>) -> bool {
    let due = transfers.due(now);
    let [Question::Compare { number, slot: SLOT, .. }] = due[..] else { panic!("{due:?}") };
    let asked = transfers.comparing(from, number).is_some();
    if asked {
        transfers.compared(now, SLOT, ranges);
    }
    asked
}

/// Keys in order, as if they were of one slot.
fn keys(count: u32) -> Vec<UrlKey> {
    let key = |page| copy(&format!("http://a.example/{page}"), Progress::new(NodeId(1))).key;
    let keys: BTreeSet<UrlKey> = (0..count).map(key).collect();
    keys.into_iter().collect()
}

/// What the giver answers: the next `limit` behind `after`, and where to go on.
fn part(keys: &[UrlKey], after: Option<&UrlKey>, limit: usize) -> (Vec<UrlKey>, Option<UrlKey>) {
    let rest: Vec<UrlKey> = keys.iter().filter(|key| after.is_none_or(|after| *key > after)).cloned().collect();
    let next = (rest.len() > limit).then(|| rest[limit - 1].clone());
    (rest.into_iter().take(limit).collect(), next)
}

fn transfers() -> Transfers {
    Transfers::new(TransferRules::default())
}

fn draws(questions: &[Question]) -> Vec<(u64, Option<UrlKey>)> {
    let draw = |question: &Question| match question {
        Question::Draw { number, after, .. } => Some((*number, after.clone())),
        Question::Compare { .. } => None,
    };
    questions.iter().filter_map(draw).collect()
}

#[test]
fn a_slot_comes_over_whole_and_no_more_than_was_asked_for_is_on_its_way() {
    let keys = keys(1_000);
    let mut transfers = transfers();
    assert!(transfers.begin(0, FROM, SLOT));
    assert!(compare(&mut transfers, 0, FROM, vec![1, 2]));
    let (mut have, mut write, mut open) = (Vec::new(), 0, BTreeSet::new());
    while !transfers.is_empty() {
        let asked = draws(&transfers.due(1));
        assert!(asked.len() <= 1, "one part of a slot is on its way");
        match asked.first() {
            Some((number, after)) => {
                let (records, next) = part(&keys, after.as_ref(), 64);
                assert_eq!(transfers.awaited(FROM, *number), Some(SLOT));
                write += 1;
                open.insert(write);
                transfers.took(1, SLOT, Some(write), next);
                assert_eq!(transfers.awaited(FROM, *number), None, "it is taken once");
                have.extend(records);
            }
            None => {
                assert!(!open.is_empty() && open.len() <= TransferRules::default().ahead, "it waits for the disk only");
                transfers.stored(1, open.pop_first().unwrap(), true);
            }
        }
    }
    assert_eq!(have, keys);
    assert_eq!(transfers.ended(), [Ended { asked: Some(0), ..WHOLE }]);
}

#[test]
fn what_is_equal_is_not_drawn() {
    let mut transfers = transfers();
    transfers.begin(7, FROM, SLOT);
    assert!(!compare(&mut transfers, 7, NodeId(7), Vec::new()), "that one was not asked");
    let again = transfers.next_wake().unwrap();
    assert!(compare(&mut transfers, again, FROM, Vec::new()));
    assert_eq!(transfers.ended(), [Ended { asked: Some(7), ..WHOLE }]);
}

#[test]
fn what_is_said_unasked_answers_no_comparison() {
    let mut transfers = transfers();
    transfers.begin(7, FROM, SLOT);
    assert_eq!(transfers.named(7, FROM, SLOT, vec![1]), Named::Busy, "it may have been so long ago");
    transfers.same(7, FROM, SLOT);
    assert!(transfers.is_busy(SLOT));
    assert!(compare(&mut transfers, 8, FROM, vec![1]));
    transfers.took(9, SLOT, None, None);
    assert_eq!(transfers.ended(), [Ended { asked: Some(7), ..WHOLE }]);
    assert_eq!(transfers.named(10, FROM, SLOT, vec![1]), Named::Began);
    transfers.took(11, SLOT, None, None);
    assert_eq!(transfers.ended(), [WHOLE], "nobody knows when the other had that");
}

#[test]
fn who_speaks_an_older_version_answers_without_a_number() {
    let mut transfers = transfers();
    transfers.set_numbered(false);
    transfers.begin(7, FROM, SLOT);
    assert_eq!(transfers.named(8, FROM, SLOT, vec![1]), Named::Answered);
    transfers.took(9, SLOT, None, None);
    transfers.begin(10, FROM, SLOT);
    transfers.same(11, NodeId(7), SLOT);
    assert!(transfers.is_busy(SLOT), "that one was not asked");
    transfers.same(11, FROM, SLOT);
    assert_eq!(transfers.ended(), [7, 10].map(|asked| Ended { asked: Some(asked), ..WHOLE }));
}

#[test]
fn a_part_that_does_not_come_is_asked_for_again_under_its_number() {
    let mut transfers = transfers();
    assert_eq!(transfers.named(0, FROM, SLOT, vec![1]), Named::Began);
    let first = draws(&transfers.due(0));
    assert!(transfers.due(TransferRules::default().retry_after - 1).is_empty());
    let wake = transfers.next_wake().unwrap();
    assert_eq!(draws(&transfers.due(wake)), first, "an answer that is late counts too");
    assert!(transfers.next_wake().unwrap() > 2 * wake, "and then less often");
}

#[test]
fn a_transfer_that_broke_off_goes_on_where_it_was_and_compares_at_its_end() {
    let keys = keys(10);
    let mut transfers = transfers();
    transfers.named(0, FROM, SLOT, vec![1]);
    let (_, next) = part(&keys, None, 4);
    transfers.took(0, SLOT, Some(1), next.clone());
    transfers.stored(0, 1, true);
    transfers.gone(|node| node != FROM);
    assert_eq!(transfers.ended(), [Ended { whole: false, ..WHOLE }]);
    transfers.named(SECOND, NodeId(3), SLOT, vec![1]);
    assert_eq!(draws(&transfers.due(SECOND))[0].1, None, "another node may have others");
    transfers.gone(|node| node == FROM);
    transfers.ended();
    transfers.named(SECOND, FROM, SLOT, vec![1]);
    assert_eq!(
        draws(&transfers.due(SECOND))[0].1,
        next,
        "the other one, which came to nothing, does not make it forgotten"
    );
    transfers.took(SECOND, SLOT, None, None);
    assert!(compare(&mut transfers, SECOND, FROM, Vec::new()));
    assert_eq!(transfers.ended(), [Ended { asked: Some(SECOND), ..WHOLE }]);
}

#[test]
fn a_write_that_failed_is_not_passed_over() {
    let keys = keys(10);
    let mut transfers = transfers();
    transfers.named(0, FROM, SLOT, vec![1]);
    transfers.took(0, SLOT, Some(1), part(&keys, None, 4).1);
    transfers.stored(0, 1, false);
    transfers.gone(|_| false);
    assert_eq!(transfers.ended(), [Ended { whole: false, ..WHOLE }]);
    transfers.named(0, FROM, SLOT, vec![1]);
    assert_eq!(draws(&transfers.due(0))[0].1, None, "it begins anew");
}

#[test]
fn there_is_a_bound_and_silence_ends() {
    let mut transfers = transfers();
    let at_once = TransferRules::default().at_once as u16;
    assert!((0..at_once).all(|slot| transfers.begin(0, FROM, Slot(slot))));
    assert!(!transfers.begin(0, FROM, Slot(at_once)));
    assert_eq!(transfers.named(0, FROM, Slot(at_once), vec![1]), Named::Busy);
    transfers.due(TransferRules::default().silence_max);
    assert_eq!(transfers.ended().len(), usize::from(at_once));
    assert!(transfers.is_empty() && transfers.next_wake().is_none());
}

#[test]
fn who_goes_round_in_circles_is_asked_no_more() {
    let keys = keys(3);
    let mut transfers = transfers();
    transfers.named(0, FROM, SLOT, vec![1]);
    transfers.took(0, SLOT, None, Some(keys[1].clone()));
    transfers.due(0);
    transfers.took(0, SLOT, None, Some(keys[1].clone()));
    assert!(transfers.is_empty());
}

proptest! {
    /// Whatever is lost, late or fails on the way: when it says "whole", all is there.
    #[test]
    fn whole_means_whole(count in 0..60u32, limit in 1..9usize, events in proptest::collection::vec(0..10u8, 0..200)) {
        let keys = keys(count);
        let mut transfers = transfers();
        let (mut have, mut flying): (BTreeSet<UrlKey>, BTreeMap<u64, Vec<UrlKey>>) = Default::default();
        let mut on_line: Vec<Question> = Vec::new();
        let (mut now, mut write, mut whole) = (0, 0, false);
        transfers.begin(0, FROM, SLOT);
        for event in events.into_iter().chain(std::iter::repeat_n(9, 400)) {
            now += SECOND / 4;
            on_line.extend(transfers.due(now));
            match event {
                0 => on_line.clear(),
                1 => transfers.gone(|_| false),
                2 => if let Some((number, _)) = flying.pop_first() {
                    transfers.stored(now, number, false);
                },
                3 => now += 4 * SECOND,
                _ => {
                    if let Some((number, records)) = flying.pop_first() {
                        have.extend(records);
                        transfers.stored(now, number, true);
                    }
                    match (!on_line.is_empty()).then(|| on_line.remove(0)) {
                        Some(Question::Compare { number, .. }) => {
                            let lacks = keys.iter().any(|key| !have.contains(key));
                            if let Some(slot) = transfers.comparing(FROM, number) {
                                transfers.compared(now, slot, if lacks { vec![0] } else { Vec::new() });
                            }
                        }
                        Some(Question::Draw { number, after, .. }) => {
                            let (records, next) = part(&keys, after.as_ref(), limit);
                            if let Some(slot) = transfers.awaited(FROM, number) {
                                write += 1;
                                transfers.took(now, slot, Some(write), next);
                                flying.insert(write, records);
                            }
                        }
                        None => {}
                    }
                }
            }
            for ended in transfers.ended() {
                prop_assert!(!ended.whole || keys.iter().all(|key| have.contains(key)));
                whole = ended.whole;
                if !whole {
                    flying.clear();
                    prop_assert!(transfers.begin(now, FROM, SLOT));
                }
            }
            if whole {
                break;
            }
        }
        prop_assert!(whole, "it comes to its end");
    }
}

#[test]
fn what_another_parts_with_is_told_when_it_is_on_disk_and_not_before() {
    let mut transfers = transfers();
    transfers.parted(0, FROM, SLOT, vec![1, 2], 77);
    let [Question::Draw { number, .. }] = &transfers.due(0)[..] else { panic!("it is drawn") };
    assert_eq!(transfers.awaited(FROM, *number), Some(SLOT));
    transfers.took(1, SLOT, Some(5), None);
    assert_eq!(transfers.ended(), [], "it is on its way to the disk");
    transfers.stored(2, 5, true);
    assert_eq!(transfers.ended(), [Ended { parted: Some(77), ..WHOLE }]);
    // A write that fails: nothing of the kind is said.
    transfers.parted(3, FROM, SLOT, vec![1], 78);
    transfers.took(4, SLOT, Some(6), None);
    transfers.stored(5, 6, false);
    let ended = transfers.ended();
    assert!(!ended[0].whole, "{ended:?}");
}
