//! What the program does with a layer: runs many seeds, runs seeds twice, hunts mutants, shrinks plans, draws a run.

pub mod many;
pub mod mutants;
pub mod shrink;
pub mod timeline;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use crate::invariants::Violation;
use crate::layer::{Layer, RunOptions, RunReport};
use crate::world::plan::Plan;

thread_local! {
    /// What the last panic of this thread said; `None` while panics are reported as usual.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `plan`; a panic in the code under test is a violation like any other, and carries where it was.
pub fn run(layer: &dyn Layer, plan: &Plan, options: &RunOptions) -> RunReport {
    catch_panics_quietly();
    PANIC.set(Some(String::new()));
    let report = catch_unwind(AssertUnwindSafe(|| layer.run(plan, options)));
    let said = PANIC.take().unwrap_or_default();
    report.unwrap_or_else(|_| RunReport {
        violation: Some(Violation { invariant: "I0 no_panic".to_owned(), at: 0, node: None, what: said }),
        ..RunReport::default()
    })
}

fn catch_panics_quietly() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let ours = PANIC.with_borrow_mut(|said| {
                if let Some(said) = said {
                    *said = panic.to_string().replace('\n', " ");
                }
                said.is_some()
            });
            if !ours {
                usual(panic);
            }
        }));
    });
}

/// A time as people read it.
pub fn seconds(micros: u64) -> String {
    format!("{}.{:03} s", micros / 1_000_000, micros / 1_000 % 1_000)
}

#[cfg(test)]
mod tests;
