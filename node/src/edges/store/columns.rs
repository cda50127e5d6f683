//! How the database is laid out: column families, their options, and the merge of in-links.

use std::path::Path;
use std::time::Duration;

use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, ColumnFamilyDescriptor, DBCompactionStyle, DBCompressionType,
    MergeOperands, Options, UniversalCompactOptions,
};

use super::{Database, StoreOptions};

/// All column families.
pub(super) const FAMILIES: [&str; 23] = [
    "url", "ready", "due", "flight", "aside", "host", "content", "copies", "digest", "seen", "tally", "meta", "client",
    "turn", "line", "agenda", "found", "page", "link", "note", "history", "untold", "level",
];

/// Bytes of in-links before a URL's record.
pub(super) const INLINKS_BYTES: usize = 4;

/// Log files that RocksDB keeps, and their size: its own logs grow without bound by default.
const LOG_FILES: usize = 4;
const LOG_BYTES: usize = 4 << 20;
/// A write-ahead log larger than this makes the oldest column family flush; it bounds the time to recover.
const WAL_BYTES_MAX: u64 = 256 << 20;
/// Files of one size that are merged into a larger one: fewer merges against more filters asked for each unknown URL.
const MERGED_AT: i32 = 8;
/// Files that differ by no more than this, in percent, count as of one size.
const SIZE_RATIO: i32 = 10;
/// Level of Zstandard for what has come to rest, and the window that RocksDB takes for its default.
const ZSTD_LEVEL: i32 = 1;
const WINDOW_BITS: i32 = -14;
/// Ten bits a key: one lookup of an unknown URL in a hundred reads a block.
const FILTER_BITS: f64 = 10.0;

/// How often, and how long apart, a folder is tried that a writer changes while it is opened.
const READ_TRIES: u32 = 5;
const READ_AGAIN_AFTER: Duration = Duration::from_millis(20);

pub(super) fn open(path: &Path, options: &StoreOptions) -> Result<Database, rocksdb::Error> {
    let mut database = database_options(options);
    database.create_if_missing(true);
    database.create_missing_column_families(true);
    Database::open_cf_descriptors(&database, path, families(options, |_| true))
}

/// Opens a folder that another process may be writing at this moment.
pub(super) fn open_for_reading(path: &Path, options: &StoreOptions) -> Result<Database, rocksdb::Error> {
    let mut tries = 1;
    loop {
        match open_as_it_is(path, options) {
            // The list of files named one that the writer has merged into others since.
            Err(_) if tries < READ_TRIES => tries += 1,
            opened => return opened,
        }
        std::thread::sleep(READ_AGAIN_AFTER);
    }
}

fn open_as_it_is(path: &Path, options: &StoreOptions) -> Result<Database, rocksdb::Error> {
    let mut database = database_options(options);
    // All files are opened now: one that is removed by the writer later can still be read.
    database.set_max_open_files(-1);
    // A folder that was written before a family was thought of does not have it until it is opened for writing.
    let there = Database::list_cf(&database, path)?;
    let families = families(options, |family| there.iter().any(|name| name == family));
    Database::open_cf_descriptors_read_only(&database, path, families, false)
}

fn database_options(options: &StoreOptions) -> Options {
    let mut database = Options::default();
    database.set_db_write_buffer_size(options.write_buffer_bytes);
    database.set_max_background_jobs(2);
    database.set_max_total_wal_size(WAL_BYTES_MAX);
    database.set_keep_log_file_num(LOG_FILES);
    database.set_max_log_file_size(LOG_BYTES);
    database.set_max_open_files(512);
    database.set_bytes_per_sync(1 << 20);
    database
}

fn families(options: &StoreOptions, wanted: impl Fn(&str) -> bool) -> Vec<ColumnFamilyDescriptor> {
    let cache = Cache::new_lru_cache(options.cache_bytes);
    let families = FAMILIES.iter().filter(|name| wanted(name));
    families.map(|name| ColumnFamilyDescriptor::new(*name, family_options(name, options, &cache))).collect()
}

fn family_options(name: &str, options: &StoreOptions, cache: &Cache) -> Options {
    let busy = matches!(name, "url" | "ready" | "client" | "turn");
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(cache);
    table.set_block_size(if busy { 8 << 10 } else { 4 << 10 });
    table.set_format_version(5);
    if matches!(name, "url" | "ready") {
        // An index of all blocks grows with the URLs, 2 MiB a million, and stays in memory with its table. In two levels only that of
        // its parts does; the parts come and go in the cache, like blocks.
        table.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    }
    if matches!(
        name,
        "url"
            | "flight"
            | "aside"
            | "host"
            | "copies"
            | "digest"
            | "seen"
            | "client"
            | "line"
            | "page"
            | "note"
            | "level"
    ) {
        // Filters stay with their tables: in a bounded cache they push each other out and every lookup reads one.
        table.set_bloom_filter(FILTER_BITS, false);
    }
    let mut family = Options::default();
    family.set_block_based_table_factory(&table);
    family.set_compression_type(DBCompressionType::Lz4);
    family.set_bottommost_compression_type(DBCompressionType::Zstd);
    family.set_write_buffer_size(if busy { options.write_buffer_bytes / 3 } else { options.write_buffer_bytes / 12 });
    family.set_max_write_buffer_number(3);
    if busy || name == "page" {
        merge_by_size(&mut family);
    }
    if name == "url" {
        family.set_merge_operator("orbweaver.inlinks", merge_inlinks, add_inlinks);
    }
    // Most URLs, pages and contents that are looked up here are new: a filter says so without a search.
    if matches!(name, "url" | "digest" | "client" | "page") {
        family.set_memtable_whole_key_filtering(true);
        family.set_memtable_prefix_bloom_ratio(0.05);
    }
    family
}

/// Ids are hashes, so new rows fall between all others, and levels rewrite ten old rows for a new one. Merging files of one
/// size rewrites each row as often as the store doubles: at 4 M known URLs 0.49 GB were written instead of 1.1 GB and took
/// 16 s of processor instead of 40, Zstandard at level 1 instead of 3 included, for 105 bytes a URL on disk instead of 97.
fn merge_by_size(family: &mut Options) {
    let mut universal = UniversalCompactOptions::default();
    universal.set_size_ratio(SIZE_RATIO);
    family.set_compaction_style(DBCompactionStyle::Universal);
    family.set_universal_compaction_options(&universal);
    family.set_level_zero_file_num_compaction_trigger(MERGED_AT);
    family.set_bottommost_compression_options(WINDOW_BITS, ZSTD_LEVEL, 0, 0, true);
}

/// An operand is a number to add to the in-links in front of the record. Total: bytes of any shape give some bytes.
fn merge_inlinks(_key: &[u8], existing: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    let mut value = existing.unwrap_or_default().to_vec();
    if value.len() < INLINKS_BYTES {
        value.resize(INLINKS_BYTES, 0);
    }
    let sum = operands.iter().fold(inlinks(&value), |sum, operand| sum.saturating_add(inlinks(operand)));
    value[..INLINKS_BYTES].copy_from_slice(&sum.to_le_bytes());
    Some(value)
}

fn add_inlinks(_key: &[u8], _existing: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    let sum = operands.iter().fold(0u32, |sum, operand| sum.saturating_add(inlinks(operand)));
    Some(sum.to_le_bytes().to_vec())
}

/// Reads the in-links in front of a value.
pub(super) fn inlinks(value: &[u8]) -> u32 {
    value.get(..INLINKS_BYTES).map_or(0, |bytes| u32::from_le_bytes(bytes.try_into().expect("four bytes")))
}
