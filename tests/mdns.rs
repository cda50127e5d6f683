//! Nodes that know each other's names and no address find each other on the local network. It is a network namespace with one device: multicast
//! does not leave it. Where namespaces are refused, the test says so and is skipped.

use std::io::Write;
use std::time::Duration;

use node::edges::swarm::Swarm;
use node::edges::swarm::identity::Identity;
use node::edges::swarm::key::SwarmKey;
use node::edges::swarm::metrics::SwarmMetrics;
use node::edges::swarm::roster::Role;
use node::edges::swarm::settings::{Doors, Peer, Settings};
use proto::id::ClusterId;
use tests::namespace::Refused;
use tests::network::{Network, address};

/// A node that listens at the machine's address and knows nobody's.
async fn node(me: &Identity, knows: &[&Identity], mdns: bool) -> Swarm {
    let mut settings = Settings::new(me.clone(), SwarmKey::new([7; 32]), ClusterId(0x7e57));
    settings.listen = vec![format!("/ip4/{}/tcp/0", address(0)).parse().expect("an address")];
    let peer = |identity: &&Identity| Peer { peer: identity.peer(), role: Role::Node, addresses: Vec::new() };
    settings.peers = knows.iter().map(peer).collect();
    settings.mdns = mdns;
    Swarm::start(settings, Doors::closed(), SwarmMetrics::default()).await.expect("there is a device to listen at")
}

fn sees(one: &Swarm, other: &Identity) -> bool {
    one.nodes().iter().any(|state| state.peer == other.peer() && state.connected)
}

async fn find_each_other() {
    let [one, other, quiet, stranger] = [(); 4].map(|()| Identity::generate());
    let first = node(&one, &[&other, &quiet], true).await;
    let second = node(&other, &[&one, &quiet], true).await;
    let unheard = node(&quiet, &[&one, &other], false).await;
    // Nobody lets this one in, though it knows them, and multicast tells it where they are.
    let outside = node(&stranger, &[&one, &other], true).await;
    let mut tries = 0;
    while !(sees(&first, &other) && sees(&second, &one)) {
        tries += 1;
        assert!(tries < 1_200, "they did not find each other in two minutes");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // By now the others would have been found too.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!sees(&first, &quiet) && !sees(&unheard, &one), "found without having been looked for");
    assert!(!sees(&outside, &one) && !sees(&outside, &other), "let in without being known");
    for swarm in [first, second, unheard, outside] {
        swarm.stop().await;
    }
}

#[test]
fn nodes_find_each_other_on_the_local_network_and_let_in_only_whom_they_know() {
    let network = match Network::start(1, 7) {
        Ok(network) => network,
        Err(Refused(why)) => {
            // Not by a macro: what those print is shown only when a test fails.
            let why =
                format!("SKIPPED: network namespaces with TUN devices cannot be had here ({why}); run it as root\n");
            return std::io::stderr().write_all(why.as_bytes()).expect("standard error can be written");
        }
    };
    // All sockets are made on this one thread, which is in the namespace.
    network.machine(0).inside(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(find_each_other());
    });
}
