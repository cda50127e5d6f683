//! Streams of content.

use std::sync::Arc;

use futures_util::{AsyncReadExt, AsyncWriteExt};

use super::super::identity::Identity;
use super::super::refusal::Refusal;
use super::super::roster::Role;
use super::support::*;

#[tokio::test]
async fn content_goes_both_ways_and_as_fast_as_it_is_taken() {
    let (one, other) = (Identity::generate(), Identity::generate());
    let inbox = Inbox::default();
    let mut echo = doors(&inbox);
    echo.bulk = Some(Arc::new(|_, stream| {
        Box::pin(async move {
            let (reader, mut writer) = stream.split();
            let _ = futures_util::io::copy(reader, &mut writer).await;
            let _ = writer.close().await;
        })
    }));
    let node = TestNode::start_with(settings(&one, vec![peer(&other, Role::Node, vec![])]), echo, inbox).await;
    let sender = TestNode::start(settings(&other, vec![node.as_peer()])).await;
    eventually("connected", || sender.sees(&node)).await;
    let (mut reader, mut writer) = sender.swarm.open_bulk(node.peer()).await.unwrap().split();
    let content: Vec<u8> = (0..4u32 << 20).map(|n| (n / 251) as u8).collect();
    let sent = content.clone();
    let sending = tokio::spawn(async move {
        writer.write_all(&sent).await.unwrap();
        writer.close().await.unwrap();
    });
    let mut back = Vec::new();
    reader.read_to_end(&mut back).await.unwrap();
    sending.await.unwrap();
    assert!(back == content);
}

#[tokio::test]
async fn a_node_that_takes_no_content_says_so() {
    let (one, other) = pair(|_| {}, None).await;
    assert!(other.swarm.open_bulk(one.peer()).await.is_err());
    eventually("counted", || one.refusals(Refusal::Role) == 1).await;
}
