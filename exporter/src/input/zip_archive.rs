//! Zip archives. The directory is read once and shared by the readers of all files.
//!
//! File data is extracted in `stream`.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::FileExt as _,
    path::Path,
    sync::Arc,
};

use zip::ZipArchive;

use super::Limits;
use crate::error::{ConvertError, ErrorKind};

/// Archive reader. A clone shares the directory and has its own file position.
pub(super) type Archive = ZipArchive<ArchivePart>;

#[derive(Clone, Debug)]
pub(super) struct ArchivePart {
    file: Arc<File>,
    position: u64,
}

/// File of an archive, by its index in the directory.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) index: usize,
    pub(super) packed_bytes: u64,
}

/// Extracted size in bytes below which the expansion limit does not apply.
pub(super) const UNCHECKED_BYTES: u64 = 64 << 20;

/// Opens an archive and lists its data files. `stored_bytes` is the size of the input file, which may be compressed
/// once more.
pub(super) fn open(
    path: &Path,
    name: &str,
    stored_bytes: u64,
    limits: &Limits,
) -> Result<(Archive, Vec<Entry>), ConvertError> {
    let archive_error = |error: &dyn std::fmt::Display| {
        ConvertError::content(name, None, ErrorKind::Archive, format!("not a complete zip archive: {error}"))
    };
    let file = File::open(path).map_err(|error| ConvertError::io("opening", path, error))?;
    let size = file.metadata().map_err(|error| ConvertError::io("opening", path, error))?.len();
    let file = Arc::new(file);
    let archive = ZipArchive::new(ArchivePart { file: Arc::clone(&file), position: 0 }).map_err(|error| {
        match find_truncated_entry(&mut ArchivePart { file: Arc::clone(&file), position: 0 }, size) {
            Ok(Some(entry)) => archive_error(&format_args!("it ends within {entry}")),
            _ => archive_error(&error),
        }
    })?;
    limits.check_file_count(name, archive.len())?;
    let declared_count = declared_file_count(
        archive_end(&file, size).map_err(|error| ConvertError::io("reading", path, error))?.as_slice(),
    );
    // Only the last of several files with one name would be read, and the others would be lost silently.
    if declared_count.is_some_and(|count| count > archive.len()) {
        return Err(ConvertError::content(
            name,
            None,
            ErrorKind::Duplicate,
            "it contains several files with the same name",
        ));
    }
    let mut entries = Vec::new();
    let mut unpacked_bytes = 0_u64;
    for index in 0..archive.len() {
        let entry = archive.by_index_data(index).map_err(|error| archive_error(&error))?;
        let name = entry.name().map_err(|error| archive_error(&error))?.into_owned();
        // Desktop systems add folders and files without data of the export.
        if entry.is_dir() || name.starts_with("__MACOSX/") || name.ends_with(".DS_Store") {
            continue;
        }
        unpacked_bytes = unpacked_bytes.saturating_add(entry.size());
        entries.push(Entry { name, index, packed_bytes: entry.compressed_size() });
    }
    // The sum is checked: entries can share compressed bytes, so each one alone may look harmless.
    if unpacked_bytes > UNCHECKED_BYTES.max(stored_bytes.saturating_mul(limits.max_expansion)) {
        return Err(limits.bomb_error(name));
    }
    Ok((archive, entries))
}

/// True if an archive follows other data, as in a self-extracting one. Only files named `.zip` or `.exe` are
/// searched.
pub(super) fn has_appended_archive(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase);
    let opened = || File::open(path).and_then(|file| Ok((file.metadata()?.len(), file)));
    ending.is_some_and(|ending| ["zip", "exe"].contains(&ending.as_str()))
        && opened()
            .and_then(|(size, file)| archive_end(&file, size))
            .is_ok_and(|end| declared_file_count(&end).is_some())
}

/// Reads the end record of the directory: 22 bytes and a comment of up to 64 KiB.
fn archive_end(file: &File, size: u64) -> io::Result<Vec<u8>> {
    let offset = size.saturating_sub(22 + u64::from(u16::MAX));
    let mut end = vec![0; usize::try_from(size - offset).unwrap_or_default()];
    file.read_exact_at(&mut end, offset)?;
    Ok(end)
}

/// Number of files stated by the end record; `None` if it does not fit there. The zip reader keeps only the last of
/// several files with one name, so its count may be lower.
fn declared_file_count(end: &[u8]) -> Option<usize> {
    let at = memchr::memmem::rfind(end, b"PK\x05\x06")?;
    let count = u16::from_le_bytes(*end.get(at + 10..)?.first_chunk()?);
    // 65,535 marks a Zip64 directory with its own count.
    (count < u16::MAX).then_some(count.into())
}

/// Finds the file at which an archive without its directory was cut off, by walking the local headers.
fn find_truncated_entry(file: &mut ArchivePart, size: u64) -> io::Result<Option<String>> {
    let mut at = 0;
    while at < size {
        file.seek(SeekFrom::Start(at))?;
        let mut header = Vec::with_capacity(HEADER_BYTES);
        file.take(HEADER_BYTES as u64).read_to_end(&mut header)?;
        match header.first_chunk() {
            Some(b"PK\x03\x04") => {}
            Some(b"PK\x01\x02" | b"PK\x05\x06" | b"PK\x06\x06") => {
                return Ok(Some("its list of files".to_owned()));
            }
            _ => return Ok(None),
        }
        let short = |at: usize| Some(u16::from_le_bytes(*header.get(at..)?.first_chunk()?));
        let long = |at: usize| Some(u32::from_le_bytes(*header.get(at..)?.first_chunk()?));
        let (Some(flags), Some(packed_size), Some(name_length), Some(extra_length)) =
            (short(6), long(18), short(26), short(28))
        else {
            return Ok(None);
        };
        let mut name_bytes = Vec::new();
        if file.take(name_length.into()).read_to_end(&mut name_bytes)? < usize::from(name_length) {
            return Ok(None);
        }
        let truncated_entry = Ok(Some(String::from_utf8_lossy(&name_bytes).into_owned()));
        let data = at + HEADER_BYTES as u64 + u64::from(name_length) + u64::from(extra_length);
        let next = match packed_size {
            // The size is in a Zip64 field, which this search does not parse.
            u32::MAX => return Ok(None),
            0 if flags & HAS_DATA_DESCRIPTOR != 0 => find_data_end(file, data)?,
            size => Some(data + u64::from(size)),
        };
        match next {
            Some(next) if next <= size => at = next,
            _ => return truncated_entry,
        }
    }
    Ok(None)
}

/// Length of a local file header up to the name, in bytes.
const HEADER_BYTES: usize = 30;
/// Flag for a length behind the data instead of in the header.
const HAS_DATA_DESCRIPTOR: u16 = 1 << 3;

/// Offset behind the data descriptor of the data at `data`: the first one with a matching length.
fn find_data_end(file: &mut ArchivePart, data: u64) -> io::Result<Option<u64>> {
    let (mut window, mut window_start) = (Vec::new(), data);
    file.seek(SeekFrom::Start(data))?;
    loop {
        let byte_count = file.take(BLOCK).read_to_end(&mut window)?;
        for index in memchr::memmem::find_iter(&window, b"PK\x07\x08") {
            let length = window_start + index as u64 - data;
            let field_at = |at: usize| window.get(index + at..);
            if field_at(8)
                .and_then(|bytes| bytes.first_chunk())
                .is_some_and(|bytes| u64::from(u32::from_le_bytes(*bytes)) == length)
            {
                return Ok(Some(data + length + 16));
            }
        }
        if byte_count == 0 {
            return Ok(None);
        }
        // The descriptor may lie across two blocks, so the last bytes are kept.
        let consumed = window.len().saturating_sub(16);
        window.drain(..consumed);
        window_start += consumed as u64;
    }
}

const BLOCK: u64 = 1 << 20;

impl Read for ArchivePart {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.position)?;
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for ArchivePart {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (base, offset) = match to {
            SeekFrom::Start(at) => (at, 0),
            SeekFrom::Current(offset) => (self.position, offset),
            SeekFrom::End(offset) => (self.file.metadata()?.len(), offset),
        };
        self.position = base.checked_add_signed(offset).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}
