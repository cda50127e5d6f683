//! What every bench needs: what a process used, what a folder holds, a seeded generator, and the verdict on a bar.

pub mod cluster;

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use anyhow::{Context, ensure};

/// One mebibyte.
pub const MIB: f64 = 1_048_576.0;

/// What a process used until it ended.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Processor time, user and system.
    pub cpu: Duration,
    /// Most resident memory at any time, in bytes.
    pub peak_bytes: u64,
}

/// Waits for `child` to end well and returns what it used.
pub fn wait(child: &Child) -> anyhow::Result<Usage> {
    let mut status = 0;
    // SAFETY: plain integers, for which zeros are a value.
    #[allow(unsafe_code)]
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let pid = libc::pid_t::try_from(child.id())?;
    // SAFETY: both pointers are to locals that outlive the call; the child is ours and was not waited for.
    #[allow(unsafe_code)]
    let ended = unsafe { libc::wait4(pid, &mut status, 0, &mut usage) };
    ensure!(ended == pid, "cannot wait for process {pid}: {}", std::io::Error::last_os_error());
    ensure!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "process {pid} failed (status {status:#x})");
    Ok(Usage { cpu: cpu_in(&usage), peak_bytes: usage.ru_maxrss as u64 * 1_024 })
}

fn cpu_in(usage: &libc::rusage) -> Duration {
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1_000);
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// Processor time of this process so far, all its threads, to the microsecond.
pub fn own_cpu() -> anyhow::Result<Duration> {
    cpu_of_self(libc::RUSAGE_SELF)
}

/// Processor time of this thread so far.
pub fn thread_cpu() -> anyhow::Result<Duration> {
    cpu_of_self(libc::RUSAGE_THREAD)
}

fn cpu_of_self(who: libc::c_int) -> anyhow::Result<Duration> {
    // SAFETY: plain integers, for which zeros are a value.
    #[allow(unsafe_code)]
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a local that outlives the call.
    #[allow(unsafe_code)]
    let done = unsafe { libc::getrusage(who, &mut usage) };
    ensure!(done == 0, "no usage: {}", std::io::Error::last_os_error());
    Ok(cpu_in(&usage))
}

/// Processor time of a running process so far, all its threads, user and system.
pub fn cpu_of(pid: u32) -> anyhow::Result<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).context("no such field");
    // Fields 14 and 15 of proc(5), counted from behind the name; a tick is a hundredth of a second everywhere on Linux.
    Ok(Duration::from_millis((ticks(11)? + ticks(12)?) * 10))
}

/// Resident memory of this process in bytes: now, and at most since the last [`forget_peak`].
pub fn memory() -> anyhow::Result<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let field = |name: &str| -> anyhow::Result<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
        Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1_024)
    };
    Ok((field("VmRSS:")?, field("VmHWM:")?))
}

/// Counts the peak of [`memory`] from here on.
pub fn forget_peak() -> anyhow::Result<()> {
    Ok(std::fs::write("/proc/self/clear_refs", "5")?)
}

/// Bytes of all files below `dir`. Files that vanish meanwhile count as nothing.
pub fn folder_bytes(dir: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let bytes = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => folder_bytes(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.flatten().map(bytes).sum()
}

/// The program `name` of this workspace, as it lies beside the running bench.
pub fn program(name: &str) -> anyhow::Result<PathBuf> {
    let bench = std::env::current_exe()?;
    let profile = bench.parent().and_then(Path::parent).context("a bench lies in <target>/<profile>/deps")?;
    let path = profile.join(name);
    ensure!(path.is_file(), "{} is not there; build it: cargo build --release -p node -p simulation", path.display());
    Ok(path)
}

/// SplitMix64: small, seeded, the same everywhere.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Dice that fall the same way for the same seed.
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.any()) * u128::from(end)) >> 64) as u64
    }

    /// A number in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.any() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The middle of `values`.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[half] } else { (sorted[half - 1] + sorted[half]) / 2.0 }
}

/// Prints whether a bar was reached.
pub fn verdict(what: &str, reached: impl Display, bar: impl Display, met: bool) {
    println!("{} {what}: {reached} (bar {bar})", if met { "met   " } else { "missed" });
}
