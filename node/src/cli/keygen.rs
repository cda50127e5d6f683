//! `orbweaver keygen`: makes identities and the swarm key, and shows those that are there. Nothing is ever replaced.

use std::path::PathBuf;

use serde::Serialize;

use super::{Complaint, Exit};
use crate::edges::swarm::identity::Identity;
use crate::edges::swarm::key::SwarmKey;
use crate::edges::swarm::secret_file::SecretError;

/// What to make.
#[derive(clap::Args)]
pub(super) struct KeygenArguments {
    /// Files for identities, one for each node, operator or viewer; what is there already is shown
    #[arg(value_name = "FILE", default_value = "node.key")]
    identities: Vec<PathBuf>,
    /// File for the swarm key, which all nodes and operators of a cluster share: make it once and copy it
    #[arg(long, value_name = "FILE")]
    swarm_key: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Made {
    identities: Vec<MadeIdentity>,
    swarm_key: Option<MadeKey>,
}

#[derive(Serialize)]
struct MadeIdentity {
    file: PathBuf,
    peer_id: String,
}

#[derive(Serialize)]
struct MadeKey {
    file: PathBuf,
    fingerprint: String,
}

pub(super) fn run(arguments: &KeygenArguments) -> Result<Exit, Complaint> {
    let made = make(arguments).map_err(Complaint::failed)?;
    if arguments.json {
        let text = serde_json::to_string_pretty(&made).map_err(Complaint::failed)?;
        println!("{text}");
        return Ok(Exit::Done);
    }
    for identity in &made.identities {
        println!("{}  {}", identity.peer_id, identity.file.display());
    }
    if let Some(key) = &made.swarm_key {
        println!("swarm key {}  {}", key.fingerprint, key.file.display());
    }
    Ok(Exit::Done)
}

fn make(arguments: &KeygenArguments) -> Result<Made, SecretError> {
    let mut identities = Vec::new();
    for file in &arguments.identities {
        let peer_id = Identity::load_or_create(file)?.peer().to_string();
        identities.push(MadeIdentity { file: file.clone(), peer_id });
    }
    let swarm_key = match &arguments.swarm_key {
        Some(file) => {
            if !file.exists() {
                SwarmKey::generate().save(file)?;
            }
            Some(MadeKey { file: file.clone(), fingerprint: SwarmKey::load(file)?.fingerprint() })
        }
        None => None,
    };
    Ok(Made { identities, swarm_key })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_made_once_and_shown_after_that() {
        let folder = tempfile::tempdir().unwrap();
        let arguments = KeygenArguments {
            identities: vec![folder.path().join("a.key"), folder.path().join("b.key")],
            swarm_key: Some(folder.path().join("swarm.key")),
            json: true,
        };
        let first = serde_json::to_value(make(&arguments).unwrap()).unwrap();
        assert_eq!(serde_json::to_value(make(&arguments).unwrap()).unwrap(), first);
        assert_ne!(first["identities"][0]["peer_id"], first["identities"][1]["peer_id"]);
        std::fs::write(folder.path().join("b.key"), "damaged").unwrap();
        let complaint = make(&arguments).err().unwrap().to_string();
        assert!(complaint.contains("b.key is damaged"), "{complaint}");
    }
}
