//! The worked example of docs/sites.md, pasted into a shell as it stands there, against a host on this machine.

use std::process::{Command, Stdio};

use tests::program::orbweaver;
use tests::raw::{RawServer, Reply};
use tests::sites::settings_alone;

const PAGE: &str = include_str!("../docs/sites.md");

/// The blocks of commands between two headings, in the form in which they are pasted.
fn blocks(from: &str, to: &str) -> Vec<String> {
    let (_, rest) = PAGE.split_once(from).expect("the heading is there");
    let (part, _) = rest.split_once(to).expect("so is the next");
    let blocks = part.split("```sh\n").skip(1);
    blocks.map(|block| block.split_once("```").expect("a block ends").0.to_owned()).collect()
}

#[test]
fn the_worked_example_works_as_it_is_pasted() {
    let work = tempfile::tempdir().unwrap();
    let server = RawServer::start(|asked| match asked.path {
        "/robots.txt" => Reply::status(404),
        _ => Reply::page(&["/a", "/b.zip"]),
    });
    let blocks = blocks("## Try it", "`--file` names the request");
    assert_eq!(blocks.len(), 2, "one for people, one with JSON");
    let config = work.path().join("quick.toml");
    std::fs::write(&config, settings_alone()).unwrap();
    let folder = work.path().to_str().unwrap();
    // Only where the example reaches the world is it another one: the host, the folder, and how soon a lease is there.
    let text = blocks
        .concat()
        .replace("https://example.com/", &server.url("/"))
        .replace("/tmp/", &format!("{folder}/"))
        .replace(
            "orbweaver node ",
            &format!("orbweaver node --config {} --allow-address 127.0.0.0/8 ", config.display()),
        )
        .replace("orbweaver ", &format!("{} ", orbweaver().display()));
    assert!(!text.contains("example.com"), "{text}");
    let pasted = format!("set -e\ntrap 'kill $! 2> /dev/null || true' EXIT\n{text}\nwait\necho the end\n");
    let shell = Command::new("timeout").args(["300", "sh", "-c", &pasted]).stdin(Stdio::null()).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&shell.stdout), String::from_utf8_lossy(&shell.stderr));
    let told = format!("{out}\n{err}\n{}", std::fs::read_to_string(work.path().join("try.log")).unwrap_or_default());
    assert!(shell.status.success() && out.ends_with("the end\n"), "{}: {told}", shell.status);
    for word in
        ["site news is kept", "1 URLs are kept", "site news is changed", "site news is empty", "1 sites are deleted"]
    {
        assert!(out.contains(word), "{word}: {told}");
    }
    assert!(out.contains(&server.url("/")), "the page is found: {told}");
    assert!(server.access_log().iter().all(|asked| !asked.path.ends_with(".zip")), "what is excluded is not fetched");
}
