//! Stands in for `futures-timer`: the same `Delay`, on tokio's clock, which can be paused.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

/// A time to wait for.
#[derive(Debug)]
pub struct Delay(Pin<Box<Sleep>>);

impl Delay {
    /// Is over after `duration`.
    pub fn new(duration: Duration) -> Delay {
        Delay(Box::pin(sleep(duration)))
    }

    /// Begins anew.
    pub fn reset(&mut self, duration: Duration) {
        self.0.as_mut().reset(Instant::now() + duration);
    }
}

impl Future for Delay {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(context)
    }
}
