//! A Python that has what a test needs.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The Python that an environment variable names, or one in the cache of `make setup` whose folder begins with `prepared`, or python3: the first for which `import` works.
pub fn python_with(variable: &str, prepared: &str, import: &str) -> PathBuf {
    let mut candidates: Vec<PathBuf> = std::env::var_os(variable).map(PathBuf::from).into_iter().collect();
    let cache = std::env::var_os("ORBWEAVER_CACHE").map(PathBuf::from).or_else(|| {
        let home = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let home = home.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")));
        home.map(|home| home.join("orbweaver"))
    });
    let folders = cache.and_then(|cache| std::fs::read_dir(cache).ok()).into_iter().flatten().flatten();
    let folders = folders.filter(|entry| entry.file_name().to_string_lossy().starts_with(prepared));
    candidates.extend(folders.map(|entry| entry.path().join("bin/python")));
    candidates.push("python3".into());
    let works = |python: &&PathBuf| {
        Command::new(python).args(["-c", import]).output().is_ok_and(|asked| asked.status.success())
    };
    let found = candidates.iter().find(works).cloned();
    found.unwrap_or_else(|| {
        panic!("`{import}` works in none of {candidates:?}: run `make setup`, or name a Python with {variable}")
    })
}
