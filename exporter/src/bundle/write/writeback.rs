//! Writes a growing file to disk in the background and drops it from the page cache.
//!
//! Durability comes from the final sync in `output`.

use std::{
    fs::File,
    io,
    sync::mpsc::{SyncSender, sync_channel},
    thread::{self, JoinHandle},
};

/// Bytes that are brought to disk together; thrice as many may wait for it. A file of many gigabytes would otherwise
/// push out of memory what other programs use, and new memory costs several times what used memory does.
const CHUNK: u64 = 64 << 20;

#[derive(Debug, Default)]
pub(super) struct Writeback {
    since: u64,
    thread: Option<(SyncSender<()>, JoinHandle<io::Result<()>>)>,
}

impl Writeback {
    /// Counts written bytes, and waits if the disk is behind.
    #[inline]
    pub(super) fn written(&mut self, file: &File, bytes: u64) -> io::Result<()> {
        self.since += bytes;
        if self.since < CHUNK { Ok(()) } else { self.settle(file) }
    }

    #[cold]
    fn settle(&mut self, file: &File) -> io::Result<()> {
        self.since = 0;
        if self.thread.is_none() {
            let file = file.try_clone()?;
            let (ask, asked) = sync_channel(1);
            let settle = move || {
                for () in asked {
                    file.sync_data()?;
                    forget(&file);
                }
                Ok(())
            };
            self.thread = Some((ask, thread::Builder::new().name("settle".to_owned()).spawn(settle)?));
        }
        match &self.thread {
            Some((ask, _)) if ask.send(()).is_err() => self.finish(),
            _ => Ok(()),
        }
    }

    /// Waits for the background sync, and reports its errors.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        let Some((ask, thread)) = self.thread.take() else { return Ok(()) };
        drop(ask);
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Drops pages that are on disk from memory. Advice only: its failure changes nothing.
#[cfg(target_os = "linux")]
fn forget(file: &File) {
    let _advice = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
}

#[cfg(not(target_os = "linux"))]
fn forget(_file: &File) {}
