//! Runs the program `orbweaver` as a user would: arguments in, exit code, output and data folder out.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde_json::Value;
use simulation::world::server::Server;
use simulation::world::web::Addressing;

use crate::PATIENCE;

/// The program under test: `ORBWEAVER_BIN`, or what the workspace's build left beside the tests.
pub fn orbweaver() -> PathBuf {
    if let Some(path) = std::env::var_os("ORBWEAVER_BIN") {
        return path.into();
    }
    let test = std::env::current_exe().expect("a process knows its program");
    let profile = test.ancestors().nth(2).expect("tests lie in <target>/<profile>/deps");
    let program = profile.join("orbweaver");
    assert!(
        program.exists(),
        "{} is missing: build it first (cargo build --package node), or name it with ORBWEAVER_BIN",
        program.display()
    );
    program
}

/// A crawl command, to be run as often as a test likes.
pub struct Crawl {
    work: PathBuf,
    arguments: Vec<String>,
    runs: AtomicUsize,
}

impl Crawl {
    /// Crawls everything that is reachable from the seeds of `server`, into `work`/data, without delay.
    pub fn of(server: &Server, work: &Path) -> Crawl {
        let crawl = Crawl::from(&server.seeds(), work).with(&["--scope", "any", "--delay", "0s"]);
        if server.web().plan().addressing == Addressing::Addresses {
            return crawl;
        }
        let table = server.hosts_table().into_iter();
        let resolve: Vec<String> =
            table.flat_map(|(name, address)| ["--resolve".to_owned(), format!("{name}={address}")]).collect();
        crawl.with(&resolve)
    }

    /// Crawls from these URLs, into `work`/data. Loopback addresses are allowed.
    pub fn from(seeds: &[impl AsRef<str>], work: &Path) -> Crawl {
        let seeds = seeds.iter().map(|seed| seed.as_ref().to_owned());
        let crawl = Crawl { work: work.to_owned(), arguments: seeds.collect(), runs: AtomicUsize::new(0) };
        crawl.into_data(&work.join("data")).with(&["--allow-address", "127.0.0.0/8", "--json"])
    }

    fn into_data(self, data: &Path) -> Crawl {
        self.with(&["--data", data.to_str().expect("temporary folders have plain names")])
    }

    /// Adds arguments; the last of a kind wins where clap lets it.
    pub fn with(mut self, arguments: &[impl AsRef<str>]) -> Crawl {
        self.arguments.extend(arguments.iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Leaves out an argument that stands alone.
    pub fn without(mut self, argument: &str) -> Crawl {
        self.arguments.retain(|present| present != argument);
        self
    }

    /// Adds a configuration file with this content.
    pub fn with_config(self, toml: &str) -> Crawl {
        let path = self.work.join("crawl.toml");
        std::fs::write(&path, toml).expect("the temporary folder can be written");
        self.with(&["--config", path.to_str().expect("temporary folders have plain names")])
    }

    /// The data folder.
    pub fn data(&self) -> PathBuf {
        let at = self.arguments.iter().rposition(|argument| argument == "--data").expect("every crawl has one");
        PathBuf::from(&self.arguments[at + 1])
    }

    /// Starts a run.
    pub fn start(&self) -> Running {
        let run = self.runs.fetch_add(1, Relaxed);
        let arguments = std::iter::once("crawl").chain(self.arguments.iter().map(String::as_str));
        Running::start(arguments, &self.work, &format!("run-{run}"))
    }

    /// Starts a run whose standard output goes elsewhere.
    pub fn start_into(&self, stdout: Stdio) -> Running {
        let run = self.runs.fetch_add(1, Relaxed);
        let arguments = std::iter::once("crawl").chain(self.arguments.iter().map(String::as_str));
        Running::start_with(arguments, &self.work, &format!("run-{run}"), Some(stdout))
    }

    /// Runs to the end, which must be a good one.
    pub fn finish(&self) -> Ended {
        let ended = self.start().wait();
        assert_eq!(ended.code, Some(0), "{ended}");
        ended
    }
}

/// Runs the program with these arguments to its end.
pub fn run(arguments: &[&str]) -> Ended {
    let work = tempfile::tempdir().expect("temporary folders can be made");
    Running::start(arguments, work.path(), "run").wait()
}

/// Runs the program with this on its standard input.
pub fn run_with_input(arguments: &[&str], input: &str) -> Ended {
    let mut child = Command::new(orbweaver())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    // A program that refuses its arguments may not wait for its input.
    let mut stdin = child.stdin.take().expect("it has a standard input");
    let input = input.to_owned();
    let writing = std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
    let ended = child.wait_with_output().expect("the program ends");
    writing.join().expect("writing does not panic");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ended { code: ended.status.code(), stdout: text(ended.stdout), stderr: text(ended.stderr) }
}

/// Asks the door of a node for `path`; returns head and body.
pub fn get(address: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("the door is open");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("an HTTP answer");
    (head.to_owned(), body.to_owned())
}

/// A program that runs. Its output goes to files, so that nobody has to read along.
pub struct Running {
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Running {
    /// Starts the program with these arguments; its output goes to files in `work` that begin with `name`.
    pub fn start(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>, work: &Path, name: &str) -> Running {
        Running::start_with(arguments, work, name, None)
    }

    /// Starts another program, which becomes ours.
    pub fn start_command(command: Command, work: &Path, name: &str) -> Running {
        Running::spawn(command, work, name, None)
    }

    fn start_with(
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
        work: &Path,
        name: &str,
        elsewhere: Option<Stdio>,
    ) -> Running {
        let mut command = Command::new(orbweaver());
        command.args(arguments);
        Running::spawn(command, work, name, elsewhere)
    }

    fn spawn(mut command: Command, work: &Path, name: &str, elsewhere: Option<Stdio>) -> Running {
        let (stdout, stderr) = (work.join(format!("{name}.out")), work.join(format!("{name}.err")));
        let create = |path: &Path| File::create(path).expect("the temporary folder can be written");
        let child = command
            .env_remove("ORBWEAVER_LOG")
            .stdin(Stdio::null())
            .stdout(elsewhere.unwrap_or_else(|| create(&stdout).into()))
            .stderr(create(&stderr))
            .spawn()
            .expect("the program can be started");
        Running { child, stdout, stderr }
    }

    /// Waits for the end.
    pub fn wait(mut self) -> Ended {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("our own child can be waited for") {
                let (stdout, stderr) = (self.stdout(), self.stderr());
                return Ended { code: status.code(), stdout, stderr };
            }
            if started.elapsed() > PATIENCE {
                let (stdout, stderr) = (self.stdout(), self.stderr());
                panic!("still running after {PATIENCE:?}\n{}", Ended { code: None, stdout, stderr });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether it has not ended yet.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("our own child can be waited for").is_none()
    }

    /// Presses Ctrl-C.
    pub fn interrupt(&self) {
        self.signal("INT");
    }

    /// Sends it a signal, as `STOP` or `CONT`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "cannot send SIG{name}");
    }

    /// Ends it by SIGKILL; says whether it was still running.
    pub fn kill(mut self) -> bool {
        let running = self.is_running();
        let _ = self.child.kill(); // it may have ended in between
        let _ = self.child.wait();
        running
    }

    /// What follows on the first line of its standard error that begins so, once that line is whole: it may be written in pieces.
    pub fn said(&self, prefix: &str) -> Option<String> {
        let stderr = self.stderr();
        let whole = &stderr[..stderr.rfind('\n')?];
        whole.lines().find_map(|line| line.strip_prefix(prefix)).map(str::to_owned)
    }

    /// Bytes of memory that it has now, and had at most.
    pub fn memory(&self) -> (u64, u64) {
        let path = format!("/proc/{}/status", self.child.id());
        let text = std::fs::read_to_string(path).expect("it runs, on Linux");
        let of = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("every process has it");
            line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1_024
        };
        (of("VmRSS:"), of("VmHWM:"))
    }

    /// What it printed so far.
    pub fn stdout(&self) -> String {
        std::fs::read_to_string(&self.stdout).unwrap_or_default()
    }

    /// What it complained of so far.
    pub fn stderr(&self) -> String {
        std::fs::read_to_string(&self.stderr).unwrap_or_default()
    }
}

impl Drop for Running {
    /// A test that fails leaves nothing running.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program that ended.
pub struct Ended {
    /// Exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// What it printed.
    pub stdout: String,
    /// What it complained of.
    pub stderr: String,
}

impl Ended {
    /// The summary, as `--json` prints it.
    pub fn summary(&self) -> Value {
        let lines = self.stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let summary = lines.into_iter().find(|line| line["type"] == "summary");
        summary.unwrap_or_else(|| panic!("no summary\n{self}"))
    }

    /// Asserts the exit code, and that the complaint contains all of `words`; and that it is one, not a stack of errors.
    pub fn complains(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{self}");
        for word in words {
            assert!(self.stderr.contains(word), "the complaint should name {word:?}\n{self}");
        }
        assert!(!self.stderr.contains("panicked"), "{self}");
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tail = |text: &str| text.chars().skip(text.chars().count().saturating_sub(2_000)).collect::<String>();
        write!(out, "exit code {:?}\nstdout: …{}\nstderr: …{}", self.code, tail(&self.stdout), tail(&self.stderr))?;
        // What matters of a panic stands above its backtrace.
        let lines: Vec<&str> = self.stderr.lines().collect();
        let panics = lines.windows(3).filter(|lines| lines[0].contains("panicked at"));
        panics.take(3).try_for_each(|lines| write!(out, "\n{}", lines.join("\n")))
    }
}
