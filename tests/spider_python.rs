//! A real Scrapy (PyPI) crawls the synthetic web by what a node tells it, through our Python package.
//! The Python is `SCRAPY_PYTHON`, or the one that `make setup` prepared, or python3 if that has Scrapy.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::process::Command;

use serde_json::{Value, json};
use simulation::world::web::{Kind, Verdict};
use tests::cluster::web;
use tests::python::python_with;
use tests::spider::start;

#[test]
fn scrapy_crawls_the_whole_web_that_it_is_told_of() {
    let python = python_with("SCRAPY_PYTHON", "scrapy-", "import scrapy");
    let work = tempfile::tempdir().unwrap();
    let server = web(6, 20);
    let settings = "[filter]\nscope = \"any\"\n[spiders]\nhard_rate = 0\nfailures_max = 1\n[score]\nby = \"pagerank\"\nupdate_pages = 20\n";
    let (running, spider) = start(work.path(), settings, "node");
    let folder = env!("CARGO_MANIFEST_DIR");
    let script = format!("{folder}/spider_client.py");
    // As users install it; without a network, and not in the folder itself, as building leaves files there.
    let (copy, package) = (work.path().join("python"), work.path().join("installed"));
    let copied = Command::new("cp").arg("-r").arg(format!("{folder}/../python")).arg(&copy).status();
    assert!(copied.is_ok_and(|status| status.success()));
    let install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--target"];
    let installed = Command::new(&python).args(install).arg(&package).arg(&copy).output().unwrap();
    assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
    // Nobody listens at the first of its nodes.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let doors = format!("http://{closed},http://{}", spider.address());
    let output = Command::new(python)
        .arg(script)
        .arg(package)
        .arg(doors)
        .args(server.seeds())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("it could be asked before");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    let told: Value = serde_json::from_str(stdout.lines().last().unwrap_or_default()).expect("a line of JSON");
    let seen: BTreeSet<&str> = told["seen"].as_array().unwrap().iter().map(|url| url.as_str().unwrap()).collect();
    assert_eq!(seen.len(), told["seen"].as_array().unwrap().len(), "no page twice");
    assert_eq!(told["crawled"].as_u64(), Some(seen.len() as u64));
    // The web's own list, made without a crawler: all of it is seen, and nothing that must not be.
    let expected = server.web().expected();
    let pages = expected.must.iter().filter(|(_, outcome)| outcome.kind == Kind::Page).map(|(url, _)| url.as_str());
    let missed: Vec<&str> = pages.filter(|url| !seen.contains(url)).collect();
    assert!(missed.is_empty(), "{} of {} pages are missed: {missed:?}\n{stderr}", missed.len(), expected.must.len());
    let wrong: Vec<&&str> =
        seen.iter().filter(|url| !matches!(expected.judge(url), Verdict::Must | Verdict::May)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert_eq!((told["reason"].as_str(), told["failed"].as_u64()), (Some("finished"), Some(0)), "{told}");
    let stats = &told["stats"];
    assert_eq!((stats["scheduled"].as_u64(), stats["leased"].as_u64()), (Some(0), Some(0)), "{stats}");
    assert!(running.kill());
}

#[test]
fn the_manager_of_frontera_drives_the_backend() {
    let python = python_with("FRONTERA_PYTHON", "frontera-", "from frontera.core.manager import FrontierManager");
    let work = tempfile::tempdir().unwrap();
    let settings = "[filter]\nscope = \"any\"\n[spiders]\nhard_rate = 0\nretry_s = 3600\n";
    let (running, spider) = start(work.path(), settings, "node");
    let folder = env!("CARGO_MANIFEST_DIR");
    let output = Command::new(python)
        .args([format!("{folder}/spider_frontera.py"), format!("{folder}/../python")])
        .arg(format!("http://{}", spider.address()))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("it could be asked before");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    let told: Value = serde_json::from_str(stdout.lines().last().unwrap_or_default()).expect("a line of JSON");
    let (low, high) = ("http://frontera.example/low", "http://frontera.example/high");
    assert_eq!(told, json!({"seed": "http://frontera.example/", "given": [high, low], "left": []}), "{stderr}");
    let stats = spider.stats();
    assert_eq!((stats["done"].as_u64(), stats["scheduled"].as_u64()), (Some(2), Some(1)), "what failed waits: {stats}");
    assert!(running.kill());
}
