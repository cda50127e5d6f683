//! What nodes say to each other, one way each: a lost message is as good as a late one, and every request is repeated by who needs its
//! answer. Every message has a bound, checked when it comes in; answers carry the number of what they answer, and the life
//! in which it was asked.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::copy::{COPY_BYTES_MAX, RecordCopy};
use super::lease::Seq;
use super::registry::{DEFINITIONS_MAX, Definition, Saying};
use super::slot_set::SlotSet;
use crate::batch::{Discovered, Entry};
use crate::crawl::outcome::Ending;
use crate::crawl::politeness::Micros;
use crate::crawl::retry::HostVerdict;
use crate::id::{BatchId, NodeId, Slot, UrlId};
use crate::key::{UrlKey, crawl_name_is_valid};

/// Records in one message.
pub const COPIES_MAX: usize = 256;
/// Bytes of the records of one message, about; a single record may be longer.
pub const COPIES_BYTES_MAX: usize = 256 << 10;
/// Discovered URLs in one message.
pub const DISCOVERED_MAX: usize = 256;
/// URLs of one batch.
pub const BATCH_MAX: usize = 64;
/// Digests in one message: one of every slot.
pub const DIGESTS_MAX: usize = crate::id::SLOTS as usize;
/// Bytes of a packet of the membership protocol.
pub const SWIM_BYTES_MAX: usize = 1_400;

/// A message and who says it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Letter {
    /// The cluster it is meant for.
    pub cluster: u64,
    /// Who sends it.
    pub from: NodeId,
    /// In which life.
    pub boot: u32,
    /// What the sender's clock showed: a deadline that is sent to it later is given on that clock.
    pub clock: Micros,
    /// What it says.
    pub message: Message,
}

/// The first version in which one write has records of several slots.
pub const PUT_MANY_SINCE: u16 = 3;

/// The first version in which the answer to a comparison carries the number of its question.
pub const COMPARE_SINCE: u16 = 4;

/// The first version in which an executor says that a request is over before its page is stored.
pub const ASKED_SINCE: u16 = 5;

/// Numbers a request within a life of who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Op {
    /// The life.
    pub boot: u32,
    /// Counts within that life.
    pub number: u64,
}

/// How far a fetch has come, where it was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Stage {
    /// The host was asked, and the content is stored.
    Crawled,
    /// Nothing is left to do: the links of the page are kept by their owners, or there was none.
    Processed,
}

/// One URL of a batch, as the executor needs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errand {
    /// Names it to the sender of the batch.
    pub flight: u64,
    /// What to fetch.
    pub entry: Entry,
    /// How deep it lies.
    pub depth: u16,
    /// Its priority: what it links to inherits it.
    pub priority: u16,
}

/// A batch on its way to who fetches it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commission {
    /// Names it.
    pub batch: BatchId,
    /// The slot of all its URLs.
    pub slot: Slot,
    /// Their crawl.
    pub crawl: String,
    /// The life of the executor for which it is meant.
    pub executor_boot: u32,
    /// Everything is over by then, on the executor's clock.
    pub until: Micros,
    /// What to fetch.
    pub errands: Vec<Errand>,
}

/// What nodes say.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// A packet of the membership protocol.
    Swim(Vec<u8>),
    /// Asks a voter for slots.
    LeaseRequest {
        /// Numbers the request.
        seq: Seq,
        /// Which.
        slots: SlotSet,
    },
    /// A voter promises slots.
    LeaseGrant {
        /// The request.
        seq: Seq,
        /// Which.
        slots: SlotSet,
    },
    /// Gives slots back to a voter.
    LeaseRelease {
        /// Numbers the release.
        seq: Seq,
        /// Which.
        slots: SlotSet,
    },
    /// Records to be kept.
    Put {
        /// Names the write.
        op: Op,
        /// The records.
        copies: Vec<RecordCopy>,
    },
    /// The records of a write are fsynced.
    PutDone {
        /// The write.
        op: Op,
    },
    /// Digests of slots, to be compared.
    Digests {
        /// Slot and digest.
        slots: Vec<(Slot, u64)>,
        /// The sender will drop what all owners have: it must be told of equality too.
        parting: bool,
    },
    /// These slots have the same digest here.
    Same {
        /// Slot and digest.
        slots: Vec<(Slot, u64)>,
    },
    /// The digests of a slot's ranges, because that of the slot differed.
    Ranges {
        /// The slot.
        slot: Slot,
        /// Range and digest of what is not empty.
        ranges: Vec<(u8, u64)>,
    },
    /// Asks for the records of ranges.
    Want {
        /// The slot.
        slot: Slot,
        /// Which ranges.
        ranges: Vec<u8>,
    },
    /// Records that the receiver seems to lack.
    Records {
        /// The records.
        copies: Vec<RecordCopy>,
    },
    /// Asks for everything of slots that the sender does not have.
    Pull {
        /// Names it.
        op: Op,
        /// Which slots.
        slots: SlotSet,
        /// What the sender has: digests of what is not empty.
        digests: Vec<(Slot, u64)>,
    },
    /// A part of the answer to a pull.
    Pulled {
        /// The pull.
        op: Op,
        /// Counts the parts from 0.
        part: u32,
        /// There are no more.
        last: bool,
        /// The records.
        copies: Vec<RecordCopy>,
    },
    /// A batch to be fetched.
    Run(Commission),
    /// The batch is being fetched.
    RunTaken {
        /// Which.
        batch: BatchId,
    },
    /// The batch is refused, and nothing of it was or will be fetched.
    Busy {
        /// Which.
        batch: BatchId,
    },
    /// What became of a URL of a batch.
    Report {
        /// The batch.
        batch: BatchId,
        /// The URL.
        flight: u64,
        /// How far it has come.
        stage: Stage,
        /// How the fetch ended.
        ending: Ending,
    },
    /// A report has been taken in.
    ReportDone {
        /// The batch.
        batch: BatchId,
        /// The URL.
        flight: u64,
        /// How far it had come.
        stage: Stage,
    },
    /// Links for the owner of their domains.
    Discovered {
        /// Names it.
        op: Op,
        /// Their crawl.
        crawl: String,
        /// The page that names them.
        parent: Option<UrlId>,
        /// The links.
        urls: Vec<Discovered>,
    },
    /// The links are kept.
    DiscoveredDone {
        /// Which.
        op: Op,
    },
    /// Nodes that gave their place on the ring up, for those who were not there to hear it.
    Departed {
        /// Which, and in which life.
        nodes: Vec<(NodeId, u32)>,
    },
    /// A later life of the receiver is known to the sender: whatever it is, it is not the living one.
    Outdated {
        /// The later life.
        boot: u32,
    },
    /// What registries say to each other.
    Registry(Saying),
    /// Asks which of these slots are otherwise at the receiver.
    Survey {
        /// Names it.
        op: Op,
        /// Which slots.
        slots: SlotSet,
        /// What the sender has: digests of what is not empty.
        digests: Vec<(Slot, u64)>,
    },
    /// These of the slots are otherwise here, and not empty.
    Differing {
        /// The survey.
        op: Op,
        /// Which slots.
        slots: SlotSet,
    },
    /// Asks for a part of a slot.
    Draw {
        /// Names it.
        op: Op,
        /// The slot.
        slot: Slot,
        /// Its ranges.
        ranges: Vec<u8>,
        /// The part behind this record.
        after: Option<UrlKey>,
    },
    /// A part of a slot.
    Drawn {
        /// What asked for it.
        op: Op,
        /// The records.
        copies: Vec<RecordCopy>,
        /// Where to go on; `None` if there is no more.
        next: Option<UrlKey>,
    },
    /// The sender has these of a slot that is no longer its own, and needs nothing of it.
    Parting {
        /// Which.
        slot: Slot,
        /// Digests of the ranges that are not empty.
        ranges: Vec<(u8, u64)>,
    },
    /// Everything that made this digest of a slot is on the sender's disk; more may be.
    Has {
        /// Which.
        slot: Slot,
        /// The digest.
        digest: u64,
    },
    /// Keep these copies, of whatever slots, fsynced, and answer [`Message::PutDone`].
    PutMany {
        /// Names it.
        op: Op,
        /// The copies.
        copies: Vec<RecordCopy>,
    },
    /// Asks for the digests of a slot's ranges.
    Compare {
        /// Names it.
        op: Op,
        /// The slot.
        slot: Slot,
    },
    /// The digests of a slot's ranges, when they were asked for.
    Compared {
        /// What asked for them.
        op: Op,
        /// Range and digest of what is not empty.
        ranges: Vec<(u8, u64)>,
    },
    /// The host of a URL was asked, and the request is over; what came of it is not stored yet. Said once: whoever does not hear it
    /// hears the report.
    Asked {
        /// The batch.
        batch: BatchId,
        /// The URL.
        flight: u64,
        /// What it means for the host.
        host: HostVerdict,
        /// What the server asked us to wait.
        retry_after_ms: Option<u64>,
    },
}

impl Message {
    /// Whether it asks to keep records, or whether they are kept.
    pub fn is_to_be_kept(&self) -> bool {
        use Message::{Digests, Parting, Put, PutMany, Ranges, Records};
        matches!(self, Put { .. } | PutMany { .. } | Records { .. } | Digests { .. } | Ranges { .. } | Parting { .. })
    }

    /// Name for metrics and traces.
    pub fn name(&self) -> &'static str {
        match self {
            Message::Swim(_) => "swim",
            Message::LeaseRequest { .. } => "lease_request",
            Message::LeaseGrant { .. } => "lease_grant",
            Message::LeaseRelease { .. } => "lease_release",
            Message::Put { .. } => "put",
            Message::PutDone { .. } => "put_done",
            Message::Digests { .. } => "digests",
            Message::Same { .. } => "same",
            Message::Ranges { .. } => "ranges",
            Message::Want { .. } => "want",
            Message::Records { .. } => "records",
            Message::Pull { .. } => "pull",
            Message::Pulled { .. } => "pulled",
            Message::Run(_) => "run",
            Message::RunTaken { .. } => "run_taken",
            Message::Busy { .. } => "busy",
            Message::Report { .. } => "report",
            Message::ReportDone { .. } => "report_done",
            Message::Discovered { .. } => "discovered",
            Message::DiscoveredDone { .. } => "discovered_done",
            Message::Departed { .. } => "departed",
            Message::Outdated { .. } => "outdated",
            Message::Registry(Saying::Define { .. }) => "define",
            Message::Registry(Saying::DefineDone { .. }) => "define_done",
            Message::Registry(Saying::Compare { .. }) => "definitions_compare",
            Message::Registry(Saying::Held { .. }) => "definitions_held",
            Message::Survey { .. } => "survey",
            Message::Differing { .. } => "differing",
            Message::Draw { .. } => "draw",
            Message::Drawn { .. } => "drawn",
            Message::Parting { .. } => "parting",
            Message::Has { .. } => "has",
            Message::PutMany { .. } => "put_many",
            Message::Compare { .. } => "compare",
            Message::Compared { .. } => "compared",
            Message::Asked { .. } => "asked",
        }
    }

    /// The first version of the wire that has this message. It is not said to nodes that speak an older one: to them it would
    /// be garbage.
    pub fn since(&self) -> u16 {
        // A message of a later version gets an arm of its own, and is added to the end of the enum.
        match self {
            Message::Survey { .. }
            | Message::Differing { .. }
            | Message::Draw { .. }
            | Message::Drawn { .. }
            | Message::Parting { .. }
            | Message::Has { .. } => 2,
            Message::PutMany { .. } => PUT_MANY_SINCE,
            Message::Compare { .. } | Message::Compared { .. } => COMPARE_SINCE,
            Message::Asked { .. } => ASKED_SINCE,
            _ => 1,
        }
    }

    /// Whether it is one of many large ones, which must not stand before others: records that are brought over slot by slot.
    pub fn is_bulk(&self) -> bool {
        matches!(self, Message::Drawn { .. } | Message::Pulled { .. } | Message::Records { .. })
    }

    /// Whether it must not wait behind others: small, and nodes are believed dead or leases end without it.
    pub fn is_urgent(&self) -> bool {
        matches!(
            self,
            Message::Swim(_)
                | Message::LeaseRequest { .. }
                | Message::LeaseGrant { .. }
                | Message::LeaseRelease { .. }
                | Message::Departed { .. }
                | Message::Outdated { .. }
        )
    }

    /// Says what is wrong with a message that came in, if something is: a peer may be broken or hostile.
    pub fn defect(&self) -> Option<&'static str> {
        let copies_bad = |copies: &[RecordCopy]| {
            copies.len() > COPIES_MAX || copies.iter().any(|copy| copy.body.0.len() > COPY_BYTES_MAX)
        };
        let bad = match self {
            Message::Swim(bytes) => bytes.len() > SWIM_BYTES_MAX,
            Message::Put { copies, .. } => {
                copies_bad(copies) || copies.windows(2).any(|two| two[0].slot() != two[1].slot())
            }
            Message::Records { copies }
            | Message::Pulled { copies, .. }
            | Message::Drawn { copies, .. }
            | Message::PutMany { copies, .. } => copies_bad(copies),
            Message::Digests { slots, .. } | Message::Same { slots } => slots.len() > DIGESTS_MAX,
            Message::Ranges { ranges, .. } | Message::Parting { ranges, .. } | Message::Compared { ranges, .. } => {
                ranges.len() > 256
            }
            Message::Departed { nodes } => nodes.len() > DIGESTS_MAX,
            Message::Want { ranges, .. } | Message::Draw { ranges, .. } => ranges.len() > 256,
            Message::Pull { digests, .. } | Message::Survey { digests, .. } => digests.len() > DIGESTS_MAX,
            Message::Run(commission) => {
                let wrong = |errand: &Errand| Slot::of_domain(errand.entry.url.domain()) != commission.slot;
                commission.errands.len() > BATCH_MAX
                    || !crawl_name_is_valid(&commission.crawl)
                    || commission.errands.iter().any(wrong)
            }
            Message::Discovered { crawl, urls, .. } => urls.len() > DISCOVERED_MAX || !crawl_name_is_valid(crawl),
            Message::Registry(Saying::Define { definitions, .. }) => !definitions.iter().all(Definition::is_sound),
            Message::Registry(Saying::Held { versions, .. }) => versions.len() > 2 * DEFINITIONS_MAX,
            Message::Registry(Saying::Compare { counts, .. }) => counts.len() > 2 * DEFINITIONS_MAX,
            _ => false,
        };
        bad.then(|| self.name())
    }
}

/// Ids and counts, never bodies.
impl fmt::Debug for Message {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Message::Swim(bytes) => write!(out, "swim {} bytes", bytes.len()),
            Message::LeaseRequest { seq, slots } => write!(out, "lease_request {}.{} {slots:?}", seq.boot, seq.counter),
            Message::LeaseGrant { seq, slots } => write!(out, "lease_grant {}.{} {slots:?}", seq.boot, seq.counter),
            Message::LeaseRelease { seq, slots } => write!(out, "lease_release {}.{} {slots:?}", seq.boot, seq.counter),
            Message::Put { op, copies } => write!(out, "put {} {copies:?}", op.number),
            Message::PutDone { op } => write!(out, "put_done {}", op.number),
            Message::Digests { slots, parting } => write!(out, "digests of {} slots parting={parting}", slots.len()),
            Message::Same { slots } => write!(out, "same {} slots", slots.len()),
            Message::Ranges { slot, ranges } => write!(out, "ranges {} {}", slot.0, ranges.len()),
            Message::Want { slot, ranges } => write!(out, "want {} {}", slot.0, ranges.len()),
            Message::Records { copies } => write!(out, "records {copies:?}"),
            Message::Pull { op, slots, .. } => write!(out, "pull {} {slots:?}", op.number),
            Message::Pulled { op, part, last, copies } => {
                write!(out, "pulled {} part {part} last={last} {} copies", op.number, copies.len())
            }
            Message::Run(commission) => {
                let flights: Vec<u64> = commission.errands.iter().map(|errand| errand.flight).collect();
                write!(out, "run {} {flights:?}", commission.batch)
            }
            Message::RunTaken { batch } => write!(out, "run_taken {batch}"),
            Message::Busy { batch } => write!(out, "busy {batch}"),
            Message::Report { batch, flight, stage, .. } => write!(out, "report {batch} {flight} {stage:?}"),
            Message::ReportDone { batch, flight, stage } => write!(out, "report_done {batch} {flight} {stage:?}"),
            Message::Discovered { op, urls, .. } => write!(out, "discovered {} {} urls", op.number, urls.len()),
            Message::DiscoveredDone { op } => write!(out, "discovered_done {}", op.number),
            Message::Departed { nodes } => write!(out, "departed {nodes:?}"),
            Message::Outdated { boot } => write!(out, "outdated {boot}"),
            Message::Registry(Saying::Define { op, definitions }) => {
                let names: Vec<_> = definitions.iter().map(|one| (&one.key.name, one.version.number)).collect();
                write!(out, "define {:?} {names:?}", op.map(|op| op.number))
            }
            Message::Registry(Saying::DefineDone { op }) => write!(out, "define_done {}", op.number),
            Message::Registry(Saying::Compare { digest, .. }) => write!(out, "definitions_compare {digest:x}"),
            Message::Registry(Saying::Held { versions, answer }) => {
                write!(out, "definitions_held {} answer={answer}", versions.len())
            }
            Message::Survey { op, slots, .. } => write!(out, "survey {} {slots:?}", op.number),
            Message::Differing { op, slots } => write!(out, "differing {} {slots:?}", op.number),
            Message::Draw { op, slot, ranges, after } => {
                let behind = after.as_ref().map(UrlKey::id);
                write!(out, "draw {} of {} {} ranges after {behind:?}", op.number, slot.0, ranges.len())
            }
            Message::Drawn { op, copies, next } => {
                write!(out, "drawn {} {} copies last={}", op.number, copies.len(), next.is_none())
            }
            Message::Parting { slot, ranges } => write!(out, "parting {} {}", slot.0, ranges.len()),
            Message::Has { slot, digest } => write!(out, "has {} {digest:x}", slot.0),
            Message::PutMany { op, copies } => write!(out, "put_many {} {copies:?}", op.number),
            Message::Compare { op, slot } => write!(out, "compare {} of {}", op.number, slot.0),
            Message::Compared { op, ranges } => write!(out, "compared {} {}", op.number, ranges.len()),
            Message::Asked { batch, flight, host, .. } => write!(out, "asked {batch} {flight} {host:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::copy::tests::copy;
    use super::super::registry::{DefinitionKey, DefinitionKind, Version};
    use super::*;
    use crate::record::Progress;
    use crate::wire;

    fn letter(message: Message) -> Letter {
        Letter { cluster: 7, from: NodeId(1), boot: 3, clock: 99, message }
    }

    /// A message of each kind, in the order of the enum.
    fn one_of_each() -> Vec<Message> {
        let op = Op { boot: 3, number: 8 };
        let seq = Seq { boot: 1, counter: 2 };
        let slots = || [Slot(5), Slot(4_095)].into_iter().collect::<SlotSet>();
        let copies = || vec![copy("http://a.example/", Progress::new(NodeId(1)))];
        let batch = BatchId { node: NodeId(1), boot: 3, number: 4 };
        let url = crate::url::CanonicalUrl::parse("http://a.example/x", &Default::default()).unwrap();
        let kind = crate::batch::EntryKind::Page;
        let entry =
            Entry { url: url.clone(), kind, progress: Progress::new(NodeId(1)), redirects: 1, validators: None };
        let ending = Ending::Failed(crate::crawl::retry::Failure::Timeout, None, Some(3));
        let definition = Definition {
            key: DefinitionKey { kind: DefinitionKind::Crawl, name: "news".into() },
            version: Version { number: 2, node: NodeId(1), boot: 3 },
            body: Some(vec![1, 2]),
        };
        vec![
            Message::Swim(vec![1, 2, 3]),
            Message::LeaseRequest { seq, slots: slots() },
            Message::LeaseGrant { seq, slots: slots() },
            Message::LeaseRelease { seq, slots: slots() },
            Message::Put { op, copies: copies() },
            Message::PutDone { op },
            Message::Digests { slots: vec![(Slot(1), 2)], parting: true },
            Message::Same { slots: vec![(Slot(1), 2)] },
            Message::Ranges { slot: Slot(1), ranges: vec![(2, 3)] },
            Message::Want { slot: Slot(1), ranges: vec![2, 3] },
            Message::Records { copies: copies() },
            Message::Pull { op, slots: slots(), digests: vec![(Slot(1), 2)] },
            Message::Pulled { op, part: 1, last: true, copies: copies() },
            Message::Run(Commission {
                batch,
                slot: Slot::of_domain(url.domain()),
                crawl: "DEFAULT".into(),
                executor_boot: 7,
                until: 99,
                errands: vec![Errand { flight: 9, entry, depth: 2, priority: 100 }],
            }),
            Message::RunTaken { batch },
            Message::Busy { batch },
            Message::Report { batch, flight: 9, stage: Stage::Processed, ending },
            Message::ReportDone { batch, flight: 9, stage: Stage::Crawled },
            Message::Discovered {
                op,
                crawl: "DEFAULT".into(),
                parent: Some(UrlId([7; 16])),
                urls: vec![Discovered { url, kind, depth: 1, priority: 5, redirects: 0 }],
            },
            Message::DiscoveredDone { op },
            Message::Departed { nodes: vec![(NodeId(1), 2)] },
            Message::Outdated { boot: 4 },
            Message::Registry(Saying::Define { op: Some(op), definitions: vec![definition.clone()] }),
            Message::Registry(Saying::DefineDone { op }),
            Message::Registry(Saying::Compare { digest: 5, counts: vec![("news".into(), 6)] }),
            Message::Registry(Saying::Held { versions: vec![(definition.key, definition.version)], answer: true }),
            Message::Survey { op, slots: slots(), digests: vec![(Slot(1), 2)] },
            Message::Differing { op, slots: slots() },
            Message::Draw { op, slot: Slot(1), ranges: vec![2, 3], after: Some(copies()[0].key.clone()) },
            Message::Drawn { op, copies: copies(), next: Some(copies()[0].key.clone()) },
            Message::Parting { slot: Slot(1), ranges: vec![(2, 3)] },
            Message::Has { slot: Slot(1), digest: 2 },
            Message::PutMany {
                op: Op { boot: 1, number: 2 },
                copies: vec![copy("http://a.example/", Progress::new(NodeId(1)))],
            },
            Message::Compare { op, slot: Slot(1) },
            Message::Compared { op, ranges: vec![(2, 3)] },
            Message::Asked { batch, flight: 9, host: HostVerdict::SlowDown, retry_after_ms: Some(3) },
        ]
    }

    #[test]
    fn letters_cross_the_wire() {
        for message in one_of_each() {
            let bytes = wire::seal(7, &letter(message.clone())).unwrap();
            assert_eq!(wire::unseal::<Letter>(7, &bytes).unwrap(), letter(message.clone()));
            assert_eq!(message.defect(), None);
        }
    }

    /// Nodes of one version must understand each other whichever release they are of: what a version says never changes. Whoever
    /// must change a message adds another one, of a later version.
    #[test]
    fn what_a_version_says_never_changes() {
        assert_eq!(said_since(1), VERSION_1);
        assert_eq!(said_since(2), VERSION_2);
        assert_eq!(said_since(3), VERSION_3);
        assert_eq!(said_since(4), VERSION_4);
        assert_eq!(said_since(5), VERSION_5);
    }

    fn said_since(version: u16) -> Vec<(&'static str, usize, u64)> {
        let said = |message: Message| {
            let name = message.name();
            let mut bytes = wire::envelope(version, 7).to_vec();
            wire::encode_into(&letter(message), &mut bytes).unwrap();
            (name, bytes.len(), xxhash_rust::xxh3::xxh3_64(&bytes))
        };
        one_of_each().into_iter().filter(|message| message.since() == version).map(said).collect()
    }

    /// Name, length and XXH3 of the bytes.
    const VERSION_1: [(&str, usize, u64); 26] = [
        ("swim", 19, 0xaf4ae2945c1b0c88),
        ("lease_request", 30, 0x7ba79465327319e9),
        ("lease_grant", 30, 0x16e794bcd3e00f3a),
        ("lease_release", 30, 0x662ca4100e1db01b),
        ("put", 95, 0xcde13f2ac7727b5d),
        ("put_done", 17, 0x43cc65ca3b075c6f),
        ("digests", 19, 0xb8f91055f1f6560a),
        ("same", 18, 0x45126fba1e9827a9),
        ("ranges", 19, 0xa6d0ca5e4fcb291d),
        ("want", 19, 0x970cf563e805f07b),
        ("records", 93, 0x55fa685c2f895e9e),
        ("pull", 33, 0x6231fbaff577f38d),
        ("pulled", 97, 0x3ce241575d0d0a64),
        ("run", 62, 0x832e330d4eb0f4c6),
        ("run_taken", 18, 0x19bd9a3857720622),
        ("busy", 18, 0x70b335c66f118ce4),
        ("report", 25, 0xcafea7c20c16cbe2),
        ("report_done", 20, 0x8266b6656b30cde3),
        ("discovered", 66, 0x533170875b1d1449),
        ("discovered_done", 17, 0x95c51ac393f91ddb),
        ("departed", 18, 0xa6bd3e2253116229),
        ("outdated", 16, 0x93d75713e015c782),
        ("define", 33, 0x41d454ee523fae0c),
        ("define_done", 18, 0xa882b52be25de7ea),
        ("definitions_compare", 24, 0x3bb46c7917a4ffcc),
        ("definitions_held", 27, 0xb88d1ebab32d1398),
    ];

    const VERSION_2: [(&str, usize, u64); 6] = [
        ("survey", 33, 0xf9fa9a3600fc4b09),
        ("differing", 30, 0xfea7c36a78daf888),
        ("draw", 59, 0x5b93f08102dd66f8),
        ("drawn", 133, 0x49ef6c6891e10932),
        ("parting", 19, 0x3292eb331094cb4c),
        ("has", 17, 0x9966849c33db9fda),
    ];

    const VERSION_3: [(&str, usize, u64); 1] = [("put_many", 95, 0x130595828d333e96)];

    const VERSION_4: [(&str, usize, u64); 2] =
        [("compare", 18, 0x2df27f090d87ed6c), ("compared", 20, 0x4f141f1700102ddc)];

    const VERSION_5: [(&str, usize, u64); 1] = [("asked", 22, 0x7be21bc012d2c39f)];

    #[test]
    fn what_is_too_much_is_a_defect() {
        let copies = vec![copy("http://a.example/", Progress::new(NodeId(1))); COPIES_MAX + 1];
        assert!(Message::Records { copies }.defect().is_some());
        assert!(Message::Swim(vec![0; SWIM_BYTES_MAX + 1]).defect().is_some());
        let one = copy("http://a.example/", Progress::new(NodeId(1)));
        let other = copy("http://b.example/", Progress::new(NodeId(1)));
        assert_ne!(one.slot(), other.slot());
        let op = Op { boot: 1, number: 1 };
        let copies = vec![one, other];
        assert!(Message::Put { op, copies: copies.clone() }.defect().is_some(), "such a write is of one slot");
        assert_eq!(Message::PutMany { op, copies }.defect(), None);
        let copies = vec![copy("http://a.example/", Progress::new(NodeId(1))); COPIES_MAX + 1];
        assert!(Message::PutMany { op, copies }.defect().is_some());
    }
}
