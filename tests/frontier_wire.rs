//! What stands on the wire of the URL Frontier API: names, numbers and kinds of everything, by the tables of release 2.6 that its clients were made from, and as the server itself tells them;
//! and gRPC's health service.

use std::collections::BTreeSet;
use std::time::Instant;

use tests::PATIENCE;
use tests::frontier_api::{connect, start, wait_until_ready};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

// Files as gRPC tells of them, as far as they matter here.

#[derive(Clone, PartialEq, prost::Message)]
struct File {
    #[prost(string, tag = "2")]
    package: String,
    #[prost(message, repeated, tag = "4")]
    messages: Vec<Described>,
    #[prost(message, repeated, tag = "6")]
    services: Vec<Service>,
    #[prost(string, tag = "12")]
    syntax: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Described {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    fields: Vec<Field>,
    #[prost(message, repeated, tag = "3")]
    nested: Vec<Described>,
    #[prost(message, repeated, tag = "4")]
    enums: Vec<Enum>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Field {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int32, tag = "3")]
    number: i32,
    #[prost(int32, tag = "4")]
    label: i32,
    #[prost(int32, tag = "5")]
    kind: i32,
    #[prost(string, tag = "6")]
    of: String,
    #[prost(int32, optional, tag = "9")]
    choice: Option<i32>,
    #[prost(bool, tag = "17")]
    optional: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Enum {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    values: Vec<Value>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Value {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int32, tag = "2")]
    number: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Service {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    methods: Vec<Method>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Method {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    input: String,
    #[prost(string, tag = "3")]
    output: String,
    #[prost(bool, tag = "5")]
    client_streams: bool,
    #[prost(bool, tag = "6")]
    server_streams: bool,
}

// The calls of reflection and health.

#[derive(Clone, PartialEq, prost::Message)]
struct Reflect {
    #[prost(string, optional, tag = "4")]
    file_of: Option<String>,
    #[prost(string, optional, tag = "7")]
    services: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Reflected {
    #[prost(message, optional, tag = "4")]
    files: Option<Files>,
    #[prost(message, optional, tag = "6")]
    services: Option<Services>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Files {
    #[prost(bytes = "vec", repeated, tag = "1")]
    files: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Services {
    #[prost(message, repeated, tag = "1")]
    services: Vec<Named>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Named {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Health {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// All messages: number, name and kind of each field; then its enums.
const MESSAGES: &str = "
Empty:
AnyCrawlID:
Local: 1 local bool
Active: 1 state bool, 2 local bool
Boolean: 1 state bool
Long: 1 value uint64
StringList: 1 values repeated string
DeleteCrawlMessage: 1 value string, 2 local bool
Pagination: 1 start uint32, 2 size uint32, 3 include_inactive bool, 4 crawlID string, 5 local bool
QueueList: 1 values repeated string, 2 total uint64, 3 start uint32, 4 size uint32, 5 crawlID string
QueueWithinCrawlParams: 1 key string, 2 crawlID string, 3 local bool
QueueDelayParams: 1 key string, 2 delay_requestable uint32, 3 crawlID string, 4 local bool
BlockQueueParams: 1 key string, 2 time uint64, 3 crawlID string, 4 local bool
CrawlLimitParams: 1 key string, 2 limit uint32, 3 crawlID string, 4 local bool
GetParams: 1 max_urls_per_queue uint32, 2 max_queues uint32, 3 key string, 4 delay_requestable uint32, 5 anyCrawlID one of AnyCrawlID, 6 crawlID one of string
Stats: 1 size uint64, 2 inProcess uint32, 3 counts map<string, uint64>, 4 numberOfQueues uint64, 5 crawlID string
URLInfo: 1 url string, 2 key string, 3 metadata map<string, StringList>, 4 crawlID string
DiscoveredURLItem: 1 info URLInfo
KnownURLItem: 1 info URLInfo, 2 refetchable_from_date uint64
URLItem: 1 discovered one of DiscoveredURLItem, 2 known one of KnownURLItem, 3 ID string, 4 creation_date uint64
AckMessage: 1 ID string, 2 status AckMessage.Status; Status OK 0 SKIPPED 1 FAIL 2
DiscoveredBatch: 1 ID string, 2 items repeated URLInfo
BatchAck: 1 ID string, 2 statuses repeated AckMessage.Status
LogLevelParams: 1 package string, 2 level LogLevelParams.Level, 3 local bool; Level TRACE 0 DEBUG 1 INFO 2 WARN 3 ERROR 4
URLStatusRequest: 1 url string, 2 key string, 3 crawlID string
ListUrlParams: 1 start uint32, 2 size uint32, 3 key string, 4 crawlID string, 5 local bool, 6 filter optional string, 7 ignoreCase optional bool
CountUrlParams: 1 key string, 2 crawlID string, 3 filter optional string, 4 ignoreCase optional bool, 5 local optional bool
PurgeUrlParams: 1 key string, 2 crawlID string, 3 days uint32
";

/// All calls.
const CALLS: &str = "
ListNodes Empty StringList
ListCrawls Local StringList
DeleteCrawl DeleteCrawlMessage Long
ListQueues Pagination QueueList
GetURLs GetParams stream URLInfo
PutURLs stream URLItem stream AckMessage
PutDiscovered stream DiscoveredBatch stream BatchAck
GetStats QueueWithinCrawlParams Stats
DeleteQueue QueueWithinCrawlParams Long
BlockQueueUntil BlockQueueParams Empty
SetActive Active Empty
GetActive Local Boolean
SetDelay QueueDelayParams Empty
SetLogLevel LogLevelParams Empty
SetCrawlLimit CrawlLimitParams Empty
GetURLStatus URLStatusRequest URLItem
ListURLs ListUrlParams stream URLItem
CountURLs CountUrlParams Long
PurgeURLs PurgeUrlParams Long
";

fn short(name: &str) -> &str {
    name.strip_prefix(".urlfrontier.").unwrap_or(name)
}

fn kind(field: &Field, message: &Described) -> String {
    let name = match field.kind {
        4 => "uint64",
        8 => "bool",
        9 => "string",
        11 | 14 => short(&field.of),
        13 => "uint32",
        other => panic!("{} is of kind {other}", field.name),
    };
    let entry = message.nested.iter().find(|nested| format!("{}.{}", message.name, nested.name) == name);
    match (entry, field.label, field.optional, field.choice) {
        (Some(entry), ..) => {
            let [key, value] = [0, 1].map(|n| kind(&entry.fields[n], entry));
            format!("map<{key}, {value}>")
        }
        (None, 3, ..) => format!("repeated {name}"),
        (None, _, true, _) => format!("optional {name}"),
        (None, _, false, Some(_)) => format!("one of {name}"),
        (None, ..) => name.to_owned(),
    }
}

fn line(message: &Described) -> String {
    let field = |field: &Field| format!("{} {} {}", field.number, field.name, kind(field, message));
    let fields = message.fields.iter().map(field).collect::<Vec<_>>().join(", ");
    let values =
        |of: &Enum| of.values.iter().map(|value| format!(" {} {}", value.name, value.number)).collect::<String>();
    let enums = message.enums.iter().map(|of| format!("; {}{}", of.name, values(of))).collect::<String>();
    format!("{}: {fields}{enums}", message.name).trim_end().to_owned()
}

fn call(method: &Method) -> String {
    let side = |streams, name| format!("{}{}", if streams { "stream " } else { "" }, short(name));
    let [input, output] = [side(method.client_streams, &method.input), side(method.server_streams, &method.output)];
    format!("{} {input} {output}", method.name)
}

fn lines(text: &str) -> BTreeSet<String> {
    text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

async fn reflect(channel: &Channel, version: &'static str, question: Reflect) -> Reflected {
    let mut raw = tonic::client::Grpc::new(channel.clone());
    raw.ready().await.unwrap();
    let path =
        PathAndQuery::from_maybe_shared(format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"));
    let codec = tonic_prost::ProstCodec::<Reflect, Reflected>::default();
    let answers = raw.streaming(Request::new(tokio_stream::once(question)), path.unwrap(), codec).await.unwrap();
    answers.into_inner().message().await.unwrap().expect("an answer to each question")
}

async fn health(channel: &Channel, service: &str) -> Result<i32, Status> {
    let mut raw = tonic::client::Grpc::new(channel.clone());
    raw.ready().await.unwrap();
    let path = PathAndQuery::from_static("/grpc.health.v1.Health/Check");
    let codec = tonic_prost::ProstCodec::<Named, Health>::default();
    let answer = raw.unary(Request::new(Named { name: service.to_owned() }), path, codec).await?;
    Ok(answer.into_inner().status)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_tells_all_names_and_numbers_as_its_clients_know_them_and_that_it_serves() {
    let work = tempfile::tempdir().unwrap();
    let (running, address) = start(&work.path().join("data"), work.path(), "node");
    let channel = Channel::from_shared(address.clone()).unwrap().connect().await.unwrap();
    for version in ["v1", "v1alpha"] {
        let question = Reflect { services: Some("*".into()), ..Reflect::default() };
        let named = reflect(&channel, version, question).await.services.unwrap().services;
        assert!(named.iter().any(|named| named.name == "urlfrontier.URLFrontier"), "{named:?}");
        let question = Reflect { file_of: Some("urlfrontier.URLFrontier".into()), ..Reflect::default() };
        let files = reflect(&channel, version, question).await.files.unwrap().files;
        let file: File = prost::Message::decode(files[0].as_slice()).unwrap();
        assert_eq!((file.package.as_str(), file.syntax.as_str()), ("urlfrontier", "proto3"));
        assert_eq!(file.messages.iter().map(line).collect::<BTreeSet<_>>(), lines(MESSAGES));
        assert_eq!(file.services.len(), 1);
        assert_eq!(file.services[0].name, "URLFrontier");
        assert_eq!(file.services[0].methods.iter().map(call).collect::<BTreeSet<_>>(), lines(CALLS));
    }
    // It serves once it knows where queues are, and not before.
    let until = Instant::now() + PATIENCE;
    while health(&channel, "urlfrontier.URLFrontier").await.unwrap() != 1 {
        assert!(Instant::now() < until, "it serves");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let mut client = connect(&address).await;
    client.list_nodes(node::doors::frontier::api::Empty {}).await.expect("who says that it serves does");
    assert_eq!(health(&channel, "").await.unwrap(), 1);
    assert_eq!(health(&channel, "no.such.Service").await.unwrap_err().code(), Code::NotFound);
    wait_until_ready(&mut client).await;
    assert!(running.kill());
}
