//! `ctl admit`: lets a new node into the cluster, on every node at once.

use clap::Args;
use proto::control::{Answer, Request};
use serde_json::json;

use super::super::progress::say;
use super::super::{Complaint, Exit};
use super::Connection;

const EXAMPLES: &str = "Examples:
  orbweaver ctl admit 12D3KooW…                                          the node dials the others
  orbweaver ctl admit 12D3KooW… --address /ip4/192.0.2.9/tcp/7070       and is dialled there
  orbweaver ctl admit 12D3KooW… --revoke                                 is let in no longer

The new node is started with the others' cluster.toml, its own key, and `newcomer = true`.";

/// Arguments of `admit`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct AdmitArguments {
    /// Peer id of the node, which `orbweaver keygen` printed
    peer: String,
    /// Where the others dial it; may be given several times
    #[arg(long, value_name = "ADDRESS")]
    address: Vec<String>,
    /// Take the admission back
    #[arg(long, conflicts_with = "address")]
    revoke: bool,
}

/// Admits a node.
pub(super) async fn admit(
    connection: &Connection,
    arguments: &AdmitArguments,
    as_json: bool,
) -> Result<Exit, Complaint> {
    let AdmitArguments { peer, address, revoke } = arguments;
    let request = Request::Admit { peer: peer.clone(), addresses: address.clone(), revoke: *revoke };
    let answer = match connection.ask(&request).await? {
        Answer::Refused(why) => return Err(Complaint::failed(why)),
        answer => answer,
    };
    let Answer::Admitted { peer, admitted, nodes, missing } = &answer else {
        return Err(Complaint::failed(format!("the node answered {answer:?}")));
    };
    let text = if as_json {
        json!(answer).to_string()
    } else {
        let what = if *admitted { "may join" } else { "is let in no longer" };
        let mut text = format!("{peer} {what}: {} nodes have it on disk", nodes.len());
        if !missing.is_empty() {
            text.push_str(&format!("; not yet: {}, which hear of it when they are back", missing.join(", ")));
        }
        text
    };
    say(&text).map_err(|error| Complaint::failed(format!("cannot write: {error}")))?;
    Ok(Exit::Done)
}
