//! The log: what is logged can be changed while the program runs.

use std::sync::{Mutex, OnceLock};

use tracing_subscriber::EnvFilter;

type Reload = Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>;

/// How to change the filter, and what it is.
struct Log {
    reload: Reload,
    filter: Mutex<String>,
}

static LOG: OnceLock<Log> = OnceLock::new();

/// Says how the filter of the running log is changed, and what it is now. The first call counts.
pub fn installed(filter: &str, reload: impl Fn(EnvFilter) -> Result<(), String> + Send + Sync + 'static) {
    let _ = LOG.set(Log { reload: Box::new(reload), filter: Mutex::new(filter.to_owned()) });
}

/// What is logged; `None` in a program without this log.
pub fn filter() -> Option<String> {
    Some(LOG.get()?.filter.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone())
}

/// Logs this from now on.
pub fn set_filter(text: &str) -> Result<(), String> {
    let parsed = parse(text)?;
    let log = LOG.get().ok_or("this program has no log")?;
    (log.reload)(parsed)?;
    *log.filter.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = text.to_owned();
    Ok(())
}

/// Understands a filter, or says what is wrong with it.
pub fn parse(text: &str) -> Result<EnvFilter, String> {
    if let Some(word) = unknown_level(text) {
        return Err(format!("{word:?} is no level; one of off, error, warn, info, debug, trace, or as in node=debug"));
    }
    EnvFilter::try_new(text).map_err(|error| error.to_string())
}

/// A word that names neither a level nor a part of the program: the log would stay silent without a word.
fn unknown_level(log: &str) -> Option<&str> {
    let levels = ["off", "error", "warn", "info", "debug", "trace"];
    let is_known =
        |word: &str| word.contains(['=', '[']) || levels.iter().any(|level| word.eq_ignore_ascii_case(level));
    log.split(',').map(str::trim).find(|word| !word.is_empty() && !is_known(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_level_that_is_none_is_found() {
        assert_eq!(unknown_level("nosuch"), Some("nosuch"));
        assert_eq!(unknown_level("info,nodes"), Some("nodes"));
        for known in ["info", "WARN", "node=debug,info", "off", "node[batch]=trace", ""] {
            assert_eq!(unknown_level(known), None, "{known}");
        }
        assert!(parse("nosuch").is_err_and(|why| why.contains("is no level")));
        assert!(parse("node=loud").is_err());
    }
}
