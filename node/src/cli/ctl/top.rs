//! `ctl top`: the cluster at a glance, again and again. [`render`] decides what stands where, from two looks; the rest is the terminal.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::terminal::{ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{cursor, event, execute, queue, terminal};
use proto::control::admin::{Glance, Order, Part, Said, To};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{Access, Complaint, Connection, Exit, admin, name, say};
use crate::cli::signals::signals;
use crate::cli::units::{parse_time_above_zero, show_count, show_size, show_time};

/// How long the cluster is waited for before the view says that it does not answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often the keyboard is looked at.
const KEYS_EVERY: Duration = Duration::from_millis(100);
/// Size of the screen where there is none.
const PLAIN_COLUMNS: usize = 160;
const PLAIN_ROWS: usize = 1_000;

#[derive(Args)]
pub(super) struct TopArguments {
    /// How often to look, as in 2s
    #[arg(long, default_value = "2s", value_name = "TIME", value_parser = parse_time_above_zero)]
    every: Duration,
    /// How often in all, then end [default: for ever on a terminal and with --json, once elsewhere]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

/// One look at the cluster.
#[derive(Clone, Debug, Default)]
struct Look {
    /// When, in milliseconds from any start.
    at_ms: u64,
    /// What each node said; nothing if nobody did.
    parts: Vec<Part>,
    /// Why nobody did.
    trouble: Option<String>,
}

impl Look {
    fn glance(&self, node: u64) -> Option<&Glance> {
        let part = self.parts.iter().find(|part| part.node == node)?;
        match &part.said {
            Ok(Said::Glance(glance)) => Some(glance),
            _ => None,
        }
    }

    fn glances(&self) -> impl Iterator<Item = &Glance> {
        self.parts.iter().filter_map(|part| self.glance(part.node))
    }
}

/// Growth a second of a number of one node between two looks; `None` if it cannot be known, as after its restart.
fn rate(before: Option<&Look>, now: &Look, node: u64, of: fn(&Glance) -> u64) -> Option<f64> {
    let before = before?;
    let seconds = now.at_ms.checked_sub(before.at_ms).filter(|ms| *ms > 0)? as f64 / 1_000.0;
    let (now, before) = (now.glance(node)?, before.glance(node)?);
    let grown = of(now).checked_sub(of(before)).filter(|_| now.report.life == before.report.life)?;
    Some(grown as f64 / seconds)
}

fn shown(rate: Option<f64>) -> String {
    rate.map_or("-".to_owned(), |rate| format!("{rate:.1}"))
}

/// What stands on a screen of so many rows and columns.
fn render(before: Option<&Look>, now: &Look, rows: usize, columns: usize) -> Vec<String> {
    let mut lines = summary(before, now);
    lines.push(String::new());
    lines.push(format!(
        "{:<16} {:>8} {:>7} {:>8} {:>8} {:>6} {:>6} {:>6} {:>6} {:>7} {:>6} {:>8} {:>8}",
        "node",
        "pages/s",
        "fetch",
        "ready",
        "waiting",
        "hosts",
        "owned",
        "held",
        "load",
        "fail/s",
        "lost",
        "restarts",
        "up"
    ));
    let room = rows.saturating_sub(lines.len());
    let fits = if now.parts.len() > room { room.saturating_sub(1) } else { now.parts.len() };
    lines.extend(now.parts[..fits].iter().map(|part| node_line(before, now, part)));
    if fits < now.parts.len() && room > 0 {
        lines.push(format!("and {} more nodes; make the window higher", now.parts.len() - fits));
    }
    lines.truncate(rows);
    lines.iter().map(|line| line.chars().take(columns).collect::<String>().trim_end().to_owned()).collect()
}

fn summary(before: Option<&Look>, now: &Look) -> Vec<String> {
    let sum = |of: fn(&Glance) -> u64| now.glances().map(of).sum::<u64>();
    let rates = |of: fn(&Glance) -> u64| {
        let each = now.parts.iter().filter_map(|part| rate(before, now, part.node, of));
        each.fold(None, |sum: Option<f64>, one| Some(sum.unwrap_or(0.0) + one))
    };
    let bytes = rates(|glance| glance.wire_bytes).map_or("-".to_owned(), |bytes| show_size(bytes as u64));
    let mut lines = vec![
        format!(
            "orbweaver: {} of {} nodes, {} of {} slots held, {} fetching, {} in flight",
            now.glances().count(),
            now.parts.len(),
            sum(|glance| glance.report.held.into()),
            proto::id::SLOTS,
            sum(|glance| glance.report.fetching.into()),
            sum(|glance| glance.flights),
        ),
        format!(
            "{} pages/s, {bytes}/s; {} URLs known, {} pages, {} failed; {} leases lost",
            shown(rates(|glance| glance.pages)),
            show_count(sum(|glance| glance.report.totals.known)),
            show_count(sum(|glance| glance.report.totals.processed)),
            show_count(sum(|glance| glance.report.totals.failed)),
            show_count(sum(|glance| glance.leases_lost)),
        ),
    ];
    if let Some(trouble) = &now.trouble {
        lines.push(format!("nobody answers: {}", trouble.lines().next().unwrap_or_default()));
    }
    lines
}

fn node_line(before: Option<&Look>, now: &Look, part: &Part) -> String {
    let Some(glance) = now.glance(part.node) else {
        let why = part.said.as_ref().err().map_or("says something else".to_owned(), ToString::to_string);
        return format!("{:<16} missing: {why} ({})", name(part.node), part.peer);
    };
    let report = &glance.report;
    let rate = |of| shown(rate(before, now, part.node, of));
    format!(
        "{:<16} {:>8} {:>7} {:>8} {:>8} {:>6} {:>6} {:>6} {:>6} {:>7} {:>6} {:>8} {:>8}",
        name(part.node),
        rate(|glance| glance.pages),
        report.fetching,
        show_count(glance.ready),
        show_count(glance.waiting),
        show_count(glance.hosts),
        report.owned,
        report.held,
        format!("{}%", report.load / 10),
        rate(|glance| glance.failures),
        show_count(glance.lost),
        glance.restarts,
        show_time(Duration::from_secs(report.uptime_s)),
    )
}

/// Shows the cluster until it is enough.
pub(super) async fn top(
    connection: Connection,
    access: &Access,
    arguments: &TopArguments,
    as_json: bool,
) -> Result<Exit, Complaint> {
    let mut watcher = Watcher { access: access.clone(), connection: Some(connection), began: Instant::now() };
    let shown = if as_json {
        watcher.lines(arguments).await
    } else if std::io::stdout().is_terminal() {
        watcher.screen(arguments).await
    } else {
        watcher.plain(arguments).await
    };
    watcher.close().await;
    shown
}

struct Watcher {
    access: Access,
    connection: Option<Connection>,
    began: Instant,
}

impl Watcher {
    /// Looks at the cluster; through another node if the one that was asked is gone.
    async fn look(&mut self) -> Look {
        let asked = tokio::time::timeout(PATIENCE, self.ask()).await;
        let at_ms = self.began.elapsed().as_millis() as u64;
        match asked.unwrap_or_else(|_| Err("no answer".to_owned())) {
            Ok(parts) => Look { at_ms, parts, trouble: None },
            Err(trouble) => {
                self.close().await;
                Look { at_ms, parts: Vec::new(), trouble: Some(trouble) }
            }
        }
    }

    async fn ask(&mut self) -> Result<Vec<Part>, String> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::open(&self.access).await.map_err(|complaint| complaint.text)?,
        };
        let connection = self.connection.insert(connection);
        admin::ask(connection, To::All, Order::Glance).await.map_err(|complaint| complaint.text)
    }

    async fn close(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.swarm.stop().await;
        }
    }

    /// One line of JSON for each look.
    async fn lines(&mut self, arguments: &TopArguments) -> Result<Exit, Complaint> {
        let mut exit = Exit::Done;
        let mut stop = signals().map_err(|error| Complaint::failed(format!("cannot listen for Ctrl-C: {error}")))?;
        for number in 1u64.. {
            let look = self.look().await;
            let line = json!({ "at_ms": look.at_ms, "nodes": look.parts, "trouble": look.trouble });
            say(&line).map_err(|error| Complaint::failed(format!("cannot write: {error}")))?;
            exit = exit_of(&look);
            if arguments.count.is_some_and(|count| number >= count) {
                break;
            }
            tokio::select! {
                biased;
                _ = stop.recv() => break,
                () = tokio::time::sleep(arguments.every) => {}
            }
        }
        Ok(exit)
    }

    /// A table for each pair of looks: rates need two.
    async fn plain(&mut self, arguments: &TopArguments) -> Result<Exit, Complaint> {
        let mut before = self.look().await;
        for _ in 0..arguments.count.unwrap_or(1) {
            tokio::time::sleep(arguments.every).await;
            let now = self.look().await;
            let lines = render(Some(&before), &now, PLAIN_ROWS, PLAIN_COLUMNS);
            say(&lines.join("\n")).map_err(|error| Complaint::failed(format!("cannot write: {error}")))?;
            before = now;
        }
        Ok(exit_of(&before))
    }

    /// The whole screen, until q or Ctrl-C.
    async fn screen(&mut self, arguments: &TopArguments) -> Result<Exit, Complaint> {
        let failed = |error: std::io::Error| Complaint::failed(format!("cannot use the terminal: {error}"));
        let mut stop = signals().map_err(failed)?;
        let _screen = Screen::enter().map_err(failed)?;
        let mut keys = Keys::listen().map_err(failed)?;
        let (mut before, mut left) = (None::<Look>, arguments.count);
        let mut now = self.look().await;
        loop {
            draw(before.as_ref(), &now).map_err(failed)?;
            left = left.map(|left| left - 1);
            if left == Some(0) {
                return Ok(exit_of(&now));
            }
            let next = Instant::now() + arguments.every;
            loop {
                tokio::select! {
                    biased;
                    _ = stop.recv() => return Ok(Exit::Done),
                    key = keys.pressed.recv() => match key {
                        Some(Pressed::Resized) => draw(before.as_ref(), &now).map_err(failed)?,
                        Some(Pressed::Quit) | None => return Ok(Exit::Done),
                    },
                    () = tokio::time::sleep_until(next) => break,
                }
            }
            // A cluster that does not answer must not keep anybody from leaving.
            let look = tokio::select! {
                biased;
                _ = stop.recv() => return Ok(Exit::Done),
                () = keys.quit() => return Ok(Exit::Done),
                look = self.look() => look,
            };
            before = Some(std::mem::replace(&mut now, look));
        }
    }
}

fn exit_of(look: &Look) -> Exit {
    let all = look.trouble.is_none() && look.parts.iter().all(|part| part.said.is_ok());
    if all { Exit::Done } else { Exit::Failed }
}

fn draw(before: Option<&Look>, now: &Look) -> std::io::Result<()> {
    let (columns, rows) = terminal::size()?;
    let lines = render(before, now, usize::from(rows).saturating_sub(1), usize::from(columns));
    let mut out = std::io::stdout().lock();
    queue!(out, cursor::MoveTo(0, 0), terminal::Clear(ClearType::All))?;
    for (row, line) in lines.iter().enumerate() {
        queue!(out, cursor::MoveTo(0, row as u16))?;
        out.write_all(line.as_bytes())?;
    }
    queue!(out, cursor::MoveTo(0, rows.saturating_sub(1)))?;
    out.write_all(b"q leaves")?;
    out.flush()
}

/// The terminal as we need it; as it was when this is dropped, whatever happened.
struct Screen;

impl Screen {
    fn enter() -> std::io::Result<Screen> {
        terminal::enable_raw_mode()?;
        let screen = Screen; // from here on it is put back
        execute!(std::io::stdout(), EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // There is nothing more to be done about a terminal that is gone.
        let _ = execute!(std::io::stdout(), cursor::Show, LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}

enum Pressed {
    Quit,
    Resized,
}

/// Listens to the keyboard, on a thread that ends with this.
struct Keys {
    pressed: mpsc::Receiver<Pressed>,
    over: Arc<AtomicBool>,
}

impl Keys {
    fn listen() -> std::io::Result<Keys> {
        let (tell, pressed) = mpsc::channel(16);
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        std::thread::Builder::new().name("keys".into()).spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                let event = match event::poll(KEYS_EVERY) {
                    Ok(true) => event::read(),
                    Ok(false) => continue,
                    Err(error) => Err(error),
                };
                let told = match event {
                    Ok(event) if is_quit(&event) => tell.blocking_send(Pressed::Quit),
                    Ok(Event::Resize(..)) => tell.blocking_send(Pressed::Resized),
                    Ok(_) => Ok(()),
                    Err(_) => return, // the terminal is gone; dropping the channel says so
                };
                if told.is_err() {
                    return;
                }
            }
        })?;
        Ok(Keys { pressed, over })
    }

    /// Waits until somebody wants to leave.
    async fn quit(&mut self) {
        while let Some(Pressed::Resized) = self.pressed.recv().await {}
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

fn is_quit(event: &Event) -> bool {
    let Event::Key(key) = event else { return false };
    let control_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind == KeyEventKind::Press && (control_c || matches!(key.code, KeyCode::Char('q' | 'Q') | KeyCode::Esc))
}

#[cfg(test)]
mod tests {
    use proto::control::admin::Trouble;
    use proto::control::{NodeReport, Totals};

    use super::*;

    fn part(node: u64, life: u32, pages: u64, failures: u64) -> Part {
        let report = NodeReport {
            node,
            life,
            owned: 2_048,
            held: 2_048,
            load: 345,
            fetching: 7,
            uptime_s: 3_700,
            totals: Totals { known: 5_000, processed: 1_200, failed: 12, bytes: 9 },
            ..NodeReport::default()
        };
        let glance = Glance {
            report,
            pages,
            failures,
            wire_bytes: pages * 10_000,
            ready: 1_234,
            waiting: 5,
            flights: 8,
            hosts: 40,
            lost: 3,
            restarts: 1,
            ..Glance::default()
        };
        Part { node, peer: format!("peer-{node}"), said: Ok(Said::Glance(Box::new(glance))) }
    }

    fn looks() -> (Look, Look) {
        let missing =
            Part { node: 3, peer: "peer-3".to_owned(), said: Err(Trouble::Missing("does not answer".to_owned())) };
        let before =
            Look { at_ms: 1_000, parts: vec![part(1, 7, 100, 2), part(2, 7, 900, 0), missing.clone()], trouble: None };
        let now = Look { at_ms: 3_000, parts: vec![part(1, 7, 150, 3), part(2, 8, 901, 0), missing], trouble: None };
        (before, now)
    }

    #[test]
    fn a_screen_of_three_nodes() {
        let (before, now) = looks();
        let expected = "\
orbweaver: 2 of 3 nodes, 4096 of 4096 slots held, 14 fetching, 16 in flight
25.0 pages/s, 250.0 kB/s; 10,000 URLs known, 2,400 pages, 24 failed; 0 leases lost

node              pages/s   fetch    ready  waiting  hosts  owned   held   load  fail/s   lost restarts       up
0000000000000001     25.0       7    1,234        5     40   2048   2048    34%     0.5      3        1   1h 01m
0000000000000002        -       7    1,234        5     40   2048   2048    34%       -      3        1   1h 01m
0000000000000003 missing: does not answer (peer-3)";
        let lines = render(Some(&before), &now, 24, 120);
        assert_eq!(lines.join("\n"), expected, "the second node was started anew: its counts began again");
    }

    #[test]
    fn nothing_stands_beyond_the_edges() {
        let (before, now) = looks();
        for (rows, columns) in [(0, 0), (1, 1), (2, 10), (5, 20), (6, 40), (7, 80)] {
            let lines = render(Some(&before), &now, rows, columns);
            assert!(lines.len() <= rows, "{rows} rows");
            assert!(lines.iter().all(|line| line.chars().count() <= columns), "{columns} columns");
        }
        let lines = render(None, &now, 6, 80);
        assert_eq!(lines.last().map(String::as_str), Some("and 2 more nodes; make the window higher"));
    }

    #[test]
    fn a_cluster_that_does_not_answer_is_said_so() {
        let look = Look { trouble: Some("no node can be reached\n  why".to_owned()), ..Look::default() };
        let text = render(None, &look, 24, 80).join("\n");
        assert!(text.contains("0 of 0 nodes") && text.contains("nobody answers: no node can be reached\n"), "{text}");
        assert_eq!(exit_of(&look), Exit::Failed);
    }

    #[test]
    fn q_and_control_c_leave() {
        let key = |code, modifiers| Event::Key(event::KeyEvent::new(code, modifiers));
        assert!(is_quit(&key(KeyCode::Char('q'), KeyModifiers::NONE)));
        assert!(is_quit(&key(KeyCode::Char('c'), KeyModifiers::CONTROL)));
        assert!(!is_quit(&key(KeyCode::Char('c'), KeyModifiers::NONE)));
        assert!(!is_quit(&Event::Resize(80, 24)));
    }
}
