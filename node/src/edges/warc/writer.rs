//! Appends captures to the archive, and after a crash cuts it back to what the index knows.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::{info, warn};

use super::encode::{Encoder, IdSource};
use super::reader::WarcReader;
use super::{Appended, Capture, WarcEnd, WarcError, WarcOptions, WarcPosition, segment_name, segments};

/// What was appended is written when it is this long.
const PENDING_BYTES_MAX: usize = 4 << 20;

/// Writes the archive of one node; there is one per folder.
pub struct WarcWriter {
    dir: PathBuf,
    options: WarcOptions,
    encoder: Encoder,
    segment: Option<Segment>, // none until the first append: its time names the file
    segment_name: String,     // of a segment whose first record is not written yet
    pending: Vec<u8>,         // appended and not written yet: the last bytes before `end`
    end: WarcEnd,
    torn: bool,             // a write failed, and what it left behind could not be cut off yet
    directory_synced: bool, // whether the name of the segment would survive a power loss
    #[cfg(test)]
    pub(super) fail_after_bytes: Option<usize>,
}

struct Segment {
    file: Arc<File>,
    path: PathBuf,
}

/// What a power loss may still take.
pub struct Unsynced {
    file: Option<(Arc<File>, PathBuf)>,
    /// The folder, if it has a new file.
    directory: Option<PathBuf>,
}

impl Unsynced {
    /// Makes it durable.
    ///
    /// # Errors
    /// As [`WarcWriter::sync`].
    pub fn sync(self) -> Result<(), WarcError> {
        if let Some((file, path)) = &self.file {
            file.sync_data().map_err(WarcError::io("sync", path))?;
        }
        self.directory.map_or(Ok(()), |dir| sync_directory(&dir))
    }
}

impl WarcWriter {
    /// Opens the archive in `dir`, creating the folder if need be.
    ///
    /// With a `durable` end, everything beyond it is removed: it was never indexed. Without one nothing is indexed, so
    /// all that is there belongs to someone else: it is kept, but for a record torn by a crash at the very end, and
    /// writing goes on in a new segment.
    ///
    /// # Errors
    /// If a segment is missing or shorter than `durable`, or the file system refuses.
    pub fn open(dir: &Path, options: WarcOptions, durable: Option<WarcEnd>) -> Result<Self, WarcError> {
        std::fs::create_dir_all(dir).map_err(WarcError::io("create", dir))?;
        let (segment, end) = match durable {
            Some(durable) => (cut_back(dir, durable)?, durable),
            None => (None, WarcEnd { segment: after_foreign_segments(dir)?, offset: 0 }),
        };
        Ok(Self {
            dir: dir.to_owned(),
            options,
            encoder: Encoder::new(),
            segment,
            segment_name: String::new(),
            pending: Vec::new(),
            end,
            torn: false,
            directory_synced: true,
            #[cfg(test)]
            fail_after_bytes: None,
        })
    }

    /// Returns where the archive ends; what lies before it is durable only after [`Self::sync`].
    #[must_use]
    pub fn end(&self) -> WarcEnd {
        self.end
    }

    /// Appends the records of `capture` with one write.
    ///
    /// # Errors
    /// If the capture has no status line, or the file system refuses; then the archive is as it was before, or is made
    /// so by the next append.
    pub fn append(&mut self, capture: &Capture<'_>) -> Result<Appended, WarcError> {
        let first = self.begin(capture.unix_ms, capture.url)?;
        let offset = self.end.offset + first as u64;
        let ids = IdSource {
            node_seed: &self.options.node_seed,
            place: [self.end.segment.into(), offset],
            unix_ms: capture.unix_ms,
            url: capture.url,
        };
        let encoded = self.encoder.capture(capture, &ids).ok_or_else(|| WarcError::Refused {
            url: capture.url.to_owned(),
            reason: "the response has no status line",
        })?;
        let position = self.take_in(first, capture.url)?;
        self.write()?;
        Ok(Appended {
            position,
            record_id: encoded.record_id,
            payload_digest: encoded.payload_digest,
            revisit: encoded.revisit,
            end: self.end,
        })
    }

    /// Appends the members of a capture that were made elsewhere, as they are. They are written by the next [`Self::sync`] at the
    /// latest, together with others.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub fn append_members(&mut self, members: &[u8], unix_ms: u64, url: &str) -> Result<WarcPosition, WarcError> {
        let first = self.begin(unix_ms, url)?;
        self.encoder.push_members(members);
        let position = self.take_in(first, url)?;
        if self.pending.len() >= PENDING_BYTES_MAX {
            self.write()?;
        }
        Ok(position)
    }

    /// Appends the members of a capture that another archive holds, as they are in the first `length` bytes of a file.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub fn append_file(&mut self, members: &File, length: u32, unix_ms: u64) -> Result<WarcPosition, WarcError> {
        let first = self.begin(unix_ms, "a copy")?;
        self.take_in(first, "a copy")?;
        self.write()?;
        let position = WarcPosition { segment: self.end.segment, offset: self.end.offset, length };
        if let Some(segment) = &self.segment
            && let Err(source) = copy_at(members, &segment.file, self.end.offset, length)
        {
            let failed = WarcError::io("write", &segment.path)(source);
            self.torn = true;
            if let Err(error) = self.undo() {
                warn!(%error, "torn record left behind, will be cut off before the next append");
            }
            return Err(failed);
        }
        self.end.offset += u64::from(length);
        Ok(position)
    }

    /// Adds what is encoded to what is to be written; the first bytes of it come before the capture.
    fn take_in(&mut self, first: usize, url: &str) -> Result<WarcPosition, WarcError> {
        let members = self.encoder.members();
        let length = u32::try_from(members.len() - first);
        let length =
            length.map_err(|_| WarcError::Refused { url: url.to_owned(), reason: "the records exceed 4 GiB" })?;
        let offset = self.end.offset + first as u64;
        self.pending.extend_from_slice(members);
        self.end.offset += members.len() as u64;
        Ok(WarcPosition { segment: self.end.segment, offset, length })
    }

    /// Makes room for the next capture: what a failed write left is cut off, a full segment is closed, a new one opened. Returns the bytes
    /// that come before the capture.
    fn begin(&mut self, unix_ms: u64, url: &str) -> Result<usize, WarcError> {
        if self.torn {
            self.undo()?;
        }
        if self.end.offset >= self.options.segment_bytes_max {
            self.rotate()?;
        }
        self.encoder.clear();
        if self.end.offset == 0 {
            let file_name = segment_name(unix_ms, self.end.segment);
            let (node_seed, segment) = (&self.options.node_seed, self.end.segment);
            let ids = IdSource { node_seed, place: [segment.into(), 0], unix_ms, url };
            self.encoder.warcinfo(&self.options, &file_name, &ids, unix_ms);
            self.segment_name = file_name;
        }
        Ok(self.encoder.members().len())
    }

    /// Makes everything appended so far survive a power loss. Returns where it ends.
    ///
    /// # Errors
    /// If the disk refuses. What was appended since the last sync may then be lost though it can still be read: go back
    /// to the last durable end with [`Self::rewind`] and append it again, or stop.
    pub fn sync(&mut self) -> Result<WarcEnd, WarcError> {
        self.unsynced()?.sync()?;
        Ok(self.end)
    }

    /// Writes everything appended so far, and returns what is to be synced, on whatever thread, to make it survive a power loss.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub fn unsynced(&mut self) -> Result<Unsynced, WarcError> {
        self.write()?;
        let file = self.segment.as_ref().map(|Segment { file, path }| (Arc::clone(file), path.clone()));
        let directory = !std::mem::replace(&mut self.directory_synced, true);
        Ok(Unsynced { file, directory: directory.then(|| self.dir.clone()) })
    }

    /// Takes back what was appended after `end`, e.g. because its index could not be written.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn rewind(&mut self, end: WarcEnd) -> Result<(), WarcError> {
        assert!(end <= self.end, "the archive ends at {:?}, before {end:?}", self.end);
        self.pending.clear();
        self.directory_synced = false;
        self.segment = None;
        self.segment = cut_back(&self.dir, end)?;
        self.end = end;
        self.torn = false;
        Ok(())
    }

    /// Closes the segment. It is synced here, so that `sync` only ever needs to look at the last one.
    fn rotate(&mut self) -> Result<(), WarcError> {
        self.sync()?;
        self.segment = None;
        self.end = WarcEnd { segment: self.end.segment + 1, offset: 0 };
        Ok(())
    }

    /// Writes what was appended since the last time.
    fn write(&mut self) -> Result<(), WarcError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let offset = self.end.offset - self.pending.len() as u64;
        let Segment { file, path } = match &mut self.segment {
            Some(segment) => segment,
            none => {
                let path = self.dir.join(&self.segment_name);
                let file = OpenOptions::new().write(true).create_new(true).open(&path);
                let file = file.map_err(WarcError::io("create", &path))?;
                self.directory_synced = false;
                none.insert(Segment { file: Arc::new(file), path })
            }
        };
        #[cfg(not(test))]
        let written = file.write_all_at(&self.pending, offset);
        #[cfg(test)]
        let written = match self.fail_after_bytes.take() {
            Some(bytes) => {
                file.write_all_at(&self.pending[..bytes], offset).and(Err(io::Error::from_raw_os_error(libc::ENOSPC)))
            }
            None => file.write_all_at(&self.pending, offset),
        };
        self.pending.clear();
        self.pending.shrink_to(2 * PENDING_BYTES_MAX);
        let Err(source) = written else { return Ok(()) };
        let failed = WarcError::io("write", path)(source);
        (self.end.offset, self.torn) = (offset, true);
        if let Err(error) = self.undo() {
            warn!(%error, "torn record left behind, will be cut off before the next append");
        }
        Err(failed)
    }

    /// Cuts off what a failed write left behind; a segment that has nothing else in it is removed.
    fn undo(&mut self) -> Result<(), WarcError> {
        if let Some(Segment { file, path }) = &self.segment {
            if self.end.offset > 0 {
                file.set_len(self.end.offset).map_err(WarcError::io("cut back", path))?;
            } else {
                std::fs::remove_file(path).map_err(WarcError::io("remove", path))?;
                self.segment = None;
            }
        }
        self.torn = false;
        Ok(())
    }
}

/// Copies the first `length` bytes of a file to a place in another.
fn copy_at(from: &File, to: &File, offset: u64, length: u32) -> io::Result<()> {
    let mut piece = vec![0; 1 << 20];
    let mut done: u64 = 0;
    while done < u64::from(length) {
        let bytes = piece.len().min((u64::from(length) - done) as usize);
        from.read_exact_at(&mut piece[..bytes], done)?;
        to.write_all_at(&piece[..bytes], offset + done)?;
        done += bytes as u64;
    }
    Ok(())
}

/// Removes all that lies beyond `end`, makes that durable, and opens the segment to go on with it.
fn cut_back(dir: &Path, end: WarcEnd) -> Result<Option<Segment>, WarcError> {
    let found = segments(dir)?;
    let mut segment = None;
    if end.offset > 0 {
        let path = found.get(&end.segment);
        let path = path.ok_or_else(|| WarcError::SegmentMissing { dir: dir.to_owned(), segment: end.segment })?.clone();
        let file = OpenOptions::new().write(true).open(&path).map_err(WarcError::io("open", &path))?;
        let length_bytes = file.metadata().map_err(WarcError::io("read the length of", &path))?.len();
        if length_bytes < end.offset {
            return Err(WarcError::ShorterThanDurable { path, length_bytes, durable_bytes: end.offset });
        }
        if length_bytes > end.offset {
            cut_file(&file, &path, end.offset, length_bytes)?;
        }
        segment = Some(Segment { file: Arc::new(file), path });
    }
    let beyond = if end.offset > 0 { end.segment.saturating_add(1) } else { end.segment };
    let mut removed = 0;
    for path in found.range(beyond..).map(|(_, path)| path) {
        std::fs::remove_file(path).map_err(WarcError::io("remove", path))?;
        removed += 1;
    }
    if removed > 0 {
        sync_directory(dir)?;
        info!(dir = %dir.display(), segments = removed, "segments removed that were never indexed");
    }
    Ok(segment)
}

/// Returns the first free serial number, having cut off the torn record that a crash may have left at the end.
fn after_foreign_segments(dir: &Path) -> Result<u32, WarcError> {
    let Some((serial, path)) = segments(dir)?.pop_last() else { return Ok(0) };
    let (mut whole_bytes, mut torn) = (0, false);
    for record in WarcReader::open(&path)? {
        match record {
            Ok(record) => whole_bytes = record.offset + u64::from(record.length),
            Err(WarcError::Torn { .. }) => torn = true,
            Err(error) => warn!(%error, "segment kept as it is"),
        }
    }
    if torn && whole_bytes == 0 {
        std::fs::remove_file(&path).map_err(WarcError::io("remove", &path))?;
        return Ok(serial);
    }
    if torn {
        let file = OpenOptions::new().write(true).open(&path).map_err(WarcError::io("open", &path))?;
        let length_bytes = file.metadata().map_err(WarcError::io("read the length of", &path))?.len();
        cut_file(&file, &path, whole_bytes, length_bytes)?;
    }
    Ok(serial + 1)
}

fn cut_file(file: &File, path: &Path, length_bytes: u64, was_bytes: u64) -> Result<(), WarcError> {
    file.set_len(length_bytes).map_err(WarcError::io("cut back", path))?;
    file.sync_all().map_err(WarcError::io("sync", path))?;
    info!(path = %path.display(), cut_bytes = was_bytes - length_bytes, "segment cut back to its durable end");
    Ok(())
}

fn sync_directory(dir: &Path) -> Result<(), WarcError> {
    let synced: io::Result<()> = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(WarcError::io("sync", dir))
}
