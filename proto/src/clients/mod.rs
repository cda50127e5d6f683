//! Queues that clients fetch from: the URL Frontier's data model on our own slots, leases and replicas.
//!
//! A crawl has queues, a queue has a key of the client's choosing, and URLs with a date. A queue belongs to the slot of its key, as
//! hosts belong to the slot of their domain; the slot's owner decides, W of R disks keep what it decided, and only who holds the slot's lease hands
//! URLs out. [`identity`] names crawls, queues and URLs; [`record`] is what is replicated of them, in the same [`RecordCopy`](crate::cluster::copy::RecordCopy)
//! as every other record, so that writes, repair and moves of slots need to know nothing of it; [`gate`] decides when a queue may be served;
//! [`ask`] is what a node asks another on behalf of a client, and [`deadline`] until when that may take effect; [`ends`] counts leases; [`fetch`] is how the nodes' own fetchers are one more client. [`spider`] and [`page`] are for clients that
//! go by what pages are worth.
//!
//! **Nothing is removed one by one.** Forgetting a queue, or what is older than so many days, raises the queue's `cutoff`: every URL that was created
//! before it is dead, on whatever disk and in whatever letter it still is. So one small record does what tombstones of every URL would.

pub mod ask;
pub mod deadline;
pub mod ends;
pub mod fetch;
pub mod gate;
pub mod identity;
pub mod page;
pub mod record;
pub mod settings;
pub mod spider;
