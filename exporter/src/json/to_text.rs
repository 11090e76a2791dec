//! Values that are written as JSON piece by piece, without being built in memory first.

use std::{
    fmt::{self, Display},
    io,
};

use serde::{Serialize, Serializer};

/// A value whose text is its JSON.
#[derive(Clone, Copy, Debug)]
pub struct JsonText<T>(pub T);

impl<T: Serialize> Display for JsonText<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        serde_json::to_writer(FormatterWriter(f), &self.0).map_err(|_| fmt::Error)
    }
}

/// Writer into a formatter. `serde_json` writes whole characters only.
struct FormatterWriter<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl io::Write for FormatterWriter<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = std::str::from_utf8(bytes).map_err(io::Error::other)?;
        self.0.write_str(text).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Array whose elements are made one after the other.
pub(crate) struct Each<'a, T, F>(pub(crate) &'a [T], pub(crate) F);

impl<T, V: Serialize, F: Fn(&T) -> V> Serialize for Each<'_, T, F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(&self.1))
    }
}
