//! Documents into a MongoDB, as they are made: each is put under its `_id`, so whoever writes again writes the same. What was written and did not change is not sent
//! again.

use std::collections::BTreeMap;
use std::time::Duration;

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};
use mongodb::options::ClientOptions;
use mongodb::{Client, Database};
use serde_json::Value as Json;

/// Documents in one command, and about how many bytes.
const AT_ONCE: usize = 1_000;
const BYTES_AT_ONCE: usize = 4 << 20;
/// How long a server is looked for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why documents are not in the database.
#[derive(Debug, thiserror::Error)]
pub enum MongoError {
    /// The driver says so.
    #[error("the database at {place}: {error}; is it there, and may we write into it?")]
    Driver {
        /// Where.
        place: String,
        /// What it says.
        error: mongodb::error::Error,
    },
    /// No database is named.
    #[error("{0} names no database: mongodb://HOST/DATABASE")]
    NoDatabase(String),
    /// The server refused a document.
    #[error("the database refused a document of {collection}: {reason}")]
    Refused {
        /// Which collection.
        collection: &'static str,
        /// Why.
        reason: String,
    },
    /// A document of ours that is none.
    #[error("a document of {collection} cannot be written: {reason}")]
    NoDocument {
        /// Which collection.
        collection: &'static str,
        /// Why.
        reason: String,
    },
}

/// Writes into a database.
pub struct Writer {
    database: Database,
    /// Host and database, without a password.
    place: String,
    /// What was written, by collection and id.
    written: BTreeMap<(&'static str, [u8; 12]), u64>,
    waiting: BTreeMap<&'static str, Waiting>,
    /// Documents that were new or changed since the last finish.
    sent: BTreeMap<&'static str, u64>,
}

/// Documents that go together.
#[derive(Default)]
struct Waiting {
    updates: Vec<Bson>,
    bytes: usize,
    marks: Vec<([u8; 12], u64)>,
}

impl Writer {
    /// Opens the database that a connection string names.
    pub async fn open(uri: &str) -> Result<Writer, MongoError> {
        let hidden = uri.rsplit_once('@').map_or(uri, |(_, place)| place).to_owned();
        let failed = |error| MongoError::Driver { place: hidden.clone(), error };
        let mut options = ClientOptions::parse(uri).await.map_err(failed)?;
        options.server_selection_timeout.get_or_insert(PATIENCE);
        options.app_name.get_or_insert_with(|| "orbweaver".to_owned());
        let client = Client::with_options(options).map_err(failed)?;
        let database = client.default_database().ok_or_else(|| MongoError::NoDatabase(hidden.clone()))?;
        let place = hidden.split('?').next().unwrap_or_default().to_owned();
        Ok(Writer { database, place, written: BTreeMap::new(), waiting: BTreeMap::new(), sent: BTreeMap::new() })
    }

    /// Where it writes.
    pub fn name(&self) -> String {
        self.place.clone()
    }

    /// Writes a document of extended JSON with an object id, soon.
    pub async fn write(&mut self, collection: &'static str, document: &Json) -> Result<(), MongoError> {
        let text = document.to_string();
        let (bson, id) = understand(document).map_err(|reason| MongoError::NoDocument { collection, reason })?;
        let (key, hash) = (id.bytes(), xxhash_rust::xxh3::xxh3_64(text.as_bytes()));
        if self.written.get(&(collection, key)) == Some(&hash) {
            return Ok(());
        }
        let waiting = self.waiting.entry(collection).or_default();
        waiting.updates.push(Bson::Document(doc! {"q": {"_id": id}, "u": bson, "upsert": true}));
        waiting.marks.push((key, hash));
        waiting.bytes += text.len();
        if waiting.updates.len() >= AT_ONCE || waiting.bytes >= BYTES_AT_ONCE {
            self.send(collection).await?;
        }
        Ok(())
    }

    /// Sends what waits; says how many documents of each collection were new or changed.
    pub async fn finish(&mut self, collections: &[&'static str]) -> Result<Vec<(&'static str, u64)>, MongoError> {
        for collection in collections {
            self.send(collection).await?;
        }
        let sent = std::mem::take(&mut self.sent);
        Ok(collections.iter().map(|name| (*name, sent.get(name).copied().unwrap_or(0))).collect())
    }

    async fn send(&mut self, collection: &'static str) -> Result<(), MongoError> {
        let Some(Waiting { updates, marks, .. }) = self.waiting.remove(collection) else { return Ok(()) };
        let command = doc! {"update": collection, "updates": updates, "ordered": false};
        let failed = |error| MongoError::Driver { place: self.place.clone(), error };
        let answer = self.database.run_command(command).await.map_err(failed)?;
        if let Some(reason) = refusal(&answer) {
            return Err(MongoError::Refused { collection, reason });
        }
        *self.sent.entry(collection).or_default() += marks.len() as u64;
        self.written.extend(marks.into_iter().map(|(id, hash)| ((collection, id), hash)));
        Ok(())
    }
}

/// Why a server did not write all that it should.
fn refusal(answer: &Document) -> Option<String> {
    let first = answer.get_array("writeErrors").ok().and_then(|errors| errors.first()).and_then(Bson::as_document);
    let concern = answer.get_document("writeConcernError").ok();
    let said = first.or(concern)?;
    Some(said.get_str("errmsg").unwrap_or("it does not say why").to_owned())
}

/// A document of ours, and its id.
fn understand(document: &Json) -> Result<(Document, ObjectId), String> {
    let Bson::Document(document) = bson(document)? else { return Err("no object".to_owned()) };
    let id = document.get_object_id("_id").map_err(|error| error.to_string())?;
    Ok((document, id))
}

/// Extended JSON, as far as our documents have it.
fn bson(json: &Json) -> Result<Bson, String> {
    Ok(match json {
        Json::Null => Bson::Null,
        Json::Bool(bool) => Bson::Boolean(*bool),
        Json::String(text) => Bson::String(text.clone()),
        Json::Array(values) => Bson::Array(values.iter().map(bson).collect::<Result<_, _>>()?),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => i32::try_from(number).map_or(Bson::Int64(number), Bson::Int32),
            (None, Some(number)) => Bson::Double(number),
            (None, None) => return Err(format!("{number} is no number")),
        },
        Json::Object(fields) => match (fields.get("$oid"), fields.get("$date")) {
            (Some(Json::String(id)), _) => Bson::ObjectId(ObjectId::parse_str(id).map_err(|error| error.to_string())?),
            (_, Some(Json::String(time))) => {
                Bson::DateTime(DateTime::parse_rfc3339_str(time).map_err(|error| error.to_string())?)
            }
            _ => {
                let field = |(name, value): (&String, &Json)| Ok((name.clone(), bson(value)?));
                Bson::Document(fields.iter().map(field).collect::<Result<_, String>>()?)
            }
        },
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use mongodb::bson;
    use serde_json::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// A server that knows enough of the protocol for a driver to find it and to write: OP_MSG with `hello` and `update`.
    #[derive(Clone, Default)]
    struct Server {
        documents: Arc<Mutex<BTreeMap<(String, String), Document>>>,
        commands: Arc<Mutex<Vec<String>>>,
        refuses: Arc<Mutex<bool>>,
    }

    const OP_QUERY: i32 = 2_004;
    const OP_REPLY: i32 = 1;
    const OP_MSG: i32 = 2_013;

    impl Server {
        async fn start() -> (Server, String) {
            let server = Server::default();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let shared = server.clone();
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(shared.clone().serve(stream));
                }
            });
            (server, format!("mongodb://{address}/source"))
        }

        async fn serve(self, mut stream: TcpStream) -> Option<()> {
            loop {
                let mut head = [0; 16];
                stream.read_exact(&mut head).await.ok()?;
                let number = |at: usize| i32::from_le_bytes(head[at..at + 4].try_into().unwrap());
                let (length, request, code) = (number(0), number(4), number(12));
                let mut body = vec![0; length as usize - 16];
                stream.read_exact(&mut body).await.ok()?;
                let reply = match code {
                    OP_MSG => {
                        let answer = self.answer(message(&body));
                        let mut reply = vec![0, 0, 0, 0, 0];
                        reply.extend(bytes(&answer));
                        (OP_MSG, reply)
                    }
                    // The first question of a driver: flags, name of a collection, two numbers, the command.
                    OP_QUERY => {
                        let name = body[4..].iter().position(|byte| *byte == 0)? + 5;
                        let command = Document::from_reader(&body[name + 8..]).ok()?;
                        let mut reply = vec![0; 16];
                        reply.extend(1_i32.to_le_bytes());
                        reply.extend(bytes(&self.answer(command)));
                        (OP_REPLY, reply)
                    }
                    other => panic!("operation {other}"),
                };
                let (code, reply) = reply;
                let mut all = Vec::new();
                for part in [reply.len() as i32 + 16, 1, request, code] {
                    all.extend(part.to_le_bytes());
                }
                all.extend(reply);
                stream.write_all(&all).await.ok()?;
            }
        }

        fn answer(&self, command: Document) -> Document {
            let (name, value) = command.iter().next().map(|(name, value)| (name.clone(), value.clone())).unwrap();
            self.commands.lock().unwrap().push(name.clone());
            if name != "update" {
                return doc! {"ok": 1.0, "helloOk": true, "ismaster": true, "isWritablePrimary": true, "maxBsonObjectSize": 16_777_216_i32,
                "maxMessageSizeBytes": 48_000_000_i32, "maxWriteBatchSize": 100_000_i32, "minWireVersion": 0_i32, "maxWireVersion": 21_i32, "readOnly": false};
            }
            if *self.refuses.lock().unwrap() {
                return doc! {"ok": 1.0, "n": 0_i32, "writeErrors": [{"index": 0_i32, "code": 121_i32, "errmsg": "Document failed validation"}]};
            }
            let updates = command.get_array("updates").unwrap();
            for update in updates.iter().map(|update| update.as_document().unwrap()) {
                assert!(update.get_bool("upsert").unwrap());
                let document = update.get_document("u").unwrap().clone();
                let id = update.get_document("q").unwrap().get_object_id("_id").unwrap();
                assert_eq!(document.get_object_id("_id").unwrap(), id);
                let place = (value.as_str().unwrap().to_owned(), id.to_hex());
                self.documents.lock().unwrap().insert(place, document);
            }
            doc! {"ok": 1.0, "n": updates.len() as i32, "nModified": 0_i32}
        }

        fn updates(&self) -> usize {
            self.commands.lock().unwrap().iter().filter(|name| *name == "update").count()
        }
    }

    fn bytes(document: &Document) -> Vec<u8> {
        bson::serialize_to_vec(document).unwrap()
    }

    /// The command in a message; updates may come as a section of their own.
    fn message(body: &[u8]) -> Document {
        let (mut command, mut at) = (Document::new(), 4);
        while at < body.len() {
            let length = |at: usize| i32::from_le_bytes(body[at..at + 4].try_into().unwrap()) as usize;
            match body[at] {
                0 => {
                    let end = at + 1 + length(at + 1);
                    command.extend(Document::from_reader(&body[at + 1..end]).unwrap());
                    at = end;
                }
                1 => {
                    let end = at + 1 + length(at + 1);
                    let name_end = at + 5 + body[at + 5..].iter().position(|byte| *byte == 0).unwrap();
                    let name = String::from_utf8(body[at + 5..name_end].to_vec()).unwrap();
                    let (mut documents, mut from) = (Vec::new(), name_end + 1);
                    while from < end {
                        let to = from + length(from);
                        documents.push(Bson::Document(Document::from_reader(&body[from..to]).unwrap()));
                        from = to;
                    }
                    command.insert(name, documents);
                    at = end;
                }
                other => panic!("section {other}"),
            }
        }
        command
    }

    fn task(number: u32, status: u8) -> Json {
        json!({"_id": {"$oid": format!("{number:024x}")}, "uri": "http://a.example/é", "args": null, "status": status,
            "add_datetime": {"$date": "2026-11-17T05:49:37Z"}, "content_bytes": 5_000_000_000_u64})
    }

    #[tokio::test]
    async fn documents_are_there_once_and_only_what_changed_is_sent_again() {
        let (server, uri) = Server::start().await;
        let mut writer = Writer::open(&uri).await.unwrap();
        let collections = ["CrawlerTask", "Job"];
        for number in 0..2_500 {
            writer.write("CrawlerTask", &task(number, 1)).await.unwrap();
        }
        assert_eq!(writer.finish(&collections).await.unwrap(), [("CrawlerTask", 2_500), ("Job", 0)]);
        assert_eq!((server.documents.lock().unwrap().len(), server.updates()), (2_500, 3));
        {
            let documents = server.documents.lock().unwrap();
            let first = &documents[&("CrawlerTask".to_owned(), format!("{:024x}", 7))];
            assert_eq!(first.get_str("uri").unwrap(), "http://a.example/é");
            assert_eq!(first.get_i32("status").unwrap(), 1);
            assert_eq!(first.get_i64("content_bytes").unwrap(), 5_000_000_000);
            assert_eq!(first.get_datetime("add_datetime").unwrap().timestamp_millis(), 1_794_894_577_000);
        }
        for number in 0..2_500 {
            writer.write("CrawlerTask", &task(number, if number == 7 { 6 } else { 1 })).await.unwrap();
        }
        assert_eq!(writer.finish(&collections).await.unwrap(), [("CrawlerTask", 1), ("Job", 0)]);
        assert_eq!((server.documents.lock().unwrap().len(), server.updates()), (2_500, 4));
    }

    #[tokio::test]
    async fn what_the_server_refuses_is_told_and_sent_again() {
        let (server, uri) = Server::start().await;
        let mut writer = Writer::open(&uri).await.unwrap();
        *server.refuses.lock().unwrap() = true;
        writer.write("Job", &task(1, 1)).await.unwrap();
        let error = writer.finish(&["Job"]).await.unwrap_err().to_string();
        assert!(error.contains("Job") && error.contains("failed validation"), "{error}");
        *server.refuses.lock().unwrap() = false;
        writer.write("Job", &task(1, 1)).await.unwrap();
        assert_eq!(writer.finish(&["Job"]).await.unwrap(), [("Job", 1)]);
        let error = writer.write("Job", &json!({"name": "without an id"})).await.unwrap_err().to_string();
        assert!(error.contains("_id"), "{error}");
    }

    #[tokio::test]
    async fn a_wrong_place_is_told_without_its_password() {
        let error = Writer::open("mongodb://me:secret@127.0.0.1:1/").await.err().unwrap().to_string();
        assert!(error.contains("names no database") && !error.contains("secret"), "{error}");
        let uri = "mongodb://me:secret@127.0.0.1:1/source?serverSelectionTimeoutMS=200";
        let mut writer = Writer::open(uri).await.unwrap();
        assert_eq!(writer.name(), "127.0.0.1:1/source");
        writer.write("Job", &task(1, 1)).await.unwrap();
        let error = writer.finish(&["Job"]).await.unwrap_err().to_string();
        assert!(error.contains("127.0.0.1:1") && !error.contains("secret"), "{error}");
    }
}
