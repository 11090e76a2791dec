//! File of an export under its temporary name: counts and hashes its bytes, and gets its final name when it is published.

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use tempfile::TempPath;

use crate::{
    bundle::write::output::{self, Output, append_to_name, replace_with_new_file},
    error::ConvertError,
    json::write::encode_hex,
};

/// Ending of the names of incomplete files.
pub(super) const PARTIAL_ENDING: &str = ".partial";
/// Bytes collected before they are hashed and written.
const BUFFER_BYTES: usize = 1 << 18;

/// Finished file of an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSummary {
    /// Path relative to the folder of the export, with `/`; the file name without a folder; `-` for standard output.
    pub name: String,
    pub rows: u64,
    pub bytes: u64,
    /// Digest of the file, in hexadecimal digits.
    pub sha256: String,
}

/// File or stream that is being written. A file is deleted on drop.
#[derive(Debug)]
pub(super) struct OutputFile {
    /// Name for summaries.
    name: String,
    paths: Option<FilePaths>,
    output: Output,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct FilePaths {
    path: PathBuf,
    partial: TempPath,
}

/// Complete file that still has its temporary name. Deleted on drop unless it is published.
#[derive(Debug)]
#[must_use]
pub(super) struct UnpublishedFile {
    paths: Option<FilePaths>,
    summary: FileSummary,
}

impl OutputFile {
    pub(super) fn create(path: &Path, name: &str) -> Result<Self, ConvertError> {
        let partial = append_to_name(path, PARTIAL_ENDING);
        let io_error = |error| ConvertError::io("writing", &partial, error);
        let file = replace_with_new_file(&partial).map_err(io_error)?;
        let output = Output::to_file(&partial, &file)?;
        let partial = TempPath::try_from_path(&partial).map_err(io_error)?;
        Ok(Self::new(name, Some(FilePaths { path: path.to_owned(), partial }), output))
    }

    pub(super) fn to_stream(stream: &File) -> Result<Self, ConvertError> {
        Ok(Self::new("-", None, Output::to_stream(stream)?))
    }

    fn new(name: &str, paths: Option<FilePaths>, output: Output) -> Self {
        Self { name: name.to_owned(), paths, output, buffer: Vec::with_capacity(BUFFER_BYTES) }
    }

    /// Name of the file in summaries and messages.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Buffer at the end of the file. The caller appends to it, and then calls [`OutputFile::write_full_buffer`].
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Writes the buffer if it is large enough for one write.
    #[inline]
    pub(super) fn write_full_buffer(&mut self) -> Result<(), ConvertError> {
        if self.buffer.len() < BUFFER_BYTES { Ok(()) } else { self.write_buffer() }
    }

    fn write_buffer(&mut self) -> Result<(), ConvertError> {
        self.output.write(&self.buffer)?;
        self.buffer.clear();
        // A row of many megabytes must not keep its memory until the end of the export.
        self.buffer.shrink_to(2 * BUFFER_BYTES);
        Ok(())
    }

    /// Syncs the file to disk. It keeps its temporary name.
    pub(super) fn finish(mut self, rows: u64) -> Result<UnpublishedFile, ConvertError> {
        self.write_buffer()?;
        self.output.sync()?;
        let (bytes, sha256) = (self.output.bytes(), encode_hex(&self.output.digest()));
        Ok(UnpublishedFile {
            paths: self.paths,
            summary: FileSummary { name: self.name, rows, bytes, sha256 },
        })
    }
}

/// For the Parquet writer. The error that `ConvertError::from_io` unwraps names the file.
impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        self.write_full_buffer().map_err(ConvertError::into_io)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write_buffer().map_err(ConvertError::into_io)
    }
}

impl UnpublishedFile {
    /// Gives the file its final name.
    pub(super) fn publish(self) -> Result<FileSummary, ConvertError> {
        if let Some(FilePaths { path, partial }) = &self.paths {
            output::publish(partial, path)?;
        }
        Ok(self.summary)
    }
}
