//! `orbweaver cert`: a certificate that signs itself, and its key, for the doors. Nothing is ever replaced.
//!
//! It serves on both ends: as the certificate of a server, and as that of a client whom a server knows by name
//! (`client_authority` is then the client's certificate itself).

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256};
use serde::Serialize;

use super::{Complaint, Exit};
use crate::edges::swarm::secret_file::{self, SecretError};

const DAY: Duration = Duration::from_secs(24 * 3_600);
/// Clocks differ: a certificate that is valid from this moment on is refused by whoever is a minute behind.
const EARLIER: Duration = Duration::from_secs(3_600);
/// No browser takes a certificate that is valid for longer than this, and none needs to be.
const DAYS_MAX: u32 = 825;

/// What to make.
#[derive(clap::Args)]
#[command(after_help = "Example: orbweaver cert --name crawl.example.org --name 192.0.2.7\n\
        then in [url_frontier]: tls_certificate = \"orbweaver.crt\", tls_key = \"orbweaver.key\"")]
pub(super) struct CertArguments {
    /// A name or an address by which clients reach the node; as often as needed
    #[arg(long = "name", value_name = "NAME", default_values = ["localhost", "127.0.0.1", "::1"])]
    names: Vec<String>,
    /// File for the certificate
    #[arg(long, value_name = "FILE", default_value = "orbweaver.crt")]
    certificate: PathBuf,
    /// File for its key, which only its owner may read
    #[arg(long, value_name = "FILE", default_value = "orbweaver.key")]
    key: PathBuf,
    /// How long it is valid
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=i64::from(DAYS_MAX)))]
    days: u32,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Made<'a> {
    certificate: &'a Path,
    key: &'a Path,
    names: &'a [String],
    days: u32,
    /// SHA-256 is what other tools show; this is BLAKE3 of the DER, to tell two files apart.
    blake3: String,
}

pub(super) fn run(arguments: &CertArguments) -> Result<Exit, Complaint> {
    let CertArguments { names, certificate, key, days, json } = arguments;
    for file in [certificate, key] {
        if file.exists() {
            let file = file.display();
            return Err(Complaint::usage(format!("{file} is there already: move it away, or name another file")));
        }
    }
    let (pem, secret, blake3) = make(names, *days, SystemTime::now()).map_err(Complaint::usage)?;
    // The key first: a certificate without its key is of no use, and the next try must find neither.
    create(key, &secret)?;
    if let Err(complaint) = create(certificate, &pem) {
        let _ = std::fs::remove_file(key);
        return Err(complaint);
    }
    if *json {
        let made = Made { certificate, key, names, days: *days, blake3 };
        println!("{}", serde_json::to_string_pretty(&made).map_err(Complaint::failed)?);
    } else {
        println!("{}  valid for {days} days, for {}", certificate.display(), names.join(", "));
        println!("{}  its key", key.display());
    }
    Ok(Exit::Done)
}

fn create(path: &Path, text: &str) -> Result<(), Complaint> {
    secret_file::create(path, text).map_err(|error: SecretError| Complaint::failed(error))
}

/// The certificate and its key as PEM, and the certificate's digest.
fn make(names: &[String], days: u32, now: SystemTime) -> Result<(String, String, String), String> {
    if let Some(name) = names.iter().find(|name| !is_name(name)) {
        return Err(format!("--name {name:?} is neither a host name nor an address: give it without scheme and port"));
    }
    let failed = |error: rcgen::Error| format!("the certificate cannot be made: {error}");
    let mut params = CertificateParams::new(names).map_err(failed)?;
    let since_epoch = now.duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(EARLIER);
    params.not_before = rcgen::date_time_ymd(1970, 1, 1) + since_epoch;
    params.not_after = params.not_before + EARLIER + DAY * days;
    params.distinguished_name.push(DnType::CommonName, names.first().map_or("orbweaver", String::as_str));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
    let certificate = params.self_signed(&key).map_err(failed)?;
    let blake3 = blake3::hash(certificate.der()).to_hex().to_string();
    Ok((certificate.pem(), key.serialize_pem(), blake3))
}

/// Host names as in URLs, with `*.` in front if wanted, or addresses.
fn is_name(name: &str) -> bool {
    if name.parse::<std::net::IpAddr>().is_ok() {
        return true;
    }
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    name.len() <= 253 && name.strip_prefix("*.").unwrap_or(name).split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(folder: &Path) -> CertArguments {
        CertArguments {
            names: vec!["crawl.example.org".into(), "192.0.2.7".into()],
            certificate: folder.join("a.crt"),
            key: folder.join("a.key"),
            days: 365,
            json: true,
        }
    }

    #[test]
    fn certificate_and_key_are_made_once_and_the_key_is_secret() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let arguments = arguments(folder.path());
        assert_eq!(run(&arguments).unwrap(), Exit::Done);
        let made = std::fs::read_to_string(&arguments.certificate).unwrap();
        assert!(made.starts_with("-----BEGIN CERTIFICATE-----"));
        assert_eq!(std::fs::metadata(&arguments.key).unwrap().permissions().mode() & 0o777, 0o600);
        let complaint = run(&arguments).unwrap_err();
        assert!(complaint.text().contains("is there already"), "{}", complaint.text());
        assert_eq!(std::fs::read_to_string(&arguments.certificate).unwrap(), made);
    }

    #[test]
    fn it_is_ecdsa_with_sha_256_for_its_names_and_a_year() {
        let names = ["crawl.example.org".to_owned(), "192.0.2.7".to_owned()];
        let now = UNIX_EPOCH + Duration::from_secs(1_790_000_000); // 2026-09-21 14:13:20
        let (pem, _, _) = make(&names, 365, now).unwrap();
        let text: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
        let der = proto::base64::from_base64(&text).unwrap();
        let count = |part: &[u8]| der.windows(part.len()).filter(|bytes| *bytes == part).count();
        let ecdsa_with_sha_256 = [6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
        let curve_p_256 = [6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
        assert_eq!(
            (count(&ecdsa_with_sha_256), count(&curve_p_256)),
            (2, 1),
            "twice: in what is signed, and beside it"
        );
        // An hour earlier, and a year later: times of two digits for the year.
        assert_eq!((count(b"\x17\x0d260921131320Z"), count(b"\x17\x0d270921141320Z")), (1, 1));
        // A DNS name and an address among the names it is for; the first is the common name, too.
        assert_eq!(count(b"\x82\x11crawl.example.org"), 1);
        assert_eq!((count(&[0x87, 4, 192, 0, 2, 7]), count(b"crawl.example.org")), (1, 3), "its own issuer");
    }

    #[test]
    fn a_certificate_that_cannot_be_written_leaves_no_key() {
        let folder = tempfile::tempdir().unwrap();
        let mut arguments = arguments(folder.path());
        std::fs::write(folder.path().join("file"), "").unwrap();
        arguments.certificate = folder.path().join("file").join("a.crt");
        assert!(run(&arguments).is_err());
        assert!(!arguments.key.exists());
    }

    #[test]
    fn names_are_names() {
        for good in ["localhost", "a.example", "*.example.org", "::1", "10.0.0.1", "node_1.lan"] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "https://a", "a:80", "a b", "-a", "*", "a..b", "ä.example", &"a".repeat(64)] {
            assert!(!is_name(bad), "{bad}");
            assert!(make(&[bad.to_owned()], 1, SystemTime::now()).is_err());
        }
    }
}
