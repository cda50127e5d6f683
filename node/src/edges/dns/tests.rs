use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::UdpSocket;

use super::*;

/// What the fake name server knows: names ending so, and the answer to them.
#[derive(Clone, Copy)]
enum Answer {
    Addresses(&'static [[u8; 4]]),
    NoSuchName,
    NoAddress,
    ServerFailure,
}

/// Starts a name server that knows `zone` and returns its address and the count of questions it was asked.
async fn name_server(zone: &'static [(&'static str, Answer)]) -> (SocketAddr, Arc<AtomicUsize>) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = socket.local_addr().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    tokio::spawn(async move {
        let mut buffer = [0; 1500];
        while let Ok((bytes, peer)) = socket.recv_from(&mut buffer).await {
            counter.fetch_add(1, Ordering::SeqCst);
            let _ = socket.send_to(&reply(&buffer[..bytes], zone), peer).await;
        }
    });
    (address, count)
}

/// Writes the reply to one question by hand: header, the question again, the records.
fn reply(query: &[u8], zone: &[(&str, Answer)]) -> Vec<u8> {
    let (mut name, mut at) = (String::new(), 12);
    while query[at] != 0 {
        let end = at + 1 + usize::from(query[at]);
        name.push_str(&String::from_utf8_lossy(&query[at + 1..end]).to_lowercase());
        name.push('.');
        at = end;
    }
    let question = &query[12..at + 5];
    let asks_for_v4 = question[question.len() - 3] == 1;
    let answer = zone.iter().find(|(known, _)| *known == name).map_or(Answer::NoSuchName, |(_, answer)| *answer);
    let (code, addresses): (u8, &[[u8; 4]]) = match answer {
        Answer::Addresses(addresses) if asks_for_v4 => (0, addresses),
        Answer::Addresses(_) | Answer::NoAddress => (0, &[]),
        Answer::NoSuchName => (3, &[]),
        Answer::ServerFailure => (2, &[]),
    };
    let negative = u8::from(addresses.is_empty() && code != 2);
    let mut reply = vec![query[0], query[1], 0x81, 0x80 | code, 0, 1, 0, addresses.len() as u8, 0, negative, 0, 0];
    reply.extend_from_slice(question);
    for address in addresses {
        reply.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 0, 0, 4]); // name, A, IN, TTL 256, four bytes
        reply.extend_from_slice(address);
    }
    if negative == 1 {
        reply.extend_from_slice(&[0xc0, 12, 0, 6, 0, 1, 0, 0, 1, 0, 0, 22, 0, 0]); // SOA with empty names
        [1_u32, 3600, 600, 86400, 256].iter().for_each(|number| reply.extend_from_slice(&number.to_be_bytes()));
    }
    reply
}

const ZONE: &[(&str, Answer)] = &[
    ("public.test.", Answer::Addresses(&[[93, 184, 216, 34]])),
    ("private.test.", Answer::Addresses(&[[10, 0, 0, 1], [127, 0, 0, 1]])),
    ("mixed.test.", Answer::Addresses(&[[10, 0, 0, 1], [93, 184, 216, 34], [169, 254, 169, 254]])),
    ("empty.test.", Answer::NoAddress),
    ("broken.test.", Answer::ServerFailure),
];

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn hosts(pairs: &[(&str, &str)]) -> BTreeMap<String, IpAddr> {
    pairs.iter().map(|(name, address)| ((*name).to_owned(), ip(address))).collect()
}

fn not_found(host: &str) -> DnsError {
    DnsError::NotFound { host: host.to_owned() }
}

fn refused(host: &str, address: &str) -> DnsError {
    DnsError::AddressRefused { host: host.to_owned(), address: ip(address) }
}

#[tokio::test]
async fn answers_are_cached_whether_yes_or_no() {
    let (server, questions) = name_server(ZONE).await;
    let resolver = DnsResolver::new(&BTreeMap::new(), &[server], AddressGuard::default());
    assert_eq!(resolver.resolve("public.test").await, Ok(vec![ip("93.184.216.34")]));
    assert_eq!(resolver.resolve("absent.test").await, Err(not_found("absent.test")));
    let asked = questions.load(Ordering::SeqCst);
    for _ in 0..3 {
        assert_eq!(resolver.resolve("public.test").await, Ok(vec![ip("93.184.216.34")]));
        assert_eq!(resolver.clone().resolve("Public.Test.").await, Ok(vec![ip("93.184.216.34")]));
        assert_eq!(resolver.resolve("absent.test").await, Err(not_found("absent.test")));
    }
    assert_eq!(questions.load(Ordering::SeqCst), asked);
}

#[tokio::test]
async fn addresses_that_are_not_public_are_taken_out_of_the_answer() {
    let (server, _) = name_server(ZONE).await;
    let resolver = DnsResolver::new(&BTreeMap::new(), &[server], AddressGuard::default());
    assert_eq!(resolver.resolve("mixed.test").await, Ok(vec![ip("93.184.216.34")]));
    assert_eq!(resolver.resolve("private.test").await, Err(refused("private.test", "10.0.0.1")));
    let guard = AddressGuard::new(vec!["127.0.0.0/8".parse().unwrap()]);
    let resolver = DnsResolver::new(&BTreeMap::new(), &[server], guard);
    assert_eq!(resolver.resolve("private.test").await, Ok(vec![ip("127.0.0.1")]));
}

#[tokio::test]
async fn a_name_that_does_not_exist_differs_from_a_server_that_does_not_answer() {
    let (server, _) = name_server(ZONE).await;
    let resolver = DnsResolver::new(&BTreeMap::new(), &[server], AddressGuard::default());
    assert_eq!(resolver.resolve("absent.test").await, Err(not_found("absent.test")));
    assert_eq!(resolver.resolve("empty.test").await, Err(not_found("empty.test")));
    let broken = resolver.resolve("broken.test").await;
    assert!(matches!(broken, Err(DnsError::Unavailable { .. })), "{broken:?}");
}

#[tokio::test]
async fn a_silent_server_is_unavailable() {
    // The clock is paused only now: real packets need none of it, and the silence passes at once.
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let server = silent.local_addr().unwrap();
    let resolver = DnsResolver::new(&BTreeMap::new(), &[server], AddressGuard::default());
    tokio::time::pause();
    let result = resolver.resolve("anything.test").await;
    assert!(matches!(result, Err(DnsError::Unavailable { .. })), "{result:?}");
}

#[tokio::test]
async fn names_no_question_can_carry_do_not_exist() {
    let (server, questions) = name_server(ZONE).await;
    let resolver = DnsResolver::new(&BTreeMap::new(), &[server], AddressGuard::default());
    let label = "x".repeat(64);
    let long = ["x".repeat(60), "y".repeat(60), "z".repeat(60), "w".repeat(60), "v".repeat(60)].join(".");
    for host in [label.as_str(), long.as_str(), "a..b"] {
        assert_eq!(resolver.resolve(host).await, Err(not_found(host)), "{host}");
    }
    assert_eq!(questions.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn static_names_come_before_the_name_servers() {
    let (server, questions) = name_server(ZONE).await;
    let hosts = hosts(&[("Public.Test.", "1.2.3.4"), ("inside.test", "127.0.0.1")]);
    let resolver = DnsResolver::new(&hosts, &[server], AddressGuard::default());
    assert_eq!(resolver.resolve("public.test").await, Ok(vec![ip("1.2.3.4")]));
    assert_eq!(resolver.resolve("PUBLIC.test.").await, Ok(vec![ip("1.2.3.4")]));
    assert_eq!(resolver.resolve("inside.test").await, Err(refused("inside.test", "127.0.0.1")));
    assert_eq!(questions.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn addresses_and_static_names_resolve_without_any_name_server() {
    let guard = AddressGuard::new(vec!["::1/128".parse().unwrap()]);
    let shared = Shared { hosts: hosts(&[("known.test", "1.2.3.4")]), guard, servers: Err("no name servers".into()) };
    let resolver = DnsResolver { shared: Arc::new(shared) };
    assert_eq!(resolver.resolve("known.test").await, Ok(vec![ip("1.2.3.4")]));
    assert_eq!(resolver.resolve("9.9.9.9").await, Ok(vec![ip("9.9.9.9")]));
    assert_eq!(resolver.resolve("[::1]").await, Ok(vec![ip("::1")]));
    assert_eq!(resolver.resolve("[::ffff:127.0.0.1]").await, Err(refused("[::ffff:127.0.0.1]", "::ffff:127.0.0.1")));
    let reason = "no name servers".to_owned();
    assert_eq!(
        resolver.resolve("other.test").await,
        Err(DnsError::Unavailable { host: "other.test".to_owned(), reason })
    );
}
