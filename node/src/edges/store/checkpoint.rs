//! A copy of the database while it is in use.

use std::path::Path;

use rocksdb::checkpoint::Checkpoint;

use super::{Store, StoreError};
use crate::edges::warc::WarcEnd;

impl Store {
    /// Makes a copy of the database in the folder `to`, which must not be there yet, as of the last change; tables are linked
    /// where that is possible. Says how much of the archive that copy refers to.
    pub fn checkpoint(&self, to: &Path) -> Result<Option<WarcEnd>, StoreError> {
        let failed = |error: rocksdb::Error| StoreError::database(to, &error);
        Checkpoint::new(&self.db).map_err(failed)?.create_checkpoint(to).map_err(failed)?;
        Ok(self.state.warc_end)
    }
}
