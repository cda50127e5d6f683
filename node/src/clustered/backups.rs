//! Backups of the node's data folder: one at a time, made while the node runs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use proto::control::admin::BackupState;
use tracing::{info, warn};

use crate::edges::backup::{self, Plan};
use crate::edges::disk::Job;
use crate::node::Node;

/// Where a node's files are.
#[derive(Clone, Debug)]
pub(super) struct Files {
    /// Its data folder.
    pub(super) data: PathBuf,
    /// Its identity.
    pub(super) identity: PathBuf,
    /// The cluster's secret.
    pub(super) swarm_key: PathBuf,
}

/// The backup that is being made, or how the last one ended. Clones share it.
#[derive(Clone)]
pub(super) struct Backups {
    state: Arc<Mutex<BackupState>>,
}

impl Default for Backups {
    fn default() -> Self {
        Backups { state: Arc::new(Mutex::new(BackupState::None)) }
    }
}

impl Backups {
    pub(super) fn state(&self) -> BackupState {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    fn set(&self, state: BackupState) {
        *self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = state;
    }

    /// Begins a backup into an empty folder; what becomes of it is to be asked for.
    pub(super) fn begin(
        &self,
        node: &Arc<Node>,
        files: &Files,
        folder: String,
        keys: bool,
    ) -> Result<BackupState, String> {
        let path = PathBuf::from(&folder);
        if !path.is_absolute() {
            return Err(format!("{folder}: give an absolute path, on the machine of the node"));
        }
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let BackupState::Running { folder, .. } = &*state {
            return Err(format!("a backup into {folder} is being made; wait for its end"));
        }
        backup::check_target(&path, &files.data).map_err(|error| error.to_string())?;
        *state = BackupState::Running { folder: folder.clone(), files: 0, bytes: 0 };
        let begun = state.clone();
        drop(state);
        let (backups, node, files) = (self.clone(), Arc::clone(node), files.clone());
        tokio::spawn(async move {
            let ended = match make(&backups, &node, &files, &path, keys).await {
                Ok((count, bytes)) => {
                    info!(%folder, files = count, bytes, "backup made");
                    BackupState::Done { folder, files: count, bytes }
                }
                Err(why) => {
                    warn!(%folder, %why, "backup failed");
                    BackupState::Failed { folder, why }
                }
            };
            backups.set(ended);
        });
        Ok(begun)
    }
}

/// The database first, by the disk thread between two groups, then the archive up to where that database knows it.
async fn make(backups: &Backups, node: &Node, files: &Files, folder: &Path, keys: bool) -> Result<(u64, u64), String> {
    let plan = Plan::begin(folder, &files.data).map_err(|error| error.to_string())?;
    let database = plan.database();
    let warc_end = node.ask(|reply| Job::Checkpoint(database, reply)).await.map_err(|error| error.to_string())?;
    let keys = if keys { vec![files.identity.clone(), files.swarm_key.clone()] } else { Vec::new() };
    let (backups, shown) = (backups.clone(), folder.display().to_string());
    let finishing = tokio::task::spawn_blocking(move || {
        plan.finish(warc_end, &keys, |files, bytes| {
            backups.set(BackupState::Running { folder: shown.clone(), files, bytes });
        })
    });
    finishing.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
}
