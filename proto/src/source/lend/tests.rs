//! Holders and guests over a network that delays, loses and doubles words, with clocks that know nothing of each other, guests that die and jobs that move.

use proptest::prelude::*;

use super::*;

fn run(id: &str) -> Run {
    Run { job: "job".to_owned(), generator: "generator".to_owned(), id: id.to_owned() }
}

fn word(lender: &mut Lender, now: Micros, until: Micros) -> Word {
    match lender.next(now, Some(until)) {
        Next::Say(word) => word,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_guest_begins_with_leave_and_kills_when_it_hears_no_more() {
    let (mut guest, mut lender) = (Guest::new(1), Lender::new(run("r"), 7));
    let ask = word(&mut lender, 1_000, 1_500);
    assert_eq!((ask.leave, guest.hear(50, &ask, true)), (None, Heard::Say(Said::Willing)));
    lender.told(Some((guest.stamp(50), Said::Willing)));
    let begin = word(&mut lender, 1_100, 1_500);
    assert_eq!(guest.hear(200, &begin, true), Heard::Begin, "it was under way for long");
    assert!(guest.is_wanted(449, 7) && !guest.is_wanted(450, 7), "400 from 50 on, and not from 200 on");
    assert_eq!(guest.hear(210, &begin, true), Heard::Say(Said::Runs), "the same word again begins nothing");
    lender.told(Some((guest.stamp(210), Said::Runs)));
    let on = word(&mut lender, 1_200, 2_000);
    assert_eq!(guest.hear(220, &on, false), Heard::Say(Said::Runs));
    assert!(guest.is_wanted(1_009, 7) && !guest.is_wanted(1_010, 7));
    guest.ended(7, false);
    assert_eq!(guest.hear(230, &on, true), Heard::Say(Said::Ended));
    assert_eq!(guest.hear(240, &lender.stop(), true), Heard::Say(Said::Full), "what it printed is wanted no more");
    assert_eq!(guest.hear(250, &begin, true), Heard::Say(Said::Full), "an old word begins nothing");
    assert_eq!(guest.hear(1_011, &begin, true), Heard::Say(Said::Unknown), "nor when all is forgotten");
    assert_eq!(Guest::new(2).hear(10, &begin, true), Heard::Say(Said::Unknown), "nor in another life");
}

#[test]
fn a_holder_asks_another_at_once_only_if_the_guest_never_begins() {
    let mut lender = Lender::new(run("r"), 1);
    word(&mut lender, 10, 100);
    lender.told(None);
    assert_eq!(lender.next(10, Some(100)), Next::Elsewhere, "it never had leave");

    let lent = |said| {
        let mut lender = Lender::new(run("r"), 1);
        word(&mut lender, 10, 100);
        lender.told(Some((Stamp { life: 1, at: 0 }, Said::Willing)));
        word(&mut lender, 10, 100);
        lender.told(said);
        lender
    };
    let say = |said| Some((Stamp { life: 1, at: 5 }, said));
    assert_eq!(lent(say(Said::Full)).next(20, Some(200)), Next::Elsewhere);
    assert_eq!(lent(say(Said::Killed)).next(20, Some(200)), Next::Lost);
    assert_eq!(lent(say(Said::Unknown)).next(20, Some(200)), Next::Wait(100));
    assert_eq!(lent(say(Said::Unknown)).next(100, Some(200)), Next::Lost);
    let mut silent = lent(None);
    let again = word(&mut silent, 99, 200);
    assert_eq!(
        again.leave,
        Some(Leave { since: Stamp { life: 1, at: 0 }, left: 90 }),
        "no more time for one who is silent"
    );
    assert_eq!(silent.next(100, Some(200)), Next::Lost);
    let mut runs = lent(say(Said::Runs));
    assert!(matches!(runs.next(20, None), Next::Say(Word { stop: true, .. })), "the job is not ours any more");
    assert_eq!(runs.next(100, None), Next::Lost);
}

#[test]
fn leave_is_short_also_for_one_who_holds_the_job_for_ever() {
    let mut lender = Lender::new(run("r"), 1);
    word(&mut lender, 10, Micros::MAX);
    lender.told(Some((Stamp { life: 1, at: 7 }, Said::Willing)));
    let begin = word(&mut lender, 10, Micros::MAX);
    assert_eq!(begin.leave, Some(Leave { since: Stamp { life: 1, at: 7 }, left: LEAVE_MAX }));
    lender.told(None);
    assert_eq!(lender.next(10 + LEAVE_MAX, Some(Micros::MAX)), Next::Lost);
}

/// How the world is worse than it should be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Defect {
    None,
    /// Guests count from when a word comes.
    FromReceipt,
    /// Holders ask another when one does not answer.
    Hasty,
    /// Guests forget at once what they refused or is needed no more.
    Forgetful,
}

/// What happens in a run of the world.
#[derive(Debug, Default)]
struct Outcome {
    ended: u64,
    killed: u64,
    begun: u64,
    broken: Option<&'static str>,
}

struct GuestNode {
    core: Guest,
    offset: Micros,
    /// The script that runs: its execution, and for how long yet.
    script: Option<(u64, Micros)>,
}

/// Something under way.
enum Message {
    Word { to: usize, number: u64, word: Word },
    Answer { number: u64, answer: (Stamp, Said) },
}

const GUESTS: usize = 3;
/// Faults end here.
const CALM: Micros = 6_000;
const END: Micros = 12_000;

fn live(seed: u64, defect: Defect) -> Outcome {
    let mut state = seed;
    let mut draw = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut outcome = Outcome::default();
    let mut lives = 0;
    let mut guests: Vec<GuestNode> = (0..GUESTS)
        .map(|_| {
            lives += 1;
            GuestNode { core: Guest::new(lives), offset: draw(1_000_000), script: None }
        })
        .collect();
    let mut under_way: Vec<(Micros, Message)> = Vec::new();
    // One job, held by one after the other. Each holder has a clock of its own, and a lender while it has the run executed.
    let (mut executions, mut numbers) = (0, 0);
    let mut offset = draw(1_000_000);
    let (mut surely, mut ends) = (0, 0);
    let mut lender: Option<(usize, Lender)> = None;
    let mut waits: Option<(u64, Micros)> = None;
    let mut asked = 0;
    for now in 0..END {
        let calm = now >= CALM;
        if now >= ends {
            // The job is somebody else's: who had it lets go, its words stay under way.
            (offset, lender, waits) = (draw(1_000_000), None, None);
            ends = if calm { END * 2 } else { now + 200 + draw(1_500) };
            surely = now;
        }
        if now + 100 >= surely && draw(20) == 0 {
            surely = (now + 150 + draw(150)).min(ends); // a lease renewed
        }
        if !calm && draw(900) == 0 {
            lives += 1;
            let at = draw(GUESTS as u64) as usize;
            guests[at] = GuestNode { core: Guest::new(lives), offset: draw(1_000_000), script: None };
        }
        let (due, later) = under_way.into_iter().partition(|(at, _)| *at <= now);
        under_way = later;
        let due: Vec<(Micros, Message)> = due;
        let mut send = |message: Message, draw: &mut dyn FnMut(u64) -> u64| {
            let slow = if draw(4) == 0 { 400 } else { 30 };
            let delay = 1 + draw(if calm { 5 } else { slow });
            if calm || draw(8) > 0 {
                under_way.push((now + delay, message));
            }
        };
        for (_, message) in due {
            match message {
                Message::Word { to, number, word } => {
                    let guest = &mut guests[to];
                    let at = now + guest.offset;
                    let mut word = word;
                    if defect == Defect::FromReceipt {
                        word.leave = word.leave.map(|leave| Leave { since: Stamp { at, ..leave.since }, ..leave });
                    }
                    if defect == Defect::Forgetful {
                        guest.core.lent.retain(|_, lent| lent.state != State::Refused);
                    }
                    let said = match guest.core.hear(at, &word, guest.script.is_none()) {
                        Heard::Begin => {
                            outcome.begun += 1;
                            guest.script = Some((word.execution, 1 + draw(400)));
                            Said::Runs
                        }
                        Heard::Say(said) => said,
                    };
                    if !calm && draw(10) == 0 {
                        send(Message::Word { to, number, word }, &mut draw); // it comes a second time
                    }
                    send(Message::Answer { number, answer: (guest.core.stamp(at), said) }, &mut draw);
                }
                Message::Answer { number, answer } => {
                    if waits.is_some_and(|(waits, _)| waits == number) {
                        waits = None;
                        if answer.1 == Said::Ended {
                            outcome.ended += 1;
                            if let Some((to, lender)) = lender.take() {
                                numbers += 1;
                                send(Message::Word { to, number: numbers, word: lender.stop() }, &mut draw);
                            }
                        } else if let Some((_, lender)) = &mut lender {
                            lender.told(Some(answer));
                        }
                    }
                }
            }
        }
        for guest in &mut guests {
            let at = now + guest.offset;
            let Some((execution, left)) = &mut guest.script else { continue };
            let (execution, wanted) = (*execution, guest.core.is_wanted(at, *execution));
            *left -= 1;
            if !wanted || *left == 0 {
                outcome.killed += u64::from(!wanted);
                guest.core.ended(execution, !wanted);
                guest.script = None;
            }
        }
        if guests.iter().filter(|guest| guest.script.is_some()).count() > 1 {
            outcome.broken = Some("two execute the job at once");
        }
        // The executions of this tenure are those that its holder began.
        let of_tenure = |execution: u64| execution > asked;
        if guests.iter().filter_map(|guest| guest.script).any(|(execution, _)| !of_tenure(execution)) {
            outcome.broken = Some("a script goes on in a job that is somebody else's");
        }
        if now + 1 >= ends {
            asked = executions;
        }
        if waits.is_some_and(|(_, since)| now >= since + 60) {
            waits = None;
            if let Some((_, lender)) = &mut lender {
                lender.told(None);
            }
            if defect == Defect::Hasty {
                lender = None;
            }
        }
        if waits.is_none() {
            let (to, holder) = lender.get_or_insert_with(|| {
                executions += 1;
                (draw(GUESTS as u64) as usize, Lender::new(run("r"), executions))
            });
            match holder.next(now + offset, Some(surely + offset)) {
                Next::Say(word) => {
                    numbers += 1;
                    waits = Some((numbers, now));
                    let to = *to;
                    send(Message::Word { to, number: numbers, word }, &mut draw);
                }
                Next::Wait(_) => {}
                Next::Elsewhere | Next::Lost => lender = None,
            }
        }
        if outcome.broken.is_some() {
            break;
        }
        if now == CALM + 200 {
            outcome.ended = 0;
        }
    }
    outcome
}

#[test]
fn one_guest_at_a_time_executes_and_only_while_the_job_is_its_lenders() {
    let (mut begun, mut killed) = (0, 0);
    for seed in 0..300 {
        let outcome = live(seed, Defect::None);
        assert_eq!(outcome.broken, None, "seed {seed}");
        assert!(outcome.ended >= 5, "seed {seed}: when all is calm runs end: {outcome:?}");
        begun += outcome.begun;
        killed += outcome.killed;
    }
    assert!(begun > 3_000 && killed > 300, "{begun} begun, {killed} killed: the world is not calm enough, or too calm");
}

#[test]
fn the_world_tells_a_defect() {
    for defect in [Defect::FromReceipt, Defect::Hasty, Defect::Forgetful] {
        let found = (0..300).find_map(|seed| live(seed, defect).broken);
        assert!(found.is_some(), "defect {} goes unnoticed", defect as u8);
    }
}

proptest! {
    #[test]
    fn no_word_makes_a_guest_go_on_for_longer_than_it_was_let(
        words in proptest::collection::vec((0..3u64, 0..200u64, 0..100u64, any::<bool>(), any::<bool>()), 0..40),
    ) {
        let mut guest = Guest::new(1);
        let (mut now, mut most) = (0, [0; 3]);
        for (execution, since, left, stop, has_room) in words {
            now += 7;
            let leave = Some(Leave { since: Stamp { life: 1, at: since }, left });
            let Run { job, generator, .. } = run("r");
            guest.hear(now, &Word { execution, job, generator, leave, stop }, has_room);
            most[execution as usize] = most[execution as usize].max(since + left);
            for (execution, until) in (0..).zip(most) {
                prop_assert!(!guest.is_wanted(until, execution) && (!stop || execution != 0 || !guest.is_wanted(u64::MAX, 0)));
            }
        }
    }
}
