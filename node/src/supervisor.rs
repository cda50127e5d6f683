//! Keeps actors alive. actix revives an actor that stops, but not one that panics: there the task unwinds and every address is
//! dead for good. So neighbours hold a [`Link`] instead of an address, each actor carries a [`Lifeline`] whose drop tells
//! the supervisor, and the supervisor makes a new one from the same factory and binds the links anew.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
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

/// Counts what goes into an actor's mailbox and what it takes out, through its deaths: actix tells nobody. What an actor sends itself
/// is not counted.
#[derive(Debug, Default)]
pub struct Desk {
    capacity: AtomicU64,
    entered: AtomicU64,
    handled: AtomicU64,
    refused: AtomicU64,
    lost: AtomicU64,
    starts: AtomicU64,
}

impl Desk {
    /// Messages that wait. One that is on its way into a full mailbox counts too.
    pub fn waiting(&self) -> u64 {
        let gone = self.handled() + self.lost();
        self.entered.load(Relaxed).saturating_sub(gone)
    }

    /// Messages that are taken in before others are refused; 0 until the actor has said so.
    pub fn capacity(&self) -> u64 {
        self.capacity.load(Relaxed)
    }

    /// Messages that were handled.
    pub fn handled(&self) -> u64 {
        self.handled.load(Relaxed)
    }

    /// Messages that found the mailbox full, or the actor dead.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Messages that an actor died with.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    /// Times that the actor was replaced.
    pub fn restarts(&self) -> u64 {
        self.starts.load(Relaxed).saturating_sub(1)
    }

    /// An actor sends itself what else comes over a link.
    pub fn enters(&self) {
        self.entered(true);
    }

    fn entered(&self, taken: bool) {
        let count = if taken { &self.entered } else { &self.refused };
        count.fetch_add(1, Relaxed);
    }

    /// An actor begins with an empty mailbox.
    fn begin(&self) {
        let left = self.waiting();
        self.lost.fetch_add(left, Relaxed);
        self.starts.fetch_add(1, Relaxed);
    }
}

/// The way into the mailbox of one actor.
pub struct Entrance<M: Message + Send>
where
    M::Result: Send,
{
    to: Recipient<M>,
    desk: Arc<Desk>,
}

impl<M: Message + Send> Clone for Entrance<M>
where
    M::Result: Send,
{
    fn clone(&self) -> Self {
        Entrance { to: self.to.clone(), desk: Arc::clone(&self.desk) }
    }
}

/// An actor that was started, and where its messages are counted.
pub struct Seat<A: Actor> {
    address: Addr<A>,
    desk: Arc<Desk>,
}

/// The way to an actor, through its deaths.
pub struct Link<M: Message + Send>
where
    M::Result: Send,
{
    to: Arc<RwLock<Option<Entrance<M>>>>,
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
    pub fn bind(&self, to: Entrance<M>) {
        *self.to.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(to);
    }

    fn get(&self) -> Option<Entrance<M>> {
        self.to.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Puts the message into the mailbox, if there is room.
    pub fn pass(&self, message: M) -> Result<(), NotTaken> {
        let Entrance { to, desk } = self.get().ok_or(NotTaken)?;
        let passed = to.try_send(message).map_err(|_| NotTaken);
        desk.entered(passed.is_ok());
        passed
    }

    /// Puts the message into the mailbox whatever its bound: for answers, of which there are never more than questions.
    pub fn answer(&self, message: M) {
        if let Some(Entrance { to, desk }) = self.get() {
            desk.entered(to.connected());
            to.do_send(message);
        }
    }

    /// Sends the message and waits until it was handled.
    pub async fn send(&self, message: M) -> Result<M::Result, NotTaken> {
        let Entrance { to, desk } = self.get().ok_or(NotTaken)?;
        desk.entered(to.connected());
        to.send(message).await.map_err(|_| NotTaken)
    }
}

/// Tells the supervisor when the actor that holds it is dropped.
pub struct Lifeline {
    name: &'static str,
    deaths: mpsc::UnboundedSender<&'static str>,
    desk: Arc<Desk>,
}

impl Lifeline {
    /// The actor's mailbox takes so many messages in.
    pub fn has_room_for(&self, messages: usize) {
        self.desk.capacity.store(messages as u64, Relaxed);
    }

    /// Where its messages are counted.
    pub fn desk(&self) -> Arc<Desk> {
        Arc::clone(&self.desk)
    }

    /// The actor handles a message that came over a link.
    pub fn handles(&self) {
        self.desk.handled.fetch_add(1, Relaxed);
    }
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
    desks: Vec<(&'static str, Arc<Desk>)>,
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
        Supervisor { deaths, tell, actors: Vec::new(), desks: Vec::new() }
    }

    /// Where the messages of each actor are counted, in the order of their start.
    pub fn desks(&self) -> Vec<(&'static str, Arc<Desk>)> {
        self.desks.clone()
    }

    /// Starts an actor on `arbiter` and keeps it alive: `make` makes it, `bind` leads the links to it, each time anew.
    pub fn keep<A, F, B>(&mut self, name: &'static str, arbiter: &actix::ArbiterHandle, make: F, bind: B)
    where
        A: Actor<Context = Context<A>>,
        F: Fn(Lifeline) -> A + Clone + Send + 'static,
        B: Fn(&Seat<A>) + Send + 'static,
    {
        let (arbiter, deaths) = (arbiter.clone(), self.tell.clone());
        let desk = Arc::new(Desk::default());
        self.desks.push((name, Arc::clone(&desk)));
        let respawn = move || {
            desk.begin();
            let (make, desk) = (make.clone(), Arc::clone(&desk));
            let lifeline = Lifeline { name, deaths: deaths.clone(), desk: Arc::clone(&desk) };
            let address = A::start_in_arbiter(&arbiter, move |_| make(lifeline));
            bind(&Seat { address, desk });
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

/// Returns what leads to an actor as a recipient of `M`.
pub fn recipient<A, M>(seat: &Seat<A>) -> Entrance<M>
where
    A: Actor<Context = Context<A>> + Handler<M>,
    A::Context: ToEnvelope<A, M>,
    M: Message + Send + 'static,
    M::Result: Send,
{
    Entrance { to: seat.address.clone().recipient(), desk: Arc::clone(&seat.desk) }
}

/// The same for a message that the actor's desk does not count.
pub fn uncounted<A, M>(seat: &Seat<A>) -> Entrance<M>
where
    A: Actor<Context = Context<A>> + Handler<M>,
    A::Context: ToEnvelope<A, M>,
    M: Message + Send + 'static,
    M::Result: Send,
{
    Entrance { to: seat.address.clone().recipient(), desk: Arc::default() }
}
