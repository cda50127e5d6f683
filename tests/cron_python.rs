//! Next runs of cron lines against croniter.
//! The Python is `CRON_PYTHON`, or the one that `make setup` prepared, or python3 if that has croniter.

use std::io::Write;
use std::process::{Command, Stdio};

use proto::source::cron::Cron;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tests::python::python_with;

const LINES: usize = 6_000;
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/// One field of a line: all forms that both sides give the same meaning.
fn field(random: &mut ChaCha8Rng, low: u32, high: u32, words: &[&str]) -> String {
    let name = |random: &mut ChaCha8Rng, value: u32| match words.get((value - low) as usize) {
        Some(word) if random.random_range(0..2) == 0 => (*word).to_owned(),
        _ => value.to_string(),
    };
    let item = |random: &mut ChaCha8Rng| {
        let first = random.random_range(low..=high);
        match random.random_range(0..4) {
            0 if first < high => {
                let last = random.random_range(first + 1..=high);
                format!("{}-{}", name(random, first), name(random, last))
            }
            1 if first < high => {
                let (last, step) = (random.random_range(first + 1..=high), random.random_range(1..10));
                format!("{first}-{last}/{step}")
            }
            _ => name(random, first),
        }
    };
    match random.random_range(0..6) {
        0 | 1 => "*".to_owned(),
        2 => format!("*/{}", random.random_range(1..=high.max(2))),
        3 => (0..random.random_range(1..4)).map(|_| item(random)).collect::<Vec<String>>().join(","),
        _ => item(random),
    }
}

#[test]
fn next_runs_are_those_of_croniter() {
    let mut random = ChaCha8Rng::seed_from_u64(8);
    let mut questions = Vec::new();
    while questions.len() < LINES {
        let line = [
            field(&mut random, 0, 59, &[]),
            field(&mut random, 0, 23, &[]),
            // No month lacks these days: what never comes is refused here, and an error there.
            field(&mut random, 1, 28, &[]),
            field(&mut random, 1, 12, &MONTHS),
            field(&mut random, 0, 6, &WEEKDAYS),
        ]
        .join(" ");
        // From 1970 to 2090, and often just before the end of a day, a month or a year.
        let start: u64 = random.random_range(0..3_786_912_000);
        let start = if random.random_range(0..4) == 0 { start / 86_400 * 86_400 + 86_399 } else { start };
        questions.push((start, line));
    }
    questions.extend([
        (951_782_399, "0 0 29 2 *".to_owned()),
        (1_000_000_000, "0 0 31 * *".to_owned()),
        (1_000_000_000, "0 0 31 1-6 7".to_owned()),
        (1_000_000_000, "59 23 31 12 5-7".to_owned()),
        (4_000_000_000, "0 0 1-31 * 1".to_owned()),
    ]);
    let asked: String = questions.iter().map(|(start, line)| format!("{start}\t{line}\n")).collect();
    let check = concat!(env!("CARGO_MANIFEST_DIR"), "/cron_check.py");
    let mut child = Command::new(python_with("CRON_PYTHON", "croniter-", "import croniter"))
        .arg(check)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(asked.as_bytes()));
    let answered = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(answered.status.success(), "the Python failed");
    let theirs: Vec<u64> =
        String::from_utf8(answered.stdout).unwrap().lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(theirs.len(), questions.len());
    for ((start, line), theirs) in questions.iter().zip(theirs) {
        let ours = Cron::parse(line).unwrap_or_else(|error| panic!("{line}: {error}")).next(*start);
        assert_eq!(ours, Some(theirs), "{line} after {start}");
    }
}
