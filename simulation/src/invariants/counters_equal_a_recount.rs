//! I21: when the cluster is calm, what the nodes tell of each crawl and site, each of the slots that it holds, is what counting every record of it gives: URLs known,
//! pages, and failures.
//!
//! Harm: a site shows pages that it has not, or not those it has, and its limits stop it too early or never.

use std::collections::BTreeMap;

use proto::crawl::politeness::Micros;

use super::{Broken, Invariant};
use crate::world::oracle::Oracle;
use crate::world::trace::Event;

/// See the module.
#[derive(Default)]
pub struct CountersEqualARecount {
    /// What the last count gave, if it was wrong.
    wrong: Option<String>,
}

impl CountersEqualARecount {
    /// Says which counter is wrong as of the last count.
    pub fn missing(&self) -> Option<String> {
        self.wrong.clone()
    }
}

impl Invariant for CountersEqualARecount {
    const NAME: &'static str = "I21 counters_equal_a_recount";

    /// A slot may be on its way to another holder when it is counted: only what stays wrong breaks it, see [`super::Invariants::miscounted`].
    fn see(&mut self, _before: &Oracle, _at: Micros, event: &Event) -> Result<(), Broken> {
        if let Event::CrawlsCounted { told, recount } = event {
            let told: BTreeMap<&String, [u64; 3]> = told.iter().map(|(crawl, counts)| (crawl, *counts)).collect();
            let recount: BTreeMap<&String, [u64; 3]> = recount.iter().map(|(crawl, counts)| (crawl, *counts)).collect();
            let names = told.keys().chain(recount.keys());
            self.wrong = names.map(|name| (name, told.get(name), recount.get(name))).find_map(|(name, told, there)| {
                let (told, there) = (told.copied().unwrap_or_default(), there.copied().unwrap_or_default());
                (told != there).then(|| format!("of {name} {told:?} is told and {there:?} is there"))
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::show;
    use super::*;

    fn judge(told: &[(&str, [u64; 3])], recount: &[(&str, [u64; 3])]) -> Option<String> {
        let list = |counts: &[(&str, [u64; 3])]| counts.iter().map(|(name, is)| ((*name).to_owned(), *is)).collect();
        let mut invariant = CountersEqualARecount::default();
        let event = Event::CrawlsCounted { told: list(told), recount: list(recount) };
        assert_eq!(show(&mut invariant, [(0, event)]), Ok(()));
        invariant.missing()
    }

    #[test]
    fn what_is_told_must_be_what_is_there() {
        assert_eq!(judge(&[("a", [3, 2, 1])], &[("a", [3, 2, 1])]), None);
        assert_eq!(judge(&[("a", [3, 2, 1]), ("b", [0; 3])], &[("a", [3, 2, 1])]), None, "nothing is nothing");
        assert!(judge(&[("a", [3, 2, 1])], &[("a", [3, 1, 2])]).is_some_and(|what| what.contains("of a")));
        assert!(judge(&[], &[("a", [1, 0, 0])]).is_some() && judge(&[("a", [1, 0, 0])], &[]).is_some());
    }

    #[test]
    fn a_later_count_that_is_right_counts() {
        let mut invariant = CountersEqualARecount::default();
        let count = |known| vec![("a".to_owned(), [known, 0, 0])];
        let events =
            [(2, 1), (1, 1)].map(|(told, there)| Event::CrawlsCounted { told: count(told), recount: count(there) });
        assert_eq!(show(&mut invariant, events.map(|event| (0, event))), Ok(()));
        assert_eq!(invariant.missing(), None);
    }
}
