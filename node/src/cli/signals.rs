//! Ctrl-C and SIGTERM.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Ctrl-C and SIGTERM, as often as they come.
pub(super) fn signals() -> std::io::Result<mpsc::Receiver<()>> {
    let (tell, signals) = mpsc::channel(4);
    for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
        let mut stream = signal(kind)?;
        let tell = tell.clone();
        tokio::spawn(async move { while stream.recv().await.is_some() && tell.send(()).await.is_ok() {} });
    }
    Ok(signals)
}

/// Says whether one of them has come, to who waits without a runtime.
pub(super) struct Flag(Arc<AtomicBool>);

impl Flag {
    pub(super) fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A flag that is raised by the first of them.
pub(super) fn flag() -> std::io::Result<Flag> {
    let raised = Arc::new(AtomicBool::new(false));
    let flag = Flag(Arc::clone(&raised));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let mut came = {
        let _inside = runtime.enter();
        signals()?
    };
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        runtime.block_on(async move {
            while came.recv().await.is_some() {
                raised.store(true, Ordering::Relaxed);
            }
        });
    })?;
    Ok(flag)
}
