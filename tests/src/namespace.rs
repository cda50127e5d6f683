//! A network namespace: a machine of its own, as far as addresses, ports and routes go.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Why the machine does not let us have what a test needs. A reason to skip it, unlike all others.
#[derive(Debug)]
pub struct Refused(pub String);

/// A namespace. Dropping it removes its name; it is gone when whoever is inside has ended.
pub struct Namespace {
    name: String,
    file: File,
}

impl Namespace {
    /// Makes one with a loopback device. Its name is ours alone: it has the number of this process in it.
    pub fn make() -> Result<Namespace, Refused> {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let name = format!("orbweaver-{}-{}", std::process::id(), MADE.fetch_add(1, Relaxed));
        let added = Command::new("ip").args(["netns", "add", &name]).output();
        // A machine that lacks it is not ready for the tests; only what the kernel refuses is a reason to skip one.
        let added =
            added.unwrap_or_else(|error| panic!("the command `ip` cannot be run: {error}; .ci/setup installs it"));
        if !added.status.success() {
            let complaint = String::from_utf8_lossy(&added.stderr).trim().to_owned();
            let refused =
                ["not permitted", "denied", "not supported", "not implemented", "Invalid argument", "Read-only"];
            assert!(refused.iter().any(|word| complaint.contains(word)), "ip netns add {name}: {complaint}");
            return Err(Refused(format!("ip netns add: {complaint}")));
        }
        let file = File::open(format!("/run/netns/{name}")).expect("ip has just made it");
        let namespace = Namespace { name, file };
        namespace.ip(["link", "set", "lo", "up"]);
        Ok(namespace)
    }

    /// Runs `ip` in it; that must succeed.
    pub fn ip(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) {
        let ended = Command::new("ip").args(["-n", &self.name]).args(arguments).output().expect("ip can be run");
        assert!(ended.status.success(), "ip -n {}: {}", self.name, String::from_utf8_lossy(&ended.stderr));
    }

    /// Removes a device, if it is still there.
    pub fn remove(&self, device: &str) {
        let _ = Command::new("ip").args(["-n", &self.name, "link", "delete", device]).output();
    }

    /// Does something inside, on a thread of its own: sockets that it makes and processes that it starts belong there.
    pub fn inside<T: Send>(&self, task: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))
                    .expect("who may make a namespace may enter it");
                task()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "delete", &self.name]).status(); // a name that stays harms nobody
    }
}
