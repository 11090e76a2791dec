//! Syncs a growing file to disk in the background and drops its pages from the page cache. `output` does the final
//! sync.

use std::{
    fs::File,
    io,
    sync::mpsc::{SyncSender, sync_channel},
    thread::{self, JoinHandle},
};

/// Bytes between two syncs. Up to three times as many can be unsynced: being written, queued, and being synced. Without
/// writeback, a file of many gigabytes evicts the pages of other programs, and writing to newly allocated pages costs
/// several times as much as reusing dropped ones.
const CHUNK_BYTES: u64 = 64 << 20;

/// Background sync of one file.
#[derive(Debug, Default)]
pub(super) struct Writeback {
    unsynced_bytes: u64,
    thread: Option<(SyncSender<()>, JoinHandle<io::Result<()>>)>,
}

impl Writeback {
    /// Counts written bytes. Blocks while the disk is more than one request behind.
    #[inline]
    pub(super) fn record_write(&mut self, file: &File, bytes: u64) -> io::Result<()> {
        self.unsynced_bytes += bytes;
        if self.unsynced_bytes < CHUNK_BYTES { Ok(()) } else { self.request_sync(file) }
    }

    #[cold]
    fn request_sync(&mut self, file: &File) -> io::Result<()> {
        self.unsynced_bytes = 0;
        if self.thread.is_none() {
            let file = file.try_clone()?;
            let (request, requests) = sync_channel(1);
            let sync_chunks = move || {
                for () in requests {
                    file.sync_data()?;
                    drop_cached_pages(&file);
                }
                Ok(())
            };
            self.thread =
                Some((request, thread::Builder::new().name("settle".to_owned()).spawn(sync_chunks)?));
        }
        match &self.thread {
            // A closed channel means that the thread ended with an error, which `finish` returns.
            Some((request, _)) if request.send(()).is_err() => self.finish(),
            _ => Ok(()),
        }
    }

    /// Waits for the background sync, and returns its error.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        let Some((request, thread)) = self.thread.take() else { return Ok(()) };
        drop(request);
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Advises the kernel to drop the file's clean pages. A failure only costs memory, so it is ignored.
#[cfg(target_os = "linux")]
fn drop_cached_pages(file: &File) {
    let _advice = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
}

#[cfg(not(target_os = "linux"))]
fn drop_cached_pages(_file: &File) {}
