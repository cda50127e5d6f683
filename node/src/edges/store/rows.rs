//! The rows of a change, brought into the order of their keys before they are written.
//!
//! RocksDB keeps its place in a memtable from one insertion to the next: rows in order are found near the last one, rows
//! in the order of admission are each searched for from the top, which was a third of what admitting a URL costs.

use rocksdb::{ColumnFamily, WriteBatch};

/// What is done with a row.
#[derive(Clone, Copy)]
enum What {
    Put,
    Delete,
    Merge,
}

struct Row {
    family: &'static str,
    what: What,
    /// First bytes of the key: most rows are in order by them alone.
    prefix: u64,
    start: usize,
    key_end: usize,
    end: usize,
}

impl Row {
    fn is_replaced_by(&self, next: &Row, bytes: &[u8]) -> bool {
        !matches!(next.what, What::Merge) && bytes[self.start..self.key_end] == bytes[next.start..next.key_end]
    }
}

/// Rows to be written together.
#[derive(Default)]
pub(super) struct Rows {
    bytes: Vec<u8>,
    rows: Vec<Row>,
}

impl Rows {
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Keys of a family that have rows here.
    pub(super) fn keys(&self, family: &'static str) -> impl Iterator<Item = &[u8]> {
        self.rows.iter().filter(move |row| row.family == family).map(|row| &self.bytes[row.start..row.key_end])
    }

    /// Keys of the rows that are put into these families.
    pub(super) fn put_keys(&self, families: &[&'static str]) -> impl Iterator<Item = (&'static str, &[u8])> {
        let put = self.rows.iter().filter(|row| matches!(row.what, What::Put) && families.contains(&row.family));
        put.map(|row| (row.family, &self.bytes[row.start..row.key_end]))
    }

    /// Adds a row whose value `write` appends to what it is given.
    pub(super) fn put<E>(
        &mut self,
        family: &'static str,
        key: &[u8],
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (start, key_end) = self.begin(key);
        write(&mut self.bytes)?;
        self.end(family, What::Put, start, key_end);
        Ok(())
    }

    pub(super) fn merge(&mut self, family: &'static str, key: &[u8], operand: &[u8]) {
        let (start, key_end) = self.begin(key);
        self.bytes.extend_from_slice(operand);
        self.end(family, What::Merge, start, key_end);
    }

    pub(super) fn delete(&mut self, family: &'static str, key: &[u8]) {
        let (start, key_end) = self.begin(key);
        self.end(family, What::Delete, start, key_end);
    }

    fn begin(&mut self, key: &[u8]) -> (usize, usize) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        (start, self.bytes.len())
    }

    fn end(&mut self, family: &'static str, what: What, start: usize, key_end: usize) {
        let mut prefix = [0; 8];
        let length = prefix.len().min(key_end - start);
        prefix[..length].copy_from_slice(&self.bytes[start..start + length]);
        let (prefix, end) = (u64::from_be_bytes(prefix), self.bytes.len());
        self.rows.push(Row { family, what, prefix, start, key_end, end });
    }

    /// The batch that writes them: family by family, key by key; rows of one key stay in the order in which they came.
    pub(super) fn into_batch<'a>(mut self, family: impl Fn(&'static str) -> &'a ColumnFamily) -> WriteBatch {
        let bytes = &self.bytes;
        self.rows.sort_by(|a, b| {
            let (a_key, b_key) = (&bytes[a.start..a.key_end], &bytes[b.start..b.key_end]);
            a.family.cmp(b.family).then(a.prefix.cmp(&b.prefix)).then_with(|| a_key.cmp(b_key))
        });
        let mut batch = WriteBatch::default();
        for of_one in self.rows.chunk_by(|a, b| a.family == b.family) {
            let column = family(of_one[0].family);
            for (row, next) in of_one.iter().zip(of_one.iter().skip(1).map(Some).chain([None])) {
                // A row that the next one replaces: put down as handed out and landed within one group, mostly.
                if next.is_some_and(|next| row.is_replaced_by(next, bytes)) {
                    continue;
                }
                let (key, value) = (&bytes[row.start..row.key_end], &bytes[row.key_end..row.end]);
                match row.what {
                    What::Put => batch.put_cf(column, key, value),
                    What::Delete => batch.delete_cf(column, key),
                    What::Merge => batch.merge_cf(column, key, value),
                }
            }
        }
        batch
    }
}
