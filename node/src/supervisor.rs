//! Keeps actors alive. actix revives an actor that stops, but not one that panics: there the task unwinds and every address is
//! dead for good. So neighbours hold a [`Link`] instead of an address, each actor carries a [`Lifeline`] whose drop tells
//! the supervisor, and the supervisor makes a new one from the same factory and binds the links anew.

use std::collections::VecDeque;
use std::sync::{Arc, RwLock};

use actix::dev::ToEnvelope;
use actix::{Actor, Addr, Context, Handler, Message, Recipient};
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant};
use tracing::{error, warn};

/// Restarts within [`RESTART_WINDOW`] after which the node stops: something is broken that a restart does not mend.
const RESTARTS_MAX: usize = 20;
/// How far back restarts count.
const RESTART_WINDOW: Duration = Duration::from_secs(60);

/// The way to an actor, through its deaths.
pub struct Link<M: Message + Send>
where
    M::Result: Send,
{
    to: Arc<RwLock<Option<Recipient<M>>>>,
}

impl<M: Message + Send> Clone for Link<M>
where
    M::Result: Send,
{
    fn clone(&self) -> Self {
        Link { to: Arc::clone(&self.to) }
    }
}

/// The message did not arrive: the actor is dead, being replaced, or has too many waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the actor cannot take the message now")]
pub struct NotTaken;

impl<M: Message + Send + 'static> Link<M>
where
    M::Result: Send,
{
    /// A link that leads nowhere yet.
    pub fn open() -> Link<M> {
        Link { to: Arc::new(RwLock::new(None)) }
    }

    /// Leads the link to an actor.
    pub fn bind(&self, to: Recipient<M>) {
        *self.to.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(to);
    }

    fn get(&self) -> Option<Recipient<M>> {
        self.to.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Puts the message into the mailbox, if there is room.
    pub fn pass(&self, message: M) -> Result<(), NotTaken> {
        self.get().ok_or(NotTaken)?.try_send(message).map_err(|_| NotTaken)
    }

    /// Puts the message into the mailbox whatever its bound: for answers, of which there are never more than questions.
    pub fn answer(&self, message: M) {
        if let Some(to) = self.get() {
            to.do_send(message);
        }
    }

    /// Sends the message and waits until it was handled.
    pub async fn send(&self, message: M) -> Result<M::Result, NotTaken> {
        self.get().ok_or(NotTaken)?.send(message).await.map_err(|_| NotTaken)
    }
}

/// Tells the supervisor when the actor that holds it is dropped.
pub struct Lifeline {
    name: &'static str,
    deaths: mpsc::UnboundedSender<&'static str>,
}

impl Drop for Lifeline {
    fn drop(&mut self) {
        // Nobody listens once the node stops.
        let _ = self.deaths.send(self.name);
    }
}

type Respawn = Box<dyn Fn() + Send>;

/// Watches over the actors of a node.
pub struct Supervisor {
    deaths: mpsc::UnboundedReceiver<&'static str>,
    tell: mpsc::UnboundedSender<&'static str>,
    actors: Vec<(&'static str, Respawn)>,
}

impl Default for Supervisor {
    fn default() -> Self {
        Self::new()
    }
}

impl Supervisor {
    /// A supervisor without actors.
    pub fn new() -> Supervisor {
        let (tell, deaths) = mpsc::unbounded_channel();
        Supervisor { deaths, tell, actors: Vec::new() }
    }

    /// Starts an actor on `arbiter` and keeps it alive: `make` makes it, `bind` leads the links to it, each time anew.
    pub fn keep<A, F, B>(&mut self, name: &'static str, arbiter: &actix::ArbiterHandle, make: F, bind: B)
    where
        A: Actor<Context = Context<A>>,
        F: Fn(Lifeline) -> A + Clone + Send + 'static,
        B: Fn(&Addr<A>) + Send + 'static,
    {
        let (arbiter, deaths) = (arbiter.clone(), self.tell.clone());
        let respawn = move || {
            let (make, lifeline) = (make.clone(), Lifeline { name, deaths: deaths.clone() });
            let address = A::start_in_arbiter(&arbiter, move |_| make(lifeline));
            bind(&address);
        };
        respawn();
        self.actors.push((name, Box::new(respawn)));
    }

    /// Replaces what dies until the node `is_closing`. Returns, with a reason, when deaths pile up.
    pub async fn watch(mut self, is_closing: impl Fn() -> bool, died: impl Fn(&'static str)) -> String {
        let mut recent: VecDeque<Instant> = VecDeque::new();
        while let Some(name) = self.deaths.recv().await {
            if is_closing() {
                break;
            }
            died(name);
            let now = Instant::now();
            recent.push_back(now);
            while recent.front().is_some_and(|then| now - *then > RESTART_WINDOW) {
                recent.pop_front();
            }
            if recent.len() > RESTARTS_MAX {
                error!(actor = name, restarts = recent.len(), "actors keep dying");
                return format!("{} actors died within a minute, the last was the {name}", recent.len());
            }
            warn!(actor = name, "actor died and is replaced");
            if let Some((_, respawn)) = self.actors.iter().find(|(known, _)| *known == name) {
                respawn();
            }
        }
        "nobody is left to watch over".to_owned()
    }
}

/// Returns what leads to `address` as a recipient of `M`.
pub fn recipient<A, M>(address: &Addr<A>) -> Recipient<M>
where
    A: Actor<Context = Context<A>> + Handler<M>,
    A::Context: ToEnvelope<A, M>,
    M: Message + Send + 'static,
    M::Result: Send,
{
    address.clone().recipient()
}
