//! The section `[url_frontier]`: the gRPC door.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::ConfigError;

/// What the word must be that opens the door to everybody.
const WORDS: &str = "anyone may read and change every queue";

/// The gRPC door.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FrontierConfig {
    /// Whether there is one.
    pub enabled: bool,
    /// Where it is; 127.0.0.1:7071 if absent, or a free port if that one is taken.
    pub listen: Option<SocketAddr>,
    /// Certificates of this node, PEM.
    pub tls_certificate: Option<PathBuf>,
    /// Their key, PEM.
    pub tls_key: Option<PathBuf>,
    /// Who signs certificates of clients, PEM; clients without one are refused.
    pub client_authority: Option<PathBuf>,
    /// A file with the token that clients must bring.
    pub token_file: Option<PathBuf>,
    /// Lets a door that others can reach do without any of these.
    pub unprotected: String,
    /// Whether clients may ask what calls there are.
    pub reflection: bool,
    /// Longest message.
    pub message_bytes_max: usize,
    /// Streams that are open at once.
    pub streams_max: usize,
}

impl Default for FrontierConfig {
    fn default() -> Self {
        FrontierConfig {
            enabled: true,
            listen: None,
            tls_certificate: None,
            tls_key: None,
            client_authority: None,
            token_file: None,
            unprotected: String::new(),
            reflection: true,
            message_bytes_max: 4 << 20,
            streams_max: 1_024,
        }
    }
}

impl FrontierConfig {
    /// Makes paths relative to the folder of the settings.
    pub(super) fn below(&mut self, folder: &Path) {
        let paths = [&mut self.tls_certificate, &mut self.tls_key, &mut self.client_authority, &mut self.token_file];
        for path in paths.into_iter().flatten() {
            *path = folder.join(&*path);
        }
    }

    /// Says what is wrong with it.
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let wrong = |setting: &str, reason: &str| {
            Err(ConfigError::Value { setting: format!("url_frontier.{setting}"), reason: reason.to_owned() })
        };
        let tls = self.tls_certificate.is_some();
        if tls != self.tls_key.is_some() {
            return wrong("tls_key", "certificate and key belong together; name both or none");
        }
        if self.client_authority.is_some() && !tls {
            return wrong("client_authority", "needs TLS: name tls_certificate and tls_key");
        }
        if !self.unprotected.is_empty() && self.unprotected != WORDS {
            return wrong("unprotected", &format!("must be left out, or say {WORDS:?}"));
        }
        let reachable = self.enabled && self.listen.is_some_and(|address| !address.ip().is_loopback());
        let guarded = tls && (self.client_authority.is_some() || self.token_file.is_some());
        if reachable && !guarded && self.unprotected.is_empty() {
            let reason = format!(
                "others can reach this address: name tls_certificate, tls_key, and client_authority or token_file; or say unprotected = {WORDS:?}"
            );
            return wrong("listen", &reason);
        }
        if !(1 << 16..=64 << 20).contains(&self.message_bytes_max) {
            return wrong("message_bytes_max", "must be between 64 KiB and 64 MiB");
        }
        if !(1..=100_000).contains(&self.streams_max) {
            return wrong("streams_max", "must be between 1 and 100000");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_door_that_others_can_reach_is_guarded_or_says_that_it_is_not() {
        let open = FrontierConfig { listen: Some("0.0.0.0:7071".parse().unwrap()), ..FrontierConfig::default() };
        let said = open.validate().unwrap_err().to_string();
        assert!(said.contains("url_frontier.listen") && said.contains("token_file"), "{said}");
        assert!(FrontierConfig { enabled: false, ..open.clone() }.validate().is_ok());
        assert!(FrontierConfig { unprotected: WORDS.into(), ..open.clone() }.validate().is_ok());
        assert!(FrontierConfig { unprotected: "yes".into(), ..open.clone() }.validate().is_err());
        let pem = Some(PathBuf::from("x.pem"));
        let tls = FrontierConfig { tls_certificate: pem.clone(), tls_key: pem.clone(), ..open.clone() };
        assert!(tls.validate().is_err(), "a certificate says who we are, not who they are");
        assert!(FrontierConfig { token_file: pem.clone(), ..tls.clone() }.validate().is_ok());
        assert!(FrontierConfig { client_authority: pem.clone(), ..tls }.validate().is_ok());
        assert!(
            FrontierConfig { token_file: pem, ..open }.validate().is_err(),
            "a token must not go over an open line"
        );
        assert!(FrontierConfig::default().validate().is_ok());
    }
}
