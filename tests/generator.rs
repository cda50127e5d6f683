//! Jobs with generators, through the program: scripts that run, what they print as tasks, tasks that are fetched, and what is written down. Cases of the URI
//! generator have their numbers.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tests::program::{Ended, Running, orbweaver, run};
use tests::wait_until;

/// A node alone.
struct Node {
    work: tempfile::TempDir,
    running: Option<Running>,
    settings: &'static str,
    starts: usize,
    /// Whom it runs as; as the tests do if absent.
    user: Option<u32>,
}

impl Node {
    fn start(settings: &'static str) -> Node {
        let mut node = Node { work: tempfile::tempdir().unwrap(), running: None, settings, starts: 0, user: None };
        node.start_again();
        node
    }

    /// A node of another user. The program lies where only this user looks, perhaps: it gets another name.
    fn start_as(settings: &'static str, user: u32) -> Node {
        let mut node =
            Node { work: tempfile::tempdir().unwrap(), running: None, settings, starts: 0, user: Some(user) };
        let program = node.path("orbweaver");
        let linked = std::fs::hard_link(orbweaver(), &program);
        linked.or_else(|_| std::fs::copy(orbweaver(), &program).map(drop)).unwrap();
        let given = Command::new("chown").arg(user.to_string()).arg(node.work.path()).status();
        assert!(given.unwrap().success());
        node.start_again();
        node
    }

    fn start_again(&mut self) {
        let file = self.path("node.toml");
        std::fs::write(&file, format!("[filter]\nscope = \"any\"\n[politeness]\ndelay_ms = 0\n{}", self.settings))
            .unwrap();
        let (data, file) = (self.data(), file.to_str().unwrap().to_owned());
        let arguments = ["node", "--data", &data, "--config", &file, "--allow-address", "127.0.0.0/8"];
        self.starts += 1;
        let name = format!("node{}", self.starts);
        self.running = Some(match self.user {
            None => Running::start(arguments, self.work.path(), &name),
            Some(user) => {
                let mut command = Command::new("setpriv");
                command.args([format!("--reuid={user}"), format!("--regid={user}"), "--clear-groups".to_owned()]);
                command.arg(self.path("orbweaver")).args(arguments).env("HOME", self.path("home"));
                Running::start_command(command, self.work.path(), &name)
            }
        });
        wait_until("the node answers", || self.ctl(&["nodes"]).code == Some(0));
    }

    fn kill(&mut self) {
        self.running.take().expect("it runs").kill();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.work.path().join(name)
    }

    fn data(&self) -> String {
        self.path("data").to_str().unwrap().to_owned()
    }

    fn ctl(&self, arguments: &[&str]) -> Ended {
        run(&[&["ctl", "--data", &self.data()], arguments].concat())
    }

    /// The answer to a command that must succeed.
    fn ask(&self, arguments: &[&str]) -> Value {
        let ended = self.ctl(&[arguments, &["--json"]].concat());
        assert_eq!(ended.code, Some(0), "{arguments:?}\n{ended}");
        serde_json::from_str(ended.stdout.trim()).unwrap()
    }

    fn script(&self, name: &str, code: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, code).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn log(&self, job: &str, kind: &str) -> Vec<Value> {
        self.ask(&["log", job, "--kind", kind, "--limit", "1000"]).as_array().unwrap().clone()
    }

    /// Runs the generator of a job, and waits for what is written down of it.
    fn run(&self, job: &str) -> Value {
        let before = self.log(job, "generator").len();
        self.ask(&["generator", "run", job]);
        let mut entry = Value::Null;
        wait_until("the generator has run", || {
            let log = self.log(job, "generator");
            entry = log.first().cloned().unwrap_or_default();
            log.len() > before
        });
        entry
    }

    fn tasks(&self, job: &str) -> Vec<Value> {
        self.ask(&["task", "list", job, "--limit", "5000"]).as_array().unwrap().clone()
    }
}

fn uris(tasks: &[Value]) -> Vec<&str> {
    let mut uris: Vec<&str> = tasks.iter().map(|task| task["uri"].as_str().unwrap()).collect();
    uris.sort_unstable();
    uris
}

#[test]
fn case_14_and_15_a_script_makes_tasks_and_none_twice_and_everything_of_a_job_goes_with_it() {
    let node = Node::start("");
    let base = "http://127.0.0.1:9";
    node.ask(&["job", "add", "news", "--priority", "-1", "--customer", "me"]);
    let code = format!(
        "import json\nprint('{base}/plain')\nprint(json.dumps({{'uri': '{base}/with', 'args': {{'headers': {{'X-Key': 'k7'}}, 'cookies': {{'a': '1', 'b': '2'}}}}}}))\n\
         print({{'uri': '{base}/gone'}})\nprint('no uri')\nprint('{{\"url\": 1}}')\nimport sys\nprint('mind', file=sys.stderr)\n"
    );
    let script = node.script("make.py", &code);
    let made = node.ask(&["generator", "add", "news", &script]);
    assert_eq!(made["code_type"], 1);
    let shown = node.ctl(&["generator", "show", "news"]);
    assert_eq!(shown.stdout.trim_end(), code.trim_end(), "case 2: the generator holds the file's content");

    let entry = node.run("news");
    assert_eq!(entry["status"], 2, "{entry:#}");
    assert!(entry["failed_reason"].as_str().unwrap().contains("mind"), "what it complained about: {entry:#}");
    let tally: Value = serde_json::from_str(entry["content"].as_str().unwrap()).unwrap();
    assert_eq!(tally, json!({"accepted": 3, "known": 0, "refused": 2, "unsaved": 0}));
    let tasks = node.tasks("news");
    let expected = ["gone", "plain", "with"].map(|path| format!("{base}/{path}"));
    assert_eq!(uris(&tasks), expected.each_ref().map(String::as_str), "case 14");
    let errors = node.log("news", "error");
    let reasons: Vec<&str> = errors.iter().map(|entry| entry["failed_reason"].as_str().unwrap()).collect();
    assert_eq!(reasons.len(), 2, "{reasons:?}");
    assert!(reasons.iter().any(|reason| reason.contains("line 5: field `uri` not found")), "case 16: {reasons:?}");

    let with = tasks.iter().find(|task| task["uri"].as_str().unwrap().ends_with("/with")).unwrap();
    assert_eq!(with["args"]["cookies"], json!({"a": "1", "b": "2"}));
    assert!(tasks.iter().all(|task| task["status"] == 1), "nothing is fetched before leases can be had: {tasks:?}");

    let entry = node.run("news");
    let tally: Value = serde_json::from_str(entry["content"].as_str().unwrap()).unwrap();
    assert_eq!(tally, json!({"accepted": 0, "known": 3, "refused": 2, "unsaved": 0}), "case 15: none is there twice");
    assert_eq!(node.tasks("news").len(), 3);

    let row = &node.ask(&["job", "list", "news"])[0];
    assert_eq!((&row["tasks"], &row["priority"], &row["customer"]), (&json!(3), &json!(-1), &json!("me")));
    node.ask(&["job", "delete", "news"]);
    node.ctl(&["task", "list", "news"]).complains(1, &["_id not found", "enter it again"]);
    assert_eq!(node.ask(&["job", "list"]), json!([]), "its tasks, generators and logs went with it");
    let gone = node.ask(&["site", "status", row["_id"].as_str().unwrap()]);
    assert_eq!(gone["itemsList"][0]["itemObject"][0]["state"], 9, "and the site of its own: {gone}");
}

#[test]
fn what_is_wrong_is_refused_with_the_remedy_and_lands_in_the_log() {
    let node = Node::start("");
    node.ask(&["job", "add", "news"]);
    let script = node.script("make.sh", "echo http://127.0.0.1:9/\n");
    node.ctl(&["generator", "add", "news", &script, "--cron", "* * * * * *"]).complains(1, &["6 fields", "five"]);
    let errors = node.log("news", "error");
    assert!(errors[0]["failed_reason"].as_str().unwrap().contains("6 fields"), "case 11: {errors:?}");
    let other = node.script("make.js", "console.log(1)\n");
    node.ctl(&["generator", "add", "news", &other]).complains(2, &["make.js", "Python (.py)"]);
    node.ctl(&["job", "add", &"n".repeat(129)]).complains(1, &["name", "128"]);
    node.ctl(&["job", "add", "other", "--crawl", "nobody"]).complains(1, &["no crawl", "nobody"]);
    node.ctl(&["task", "add", "news", "http://127.0.0.1:9/", "--args", r#"{"headers": {"Host": "x"}}"#])
        .complains(1, &["crawler's to set"]);

    let list = node.script("list.csv", "http://127.0.0.1:9/1\nnot one\nhttp://127.0.0.1:9/1\nhttp://127.0.0.1:9/2\n");
    let ended = node.ctl(&["import", &list, "--job", "news", "--json"]);
    assert_eq!(ended.code, Some(1), "{ended}");
    let report: Value = serde_json::from_str(ended.stdout.trim()).unwrap();
    assert_eq!((&report["job"], &report["kept"], &report["refused"]), (&json!("news"), &json!(2), &json!(2)));
    let again = node.ctl(&["import", &list, "--job", "news"]);
    assert!(again.stdout.contains("within the last 24 hours"), "{again}");
    let names: Vec<Value> = node.log("news", "error").iter().map(|entry| entry["name"].clone()).collect();
    assert_eq!(names.iter().filter(|name| **name == "DUPLICATE_URI").count(), 2, "{names:?}");
    node.ask(&["job", "add", "second"]);
    node.ask(&["task", "add", "second", "http://127.0.0.1:9/1"]);
    for job in ["third", "fourth"] {
        node.ask(&["job", "add", job, "--known-anywhere"]);
    }
    node.ask(&["task", "add", "third", "http://127.0.0.1:9/1"]);
    node.ctl(&["task", "add", "fourth", "http://127.0.0.1:9/1"]).complains(1, &["another job has had it"]);

    let out = node.path("out");
    let ended = run(&["export", &node.data(), "--tasks", out.to_str().unwrap()]);
    assert_eq!(ended.code, Some(0), "{ended}");
    let lines = |name: &str| -> Vec<Value> {
        let text = std::fs::read_to_string(out.join(format!("{name}.json"))).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    assert_eq!(lines("Job").len(), 4);
    let tasks = lines("CrawlerTask");
    assert_eq!(tasks.len(), 4, "{tasks:?}");
    assert!(tasks.iter().all(|task| task["_id"]["$oid"].as_str().unwrap().len() == 24));
    assert!(tasks.iter().all(|task| task["add_datetime"]["$date"].as_str().unwrap().ends_with('Z')));
    assert!(lines("ErrorLog").iter().any(|entry| entry["name"] == "DUPLICATE_URI"));
    assert!(lines("CrawlerTaskGenerator").is_empty() && lines("AlertLog").is_empty());
}

#[test]
fn case_1_3_and_6_to_9_lists_become_tasks_and_each_refusal_is_shown_and_in_the_error_log() {
    let node = Node::start("");
    for job in ["csv", "txt", "text"] {
        node.ask(&["job", "add", job]);
    }
    let long = format!("http://127.0.0.1:9/{}", "x".repeat(8_000));
    let list = format!("http://127.0.0.1:9/1\nno uri\n{long}\nhttp://127.0.0.1:9/2\nhttp://[broken\n");
    for (job, file) in [("csv", "list.csv"), ("txt", "list.txt")] {
        let ended = node.ctl(&["import", &node.script(file, &list), "--job", job]);
        assert_eq!(ended.code, Some(1), "{ended}");
        assert_eq!(uris(&node.tasks(job)), ["http://127.0.0.1:9/1", "http://127.0.0.1:9/2"], "case 1");
        let shown = ended.stdout.replace("line      ", "line ");
        let errors = node.log(job, "error");
        let logged: Vec<&str> = errors.iter().map(|entry| entry["failed_reason"].as_str().unwrap()).collect();
        assert!(errors.iter().all(|entry| entry["name"] == "ERROR_URI"), "{errors:?}");
        for (line, why) in [("line 2", ""), ("line 3", "8000 characters"), ("line 5", "")] {
            let is_it = |text: &str| text.contains(line) && text.contains(why);
            assert!(logged.iter().any(|reason| is_it(reason)), "case 6 and 7: {line} in {logged:?}");
            assert!(shown.lines().any(is_it), "shown together at the end: {line} in {ended}");
        }
        assert_eq!(logged.len(), 3, "{logged:?}");
    }

    // As a text from somewhere else.
    let text =
        node.script("paste", "http://127.0.0.1:9/3\n  http://127.0.0.1:9/4 ; http://127.0.0.1:9/5\nftp://127.0.0.1/\n");
    let ended = node.ctl(&["import", &text, "--job", "text"]);
    assert_eq!(ended.code, Some(1), "{ended}");
    assert_eq!(uris(&node.tasks("text")).len(), 3, "case 3");
    assert!(ended.stdout.contains("line      3") && node.log("text", "error").len() == 1, "case 9: {ended}");
    let row = node.script("row.txt", "http://127.0.0.1:9/6,http://127.0.0.1:9/7\n");
    node.ctl(&["import", &row, "--job", "text"]).complains(2, &["commas", "enter them again, one a line"]);
    assert_eq!(node.tasks("text").len(), 3, "case 8: nothing of it is taken");
}

#[test]
fn case_12_and_13_a_run_that_is_wanted_waits_in_a_lane_or_is_refused_and_in_the_error_log() {
    let node = Node::start("");
    let id = node.ask(&["job", "add", "news", "--priority", "0"])["_id"].as_str().unwrap().to_owned();
    node.ctl(&["generator", "run", "nobody"]).complains(1, &["_id not found", "enter it again"]);
    let general = node.ask(&["log", "--kind", "error"]);
    assert!(general[0]["failed_reason"].as_str().unwrap().contains("_id not found"), "case 13: {general}");
    node.ctl(&["generator", "run", "news"]).complains(1, &["no generator that is on"]);
    let errors = node.log("news", "error");
    assert_eq!((errors.len(), &errors[0]["name"]), (1, &json!("ERROR_JOB")), "{errors:?}");
    assert!(errors[0]["failed_reason"].as_str().unwrap().contains("no generator that is on"), "{errors:?}");

    // What it complains about and how it ended is in the log, and what it printed counts for nothing.
    let script = node.script("fails.sh", "echo http://127.0.0.1:9/\necho oops 1>&2\nexit 3\n");
    node.ask(&["generator", "add", "news", &script]);
    let ran = node.ask(&["generator", "run", &id]);
    assert_eq!((&ran["queue"], &ran["job"]), (&json!("high"), &json!(id)), "case 12");
    wait_until("the run is over", || node.log("news", "generator").len() == 1);
    let entry = &node.log("news", "generator")[0];
    let reason = entry["failed_reason"].as_str().unwrap();
    assert!(entry["status"] == 1 && reason.contains("exit code 3") && reason.contains("oops"), "{entry:#}");
    let errors = node.log("news", "error");
    assert!(errors.iter().any(|entry| entry["failed_reason"].as_str().unwrap().contains("exit code 3")), "{errors:?}");
    assert!(node.tasks("news").is_empty());
}

#[test]
fn entries_that_are_due_run_once_and_their_state_outlives_the_node() {
    let mut node = Node::start("");
    node.ask(&["job", "add", "often"]);
    let script = node.script("make.sh", "echo http://127.0.0.1:9/t$(date +%s%N)\n");
    let made = node.ask(&["generator", "add", "often", &script, "--cron", "0 0 1 1 *"]);
    assert_eq!(made["cron"], "0 0 1 1 *", "case 10");
    wait_until("it has a next run", || node.ask(&["job", "list", "often"])[0]["next_run"].is_string());
    let tab = node.ctl(&["generator", "tab", "--at"]).stdout;
    let id = node.ask(&["job", "list", "often"])[0]["_id"].as_str().unwrap().to_owned();
    assert!(
        tab.starts_with(&format!("0 0 1 1 * GeneratorDispatch('{id}').run() # job name:often with id:{id}")),
        "{tab}"
    );
    let tab = node.ctl(&["generator", "tab"]).stdout;
    assert!(
        tab.starts_with(&format!("0 0 1 1 * GeneratorDispatch('{id}').run() #job name:often with id:{id}")),
        "the other form: {tab}"
    );

    // Three years are missed: one run makes up for them.
    let due = node.script(
        "tab",
        &format!("0 0 1 1 * GeneratorDispatch('{id}').run() @1600000000 # x\n# nightly\n0 3 * * * echo http://127.0.0.1:9/ #2020-01-01T00:00:00\nnonsense\n"),
    );
    let ended = node.ctl(&["generator", "import-tab", &due, "--json"]);
    assert_eq!(ended.code, Some(1), "{ended}");
    let report: Value = serde_json::from_str(ended.stdout.trim()).unwrap();
    assert_eq!(report["jobs"].as_array().unwrap().len(), 2, "{report}");
    assert!(report["refused"][0].as_str().unwrap().contains("line 4"), "case 19: {report}");
    let general = node.ask(&["log", "--kind", "error"]);
    assert!(general[0]["failed_reason"].as_str().unwrap().contains("line 4"), "case 19: {general}");
    wait_until("both have run", || {
        ["often", "nightly"].iter().all(|job| node.log(job, "generator").len() == 1 && node.tasks(job).len() == 1)
    }); // case 18
    let row = |node: &Node| node.ask(&["job", "list", "often"])[0].clone();
    let before = row(&node);
    assert!(before["last_run"].is_string() && before["next_run"].as_str().unwrap().ends_with("-01-01 00:00:00"));

    // Killed and started again: nothing runs twice, and everything is where it was.
    node.kill();
    node.start_again();
    wait_until("the job is there", || node.ctl(&["job", "list", "often"]).code == Some(0));
    assert_eq!(row(&node), before);
    node.ask(&["job", "add", "mark"]);
    let mark = node.script("mark.sh", "echo http://127.0.0.1:9/\n");
    node.ask(&["generator", "add", "mark", &mark]);
    node.run("mark");
    assert_eq!((node.log("often", "cron").len(), node.tasks("often").len()), (1, 1));

    // A new version: the former is off. Switched off, nothing is planned.
    node.ask(&["generator", "add", "often", &script, "--cron", "30 2 * * *"]);
    let versions = node.ask(&["generator", "list", "often"]);
    let status: Vec<&Value> = versions.as_array().unwrap().iter().map(|version| &version["status"]).collect();
    assert_eq!(status, [&json!(5), &json!(4)], "case 17");
    wait_until("the new cron counts", || {
        row(&node)["next_run"].as_str().is_some_and(|next| next.ends_with("02:30:00"))
    });
    node.ask(&["job", "off", "often"]);
    wait_until("nothing is planned", || row(&node)["next_run"].is_null());
    node.ctl(&["generator", "run", "often"]).complains(1, &["no generator that is on"]);
    node.ask(&["job", "on", "often"]);
    wait_until("it is planned again", || row(&node)["next_run"].is_string());
}

#[test]
fn a_run_that_is_cut_short_by_kill_9_is_made_and_counts_once() {
    const PRINTED: usize = 40;
    let mut node = Node::start("");
    node.ask(&["job", "add", "slow"]);
    let code = format!(
        "sleep 1\nt=$(date +%s%N)\nn=0\nwhile [ $n -lt {PRINTED} ]; do echo http://127.0.0.1:9/$t-$n; n=$((n+1)); done\n"
    );
    let script = node.script("slow.sh", &code);
    node.ask(&["generator", "add", "slow", &script]);
    let moments = [0, 600, 1_200, 1_600, 2_000];
    for (runs, after_ms) in (1..).zip(moments) {
        wait_until("the run is wanted", || node.ctl(&["generator", "run", "slow"]).code == Some(0));
        std::thread::sleep(std::time::Duration::from_millis(after_ms));
        node.kill();
        node.start_again();
        wait_until("the job is there", || node.ctl(&["job", "list", "slow"]).code == Some(0));
        wait_until("the run is made", || node.log("slow", "generator").len() >= runs);
        let log = node.log("slow", "generator");
        assert_eq!((log.len(), &log[0]["status"]), (runs, &json!(2)), "{log:#?}");
        let tally: Value = serde_json::from_str(log[0]["content"].as_str().unwrap()).unwrap();
        assert_eq!(tally, json!({"accepted": PRINTED, "known": 0, "refused": 0, "unsaved": 0}));
        let tasks = node.tasks("slow");
        let times: std::collections::BTreeSet<&str> =
            tasks.iter().map(|task| task["uri"].as_str().unwrap().split('-').next().unwrap()).collect();
        assert_eq!((tasks.len(), times.len()), (runs * PRINTED, runs), "killed after {after_ms} ms: {times:?}");
    }
}

/// What is in a folder, by name.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

const TIGHT: &str = "[sources]\nscript_time_max_s = 2\nscript_memory_bytes_max = 200000000\nscript_output_bytes_max = 100000\nscript_processes_max = 16\nscript_file_bytes_max = 1000000\n";

#[test]
fn hostile_scripts_are_contained() {
    contains_hostile_scripts(&Node::start(TIGHT));
}

#[test]
fn hostile_scripts_are_contained_when_the_node_is_an_ordinary_users() {
    if !rustix::process::getuid().is_root() {
        return; // the other test is that
    }
    contains_hostile_scripts(&Node::start_as(TIGHT, 61_234));
}

fn contains_hostile_scripts(node: &Node) {
    let outside = node.path("outside");
    std::fs::create_dir(&outside).unwrap();
    let open = std::process::Command::new("chmod").arg("777").args([node.work.path(), outside.as_path()]).status();
    assert!(open.unwrap().success());
    let try_it = |name: &str, file: &str, code: &str| {
        node.ask(&["job", "add", name]);
        let script = node.script(file, code);
        node.ask(&["generator", "add", name, &script]);
        node.run(name)
    };
    let reason = |entry: &Value| entry["failed_reason"].as_str().unwrap().to_owned();

    let entry = try_it("sleeps", "sleeps.sh", "echo http://127.0.0.1:9/\nsleep 600\n");
    assert!(entry["status"] == 1 && reason(&entry).contains("longer than 2 s"), "{entry:#}");
    assert!(entry["spend_msecs"].as_u64().unwrap() < 30_000 && node.tasks("sleeps").is_empty());

    let entry = try_it("prints", "prints.py", "while True: print('http://127.0.0.1:9/' + 'x' * 1000)\n");
    assert!(entry["status"] == 1 && reason(&entry).contains("more than 100000 bytes"), "{entry:#}");

    let entry = try_it("complains", "complains.sh", "yes complaint 1>&2\n");
    assert!(entry["status"] == 1 && reason(&entry).contains("more than 100000 bytes"), "{entry:#}");

    let code = "x = bytearray(400 << 20)\nprint('http://127.0.0.1:9/')\n";
    let entry = try_it("hoards", "hoards.py", code);
    assert!(entry["status"] == 1 && reason(&entry).contains("MemoryError"), "{entry:#}");
    assert!(node.tasks("hoards").is_empty());

    // Every one of its children would write its name; when it is over none is left.
    let code = "import os, time\nn = 0\nwhile True:\n  try:\n    if os.fork() == 0:\n      os.setsid()\n      time.sleep(600)\n    n += 1\n  except OSError as e:\n    print('http://127.0.0.1:9/forks/%d' % n)\n    break\n";
    let entry = try_it("forks", "forks.py", code);
    assert_eq!(entry["status"], 2, "{entry:#}");
    let tasks = node.tasks("forks");
    let forks: u32 = tasks[0]["uri"].as_str().unwrap().rsplit('/').next().unwrap().parse().unwrap();
    assert!((1..16).contains(&forks), "{forks} children");

    let code = format!(
        "set -u\nenv | sort | cut -d= -f1 | tr '\\n' ' ' 1>&2\nls -a | tr '\\n' ' ' 1>&2\nls /proc/self/fd | wc -l 1>&2\necho x > {}/written && echo wrote outside 1>&2\ncat {}/swarm.key {}/operator.key 1>&2\nls {} 1>&2\necho done 1>&2\nhead -c 5000000 /dev/zero > big; wc -c < big 1>&2\npython3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {}), 2)' 2>&1 | tail -1 1>&2\n",
        outside.display(),
        node.data(),
        node.data(),
        node.data(),
        door(node)
    );
    let entry = try_it("looks", "looks.sh", &code);
    let said = reason(&entry);
    assert!(names(&outside).is_empty() && !said.contains("wrote outside"), "{said}");
    assert!(!said.contains("PRIVATE") && !said.contains("psk") && said.contains("No such file"), "{said}");
    assert!(!said.contains("CURRENT") && !said.contains("warc"), "the node's folder is not there: {said}");
    assert!(said.contains("HOME LANG") && !said.contains("CARGO") && !said.contains("USER"), "{said}");
    assert!(said.contains(". .. looks.sh") || said.contains(". .. script.sh"), "its folder is empty: {said}");
    assert!(said.contains("done") && !said.contains("5000000"), "{said}");
    assert!(said.contains("Network is unreachable") || said.contains("refused"), "no network: {said}");
    assert!(!said.contains("less confined"), "all of it: {said}");

    // What hides files cannot be undone, and nobody else's process leads to them.
    let code = format!(
        "umount {0} 2>&1 | head -1 1>&2\nls {0} 1>&2\nfor root in /proc/[0-9]*/root; do ls $root{0}/CURRENT 1>&2; done\nls /proc | grep -c '^[0-9]' 1>&2\n",
        node.data()
    );
    let said = reason(&try_it("digs", "digs.sh", &code));
    assert!(!said.contains("CURRENT\n") && !said.contains("warc"), "{said}");
    let seen: u32 = said.lines().next_back().unwrap().trim().parse().unwrap();
    assert!(seen < 8, "it sees {seen} processes: {said}");

    assert!(inside(node).is_empty(), "processes are left: {:?}", inside(node));
    let folder = std::env::temp_dir().join(format!("orbweaver-scripts-{}", name_of(node)));
    wait_until("no folder is left", || names(&folder).is_empty());
}

/// The node's name in logs.
fn name_of(node: &Node) -> String {
    format!("{:016x}", node.ask(&["nodes"])["Nodes"][0]["node"].as_u64().unwrap())
}

/// Processes whose folder is one of a script.
fn inside(node: &Node) -> Vec<String> {
    let mark = format!("orbweaver-scripts-{}", name_of(node));
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let inside = processes.filter(|process| {
        std::fs::read_link(process.path().join("cwd")).is_ok_and(|folder| folder.to_string_lossy().contains(&mark))
    });
    inside.map(|process| process.file_name().to_string_lossy().into_owned()).collect()
}

/// A port on which the node listens.
fn door(node: &Node) -> String {
    let text = std::fs::read_to_string(Path::new(&node.data()).join("ctl.toml")).unwrap();
    text.split("/tcp/").nth(1).unwrap().split('/').next().unwrap().to_owned()
}
