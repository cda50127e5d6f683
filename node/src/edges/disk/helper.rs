//! A thread that waits for the disk, so that the one that has the database can go on meanwhile.

use std::sync::mpsc;

use tokio::sync::oneshot;

use super::DiskError;

type Task = Box<dyn FnOnce() + Send>;

/// The thread. Dropped, it ends when it has done what it was given.
pub(super) struct Helper {
    tasks: mpsc::Sender<Task>,
}

/// Something that a helper does.
pub(super) struct UnderWay(oneshot::Receiver<Result<(), DiskError>>);

impl Helper {
    pub(super) fn start(name: &'static str) -> Result<Helper, DiskError> {
        let (tasks, given) = mpsc::channel::<Task>();
        std::thread::Builder::new()
            .name(name.into())
            .spawn(move || given.into_iter().for_each(|task| task()))
            .map_err(|error| DiskError::Failed(format!("cannot start the thread {name}: {error}")))?;
        Ok(Helper { tasks })
    }

    /// Has it do something; it does one thing after the other.
    pub(super) fn begin(&self, task: impl FnOnce() -> Result<(), DiskError> + Send + 'static) -> UnderWay {
        let (done, wait) = oneshot::channel();
        // A helper that is gone drops what it is given, which whoever waits hears.
        let _ = self.tasks.send(Box::new(move || drop(done.send(task()))));
        UnderWay(wait)
    }
}

impl UnderWay {
    /// Waits until it is done.
    pub(super) fn wait(self) -> Result<(), DiskError> {
        self.0.blocking_recv().unwrap_or(Err(DiskError::Stopped))
    }

    /// The same for who has something to do meanwhile.
    pub(super) async fn done(self) -> Result<(), DiskError> {
        self.0.await.unwrap_or(Err(DiskError::Stopped))
    }
}
