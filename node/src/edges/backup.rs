//! Backups of a data folder, made while its node runs and checked before they are used.
//!
//! ```text
//! BACKUP/backup.json   what is in it: every file with its length and BLAKE3 digest; written last, so a backup without it is none
//! BACKUP/db/           a checkpoint of the database; its tables are links to those in use, which never change
//! BACKUP/warc/         the archive up to where that database knows it: closed files are links, the open one is copied so far
//! BACKUP/keys/         identity and swarm key, only if asked for
//! ```
//! A backup on another file system is copied. Restoring always copies, into a folder beside the new data folder that is renamed when
//! every file is there and as it should be.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::store::{FORMAT_VERSION, RESTORED_FILE, VERSION_FILE};
use super::warc::{WarcEnd, WarcError, segments};

const MANIFEST: &str = "backup.json";
const DATABASE: &str = "db";
const ARCHIVE: &str = "warc";
const KEYS: &str = "keys";
/// A manifest names some hundred thousand files at most: 1 TB in tables of 64 MiB and archives of 1 GB.
const MANIFEST_BYTES_MAX: u64 = 64 << 20;
/// Read and written at once.
const BUFFER_BYTES: usize = 1 << 20;

/// What a backup can fail with.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The file system said no.
    #[error("cannot {what} {path}: {reason}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system said.
        reason: io::Error,
    },
    /// There is something already.
    #[error("{0} is not empty; name a folder that is empty or not there yet")]
    NotEmpty(PathBuf),
    /// A backup inside what is backed up.
    #[error("{0} lies in the data folder; choose another place")]
    Inside(PathBuf),
    /// The archive.
    #[error(transparent)]
    Archive(#[from] WarcError),
    /// Not a backup.
    #[error("{0} holds no {MANIFEST}: it is no backup, or one that was not finished")]
    Unfinished(PathBuf),
    /// The manifest cannot be understood.
    #[error("{path}: {reason}")]
    Manifest {
        /// Which file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A file is not as it was.
    #[error("{path} is damaged: {reason}; take another backup")]
    Damaged {
        /// Which.
        path: PathBuf,
        /// How.
        reason: String,
    },
}

fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BackupError {
    let path = path.to_owned();
    move |reason| BackupError::Io { what, path, reason }
}

/// What is in a backup.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The program's version.
    pub orbweaver: String,
    /// Version of the data folder.
    pub format: u32,
    /// When it was made, Unix milliseconds.
    pub made_unix_ms: u64,
    /// Its files.
    pub files: Vec<FileRow>,
}

/// A file of a backup.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileRow {
    /// Below the backup's folder.
    pub path: String,
    /// Its length.
    pub bytes: u64,
    /// Its BLAKE3 digest.
    pub blake3: String,
}

/// Refuses a folder that a backup cannot go into.
pub fn check_target(folder: &Path, data: &Path) -> Result<(), BackupError> {
    let whole = |path: &Path| fs::canonicalize(path).or_else(|_| std::path::absolute(path));
    if let (Ok(folder), Ok(data)) = (whole(folder), whole(data))
        && folder.starts_with(&data)
    {
        return Err(BackupError::Inside(folder));
    }
    check_empty(folder)
}

fn check_empty(folder: &Path) -> Result<(), BackupError> {
    match fs::read_dir(folder) {
        Ok(mut entries) => entries.next().map_or(Ok(()), |_| Err(BackupError::NotEmpty(folder.to_owned()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io_error("read", folder)(error)),
    }
}

/// A backup that is being made.
pub struct Plan {
    folder: PathBuf,
    data: PathBuf,
}

impl Plan {
    /// Makes the folder, for its owner only: what was crawled may be private.
    pub fn begin(folder: &Path, data: &Path) -> Result<Plan, BackupError> {
        check_target(folder, data)?;
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(folder).map_err(io_error("make", folder))?;
        Ok(Plan { folder: folder.to_owned(), data: data.to_owned() })
    }

    /// Where the checkpoint of the database goes.
    pub fn database(&self) -> PathBuf {
        self.folder.join(DATABASE)
    }

    /// Adds the archive up to `end`, and keys; then writes what is in it. Tells `progress` of files and bytes. Returns both.
    pub fn finish(
        self,
        end: Option<WarcEnd>,
        keys: &[PathBuf],
        mut progress: impl FnMut(u64, u64),
    ) -> Result<(u64, u64), BackupError> {
        self.add_archive(end)?;
        let version = self.data.join(VERSION_FILE);
        copy_some(&version, &self.folder.join(VERSION_FILE), u64::MAX, 0o600)?;
        for key in keys {
            let folder = self.folder.join(KEYS);
            fs::create_dir_all(&folder).map_err(io_error("make", &folder))?;
            let name = key.file_name().unwrap_or(key.as_os_str());
            copy_some(key, &folder.join(name), u64::MAX, 0o600)?;
        }
        let mut paths = Vec::new();
        walk(&self.folder, &mut paths)?;
        paths.sort();
        let (mut files, mut bytes) = (Vec::with_capacity(paths.len()), 0);
        for path in &paths {
            let (length, digest) = digest(path)?;
            bytes += length;
            let below = path.strip_prefix(&self.folder).unwrap_or(path);
            files.push(FileRow { path: below.to_string_lossy().into_owned(), bytes: length, blake3: digest });
            progress(files.len() as u64, bytes);
        }
        let count = files.len() as u64;
        let manifest = Manifest {
            orbweaver: env!("CARGO_PKG_VERSION").to_owned(),
            format: FORMAT_VERSION,
            made_unix_ms: super::clock::unix_ms(),
            files,
        };
        self.write(&manifest)?;
        Ok((count, bytes))
    }

    fn add_archive(&self, end: Option<WarcEnd>) -> Result<(), BackupError> {
        let (from, to) = (self.data.join(ARCHIVE), self.folder.join(ARCHIVE));
        fs::create_dir_all(&to).map_err(io_error("make", &to))?;
        let Some(end) = end else { return Ok(()) };
        for (serial, path) in segments(&from)?.range(..=end.segment) {
            let target = to.join(path.file_name().unwrap_or(path.as_os_str()));
            if *serial < end.segment {
                // Closed files never change. Another file system has no links to this one.
                if fs::hard_link(path, &target).is_err() {
                    copy_some(path, &target, u64::MAX, 0o600)?;
                }
            } else if end.offset > 0 {
                copy_some(path, &target, end.offset, 0o600)?;
            }
        }
        Ok(())
    }

    fn write(&self, manifest: &Manifest) -> Result<(), BackupError> {
        let (fresh, path) = (self.folder.join("backup.json.new"), self.folder.join(MANIFEST));
        let text = serde_json::to_string_pretty(manifest)
            .map_err(|error| BackupError::Manifest { path: path.clone(), reason: error.to_string() })?;
        let mut file = File::create(&fresh).map_err(io_error("create", &fresh))?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(io_error("write", &fresh))?;
        fs::rename(&fresh, &path).map_err(io_error("rename", &fresh))?;
        sync_folder(&self.folder)
    }
}

/// Reads what is in a backup, and refuses what this program cannot use.
pub fn read_manifest(backup: &Path) -> Result<Manifest, BackupError> {
    let path = backup.join(MANIFEST);
    let wrong = |reason: String| BackupError::Manifest { path: path.clone(), reason };
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(BackupError::Unfinished(backup.to_owned()));
        }
        Err(error) => return Err(io_error("open", &path)(error)),
    };
    let mut text = String::new();
    file.take(MANIFEST_BYTES_MAX).read_to_string(&mut text).map_err(io_error("read", &path))?;
    let manifest: Manifest = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    if manifest.format != FORMAT_VERSION {
        return Err(wrong(format!(
            "made from a data folder of format {} by orbweaver {}; this program reads format {FORMAT_VERSION}",
            manifest.format, manifest.orbweaver
        )));
    }
    let leads_out = |row: &&FileRow| {
        let path = Path::new(&row.path);
        row.path.is_empty() || path.components().any(|part| !matches!(part, Component::Normal(_)))
    };
    if let Some(row) = manifest.files.iter().find(leads_out) {
        return Err(wrong(format!("{:?} is no path below the backup", row.path)));
    }
    Ok(manifest)
}

/// Checks every file of a backup.
pub fn verify(backup: &Path) -> Result<Manifest, BackupError> {
    let manifest = read_manifest(backup)?;
    for row in &manifest.files {
        let path = backup.join(&row.path);
        let (bytes, found) = digest(&path)?;
        check(&path, row, bytes, &found)?;
    }
    Ok(manifest)
}

fn check(path: &Path, row: &FileRow, bytes: u64, digest: &str) -> Result<(), BackupError> {
    let damaged = |reason: String| Err(BackupError::Damaged { path: path.to_owned(), reason });
    if bytes != row.bytes {
        return damaged(format!("it has {bytes} bytes and should have {}", row.bytes));
    }
    if digest != row.blake3 {
        return damaged("its digest is not what it was".to_owned());
    }
    Ok(())
}

/// Makes `data` from a backup: all of it, or nothing. Keys go to the folder `keys`, if one is named. Returns what was in it.
pub fn restore(backup: &Path, data: &Path, keys: Option<&Path>) -> Result<Manifest, BackupError> {
    let manifest = read_manifest(backup)?;
    check_empty(data)?;
    let data = std::path::absolute(data).map_err(io_error("find", data))?;
    let mut fresh = data.clone().into_os_string();
    fresh.push(".restoring");
    let fresh = PathBuf::from(fresh);
    check_empty(&fresh)?;
    let restored = fill(&manifest, backup, &fresh, keys).and_then(|()| {
        // Other nodes may trust this folder with pages that came after the backup: they must learn that it is another one.
        let mark = fresh.join(RESTORED_FILE);
        File::create(&mark).and_then(|file| file.sync_all()).map_err(io_error("write", &mark))
    });
    let placed = restored.and_then(|()| fs::rename(&fresh, &data).map_err(io_error("rename", &fresh)));
    if let Err(error) = placed {
        let _ = fs::remove_dir_all(&fresh); // only ours; what is left is said by the next try
        return Err(error);
    }
    sync_folder(data.parent().unwrap_or(&data))?;
    Ok(manifest)
}

fn fill(manifest: &Manifest, backup: &Path, fresh: &Path, keys: Option<&Path>) -> Result<(), BackupError> {
    let make = |folder: &Path| {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(folder).map_err(io_error("make", folder))
    };
    for folder in [fresh.to_owned(), fresh.join(DATABASE), fresh.join(ARCHIVE)] {
        make(&folder)?;
    }
    for row in &manifest.files {
        let from = backup.join(&row.path);
        let target = match (Path::new(&row.path).strip_prefix(KEYS), keys) {
            (Err(_), _) => fresh.join(&row.path),
            (Ok(name), Some(keys)) => keys.join(name),
            (Ok(_), None) => continue,
        };
        if let Some(parent) = target.parent() {
            make(parent)?;
        }
        let (bytes, digest) = copy_some(&from, &target, u64::MAX, 0o600)?;
        check(&from, row, bytes, &digest)?;
    }
    [DATABASE, ARCHIVE, "."].iter().try_for_each(|folder| sync_folder(&fresh.join(folder)))
}

/// Copies the first bytes of a file, durably, into one that must not be there yet. Returns how many they were, and their digest.
fn copy_some(from: &Path, to: &Path, bytes_max: u64, mode: u32) -> Result<(u64, String), BackupError> {
    let source = File::open(from).map_err(io_error("open", from))?;
    let mut target =
        OpenOptions::new().write(true).create_new(true).mode(mode).open(to).map_err(io_error("create", to))?;
    target.set_permissions(fs::Permissions::from_mode(mode)).map_err(io_error("protect", to))?;
    let mut hasher = blake3::Hasher::new();
    let length = pump(source.take(bytes_max), from, |part| {
        hasher.update(part);
        target.write_all(part).map_err(io_error("write", to))
    })?;
    target.sync_all().map_err(io_error("sync", to))?;
    if bytes_max != u64::MAX && length < bytes_max {
        let reason = format!("it has {length} bytes, and the database refers to {bytes_max}");
        return Err(BackupError::Damaged { path: from.to_owned(), reason });
    }
    Ok((length, hasher.finalize().to_hex().to_string()))
}

fn digest(path: &Path) -> Result<(u64, String), BackupError> {
    let file = File::open(path).map_err(io_error("open", path))?;
    let mut hasher = blake3::Hasher::new();
    let length = pump(file, path, |part| {
        hasher.update(part);
        Ok(())
    })?;
    Ok((length, hasher.finalize().to_hex().to_string()))
}

fn pump(
    mut from: impl Read,
    path: &Path,
    mut take: impl FnMut(&[u8]) -> Result<(), BackupError>,
) -> Result<u64, BackupError> {
    let (mut buffer, mut length) = (vec![0; BUFFER_BYTES], 0);
    loop {
        let count = from.read(&mut buffer).map_err(io_error("read", path))?;
        if count == 0 {
            return Ok(length);
        }
        length += count as u64;
        take(&buffer[..count])?;
    }
}

fn walk(folder: &Path, into: &mut Vec<PathBuf>) -> Result<(), BackupError> {
    for entry in fs::read_dir(folder).map_err(io_error("read", folder))? {
        let entry = entry.map_err(io_error("read", folder))?;
        let path = entry.path();
        if entry.file_type().map_err(io_error("look at", &path))?.is_dir() {
            walk(&path, into)?;
        } else {
            into.push(path);
        }
    }
    Ok(())
}

fn sync_folder(folder: &Path) -> Result<(), BackupError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(io_error("sync", folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A data folder with two archive files, of which the database knows all of the first and four bytes of the second.
    fn made(work: &Path) -> (PathBuf, PathBuf) {
        let (data, backup) = (work.join("data"), work.join("backup"));
        fs::create_dir_all(data.join("warc")).unwrap();
        fs::write(data.join(VERSION_FILE), "2\n").unwrap();
        for (serial, text) in [(0, "first"), (1, "second"), (2, "third")] {
            fs::write(data.join(format!("warc/orbweaver-20260101000000-{serial:05}.warc.gz")), text).unwrap();
        }
        fs::write(work.join("node.key"), "secret").unwrap();
        let plan = Plan::begin(&backup, &data).unwrap();
        fs::create_dir(plan.database()).unwrap();
        fs::write(plan.database().join("CURRENT"), "MANIFEST-1\n").unwrap();
        let end = WarcEnd { segment: 1, offset: 4 };
        let (files, bytes) = plan.finish(Some(end), &[work.join("node.key")], |_, _| {}).unwrap();
        assert_eq!((files, bytes), (5, 11 + 5 + 4 + 2 + 6));
        (data, backup)
    }

    #[test]
    fn what_is_backed_up_comes_back_and_nothing_else() {
        let work = tempfile::tempdir().unwrap();
        let (data, backup) = made(work.path());
        verify(&backup).unwrap();
        fs::remove_dir_all(&data).unwrap();
        restore(&backup, &data, None).unwrap();
        assert_eq!(fs::read_to_string(data.join("db/CURRENT")).unwrap(), "MANIFEST-1\n");
        let archive = |serial: u32| data.join(format!("warc/orbweaver-20260101000000-{serial:05}.warc.gz"));
        assert_eq!(fs::read_to_string(archive(0)).unwrap(), "first");
        assert_eq!(fs::read_to_string(archive(1)).unwrap(), "seco", "the rest was not in the database yet");
        assert!(!archive(2).exists() && !data.join("keys").exists());
        let keys = work.path().join("keys");
        restore(&backup, &work.path().join("other"), Some(&keys)).unwrap();
        assert_eq!(fs::read_to_string(keys.join("node.key")).unwrap(), "secret");
        assert_eq!(fs::metadata(keys.join("node.key")).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_damaged_backup_restores_nothing() {
        let work = tempfile::tempdir().unwrap();
        let (_, backup) = made(work.path());
        let target = work.path().join("target");
        fs::write(backup.join("db/CURRENT"), "MANIFEST-2\n").unwrap();
        assert!(restore(&backup, &target, None).unwrap_err().to_string().contains("digest"));
        fs::write(backup.join("db/CURRENT"), "M").unwrap();
        assert!(verify(&backup).unwrap_err().to_string().contains("bytes"));
        assert!(restore(&backup, &target, None).unwrap_err().to_string().contains("bytes"));
        fs::remove_file(backup.join("db/CURRENT")).unwrap();
        assert!(matches!(restore(&backup, &target, None), Err(BackupError::Io { .. })));
        assert!(!target.exists() && !work.path().join("target.restoring").exists());
        fs::remove_file(backup.join(MANIFEST)).unwrap();
        assert!(matches!(restore(&backup, &target, None), Err(BackupError::Unfinished(_))));
    }

    #[test]
    fn folders_that_are_in_use_are_left_alone() {
        let work = tempfile::tempdir().unwrap();
        let (data, backup) = made(work.path());
        assert!(matches!(restore(&backup, &data, None), Err(BackupError::NotEmpty(_))));
        assert!(matches!(Plan::begin(&backup, &data), Err(BackupError::NotEmpty(_))));
        assert!(matches!(Plan::begin(&data.join("backup"), &data), Err(BackupError::Inside(_))));
    }

    #[test]
    fn a_manifest_cannot_lead_out_of_the_folder() {
        let work = tempfile::tempdir().unwrap();
        for path in ["../x", "/etc/passwd", "", "db/../../x", "./x"] {
            let row = FileRow { path: path.to_owned(), bytes: 0, blake3: String::new() };
            let manifest =
                Manifest { orbweaver: "0".to_owned(), format: FORMAT_VERSION, made_unix_ms: 0, files: vec![row] };
            fs::write(work.path().join(MANIFEST), serde_json::to_string(&manifest).unwrap()).unwrap();
            assert!(matches!(read_manifest(work.path()), Err(BackupError::Manifest { .. })), "{path}");
        }
    }
}
