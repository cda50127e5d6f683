//! `ctl backup`: has nodes make backups of their data folders, and waits for their end.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use proto::control::admin::{BackupState, Order, Part, Said, To, Trouble};
use serde_json::json;

use super::{Complaint, Connection, Exit, admin, name, say};

/// How often it is looked how far they are.
const LOOK_EVERY: Duration = Duration::from_millis(500);

#[derive(Args)]
#[command(after_help = "`orbweaver restore` makes a data folder from a backup.")]
pub(super) struct BackupArguments {
    /// Folder on the node's machine, an absolute path that is empty or not there yet; with --all each node takes a folder in it that is
    /// named like the node
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The node's identity and the swarm key too: whoever has the backup can then act as the node
    #[arg(long)]
    keys: bool,
    #[command(flatten)]
    whom: admin::Whom,
}

pub(super) async fn backup(
    connection: &Connection,
    arguments: &BackupArguments,
    as_json: bool,
) -> Result<Exit, Complaint> {
    // Without a name it is the node that answers.
    let to = arguments.whom.named().unwrap_or(To::Here);
    let each = to == To::All;
    let mut parts = admin::ask(connection, to, Order::BackupState).await?;
    for part in parts.iter_mut().filter(|part| part.said.is_ok()) {
        let folder = if each { arguments.folder.join(name(part.node)) } else { arguments.folder.clone() };
        let folder = folder.into_os_string().into_string().map_err(|_| Complaint::usage("the path is no text"))?;
        let order = Order::Backup { folder, keys: arguments.keys };
        part.said = one(connection, part, order).await;
    }
    while parts.iter().any(is_running) {
        tokio::time::sleep(LOOK_EVERY).await;
        for part in parts.iter_mut().filter(|part| is_running(part)) {
            part.said = one(connection, part, Order::BackupState).await;
        }
    }
    if let Some(why) = admin::refusal(&parts) {
        return Err(Complaint::failed(why));
    }
    let text = if as_json {
        json!(proto::control::Answer::Admin(parts.clone())).to_string()
    } else {
        parts.iter().map(line).collect::<Vec<String>>().join("\n")
    };
    say(&text).map_err(|error| Complaint::failed(format!("cannot write: {error}")))?;
    let good = |part: &Part| matches!(part.said, Ok(Said::Backup(BackupState::Done { .. })));
    Ok(if parts.iter().all(good) { Exit::Done } else { Exit::Failed })
}

/// Asks one node, whatever it says.
async fn one(connection: &Connection, part: &Part, order: Order) -> Result<Said, Trouble> {
    let refused = |error: Complaint| Trouble::Refused(error.text);
    let answer = admin::ask(connection, To::One(part.peer.clone()), order).await.map_err(refused)?;
    answer.into_iter().next().ok_or_else(|| Trouble::Missing("no answer".to_owned()))?.said
}

fn is_running(part: &Part) -> bool {
    matches!(part.said, Ok(Said::Backup(BackupState::Running { .. })))
}

fn line(part: &Part) -> String {
    let node = name(part.node);
    match &part.said {
        Ok(Said::Backup(BackupState::Done { folder, files, bytes })) => {
            format!("{node}  {folder}: {files} files, {bytes} bytes")
        }
        Ok(Said::Backup(BackupState::Failed { folder, why })) => format!("{node}  {folder}: failed: {why}"),
        Ok(other) => format!("{node}  {other:?}"),
        Err(trouble) => admin::trouble_line(part, trouble),
    }
}
