//! The folder of a site on disk: whose turn it is, which lines it has, and files that are whole or not there.
//!
//! A program may be killed at any moment, so nothing is changed in place. A file is written under another name, fsynced and renamed; a list of
//! URLs is written anew beside the old one, line by line, and what of it is on disk is where the next run goes on. Who works on a folder
//! holds a lock on it, which ends with the process: a state that says "running" without a lock is one that died.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use proto::ose::OseId;
use proto::ose::name::OseFile;
use proto::ose::row::{LINE_BYTES_MAX, OseRow, PREFIX_BYTES};
use proto::ose::status::OseStatus;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::{Damaged, OseError};

/// What is read of a line: a URL of twice the length is still named as too long; more is no list of URLs.
const LINE_BYTES_READ: usize = 2 * LINE_BYTES_MAX;
/// What is read of an answer: the limits of a fetch may be set to this at most.
const FILE_BYTES_READ: u64 = 1 << 30;
/// Lines that gather before they are written.
const WAITING_BYTES_MAX: usize = 64 << 10;

/// A folder that is ours as long as this lives.
pub struct Folder {
    path: PathBuf,
    /// Holds the lock; none if the folder is only looked at.
    _lock: Option<File>,
    /// Steps until the power is cut.
    #[cfg(test)]
    pub(super) fuse: std::cell::Cell<Option<u32>>,
}

impl Folder {
    /// Opens a folder and locks it.
    pub fn open(path: &Path) -> Result<Folder, OseError> {
        let lock = File::open(path).map_err(OseError::io("open the folder", path))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(OseError::InUse(path.to_owned())),
            Err(error) => return Err(OseError::io("lock", path)(error.into())),
        }
        Ok(Folder {
            path: path.to_owned(),
            _lock: Some(lock),
            #[cfg(test)]
            fuse: std::cell::Cell::new(None),
        })
    }

    /// A folder that is only read, and may change meanwhile.
    pub fn look(path: &Path) -> Folder {
        Folder {
            path: path.to_owned(),
            _lock: None,
            #[cfg(test)]
            fuse: std::cell::Cell::new(None),
        }
    }

    /// Makes a folder with these URLs, which must not be there or be empty.
    pub fn make<'a>(path: &Path, urls: impl IntoIterator<Item = &'a str>) -> Result<Folder, OseError> {
        check_empty(path)?;
        fs::create_dir_all(path).map_err(OseError::io("make the folder", path))?;
        let folder = Folder::open(path)?;
        let lines: String = urls.into_iter().map(|url| OseRow::new(url).to_line() + "\n").collect();
        folder.write(OseFile::Urls, lines.as_bytes())?;
        folder.set_status(OseStatus::default())?;
        Ok(folder)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where one of its files is.
    pub fn file(&self, file: OseFile) -> PathBuf {
        self.path.join(file.to_string())
    }

    /// Whether one of its files is there.
    pub fn has(&self, file: OseFile) -> bool {
        self.file(file).exists()
    }

    /// The files of the folder that are OSE's, in order, and the names of what is not.
    pub fn list(&self) -> Result<(Vec<OseFile>, Vec<String>), OseError> {
        let unreadable = || OseError::io("list", &self.path);
        let (mut files, mut foreign) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(&self.path).map_err(unreadable())? {
            let entry = entry.map_err(unreadable())?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_file = entry.file_type().map_err(unreadable())?.is_file();
            match OseFile::of_name(&name).filter(|_| is_file) {
                Some(file) => files.push(file),
                None => foreign.push(name),
            }
        }
        files.sort_unstable();
        foreign.sort_unstable();
        Ok((files, foreign))
    }

    /// Where the folder is in its cycle. Without a status file it is idle and the largest id in `.urls` is the last.
    pub fn status(&self) -> Result<OseStatus, OseError> {
        let file = self.status_file();
        let path = self.file(file);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut last = None;
                for line in self.lines(OseFile::Urls)? {
                    last = last.max(line?.row.ok().and_then(|row| row.id));
                }
                return Ok(OseStatus { last: last.unwrap_or_default(), ..OseStatus::default() });
            }
            Err(error) => return Err(OseError::io("read", &path)(error)),
        };
        OseStatus::parse(&bytes).map_err(|damage| OseError::Status { path, damage })
    }

    /// The status goes by its former name where a folder has it under that name only.
    fn status_file(&self) -> OseFile {
        let former = !self.has(OseFile::Status) && self.has(OseFile::FormerStatus);
        if former { OseFile::FormerStatus } else { OseFile::Status }
    }

    /// Writes the status.
    pub fn set_status(&self, status: OseStatus) -> Result<(), OseError> {
        self.write(self.status_file(), &status.to_bytes())
    }

    /// Writes a file: whole, or not at all.
    pub fn write(&self, file: OseFile, bytes: &[u8]) -> Result<(), OseError> {
        self.write_part(file, bytes)?;
        self.finish_part(file)
    }

    /// Writes what is to become a file under another name.
    pub fn write_part(&self, file: OseFile, bytes: &[u8]) -> Result<(), OseError> {
        self.step()?;
        let path = self.part(file);
        let write = || {
            let mut out = File::create(&path)?;
            out.write_all(bytes)?;
            out.sync_all()
        };
        write().map_err(OseError::io("write", &path))
    }

    /// Gives such a file its name.
    pub fn finish_part(&self, file: OseFile) -> Result<(), OseError> {
        self.rename(&self.part(file), file)
    }

    /// Whether there is such a file.
    pub fn has_part(&self, file: OseFile) -> bool {
        self.part(file).exists()
    }

    fn part(&self, file: OseFile) -> PathBuf {
        self.path.join(format!(".{file}.part"))
    }

    /// Puts one list of URLs in the place of `.urls`.
    pub fn replace_urls(&self, by: OseFile) -> Result<(), OseError> {
        self.rename(&self.file(by), OseFile::Urls)
    }

    fn rename(&self, from: &Path, to: OseFile) -> Result<(), OseError> {
        self.step()?;
        let to = self.file(to);
        fs::rename(from, &to).map_err(OseError::io("rename to", &to))?;
        let sync = File::open(&self.path).and_then(|folder| folder.sync_all());
        sync.map_err(OseError::io("sync", &self.path))
    }

    /// Reads a file.
    pub fn read(&self, file: OseFile) -> Result<Vec<u8>, OseError> {
        let path = self.file(file);
        let mut bytes = Vec::new();
        let opened = File::open(&path).map_err(OseError::io("open", &path))?;
        opened.take(FILE_BYTES_READ).read_to_end(&mut bytes).map_err(OseError::io("read", &path))?;
        Ok(bytes)
    }

    /// The lines of a list of URLs.
    pub fn lines(&self, file: OseFile) -> Result<Lines, OseError> {
        let path = self.file(file);
        match File::open(&path) {
            Ok(opened) => Ok(Lines { path, name: file.to_string(), reader: BufReader::new(opened), line: 0 }),
            Err(error) if error.kind() == io::ErrorKind::NotFound && file == OseFile::Urls => {
                Err(OseError::NoUrls(self.path.clone()))
            }
            Err(error) => Err(OseError::io("open", &path)(error)),
        }
    }

    /// Begins to write a list of URLs anew, behind what a former run has written of it; returns the largest id in that. Its lines
    /// must follow from `old`, which is moved behind their originals.
    pub fn rewrite(&self, file: OseFile, old: &mut Lines) -> Result<(Rewrite, Option<OseId>), OseError> {
        self.step()?;
        let path = self.file(file);
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut opened = opened.map_err(OseError::io("open", &path))?;
        let whole = end_of_last_line(&mut opened).map_err(OseError::io("read", &path))?;
        opened.set_len(whole).map_err(OseError::io("cut", &path))?;
        let mut last = None;
        for line in self.lines(file)? {
            let line = line?;
            let follows = match old.next() {
                Some(original) => line.follows(&original?),
                None => false,
            };
            if !follows {
                return Err(OseError::Diverged { path, line: line.number });
            }
            last = last.max(line.row.ok().and_then(|row| row.id));
        }
        opened.seek(SeekFrom::End(0)).map_err(OseError::io("read", &path))?;
        Ok((Rewrite { path, out: opened, waiting: Vec::new() }, last))
    }

    /// Everything between two steps is on disk or not; a test cuts the power before any of them.
    #[allow(clippy::unnecessary_wraps)]
    pub(super) fn step(&self) -> Result<(), OseError> {
        #[cfg(test)]
        if let Some(left) = self.fuse.get() {
            if left == 0 {
                return Err(OseError::io("write to", &self.path)(io::Error::other("the power is cut")));
            }
            self.fuse.set(Some(left - 1));
        }
        Ok(())
    }
}

/// Refuses a folder that has something in it.
pub fn check_empty(path: &Path) -> Result<(), OseError> {
    match fs::read_dir(path) {
        Ok(mut entries) => entries.next().map_or(Ok(()), |_| Err(OseError::NotEmpty(path.to_owned()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(OseError::io("read", path)(error)),
    }
}

/// Where the last whole line of a file ends.
fn end_of_last_line(file: &mut File) -> io::Result<u64> {
    let mut end = file.seek(SeekFrom::End(0))?;
    let mut buffer = vec![0; 64 << 10];
    while end > 0 {
        let start = end.saturating_sub(buffer.len() as u64);
        let block = &mut buffer[..(end - start) as usize];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(block)?;
        if let Some(at) = block.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// A line of a list of URLs.
#[derive(Clone, Debug)]
pub struct Line {
    /// Which, from 1.
    pub number: u64,
    /// As it stands there, without its end.
    pub bytes: Vec<u8>,
    /// What it says.
    pub row: Result<OseRow, Damaged>,
}

impl Line {
    /// Whether this line was made from `old`: the same URL, or, where there is none, the same bytes.
    fn follows(&self, old: &Line) -> bool {
        let url = |line: &Line| line.bytes.get(PREFIX_BYTES..).map(<[u8]>::to_vec);
        match (&self.row, &old.row) {
            (Ok(_), Ok(_)) => url(self) == url(old),
            _ => self.bytes == old.bytes,
        }
    }

    /// That its URL is none that can be asked for.
    pub fn damaged_url(&self, file: OseFile, reason: impl ToString) -> Damaged {
        Damaged { file: file.to_string(), line: self.number, column: PREFIX_BYTES + 1, reason: reason.to_string() }
    }
}

/// Reads lines one by one.
pub struct Lines {
    path: PathBuf,
    name: String,
    reader: BufReader<File>,
    line: u64,
}

impl Lines {
    fn read(&mut self) -> Result<Option<Line>, OseError> {
        let mut bytes = Vec::new();
        let limit = LINE_BYTES_READ as u64 + 1;
        let read = (&mut self.reader).take(limit).read_until(b'\n', &mut bytes);
        if read.map_err(OseError::io("read", &self.path))? == 0 {
            return Ok(None);
        }
        self.line += 1;
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
        } else if bytes.len() > LINE_BYTES_READ {
            return Err(OseError::LongLine { path: self.path.clone(), line: self.line, max: LINE_BYTES_READ });
        }
        let row = OseRow::parse(&bytes).map_err(|damage| Damaged {
            file: self.name.clone(),
            line: self.line,
            column: damage.column,
            reason: damage.reason,
        });
        Ok(Some(Line { number: self.line, bytes, row }))
    }
}

impl Iterator for Lines {
    type Item = Result<Line, OseError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

/// A list of URLs that is being written anew.
pub struct Rewrite {
    path: PathBuf,
    out: File,
    /// Lines that are not in the file yet.
    waiting: Vec<u8>,
}

impl Rewrite {
    /// Writes a line.
    pub fn push(&mut self, line: &[u8]) -> Result<(), OseError> {
        self.waiting.extend_from_slice(line);
        self.waiting.push(b'\n');
        if self.waiting.len() >= WAITING_BYTES_MAX { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), OseError> {
        self.out.write_all(&self.waiting).map_err(OseError::io("write", &self.path))?;
        self.waiting.clear();
        Ok(())
    }

    /// Brings everything to disk.
    pub fn sync(&mut self, folder: &Folder) -> Result<(), OseError> {
        folder.step()?;
        self.flush()?;
        self.out.sync_data().map_err(OseError::io("sync", &self.path))
    }
}
