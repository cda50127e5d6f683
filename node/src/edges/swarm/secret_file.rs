//! Files that hold a secret: readable by their owner alone, and there as a whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// No file of ours is longer; what is longer is none of ours.
const SECRET_BYTES_MAX: u64 = 64 << 10;

/// A secret that cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file cannot be read or written.
    #[error("cannot {action} {path}: {reason}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        reason: io::Error,
    },
    /// The file is there and is no such secret.
    #[error("{path} is damaged: {reason}; {remedy}")]
    Damaged {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        reason: String,
        /// What to do.
        remedy: &'static str,
    },
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SecretError {
    move |reason| SecretError::Io { action, path: path.to_owned(), reason }
}

/// Reads a file; `None` if there is none. Warns if others may read it.
pub(super) fn read(path: &Path) -> Result<Option<String>, SecretError> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io_error("read", path)(error)),
    };
    if metadata.len() > SECRET_BYTES_MAX {
        return Err(io_error("read", path)(io::Error::other("it is too long to be a key")));
    }
    let bytes = fs::read(path).map_err(io_error("read", path))?;
    if metadata.permissions().mode() & 0o077 != 0 {
        tracing::warn!(path = %path.display(), "other users may read this secret: chmod 600 it");
    }
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Writes a file that is not there yet; an existing one is an error of kind `AlreadyExists` and is left alone.
pub(crate) fn create(path: &Path, text: &str) -> Result<(), SecretError> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    fs::create_dir_all(folder).map_err(io_error("make the folder of", path))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let draft = folder.join(format!(".{name}.{}", std::process::id()));
    // A draft of a former process with our number holds nothing that anybody needs.
    let _ = fs::remove_file(&draft);
    let written = write(&draft, text).and_then(|()| {
        // A link and not a rename: a rename would replace what another process made meanwhile.
        fs::hard_link(&draft, path)
    });
    let _ = fs::remove_file(&draft);
    written.and_then(|()| File::open(folder)?.sync_all()).map_err(io_error("write", path))
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Bytes from hexadecimal digits.
pub(super) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits?;
    digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(|two| two[0] << 4 | two[1]).collect())
}

/// Hexadecimal digits of bytes.
pub(super) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
