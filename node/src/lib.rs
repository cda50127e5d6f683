//! The actors, edges and doors of a node. Reading order: [`node`] shows how everything is connected, [`actors`] what each part
//! does, [`messages`] what they say to each other; [`clustered`] puts it into a cluster; [`scoring`] says what pages are worth; [`edges`] are the only code that touches the outside, [`extract`] reads pages,
//! [`doors`] let people in, [`ose`] works on site folders of another system, [`cli`] is the program.

pub mod actors;
pub mod batch;
pub mod cli;
pub mod clustered;
pub mod config;
pub mod crawls;
pub mod doors;
pub mod edges;
pub mod extract;
pub mod logging;
pub mod messages;
pub mod metrics;
pub mod node;
pub mod ose;
pub mod process;
pub mod scoring;
pub mod supervisor;
pub mod tuning;
