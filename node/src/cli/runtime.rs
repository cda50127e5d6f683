//! The threads that a crawl runs on, beside those of parsers and disk.

use tokio::runtime::{Builder, Runtime};

/// Cores up to which one thread fetches and runs the actors. Parsers and disk have threads of their own and keep two cores busy;
/// another two for fetching only take turns with them: 8 % more processor time a page.
const CORES_FEW: usize = 2;

/// A runtime for the actors of a crawl and its fetches.
pub(super) fn runtime() -> Runtime {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut builder = if cores <= CORES_FEW { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    builder.enable_all().thread_name("fetch").build().expect("the system lets us start threads")
}
