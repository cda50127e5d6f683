//! How busy this machine and this node are, from what the kernel says about itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use proto::cluster::route::{Load, LoadParts, LoadRules};

/// Measures the load of a node.
pub struct LoadGauge {
    data: PathBuf,
    rules: LoadRules,
    processors: u32,
    last: Mutex<Option<CpuTimes>>,
}

impl LoadGauge {
    /// Measures for a node whose data folder is `data`.
    pub fn new(data: &Path, rules: LoadRules) -> LoadGauge {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
        LoadGauge { data: data.to_owned(), rules, processors, last: Mutex::new(None) }
    }

    /// The load since the last measurement. `fetches` and `mailbox` are in thousandths of what is full. Where the kernel does not
    /// say something, that part counts as idle.
    pub fn measure(&self, fetches: u32, mailbox: u32) -> Load {
        let now = fs::read_to_string("/proc/stat").ok().and_then(|text| CpuTimes::parse(&text));
        let mut last = self.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (cpu, io_wait) = match (&*last, &now) {
            (Some(last), Some(now)) => now.since(last),
            _ => (0, 0),
        };
        *last = now;
        let memory = fs::read_to_string("/proc/meminfo").ok().and_then(|text| memory_in_use(&text)).unwrap_or(0);
        let average = fs::read_to_string("/proc/loadavg").ok().and_then(|text| load_average(&text)).unwrap_or(0);
        self.rules.load(&LoadParts {
            cpu,
            io_wait,
            memory,
            disk: disk_in_use(&self.data).unwrap_or(0),
            fetches,
            mailbox,
            load_average: average / self.processors,
        })
    }
}

/// What the processors did since the machine started, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CpuTimes {
    busy: u64,
    io_wait: u64,
    all: u64,
}

impl CpuTimes {
    fn parse(stat: &str) -> Option<CpuTimes> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> = line.split_whitespace().map_while(|number| number.parse().ok()).take(8).collect();
        let (idle, io_wait) = (*ticks.get(3)?, *ticks.get(4)?);
        let all = ticks.iter().sum();
        Some(CpuTimes { busy: all - idle - io_wait, io_wait, all })
    }

    /// Thousandths of the time since `last` that were spent working, and waiting for disks.
    fn since(&self, last: &CpuTimes) -> (u32, u32) {
        let all = self.all.saturating_sub(last.all).max(1);
        let share = |now: u64, then: u64| (now.saturating_sub(then).saturating_mul(1_000) / all).min(1_000) as u32;
        (share(self.busy, last.busy), share(self.io_wait, last.io_wait))
    }
}

/// Thousandths of the memory that are in use and cannot be had back at once.
fn memory_in_use(meminfo: &str) -> Option<u32> {
    let kilobytes = |name: &str| -> Option<u64> {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_start_matches(':').split_whitespace().next()?.parse().ok()
    };
    let (total, available) = (kilobytes("MemTotal")?, kilobytes("MemAvailable")?);
    (total > 0).then(|| (total.saturating_sub(available).saturating_mul(1_000) / total) as u32)
}

/// The load average of the last minute, in thousandths.
fn load_average(loadavg: &str) -> Option<u32> {
    let average: f64 = loadavg.split_whitespace().next()?.parse().ok()?;
    (average.is_finite() && average >= 0.0).then(|| (average * 1_000.0).min(f64::from(u32::MAX)) as u32)
}

/// Thousandths of the disk that are in use, as far as we may use it.
fn disk_in_use(path: &Path) -> Option<u32> {
    let stat = rustix::fs::statvfs(path).ok()?;
    let (used, free) = (stat.f_blocks.saturating_sub(stat.f_bfree), stat.f_bavail);
    let all = used.saturating_add(free);
    (all > 0).then(|| (used.saturating_mul(1_000) / all) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_is_understood() {
        let before = CpuTimes::parse("cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 2 3\n").unwrap();
        assert_eq!(before, CpuTimes { busy: 200, io_wait: 100, all: 1_000 });
        let after = CpuTimes::parse("cpu  150 0 100 725 125 0 0 0 0 0\n").unwrap();
        assert_eq!(after.since(&before), (500, 250));
        assert_eq!(before.since(&after), (0, 0), "a counter that went back says nothing");
        assert_eq!(memory_in_use("MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:   250 kB\n"), Some(750));
        assert_eq!(load_average("1.50 0.70 0.30 2/345 6789\n"), Some(1_500));
    }

    #[test]
    fn nonsense_is_no_measurement() {
        for text in ["", "cpu", "cpu x y", "cpu  1 2", "MemTotal: 0 kB\nMemAvailable: 0 kB", "NaN", "-1"] {
            assert_eq!(CpuTimes::parse(text), None);
            assert_eq!(memory_in_use(text), None);
            assert_eq!(load_average(text), None);
        }
    }

    #[test]
    fn this_machine_has_a_load() {
        let dir = tempfile::tempdir().unwrap();
        assert!(disk_in_use(dir.path()).is_some_and(|share| share <= 1_000));
        assert_eq!(disk_in_use(Path::new("/no/such/folder")), None);
        let gauge = LoadGauge::new(dir.path(), LoadRules::default());
        assert!(gauge.measure(1_000, 0) >= LoadRules::default().low_water, "all its fetches run");
        let crowded = LoadRules { memory_full: 1, ..LoadRules::default() };
        assert_eq!(LoadGauge::new(dir.path(), crowded).measure(0, 0), crowded.high_water + 1);
    }
}
