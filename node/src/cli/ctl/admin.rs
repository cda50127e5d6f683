//! `ctl stat|get|set|stop|forget`: figures and settings of actors, and the end of nodes.

use clap::Args;
use proto::control::admin::{ActorFigures, Order, Part, Said, Setting, To, Trouble};
use proto::control::{Answer, Request};
use serde_json::json;

use super::{Complaint, Connection, Exit, name, say};

/// Which nodes an order is for.
#[derive(Args)]
pub(super) struct Whom {
    /// Only this node: its name or the beginning of it, or its peer id, as `ctl nodes` shows them
    #[arg(long, value_name = "NODE", conflicts_with = "all")]
    node_id: Option<String>,
    /// All nodes
    #[arg(long)]
    all: bool,
}

impl Whom {
    /// All nodes unless one is named.
    pub(super) fn or_all(&self) -> To {
        self.node_id.clone().map_or(To::All, To::One)
    }

    /// Whoever is named; `None` if nobody is.
    pub(super) fn named(&self) -> Option<To> {
        if self.all { Some(To::All) } else { self.node_id.clone().map(To::One) }
    }
}

#[derive(Args)]
pub(super) struct StatArguments {
    /// Actors, as in fetcher or parser,storage [default: all]
    #[arg(value_name = "ACTOR", value_delimiter = ',')]
    actors: Vec<String>,
    #[command(flatten)]
    whom: Whom,
}

#[derive(Args)]
pub(super) struct GetArguments {
    /// Settings, as in cluster.toml [default: those that can be changed]
    #[arg(value_name = "SETTING", value_delimiter = ',')]
    settings: Vec<String>,
    #[command(flatten)]
    whom: Whom,
}

#[derive(Args)]
pub(super) struct SetArguments {
    /// Settings and values, as in fetch.concurrency=16; `ctl get` shows what there is
    #[arg(value_name = "SETTING=VALUE", required = true, value_parser = parse_assignment)]
    values: Vec<(String, String)>,
    #[command(flatten)]
    whom: Whom,
}

#[derive(Args)]
pub(super) struct StopArguments {
    /// Actors; none of them can be stopped alone, and the answer says what can be done instead
    #[arg(value_name = "ACTOR", value_delimiter = ',')]
    actors: Vec<String>,
    #[command(flatten)]
    whom: Whom,
}

#[derive(Args)]
pub(super) struct ForgetArguments {
    /// The node that is gone: its peer id, or its name
    #[arg(value_name = "PEER_ID")]
    peer: String,
}

fn parse_assignment(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("say it as in fetch.concurrency=16")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

pub(super) async fn stat(connection: &Connection, arguments: &StatArguments, as_json: bool) -> Result<Exit, Complaint> {
    let classes = arguments.actors.iter().filter(|actor| *actor != "all").cloned().collect();
    order(connection, arguments.whom.or_all(), Order::Stat { classes }, as_json).await
}

pub(super) async fn get(connection: &Connection, arguments: &GetArguments, as_json: bool) -> Result<Exit, Complaint> {
    order(connection, arguments.whom.or_all(), Order::Get { names: arguments.settings.clone() }, as_json).await
}

pub(super) async fn set(connection: &Connection, arguments: &SetArguments, as_json: bool) -> Result<Exit, Complaint> {
    order(connection, arguments.whom.or_all(), Order::Set { values: arguments.values.clone() }, as_json).await
}

pub(super) async fn stop(connection: &Connection, arguments: &StopArguments, as_json: bool) -> Result<Exit, Complaint> {
    let to = arguments.whom.named().ok_or_else(|| Complaint::usage("say which node with --node-id NODE, or --all"))?;
    order(connection, to, Order::Stop { classes: arguments.actors.clone() }, as_json).await
}

pub(super) async fn forget(
    connection: &Connection,
    arguments: &ForgetArguments,
    as_json: bool,
) -> Result<Exit, Complaint> {
    order(connection, To::All, Order::Forget { peer: arguments.peer.clone() }, as_json).await
}

/// Gives an order, and returns what each node said.
pub(super) async fn ask(connection: &Connection, to: To, order: Order) -> Result<Vec<Part>, Complaint> {
    match connection.ask(&Request::Admin { to, order }).await? {
        Answer::Admin(parts) => Ok(parts),
        Answer::Refused(why) => Err(Complaint::failed(why)),
        other => Err(Complaint::failed(format!("the node answered {other:?}"))),
    }
}

async fn order(connection: &Connection, to: To, order: Order, as_json: bool) -> Result<Exit, Complaint> {
    let parts = ask(connection, to, order).await?;
    if let Some(why) = refusal(&parts) {
        return Err(Complaint::failed(why));
    }
    let text = if as_json { json!(Answer::Admin(parts.clone())).to_string() } else { parts_text(&parts) };
    say(&text).map_err(|error| Complaint::failed(format!("cannot write: {error}")))?;
    Ok(if parts.iter().all(|part| part.said.is_ok()) { Exit::Done } else { Exit::Failed })
}

/// What all nodes that answer refuse for the same reason, as a setting that does not exist.
pub(super) fn refusal(parts: &[Part]) -> Option<&str> {
    let answers = parts.iter().filter(|part| !matches!(part.said, Err(Trouble::Missing(_))));
    let mut why = answers.map(|part| match &part.said {
        Err(Trouble::Refused(why)) => Some(why.as_str()),
        _ => None,
    });
    let first = why.next()??;
    why.all(|other| other == Some(first)).then_some(first)
}

/// What the nodes said, and which of them did not.
pub(super) fn parts_text(parts: &[Part]) -> String {
    let mut lines = Vec::new();
    for part in parts {
        match &part.said {
            Ok(Said::Stat(figures)) => {
                lines.push(format!("node {} ({})", name(part.node), part.peer));
                lines.extend(stat_lines(figures));
            }
            Ok(Said::Settings(settings)) => {
                lines.push(format!("node {} ({})", name(part.node), part.peer));
                lines.extend(settings.iter().map(setting_line));
            }
            Ok(Said::Done(what)) => lines.push(format!("{}  {what}", name(part.node))),
            Ok(other) => lines.push(format!("{}  {other:?}", name(part.node))),
            Err(trouble) => lines.push(trouble_line(part, trouble)),
        }
    }
    lines.join("\n")
}

/// Why a node did not do as it was told.
pub(super) fn trouble_line(part: &Part, trouble: &Trouble) -> String {
    let what = match trouble {
        Trouble::Missing(_) => "missing",
        Trouble::Refused(_) => "refused",
    };
    format!("{what}: {} ({}): {trouble}", name(part.node), part.peer)
}

fn stat_lines(figures: &[ActorFigures]) -> Vec<String> {
    let mut lines = vec![format!(
        "  {:<12} {:>8} {:>9} {:>10} {:>8} {:>6} {:>9}  {}",
        "actor", "waiting", "capacity", "handled", "refused", "lost", "restarts", "counters"
    )];
    for one in figures {
        let counters: Vec<String> = one.counters.iter().map(|(name, count)| format!("{name} {count}")).collect();
        let line = format!(
            "  {:<12} {:>8} {:>9} {:>10} {:>8} {:>6} {:>9}  {}",
            one.name,
            one.waiting,
            one.capacity,
            one.handled,
            one.refused,
            one.lost,
            one.restarts,
            counters.join(", ")
        );
        lines.push(line.trim_end().to_owned());
    }
    lines
}

fn setting_line(setting: &Setting) -> String {
    let was = if setting.value == setting.configured {
        String::new()
    } else {
        format!(" (started with {})", setting.configured)
    };
    let allowed = setting.allowed.as_deref().unwrap_or("only a restart changes it");
    format!("  {} = {}{was}  [{allowed}]", setting.name, setting.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_and_who_is_missing_are_shown() {
        let figures = ActorFigures {
            name: "fetcher".to_owned(),
            waiting: 3,
            capacity: 80,
            handled: 1_234,
            refused: 1,
            lost: 2,
            restarts: 1,
            counters: vec![("fetches".to_owned(), 99), ("fetching".to_owned(), 4)],
        };
        let part = |node, said| Part { node, peer: format!("peer-{node}"), said };
        let text = parts_text(&[
            part(1, Ok(Said::Stat(vec![figures]))),
            part(2, Err(Trouble::Missing("does not answer".to_owned()))),
        ]);
        let expected = "\
node 0000000000000001 (peer-1)
  actor         waiting  capacity    handled  refused   lost  restarts  counters
  fetcher             3        80       1234        1      2         1  fetches 99, fetching 4
missing: 0000000000000002 (peer-2): does not answer";
        assert_eq!(text, expected);
    }

    #[test]
    fn what_all_refuse_is_one_complaint() {
        let part = |said| Part { node: 1, peer: "peer".to_owned(), said };
        let refused = || part(Err(Trouble::Refused("no such setting".to_owned())));
        let missing = || part(Err(Trouble::Missing("does not answer".to_owned())));
        let done = || part(Ok(Said::Done("done".to_owned())));
        assert_eq!(refusal(&[refused(), missing(), refused()]), Some("no such setting"));
        assert_eq!(refusal(&[refused(), done()]), None);
        assert_eq!(refusal(&[missing(), missing()]), None);
        assert!(
            parts_text(&[refused(), missing()])
                .contains("refused: 0000000000000001 (peer): no such setting\nmissing: ")
        );
    }

    #[test]
    fn a_setting_says_what_it_was_and_may_be() {
        let setting = |value: &str, allowed: Option<&str>| Setting {
            name: "fetch.concurrency".to_owned(),
            value: value.to_owned(),
            configured: "16".to_owned(),
            allowed: allowed.map(str::to_owned),
        };
        assert_eq!(
            setting_line(&setting("0", Some("0 to 16"))),
            "  fetch.concurrency = 0 (started with 16)  [0 to 16]"
        );
        assert_eq!(setting_line(&setting("16", None)), "  fetch.concurrency = 16  [only a restart changes it]");
        assert_eq!(parse_assignment(" a.b = c=d ").unwrap(), ("a.b".to_owned(), "c=d".to_owned()));
        assert!(parse_assignment("nothing").is_err());
    }
}
