//! Second copies of pages, on a real RocksDB.

use proto::cluster::contents::{ContentKey, Holding, Offer};
use proto::id::NodeId;

use super::*;
use crate::edges::store::contents::Arriving;

fn replica(dir: &Path, content_copies: usize) -> Store {
    Store::open(dir, StoreOptions { replica: true, content_copies, ..small() }).unwrap()
}

fn key(text: &str) -> UrlKey {
    UrlKey::new(DEFAULT_CRAWL, &url(text))
}

fn fetched(id: u8) -> Fetched {
    let position = WarcPosition { segment: 0, offset: u64::from(id) * 100, length: 90 };
    let (record_id, payload_digest) = (RecordId([id; 16]), PayloadDigest([id; 20]));
    Fetched {
        content: ContentRow { position, record_id, payload_digest, unix_ms: 5, revisit: false },
        digest: None,
        hash: None,
    }
}

fn keep(store: &mut Store, text: &str, id: u8) -> Option<ContentKey> {
    let mut change = store.change();
    let kept = change.keep_content(key(text), 1, &fetched(id)).unwrap();
    change.commit().unwrap();
    kept
}

fn arrive(store: &mut Store, from: Holding, offers: Vec<Offer>) {
    let wanted = store.wanted(&offers).unwrap();
    let position = WarcPosition { segment: 0, offset: 7_000, length: 90 };
    let arriving = offers.into_iter().enumerate().map(|(place, offer)| {
        let position = wanted.contains(&(place as u16)).then_some(position);
        Arriving { offer, members: None, position }
    });
    let mut change = store.change();
    change.keep_copies(from, arriving.collect()).unwrap();
    change.commit().unwrap();
}

fn assert_copies_counted(store: &Store) {
    assert_eq!(*store.standing(), store.recount_copies().unwrap());
}

const PEER: Holding = Holding { node: NodeId(2), folder: 22 };

#[test]
fn a_page_is_on_the_list_until_another_disk_has_it_and_again_when_that_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = replica(dir.path(), 2);
    let folder = store.folder();
    let one = keep(&mut store, "http://a.example/1", 1).expect("it lacks a copy");
    let two = keep(&mut store, "http://a.example/2", 2).expect("it lacks a copy");
    let mut listed: Vec<ContentKey> = store.lacking(None, 10).unwrap().0.into_iter().map(|(key, _)| key).collect();
    listed.sort();
    assert_eq!(listed.len(), 2);
    let (first, next) = store.lacking(None, 1).unwrap();
    assert_eq!((first.len(), next.as_ref()), (1, Some(&listed[0])));
    assert_eq!(store.lacking(next.as_ref(), 1).unwrap(), (vec![(listed[1].clone(), 90)], None));

    let mut change = store.change();
    change.mark_copied(&[one.clone(), one.clone()], PEER).unwrap();
    change.commit().unwrap();
    drop(store);
    let mut store = replica(dir.path(), 2);
    assert_eq!(store.folder(), folder, "the folder is the same after a start");
    assert_eq!(store.standing().lacking, 1);
    assert_eq!(store.standing().trusted, [(PEER, 1)].into());
    assert_eq!(store.lacking(None, 10).unwrap().0, [(two, 90)]);
    assert_copies_counted(&store);

    let mut change = store.change();
    assert_eq!(change.take_for_lost(PEER, None).unwrap(), None);
    change.commit().unwrap();
    assert_eq!((store.standing().lacking, store.standing().trusted.len()), (2, 0));
    assert_copies_counted(&store);
}

#[test]
fn two_fetches_of_one_round_are_both_kept_and_copies_come_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = replica(dir.path(), 2);
    let mine = keep(&mut store, "http://a.example/1", 1).unwrap();
    let versions = store.versions(&mine.url).unwrap();
    let theirs = Offer { record_id: [9; 16], ..versions[0].0.clone() };
    let other = Offer { url: key("http://a.example/2"), ..theirs.clone() };
    assert_eq!(store.wanted(&[versions[0].0.clone(), theirs.clone(), other.clone()]).unwrap(), [1, 2]);
    // What the other offers and is here already, it has too.
    arrive(&mut store, PEER, vec![versions[0].0.clone(), theirs.clone(), other.clone()]);
    assert!(store.wanted(&[versions[0].0.clone(), theirs.clone(), other.clone()]).unwrap().is_empty());
    assert_eq!(store.versions(&mine.url).unwrap().len(), 2);
    assert_eq!((store.standing().lacking, store.standing().trusted[&PEER]), (0, 3));
    arrive(&mut store, PEER, vec![theirs, other]);
    assert_copies_counted(&store);
    // Fetched here once more in the same round: what somebody trusts us with stays.
    let again = keep(&mut store, "http://a.example/1", 3).unwrap();
    assert_eq!(again.other, Some([3; 16]));
    assert_eq!(store.versions(&mine.url).unwrap().len(), 3);
    assert_copies_counted(&store);
}

#[test]
fn a_folder_that_had_one_copy_of_each_page_lists_them_all_and_a_restored_one_is_another() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = replica(dir.path(), 1);
    let folder = store.folder();
    assert_eq!(keep(&mut store, "http://a.example/1", 1), None);
    assert_eq!(keep(&mut store, "http://b.example/1", 2), None);
    drop(store);
    std::fs::write(dir.path().join(RESTORED_FILE), "").unwrap();
    let store = replica(dir.path(), 2);
    assert_eq!(store.lacking(None, 10).unwrap().0.len(), 2);
    assert_copies_counted(&store);
    assert_ne!(store.folder(), folder);
    assert!(!dir.path().join(RESTORED_FILE).exists());
}
