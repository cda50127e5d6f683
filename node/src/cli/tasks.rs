//! `orbweaver export --tasks`: jobs, generators, tasks and logs as lines of MongoDB's extended JSON, one file a collection, ready for `mongoimport`; or, built with the
//! feature `mongodb`, straight into a database.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use proto::control::source::SourceRequest;
use serde_json::{Value as Json, json};

use super::access::Access;
use super::ctl::source::{TaskPages, ask, bytes};
use super::ctl::{Connection, in_runtime};
use super::progress::say;
use super::units::show_count;
use super::{Complaint, Exit};

/// Tasks that are asked for at once.
const PAGE: usize = 1_000;

/// The files, by the names of the collections.
const COLLECTIONS: [&str; 7] =
    ["Job", "CrawlerTaskGenerator", "CrawlerTask", "GeneratorLog", "ErrorLog", "CronLog", "AlertLog"];

struct Files<'a> {
    folder: &'a Path,
    files: Vec<(&'static str, BufWriter<File>, u64)>,
}

impl<'a> Files<'a> {
    fn make(folder: &'a Path) -> Result<Files<'a>, Complaint> {
        let failed =
            |error: std::io::Error| Complaint::usage(format!("cannot write into {}: {error}", folder.display()));
        std::fs::create_dir_all(folder).map_err(failed)?;
        let mut files = Vec::new();
        for name in COLLECTIONS {
            let file = File::create(folder.join(format!("{name}.json"))).map_err(failed)?;
            files.push((name, BufWriter::new(file), 0));
        }
        Ok(Files { folder, files })
    }

    fn write(&mut self, collection: &str, document: &Json) -> Result<(), Complaint> {
        let folder = self.folder;
        let failed =
            |error: std::io::Error| Complaint::failed(format!("cannot write into {}: {error}", folder.display()));
        let Some((_, file, count)) = self.files.iter_mut().find(|(name, ..)| *name == collection) else {
            return Ok(());
        };
        *count += 1;
        writeln!(file, "{document}").map_err(failed)
    }

    fn finish(mut self) -> Result<Vec<(&'static str, u64)>, Complaint> {
        for (_, file, _) in &mut self.files {
            file.flush()
                .map_err(|error| Complaint::failed(format!("cannot write into {}: {error}", self.folder.display())))?;
        }
        Ok(self.files.into_iter().map(|(name, _, count)| (name, count)).collect())
    }
}

/// Where documents go.
enum Sink<'a> {
    Files(Files<'a>),
    #[cfg(feature = "mongodb")]
    Database(&'a mut crate::edges::mongo::Writer),
}

impl Sink<'_> {
    async fn write(&mut self, collection: &'static str, document: Json) -> Result<(), Complaint> {
        match self {
            Sink::Files(files) => files.write(collection, &document),
            #[cfg(feature = "mongodb")]
            Sink::Database(writer) => writer.write(collection, &document).await.map_err(database_failed),
        }
    }

    async fn finish(self) -> Result<Vec<(&'static str, u64)>, Complaint> {
        match self {
            Sink::Files(files) => files.finish(),
            #[cfg(feature = "mongodb")]
            Sink::Database(writer) => writer.finish(&COLLECTIONS).await.map_err(database_failed),
        }
    }
}

#[cfg(feature = "mongodb")]
fn database_failed(error: crate::edges::mongo::MongoError) -> Complaint {
    Complaint::failed(error.to_string())
}

/// Whether a database is meant.
fn is_database(to: &str) -> bool {
    to.starts_with("mongodb://") || to.starts_with("mongodb+srv://")
}

/// Asks the node whose data folder is named for everything, and writes it into a folder or a database.
pub(super) fn export(data: &Path, to: &Path, follow: Option<Duration>) -> Result<Exit, Complaint> {
    let access = Access::load(data)?;
    if let Some(database) = to.to_str().filter(|to| is_database(to)) {
        return into_database(&access, database, follow);
    }
    if follow.is_some() {
        return Err(Complaint::usage("--follow writes into a database: --tasks mongodb://HOST/DATABASE".to_owned()));
    }
    let counts = in_runtime(async {
        let connection = Connection::open(&access).await?;
        let written = async { write_all(&connection, Sink::Files(Files::make(to)?)).await }.await;
        connection.close().await;
        written
    })?;
    tell(&to.display().to_string(), &counts)?;
    Ok(Exit::Done)
}

fn tell(to: &str, counts: &[(&'static str, u64)]) -> Result<(), Complaint> {
    let counts: Vec<String> = counts.iter().map(|(name, count)| format!("{} {name}", show_count(*count))).collect();
    say(&format_args!("{to}: {}", counts.join(", ")))
        .map_err(|error| Complaint::failed(format!("cannot write: {error}")))
}

#[cfg(not(feature = "mongodb"))]
fn into_database(_: &Access, _: &str, _: Option<Duration>) -> Result<Exit, Complaint> {
    Err(Complaint::usage(
        "this program was built without the feature `mongodb`: build it with `--features mongodb`, or write files and hand them to mongoimport"
            .to_owned(),
    ))
}

#[cfg(feature = "mongodb")]
fn into_database(access: &Access, database: &str, follow: Option<Duration>) -> Result<Exit, Complaint> {
    in_runtime(async {
        let mut writer = crate::edges::mongo::Writer::open(database).await.map_err(database_failed)?;
        let to = writer.name();
        loop {
            let connection = Connection::open(access).await?;
            let written = write_all(&connection, Sink::Database(&mut writer)).await;
            connection.close().await;
            match (written, follow) {
                (Ok(counts), _) => tell(&to, &counts)?,
                // What could not be written is written the next time.
                (Err(complaint), Some(_)) => tracing::warn!(reason = complaint.text(), "the database is behind"),
                (Err(complaint), None) => return Err(complaint),
            }
            let Some(every) = follow else { return Ok(Exit::Done) };
            tokio::time::sleep(every).await;
        }
    })
}

async fn write_all(connection: &Connection, mut sink: Sink<'_>) -> Result<Vec<(&'static str, u64)>, Complaint> {
    let jobs = ask(connection, SourceRequest::JobList(None)).await?;
    for job in jobs.as_array().map(Vec::as_slice).unwrap_or_default() {
        let id = job["_id"].as_str().unwrap_or_default();
        sink.write("Job", job_document(job)).await?;
        let generators = ask(connection, SourceRequest::GeneratorList(id.to_owned())).await?;
        for generator in generators.as_array().map(Vec::as_slice).unwrap_or_default() {
            sink.write("CrawlerTaskGenerator", generator_document(generator)).await?;
        }
        let mut pages = TaskPages::of(id);
        while let Some(tasks) = pages.next(connection, PAGE).await? {
            for task in &tasks {
                sink.write("CrawlerTask", task_document(task)).await?;
            }
        }
        write_logs(connection, Some(id), &mut sink).await?;
    }
    write_logs(connection, None, &mut sink).await?;
    sink.finish().await
}

async fn write_logs(connection: &Connection, job: Option<&str>, sink: &mut Sink<'_>) -> Result<(), Complaint> {
    let mut after = None;
    loop {
        let answer = ask(connection, SourceRequest::LogPage { job: job.map(str::to_owned), after }).await?;
        for entry in answer["entries"].as_array().map(Vec::as_slice).unwrap_or_default() {
            let collection = match entry["kind"].as_str() {
                Some("generator") => "GeneratorLog",
                Some("error") => "ErrorLog",
                Some("cron") => "CronLog",
                _ => "AlertLog",
            };
            sink.write(collection, log_document(entry)).await?;
        }
        after = answer["next"].as_str().and_then(bytes);
        if after.is_none() {
            return Ok(());
        }
    }
}

fn object_id(text: &Json) -> Json {
    text.as_str().map_or(Json::Null, |id| json!({"$oid": id}))
}

fn moment(row: &Json) -> Json {
    let text = row["add_datetime"].as_str().unwrap_or_default();
    json!({"$date": format!("{}Z", text.replace(' ', "T"))})
}

fn job_document(job: &Json) -> Json {
    json!({
        "_id": object_id(&job["_id"]), "name": job["name"], "info": job["info"], "customer": job["customer"],
        "creator": job["creator"], "status": job["status"], "priority": job["priority"], "add_datetime": moment(job),
    })
}

fn generator_document(generator: &Json) -> Json {
    json!({
        "_id": object_id(&generator["_id"]), "job": object_id(&generator["job"]), "code": generator["code"],
        "code_type": generator["code_type"], "cron": generator["cron"], "status": generator["status"],
        "add_datetime": moment(generator),
    })
}

fn task_document(task: &Json) -> Json {
    let args = if task["args"].is_null() { Json::Null } else { json!(task["args"].to_string()) };
    json!({
        "_id": object_id(&task["_id"]), "job": object_id(&task["job"]), "task_generator": object_id(&task["task_generator"]),
        "uri": task["uri"], "args": args, "status": task["status"], "from_host": task["from_host"], "add_datetime": moment(task),
    })
}

fn log_document(entry: &Json) -> Json {
    // An id of ours has the time in front and chance behind: so has one of MongoDB.
    let id = entry["_id"].as_str().unwrap_or_default();
    let seconds = id.split('-').next().and_then(|ms| ms.parse::<u64>().ok()).unwrap_or(0) / 1_000;
    let chance = id.rsplit('-').next().unwrap_or_default();
    json!({
        "_id": {"$oid": format!("{:08x}{chance:0>16}", seconds as u32)}, "name": entry["name"], "job": object_id(&entry["job"]),
        "generator": object_id(&entry["generator"]), "status": entry["status"], "failed_reason": entry["failed_reason"],
        "content": entry["content"], "content_bytes": entry["content_bytes"], "spend_msecs": entry["spend_msecs"],
        "hostname": entry["hostname"], "add_datetime": moment(entry),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_those_that_mongoimport_reads() {
        let task = json!({"_id": "6afbeaf1236b078186cac69e", "job": "6afbeaf1236b078186cac69f", "task_generator": null,
            "uri": "http://a.example/", "args": {"headers": {"X": "1"}}, "status": 6, "from_host": "h", "add_datetime": "2026-11-17 05:49:37"});
        let document = task_document(&task);
        assert_eq!(document["_id"], json!({"$oid": "6afbeaf1236b078186cac69e"}));
        assert_eq!(document["task_generator"], Json::Null);
        assert_eq!(document["args"], json!("{\"headers\":{\"X\":\"1\"}}"));
        assert_eq!(document["add_datetime"], json!({"$date": "2026-11-17T05:49:37Z"}));
        let log = log_document(
            &json!({"_id": "1794895777000-error-00ffffffffffffff", "add_datetime": "2026-11-17 05:49:37"}),
        );
        assert_eq!(log["_id"]["$oid"].as_str().map(str::len), Some(24), "{log}");
    }
}
