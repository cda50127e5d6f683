//! The swarm key: the secret that every node and every operator of a cluster holds, in the file format that all of libp2p shares
//! (`/key/swarm/psk/1.0.0/`). Without it no connection gets past its first bytes.

use std::fmt;
use std::io;
use std::path::Path;

use libp2p::pnet::PreSharedKey;

use super::secret_file::{self, SecretError, from_hex, to_hex};

const KIND: &str = "/key/swarm/psk/1.0.0/";
const ENCODING: &str = "/base16/";
const KEY_BYTES: usize = 32;
const REMEDY: &str = "copy the swarm key from another node of the cluster: a new one would shut this node out";

/// The key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SwarmKey([u8; KEY_BYTES]);

impl SwarmKey {
    /// A new key.
    pub fn generate() -> SwarmKey {
        // The seed of a fresh ed25519 key is 32 random bytes of the system.
        let key = libp2p::identity::ed25519::Keypair::generate();
        let mut bytes = [0; KEY_BYTES];
        bytes.copy_from_slice(key.secret().as_ref());
        SwarmKey(bytes)
    }

    /// A key of these bytes.
    pub fn new(bytes: [u8; KEY_BYTES]) -> SwarmKey {
        SwarmKey(bytes)
    }

    /// The key in a file, which must be there.
    pub fn load(path: &Path) -> Result<SwarmKey, SecretError> {
        let missing = || SecretError::Io {
            action: "read",
            path: path.to_owned(),
            reason: io::Error::new(
                io::ErrorKind::NotFound,
                "there is no such file; copy it from another node, or make the cluster's first one with `orbweaver keygen`",
            ),
        };
        let text = secret_file::read(path)?.ok_or_else(missing)?;
        parse(&text).map_err(|reason| SecretError::Damaged {
            path: path.to_owned(),
            reason: format!("as a swarm key, {reason}"),
            remedy: REMEDY,
        })
    }

    /// Writes the key to a file that must not be there yet.
    pub fn save(&self, path: &Path) -> Result<(), SecretError> {
        secret_file::create(path, &format!("{KIND}\n{ENCODING}\n{}\n", to_hex(&self.0)))
    }

    /// A name for the key that gives nothing of it away: equal keys have equal ones.
    pub fn fingerprint(&self) -> String {
        self.pre_shared().fingerprint().to_string()
    }

    pub(super) fn pre_shared(&self) -> PreSharedKey {
        PreSharedKey::new(self.0)
    }
}

impl fmt::Debug for SwarmKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SwarmKey({})", self.fingerprint())
    }
}

fn parse(text: &str) -> Result<SwarmKey, &'static str> {
    let mut lines = text.lines().map(str::trim);
    if lines.next() != Some(KIND) {
        return Err("its first line is not /key/swarm/psk/1.0.0/");
    }
    if lines.next() != Some(ENCODING) {
        return Err("its second line is not /base16/");
    }
    let bytes = from_hex(lines.next().unwrap_or_default()).ok_or("its key is not hexadecimal")?;
    let bytes = bytes.try_into().map_err(|_| "its key is not 64 digits long")?;
    if lines.any(|line| !line.is_empty()) {
        return Err("something follows its key");
    }
    Ok(SwarmKey(bytes))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_comes_back_from_its_file_and_libp2p_reads_it_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("swarm.key");
        let key = SwarmKey::generate();
        assert_ne!(key, SwarmKey::generate());
        key.save(&path).unwrap();
        assert_eq!(SwarmKey::load(&path).unwrap(), key);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.parse::<PreSharedKey>().unwrap(), key.pre_shared());
        assert_eq!(text, key.pre_shared().to_key_file());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(key.save(&path).is_err(), "an existing key is never replaced");
        assert!(!format!("{key:?}").contains(text.lines().nth(2).unwrap()));
    }

    #[test]
    fn a_damaged_key_is_named_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("swarm.key");
        let digits = "é".repeat(32);
        for wrong in [
            "".to_owned(),
            format!("{KIND}\n/base64/\nAAAA\n"),
            format!("{KIND}\n{ENCODING}\nabc\n"),
            format!("{KIND}\n{ENCODING}\n{digits}\n"),
            format!("{KIND}\n{ENCODING}\n{}\nmore\n", "0".repeat(64)),
        ] {
            std::fs::write(&path, wrong).unwrap();
            let complaint = SwarmKey::load(&path).unwrap_err().to_string();
            assert!(
                complaint.contains("swarm.key is damaged") && complaint.contains("from another node"),
                "{complaint}"
            );
        }
    }
}
