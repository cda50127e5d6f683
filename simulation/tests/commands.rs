//! The program from outside: what it prints, and how it ends.

use std::path::Path;
use std::process::{Command, Output};

fn simulation(directory: &Path, arguments: &str) -> Output {
    let program = env!("CARGO_BIN_EXE_simulation");
    Command::new(program)
        .args(arguments.split_whitespace())
        .current_dir(directory)
        .output()
        .expect("the program starts")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn a_violation_is_named_shrunk_and_replayed() {
    let directory = tempfile::tempdir().expect("a place for files");
    let broken = simulation(directory.path(), "many --layer toy --count 5 --mutant no_delay --threads 1");
    assert_eq!(broken.status.code(), Some(1), "{}", said(&broken));
    let text = said(&broken);
    assert!(text.contains("I2 crawl_delay_kept"), "{text}");
    assert!(text.contains("simulation run --seed 1 --layer toy --mutant no_delay"), "{text}");
    assert!(text.contains("simulation replay shrunk.toml --layer toy --mutant no_delay"), "{text}");

    let replayed = simulation(
        directory.path(),
        "replay shrunk.toml --layer toy --mutant no_delay --no-shrink --log --timeline run.html",
    );
    assert_eq!(replayed.status.code(), Some(1));
    assert!(said(&replayed).contains("VIOLATION I2 crawl_delay_kept"), "{}", said(&replayed));
    assert!(said(&replayed).contains("FetchStarted"), "{}", said(&replayed));
    assert!(directory.path().join("run.html").exists());
    let mended = simulation(directory.path(), "replay shrunk.toml --layer toy");
    assert_eq!(mended.status.code(), Some(0), "{}", said(&mended));
    let corpus = simulation(directory.path(), "corpus --layer toy --directory .");
    assert_eq!(corpus.status.code(), Some(0), "{}", said(&corpus));
    assert!(said(&corpus).contains("holds, and catches no_delay"), "{}", said(&corpus));
}

#[test]
fn clean_seeds_end_well_and_are_the_same_twice() {
    let directory = tempfile::tempdir().expect("a place for files");
    let twice = simulation(directory.path(), "twice --layer toy --count 4 --json");
    assert_eq!(twice.status.code(), Some(0), "{}", said(&twice));
    let summary: serde_json::Value = serde_json::from_slice(&twice.stdout).expect("JSON");
    assert_eq!((summary["seeds"].as_u64(), summary["twice"].as_u64()), (Some(4), Some(4)));
    let hash = |arguments: &str| {
        let output = simulation(directory.path(), arguments);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        report["hash"].as_str().map(str::to_owned)
    };
    let run = "run --layer toy --seed 7 --json";
    assert_eq!(hash(run), hash(run));
    assert_ne!(hash(run), hash("run --layer toy --seed 7 --json --without crashes,partitions,power,loss"));
}

#[test]
fn a_seed_s_plan_and_the_seed_run_the_same() {
    let directory = tempfile::tempdir().expect("a place for files");
    let plan = simulation(directory.path(), "plan --seed 9");
    std::fs::write(directory.path().join("nine.toml"), &plan.stdout).expect("a file is written");
    let hash = |output: Output| said(&output).split("hash ").nth(1).map(|rest| rest[..16].to_owned());
    let replayed = hash(simulation(directory.path(), "replay nine.toml --layer toy"));
    assert!(replayed.is_some());
    assert_eq!(replayed, hash(simulation(directory.path(), "run --seed 9 --layer toy")));
    let corpus = simulation(directory.path(), "corpus --layer toy --directory .");
    assert_eq!(corpus.status.code(), Some(0));
    assert!(said(&corpus).contains("nine"), "{}", said(&corpus));
}

#[test]
fn a_mutant_that_survives_fails_the_hunt() {
    let directory = tempfile::tempdir().expect("a place for files");
    let caught = simulation(directory.path(), "mutants --layer toy");
    assert_eq!(caught.status.code(), Some(0), "{}", said(&caught));
    assert!(said(&caught).contains("4 of 4 mutants caught by an invariant"), "{}", said(&caught));
    let unknown = simulation(directory.path(), "mutants --layer toy --mutant nobody");
    assert_ne!(unknown.status.code(), Some(0));
}

#[test]
fn a_file_that_is_no_plan_is_refused() {
    let directory = tempfile::tempdir().expect("a place for files");
    std::fs::write(directory.path().join("bad.toml"), "seed = 1\nnodes = 3\n").expect("a file is written");
    let refused = simulation(directory.path(), "replay bad.toml --layer toy");
    assert_ne!(refused.status.code(), Some(0));
    assert!(said(&refused).contains("bad.toml is no plan"), "{}", said(&refused));
}
