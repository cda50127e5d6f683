//! Any bytes from a peer are taken apart in bounded memory, and what comes out as a letter is in order and survives the way back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use proto::id::{ClusterId, NodeId};
use proto::wire;

// What the swarm does with bytes of a stream, without the swarm.
#[path = "../../../node/src/edges/swarm/codec.rs"]
#[allow(dead_code)]
mod codec;
#[path = "../../../node/src/edges/swarm/frame.rs"]
#[allow(dead_code)]
mod frame;
#[path = "../../../node/src/edges/swarm/hello.rs"]
#[allow(dead_code)]
mod hello;

const CLUSTER: ClusterId = ClusterId(7);
const SENDER: NodeId = NodeId(1);

/// What comes out of `bytes`, cut into pieces of `size`; `None` after an error.
fn frames(bytes: &[u8], size: usize, limit: usize) -> Vec<Option<Vec<u8>>> {
    let mut frames = frame::Frames::new(limit);
    let mut out = Vec::new();
    for piece in bytes.chunks(size) {
        frames.feed(piece);
        loop {
            match frames.take() {
                Ok(Some(frame)) => out.push(Some(frame.to_vec())),
                Ok(None) => break,
                Err(_) => {
                    out.push(None);
                    return out;
                }
            }
        }
    }
    out
}

fn check(frame: &[u8]) {
    let Ok(letter) = codec::open(1, CLUSTER, SENDER, frame) else { return };
    assert_eq!((letter.from, letter.cluster), (SENDER, CLUSTER.0));
    assert_eq!(letter.message.defect(), None);
    assert!(letter.message.since() <= 1);
    let mut again = Vec::new();
    let sealed = codec::Sealed::new(&letter).expect("what came in can go out");
    sealed.append_to(1, CLUSTER, &mut again);
    assert!(again.len() <= frame.len(), "the way back is no longer: varints are minimal");
    assert_eq!(codec::open(1, CLUSTER, SENDER, &again).expect("and come in again"), letter);
    assert!(codec::open(1, CLUSTER, NodeId(2), &again).is_err(), "from somebody else");
    assert!(codec::open(2, CLUSTER, SENDER, &again).is_err(), "of another version");
    let _ = format!("{letter:?}");
}

fuzz_target!(|bytes: &[u8]| {
    let whole = frames(bytes, bytes.len().max(1), 4_096);
    for size in [1, 3, 7] {
        assert_eq!(frames(bytes, size, 4_096), whole, "what comes out depends on how it was cut");
    }
    for frame in whole.iter().flatten() {
        assert!((1..=4_096).contains(&frame.len()));
        check(frame);
    }
    // The same bytes as the content of a letter in a good envelope, so that the decoder behind it is reached at once.
    let mut enveloped = wire::envelope(1, CLUSTER.0).to_vec();
    enveloped.extend_from_slice(bytes);
    check(&enveloped);
    if let Some((hello, _)) = bytes.first_chunk().and_then(hello::Hello::decode) {
        assert!(hello.versions.oldest <= hello.versions.newest);
    }
});
