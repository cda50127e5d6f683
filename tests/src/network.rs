//! A network of machines that are namespaces, and the switch between them, which loses and delays what it is told to.
//!
//! ```text
//!   namespace 0            this process             namespace 1
//!   10.77.0.1 ── tun0 ═ file ─▶ line 0→1 ─▶ file ═ tun0 ── 10.77.0.2
//!                            ◀─ line 1→0 ◀─
//! ```
//!
//! Every direction between two machines is a line with rules of its own, which may change at any time. It needs nothing of
//! the kernel but TUN devices.

use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::io::Errno;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::namespace::{Namespace, Refused};
use crate::tun;

const DEVICE: &str = "tun0";
/// More than the kernel sends in one piece: the devices have the usual 1,500.
const PACKET_BYTES_MAX: usize = 2_048;
/// Packets on one line at once; further ones are dropped, as by any switch.
const LINE_PACKETS_MAX: usize = 4_096;

/// What becomes of packets in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Of a hundred packets, how many are lost.
    pub loss_percent: u32,
    /// How long the others take.
    pub delay: Duration,
}

impl Line {
    /// Everything arrives at once.
    pub const CLEAR: Line = Line { loss_percent: 0, delay: Duration::ZERO };
    /// Nothing arrives.
    pub const CUT: Line = Line { loss_percent: 100, delay: Duration::ZERO };
}

/// Machines and the switch between them. When it is dropped nothing of it remains.
pub struct Network {
    switch: Arc<Switch>,
    runtime: Option<Runtime>,
    machines: Vec<Namespace>,
}

struct Switch {
    devices: Vec<OwnedFd>,
    state: Mutex<State>,
}

struct State {
    draw: ChaCha8Rng,
    lines: Vec<Vec<LineState>>, // [from][to]
}

struct LineState {
    rules: Line,
    under_way: mpsc::Sender<(Instant, Vec<u8>)>,
    carried: u64,
    lost: u64,
}

impl Network {
    /// Starts `count` machines with clear lines between them. `seed` decides which packets are lost.
    pub fn start(count: usize, seed: u64) -> Result<Network, Refused> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("switch")
            .enable_all()
            .build()
            .expect("threads can be started");
        let (mut machines, mut devices) = (Vec::new(), Vec::new());
        for number in 0..count {
            let machine = Namespace::make()?;
            let device = machine.inside(|| tun::open(DEVICE))?;
            machine.ip(["address", "add", &format!("{}/24", address(number)), "dev", DEVICE]);
            machine.ip(["link", "set", DEVICE, "up"]);
            devices.push(device);
            machines.push(machine);
        }
        let mut waiting = Vec::new();
        let mut line = |to: usize| {
            let (under_way, packets) = mpsc::channel(LINE_PACKETS_MAX);
            waiting.push((to, packets));
            LineState { rules: Line::CLEAR, under_way, carried: 0, lost: 0 }
        };
        let lines = (0..count).map(|_| (0..count).map(&mut line).collect()).collect();
        let state = Mutex::new(State { draw: ChaCha8Rng::seed_from_u64(seed), lines });
        let switch = Arc::new(Switch { devices, state });
        for from in 0..count {
            let switch = Arc::clone(&switch);
            std::thread::spawn(move || switch.take(from));
        }
        waiting.into_iter().for_each(|(to, packets)| drop(runtime.spawn(Arc::clone(&switch).deliver(to, packets))));
        Ok(Network { switch, runtime: Some(runtime), machines })
    }

    /// How many machines there are.
    pub fn count(&self) -> usize {
        self.machines.len()
    }

    /// A machine.
    pub fn machine(&self, number: usize) -> &Namespace {
        &self.machines[number]
    }

    /// Gives one direction its rules.
    pub fn set(&self, from: usize, to: usize, rules: Line) {
        self.switch.state.lock().expect("no panic while locked").lines[from][to].rules = rules;
    }

    /// Gives all directions the same rules.
    pub fn set_all(&self, rules: Line) {
        let mut state = self.switch.state.lock().expect("no panic while locked");
        state.lines.iter_mut().flatten().for_each(|line| line.rules = rules);
    }

    /// Cuts some machines off from the others, both ways. Among themselves nothing changes.
    pub fn cut_off(&self, some: &[usize]) {
        for a in 0..self.count() {
            for b in (0..self.count()).filter(|b| some.contains(&a) != some.contains(b)) {
                self.set(a, b, Line::CUT);
            }
        }
    }

    /// How many packets one direction has carried and lost.
    pub fn traffic(&self, from: usize, to: usize) -> (u64, u64) {
        let line = &self.switch.state.lock().expect("no panic while locked").lines[from][to];
        (line.carried, line.lost)
    }

    /// How many packets all directions have carried and lost.
    pub fn traffic_total(&self) -> (u64, u64) {
        let pairs = (0..self.count()).flat_map(|from| (0..self.count()).map(move |to| (from, to)));
        pairs.map(|(from, to)| self.traffic(from, to)).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        // Whoever reads from a device hears that it is gone, and lets go of it and so of the namespace.
        self.machines.iter().for_each(|machine| machine.remove(DEVICE));
    }
}

/// The address of a machine.
pub fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, u8::try_from(number + 1).expect("a few machines"))
}

/// The machine that an IP packet is for; `None` for what is not between machines, as the kernel's talk about IPv6.
fn receiver(packet: &[u8]) -> Option<usize> {
    let (version, to) = (packet.first()? >> 4, packet.get(16..20)?);
    (version == 4 && to[..3] == [10, 77, 0]).then(|| usize::from(to[3]).checked_sub(1)).flatten()
}

impl Switch {
    /// Takes what one machine sends, as long as its device is there.
    fn take(&self, from: usize) {
        let mut buffer = [0; PACKET_BYTES_MAX];
        loop {
            match rustix::io::read(&self.devices[from], &mut buffer) {
                Ok(length) => self.forward(from, &buffer[..length]),
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    fn forward(&self, from: usize, packet: &[u8]) {
        let mut state = self.state.lock().expect("no panic while locked");
        let State { draw, lines } = &mut *state;
        let Some(line) = receiver(packet).and_then(|to| lines[from].get_mut(to)) else { return };
        let lost = draw.random_range(0..100) < line.rules.loss_percent;
        if lost || line.under_way.try_send((Instant::now() + line.rules.delay, packet.to_vec())).is_err() {
            line.lost += 1;
        } else {
            line.carried += 1;
        }
    }

    /// Delivers what is on one line, in order.
    async fn deliver(self: Arc<Self>, to: usize, mut packets: mpsc::Receiver<(Instant, Vec<u8>)>) {
        while let Some((due, packet)) = packets.recv().await {
            if due > Instant::now() {
                tokio::time::sleep_until(due).await;
            }
            let _ = rustix::io::write(&self.devices[to], &packet); // a machine that cannot take it loses it
        }
    }
}
