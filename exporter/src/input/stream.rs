//! Reads one file on its own thread: decompressed, hashed and metered.

use std::{
    cell::Cell,
    fs::File,
    io::{self, Read},
    path::Path,
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender, SyncSender},
    },
    thread,
};

use sha2::{Digest as _, Sha256};

use super::{
    Limits,
    zip_archive::{Archive, Entry, UNCHECKED_BYTES},
};
use crate::{
    error::{ConvertError, ErrorKind},
    meter::Meter,
    unpack::{Compression, damage_of, unpack_as},
};

/// Block size in bytes, large enough that the cost of the channel is negligible.
const BLOCK_BYTES: usize = 512 << 10;
/// Blocks in the channel.
const MAX_QUEUED_BLOCKS: usize = 3;

#[derive(Clone, Debug)]
pub(super) enum MemberLocation {
    File { path: Arc<Path> },
    Zip { archive_name: Arc<str>, archive: Archive, entry: Entry },
}

/// Options for reading a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadOptions {
    /// Adds the stored bytes to the meter.
    pub(super) is_metered: bool,
    pub(super) with_digest: bool,
    /// Returns the stored bytes without decompressing them.
    pub(super) keep_packed: bool,
    /// Returns all readable content before an error.
    pub(super) allows_damage: bool,
}

/// Size and digest of a file, available at its end. A compressed file is hashed as stored, so that people can check
/// it with standard tools. The digest is zero if it was not requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileDigest {
    pub(crate) bytes: u64,
    pub(crate) sha256: [u8; 32],
}

/// Message of the reader thread, with the number of stored bytes read so far.
enum ReaderMessage {
    Bytes(Vec<u8>, u64),
    End(FileDigest, u64),
    Failed(ConvertError),
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) name: String,
    messages: Receiver<ReaderMessage>,
    recycled_blocks: Sender<Vec<u8>>,
    current: Vec<u8>,
    position: usize,
    digest: Option<FileDigest>,
    meter: Arc<Meter>,
    /// Stored bytes already added to the meter; `None` if the file is not metered.
    metered_bytes: Option<u64>,
}

impl Stream {
    pub(super) fn start(
        name: &str,
        location: &MemberLocation,
        limits: &Limits,
        meter: &Arc<Meter>,
        options: ReadOptions,
    ) -> Result<Self, ConvertError> {
        let (sender, messages) = mpsc::sync_channel(MAX_QUEUED_BLOCKS);
        let (recycled_blocks, recycled) = mpsc::channel();
        let source = match location {
            MemberLocation::File { path } => {
                ByteSource::File(File::open(path).map_err(|error| ConvertError::io("opening", path, error))?)
            }
            MemberLocation::Zip { archive, entry, .. } => ByteSource::Zip(archive.clone(), entry.clone()),
        };
        let (file_name, limits) = (name.to_owned(), *limits);
        let archive_name = match location {
            MemberLocation::File { .. } => None,
            MemberLocation::Zip { archive_name, .. } => Some(Arc::clone(archive_name)),
        };
        let reader = ReaderThread { name: file_name, archive_name, limits, options, sender, recycled };
        thread::Builder::new()
            .name("read".to_owned())
            .spawn(move || reader.run(source))
            .map_err(|error| ConvertError::Io { action: "starting a thread".to_owned(), error })?;
        let (name, meter, metered_bytes) =
            (name.to_owned(), Arc::clone(meter), options.is_metered.then_some(0));
        Ok(Self {
            name,
            messages,
            recycled_blocks,
            current: Vec::new(),
            position: 0,
            digest: None,
            meter,
            metered_bytes,
        })
    }

    /// Returns the next block, or `None` at the end. Fails if a stop was requested. The memory of `recycled` is
    /// reused.
    pub(crate) fn block(&mut self, recycled: Vec<u8>) -> Result<Option<Vec<u8>>, ConvertError> {
        if self.digest.is_some() {
            return Ok(None);
        }
        self.meter.check_stop()?;
        if recycled.capacity() >= BLOCK_BYTES {
            // The reader thread may have ended already.
            let _reader_gone = self.recycled_blocks.send(recycled);
        }
        match self.messages.recv() {
            Ok(ReaderMessage::Bytes(bytes, stored)) => {
                self.count_bytes(stored);
                Ok(Some(bytes))
            }
            Ok(ReaderMessage::End(digest, stored)) => {
                self.count_bytes(stored);
                self.digest = Some(digest);
                Ok(None)
            }
            Ok(ReaderMessage::Failed(error)) => Err(error),
            Err(_) => Err(ConvertError::Io {
                action: format!("reading {}", self.name),
                error: io::Error::other("the reading thread ended early"),
            }),
        }
    }

    /// Adds the bytes of blocks that were received. Blocks still in the channel may never be used.
    fn count_bytes(&mut self, stored: u64) {
        if let Some(metered_bytes) = &mut self.metered_bytes {
            // `stored` is cumulative, the meter adds differences.
            self.meter.add_read(stored.saturating_sub(*metered_bytes));
            *metered_bytes = stored;
        }
    }

    /// Reads the rest and returns the digest of the whole file.
    pub(crate) fn finish(self) -> Result<FileDigest, ConvertError> {
        self.for_each_block(|_| Ok(()))
    }

    /// Calls `on_block` for each block, and returns the digest of the whole file.
    pub(crate) fn for_each_block(
        mut self,
        mut on_block: impl FnMut(&[u8]) -> Result<(), ConvertError>,
    ) -> Result<FileDigest, ConvertError> {
        let mut recycled = Vec::new();
        while let Some(block) = self.block(recycled)? {
            on_block(&block)?;
            recycled = block;
        }
        self.digest
            .ok_or_else(|| ConvertError::Refused("the reading thread sent no end of the file".to_owned()))
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.position == self.current.len() {
            let recycled = std::mem::take(&mut self.current);
            self.position = 0;
            match self.block(recycled).map_err(ConvertError::into_io)? {
                Some(block) => self.current = block,
                None => return Ok(0),
            }
        }
        let count = buffer.len().min(self.current.len() - self.position);
        buffer[..count].copy_from_slice(&self.current[self.position..self.position + count]);
        self.position += count;
        Ok(count)
    }
}

enum ByteSource {
    File(File),
    Zip(Archive, Entry),
}

struct ReaderThread {
    name: String,
    /// Name of the archive that contains the file.
    archive_name: Option<Arc<str>>,
    limits: Limits,
    options: ReadOptions,
    sender: SyncSender<ReaderMessage>,
    recycled: Receiver<Vec<u8>>,
}

impl ReaderThread {
    fn run(self, source: ByteSource) {
        let message = match self.send_content(source) {
            Ok(Some((digest, stored))) => ReaderMessage::End(digest, stored),
            Ok(None) => return,
            Err(error) => ReaderMessage::Failed(error),
        };
        // The receiver is closed if the conversion has failed elsewhere.
        let _receiver_gone = self.sender.send(message);
    }

    /// Sends the content; `None` if the receiver is closed.
    fn send_content(&self, source: ByteSource) -> Result<Option<(FileDigest, u64)>, ConvertError> {
        match source {
            ByteSource::File(file) => self.send_file(file),
            ByteSource::Zip(mut archive, Entry { index, packed_bytes, .. }) => {
                let file = archive.by_index(index).map_err(|error| {
                    self.damage_error(
                        ErrorKind::Archive,
                        &format!("not readable in its zip archive: {error}"),
                    )
                })?;
                let (size, bytes_read) = (u128::from(file.size().max(1)), Cell::new(0));
                let mut reader = HashingReader::new(file, &bytes_read, self.options.with_digest);
                let stored = || {
                    // The position within the archive is unknown here, so it is estimated from the share of extracted
                    // bytes.
                    let part = u128::from(packed_bytes) * u128::from(bytes_read.get()) / size;
                    u64::try_from(part).unwrap_or(packed_bytes).min(packed_bytes)
                };
                let read_error = |error| self.unreadable_error(true, error);
                let (compression, magic) = self.detect_compression(&mut reader).map_err(read_error)?;
                let content = unpack_as(compression, magic, &mut reader).map_err(read_error)?;
                if !self.send_blocks(content, || Some(packed_bytes), stored)? {
                    return Ok(None);
                }
                io::copy(&mut reader, &mut io::sink()).map_err(read_error)?;
                // A file of an archive is hashed as extracted: that is how people see it.
                Ok(Some((reader.finish(), packed_bytes)))
            }
        }
    }

    fn detect_compression(&self, input: &mut impl Read) -> io::Result<(Compression, Vec<u8>)> {
        let (compression, magic) = Compression::detect(input)?;
        Ok((if self.options.keep_packed { Compression::Plain } else { compression }, magic))
    }

    fn send_file(&self, file: File) -> Result<Option<(FileDigest, u64)>, ConvertError> {
        let bytes_read = Cell::new(0);
        let mut reader = HashingReader::new(file, &bytes_read, self.options.with_digest);
        let read_error = |error| ConvertError::Io { action: format!("reading {}", self.name), error };
        let (compression, magic) = self.detect_compression(&mut reader).map_err(read_error)?;
        let packed_bytes =
            || matches!(compression, Compression::Gzip | Compression::Zstd).then(|| bytes_read.get());
        let content = unpack_as(compression, magic, &mut reader);
        let content = content.map_err(|error| self.unreadable_error(packed_bytes().is_some(), error))?;
        if !self.send_blocks(content, packed_bytes, || bytes_read.get())? {
            return Ok(None);
        }
        io::copy(&mut reader, &mut io::sink()).map_err(read_error)?;
        Ok(Some((reader.finish(), bytes_read.get())))
    }

    /// Sends blocks; false if the receiver is closed. `packed_bytes` returns the compressed bytes read so far, or
    /// `None` for uncompressed data; `stored` returns the stored bytes.
    fn send_blocks(
        &self,
        mut content: impl Read,
        packed_bytes: impl Fn() -> Option<u64>,
        stored: impl Fn() -> u64,
    ) -> Result<bool, ConvertError> {
        let mut sent_bytes = 0_u64;
        loop {
            let mut block = self.recycled.try_recv().unwrap_or_default();
            block.clear();
            block.reserve(BLOCK_BYTES);
            // Decoders return little data per call, so the block is filled before it is sent.
            let result = content.by_ref().take(BLOCK_BYTES as u64).read_to_end(&mut block);
            if let Err(error) = result {
                if self.options.allows_damage && !block.is_empty() {
                    let _receiver_gone = self.sender.send(ReaderMessage::Bytes(block, stored()));
                }
                return Err(self.unreadable_error(packed_bytes().is_some(), error));
            }
            if block.is_empty() {
                return Ok(true);
            }
            sent_bytes += block.len() as u64;
            if let Some(packed_size) = packed_bytes()
                // Checked while unpacking: the sizes in headers may be false.
                && sent_bytes > UNCHECKED_BYTES.max(packed_size.saturating_mul(self.limits.max_expansion))
            {
                return Err(self.limits.bomb_error(&self.name));
            }
            if self.sender.send(ReaderMessage::Bytes(block, stored())).is_err() {
                return Ok(false);
            }
        }
    }

    fn unreadable_error(&self, is_packed: bool, error: io::Error) -> ConvertError {
        match damage_of(&error).filter(|_| is_packed) {
            Some(detail) => self.damage_error(ErrorKind::Compressed, &detail),
            None => ConvertError::Io { action: format!("reading {}", self.name), error },
        }
    }

    fn damage_error(&self, kind: ErrorKind, detail: &str) -> ConvertError {
        let location =
            self.archive_name.as_ref().map_or_else(String::new, |archive| format!(" (in {archive})"));
        ConvertError::content(&self.name, None, kind, format!("{detail}{location}"))
    }
}

/// Counts and optionally hashes the bytes read through it.
struct HashingReader<'c, R> {
    inner: R,
    bytes: &'c Cell<u64>,
    sha256: Option<Sha256>,
}

impl<'c, R: Read> HashingReader<'c, R> {
    fn new(inner: R, bytes: &'c Cell<u64>, with_digest: bool) -> Self {
        Self { inner, bytes, sha256: with_digest.then(Sha256::new) }
    }

    fn finish(self) -> FileDigest {
        let sha256 = self.sha256.map_or([0; 32], |sha256| sha256.finalize().into());
        FileDigest { bytes: self.bytes.get(), sha256 }
    }
}

impl<R: Read> Read for HashingReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        if let Some(sha256) = &mut self.sha256 {
            sha256.update(&buffer[..count]);
        }
        self.bytes.set(self.bytes.get() + count as u64);
        Ok(count)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{fs, io::Write as _};

    use super::*;
    use crate::input::Input;

    fn pack_in_every_way(text: &[u8]) -> [(&'static str, Vec<u8>); 4] {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(text).unwrap();
        let mut writer = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
        writer.start_file("t.csv", zip::write::SimpleFileOptions::default()).unwrap();
        writer.write_all(text).unwrap();
        [
            ("t.csv", text.to_owned()),
            ("t.csv.gz", gzip.finish().unwrap()),
            ("t.csv.zst", zstd::encode_all(text, 1).unwrap()),
            ("t.zip", writer.finish().unwrap().into_inner()),
        ]
    }

    #[test]
    fn reading_stops_in_every_packing() {
        let (folder, limits) = (tempfile::tempdir().unwrap(), Limits::default());
        for (name, bytes) in pack_in_every_way(&b"1,one\n".repeat(BLOCK_BYTES)) {
            let path = folder.path().join(name);
            fs::write(&path, bytes).unwrap();
            for is_metered in [false, true] {
                let meter = Arc::new(Meter::default());
                let input =
                    Input::open(std::slice::from_ref(&path), folder.path(), &[], &limits, &meter).unwrap();
                let mut stream = input.members[0].open(&limits, is_metered.then_some(&meter)).unwrap();
                assert!(stream.block(Vec::new()).unwrap().is_some(), "{name}");
                meter.stop();
                assert_eq!(stream.block(Vec::new()).unwrap_err().tag(), "stopped", "{name}");
            }
        }
    }
}
