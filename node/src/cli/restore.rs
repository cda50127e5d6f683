//! `orbweaver restore`, also as `orbweaver ctl restore`: makes a data folder from a backup.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use super::progress::say;
use super::{Complaint, Exit};
use crate::edges::backup::{self, Manifest};

pub(super) const EXAMPLES: &str = "Examples:
  orbweaver restore /backup/monday --check                    read every file and compare it with its digest
  orbweaver restore /backup/monday --data /srv/orbweaver      make the data folder; the node must not run

The node is then started as ever. What it missed since the backup it gets from the other nodes.";

/// Arguments of `restore`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct RestoreArguments {
    /// Folder of the backup, which `ctl backup` made
    #[arg(value_name = "BACKUP")]
    backup: PathBuf,
    /// The data folder to make; it must be empty or not there yet
    #[arg(long, value_name = "DIR", required_unless_present = "check")]
    data: Option<PathBuf>,
    /// Folder for the keys, if the backup has any
    #[arg(long, value_name = "DIR", conflicts_with = "check")]
    keys: Option<PathBuf>,
    /// Only look whether the backup is whole
    #[arg(long, conflicts_with = "data")]
    check: bool,
}

/// Restores a backup.
pub(super) fn run(arguments: &RestoreArguments, as_json: bool) -> Result<Exit, Complaint> {
    let written = |error: std::io::Error| Complaint::failed(format!("cannot write: {error}"));
    let Some(data) = &arguments.data else {
        let manifest = backup::verify(&arguments.backup).map_err(Complaint::data)?;
        match as_json {
            true => say(&facts(&manifest, None)).map_err(written)?,
            false => say(&format_args!("whole: {}", described(&manifest))).map_err(written)?,
        }
        return Ok(Exit::Done);
    };
    let manifest = backup::restore(&arguments.backup, data, arguments.keys.as_deref()).map_err(Complaint::data)?;
    if as_json {
        say(&facts(&manifest, Some(data))).map_err(written)?;
        return Ok(Exit::Done);
    }
    say(&format_args!("{} is restored: {}", data.display(), described(&manifest))).map_err(written)?;
    let has_keys = manifest.files.iter().any(|row| row.path.starts_with("keys/"));
    if has_keys && arguments.keys.is_none() {
        say(&"the keys in the backup were left there; --keys DIR restores them too").map_err(written)?;
    }
    Ok(Exit::Done)
}

fn facts(manifest: &Manifest, data: Option<&Path>) -> Value {
    let (files, bytes) = (manifest.files.len(), bytes(manifest));
    json!({ "restored": data, "whole": true, "files": files, "bytes": bytes, "orbweaver": manifest.orbweaver })
}

fn bytes(manifest: &Manifest) -> u64 {
    manifest.files.iter().map(|row| row.bytes).sum()
}

fn described(manifest: &Manifest) -> String {
    let bytes = bytes(manifest);
    format!("{} files, {bytes} bytes, made by orbweaver {}", manifest.files.len(), manifest.orbweaver)
}
