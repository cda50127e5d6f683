//! Pages between nodes, over streams of the swarm: their records go as they are in one archive into the other. What is said is
//! [`Saying`]; records follow in pieces, each a frame of its own.
//!
//! **Back-pressure.** One push to a node is under way at a time; the next offer is made when the last one is on the other's disk. The one that
//! receives says what it wants when it has room: at most `RECEIVING_MAX` pushes are in its memory at once, each bounded by
//! what may be offered; whoever comes then waits in its stream's window.

use std::collections::BTreeMap;
use std::path::PathBuf;
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
use super::store::{Arriving, Offered};
use super::swarm::Swarm;
use super::swarm::frame::{self, FrameReader};
use super::swarm::settings::BulkStream;
use super::warc::{RecordId, WarcArchive, WarcPosition, parse_members};

/// Pushes that are received at once.
const RECEIVING_MAX: usize = 2;
/// Bytes of a saying: 256 offers, whose keys hold a domain and a crawl's name of some hundred bytes each.
const SAYING_BYTES_MAX: usize = 256 << 10;
/// Bytes of a piece of a page.
const PIECE_BYTES: usize = 64 << 10;
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

impl Talk {
    fn new(stream: BulkStream) -> Talk {
        let (reader, writer) = stream.split();
        Talk { reader: FrameReader::new(reader, SAYING_BYTES_MAX, PIECE_PATIENCE), writer }
    }

    async fn say(&mut self, saying: &Saying) -> Result<(), Failed> {
        let bytes = wire::encode(saying).map_err(|error| error.to_string())?;
        self.send(&[&bytes]).await
    }

    /// Sends frames.
    async fn send(&mut self, frames: &[&[u8]]) -> Result<(), Failed> {
        let mut out = Vec::new();
        for bytes in frames {
            let filled = frame::append(&mut out, |out| {
                out.extend_from_slice(bytes);
                Ok::<(), Failed>(())
            });
            filled?;
            let written = timeout(PIECE_PATIENCE, self.writer.write_all(&out)).await;
            written.map_err(|_| "takes nothing".to_owned())?.map_err(|error| error.to_string())?;
            out.clear();
        }
        let flushed = timeout(PIECE_PATIENCE, self.writer.flush()).await;
        flushed.map_err(|_| "takes nothing".to_owned())?.map_err(|error| error.to_string())
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
    archive: PathBuf,
    /// Streams that wait for the next push.
    idle: Mutex<BTreeMap<NodeId, Talk>>,
}

impl SwarmLine {
    /// A line for the archive in `dir`; it leads nowhere before it is [tied](SwarmLine::tie).
    pub fn new(dir: PathBuf) -> SwarmLine {
        SwarmLine(Arc::new(LineParts { swarm: OnceLock::new(), archive: dir, idle: Mutex::default() }))
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
        match self.read(wanted).await? {
            Ok(pages) => {
                for members in pages {
                    let pieces: Vec<&[u8]> = members.chunks(PIECE_BYTES).collect();
                    talk.send(&pieces).await?;
                }
            }
            Err((n, why)) => {
                let (key, offer, _) = &offered[usize::from(places[n])];
                error!(url = %offer.url.id(), %why, "the records of a page cannot be read");
                pushed.unreadable.push(key.clone());
                return Err("records cannot be read here".to_owned());
            }
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

    /// Reads the records of pages; the first that cannot be read ends it.
    async fn read(&self, wanted: Vec<WarcPosition>) -> Result<Result<Vec<Vec<u8>>, (usize, String)>, Failed> {
        let dir = self.archive.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let mut archive = WarcArchive::new(&dir);
            let one = |(n, position)| archive.members_at(position).map_err(|error| (n, error.to_string()));
            wanted.into_iter().enumerate().map(one).collect()
        });
        reading.await.map_err(|error| error.to_string())
    }
}

/// Takes pages in that other nodes push.
#[derive(Clone)]
pub struct Intake {
    room: Arc<Semaphore>,
}

impl Default for Intake {
    fn default() -> Self {
        Intake { room: Arc::new(Semaphore::new(RECEIVING_MAX)) }
    }
}

impl Intake {
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
            one.members = Some(page(talk, one.offer.bytes as usize).await?);
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

/// The records of a page, in pieces.
async fn page(talk: &mut Talk, length: usize) -> Result<Vec<u8>, Failed> {
    let mut members = Vec::new();
    while members.len() < length {
        members.extend_from_slice(&talk.frame(PIECE_PATIENCE).await?);
    }
    if members.len() == length { Ok(members) } else { Err("a page is longer than it was offered".to_owned()) }
}

/// Leaves out what is not whole, and says which that is.
fn checked(arriving: Vec<Arriving>, places: &[u16]) -> (Vec<Arriving>, Vec<u16>) {
    let mut except = Vec::new();
    let is_whole = |one: &Arriving| {
        let Some(members) = &one.members else { return true };
        let records = parse_members(members).unwrap_or_default();
        let id = format!("<{}>", RecordId(one.offer.record_id));
        records.first().is_some_and(|record| record.header("WARC-Record-ID") == Some(&id))
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
