//! Control requests and their answers, by role.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::StreamExt;

use super::super::control::{ControlError, ITEM_BYTES_MAX, REQUEST_BYTES_MAX};
use super::super::identity::Identity;
use super::super::refusal::Refusal;
use super::super::roster::Role;
use super::super::settings::{Doors, Settings};
use super::super::{OpenError, Swarm, SwarmMetrics};
use super::support::*;

/// Somebody with a key and no node: what `orbweaver ctl` is.
async fn client(identity: &Identity, of: &TestNode) -> Swarm {
    let mut settings = Settings::new(identity.clone(), key(), CLUSTER);
    settings.stranger = Some(Role::Node);
    let client = Swarm::start(settings, Doors::closed(), SwarmMetrics::default()).await.unwrap();
    assert_eq!(client.reach(of.address()).await.unwrap(), of.peer());
    client
}

#[tokio::test]
async fn every_role_is_told_to_the_handler() {
    let (operator, viewer, other) = (Identity::generate(), Identity::generate(), Identity::generate());
    let peers = vec![
        peer(&operator, Role::Operator, vec![]),
        peer(&viewer, Role::Viewer, vec![]),
        peer(&other, Role::Node, vec![]),
    ];
    let node = TestNode::start(settings(&Identity::generate(), peers)).await;
    let other = TestNode::start(settings(&other, vec![node.as_peer()])).await;
    talk(&node, &other, 1).await;
    assert_eq!(other.swarm.ask(node.peer(), b"hello").await.unwrap(), b"node hello");
    for (identity, name) in [(&operator, "operator"), (&viewer, "viewer")] {
        // A real client opens no streams for letters: to it the target is no node.
        let mut settings = Settings::new(identity.clone(), key(), CLUSTER);
        settings.stranger = Some(Role::Viewer);
        let client = Swarm::start(settings, Doors::closed(), SwarmMetrics::default()).await.unwrap();
        let target = client.reach(node.address()).await.unwrap();
        assert_eq!(client.ask(target, b"x").await.unwrap(), format!("{name} x").into_bytes());
        let mut following = client.follow(target, b"y").await.unwrap();
        for n in 0..3 {
            assert_eq!(following.next().await.unwrap(), Some(vec![b'y', n]));
        }
        assert_eq!(following.next().await.unwrap(), None);
        assert_eq!(following.next().await.unwrap(), None);
        client.stop().await;
    }
    assert_eq!(node.swarm.metrics().control_requests.get(), 5);
}

#[tokio::test]
async fn large_answers_arrive_and_too_large_requests_do_not_leave() {
    let (one, other) = (Identity::generate(), Identity::generate());
    let inbox = Inbox::default();
    let mut large = doors(&inbox);
    large.control = Arc::new(|_, request| {
        Box::pin(async move { vec![request[0]; if request[0] == 1 { ITEM_BYTES_MAX } else { ITEM_BYTES_MAX + 1 }] })
    });
    let node = TestNode::start_with(settings(&one, vec![peer(&other, Role::Node, vec![])]), large, inbox).await;
    let asker = TestNode::start(settings(&other, vec![node.as_peer()])).await;
    eventually("connected", || asker.sees(&node)).await;
    assert!(asker.swarm.ask(node.peer(), &[1]).await.unwrap() == vec![1; ITEM_BYTES_MAX]);
    assert!(matches!(asker.swarm.ask(node.peer(), &[2]).await, Err(ControlError::GoneAway | ControlError::Damaged(_))));
    let too_long = vec![0; REQUEST_BYTES_MAX + 1];
    assert!(matches!(asker.swarm.ask(node.peer(), &too_long).await, Err(ControlError::RequestTooLong(_))));
    let nobody = Identity::generate().peer();
    assert!(matches!(asker.swarm.ask(nobody, b"x").await, Err(ControlError::Unreachable(OpenError::Unconnected))));
}

#[tokio::test]
async fn work_on_an_answer_stops_when_the_asker_goes_away() {
    let (one, other) = (Identity::generate(), Identity::generate());
    let (inbox, stopped) = (Inbox::default(), Arc::new(AtomicBool::new(false)));
    let mut endless = doors(&inbox);
    endless.follow = Arc::new({
        let stopped = Arc::clone(&stopped);
        move |_, _| {
            struct Guard(Arc<AtomicBool>);
            impl Drop for Guard {
                fn drop(&mut self) {
                    self.0.store(true, Ordering::Release);
                }
            }
            let guard = Guard(Arc::clone(&stopped));
            // One item, then nothing for ever.
            Box::pin(futures_util::stream::iter([vec![1]]).chain(futures_util::stream::pending()).map(move |item| {
                let _ = &guard;
                item
            }))
        }
    });
    let node = TestNode::start_with(settings(&one, vec![peer(&other, Role::Node, vec![])]), endless, inbox).await;
    let asker = TestNode::start(settings(&other, vec![node.as_peer()])).await;
    eventually("connected", || asker.sees(&node)).await;
    let mut following = asker.swarm.follow(node.peer(), b"x").await.unwrap();
    assert_eq!(following.next().await.unwrap(), Some(vec![1]));
    assert!(!stopped.load(Ordering::Acquire));
    drop(following);
    eventually("it stops", || stopped.load(Ordering::Acquire)).await;
}

#[tokio::test]
async fn a_stranger_gets_no_answer() {
    let node = TestNode::start(settings(&Identity::generate(), vec![])).await;
    let stranger = client(&Identity::generate(), &node).await;
    let asked = stranger.ask(node.peer(), b"x").await;
    assert!(asked.is_err(), "{asked:?}");
    eventually("refused", || node.refusals(Refusal::Stranger) >= 1).await;
    assert_eq!(node.swarm.metrics().control_requests.get(), 0);
}

#[tokio::test]
async fn a_node_that_is_not_there_cannot_be_reached() {
    let mut settings = Settings::new(Identity::generate(), key(), CLUSTER);
    settings.stranger = Some(Role::Viewer);
    let client = Swarm::start(settings, Doors::closed(), SwarmMetrics::default()).await.unwrap();
    assert!(client.reach("/ip4/127.0.0.1/tcp/1".parse().unwrap()).await.is_err());
}
