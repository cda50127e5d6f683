//! Failure to disposition: the one table.

use serde::{Deserialize, Serialize};

/// Everything that can end a fetch other than a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Failure {
    /// The URL cannot be requested at all.
    BadUrl,
    /// The address guard refuses where the host points.
    AddressRefused,
    /// The name does not exist.
    DnsNotFound,
    /// The resolver gave no answer.
    DnsUnavailable,
    /// Nothing listens there.
    ConnectRefused,
    /// No connection within the connect timeout, or no route.
    ConnectFailed,
    /// TLS could not be agreed or the certificate is wrong.
    TlsFailed,
    /// The whole fetch took longer than allowed.
    Timeout,
    /// The connection broke while the answer came in.
    ConnectionBroken,
    /// The answer is not HTTP.
    ProtocolBroken,
    /// More header bytes or header lines than allowed.
    HeadTooLarge,
    /// The decoded body is larger than allowed.
    BodyTooLarge,
    /// The body does not decode by its Content-Encoding.
    DecodingFailed,
    /// The server answered with this status, 400 or above.
    Http(u16),
    /// A redirect without a usable Location.
    RedirectInvalid,
    /// The chain of redirects is too long.
    RedirectsTooMany,
    /// robots.txt forbids it.
    RobotsForbidden,
    /// robots.txt could not be had, so everything is forbidden for now.
    RobotsUnavailable,
    /// Our own actor died with the page in hand.
    Lost,
}
