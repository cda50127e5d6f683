//! Who a node or a person is: an ed25519 key in a file of its own. The peer id is made of it, the node id of the peer id.
//!
//! The file is text: a line with its kind, one with its encoding, the key, and the peer id, so that people can read that and a
//! damaged key is noticed.

use std::fmt;
use std::io;
use std::path::Path;

use libp2p::PeerId;
use libp2p::identity::{KeyType, Keypair};
use proto::id::NodeId;

use super::secret_file::{self, SecretError, from_hex, to_hex};

const KIND: &str = "/orbweaver/identity/1.0.0/";
const ENCODING: &str = "/base16/";
const REMEDY: &str = "restore it from a copy, or move it away and run `orbweaver keygen` for a new one, whose peer id must \
then be given to the other nodes";

/// A key and the names that follow from it.
#[derive(Clone)]
pub struct Identity {
    key: Keypair,
}

/// The node that a peer is.
pub fn node_of(peer: &PeerId) -> NodeId {
    NodeId::of_peer(&peer.to_bytes())
}

impl Identity {
    /// A new identity, which is in no file.
    pub fn generate() -> Identity {
        Identity { key: Keypair::generate_ed25519() }
    }

    /// The identity of a key.
    pub fn from_key(key: Keypair) -> Identity {
        Identity { key }
    }

    /// The identity in a file, which must be there.
    pub fn load(path: &Path) -> Result<Identity, SecretError> {
        match secret_file::read(path)? {
            Some(text) => parse(path, &text),
            None => Err(SecretError::Io {
                action: "read",
                path: path.to_owned(),
                reason: io::Error::new(io::ErrorKind::NotFound, "there is no such file; `orbweaver keygen` makes one"),
            }),
        }
    }

    /// The identity in a file; if there is none, a new one is written to it.
    pub fn load_or_create(path: &Path) -> Result<Identity, SecretError> {
        if let Some(text) = secret_file::read(path)? {
            return parse(path, &text);
        }
        let identity = Identity::generate();
        match secret_file::create(path, &identity.to_text()?) {
            Ok(()) => Ok(identity),
            // Another process was faster: what is in the file counts.
            Err(SecretError::Io { reason, .. }) if reason.kind() == io::ErrorKind::AlreadyExists => {
                Identity::load(path)
            }
            Err(error) => Err(error),
        }
    }

    /// The key.
    pub fn key(&self) -> &Keypair {
        &self.key
    }

    /// Its name in the swarm.
    pub fn peer(&self) -> PeerId {
        self.key.public().to_peer_id()
    }

    /// Its name in the cluster.
    pub fn node(&self) -> NodeId {
        node_of(&self.peer())
    }

    fn to_text(&self) -> Result<String, SecretError> {
        let encoded = self.key.to_protobuf_encoding().map_err(|error| SecretError::Io {
            action: "encode",
            path: "the key".into(),
            reason: io::Error::other(error),
        })?;
        Ok(format!("{KIND}\n{ENCODING}\n{}\n{}\n", to_hex(&encoded), self.peer()))
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Identity({})", self.peer())
    }
}

fn parse(path: &Path, text: &str) -> Result<Identity, SecretError> {
    let damaged = |reason: &str| SecretError::Damaged {
        path: path.to_owned(),
        reason: format!("as an identity, {reason}"),
        remedy: REMEDY,
    };
    let mut lines = text.lines().map(str::trim);
    let (Some(KIND), Some(ENCODING)) = (lines.next(), lines.next()) else {
        return Err(damaged("its first lines are not those of one"));
    };
    let (Some(key), Some(peer)) = (lines.next(), lines.next()) else {
        return Err(damaged("it ends too early"));
    };
    let key = from_hex(key).ok_or_else(|| damaged("its key is not hexadecimal"))?;
    let key = Keypair::from_protobuf_encoding(&key).map_err(|_| damaged("its key is none"))?;
    if key.key_type() != KeyType::Ed25519 {
        return Err(damaged("its key is not of the kind ed25519"));
    }
    if key.public().to_peer_id().to_string() != peer {
        return Err(damaged("its key and its peer id do not belong together"));
    }
    Ok(Identity { key })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn an_identity_is_made_once_and_only_its_owner_can_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deeper/node.key");
        assert!(matches!(Identity::load(&path), Err(SecretError::Io { .. })));
        let first = Identity::load_or_create(&path).unwrap();
        let again = Identity::load_or_create(&path).unwrap();
        assert_eq!((first.peer(), first.node()), (again.peer(), again.node()));
        assert_eq!(Identity::load(&path).unwrap().peer(), first.peer());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let left = std::fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(left, 1, "a draft was left behind");
        assert!(!format!("{first:?}").contains(&to_hex(&first.key().to_protobuf_encoding().unwrap())));
    }

    #[test]
    fn a_damaged_file_is_named_with_what_to_do_and_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.key");
        Identity::load_or_create(&path).unwrap();
        let good = std::fs::read_to_string(&path).unwrap();
        let other = Identity::generate().to_text().unwrap();
        let mixed: Vec<&str> = good.lines().take(3).chain(other.lines().skip(3)).collect();
        let flipped = good.replacen('8', "9", 1);
        for wrong in [
            "",
            "hello",
            &good[..60],
            &good.replace(ENCODING, "/base64/"),
            &mixed.join("\n"),
            &flipped,
            "é\u{0}\u{fffd}",
        ] {
            std::fs::write(&path, wrong).unwrap();
            let complaint = Identity::load_or_create(&path).unwrap_err().to_string();
            assert!(complaint.contains("node.key") && complaint.contains("orbweaver keygen"), "{complaint}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), wrong);
        }
    }

    #[test]
    fn the_node_of_a_peer_never_changes() {
        let key = Keypair::ed25519_from_bytes([7; 32]).unwrap();
        let peer = key.public().to_peer_id();
        assert_eq!(peer.to_string(), "12D3KooWRawPbxPtP1eZaJpumGnyWX2DcUyd3RQnydr3eAto4Az7");
        assert_eq!(node_of(&peer), NodeId(1_426_870_698_235_363_575));
    }
}
