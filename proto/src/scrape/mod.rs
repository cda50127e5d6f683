//! Rules that take pages apart: what a site wants to know of each of its pages, and how it is found there. Pure: a tree in, values out.
//!
//! A site says in its properties what is to become of its pages ([`Processing`], read when the site is made; what is wrong with a rule is said then, with rule and
//! place). Templates (`template`) name tags, and for each tag the targets at which it is looked for: XPath (`xpath`) or CSS
//! (`css`), which is read into the same expressions. `harvest` applies them to a [`Tree`], `output` writes
//! what was found as JSON, XML or HTML, `moment` understands dates, `feed` reads the entries of feeds.
//!
//! Pages and rules may both be hostile, together. What both cost is counted in [`Fuel`], and ends when it is used up; nothing here recurses with the depth of a page.

mod css;
mod feed;
mod harvest;
mod moment;
mod output;
mod processing;
mod target;
mod template;
mod tree;
mod xpath;

pub use self::feed::entries;
pub use self::harvest::{Harvest, Item, Page};
pub use self::moment::{DayOrder, MomentRules, recognise};
pub use self::processing::{About, DateSources, Hashing, Processing, Processor};
pub use self::target::Target;
pub use self::template::{TemplateError, Templates};
pub use self::tree::{Point, Tree, TreeBuilder};
pub use self::xpath::{EXPRESSION_CHARS_MAX, RuleError};

/// What one page may cost: about this many nodes that are looked at. On one core of 2020 some 50 million are a second.
pub const FUEL_PER_PAGE: u64 = 20_000_000;
/// Bytes of one value.
pub const VALUE_BYTES_MAX: usize = 512 << 10;
/// Bytes of all values of a page.
pub const PAGE_BYTES_MAX: usize = 1 << 20;

/// All that a page may cost is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted;

/// What a page may still cost.
#[derive(Clone, Copy, Debug)]
pub struct Fuel(u64);

impl Fuel {
    /// So much.
    pub fn new(amount: u64) -> Fuel {
        Fuel(amount)
    }

    fn burn(&mut self, amount: u64) -> Result<(), Exhausted> {
        match self.0.checked_sub(amount) {
            Some(left) => {
                self.0 = left;
                Ok(())
            }
            None => {
                self.0 = 0;
                Err(Exhausted)
            }
        }
    }

    /// Reading sixteen bytes costs as much as looking at a node.
    fn burn_text(&mut self, text: &str) -> Result<(), Exhausted> {
        self.burn(text.len() as u64 / 16 + 1)
    }
}
