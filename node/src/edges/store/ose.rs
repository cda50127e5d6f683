//! Files of imported site folders (OSE), kept as they were: rows of `meta`, in pieces, so that memory does not grow with a file.
//!
//! ```text
//! ose/ site 0 s                   what was imported; written last, so an import that was killed is none
//! ose/ site 0 f name              length and digest of a file
//! ose/ site 0 p name 0 number     a piece of it
//! ```

use std::io::{Read, Write};

use proto::wire;
use rocksdb::WriteOptions;
use serde::{Deserialize, Serialize};

use super::{Store, StoreError};

/// How much of a file one row holds.
const PIECE_BYTES: usize = 1 << 20;

/// A site folder that was imported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportedSite {
    /// Into which crawl.
    pub crawl: String,
    /// When, Unix milliseconds.
    pub imported_ms: u64,
    /// How many files it has.
    pub files: u64,
}

/// A file of such a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedFile {
    /// Its name.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    digest: [u8; 32],
}

/// Why a file could not be taken in or given back.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Where it comes from or goes to.
    #[error(transparent)]
    Outside(#[from] std::io::Error),
}

fn key(site: &str, kind: &str) -> Vec<u8> {
    [b"ose/", site.as_bytes(), b"\0", kind.as_bytes()].concat()
}

fn piece_key(site: &str, name: &str, number: u32) -> Vec<u8> {
    [&key(site, "p"), name.as_bytes(), b"\0", &number.to_be_bytes()].concat()
}

impl Store {
    /// Forgets what was imported of a site before.
    pub fn begin_site(&mut self, site: &str) -> Result<(), StoreError> {
        let (from, mut to) = (key(site, ""), key(site, ""));
        to.push(0xff);
        self.db.delete_range_cf(&self.family("meta"), from, to).map_err(|error| self.failed(&error))
    }

    /// Takes a file in; returns its length.
    pub fn keep_file(&mut self, site: &str, name: &str, mut from: impl Read) -> Result<u64, FileError> {
        let (mut bytes, mut hasher) = (0, blake3::Hasher::new());
        for number in 0u32.. {
            let mut piece = Vec::new();
            (&mut from).take(PIECE_BYTES as u64).read_to_end(&mut piece)?;
            if piece.is_empty() {
                break;
            }
            hasher.update(&piece);
            bytes += piece.len() as u64;
            let put = self.db.put_cf(&self.family("meta"), piece_key(site, name, number), piece);
            put.map_err(|error| self.failed(&error))?;
        }
        let row = wire::encode(&(bytes, *hasher.finalize().as_bytes())).map_err(|e| StoreError::damaged("meta", e))?;
        let put = self.db.put_cf(&self.family("meta"), [&key(site, "f"), name.as_bytes()].concat(), row);
        put.map_err(|error| self.failed(&error))?;
        Ok(bytes)
    }

    /// Makes an import count, with everything that was taken in before it, fsynced.
    pub fn finish_site(&mut self, site: &str, imported: &ImportedSite) -> Result<(), StoreError> {
        let row = wire::encode(imported).map_err(|error| StoreError::damaged("meta", error))?;
        let mut options = WriteOptions::default();
        options.set_sync(true);
        let put = self.db.put_cf_opt(&self.family("meta"), key(site, "s"), row, &options);
        put.map_err(|error| self.failed(&error))
    }

    /// What was imported of a site.
    pub fn imported_site(&self, site: &str) -> Result<Option<ImportedSite>, StoreError> {
        self.get("meta", &key(site, "s"))
    }

    /// The files of an imported site, by name.
    pub fn imported_files(&self, site: &str) -> impl Iterator<Item = Result<ImportedFile, StoreError>> + '_ {
        let prefix = key(site, "f");
        let skip = prefix.len();
        self.rows("meta", prefix.clone(), prefix).map(move |row| {
            let (key, value) = row?;
            let name = String::from_utf8_lossy(&key[skip..]).into_owned();
            let (bytes, digest) = wire::decode(&value).map_err(|error| StoreError::damaged("meta", error))?;
            Ok(ImportedFile { name, bytes, digest })
        })
    }

    /// Gives a file back, byte for byte as it came.
    pub fn give_file(&self, site: &str, file: &ImportedFile, mut to: impl Write) -> Result<(), FileError> {
        let (mut left, mut hasher) = (file.bytes, blake3::Hasher::new());
        for number in 0u32.. {
            if left == 0 {
                break;
            }
            let piece = self.db.get_pinned_cf(&self.family("meta"), piece_key(site, &file.name, number));
            let piece = piece.map_err(|error| self.failed(&error))?;
            let piece = piece.ok_or_else(|| StoreError::damaged("meta", format!("{} is not whole", file.name)))?;
            hasher.update(&piece);
            left = left.saturating_sub(piece.len() as u64);
            to.write_all(&piece)?;
        }
        if *hasher.finalize().as_bytes() != file.digest {
            return Err(StoreError::damaged("meta", format!("{} is not as it was imported", file.name)).into());
        }
        Ok(())
    }
}
