//! What overtakes what on the disk's thread.

use std::collections::BTreeMap;

use proto::batch::EntryKind;
use proto::clients::ask::{Item, Look, Said, Taken};
use proto::cluster::copy::{Kept, RecordCopy};
use proto::crawl::politeness::Micros;
use proto::id::NodeId;
use proto::key::DEFAULT_CRAWL;
use proto::record::Status;
use proto::url::{CanonicalUrl, UrlRules};

use super::*;
use crate::edges::clock::mono;
use crate::edges::store::{Decided, Merged, StoreOptions};

const NOW: u64 = 1_000_000;
/// Longer than anything here takes; only a test that fails waits for it.
const LONG: Duration = Duration::from_secs(60);

/// A replica that has one URL, its life, and that URL as the frontier would pick it.
fn replica(dir: &std::path::Path) -> (Store, u32, Pick) {
    let options = StoreOptions { node: NodeId(7), replica: true, ..StoreOptions::default() };
    let mut store = Store::open(dir, options).unwrap();
    let life = store.begin_life(1_700_000_000, None).unwrap().boot;
    let mut change = store.change();
    change.merge(vec![fresh("http://a.example/1")], NOW).unwrap();
    change.commit().unwrap();
    let queue = store.sweep(None, None, 1, 1).unwrap().0.remove(0);
    let (order, entry) = queue.entries[0].clone();
    (store, life, Pick { flight: 5, queue: queue.key, order, entry })
}

fn fresh(text: &str) -> RecordCopy {
    let url = CanonicalUrl::parse(text, &UrlRules::default()).unwrap();
    let found = Discovered { url, kind: EntryKind::Page, depth: 1, priority: 100, redirects: 0 };
    RecordCopy::new(UrlKey::new(DEFAULT_CRAWL, &found.url), &Kept::discovered(&found, None, NOW, NodeId(3))).unwrap()
}

type Answered<T> = oneshot::Receiver<Result<T, DiskError>>;

type Selected = Vec<(Pick, Option<RecordCopy>)>;

fn select(life: u32, pick: &Pick) -> (Job, Answered<Selected>) {
    let (reply, selected) = oneshot::channel();
    (Job::Replica(ReplicaJob::Select { life, picks: vec![pick.clone()], reply }), selected)
}

fn merge(copy: RecordCopy) -> (Job, Answered<Merged>) {
    let (reply, merged) = oneshot::channel();
    (Job::Replica(ReplicaJob::Merge { copies: vec![copy], unix_ms: NOW, reply }), merged)
}

fn options() -> DiskOptions {
    let text = String::new;
    let warc = WarcOptions {
        segment_bytes_max: 1 << 30,
        software: text(),
        user_agent: text(),
        robots: text(),
        node_seed: [7; 16],
    };
    DiskOptions { warc, commit_pause: Duration::ZERO }
}

#[test]
fn what_is_handed_out_is_read_ahead_of_the_writes_that_came_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, life, pick) = replica(dir.path());
    let ending = Ending::NotModified { at: NOW, crawling_ms: 3 };
    let done = store.settle_copy(&pick, ending, proto::cluster::message::Stage::Processed, NOW).unwrap().0;
    let mut work = DiskWork::new(store, options()).unwrap();
    let (disk, mut jobs) = Disk::queue();
    let ((first, mut merged), (second, mut selected)) = (merge(done.expect("a record")), select(life, &pick));
    disk.jobs.try_send(second).unwrap();
    assert!(work.perform(first, &mut jobs));
    assert_eq!(merged.try_recv().unwrap().unwrap().changed.len(), 1);
    let copy = selected.try_recv().unwrap().unwrap().remove(0).1.expect("it was read before that write");
    assert_eq!(copy.progress.status, Status::SelectedToCrawl);
    // Behind that write it has come further.
    let (again, mut selected) = select(life, &Pick { flight: 6, ..pick });
    assert!(work.perform(again, &mut jobs));
    assert!(selected.try_recv().unwrap().unwrap()[0].1.is_none());
}

#[test]
fn while_a_group_waits_for_the_disk_what_need_not_wait_is_answered_and_the_rest_keeps_its_order() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, life, pick) = replica(dir.path());
    let helpers = Helpers::start().unwrap();
    let (answered, is_answered) = std::sync::mpsc::channel();
    // The disk is done only when the question behind the writes was answered.
    let under_way = helpers.archive.begin(move || is_answered.recv_timeout(LONG).map_err(|_| DiskError::Stopped));
    let (disk, mut jobs) = Disk::queue();
    let (question, selected) = select(life, &pick);
    let (writes, mut merged): (Vec<_>, Vec<_>) =
        (2..5).map(|page| merge(fresh(&format!("http://a.example/{page}")))).unzip();
    for job in writes.into_iter().chain([question]) {
        disk.jobs.try_send(job).unwrap();
    }
    let hears = std::thread::spawn(move || {
        let selected = selected.blocking_recv().unwrap().unwrap();
        answered.send(()).unwrap();
        selected
    });
    let mut waiting = VecDeque::new();
    helpers.wait(under_way, &mut store, &mut jobs, &mut waiting).expect("it was answered meanwhile");
    assert!(hears.join().unwrap()[0].1.is_some());
    assert!(
        merged.iter_mut().all(|merged| merged.try_recv().is_err()),
        "writes are not answered before they are written"
    );
    let pages: Vec<String> = waiting
        .iter()
        .map(|job| match job {
            Job::Replica(ReplicaJob::Merge { copies, .. }) => copies[0].open_with_url().unwrap().1.as_str().to_owned(),
            other => panic!("{other:?} need not wait"),
        })
        .collect();
    assert_eq!(pages, ["http://a.example/2", "http://a.example/3", "http://a.example/4"]);

    // They are the next group.
    let mut work = DiskWork { waiting, ..DiskWork::new(store, options()).unwrap() };
    let first = work.waiting.pop_front().unwrap();
    assert!(work.perform(first, &mut jobs));
    assert!(merged.iter_mut().all(|merged| merged.try_recv().is_ok_and(|merged| merged.is_ok())));
    assert!(work.waiting.is_empty());
}

#[test]
fn what_came_while_a_group_waited_is_written_before_the_thread_ends() {
    let dir = tempfile::tempdir().unwrap();
    let (store, ..) = replica(dir.path());
    let (disk, thread) = Disk::start(store, options()).unwrap();
    let merged: Vec<_> = (2..200)
        .map(|page| {
            let (job, merged) = merge(fresh(&format!("http://a.example/{page}")));
            disk.jobs.blocking_send(job).unwrap();
            merged
        })
        .collect();
    disk.jobs.blocking_send(Job::Stop).unwrap();
    thread.join().unwrap();
    for merged in merged {
        assert_eq!(merged.blocking_recv().unwrap().unwrap().changed.len(), 1);
    }
}

#[test]
fn a_put_whose_time_is_over_when_the_disk_gets_to_it_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (store, ..) = replica(dir.path());
    let pause = Duration::from_millis(20);
    let mut work = DiskWork::new(store, DiskOptions { commit_pause: pause, ..options() }).unwrap();
    let (_disk, mut jobs) = Disk::queue();
    let mut put = |date_s, until| {
        let item = Item { crawl: "c".into(), key: "k".into(), url: "u".into(), metadata: Vec::new(), date_s };
        let (reply, mut said) = oneshot::channel();
        let (items, floors) = (vec![item], BTreeMap::new());
        assert!(work.perform(Job::Client(ClientJob::Put { items, unix_ms: NOW, floors, until, reply }), &mut jobs));
        let Decided { said, copies, changed, .. } = said.try_recv().unwrap().unwrap();
        (said, copies.len(), changed.len())
    };
    assert_eq!(put(Some(7), Micros::MAX), (vec![Taken::Kept], 1, 1));
    // It was not over when it was handed in, and the disk was slow.
    let soon = mono() + pause.as_micros() as Micros / 2;
    assert_eq!(put(Some(9), soon), (vec![Taken::Failed], 0, 0));
    assert_eq!(put(None, soon), (vec![Taken::Failed], 0, 0), "nothing is said of what is known either");
    let (reply, mut seen) = oneshot::channel();
    let look = Look::Url { crawl: "c".into(), key: "k".into(), url: "u".into() };
    assert!(work.perform(Job::Client(ClientJob::Look { look, unix_ms: NOW, reply }), &mut jobs));
    let Said::Url(Some(told)) = seen.try_recv().unwrap().unwrap() else { panic!("it is known") };
    assert_eq!(told.date_s, 7);
}
