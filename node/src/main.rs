//! Reads arguments, starts what was asked for, and turns the outcome into an exit code; nothing else.

use std::process::ExitCode;

/// RocksDB's C++ and our Rust share one heap, so fragmentation is bounded once.
#[global_allocator]
static HEAP: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    node::cli::run()
}
