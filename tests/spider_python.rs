//! A real Scrapy (PyPI) crawls the synthetic web by what a node tells it, through our Python package.
//! The Python is `SCRAPY_PYTHON`, or the one that `make setup` prepared, or python3 if that has Scrapy.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;
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
    let (script, package) = (format!("{folder}/spider_client.py"), format!("{folder}/../python"));
    let output = Command::new(python)
        .args([&script, &package, &format!("http://{}", spider.address())])
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
    // Every page of the plain web is reachable by links of pages.
    assert!(seen.len() >= 100, "{} pages\n{stderr}", seen.len());
    let stats = &told["stats"];
    assert_eq!((stats["scheduled"].as_u64(), stats["leased"].as_u64()), (Some(0), Some(0)), "{stats}");
    assert!(running.kill());
}
