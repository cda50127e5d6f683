//! The one encoding of everything that crosses the wire or the disk; the only user of bincode.
//!
//! Varints, little-endian, no trailing bytes, and a limit that is checked before anything is allocated. Decoding is from
//! slices only: from a reader, bincode trusts length prefixes. Enum variants may only be appended, fields never reordered;
//! what is stored carries the format version of its database, what is sent the version of its envelope.

use bincode::Options;
use serde::{Serialize, de::DeserializeOwned};

/// Longest encoded value, in bytes. The largest is a robots.txt at its cap of 500 KiB; eight times that leaves room for batches.
pub const VALUE_BYTES_MAX: u64 = 4 << 20;

/// Why bytes could not be understood, or a value not be encoded.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} a {what}: {reason}")]
pub struct WireError {
    action: &'static str,
    what: &'static str,
    reason: String,
}

fn options() -> impl Options {
    bincode::DefaultOptions::new().with_limit(VALUE_BYTES_MAX)
}

/// Encodes `value`, appending to `out`. On an error nothing is appended.
pub fn encode_into<T: Serialize>(value: &T, out: &mut Vec<u8>) -> Result<(), WireError> {
    let before = out.len();
    // Under a limit, bincode walks through the value twice, to measure it first; so it is measured afterwards.
    let mut encoded = bincode::DefaultOptions::new().serialize_into(&mut *out, value);
    if (out.len() - before) as u64 > VALUE_BYTES_MAX {
        encoded = Err(bincode::ErrorKind::SizeLimit.into());
    }
    encoded.map_err(|error| {
        out.truncate(before);
        failed::<T>("encode", &error)
    })
}

/// Encodes `value`.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, WireError> {
    let mut out = Vec::with_capacity(128);
    encode_into(value, &mut out)?;
    Ok(out)
}

/// Decodes the whole of `bytes`; a byte too many is an error.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, WireError> {
    options().deserialize(bytes).map_err(|error| failed::<T>("decode", &error))
}

/// Decodes a value at the start of `bytes` and moves them behind it. Only for types without lengths in them: this reads
/// from a reader, and bincode would trust those.
pub(crate) fn decode_first<T: DeserializeOwned>(bytes: &mut &[u8]) -> Result<T, WireError> {
    bincode::DefaultOptions::new().deserialize_from(bytes).map_err(|error| failed::<T>("decode", &error))
}

/// Bytes, encoded as such and not one by one.
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl<'de> serde::Deserialize<'de> for Bytes {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Bytes;

            fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str("bytes")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Bytes, E> {
                Ok(Bytes(bytes.to_vec()))
            }

            fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Bytes, E> {
                Ok(Bytes(bytes))
            }
        }
        deserializer.deserialize_bytes(Visitor)
    }
}

/// Newest version of what nodes say to each other. A version adds messages and never changes one: whoever talks to an older
/// node leaves out what it does not know ([`Message::since`](crate::cluster::message::Message::since)).
pub const WIRE_VERSION: u16 = 5;

/// Oldest version that is still spoken.
pub const WIRE_VERSION_MIN: u16 = 1;

/// Bytes of an envelope before its content.
pub const ENVELOPE_BYTES: usize = 10;

/// The beginning of an envelope: version and cluster, in bytes that no version may change. The encoded content follows.
pub fn envelope(version: u16, cluster: u64) -> [u8; ENVELOPE_BYTES] {
    let mut head = [0; ENVELOPE_BYTES];
    head[..2].copy_from_slice(&version.to_le_bytes());
    head[2..].copy_from_slice(&cluster.to_le_bytes());
    head
}

/// Puts `value` into an envelope of `cluster`, in the newest version.
pub fn seal<T: Serialize>(cluster: u64, value: &T) -> Result<Vec<u8>, WireError> {
    let mut out = Vec::with_capacity(256);
    out.extend_from_slice(&envelope(WIRE_VERSION, cluster));
    encode_into(value, &mut out)?;
    Ok(out)
}

/// Takes a value out of its envelope, if it is of the newest version and of `cluster`.
pub fn unseal<T: DeserializeOwned>(cluster: u64, bytes: &[u8]) -> Result<T, EnvelopeError> {
    unseal_as(WIRE_VERSION, cluster, bytes)
}

/// Takes a value out of its envelope, if it is of `version` and of `cluster`.
pub fn unseal_as<T: DeserializeOwned>(version: u16, cluster: u64, bytes: &[u8]) -> Result<T, EnvelopeError> {
    let (theirs, rest) = bytes.split_first_chunk().ok_or(EnvelopeError::Torn)?;
    let (from, rest) = rest.split_first_chunk().ok_or(EnvelopeError::Torn)?;
    let (theirs, from) = (u16::from_le_bytes(*theirs), u64::from_le_bytes(*from));
    if theirs != version {
        return Err(EnvelopeError::OtherVersion { version: theirs });
    }
    if from != cluster {
        return Err(EnvelopeError::OtherCluster);
    }
    Ok(decode(rest)?)
}

/// Why an envelope was not opened.
#[derive(Debug, thiserror::Error)]
pub enum EnvelopeError {
    /// Too short to be one.
    #[error("the envelope is torn")]
    Torn,
    /// It is from another cluster.
    #[error("the message is from another cluster")]
    OtherCluster,
    /// It is of another version.
    #[error("the message is of version {version}, which was not agreed")]
    OtherVersion {
        /// The version it names.
        version: u16,
    },
    /// Its content cannot be understood.
    #[error(transparent)]
    Content(#[from] WireError),
}

fn failed<T>(action: &'static str, error: &bincode::Error) -> WireError {
    WireError { action, what: short_name::<T>(), reason: error.to_string() }
}

fn short_name<T>() -> &'static str {
    let name = std::any::type_name::<T>();
    name.rsplit("::").next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_comes_back_as_it_was() {
        let value = (7u16, String::from("seven"), vec![1u64, 1 << 40]);
        let bytes = encode(&value).unwrap();
        assert_eq!(decode::<(u16, String, Vec<u64>)>(&bytes).unwrap(), value);
    }

    #[test]
    fn trailing_bytes_are_refused() {
        let mut bytes = encode(&1u8).unwrap();
        bytes.push(0);
        assert!(decode::<u8>(&bytes).is_err());
    }

    #[test]
    fn a_length_beyond_the_input_is_an_error_and_not_an_allocation() {
        let mut bytes = vec![253];
        bytes.extend_from_slice(&u64::MAX.to_le_bytes());
        assert!(decode::<Vec<u8>>(&bytes).is_err());
        assert!(decode::<Vec<String>>(&bytes).is_err());
    }

    #[test]
    fn an_envelope_is_opened_only_by_its_own_cluster_and_version() {
        let sealed = seal(7, &42u32).unwrap();
        assert_eq!(unseal::<u32>(7, &sealed).unwrap(), 42);
        assert!(matches!(unseal::<u32>(8, &sealed), Err(EnvelopeError::OtherCluster)));
        let mut newer = sealed.clone();
        newer[0] += 1;
        assert!(matches!(unseal::<u32>(7, &newer), Err(EnvelopeError::OtherVersion { .. })));
        assert_eq!(unseal_as::<u32>(WIRE_VERSION + 1, 7, &newer).unwrap(), 42);
        for length in 0..sealed.len() {
            assert!(unseal::<u32>(7, &sealed[..length]).is_err());
        }
    }

    #[test]
    fn a_value_over_the_limit_is_not_encoded() {
        assert!(encode(&vec![0u8; VALUE_BYTES_MAX as usize + 1]).is_err());
    }
}
