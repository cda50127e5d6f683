//! What actors say to each other, one file per step of a URL's way.

mod batch;
mod control;
mod discovered;
mod fetched;
mod parsed;
mod stored;

pub use batch::{RunBatch, RunRobots};
pub use control::{Crash, GetStanding, Halt, Restart, Standing};
pub use discovered::DiscoveredUrls;
pub use fetched::{FetchEnded, FetchedPage, RobotsFetched};
pub use parsed::ParsedPage;
pub use stored::{DiskRequest, LandedPage, StorePage};
