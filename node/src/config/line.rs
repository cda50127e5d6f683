//! Where in a file a setting stands, so that a mistake can be shown to whoever made it.

use toml::de::{DeTable, DeValue};

/// The line, from 1, of a setting such as `fetch.concurrency` or `cluster.peers[2].id`; if it is left out, that of its section.
pub(super) fn line_of(text: &str, setting: &str) -> Option<usize> {
    let table = DeTable::parse(text).ok()?;
    let mut found = None;
    let mut here = Place::Table(table.get_ref());
    'path: for name in setting.split('.') {
        let (name, indices) = name.split_once('[').map_or((name, ""), |(name, rest)| (name, rest));
        let Place::Table(table) = here else { break };
        let Some((_, value)) = table.iter().find(|(key, _)| key.get_ref().as_ref() == name) else { break };
        found = Some(value.span().start);
        here = Place::Value(value.get_ref());
        for index in indices.split(['[', ']']).filter(|index| !index.is_empty()) {
            let (Place::Value(DeValue::Array(array)), Ok(index)) = (here, index.parse::<usize>()) else { break 'path };
            let Some(value) = array.get(index) else { break 'path };
            found = Some(value.span().start);
            here = Place::Value(value.get_ref());
        }
        if let Place::Value(DeValue::Table(table)) = here {
            here = Place::Table(table);
        }
    }
    let start = found?;
    Some(text.get(..start)?.matches('\n').count() + 1)
}

#[derive(Clone, Copy)]
enum Place<'a> {
    Table(&'a DeTable<'a>),
    Value(&'a DeValue<'a>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_found_wherever_they_stand() {
        let text = "[fetch]\nconcurrency = 4\n\n[cluster]\nid = \"x\"\n[[cluster.peers]]\nid = \"a\"\n[[cluster.peers]]\n\
                    weight = 3\nid = \"b\"\n[cluster.lease]\nduration_s = 4\n";
        assert_eq!(line_of(text, "fetch.concurrency"), Some(2));
        assert_eq!(line_of(text, "cluster.peers[0].id"), Some(7));
        assert_eq!(line_of(text, "cluster.peers[1].id"), Some(10));
        assert_eq!(line_of(text, "cluster.lease.duration_s"), Some(12));
        let inline = "[cluster]\npeers = [\n  { id = \"a\", addresses = [\"x\",\n  \"y\"] },\n  { id = \"b\" },\n]\n";
        assert_eq!(line_of(inline, "cluster.peers[0].addresses[1]"), Some(4));
        assert_eq!(line_of(inline, "cluster.peers[1].weight"), Some(5), "left out: where its section is");
        assert_eq!(line_of(inline, "storage.data"), None);
        assert_eq!(line_of("= broken", "a.b"), None);
    }
}
