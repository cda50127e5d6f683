//! Nodes of two versions talk.

use super::super::hello::Versions;
use super::super::identity::Identity;
use super::super::roster::Role;
use super::support::*;

#[tokio::test]
async fn an_updated_node_talks_to_one_that_is_not() {
    let (old, new, newer) = (Identity::generate(), Identity::generate(), Identity::generate());
    let nodes = [&old, &new, &newer].map(|identity| peer(identity, Role::Node, vec![]));
    let mut old = settings(&old, nodes.to_vec());
    old.versions = Versions { oldest: 1, newest: 1 };
    let old = TestNode::start(old).await;
    let mut new = settings(&new, vec![old.as_peer(), nodes[2].clone()]);
    new.versions = Versions { oldest: 1, newest: 2 };
    let new = TestNode::start(new).await;
    let mut newer = settings(&newer, vec![old.as_peer(), new.as_peer()]);
    newer.versions = Versions { oldest: 1, newest: 3 };
    let newer = TestNode::start(newer).await;
    talk(&old, &new, 1).await;
    talk(&new, &newer, 2).await;
    talk(&old, &newer, 3).await;
    let version = |of: &TestNode, with: &TestNode| {
        of.swarm.nodes().iter().find(|state| state.peer == with.peer()).and_then(|state| state.version)
    };
    for (one, other, agreed) in [(&old, &new, 1), (&new, &newer, 2), (&old, &newer, 1)] {
        assert_eq!((version(one, other), version(other, one)), (Some(agreed), Some(agreed)));
    }
    // Requests too.
    assert_eq!(newer.swarm.ask(old.peer(), b"x").await.unwrap(), b"node x");
    assert_eq!(old.swarm.ask(newer.peer(), b"x").await.unwrap(), b"node x");
}
