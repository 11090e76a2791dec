//! Free space of the disk under a database, and what the database itself needs of it to go on.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

/// Largest part of the disk that stays free beside what is accounted for: commits, the mark, files of the system.
const MARGIN_BYTES: u64 = 32 << 20;

/// Size of a disk and the free part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    pub free: u64,
    pub total: u64,
}

/// The disk of a folder. The writers of log and store share it.
#[derive(Debug)]
pub struct DiskSpace {
    folder: PathBuf,
    /// Bytes that a compaction may write before it frees what it replaces.
    rewritten: AtomicU64,
}

impl DiskSpace {
    pub fn of(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), rewritten: AtomicU64::new(0) }
    }

    /// Asks the system, which takes a microsecond. `None`: it cannot tell.
    #[cfg(unix)]
    pub fn space(&self) -> Option<Space> {
        let disk = rustix::fs::statvfs(&self.folder).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
        Some(Space { free: bytes(disk.f_bavail), total: bytes(disk.f_blocks) })
    }

    #[cfg(not(unix))]
    pub fn space(&self) -> Option<Space> {
        None
    }

    pub fn set_rewritten(&self, bytes: u64) {
        self.rewritten.store(bytes, Ordering::Release);
    }

    /// Returns the bytes that the database needs to write what it holds in memory and to compact. A write that leaves
    /// less may make it fail for good.
    pub fn needed(&self, unflushed: u64, total: u64) -> u64 {
        unflushed + self.rewritten.load(Ordering::Acquire) + MARGIN_BYTES.min(total / 16)
    }

    /// Checks that a write of some bytes leaves what the database needs. The error says how much is free.
    pub fn admits(&self, unflushed: u64, bytes: usize) -> Result<(), String> {
        let Some(Space { free, total }) = self.space() else { return Ok(()) };
        // Once in the journal, once in a table, until the journal is dropped.
        let written = 2 * bytes as u64;
        let needed = self.needed(unflushed, total);
        if free >= needed + written {
            return Ok(());
        }
        Err(format!(
            "the disk of the data folder has {} MiB free, and the database needs {} MiB to flush and compact what it holds \
             (stream.embedded.min_free_bytes keeps more): free space",
            free >> 20,
            needed >> 20
        ))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_write_that_leaves_too_little_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let disk = DiskSpace::of(folder.path());
        let space = disk.space().unwrap();
        assert!(space.free <= space.total && space.total > 0);
        assert_eq!(disk.admits(0, 0), Ok(()), "this disk is full");
        assert!(disk.admits(space.total, 0).unwrap_err().contains("MiB free"));
        disk.set_rewritten(space.total);
        assert!(disk.admits(0, 1).is_err());
    }

    #[test]
    fn a_small_disk_keeps_a_sixteenth_at_most() {
        let disk = DiskSpace::of(Path::new("."));
        assert_eq!(disk.needed(5, 160), 15);
        assert_eq!(disk.needed(5, 1 << 40), 5 + MARGIN_BYTES);
    }
}
