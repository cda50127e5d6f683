//! `orbweaver dc`: the operations of the HCE Distributed Crawler, with its JSON in and out, as its client had them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use proto::control::{Answer, Request};
use proto::site::Operation;
use serde_json::{Map, Value as Json, json};

use super::ctl::{ANSWER_PATIENCE, AccessArguments, Connection, in_runtime};
use super::progress::say;
use super::{Complaint, Exit};

const EXAMPLES: &str = r#"Examples:
  orbweaver dc --data /srv/orbweaver --command SITE_NEW --file site.json
  orbweaver dc --data /srv/orbweaver --command SITE_NEW --fields '{"id": "news", "urls": ["https://example.com/"], "maxResources": 100}'
  orbweaver dc --data /srv/orbweaver --command SITE_STATUS --fields '{"id": "news"}' --merge 0

A request is an object, or a list of objects, whose fields are those of the original. The answer is JSON on standard output.
Exit codes, as of the original: 0 done, 1 something of it failed, no file, no JSON or no node (the answer says what), 2 wrong usage,
3 the connection broke while an answer was waited for, 4 what was given is no request, 5 the folder does not say whom to ask."#;

/// Objects in one request: a longer list is sent in parts.
const ITEMS_AT_ONCE: usize = 1_000;

/// Arguments of `dc`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct DcArguments {
    #[command(flatten)]
    access: AccessArguments,
    /// What to do, as in SITE_NEW
    #[arg(long, visible_alias = "cmd", value_name = "OPERATION", value_parser = parse_operation)]
    command: Operation,
    /// File with the request, - for standard input
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Fields that are put over those of the file, as a JSON object; a value file://PATH is the text of that file
    #[arg(long, visible_alias = "ff", value_name = "JSON")]
    fields: Option<String>,
    /// How they are put over: 0 replaces a field, 1 goes into objects, 2 also appends to lists
    #[arg(long, value_name = "N", default_value = "0", value_parser = clap::value_parser!(u8).range(0..=2))]
    mode: u8,
    /// 1 for one answer of all nodes together, 0 for one of each
    #[arg(long, visible_alias = "mrg", value_name = "0|1", default_value = "1", value_parser = ["0", "1", "true", "false"])]
    merge: String,
    /// File to write the answer to instead of standard output
    #[arg(long, short, visible_alias = "output_file", value_name = "FILE")]
    output: Option<PathBuf>,
    /// File to write errorCode and errorMessage to: of the command, not of what it asked for
    #[arg(long, short, visible_alias = "error_file", value_name = "FILE")]
    error: Option<PathBuf>,
    /// Milliseconds that an answer is waited for
    #[arg(long = "dcc_timeout", value_name = "MS", default_value_t = ANSWER_PATIENCE.as_millis() as u64, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// Host to ask at instead of the one in the address of a node; the node must be one of those that the folder names
    #[arg(long = "dcc_clientHost", value_name = "HOST")]
    client_host: Option<String>,
    /// Port to ask at instead
    #[arg(long = "dcc_clientPort", value_name = "PORT")]
    client_port: Option<u16>,
    /// Read and without effect: the folder says whom to ask
    #[arg(long, short, hide = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Read and without effect: there is nothing more to tell
    #[arg(long, short, hide = true, value_name = "N")]
    verbose: Option<String>,
}

/// Flags that the original's client takes behind one dash although they have more than one letter.
const LONG_BEHIND_ONE_DASH: [&str; 7] = ["cmd", "ff", "mrg", "mode", "dcc_timeout", "dcc_clientHost", "dcc_clientPort"];

/// The arguments of the program, where those of `dc` may be written as the original's client takes them.
pub(super) fn with_two_dashes(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.collect();
    let Some(dc) = arguments.iter().position(|argument| argument == "dc") else { return arguments };
    for argument in &mut arguments[dc..] {
        let flag = argument.to_str().and_then(|text| text.strip_prefix('-'));
        let name = flag.map(|flag| flag.split('=').next().unwrap_or(flag));
        if name.is_some_and(|name| LONG_BEHIND_ONE_DASH.contains(&name)) {
            let mut long = OsString::from("-");
            long.push(&*argument);
            *argument = long;
        }
    }
    arguments
}

fn parse_operation(text: &str) -> Result<Operation, String> {
    Operation::of_name(text).ok_or_else(|| {
        let names: Vec<&str> = Operation::ALL.iter().map(|(name, _)| *name).collect();
        format!("there are {}", names.join(", "))
    })
}

/// Runs an operation. An answer is written whatever happens, as the original does: one without entries if there was none.
pub(super) fn run(arguments: &DcArguments) -> Result<Exit, Complaint> {
    let (answer, ended) = match answer(arguments) {
        Ok(answer) => {
            let exit = if is_good(&answer) { Exit::Done } else { Exit::Failed };
            (answer, Ok(exit))
        }
        Err(complaint) => {
            let said = json!({"errorCode": complaint.exit as u8, "errorMessage": complaint.text(), "itemsList": []});
            (said, Err(complaint))
        }
    };
    let text = format!("{answer:#}");
    match &arguments.output {
        Some(path) => write(path, text)?,
        None => say(&text).map_err(|error| Complaint::failed(format!("cannot write: {error}")))?,
    }
    if let Some(path) = &arguments.error {
        let (code, message) = match &ended {
            Ok(_) => (Exit::Done, ""),
            Err(complaint) => (complaint.exit, complaint.text()),
        };
        write(path, json!({"errorCode": code as u8, "errorMessage": message}).to_string())?;
    }
    ended
}

fn write(path: &Path, text: String) -> Result<(), Complaint> {
    std::fs::write(path, text + "\n")
        .map_err(|error| Complaint::failed(format!("cannot write {}: {error}", path.display())))
}

fn answer(arguments: &DcArguments) -> Result<Json, Complaint> {
    let body = body(arguments)?;
    let merge = matches!(arguments.merge.as_str(), "1" | "true");
    // A folder that says nothing, or not enough, is no mistake in the arguments.
    let unknown = |complaint: Complaint| match complaint.exit {
        Exit::Usage if arguments.access.is_folder() => complaint.ends_with(Exit::NotStarted),
        Exit::Data => complaint.ends_with(Exit::NotStarted),
        _ => complaint,
    };
    let access = arguments.access.understand().map_err(unknown)?;
    let access = access.at(arguments.client_host.as_deref(), arguments.client_port)?;
    in_runtime(async {
        let connection = Connection::open(&access).await.map_err(unknown)?;
        let connection = connection.waits_for(Duration::from_millis(arguments.timeout));
        let answer = ask_all(&connection, arguments.command, body, merge).await;
        connection.close().await;
        answer
    })
}

/// Asks for an operation; what it came to, as JSON.
pub(super) async fn ask(connection: &Connection, request: &Request) -> Result<Json, Complaint> {
    understood(connection.ask(request).await?)
}

fn understood(answer: Answer) -> Result<Json, Complaint> {
    match answer {
        Answer::Operation(text) => {
            serde_json::from_str(&text).map_err(|error| Complaint::failed(format!("the answer is no JSON: {error}")))
        }
        Answer::Refused(why) => Err(Complaint::failed(why)),
        other => Err(Complaint::failed(format!("the node answered {other:?}"))),
    }
}

/// Asks with a list however long, some at a time; what was answered is put together as if it had been one request.
async fn ask_all(connection: &Connection, operation: Operation, body: Json, merge: bool) -> Result<Json, Complaint> {
    let parts = match body {
        Json::Array(items) if items.len() > ITEMS_AT_ONCE => {
            items.chunks(ITEMS_AT_ONCE).map(|some| Json::from(some.to_vec())).collect()
        }
        one => vec![one],
    };
    let mut whole: Option<Json> = None;
    for (at, part) in parts.into_iter().enumerate() {
        let request = Request::Operation { operation, body: part.to_string(), merge };
        let answer = understood(connection.ask_and_tell(&request).await?)?;
        match &mut whole {
            None => whole = Some(answer),
            Some(whole) => join(whole, answer, at * ITEMS_AT_ONCE),
        }
    }
    whole.ok_or_else(|| Complaint::failed("nothing was asked"))
}

/// Puts what was answered to a later part of a list, whose first object is the one at `offset`, behind what was answered before.
fn join(whole: &mut Json, more: Json, offset: usize) {
    let Some(entries) = whole["itemsList"].as_array_mut() else { return };
    let more = match more {
        Json::Object(mut more) => more.remove("itemsList"),
        _ => None,
    };
    for (entry, more) in entries.iter_mut().zip(more.into_iter().flat_map(|list| match list {
        Json::Array(list) => list,
        _ => Vec::new(),
    })) {
        join_text(&mut entry["errorMessage"], &more["errorMessage"], 0);
        if entry["errorCode"] == 0 {
            entry["errorCode"] = more["errorCode"].clone();
        }
        join_origin(entry, &more);
        let (object, more) = (&mut entry["itemObject"], &more["itemObject"]);
        match (object, more) {
            (Json::Array(list), Json::Array(more)) => list.extend(more.iter().cloned()),
            (object @ Json::Object(_), Json::Object(_)) => {
                join_text(&mut object["errorMessage"], &more["errorMessage"], offset);
                if object["errorCode"] == 0 {
                    object["errorCode"] = more["errorCode"].clone();
                }
                if let (Json::Array(list), Json::Array(more)) = (&mut object["statuses"], &more["statuses"]) {
                    list.extend(more.iter().cloned());
                }
            }
            (object, more) => *object = more.clone(),
        }
    }
}

/// Adds the times of the nodes that answered a later part, and the nodes that were not there before.
fn join_origin(entry: &mut Json, more: &Json) {
    let list = |json: &Json, name: &str| -> Vec<String> {
        match &json[name] {
            Json::String(text) => text.split(';').map(str::to_owned).collect(),
            other => vec![other.to_string()],
        }
    };
    let mut lists = ["node", "host", "port", "time"].map(|name| (name, list(entry, name)));
    let theirs = ["node", "host", "port", "time"].map(|name| list(more, name));
    for (at, node) in theirs[0].iter().enumerate() {
        let [(_, nodes), .., (_, times)] = &mut lists;
        match nodes.iter().position(|known| known == node) {
            Some(known) => {
                let ms = |text: Option<&String>| text.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
                let both = ms(times.get(known)) + ms(theirs[3].get(at));
                if let Some(time) = times.get_mut(known) {
                    *time = both.to_string();
                }
            }
            None => {
                for ((_, mine), theirs) in lists.iter_mut().zip(&theirs) {
                    mine.push(theirs.get(at).cloned().unwrap_or_default());
                }
            }
        }
    }
    for (name, list) in lists {
        let number = list.first().filter(|_| list.len() == 1).and_then(|one| one.parse::<u64>().ok());
        entry[name] = match (name, number) {
            ("port" | "time", Some(number)) => Json::from(number),
            _ => Json::from(list.join(";")),
        };
    }
}

/// Messages of a list begin with the place of their object: `[3] …`.
fn join_text(text: &mut Json, more: &Json, offset: usize) {
    let more = more.as_str().filter(|more| !more.is_empty());
    let Some(more) = more else { return };
    let moved = |message: &str| {
        let place = message.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        match place.and_then(|(at, rest)| Some((at.parse::<usize>().ok()?, rest))) {
            Some((at, rest)) => format!("[{}]{rest}", at + offset),
            None => message.to_owned(),
        }
    };
    let more =
        more.split(";[").enumerate().map(|(at, part)| if at == 0 { moved(part) } else { moved(&format!("[{part}")) });
    let more = more.collect::<Vec<String>>().join(";");
    let before = text.as_str().unwrap_or_default();
    *text = Json::from(if before.is_empty() { more } else { format!("{before};{more}") });
}

/// Has a batch crawled and processed, and shows it.
pub(super) async fn batch(connection: &Connection, file: &Path) -> Result<Exit, Complaint> {
    let body = parse(&file.display().to_string(), &read(file)?)?;
    let request = Request::Operation { operation: Operation::Batch, body: body.to_string(), merge: true };
    let answer = ask(connection, &request).await?;
    let object = &answer["itemsList"][0]["itemObject"];
    if !is_good(&answer) {
        return Err(Complaint::failed(object["errorMessage"].as_str().unwrap_or("the batch failed")));
    }
    say(&format!("{object:#}")).map_err(|error| Complaint::failed(format!("cannot write: {error}")))?;
    Ok(Exit::Done)
}

/// Whether nothing of an answer says that something failed.
pub(super) fn is_good(answer: &Json) -> bool {
    let good = |object: &Json| object["errorCode"].as_u64().unwrap_or(0) == 0;
    let items = answer["itemsList"].as_array().map(Vec::as_slice).unwrap_or_default();
    good(answer) && items.iter().all(|item| good(item) && good(&item["itemObject"]))
}

fn body(arguments: &DcArguments) -> Result<Json, Complaint> {
    let no_request = |what: String| Complaint::failed(what).ends_with(Exit::NoRequest);
    let mut body = match &arguments.file {
        Some(path) => parse(&path.display().to_string(), &read(path)?)?,
        None if arguments.fields.is_none() => {
            return Err(Complaint::usage("what is asked for is missing: give --file, --fields or both"));
        }
        None => Json::Object(Map::new()),
    };
    let is_request = match &body {
        Json::Array(items) => items.iter().all(Json::is_object),
        one => one.is_object(),
    };
    if let (false, Some(path)) = (is_request, &arguments.file) {
        return Err(no_request(format!("{} is neither an object nor a list of objects", path.display())));
    }
    if let Some(fields) = &arguments.fields {
        let mut over = parse("--fields", fields)?;
        if !over.is_object() {
            return Err(no_request("--fields is no object".to_owned()));
        }
        load_files(&mut over)?;
        let targets: Vec<&mut Json> = match &mut body {
            Json::Array(items) => items.iter_mut().collect(),
            one => vec![one],
        };
        targets.into_iter().for_each(|target| put_over(target, &over, arguments.mode));
    }
    Ok(body)
}

fn read(path: &Path) -> Result<String, Complaint> {
    let text =
        if path == Path::new("-") { std::io::read_to_string(std::io::stdin()) } else { std::fs::read_to_string(path) };
    text.map_err(|error| Complaint::failed(format!("cannot read {}: {error}", path.display())))
}

fn parse(from: &str, text: &str) -> Result<Json, Complaint> {
    serde_json::from_str(text).map_err(|error| Complaint::failed(format!("{from} is no JSON: {error}")))
}

/// Puts the texts of files in the place of `file://PATH`.
fn load_files(value: &mut Json) -> Result<(), Complaint> {
    match value {
        Json::String(text) => {
            if let Some(path) = text.strip_prefix("file://") {
                *text = read(Path::new(path))?;
            }
            Ok(())
        }
        Json::Array(items) => items.iter_mut().try_for_each(load_files),
        Json::Object(fields) => fields.values_mut().try_for_each(load_files),
        _ => Ok(()),
    }
}

/// Puts one value over another.
fn put_over(target: &mut Json, over: &Json, mode: u8) {
    match (target, over) {
        (Json::Object(target), Json::Object(over)) => {
            for (name, value) in over {
                match target.get_mut(name) {
                    Some(there) if mode > 0 => put_over(there, value, mode),
                    _ => drop(target.insert(name.clone(), value.clone())),
                }
            }
        }
        (Json::Array(target), Json::Array(over)) if mode == 2 => target.extend(over.iter().cloned()),
        (target, over) => *target = over.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_put_over_in_three_ways() {
        let file = json!({"a": {"x": 1, "y": [1]}, "b": 2});
        let over = json!({"a": {"y": [2]}, "c": 3});
        let put = |mode| {
            let mut target = file.clone();
            put_over(&mut target, &over, mode);
            target
        };
        assert_eq!(put(0), json!({"a": {"y": [2]}, "b": 2, "c": 3}));
        assert_eq!(put(1), json!({"a": {"x": 1, "y": [2]}, "b": 2, "c": 3}));
        assert_eq!(put(2), json!({"a": {"x": 1, "y": [1, 2]}, "b": 2, "c": 3}));
    }

    #[test]
    fn answers_to_parts_of_a_list_are_one_answer() {
        let part = |code: u64, message: &str, statuses: Json| {
            json!({"errorCode": 0, "itemsList": [{"errorCode": 0, "errorMessage": "", "node": "a", "host": "x", "port": 0, "time": 2,
                "itemObject": {"errorCode": code, "errorMessage": message, "statuses": statuses}}]})
        };
        let mut whole = part(0, "", json!([0, 0]));
        join(&mut whole, part(2000, "[1] url: bad;[0] url: worse", json!([1, 1])), 2);
        join(&mut whole, part(0, "", json!([2])), 4);
        let object = &whole["itemsList"][0]["itemObject"];
        assert_eq!(object["statuses"], json!([0, 0, 1, 1, 2]));
        assert_eq!(
            (&object["errorCode"], &object["errorMessage"]),
            (&json!(2000), &json!("[3] url: bad;[2] url: worse"))
        );
        let entry = &whole["itemsList"][0];
        assert_eq!((&entry["time"], &entry["node"], &entry["port"]), (&json!(6), &json!("a"), &json!(0)));
    }

    #[test]
    fn times_of_nodes_are_added_and_nodes_that_came_later_stand_behind() {
        let mut entry = json!({"node": "a;b", "host": "x;y", "port": "0;0", "time": "5;3"});
        join_origin(&mut entry, &json!({"node": "a;c;b", "host": "x;z;y", "port": "0;0;0", "time": "7;1;2"}));
        assert_eq!(entry, json!({"node": "a;b;c", "host": "x;y;z", "port": "0;0;0", "time": "12;5;1"}));
        join_origin(&mut entry, &json!({"node": "a", "host": "x", "port": 0, "time": 1}));
        assert_eq!(entry["time"], "13;5;1");
    }

    #[test]
    fn flags_may_be_written_as_the_original_has_them() {
        let two = |arguments: &[&str]| {
            let arguments = with_two_dashes(arguments.iter().map(OsString::from));
            arguments.into_iter().map(|argument| argument.into_string().unwrap()).collect::<Vec<String>>()
        };
        assert_eq!(
            two(&[
                "o",
                "dc",
                "-cmd",
                "URL_NEW",
                "-ff={}",
                "-f",
                "a",
                "-mrg=0",
                "-mode",
                "1",
                "-dcc_timeout=5",
                "-o",
                "b"
            ]),
            [
                "o",
                "dc",
                "--cmd",
                "URL_NEW",
                "--ff={}",
                "-f",
                "a",
                "--mrg=0",
                "--mode",
                "1",
                "--dcc_timeout=5",
                "-o",
                "b"
            ]
        );
        assert_eq!(two(&["o", "ctl", "-ff"]), ["o", "ctl", "-ff"], "of dc only");
    }

    #[test]
    fn an_answer_is_good_only_if_all_of_it_is() {
        assert!(is_good(&json!({"errorCode": 0, "itemsList": [{"errorCode": 0, "itemObject": {"id": "a"}}]})));
        assert!(!is_good(&json!({"errorCode": 0, "itemsList": [{"errorCode": 0, "itemObject": {"errorCode": 2020}}]})));
        assert!(!is_good(&json!({"errorCode": 0, "itemsList": [{"errorCode": 1}]})));
    }
}
