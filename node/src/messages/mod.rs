//! What actors say to each other, one file per step of a URL's way.

mod admin;
mod batch;
mod cluster;
mod contents;
mod control;
mod define;
mod discovered;
mod entries;
mod fetched;
mod parsed;
mod rescored;
mod stored;

pub use admin::{CompareNow, ForgetNode, GetDigests, Retune, SlotDigests};
pub use batch::{RunBatch, RunRobots};
pub use cluster::{
    AmendRecords, ClientPlaces, ClusterView, FrontierUp, GetClientPlaces, GetClusterView, Heard, HoldJobs, KeepClients,
    KeptPage, Leave, NamedUrls, NewLife, NotSubmitted, Received, SubmitUrls, Told,
};
pub use contents::IsDispensable;
pub use control::{Crash, End, GetStanding, Halt, Hold, Restart, Standing};
pub use define::{Define, Defined};
pub use discovered::DiscoveredUrls;
pub use entries::{FeedEntries, KeepEntries};
pub use fetched::{FetchEnded, FetchedPage, RobotsFetched};
pub use parsed::ParsedPage;
pub use rescored::Rescored;
pub use stored::{DiskRequest, LandedPages, StorePage};
