//! The page for sources of URIs, in a real browser: everything by keyboard, and looked at. With ORBWEAVER_PICTURES=FOLDER what was seen is kept there.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::json;
use tests::browser::Browser;
use tests::program::{Running, run};
use tests::wait_until;

/// Posts to the page's door, whatever the headers; gives the status line and the body.
fn post(address: &str, headers: &str, body: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    write!(stream, "POST /sources/api HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

#[test]
fn a_person_makes_a_job_imports_uris_and_uploads_a_script_by_keyboard() {
    let work = tempfile::tempdir().unwrap();
    let data = work.path().join("data").to_str().unwrap().to_owned();
    let node = Running::start(["node", "--data", &data, "--http", "127.0.0.1:0"], work.path(), "node");
    let address = || {
        let stderr = node.stderr();
        stderr
            .lines()
            .find_map(|line| line.strip_prefix("sources: http://")?.strip_suffix("/sources"))
            .map(str::to_owned)
    };
    wait_until("the page is named", || address().is_some());
    wait_until("the node answers", || run(&["ctl", "--data", &data, "job", "list"]).code == Some(0));
    let address = address().unwrap();
    let token = std::fs::read_to_string(work.path().join("data/http.token")).unwrap().trim().to_owned();

    // Nobody else gets in, and nobody from elsewhere.
    let (json, bearer) = ("Content-Type: application/json\r\n", format!("Authorization: Bearer {token}\r\n"));
    let jobs = r#"{"op": "jobs"}"#;
    for (headers, status) in [
        (json.to_owned(), "401"),
        (format!("{json}Authorization: Bearer wrong\r\n"), "401"),
        (bearer.clone(), "415"),
        (format!("{json}{bearer}Origin: http://evil.example\r\n"), "403"),
        (format!("{json}{bearer}Sec-Fetch-Site: cross-site\r\n"), "403"),
        (format!("{json}{bearer}"), "200"),
    ] {
        let (head, body) = post(&address, &headers, jobs);
        assert!(head.contains(status), "{headers}: {head}\n{body}");
    }
    let (head, body) = post(&address, &format!("{json}{bearer}"), r#"{"op": "nonsense"}"#);
    assert!(head.contains("400") && body.contains("nonsense"), "{head} {body}");

    let mut browser = Browser::start(work.path());
    browser.open(&format!("http://{address}/sources"));
    browser.tab_to("token");
    browser.type_in(&token);
    browser.press("Enter");
    browser.until("the page lets in", "!document.getElementById('main').hidden");

    browser.tab_to("job-name");
    browser.type_in("front pages");
    browser.press("Enter");
    browser.until("the job is made", "document.getElementById('jobs').innerText.includes('front pages')");

    browser.tab_to("uris");
    browser.type_in("http://127.0.0.1:9/one\n<b>no uri</b>\nhttp://127.0.0.1:9/two;http://127.0.0.1:9/three\nhttp://127.0.0.1:9/one\n");
    browser.press("Tab"); // the file
    browser.press("Tab"); // the button
    browser.press("Space");
    browser.until("it is imported", "!document.getElementById('outcome').hidden");
    assert_eq!(browser.look("document.getElementById('accepted').textContent"), json!("3 accepted."));
    assert_eq!(browser.look("document.getElementById('refused-count').textContent"), json!("2 refused."));
    let refused = browser.look("document.getElementById('refused').innerText").as_str().unwrap().to_owned();
    assert!(
        refused.contains("<b>no uri</b>") && refused.contains("stood there before"),
        "as text, with the reason: {refused}"
    );
    assert_eq!(browser.look("document.activeElement.id"), json!("outcome"), "who listens is led there");

    let list = work.path().join("list.csv");
    std::fs::write(&list, "http://127.0.0.1:9/four\nhttp://127.0.0.1:9/one\n").unwrap();
    browser.choose_file("list", &list);
    browser.tab_to("uris");
    browser.look("document.querySelector('#import button').focus()");
    browser.press("Enter");
    browser.until("the file is imported", "document.getElementById('accepted').textContent === '1 accepted.'");
    let refused = browser.look("document.getElementById('refused').innerText").as_str().unwrap().to_owned();
    assert!(refused.contains("24 hours"), "{refused}");

    // A file that is dropped is one that was chosen; two at once are not.
    let drop_files = |names: &str| {
        format!(
            "(() => {{ const data = new DataTransfer(); for (const name of {names}) data.items.add(new File(['http://127.0.0.1:9/five\\n'], name)); \
             document.getElementById('drop').dispatchEvent(new DragEvent('drop', {{dataTransfer: data, bubbles: true, cancelable: true}})); }})()"
        )
    };
    browser.look(&drop_files("['a.csv', 'b.csv']"));
    browser.until("one at a time", "document.getElementById('said').textContent.includes('One file at a time')");
    browser.look(&drop_files("['dropped.csv']"));
    browser.look("document.querySelector('#import button').click()");
    browser.until(
        "the dropped file is imported",
        "document.getElementById('accepted').textContent === '1 accepted.' && document.getElementById('refused-count').textContent === '0 refused.'",
    );

    let wrong = work.path().join("letter.docx");
    std::fs::write(&wrong, "PK").unwrap();
    browser.choose_file("list", &wrong);
    browser.look("document.querySelector('#import button').click()");
    browser.until("it is refused at once", "document.getElementById('said').textContent.includes('CSV or TXT')");

    let script = work.path().join("make.py");
    std::fs::write(&script, "print('http://127.0.0.1:9/made')\n").unwrap();
    browser.choose_file("script-file", &script);
    browser.tab_to("cron");
    browser.type_in("* * * * * *");
    browser.press("Enter");
    browser.until("six fields are refused", "document.getElementById('said').textContent.includes('6 fields')");
    browser.look("document.getElementById('cron').value = ''");
    browser.tab_to("cron");
    browser.type_in("0 4 * * *");
    browser.press("Enter");
    browser.until("the script is on", "document.getElementById('said').textContent.includes('runs at 0 4 * * *')");
    browser.until(
        "its next run is shown",
        "(async () => { await show(); return document.getElementById('jobs').innerText.includes('04:00:00'); })()",
    );
    browser.look("[...document.querySelectorAll('#jobs button')].find(one => one.textContent === 'Run').click()");
    browser.until(
        "its run is in the log",
        "(async () => { await show(); return /generator RUN[\\s\\S]*\"accepted\":1/.test(document.getElementById('logs').innerText); })()",
    );
    browser.until("its task is there", "document.getElementById('tasks').innerText.includes('/made')");
    let labelled = "[...document.querySelectorAll('input, select, textarea')].every(one => one.labels.length > 0)";
    assert_eq!(browser.look(labelled), json!(true), "everything that can be filled in has a name");
    let wide = browser.look("document.documentElement.scrollWidth <= document.documentElement.clientWidth");
    assert_eq!(wide, json!(true), "nothing hangs over the edge");

    let picture = browser.picture();
    assert!(picture.starts_with(b"\x89PNG") && picture.len() > 20_000, "{} bytes", picture.len());
    if let Some(folder) = std::env::var_os("ORBWEAVER_PICTURES") {
        std::fs::write(std::path::Path::new(&folder).join("sources.png"), picture).unwrap();
    }
    drop(browser);
    node.interrupt();
    assert_eq!(node.wait().code, Some(0));
}
