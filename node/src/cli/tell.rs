//! What the user is told beside the log: on standard error as lines of text, or as JSON where the log is JSON, so that whoever
//! reads one line as JSON can read all of them.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

static AS_JSON: AtomicBool = AtomicBool::new(false);

/// From now on standard error is JSON.
pub(super) fn as_json() {
    AS_JSON.store(true, Ordering::Relaxed);
}

/// Whether standard error is JSON.
pub(super) fn is_json() -> bool {
    AS_JSON.load(Ordering::Relaxed)
}

/// Tells something worth knowing.
pub(super) fn note(text: &str) {
    line("INFO", text, text);
}

/// Tells why the program ends.
pub(super) fn complaint(text: &str) {
    line("ERROR", text, &format!("orbweaver: {text}"));
}

/// Tells how the crawl goes: `fields` for machines, `text` for people.
pub(super) fn progress(fields: &serde_json::Value, text: &str) {
    if is_json() {
        write(&serde_json::json!({ "level": "INFO", "target": "orbweaver::progress", "fields": fields }));
    } else {
        write(&text);
    }
}

fn line(level: &str, message: &str, text: &str) {
    if is_json() {
        write(&serde_json::json!({ "level": level, "target": "orbweaver", "fields": { "message": message } }));
    } else {
        write(&text);
    }
}

/// Where standard error does not take it, nobody can be told.
fn write(line: &impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
