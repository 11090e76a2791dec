//! Measures the free disk space of an embedded database and refuses writes that would leave too little for its
//! compaction.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

/// Upper bound of the reserve for files that are not counted: commits, the durable mark, files of the system.
const MARGIN_BYTES: u64 = 32 << 20;

/// Size of a disk and its free part, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskCapacity {
    pub free: u64,
    pub total: u64,
}

/// Disk of a data folder, shared by the writers of log and store.
#[derive(Debug)]
pub struct DiskSpace {
    folder: PathBuf,
    /// Bytes that a compaction can write before it deletes the tables that it replaces.
    compaction_bytes: AtomicU64,
}

impl DiskSpace {
    pub fn of(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), compaction_bytes: AtomicU64::new(0) }
    }

    /// Asks the operating system, which takes about a microsecond. `None` if the system cannot tell.
    #[cfg(unix)]
    pub fn space(&self) -> Option<DiskCapacity> {
        let disk = rustix::fs::statvfs(&self.folder).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
        Some(DiskCapacity { free: bytes(disk.f_bavail), total: bytes(disk.f_blocks) })
    }

    #[cfg(not(unix))]
    pub fn space(&self) -> Option<DiskCapacity> {
        None
    }

    pub fn set_compaction_bytes(&self, bytes: u64) {
        self.compaction_bytes.store(bytes, Ordering::Release);
    }

    /// Returns the free bytes that the database needs to flush its write buffers and to compact. With less free space,
    /// a flush can fail and the database accepts no further writes.
    pub fn needed_bytes(&self, unflushed: u64, total: u64) -> u64 {
        // On a small disk the fixed margin would refuse all writes, so the margin is at most a sixteenth of the disk.
        unflushed + self.compaction_bytes.load(Ordering::Acquire) + MARGIN_BYTES.min(total / 16)
    }

    /// Checks that a write of `bytes` leaves enough free space. The error states the free and the needed space.
    pub fn check_write(&self, unflushed: u64, bytes: usize) -> Result<(), String> {
        // Where free space cannot be measured, a refusal would stop the service on a healthy disk.
        let Some(DiskCapacity { free, total }) = self.space() else { return Ok(()) };
        // A row is stored in the journal and in a table until the journal is deleted.
        let write_bytes = 2 * bytes as u64;
        let needed_bytes = self.needed_bytes(unflushed, total);
        // Compared before the write: a write that finds the disk full poisons the embedded database and ends the
        // process.
        if free >= needed_bytes + write_bytes {
            return Ok(());
        }
        Err(format!(
            "the disk of the data folder has {} MiB free, and the database needs {} MiB to flush and compact what it holds \
             (stream.embedded.min_free_bytes keeps more): free space",
            free >> 20,
            needed_bytes >> 20
        ))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[cfg(unix)]
    #[test]
    fn write_that_leaves_too_little_space_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let disk = DiskSpace::of(folder.path());
        let space = disk.space().unwrap();
        assert!(space.free <= space.total && space.total > 0);
        assert_eq!(disk.check_write(0, 0), Ok(()), "this disk is full");
        assert!(disk.check_write(space.total, 0).unwrap_err().contains("MiB free"));
        disk.set_compaction_bytes(space.total);
        assert!(disk.check_write(0, 1).is_err());
    }

    #[test]
    fn margin_of_a_small_disk_is_a_sixteenth() {
        let disk = DiskSpace::of(Path::new("."));
        assert_eq!(disk.needed_bytes(5, 160), 15);
        assert_eq!(disk.needed_bytes(5, 1 << 40), 5 + MARGIN_BYTES);
    }
}
