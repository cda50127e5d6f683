//! Work for the disk that concerns second copies of pages.

use proto::cluster::contents::{ContentKey, Holding, Offer, Standing};
use proto::key::UrlKey;

use super::{Deferred, DiskError, Reply, answer, defer, later};
use crate::edges::store::{Arriving, Change, Members, Offered, Store};
use crate::edges::warc::{WarcPosition, WarcWriter};

/// What this disk has and lacks, as of the last change.
#[derive(Clone, Debug, Default)]
pub struct Stand {
    /// The number of its folder.
    pub folder: u64,
    /// The list, and who is trusted with what.
    pub standing: Standing,
}

/// Part of the list: pages, the bytes of their records, and where to go on.
pub type Listed = (Vec<(ContentKey, u32)>, Option<ContentKey>);

/// The work.
#[derive(Debug)]
pub enum ContentJob {
    /// How things stand.
    Stand(Reply<Stand>),
    /// Read the list of pages without a second copy, behind one, at most so many.
    List(Option<ContentKey>, usize, Reply<Listed>),
    /// Where these pages lie.
    Offers(Vec<ContentKey>, Reply<Offered>),
    /// Which of these pages are not here.
    Wanted(Vec<Offer>, Reply<Vec<u16>>),
    /// The versions of a page that are here.
    Versions(UrlKey, Reply<Vec<(Offer, WarcPosition)>>),
    /// Another disk has these pages too.
    Mark(Vec<ContentKey>, Holding, Reply<()>),
    /// Put pages on the list that a lost disk was trusted with; answers where to go on.
    TakeBack(Holding, Option<Vec<u8>>, Reply<Option<Vec<u8>>>),
    /// Keep pages of another node.
    Keep(Holding, Vec<Arriving>, Reply<()>),
}

impl ContentJob {
    pub(super) fn is_write(&self) -> bool {
        matches!(self, ContentJob::Mark(..) | ContentJob::TakeBack(..) | ContentJob::Keep(..))
    }

    pub(super) fn bytes(&self) -> usize {
        let ContentJob::Keep(_, arriving, _) = self else { return 0 };
        arriving.iter().filter(|one| one.members.is_some()).map(|one| one.offer.bytes as usize).sum()
    }

    /// Appends what came to the archive, byte for byte; says whether there was something.
    pub(super) fn archive(&mut self, warc: &mut WarcWriter) -> Result<bool, DiskError> {
        let ContentJob::Keep(_, arriving, _) = self else { return Ok(false) };
        let mut archived = false;
        for one in arriving {
            let Offer { bytes, unix_ms, .. } = one.offer;
            one.position = match one.members.take() {
                None => continue,
                Some(Members::Bytes(members)) => Some(warc.append_members(&members, unix_ms, "a copy")?),
                Some(Members::File(file)) => Some(warc.append_file(&file, bytes, unix_ms)?),
            };
            archived = true;
        }
        Ok(archived)
    }

    pub(super) fn apply(self, change: &mut Change<'_>, deferred: &mut Vec<Deferred>) -> Result<(), DiskError> {
        match self {
            ContentJob::Mark(keys, holding, reply) => defer(reply, change.mark_copied(&keys, holding), deferred),
            ContentJob::TakeBack(holding, after, reply) => defer(reply, change.take_for_lost(holding, after), deferred),
            ContentJob::Keep(from, arriving, reply) => defer(reply, change.keep_copies(from, arriving), deferred),
            _ => unreachable!("reads go to `read`"),
        }
    }

    pub(super) fn refuse(self, deferred: &mut Vec<Deferred>) {
        match self {
            ContentJob::Mark(_, _, reply) => later(reply, deferred),
            ContentJob::TakeBack(_, _, reply) => later(reply, deferred),
            ContentJob::Keep(_, _, reply) => later(reply, deferred),
            _ => unreachable!("reads go to `read`"),
        }
    }

    pub(super) fn read(self, store: &Store) {
        match self {
            ContentJob::Stand(reply) => {
                answer(reply, Ok(Stand { folder: store.folder(), standing: store.standing().clone() }))
            }
            ContentJob::List(after, limit, reply) => answer(reply, store.lacking(after.as_ref(), limit)),
            ContentJob::Offers(keys, reply) => answer(reply, store.offers(&keys)),
            ContentJob::Wanted(offers, reply) => answer(reply, store.wanted(&offers)),
            ContentJob::Versions(url, reply) => answer(reply, store.versions(&url)),
            _ => unreachable!("writes go to `apply`"),
        }
    }
}
