//! Pages between nodes, over streams of the swarm: their records go as they are in one archive into the other. What is said is
//! [`Saying`]; records follow in pieces, each a frame of its own.
//!
//! **Back-pressure.** One push to a node is under way at a time; the next offer is made when the last one is on the other's disk. The one that
//! receives says what it wants when it has room: at most `RECEIVING_MAX` pushes are in its memory at once, each bounded by
//! what may be offered; whoever comes then waits in its stream's window. A page of more than `IN_MEMORY_MAX` is read in pieces where it is and goes
//! into a file without a name where it comes, so that the largest page needs no more memory than others.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::io::{ReadHalf, WriteHalf};
use futures_util::{AsyncReadExt, AsyncWriteExt};
use proto::cluster::contents::{ContentKey, Holding, Offer, PAGE_BYTES_MAX, Saying};
use proto::id::NodeId;
use proto::wire;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::{debug, error, warn};

use super::disk::{ContentJob, Disk, DiskError, Job};
use super::store::{Arriving, Members, Offered};
use super::swarm::Swarm;
use super::swarm::frame::{self, FrameReader};
use super::swarm::settings::BulkStream;
use super::warc::{RecordId, WarcArchive, WarcPosition, check_members};

/// Pushes that are received at once.
const RECEIVING_MAX: usize = 2;
/// Bytes of a saying: 256 offers, whose keys hold a domain and a crawl's name of some hundred bytes each.
const SAYING_BYTES_MAX: usize = 256 << 10;
/// Bytes of a piece of a page.
const PIECE_BYTES: usize = 64 << 10;
/// Bytes of a page that is in memory whole.
const IN_MEMORY_MAX: u32 = 4 << 20;
/// Bytes of a larger one that are read or written at once.
const PART_BYTES: usize = 1 << 20;
/// How long the other may take for its next word: it may have a queue before its disk.
const WORD_PATIENCE: Duration = Duration::from_secs(60);
/// How long a piece may take, in either direction.
const PIECE_PATIENCE: Duration = Duration::from_secs(30);

/// What came of a push.
#[derive(Debug, Default)]
pub struct Pushed {
    /// The folder that the other has, if it said so.
    pub folder: Option<u64>,
    /// Pages that the other has on its disk.
    pub copied: Vec<ContentKey>,
    /// Pages whose records cannot be read here.
    pub unreadable: Vec<ContentKey>,
    /// Why it did not go well.
    pub failure: Option<String>,
}

/// The way by which pages reach other nodes.
pub trait Line: Send + Sync {
    /// Offers pages of this `folder` to a node, and sends what it wants.
    fn push(&self, to: NodeId, folder: u64, pages: Offered) -> BoxFuture<'static, Pushed>;
}

/// A stream with frames.
struct Talk {
    reader: FrameReader<ReadHalf<BulkStream>>,
    writer: WriteHalf<BulkStream>,
}

type Failed = String;
/// Which page cannot be read, and why.
type Unread = (usize, String);

impl Talk {
    fn new(stream: BulkStream) -> Talk {
        let (reader, writer) = stream.split();
        Talk { reader: FrameReader::new(reader, SAYING_BYTES_MAX, PIECE_PATIENCE), writer }
    }

    async fn say(&mut self, saying: &Saying) -> Result<(), Failed> {
        let bytes = wire::encode(saying).map_err(|error| error.to_string())?;
        self.send(&[&bytes]).await
    }

    /// Sends frames, small ones together: each write is a packet of its own.
    async fn send(&mut self, frames: &[&[u8]]) -> Result<(), Failed> {
        let mut out = Vec::new();
        for (n, bytes) in frames.iter().enumerate() {
            let filled = frame::append(&mut out, |out| {
                out.extend_from_slice(bytes);
                Ok::<(), Failed>(())
            });
            filled?;
            if out.len() < PIECE_BYTES && n + 1 < frames.len() {
                continue;
            }
            let written = timeout(PIECE_PATIENCE, self.writer.write_all(&out)).await;
            written.map_err(|_| "takes nothing".to_owned())?.map_err(|error| error.to_string())?;
            out.clear();
        }
        let flushed = timeout(PIECE_PATIENCE, self.writer.flush()).await;
        flushed.map_err(|_| "takes nothing".to_owned())?.map_err(|error| error.to_string())
    }

    async fn send_in_pieces(&mut self, bytes: &[u8]) -> Result<(), Failed> {
        let pieces: Vec<&[u8]> = bytes.chunks(PIECE_BYTES).collect();
        self.send(&pieces).await
    }

    async fn frame(&mut self, patience: Duration) -> Result<Vec<u8>, Failed> {
        let next = timeout(patience, self.reader.next()).await.map_err(|_| "says nothing".to_owned())?;
        next.map_err(|error| error.to_string())?.ok_or_else(|| "the stream was closed".to_owned())
    }

    async fn hear(&mut self) -> Result<Saying, Failed> {
        understood(&self.frame(WORD_PATIENCE).await?)
    }
}

fn understood(bytes: &[u8]) -> Result<Saying, Failed> {
    let said: Saying = wire::decode(bytes).map_err(|error| error.to_string())?;
    said.defect().map_or(Ok(said), |defect| Err(defect.to_owned()))
}

/// The line over the swarm.
#[derive(Clone)]
pub struct SwarmLine(Arc<LineParts>);

struct LineParts {
    swarm: OnceLock<Arc<Swarm>>,
    /// Kept from push to push: it need not look for its segments again.
    archive: Arc<Mutex<WarcArchive>>,
    /// Streams that wait for the next push.
    idle: Mutex<BTreeMap<NodeId, Talk>>,
}

impl SwarmLine {
    /// A line for the archive in `dir`; it leads nowhere before it is [tied](SwarmLine::tie).
    pub fn new(dir: PathBuf) -> SwarmLine {
        let archive = Arc::new(Mutex::new(WarcArchive::new(&dir)));
        SwarmLine(Arc::new(LineParts { swarm: OnceLock::new(), archive, idle: Mutex::default() }))
    }

    /// Leads it through a swarm.
    pub fn tie(&self, swarm: &Arc<Swarm>) {
        let _ = self.0.swarm.set(Arc::clone(swarm)); // once
    }
}

impl Line for SwarmLine {
    fn push(&self, to: NodeId, folder: u64, pages: Offered) -> BoxFuture<'static, Pushed> {
        let parts = Arc::clone(&self.0);
        Box::pin(async move { parts.push(to, folder, pages).await })
    }
}

/// A page that is offered: its key here, what it is, where it lies.
type Page = (ContentKey, Offer, WarcPosition);

impl LineParts {
    async fn push(&self, to: NodeId, folder: u64, pages: Offered) -> Pushed {
        let mut pushed = Pushed::default();
        let mut offered: Vec<Page> = Vec::new();
        for (key, found) in pages {
            match found {
                Some((offer, position)) if offer.bytes <= PAGE_BYTES_MAX => offered.push((key, offer, position)),
                _ => pushed.unreadable.push(key),
            }
        }
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).remove(&to);
        let mut talked = None;
        if let Some(talk) = idle {
            // It may be dead without knowing it: then a new one is opened.
            talked = self.offer(talk, folder, &offered, &mut pushed).await.ok();
        }
        let talked = match talked {
            Some(talk) => Ok(talk),
            None => match self.open(to).await {
                Ok(talk) => self.offer(talk, folder, &offered, &mut pushed).await,
                Err(error) => Err(error),
            },
        };
        match talked {
            Ok(talk) => drop(self.idle.lock().unwrap_or_else(PoisonError::into_inner).insert(to, talk)),
            Err(failure) => pushed.failure = Some(failure),
        }
        pushed
    }

    async fn open(&self, to: NodeId) -> Result<Talk, Failed> {
        let swarm = self.swarm.get().ok_or("the node is starting")?;
        let peer = swarm.nodes().into_iter().find(|peer| peer.node == to && peer.connected);
        let peer = peer.ok_or("not connected")?.peer;
        swarm.open_bulk(peer).await.map(Talk::new).map_err(|error| error.to_string())
    }

    async fn offer(&self, mut talk: Talk, folder: u64, offered: &[Page], pushed: &mut Pushed) -> Result<Talk, Failed> {
        let offers = offered.iter().map(|(_, offer, _)| offer.clone()).collect();
        talk.say(&Saying::Offers { folder, offers }).await?;
        let (theirs, places) = match talk.hear().await? {
            Saying::Wanted { folder, places } => (folder, places),
            Saying::Refused { why } => return Err(why),
            other => return Err(format!("answered an offer with {other:?}")),
        };
        pushed.folder = Some(theirs);
        if offered.is_empty() {
            return Ok(talk);
        }
        let wanted: Option<Vec<WarcPosition>> =
            places.iter().map(|place| offered.get(usize::from(*place)).map(|(_, _, position)| *position)).collect();
        let wanted = wanted.ok_or("wants what was not offered")?;
        if let Err((n, why)) = self.send_pages(&mut talk, &wanted).await? {
            let (key, offer, _) = &offered[usize::from(places[n])];
            error!(url = %offer.url.id(), %why, "the records of a page cannot be read");
            pushed.unreadable.push(key.clone());
            return Err("records cannot be read here".to_owned());
        }
        let except = match talk.hear().await? {
            Saying::Kept { except } => except,
            Saying::Refused { why } => return Err(why),
            other => return Err(format!("answered pages with {other:?}")),
        };
        for (place, (key, offer, _)) in offered.iter().enumerate() {
            if except.contains(&(place as u16)) {
                error!(url = %offer.url.id(), "the records of a page are damaged");
                pushed.unreadable.push(key.clone());
            } else {
                pushed.copied.push(key.clone());
            }
        }
        Ok(talk)
    }

    /// Sends the records of pages; the first that cannot be read ends it.
    async fn send_pages(&self, talk: &mut Talk, wanted: &[WarcPosition]) -> Result<Result<(), Unread>, Failed> {
        let mut next = 0;
        while let Some(position) = wanted.get(next).copied() {
            let small = wanted[next..].iter().take_while(|position| position.length <= IN_MEMORY_MAX).count();
            if small > 0 {
                let parts = wanted[next..next + small].iter().map(|position| (*position, 0)).collect();
                match self.read(parts, IN_MEMORY_MAX as usize).await? {
                    Ok(pages) => {
                        let pieces = pages.iter().flat_map(|members| members.chunks(PIECE_BYTES));
                        talk.send(&pieces.collect::<Vec<&[u8]>>()).await?;
                    }
                    Err((n, why)) => return Ok(Err((next + n, why))),
                }
                next += small;
                continue;
            }
            for from in (0..position.length).step_by(PART_BYTES) {
                match self.read(vec![(position, from)], PART_BYTES).await? {
                    Ok(parts) => talk.send_in_pieces(&parts.concat()).await?,
                    Err((_, why)) => return Ok(Err((next, why))),
                }
            }
            next += 1;
        }
        Ok(Ok(()))
    }

    /// Reads the records of pages, of each `bytes` behind a place; the first that cannot be read ends it.
    async fn read(
        &self,
        wanted: Vec<(WarcPosition, u32)>,
        bytes: usize,
    ) -> Result<Result<Vec<Vec<u8>>, Unread>, Failed> {
        let archive = Arc::clone(&self.archive);
        let reading = tokio::task::spawn_blocking(move || {
            let mut archive = archive.lock().unwrap_or_else(PoisonError::into_inner);
            let one =
                |(n, (position, from))| archive.part_at(position, from, bytes).map_err(|error| (n, error.to_string()));
            wanted.into_iter().enumerate().map(one).collect()
        });
        reading.await.map_err(|error| error.to_string())
    }
}

/// Takes pages in that other nodes push.
#[derive(Clone)]
pub struct Intake {
    room: Arc<Semaphore>,
    dir: PathBuf,
}

impl Intake {
    /// Takes them in with `dir` as the place for what does not fit into memory.
    pub fn new(dir: PathBuf) -> Intake {
        Intake { room: Arc::new(Semaphore::new(RECEIVING_MAX)), dir }
    }

    /// Serves a stream that a node opened, until it is closed.
    pub async fn serve(&self, disk: &Disk, from: NodeId, stream: BulkStream) {
        let mut talk = Talk::new(stream);
        loop {
            let first = match talk.reader.next().await {
                Ok(Some(frame)) => frame,
                Ok(None) => return,
                Err(error) => return debug!(from = from.0, %error, "a stream of pages ended"),
            };
            if let Err(error) = self.take(disk, from, &mut talk, &first).await {
                return warn!(from = from.0, error, "pages of another node were not taken");
            }
        }
    }

    /// The records of a page, which come in pieces.
    async fn page(&self, talk: &mut Talk, length: u32) -> Result<Members, Failed> {
        let mut file = None;
        if length > IN_MEMORY_MAX {
            file = Some(nameless(&self.dir).map_err(|error| format!("cannot keep a page: {error}"))?);
        }
        let (mut came, mut bytes) = (0u64, Vec::new());
        while came < u64::from(length) {
            let piece = talk.frame(PIECE_PATIENCE).await?;
            came += piece.len() as u64;
            bytes.extend_from_slice(&piece);
            if bytes.len() >= PART_BYTES
                && let Some(written) = file.take()
            {
                file = Some(append(written, std::mem::take(&mut bytes)).await?);
            }
        }
        if came > u64::from(length) {
            return Err("a page is longer than it was offered".to_owned());
        }
        match file {
            None => Ok(Members::Bytes(bytes)),
            Some(file) => append(file, bytes).await.map(Members::File),
        }
    }

    async fn take(&self, disk: &Disk, from: NodeId, talk: &mut Talk, first: &[u8]) -> Result<(), Failed> {
        let Saying::Offers { folder, offers } = understood(first)? else { return Err("no offer".to_owned()) };
        let from = Holding { node: from, folder };
        let failed = |error: DiskError| error.to_string();
        let stand = disk.ask(|reply| Job::Content(ContentJob::Stand(reply))).await.map_err(failed)?;
        if offers.is_empty() {
            return talk.say(&Saying::Wanted { folder: stand.folder, places: Vec::new() }).await;
        }
        let _room = self.room.acquire().await.map_err(|error| error.to_string())?;
        let asked = offers.clone();
        let places = disk.ask(|reply| Job::Content(ContentJob::Wanted(asked, reply))).await.map_err(failed)?;
        talk.say(&Saying::Wanted { folder: stand.folder, places: places.clone() }).await?;
        let mut arriving: Vec<Arriving> =
            offers.into_iter().map(|offer| Arriving { offer, members: None, position: None }).collect();
        for place in &places {
            let one = &mut arriving[usize::from(*place)];
            one.members = Some(self.page(talk, one.offer.bytes).await?);
        }
        let (arriving, except) =
            tokio::task::spawn_blocking(move || checked(arriving, &places)).await.map_err(|error| error.to_string())?;
        match disk.ask(|reply| Job::Content(ContentJob::Keep(from, arriving, reply))).await {
            Ok(()) => talk.say(&Saying::Kept { except }).await,
            Err(error) => {
                talk.say(&Saying::Refused { why: error.to_string() }).await?;
                Err(error.to_string())
            }
        }
    }
}

/// A file in `dir` that is gone when it is closed.
fn nameless(dir: &Path) -> io::Result<File> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = format!("arriving-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let path = dir.join(name);
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// Has bytes written behind what a file has.
async fn append(mut file: File, bytes: Vec<u8>) -> Result<File, Failed> {
    let writing = tokio::task::spawn_blocking(move || file.write_all(&bytes).map(|()| file));
    writing.await.map_err(|error| error.to_string())?.map_err(|error| format!("cannot keep a page: {error}"))
}

/// Leaves out what is not whole, and says which that is.
fn checked(arriving: Vec<Arriving>, places: &[u16]) -> (Vec<Arriving>, Vec<u16>) {
    let mut except = Vec::new();
    let is_whole = |one: &Arriving| {
        let first = match &one.members {
            None => return true,
            Some(Members::Bytes(bytes)) => check_members(bytes.as_slice()).ok(),
            Some(Members::File(file)) => {
                let mut file = file;
                let begins = file.rewind().ok();
                begins.and_then(|()| check_members(BufReader::with_capacity(PART_BYTES, file)).ok())
            }
        };
        first.flatten() == Some(format!("<{}>", RecordId(one.offer.record_id)))
    };
    let mut kept = Vec::with_capacity(arriving.len());
    for (place, one) in arriving.into_iter().enumerate() {
        if is_whole(&one) {
            kept.push(one);
        } else {
            debug_assert!(places.contains(&(place as u16)));
            except.push(place as u16);
        }
    }
    (kept, except)
}
