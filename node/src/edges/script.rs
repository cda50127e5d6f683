//! Scripts of generators, run as child processes that can do little harm.
//!
//! A script runs in an empty folder of its own, with an environment of five words, nothing on its standard input and no file that is open here. It is held to
//! limits of time, memory, output, processes and size of files, and killed with everything it started when it reaches one. Where the system lets us, it
//! has namespaces of its own: no network, no other processes, nothing writable but its folder, and the node's data and the home folder are not there. The first
//! half of that is done here, the second by [`enter`], which this program runs as (`orbweaver script`): what must be done between fork and exec is done by a process
//! that does nothing else. What could not be done is told with the outcome.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use proto::source::job::CodeType;
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::process::{Pid, Resource, Rlimit, Signal};
use rustix::thread::{CapabilitySet, CapabilitySets, UnshareFlags};

/// What a line of ours on the standard error begins with.
const MARK: char = '\u{1e}';
/// How much of the standard error is kept, in bytes.
const STDERR_BYTES_MAX: usize = 10 << 10;
/// Users that nobody is, one for each run, so that processes are counted for each alone.
const USERS_FROM: u32 = 2_000_000_000;
/// How often it is looked whether a script has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What a script may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptLimits {
    /// How long.
    pub time: Duration,
    /// Bytes of memory of each process.
    pub memory_bytes: u64,
    /// Bytes that it may print.
    pub output_bytes: u64,
    /// Processes at once.
    pub processes: u64,
    /// Bytes of each file.
    pub file_bytes: u64,
}

/// What came of a script.
#[derive(Debug)]
pub struct ScriptEnd {
    /// Why it counts as failed; `None` if it went well.
    pub failure: Option<String>,
    /// What it printed.
    pub stdout: Vec<u8>,
    /// What it complained about, the beginning.
    pub stderr: String,
    /// How long it took.
    pub took: Duration,
    /// What it could not be kept from.
    pub open: Vec<String>,
    /// It was killed because it was told to stop.
    pub stopped: bool,
}

/// Runs scripts.
#[derive(Debug)]
pub struct Scripts {
    folder: PathBuf,
    limits: ScriptLimits,
    hidden: Vec<PathBuf>,
    made: AtomicU32,
}

impl Scripts {
    /// Runs scripts below a folder named after the node; what is in `hidden` they do not see.
    pub fn new(name: &str, limits: ScriptLimits, hidden: Vec<PathBuf>) -> Scripts {
        let folder = std::env::temp_dir().join(format!("orbweaver-scripts-{name}"));
        let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.parent().is_some());
        let hidden = hidden.into_iter().chain(home).filter_map(|path| path.canonicalize().ok());
        let hidden = hidden.filter(|path| !folder.starts_with(path)).collect();
        Scripts { folder, limits, hidden, made: AtomicU32::new(0) }
    }

    /// Removes what a life left behind that was killed. Call it when the data folder is ours: another life may have scripts that run.
    pub fn clean(&self) {
        if let Err(error) = std::fs::remove_dir_all(&self.folder)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(folder = %self.folder.display(), %error, "folders of former scripts stay");
        }
    }

    /// Runs one and waits for it, or kills it when `stop` says so; an error means that it could not be started. It may take minutes: call it where nobody
    /// waits.
    pub fn run(&self, code: &str, code_type: CodeType, stop: &dyn Fn() -> bool) -> io::Result<ScriptEnd> {
        let number = self.made.fetch_add(1, Relaxed);
        let folder = self.folder.join(format!("run-{number}"));
        let ended = self.run_in(&folder, number, code, code_type, stop);
        if let Err(error) = std::fs::remove_dir_all(&folder) {
            tracing::warn!(folder = %folder.display(), %error, "the folder of a script cannot be removed");
        }
        ended
    }

    fn run_in(
        &self,
        folder: &Path,
        number: u32,
        code: &str,
        code_type: CodeType,
        stop: &dyn Fn() -> bool,
    ) -> io::Result<ScriptEnd> {
        std::fs::DirBuilder::new().recursive(true).mode(0o755).create(&self.folder)?;
        std::fs::DirBuilder::new().mode(0o700).create(folder)?;
        let (program, name) = code_type.program();
        std::fs::write(folder.join(name), code)?;
        let user = rustix::process::getuid()
            .is_root()
            .then(|| USERS_FROM + std::process::id() % 1_000_000 * 100 + number % 100);
        if let Some(user) = user {
            std::os::unix::fs::chown(folder, Some(user), Some(user))?;
            std::os::unix::fs::chown(folder.join(name), Some(user), Some(user))?;
        }
        let began = Instant::now();
        let mut child = self.command(folder, user, [program, name])?.spawn()?;
        // Whoever leaves kills them all, and not only the first.
        let group = Arc::new(Group(Pid::from_raw(child.id().cast_signed())));
        let output_max = self.limits.output_bytes as usize;
        let stdout = reader(child.stdout.take(), output_max, output_max, &group);
        let stderr = reader(child.stderr.take(), STDERR_BYTES_MAX, output_max, &group);
        let mut stopped = false;
        let status = loop {
            match child.try_wait()? {
                Some(status) => break Some(status),
                None if stop() => {
                    stopped = true;
                    break None;
                }
                None if began.elapsed() >= self.limits.time => break None,
                None => std::thread::sleep(LOOK_EVERY),
            }
        };
        group.kill();
        if status.is_none() {
            child.wait()?;
        }
        let (stdout, in_bounds) = stdout.join().unwrap_or_default();
        let (stderr, few_complaints) = stderr.join().unwrap_or_default();
        let failure = match status {
            None if stopped => Some("it was killed: another node holds its job".to_owned()),
            None => Some(format!("it took longer than {} s and was killed", self.limits.time.as_secs())),
            Some(_) if !in_bounds || !few_complaints => {
                Some(format!("it printed more than {} bytes and was killed", self.limits.output_bytes))
            }
            Some(status) => fault(status),
        };
        let text = String::from_utf8_lossy(&stderr);
        let (open, complaints): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with(MARK));
        Ok(ScriptEnd {
            failure,
            stdout,
            stderr: complaints.join("\n"),
            took: began.elapsed(),
            open: open.into_iter().map(|line| line.trim_start_matches(MARK).to_owned()).collect(),
            stopped,
        })
    }

    fn command(&self, folder: &Path, user: Option<u32>, script: [&str; 2]) -> io::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("script").args(["--stage", "outer", "--folder"]).arg(folder);
        command.args(self.hidden.iter().flat_map(|path| [OsStr::new("--hide"), path.as_os_str()]));
        let ScriptLimits { time, memory_bytes, processes, file_bytes, .. } = self.limits;
        for (flag, value) in [
            ("--seconds", time.as_secs().max(1)),
            ("--memory", memory_bytes),
            ("--processes", processes),
            ("--file", file_bytes),
        ] {
            command.arg(flag).arg(value.to_string());
        }
        if let Some(user) = user {
            command.arg("--user").arg(user.to_string());
        }
        command.arg("--").args(script);
        command.env_clear().envs([
            ("PATH", OsStr::new("/usr/local/bin:/usr/bin:/bin")),
            ("LANG", OsStr::new("C.UTF-8")),
            ("HOME", folder.as_os_str()),
            ("TMPDIR", folder.as_os_str()),
            ("PYTHONDONTWRITEBYTECODE", OsStr::new("1")),
        ]);
        command.current_dir(folder).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command)
    }
}

/// A group of processes that is killed when nobody needs it any more.
struct Group(Option<Pid>);

impl Group {
    fn kill(&self) {
        if let Some(group) = self.0 {
            let _ = rustix::process::kill_process_group(group, Signal::KILL); // it may have ended by itself
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Reads to the end and keeps the beginning; kills who prints more than it may, and says whether it did not.
fn reader(
    from: Option<impl Read + Send + 'static>,
    keep: usize,
    max: usize,
    group: &Arc<Group>,
) -> std::thread::JoinHandle<(Vec<u8>, bool)> {
    let group = Arc::clone(group);
    std::thread::spawn(move || {
        let Some(mut from) = from else { return (Vec::new(), true) };
        let (mut kept, mut buffer, mut total) = (Vec::new(), vec![0; 16 << 10], 0);
        loop {
            match from.read(&mut buffer) {
                Ok(0) => return (kept, true),
                Ok(count) => {
                    total += count;
                    if total > max {
                        group.kill();
                        return (kept, false);
                    }
                    kept.extend_from_slice(&buffer[..count.min(keep.saturating_sub(kept.len()))]);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return (kept, true),
            }
        }
    })
}

fn fault(status: ExitStatus) -> Option<String> {
    match (status.code(), status.signal()) {
        (Some(0), _) => None,
        (Some(code), _) if code > 128 => Some(format!("it was ended by signal {}", code - 128)),
        (Some(code), _) => Some(format!("it ended with exit code {code}")),
        (None, signal) => Some(format!("it was ended by signal {}", signal.unwrap_or_default())),
    }
}

/// What the process between us and a script is told.
#[derive(Debug)]
pub struct Entering {
    /// It makes namespaces and starts the second one of its kind, which becomes the script.
    pub outer: bool,
    /// There are namespaces around it.
    pub enclosed: bool,
    /// Folder of the script.
    pub folder: PathBuf,
    /// What is not to be seen.
    pub hidden: Vec<PathBuf>,
    /// Seconds of the processor.
    pub seconds: u64,
    /// Bytes of memory.
    pub memory: u64,
    /// Processes.
    pub processes: u64,
    /// Bytes of a file.
    pub file: u64,
    /// The user to become.
    pub user: Option<u32>,
    /// The script.
    pub command: Vec<OsString>,
    /// Our own arguments, to be said again.
    pub again: Vec<OsString>,
}

/// Becomes a script, or starts who does; gives the exit code.
pub fn enter(entering: &Entering) -> u8 {
    // Whoever waits for us may be killed: then we are too.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let entered = if entering.outer { enclose(entering) } else { become_script(entering) };
    entered.unwrap_or_else(|error| {
        eprintln!("the script cannot be started: {error}");
        127
    })
}

fn tell(what: &str) {
    eprintln!("{MARK}{what}");
}

/// Makes namespaces and starts the second stage in them.
fn enclose(entering: &Entering) -> io::Result<u8> {
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    let mut flags =
        UnshareFlags::NEWNS | UnshareFlags::NEWPID | UnshareFlags::NEWNET | UnshareFlags::NEWIPC | UnshareFlags::NEWUTS;
    if !user.is_root() {
        flags |= UnshareFlags::NEWUSER;
    }
    // SAFETY: no thread but this one is there, and no file table is taken from another.
    #[allow(unsafe_code)]
    let unshared = unsafe { rustix::thread::unshare_unsafe(flags) };
    let unshared = unshared.map_err(io::Error::from).and_then(|()| {
        if user.is_root() {
            return Ok(());
        }
        std::fs::write("/proc/self/setgroups", "deny")?;
        std::fs::write("/proc/self/uid_map", format!("{0} {0} 1", user.as_raw()))?;
        std::fs::write("/proc/self/gid_map", format!("{0} {0} 1", group.as_raw()))?;
        keep_rights()
    });
    let mut second = Command::new("/proc/self/exe");
    second.arg("script").args(&entering.again);
    match unshared {
        Ok(()) => drop(second.arg("--enclosed")),
        Err(error) => {
            tell(&format!("no namespaces ({error}): the script has the network and sees the files of its user"))
        }
    }
    second.arg("--").args(&entering.command);
    let status = second.status()?;
    Ok(match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, signal) => 128_u8.wrapping_add(signal.unwrap_or_default() as u8),
    })
}

/// Takes the right to mount in the namespaces just made through the next exec: one who is not root there loses it otherwise.
fn keep_rights() -> io::Result<()> {
    let mut rights = rustix::thread::capabilities(None)?;
    rights.inheritable |= CapabilitySet::SYS_ADMIN;
    rustix::thread::set_capabilities(None, rights)?;
    Ok(rustix::thread::configure_capability_in_ambient_set(CapabilitySet::SYS_ADMIN, true)?)
}

/// Gives every right away: with one, a script could undo what hides files from it.
fn drop_rights() -> io::Result<()> {
    rustix::thread::clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    let rights = CapabilitySets { effective: none, permitted: none, inheritable: none };
    Ok(rustix::thread::set_capabilities(None, rights)?)
}

/// Threads of a user, all processes together: a limit of processes counts them.
fn threads_of(user: u32) -> u64 {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let own = processes.filter(|process| process.metadata().is_ok_and(|about| about.uid() == user));
    own.map(|process| std::fs::read_dir(process.path().join("task")).map_or(0, |tasks| tasks.count() as u64)).sum()
}

/// Closes everything around the script that can be closed, and becomes it.
fn become_script(entering: &Entering) -> io::Result<u8> {
    if entering.enclosed
        && let Err(error) = hide(entering)
    {
        tell(&format!("files could not be taken away ({error}): the script sees those of its user"));
    }
    let user = rustix::process::getuid();
    if !user.is_root() {
        drop_rights()?;
    }
    // Without a namespace, what the user runs otherwise counts too.
    let others = if entering.enclosed || entering.user.is_some() { 0 } else { threads_of(user.as_raw()) };
    let limits = [
        (Resource::Cpu, entering.seconds),
        (Resource::As, entering.memory),
        (Resource::Fsize, entering.file),
        (Resource::Nproc, entering.processes + others),
        (Resource::Nofile, 256),
        (Resource::Core, 0),
    ];
    for (resource, most) in limits {
        rustix::process::setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    // SAFETY: files are only marked; those that we still use are used by nobody after exec.
    #[allow(unsafe_code)]
    let closed = unsafe { libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as libc::c_int) };
    if closed != 0 {
        tell("open files could not be closed");
    }
    rustix::thread::set_no_new_privs(true)?;
    let (program, arguments) = entering.command.split_first().ok_or_else(|| io::Error::other("no program is named"))?;
    let mut command = Command::new(program);
    command.args(arguments);
    if let Some(user) = entering.user {
        command.uid(user).gid(user);
    }
    Err(command.exec())
}

/// Leaves nothing writable but the script's folder, and of what is hidden nothing at all.
fn hide(entering: &Entering) -> io::Result<()> {
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    rustix::mount::mount_bind(&entering.folder, &entering.folder)?;
    for path in &entering.hidden {
        match std::fs::metadata(path) {
            Ok(found) if found.is_dir() => cover(path)?,
            Ok(found) if found.ino() != 0 => rustix::mount::mount_bind("/dev/null", path)?,
            _ => {} // it is not there
        }
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    // In a container a new view of processes may be forbidden. Then there is none: through the old one, the files of other processes could be reached.
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    if rustix::mount::mount("proc", "/proc", "proc", flags, None).is_err() {
        cover(Path::new("/proc"))?;
    }
    for line in mounts.lines() {
        let mut words = line.split(' ').skip(4);
        let (Some(place), Some(options)) = (words.next(), words.next()) else { continue };
        let place = unescaped(place);
        if place == entering.folder || place.starts_with("/proc") || entering.hidden.contains(&place) {
            continue;
        }
        // What a mount was not allowed before, it must not be allowed now.
        let mut flags = MountFlags::BIND | MountFlags::RDONLY;
        for option in options.split(',') {
            flags |= match option {
                "nosuid" => MountFlags::NOSUID,
                "nodev" => MountFlags::NODEV,
                "noexec" => MountFlags::NOEXEC,
                "noatime" => MountFlags::NOATIME,
                "nodiratime" => MountFlags::NODIRATIME,
                "relatime" => MountFlags::RELATIME,
                _ => MountFlags::empty(),
            };
        }
        if let Err(error) = rustix::mount::mount_remount(&place, flags, "")
            && place.exists()
        {
            tell(&format!("{} could not be made read-only: {error}", place.display()));
        }
    }
    // The folder that we are in is the one below the new mount.
    std::env::set_current_dir(&entering.folder)
}

/// Puts an empty folder over one, in which nothing can be written.
fn cover(path: &Path) -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RDONLY;
    Ok(rustix::mount::mount("none", path, "tmpfs", flags, Some(c"size=4k,mode=755"))?)
}

/// A path as it stands in a list of mounts.
fn unescaped(text: &str) -> PathBuf {
    let mut path = text.to_owned();
    for (code, letter) in [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")] {
        path = path.replace(code, letter);
    }
    PathBuf::from(path)
}
