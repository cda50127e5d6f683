//! What can end a fetch other than an answer, and how the layers below say so.

use std::error::Error;
use std::io;
use std::net::IpAddr;

use proto::crawl::retry::Failure;

use crate::edges::decode::{DecodeError, Encoding};
use crate::edges::dns::DnsError;

/// Why a fetch gave no answer we can use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// The URL cannot be written as a request.
    #[error("URL cannot be requested: {reason}")]
    BadUrl {
        /// What is wrong with it.
        reason: String,
    },
    /// The URL names an address, or the connection has a peer, that the guard refuses.
    #[error("address {address} is not public")]
    AddressRefused {
        /// The refused address.
        address: IpAddr,
    },
    /// The host has no address we may use.
    #[error(transparent)]
    Dns(#[from] DnsError),
    /// Nothing listens at the address.
    #[error("connection refused")]
    ConnectRefused,
    /// No connection came about.
    #[error("connection failed: {reason}")]
    ConnectFailed {
        /// What the operating system said.
        reason: String,
    },
    /// TLS could not be agreed, or the certificate is wrong.
    #[error("TLS failed: {reason}")]
    TlsFailed {
        /// What the TLS library said.
        reason: String,
    },
    /// The whole fetch, or the wait for the next bytes, took too long.
    #[error("no complete answer in time")]
    Timeout,
    /// The connection ended before the answer did.
    #[error("connection broke: {reason}")]
    ConnectionBroken {
        /// What the layer below said.
        reason: String,
    },
    /// The answer is not HTTP.
    #[error("answer is not HTTP: {reason}")]
    ProtocolBroken {
        /// What the layer below said.
        reason: String,
    },
    /// The head of the answer has too many bytes or too many header lines.
    #[error("head of the answer is too large")]
    HeadTooLarge,
    /// The body, decoded or as transferred, is larger than allowed.
    #[error("body is larger than {limit_bytes} bytes")]
    BodyTooLarge {
        /// The limit that was exceeded.
        limit_bytes: usize,
    },
    /// The body does not decode by its `Content-Encoding`.
    #[error("body is not valid {encoding:?}")]
    DecodingFailed {
        /// The encoding that could not be undone.
        encoding: Encoding,
    },
}

impl FetchError {
    /// Returns the row of the retry table this error belongs to.
    pub fn failure(&self) -> Failure {
        match self {
            FetchError::BadUrl { .. } => Failure::BadUrl,
            FetchError::AddressRefused { .. } | FetchError::Dns(DnsError::AddressRefused { .. }) => {
                Failure::AddressRefused
            }
            FetchError::Dns(DnsError::NotFound { .. }) => Failure::DnsNotFound,
            FetchError::Dns(DnsError::Unavailable { .. }) => Failure::DnsUnavailable,
            FetchError::ConnectRefused => Failure::ConnectRefused,
            FetchError::ConnectFailed { .. } => Failure::ConnectFailed,
            FetchError::TlsFailed { .. } => Failure::TlsFailed,
            FetchError::Timeout => Failure::Timeout,
            FetchError::ConnectionBroken { .. } => Failure::ConnectionBroken,
            FetchError::ProtocolBroken { .. } => Failure::ProtocolBroken,
            FetchError::HeadTooLarge => Failure::HeadTooLarge,
            FetchError::BodyTooLarge { .. } => Failure::BodyTooLarge,
            FetchError::DecodingFailed { .. } => Failure::DecodingFailed,
        }
    }

    /// Finds out what happened from the error of the HTTP client and its chain of causes.
    pub(super) fn from_client(error: &reqwest::Error) -> Self {
        let causes = Causes::of(error);
        if let Some(dns) = causes.dns {
            return FetchError::Dns(dns);
        }
        if let Some(reason) = causes.tls {
            return FetchError::TlsFailed { reason };
        }
        let reason = causes.root;
        if error.is_builder() {
            return FetchError::BadUrl { reason };
        }
        if error.is_connect() {
            return match causes.io {
                Some(io::ErrorKind::ConnectionRefused) => FetchError::ConnectRefused,
                // A TCP connection cannot end before it begins: this is the handshake that was hung up on.
                Some(io::ErrorKind::UnexpectedEof) => FetchError::TlsFailed { reason },
                _ => FetchError::ConnectFailed { reason },
            };
        }
        match causes.io {
            _ if error.is_timeout() => FetchError::Timeout,
            _ if causes.head_too_large => FetchError::HeadTooLarge,
            _ if causes.not_http => FetchError::ProtocolBroken { reason },
            // How hyper reports a body whose chunks are not chunks.
            Some(io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) => FetchError::ProtocolBroken { reason },
            _ => FetchError::ConnectionBroken { reason },
        }
    }
}

impl From<DecodeError> for FetchError {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::TooLarge { limit_bytes } => FetchError::BodyTooLarge { limit_bytes },
            DecodeError::Corrupt { encoding } => FetchError::DecodingFailed { encoding },
        }
    }
}

/// Returns the last link of an error's chain of causes, which says most.
pub(super) fn root_cause(error: &(dyn Error + 'static)) -> String {
    Causes::of(error).root
}

/// Returns whether TLS complains that the connection was closed without saying so first.
pub(super) fn is_unannounced_close(error: &reqwest::Error) -> bool {
    let causes = Causes::of(error);
    causes.io == Some(io::ErrorKind::UnexpectedEof) && causes.tls.is_none()
}

/// What a chain of causes contains.
#[derive(Default)]
struct Causes {
    dns: Option<DnsError>,
    tls: Option<String>,
    io: Option<io::ErrorKind>,
    head_too_large: bool,
    not_http: bool,
    root: String,
}

impl Causes {
    fn of(error: &(dyn Error + 'static)) -> Self {
        let mut causes = Causes::default();
        let mut next = Some(error);
        while let Some(error) = next {
            causes.root = error.to_string();
            next = error.source();
            if let Some(dns) = error.downcast_ref::<DnsError>() {
                causes.dns = Some(dns.clone());
            } else if let Some(tls) = error.downcast_ref::<rustls::Error>() {
                causes.tls = Some(tls.to_string());
            } else if let Some(io) = error.downcast_ref::<io::Error>() {
                causes.io = Some(io.kind());
                // `source` of an io error skips the error it wraps.
                next = io.get_ref().map(|inner| inner as &(dyn Error + 'static)).or(next);
            } else {
                causes.note_hyper(&error.to_string());
            }
        }
        causes
    }

    /// reqwest hides hyper's error type, which leaves its text; the tests hold these words against the real library.
    fn note_hyper(&mut self, text: &str) {
        match text {
            "message head is too large" => self.head_too_large = true,
            "received unexpected message from connection" => self.not_http = true,
            text => self.not_http |= text.starts_with("invalid ") || text.ends_with(" parsed"),
        }
    }
}
