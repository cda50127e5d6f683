//! Why a connection or a stream is refused or cut off, and how that is said: each kind is counted always and logged seldom, so
//! that whoever hammers at the door fills neither the log nor the reader's patience.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::codec::LetterError;
use super::frame::FrameError;
use super::hello::HelloError;

/// One line in the log for each subject and reason in this time.
const QUIET: Duration = Duration::from_secs(60);

/// Subjects and reasons that are remembered; then all are forgotten at once.
const REMEMBERED_MAX: usize = 1_024;

/// Why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// The first bytes make no sense: another swarm key, or not of our kind at all.
    Handshake,
    /// A connection was opened and not made use of in time.
    HalfOpen,
    /// Nobody whom we know.
    Stranger,
    /// Another peer answers where we expected one of ours.
    Impostor,
    /// Of another cluster.
    Cluster,
    /// Speaks no version that we speak.
    Version,
    /// A stream whose content cannot be understood.
    Garbage,
    /// Announced more than is allowed.
    Oversize,
    /// Began something and did not finish it in time, or does not take what it asked for.
    Slow,
    /// Opened a stream and said nothing.
    Silent,
    /// Signed with another's name.
    Forged,
    /// Its role does not allow what it tried.
    Role,
    /// Too many connections.
    Connections,
    /// Too many streams.
    Streams,
    /// Says more than anybody has to say: it is held back, and cut off if it goes on.
    Flood,
    /// Too little memory is left for another connection.
    Memory,
    /// It was cut off a short while ago.
    Penalty,
}

impl Refusal {
    /// Name for metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Refusal::Handshake => "handshake",
            Refusal::HalfOpen => "half_open",
            Refusal::Stranger => "stranger",
            Refusal::Impostor => "impostor",
            Refusal::Cluster => "cluster",
            Refusal::Version => "version",
            Refusal::Garbage => "garbage",
            Refusal::Oversize => "oversize",
            Refusal::Slow => "slow",
            Refusal::Silent => "silent",
            Refusal::Forged => "forged",
            Refusal::Role => "role",
            Refusal::Connections => "connections",
            Refusal::Streams => "streams",
            Refusal::Flood => "flood",
            Refusal::Memory => "memory",
            Refusal::Penalty => "penalty",
        }
    }

    /// What to do about it, for the log.
    pub(super) fn remedy(self) -> &'static str {
        match self {
            Refusal::Handshake => "if it is one of ours, give it the same swarm key",
            Refusal::Stranger => "if it is one of ours, add its peer id to the configuration or admit it",
            Refusal::Impostor => "correct the address or the peer id in the configuration",
            Refusal::Cluster => "give both the same cluster.id",
            Refusal::Version => "update the older of the two",
            Refusal::Flood => {
                "if it is one of ours, see what it says so often (metric swarm_letters_in); it is read slowly, and cut off if it goes on"
            }
            Refusal::Memory => {
                "it may try again; give this node more memory, or raise cluster.connections.memory_percent_max"
            }
            _ => "it is cut off for a while",
        }
    }

    /// Why a frame is refused; `None` if the stream merely ended.
    pub(super) fn of_frame(error: &FrameError) -> Option<Refusal> {
        match error {
            FrameError::Oversize { .. } => Some(Refusal::Oversize),
            FrameError::Empty => Some(Refusal::Garbage),
            FrameError::Slow(_) => Some(Refusal::Slow),
            FrameError::Torn | FrameError::Stream(_) => None,
        }
    }

    /// Why a hello is refused; `None` if the stream merely ended.
    pub(super) fn of_hello(error: &HelloError) -> Option<Refusal> {
        match error {
            HelloError::OtherCluster(_) => Some(Refusal::Cluster),
            HelloError::OtherVersion(_) => Some(Refusal::Version),
            HelloError::Garbage => Some(Refusal::Garbage),
            HelloError::Silent(_) => Some(Refusal::Silent),
            HelloError::Refused | HelloError::Stream(_) => None,
        }
    }

    /// Why a letter is refused.
    pub(super) fn of_letter(error: &LetterError) -> Refusal {
        match error {
            LetterError::Forged { .. } => Refusal::Forged,
            LetterError::OtherCluster => Refusal::Cluster,
            LetterError::Envelope(_) | LetterError::TooNew(_) | LetterError::Defect(_) => Refusal::Garbage,
        }
    }
}

/// Remembers what was logged.
#[derive(Default)]
pub(super) struct Quiet {
    logged: Mutex<BTreeMap<(String, Refusal), (Instant, u64)>>,
}

impl Quiet {
    /// Whether a refusal of `subject` is to be logged now, and how many were not since the last line.
    pub(super) fn speak(&self, subject: &str, why: Refusal, now: Instant) -> Option<u64> {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.len() >= REMEMBERED_MAX {
            logged.clear();
        }
        match logged.get_mut(&(subject.to_owned(), why)) {
            Some((last, untold)) if now < *last + QUIET => {
                *untold += 1;
                None
            }
            Some((last, untold)) => {
                *last = now;
                Some(std::mem::take(untold))
            }
            None => {
                logged.insert((subject.to_owned(), why), (now, 0));
                Some(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_said_once_a_minute_and_the_rest_are_counted() {
        let quiet = Quiet::default();
        let speak = |subject: &str, why| quiet.speak(subject, why, Instant::now());
        assert_eq!(speak("a", Refusal::Garbage), Some(0));
        for _ in 0..9 {
            assert_eq!(speak("a", Refusal::Garbage), None);
        }
        assert_eq!(speak("b", Refusal::Garbage), Some(0), "another subject");
        assert_eq!(speak("a", Refusal::Slow), Some(0), "another reason");
        tokio::time::advance(QUIET).await;
        assert_eq!(speak("a", Refusal::Garbage), Some(9));
        assert_eq!(speak("a", Refusal::Garbage), None);
        for number in 0..5 * REMEMBERED_MAX {
            speak(&number.to_string(), Refusal::Slow);
        }
        assert!(quiet.logged.lock().unwrap().len() <= REMEMBERED_MAX);
    }
}
