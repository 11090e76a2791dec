//! Streams values as JSON into a formatter, without building the text in memory first.

use std::{
    fmt::{self, Display},
    io,
};

use serde::{Serialize, Serializer};

/// Wrapper that displays a value as JSON.
#[derive(Clone, Copy, Debug)]
pub struct JsonText<T>(pub T);

impl<T: Serialize> Display for JsonText<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        serde_json::to_writer(FormatterWriter(f), &self.0).map_err(|_| fmt::Error)
    }
}

/// Writer into a formatter. Each write must be valid UTF-8; `serde_json` never splits a character.
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

/// Array that converts its elements one at a time while it is serialized.
pub(crate) struct MappedArray<'a, T, F>(pub(crate) &'a [T], pub(crate) F);

impl<T, V: Serialize, F: Fn(&T) -> V> Serialize for MappedArray<'_, T, F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(&self.1))
    }
}
