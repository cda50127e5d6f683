//! Names under which nobody crawls any more: those of sites that were emptied or deleted since.
//!
//! A site that is emptied or deleted has a larger epoch, and with it another name. Whoever has heard of that epoch knows that all smaller ones are over, whatever of
//! them is in flight or comes back with a node that was away.

use std::collections::{BTreeMap, BTreeSet};

use super::SiteDefinition;
use crate::cluster::registry::{Definition, DefinitionKind};

/// Sites whose former names are dead.
#[derive(Clone, Debug, Default)]
pub struct Gone {
    /// By id: names with a smaller number are dead. Deleting raises it too, so that a site of the same id may begin anew.
    sites: BTreeMap<String, u32>,
    /// Names that crawls have.
    crawls: BTreeSet<String>,
}

impl Gone {
    /// Takes a definition in; says whether names are dead now that were not before.
    pub fn take(&mut self, definition: &Definition) -> bool {
        let name = &definition.key.name;
        match (definition.key.kind, &definition.body) {
            (DefinitionKind::Crawl, Some(_)) => drop(self.crawls.insert(name.clone())),
            (DefinitionKind::Crawl, None) => drop(self.crawls.remove(name)),
            (DefinitionKind::Site, Some(body)) => {
                if let Some((epoch @ 1.., _)) = SiteDefinition::standing(body)
                    && self.sites.get(name).is_none_or(|known| *known < epoch)
                {
                    self.sites.insert(name.clone(), epoch);
                    return true;
                }
            }
            _ => {}
        }
        false
    }

    /// Whether no name is dead.
    pub fn is_empty(&self) -> bool {
        self.sites.is_empty()
    }

    /// The ids of sites that have dead names.
    pub fn sites(&self) -> impl Iterator<Item = &str> {
        self.sites.keys().map(String::as_str)
    }

    /// Whether nobody runs a crawl of this name any more.
    pub fn has(&self, crawl: &str) -> bool {
        if self.sites.is_empty() || self.crawls.contains(crawl) {
            return false;
        }
        let (id, number) = match crawl.rsplit_once('~') {
            Some((id, number)) => match number.parse::<u32>() {
                Ok(number) => (id, number),
                Err(_) => return false,
            },
            None => (crawl, 0),
        };
        self.sites.get(id).is_some_and(|epoch| number < *epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::registry::{DefinitionKey, Version};
    use crate::id::NodeId;
    use crate::site::Site;

    fn definition(kind: DefinitionKind, name: &str, body: Option<Vec<u8>>) -> Definition {
        let version = Version { number: 1, node: NodeId(1), boot: 1 };
        Definition { key: DefinitionKey { kind, name: name.into() }, version, body }
    }

    fn site(epoch: u32, deleted: bool) -> Definition {
        let site = Site { id: "news".into(), ..Site::default() };
        let body = SiteDefinition { site, epoch, deleted }.encode().unwrap();
        definition(DefinitionKind::Site, "news", Some(body))
    }

    #[test]
    fn names_below_the_epoch_are_dead_and_stay_so() {
        let mut gone = Gone::default();
        assert!(!gone.take(&site(0, false)) && gone.is_empty() && !gone.has("news"));
        assert!(gone.take(&site(2, true)));
        assert!(gone.has("news") && gone.has("news~1") && !gone.has("news~2") && !gone.has("other"));
        assert!(!gone.take(&site(1, false)), "it is over already");
        assert!(gone.has("news~1") && !gone.has("news~x"));
        assert_eq!(gone.sites().collect::<Vec<_>>(), ["news"]);
    }

    #[test]
    fn a_crawl_of_such_a_name_lives() {
        let mut gone = Gone::default();
        gone.take(&site(3, false));
        assert!(!gone.take(&definition(DefinitionKind::Crawl, "news~1", Some(Vec::new()))));
        assert!(!gone.has("news~1") && gone.has("news~2"));
        gone.take(&definition(DefinitionKind::Crawl, "news~1", None));
        assert!(gone.has("news~1"));
    }
}
