//! A writer that keeps its bytes for the test.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};

/// Bytes written so far. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    /// Returns the written text, with replacements for invalid UTF-8.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
