//! Measures what the synthetic web costs: microseconds to make a page, and pages served over a loopback connection.
//!
//! Counted in processor time of the threads concerned (Linux only), so that a busy machine does not change the result.
//!
//! `cargo run --release -p simulation --example web_speed`

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use simulation::world::server::{Server, ServerOptions};
use simulation::world::web::{Request, Visit, Web, WebPlan};

const CONNECTIONS: u32 = 8;
const REQUESTS_PER_CONNECTION: u32 = 20_000;

fn main() -> anyhow::Result<()> {
    let web = Web::new(WebPlan::bench(1, 100, 1_000));
    let paths: Vec<(u32, String)> = (0..20_000).map(|n| (n % 100, web.page_path(n % 100, n / 100))).collect();
    let (start, mut bytes) = (cpu_seconds("/proc/thread-self"), 0);
    for (host, path) in &paths {
        bytes += web.respond_as(*host, &Request::get("", path), Visit::default()).body.len();
    }
    let per_page_us = (cpu_seconds("/proc/thread-self") - start) * 1e6 / paths.len() as f64;
    println!("made: {per_page_us:.1} us a page of {} bytes", bytes / paths.len());

    for page_bytes in [512, 8_192] {
        let plan = WebPlan { page_bytes, links_per_page: page_bytes / 341, ..WebPlan::bench(1, 100, 1_000) };
        let options = ServerOptions { threads: 1, keep_log: false, ..ServerOptions::default() };
        let server = Server::start_with(Web::new(plan), options)?;
        let start = Instant::now();
        std::thread::scope(|scope| {
            for host in 0..CONNECTIONS {
                let server = &server;
                scope.spawn(move || ask(server, host));
            }
        });
        let served = f64::from(CONNECTIONS * REQUESTS_PER_CONNECTION);
        let (busy, passed) = (server_seconds(), start.elapsed().as_secs_f64());
        println!(
            "served: {:.0} pages of {page_bytes} bytes per second of one core ({:.0} pages per second passed)",
            served / busy,
            served / passed
        );
    }
    Ok(())
}

/// Time that a thread or process has spent on a processor.
fn cpu_seconds(of: &str) -> f64 {
    let text = std::fs::read_to_string(format!("{of}/schedstat")).expect("Linux keeps scheduler statistics");
    text.split(' ').next().and_then(|field| field.parse::<f64>().ok()).expect("nanoseconds come first") / 1e9
}

/// Processor time of the server's threads.
fn server_seconds() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux lists threads");
    let tasks = tasks.filter_map(|task| Some(task.ok()?.path().to_str()?.to_owned()));
    let ours = tasks.filter(|task| {
        std::fs::read_to_string(format!("{task}/comm")).is_ok_and(|name| name.trim() == "synthetic-web")
    });
    ours.map(|task| cpu_seconds(&task)).sum()
}

/// Asks for one page after the other on one connection.
fn ask(server: &Server, host: u32) {
    let web = server.web();
    let mut stream = TcpStream::connect((web.address(host), server.port())).expect("the server listens");
    let mut buffer = vec![0; 64 << 10];
    for n in 0..REQUESTS_PER_CONNECTION {
        let path = web.page_path(host, n % 1_000);
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", web.host_name(host));
        stream.write_all(request.as_bytes()).expect("the server reads");
        let (mut filled, mut wanted) = (0, usize::MAX);
        while filled < wanted {
            let read = stream.read(&mut buffer[filled..]).expect("the server answers");
            assert!(read > 0, "the server closed the connection");
            filled += read;
            if wanted == usize::MAX {
                wanted = answer_bytes(&buffer[..filled]).unwrap_or(usize::MAX);
            }
        }
    }
}

/// Size of an answer, headers included, once its headers are there.
fn answer_bytes(start: &[u8]) -> Option<usize> {
    let end = start.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&start[..end]).ok()?;
    let length = head.split("content-length: ").nth(1)?.split("\r\n").next()?;
    Some(end + length.parse::<usize>().ok()?)
}
