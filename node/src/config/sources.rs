//! The section `[sources]`: what scripts of generators may take.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::edges::script::ScriptLimits;

/// What scripts of generators may take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SourcesConfig {
    /// Scripts that run at once on a node; 0: none runs here, others execute those of the jobs that it holds.
    pub scripts_max: usize,
    /// Seconds after which a script is killed.
    pub script_time_max_s: u64,
    /// Bytes of memory of each of its processes.
    pub script_memory_bytes_max: u64,
    /// Bytes that it may print.
    pub script_output_bytes_max: u64,
    /// Processes that it may have at once.
    pub script_processes_max: u64,
    /// Bytes of a file that it may write.
    pub script_file_bytes_max: u64,
}

impl Default for SourcesConfig {
    fn default() -> Self {
        SourcesConfig {
            scripts_max: 2,
            script_time_max_s: 300,
            script_memory_bytes_max: 1 << 30,
            script_output_bytes_max: 16 << 20,
            script_processes_max: 32,
            script_file_bytes_max: 64 << 20,
        }
    }
}

impl SourcesConfig {
    /// What a script may take.
    pub fn limits(&self) -> ScriptLimits {
        ScriptLimits {
            time: Duration::from_secs(self.script_time_max_s),
            memory_bytes: self.script_memory_bytes_max,
            output_bytes: self.script_output_bytes_max,
            processes: self.script_processes_max,
            file_bytes: self.script_file_bytes_max,
        }
    }

    /// What is wrong with it, if something is.
    pub(super) fn fault(&self) -> Option<(&'static str, &'static str)> {
        if self.script_time_max_s == 0 || self.script_processes_max == 0 {
            return Some(("sources.script_time_max_s", "and sources.script_processes_max must be at least 1"));
        }
        if self.script_memory_bytes_max < 32 << 20 {
            return Some(("sources.script_memory_bytes_max", "must be at least 33554432: Python alone needs that"));
        }
        if self.script_output_bytes_max > 1 << 30 {
            return Some(("sources.script_output_bytes_max", "must be at most 1073741824: it is held in memory"));
        }
        None
    }
}
