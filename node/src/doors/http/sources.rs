//! The page for sources of URIs, and what it asks: jobs, imports, scripts, logs.
//!
//! Everything but the page itself wants the operator's token in a header, which a page of another site cannot send; and what says that it comes from another site is turned
//! away besides. The page is one file without anything from elsewhere; what it may do is told to the browser with a word of chance that only its own script has.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, ORIGIN, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use proto::control::source::{JobChange, NewJob, NewTask, RefusedTask, SourceRequest, TargetName};
use proto::source::{HEAD_BYTES, Importer, Judged, Refused, kind_of};
use proto::url::UrlRules;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use crate::edges::web::Pending;

/// The page; `NONCE` stands where the word of chance goes.
const PAGE: &str = include_str!("sources.html");
/// Largest request: a list of some hundred thousand URIs. Longer ones go by the command line.
const BODY_BYTES_MAX: usize = 32 << 20;
/// URIs handed over at once.
const AT_ONCE: usize = 1_000;
/// Refusals that are told; all of them are in the error log.
const REFUSED_TOLD: usize = 1_000;

/// Asks the cluster, as an operator.
pub type Ask = Arc<dyn Fn(SourceRequest) -> Pending<'static, Result<Json, String>> + Send + Sync>;

/// What the page needs.
#[derive(Clone)]
pub struct SourcesPage {
    /// The way to the cluster.
    pub ask: Ask,
    /// What whoever asks must know.
    pub token: Arc<str>,
}

/// What the page asks.
#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
enum Asked {
    Jobs,
    JobAdd {
        name: String,
        #[serde(default)]
        info: String,
        #[serde(default)]
        priority: Option<i8>,
    },
    JobSet {
        job: String,
        on: bool,
    },
    JobDelete {
        job: String,
    },
    GeneratorAdd {
        job: String,
        file: String,
        code: String,
        #[serde(default)]
        cron: Option<String>,
    },
    GeneratorRun {
        job: String,
    },
    Import {
        job: String,
        /// Name of the file; none for a text that was pasted.
        #[serde(default)]
        file: Option<String>,
        text: String,
    },
    Tasks {
        job: String,
    },
    Logs {
        job: Option<String>,
        #[serde(default)]
        kind: Option<String>,
    },
}

/// The routes of the page.
pub fn routes(page: SourcesPage) -> Router {
    Router::new()
        .route("/sources", get(show))
        .route("/sources/api", post(answer))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(page)
}

async fn show() -> Response {
    let mut chance = [0; 16];
    if let Err(error) = chance_from_system(&mut chance) {
        return (StatusCode::INTERNAL_SERVER_ERROR, format!("no randomness: {error}\n")).into_response();
    }
    let nonce: String = chance.iter().map(|byte| format!("{byte:02x}")).collect();
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8".to_owned()),
        (CONTENT_SECURITY_POLICY, policy),
        (X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (REFERRER_POLICY, "no-referrer".to_owned()),
        (CACHE_CONTROL, "no-store".to_owned()),
    ];
    (headers, PAGE.replace("NONCE", &nonce)).into_response()
}

/// Bytes that nobody can guess.
pub fn chance_from_system(into: &mut [u8]) -> std::io::Result<()> {
    use std::io::Read;
    std::fs::File::open("/dev/urandom")?.read_exact(into)
}

async fn answer(State(page): State<SourcesPage>, headers: HeaderMap, body: Bytes) -> Response {
    if let Some((status, why)) = turned_away(&headers, &page.token) {
        return reply(status, &json!({"error": why}));
    }
    let asked: Asked = match serde_json::from_slice(&body) {
        Ok(asked) => asked,
        Err(error) => {
            return reply(StatusCode::BAD_REQUEST, &json!({"error": format!("not understood: {error}")}));
        }
    };
    match perform(&page.ask, asked).await {
        Ok(answer) => reply(StatusCode::OK, &answer),
        Err(error) => reply(StatusCode::UNPROCESSABLE_ENTITY, &json!({"error": error})),
    }
}

fn reply(status: StatusCode, body: &Json) -> Response {
    (status, [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")], body.to_string()).into_response()
}

/// Why a request is not for us, if it is not.
fn turned_away(headers: &HeaderMap, token: &str) -> Option<(StatusCode, &'static str)> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let elsewhere = text("sec-fetch-site").is_some_and(|from| from != "same-origin" && from != "none");
    let origin = text(ORIGIN.as_str()).map(|origin| origin.split("://").nth(1).unwrap_or(origin));
    if elsewhere || origin.is_some_and(|origin| text(HOST.as_str()) != Some(origin)) {
        return Some((StatusCode::FORBIDDEN, "this comes from a page of another site"));
    }
    if text(CONTENT_TYPE.as_str()).is_none_or(|kind| !kind.starts_with("application/json")) {
        return Some((StatusCode::UNSUPPORTED_MEDIA_TYPE, "application/json is expected"));
    }
    let said = text(AUTHORIZATION.as_str()).and_then(|said| said.strip_prefix("Bearer ")).unwrap_or_default();
    // Digests are compared, so that the time it takes says nothing of the token.
    let same = blake3::hash(said.trim().as_bytes()) == blake3::hash(token.as_bytes());
    (!same).then_some((
        StatusCode::UNAUTHORIZED,
        "the token is wrong; it is in the file http.token of the node's data folder",
    ))
}

async fn perform(ask: &Ask, asked: Asked) -> Result<Json, String> {
    let request = match asked {
        Asked::Jobs => SourceRequest::JobList(None),
        Asked::JobAdd { name, info, priority } => SourceRequest::JobNew(NewJob {
            name,
            info,
            customer: None,
            priority: priority.unwrap_or(5),
            target: TargetName::Own,
            known_anywhere: false,
        }),
        Asked::JobSet { job, on } => {
            let status = Some(if on { 1 } else { 2 });
            SourceRequest::JobSet(job, JobChange { status, ..JobChange::default() })
        }
        Asked::JobDelete { job } => SourceRequest::JobDelete(job),
        Asked::GeneratorAdd { job, file, code, cron } => {
            let cron = cron.map(|cron| cron.trim().to_owned()).filter(|cron| !cron.is_empty());
            SourceRequest::GeneratorNew { job, file, code, cron }
        }
        Asked::GeneratorRun { job } => SourceRequest::GeneratorRun(job),
        Asked::Tasks { job } => SourceRequest::TaskList { job, after: None, limit: 200 },
        Asked::Logs { job, kind } => SourceRequest::LogList { job, kind, limit: 200 },
        Asked::Import { job, file, text } => return import(ask, job, file.as_deref(), &text).await,
    };
    ask(request).await
}

/// Takes a list in; says what was accepted, and of what was refused why.
async fn import(ask: &Ask, job: String, file: Option<&str>, text: &str) -> Result<Json, String> {
    let bytes = text.as_bytes();
    let kind =
        kind_of(file.unwrap_or("-"), &bytes[..bytes.len().min(HEAD_BYTES)]).map_err(|error| error.to_string())?;
    let mut importer = Importer::new(kind, UrlRules::default());
    let (mut accepted, mut count, mut told) = (0, 0, Vec::new());
    let (mut tasks, mut refused): (Vec<NewTask>, Vec<RefusedTask>) = Default::default();
    let mut lines = bytes.split(|byte| *byte == b'\n').zip(1..).peekable();
    while let Some((line, number)) = lines.next() {
        for judged in importer.line(line).map_err(|error| error.to_string())? {
            match judged {
                Judged::Accepted(url) => tasks.push(NewTask { line: number, uri: url.into_string(), args: None }),
                Judged::Refused(Refused { line, uri, reason }) => {
                    let reason = reason.to_string();
                    told.push(json!({"line": line, "uri": uri, "reason": reason}));
                    refused.push(RefusedTask { line, uri, reason });
                }
            }
        }
        while tasks.len().max(refused.len()) >= AT_ONCE || (lines.peek().is_none() && tasks.len() + refused.len() > 0) {
            let part = SourceRequest::TaskAdd {
                job: job.clone(),
                tasks: tasks.drain(..tasks.len().min(AT_ONCE)).collect(),
                refused: refused.drain(..refused.len().min(AT_ONCE)).collect(),
            };
            let answer = ask(part).await.map_err(|error| format!("{error} ({accepted} URIs before are kept)"))?;
            accepted += answer["accepted"].as_u64().unwrap_or(0);
            told.extend(answer["refused"].as_array().cloned().unwrap_or_default());
            count += told.len().saturating_sub(REFUSED_TOLD);
            told.truncate(REFUSED_TOLD);
        }
    }
    Ok(json!({"accepted": accepted, "refused": told, "more_refused": count}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn only_who_knows_the_token_and_comes_from_the_page_is_let_in() {
        let json = ("content-type", "application/json");
        let good = [json, ("authorization", "Bearer secret"), ("host", "node:8000")];
        let away = |more: &[(&'static str, &str)]| {
            turned_away(&headers(&[&good, more].concat()), "secret").map(|(status, _)| status.as_u16())
        };
        assert_eq!(away(&[]), None);
        assert_eq!(away(&[("origin", "http://node:8000"), ("sec-fetch-site", "same-origin")]), None);
        assert_eq!(away(&[("origin", "http://evil.example")]), Some(403));
        assert_eq!(away(&[("sec-fetch-site", "cross-site")]), Some(403));
        let status =
            |pairs: &[(&'static str, &str)]| turned_away(&headers(pairs), "secret").map(|(code, _)| code.as_u16());
        assert_eq!(status(&[json]), Some(401));
        assert_eq!(status(&[json, ("authorization", "Bearer wrong")]), Some(401));
        assert_eq!(status(&[("authorization", "Bearer secret")]), Some(415), "what a form of another page can send");
        assert_eq!(status(&[("content-type", "text/plain"), ("authorization", "Bearer secret")]), Some(415));
    }

    #[test]
    fn the_page_brings_everything_with_it() {
        for outside in ["http://", "https://", "src=\"", "@import", "url("] {
            assert!(!PAGE.contains(outside), "{outside}");
        }
        assert!(PAGE.contains("<html lang=\"en\">") && PAGE.matches("NONCE").count() == 2);
        assert!(!PAGE.contains("innerHTML") && !PAGE.contains("onclick"), "texts of others are never markup");
    }

    #[test]
    fn lists_are_judged_before_they_are_handed_over() {
        use std::sync::Mutex;
        let seen: Arc<Mutex<Vec<(usize, usize)>>> = Arc::default();
        let ask: Ask = {
            let seen = Arc::clone(&seen);
            Arc::new(move |request| {
                let SourceRequest::TaskAdd { tasks, refused, .. } = request else { panic!("{request:?}") };
                seen.lock().unwrap().push((tasks.len(), refused.len()));
                let accepted = tasks.len();
                Box::pin(async move { Ok(json!({"accepted": accepted, "refused": []})) })
            })
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let text: String = (0..2_500).map(|n| format!("http://a.example/{n}\n")).collect();
        let answer = runtime.block_on(import(&ask, "j".into(), None, &format!("{text}no\n"))).unwrap();
        assert_eq!(answer["accepted"], 2_500);
        assert_eq!(answer["refused"][0]["line"], 2_501);
        assert_eq!(*seen.lock().unwrap(), [(1_000, 0), (1_000, 0), (500, 1)]);
        let error = runtime.block_on(import(&ask, "j".into(), Some("a.docx"), "x")).unwrap_err();
        assert!(error.contains("CSV or TXT"), "{error}");
        let error =
            runtime.block_on(import(&ask, "j".into(), None, "http://a.example/,http://b.example/")).unwrap_err();
        assert!(error.contains("commas"), "{error}");
    }
}
