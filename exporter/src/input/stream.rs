//! Bytes of one file, unpacked, hashed and counted on a thread of its own.

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
    zip_archive::{Archive, Entry, HARMLESS},
};
use crate::{
    error::{ConvertError, ErrorKind},
    meter::Meter,
    unpack::{Packed, damage_of, unpacked},
};

/// Large enough that handing over costs nothing beside the work.
const BLOCK: usize = 512 << 10;
/// Blocks on their way.
const AHEAD: usize = 3;

#[derive(Clone, Debug)]
pub(super) enum MemberLocation {
    File { path: Arc<Path> },
    Zip { within: Arc<str>, archive: Archive, entry: Entry },
}

/// Options for reading a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadOptions {
    /// Counts the bytes in the meter.
    pub(super) counted: bool,
    pub(super) hashed: bool,
    /// It is not unpacked.
    pub(super) as_it_lies: bool,
    /// Passes on what can be unpacked, whatever follows.
    pub(super) in_part: bool,
}

/// Size and digest of a file, known at its end. A packed file is hashed as it is packed, since that is what people
/// can check. The digest is zero if none was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileDigest {
    pub(crate) bytes: u64,
    pub(crate) sha256: [u8; 32],
}

/// Block of a file, with the number of stored bytes read so far.
enum Piece {
    Bytes(Vec<u8>, u64),
    End(FileDigest, u64),
    Failed(ConvertError),
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) name: String,
    pieces: Receiver<Piece>,
    back: Sender<Vec<u8>>,
    current: Vec<u8>,
    at: usize,
    ended: Option<FileDigest>,
    meter: Arc<Meter>,
    /// Bytes that the meter knows of, if it counts them.
    metered: Option<u64>,
}

impl Stream {
    pub(super) fn start(
        name: &str,
        whence: &MemberLocation,
        limits: &Limits,
        meter: &Arc<Meter>,
        how: ReadOptions,
    ) -> Result<Self, ConvertError> {
        let (send, pieces) = mpsc::sync_channel(AHEAD);
        let (back, used) = mpsc::channel();
        let opened = match whence {
            MemberLocation::File { path } => {
                Opened::File(File::open(path).map_err(|error| ConvertError::io("opening", path, error))?)
            }
            MemberLocation::Zip { archive, entry, .. } => Opened::Zip(archive.clone(), entry.clone()),
        };
        let (name_of_it, limits) = (name.to_owned(), *limits);
        let within = match whence {
            MemberLocation::File { .. } => None,
            MemberLocation::Zip { within, .. } => Some(Arc::clone(within)),
        };
        let reading = Reading { name: name_of_it, within, limits, how, send, used };
        thread::Builder::new()
            .name("read".to_owned())
            .spawn(move || reading.run(opened))
            .map_err(|error| ConvertError::Io { doing: "starting a thread".to_owned(), error })?;
        let (name, meter, metered) = (name.to_owned(), Arc::clone(meter), how.counted.then_some(0));
        Ok(Self { name, pieces, back, current: Vec::new(), at: 0, ended: None, meter, metered })
    }

    /// Returns the next block, or `None` at the end; an error if the conversion was stopped. The block `used` is
    /// recycled.
    pub(crate) fn block(&mut self, used: Vec<u8>) -> Result<Option<Vec<u8>>, ConvertError> {
        if self.ended.is_some() {
            return Ok(None);
        }
        self.meter.check_stop()?;
        if used.capacity() >= BLOCK {
            // The reader may have ended already.
            let _nobody = self.back.send(used);
        }
        match self.pieces.recv() {
            Ok(Piece::Bytes(bytes, stored)) => {
                self.pass(stored);
                Ok(Some(bytes))
            }
            Ok(Piece::End(ended, stored)) => {
                self.pass(stored);
                self.ended = Some(ended);
                Ok(None)
            }
            Ok(Piece::Failed(error)) => Err(error),
            Err(_) => Err(ConvertError::Io {
                doing: format!("reading {}", self.name),
                error: io::Error::other("the reading thread ended early"),
            }),
        }
    }

    /// Counts bytes that were taken, not bytes that were read ahead and may never be used.
    fn pass(&mut self, stored: u64) {
        if let Some(metered) = &mut self.metered {
            self.meter.add_read(stored.saturating_sub(*metered));
            *metered = stored;
        }
    }

    /// Reads the rest and returns the digest of the whole.
    pub(crate) fn finish(self) -> Result<FileDigest, ConvertError> {
        self.each(|_| Ok(()))
    }

    /// Calls with every block, and returns the digest of the whole.
    pub(crate) fn each(
        mut self,
        mut with: impl FnMut(&[u8]) -> Result<(), ConvertError>,
    ) -> Result<FileDigest, ConvertError> {
        let mut used = Vec::new();
        while let Some(block) = self.block(used)? {
            with(&block)?;
            used = block;
        }
        self.ended.ok_or_else(|| ConvertError::Refused("a file ended without its end".to_owned()))
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at == self.current.len() {
            let used = std::mem::take(&mut self.current);
            self.at = 0;
            match self.block(used).map_err(ConvertError::into_io)? {
                Some(block) => self.current = block,
                None => return Ok(0),
            }
        }
        let count = into.len().min(self.current.len() - self.at);
        into[..count].copy_from_slice(&self.current[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

enum Opened {
    File(File),
    Zip(Archive, Entry),
}

struct Reading {
    name: String,
    /// Name of the archive that it is in.
    within: Option<Arc<str>>,
    limits: Limits,
    how: ReadOptions,
    send: SyncSender<Piece>,
    used: Receiver<Vec<u8>>,
}

impl Reading {
    fn run(self, from: Opened) {
        let end = match self.pass_on(from) {
            Ok(Some((ended, stored))) => Piece::End(ended, stored),
            Ok(None) => return,
            Err(error) => Piece::Failed(error),
        };
        // Nobody waits for it if the conversion has failed elsewhere.
        let _nobody = self.send.send(end);
    }

    /// Passes on the content; `None` if the reader has gone.
    fn pass_on(&self, from: Opened) -> Result<Option<(FileDigest, u64)>, ConvertError> {
        match from {
            Opened::File(file) => self.pass_on_file(file),
            Opened::Zip(mut archive, Entry { index, packed, .. }) => {
                let file = archive.by_index(index).map_err(|error| {
                    self.damaged(ErrorKind::Archive, &format!("not readable in its zip archive: {error}"))
                })?;
                let (size, read) = (u128::from(file.size().max(1)), Cell::new(0));
                let mut hashed = HashingReader::new(file, &read, self.how.hashed);
                let stored = || {
                    let part = u128::from(packed) * u128::from(read.get()) / size;
                    u64::try_from(part).unwrap_or(packed).min(packed)
                };
                let failed = |error| self.unreadable(true, error);
                let (again, magic) = self.packed(&mut hashed).map_err(failed)?;
                let from = unpacked(again, magic, &mut hashed).map_err(failed)?;
                if !self.copy(from, || Some(packed), stored)? {
                    return Ok(None);
                }
                io::copy(&mut hashed, &mut io::sink()).map_err(failed)?;
                // A file of an archive is known to people as it is unpacked from there.
                Ok(Some((hashed.ended(), packed)))
            }
        }
    }

    fn packed(&self, from: &mut impl Read) -> io::Result<(Packed, Vec<u8>)> {
        let (packed, magic) = Packed::of(from)?;
        Ok((if self.how.as_it_lies { Packed::No } else { packed }, magic))
    }

    fn pass_on_file(&self, file: File) -> Result<Option<(FileDigest, u64)>, ConvertError> {
        let read = Cell::new(0);
        let mut hashed = HashingReader::new(file, &read, self.how.hashed);
        let failed = |error| ConvertError::Io { doing: format!("reading {}", self.name), error };
        let (packed, magic) = self.packed(&mut hashed).map_err(failed)?;
        let packed_bytes = || matches!(packed, Packed::Gzip | Packed::Zstd).then(|| read.get());
        let from = unpacked(packed, magic, &mut hashed);
        let from = from.map_err(|error| self.unreadable(packed_bytes().is_some(), error))?;
        if !self.copy(from, packed_bytes, || read.get())? {
            return Ok(None);
        }
        io::copy(&mut hashed, &mut io::sink()).map_err(failed)?;
        Ok(Some((hashed.ended(), read.get())))
    }

    /// Copies blocks to the reader; false if it has gone. `packed` returns the stored bytes of the blocks so far if
    /// they were unpacked, and `stored` those of the file.
    fn copy(
        &self,
        mut from: impl Read,
        packed: impl Fn() -> Option<u64>,
        stored: impl Fn() -> u64,
    ) -> Result<bool, ConvertError> {
        let mut passed = 0_u64;
        loop {
            let mut block = self.used.try_recv().unwrap_or_default();
            block.clear();
            block.reserve(BLOCK);
            // A decoder yields little at a time; a block should be worth handing over.
            let read = from.by_ref().take(BLOCK as u64).read_to_end(&mut block);
            if let Err(error) = read {
                if self.how.in_part && !block.is_empty() {
                    let _nobody = self.send.send(Piece::Bytes(block, stored()));
                }
                return Err(self.unreadable(packed().is_some(), error));
            }
            if block.is_empty() {
                return Ok(true);
            }
            passed += block.len() as u64;
            if let Some(packed) = packed()
                && passed > HARMLESS.max(packed.saturating_mul(self.limits.expansion))
            {
                return Err(self.limits.bomb(&self.name));
            }
            if self.send.send(Piece::Bytes(block, stored())).is_err() {
                return Ok(false);
            }
        }
    }

    fn unreadable(&self, is_packed: bool, error: io::Error) -> ConvertError {
        match damage_of(&error).filter(|_| is_packed) {
            Some(detail) => self.damaged(ErrorKind::Compressed, &detail),
            None => ConvertError::Io { doing: format!("reading {}", self.name), error },
        }
    }

    fn damaged(&self, wrong: ErrorKind, detail: &str) -> ConvertError {
        let within = self.within.as_ref().map_or_else(String::new, |archive| format!(" (in {archive})"));
        ConvertError::content(&self.name, None, wrong, format!("{detail}{within}"))
    }
}

/// Counts what passes through, and hashes it if anybody wants to know.
struct HashingReader<'c, R> {
    inner: R,
    bytes: &'c Cell<u64>,
    sha256: Option<Sha256>,
}

impl<'c, R: Read> HashingReader<'c, R> {
    fn new(inner: R, bytes: &'c Cell<u64>, hashed: bool) -> Self {
        Self { inner, bytes, sha256: hashed.then(Sha256::new) }
    }

    fn ended(self) -> FileDigest {
        let sha256 = self.sha256.map_or([0; 32], |sha256| sha256.finalize().into());
        FileDigest { bytes: self.bytes.get(), sha256 }
    }
}

impl<R: Read> Read for HashingReader<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(into)?;
        if let Some(sha256) = &mut self.sha256 {
            sha256.update(&into[..count]);
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

    fn in_all_packings(text: &[u8]) -> [(&'static str, Vec<u8>); 4] {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(text).unwrap();
        let mut zipped = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
        zipped.start_file("t.csv", zip::write::SimpleFileOptions::default()).unwrap();
        zipped.write_all(text).unwrap();
        [
            ("t.csv", text.to_owned()),
            ("t.csv.gz", gzip.finish().unwrap()),
            ("t.csv.zst", zstd::encode_all(text, 1).unwrap()),
            ("t.zip", zipped.finish().unwrap().into_inner()),
        ]
    }

    #[test]
    fn nothing_more_is_read_of_any_file_once_somebody_says_stop() {
        let (folder, limits) = (tempfile::tempdir().unwrap(), Limits::default());
        for (name, bytes) in in_all_packings(&b"1,one\n".repeat(BLOCK)) {
            let path = folder.path().join(name);
            fs::write(&path, bytes).unwrap();
            for counted in [false, true] {
                let meter = Arc::new(Meter::default());
                let input =
                    Input::open(std::slice::from_ref(&path), folder.path(), &[], &limits, &meter).unwrap();
                let mut stream = input.members[0].open(&limits, counted.then_some(&meter)).unwrap();
                assert!(stream.block(Vec::new()).unwrap().is_some(), "{name}");
                meter.stop();
                assert_eq!(stream.block(Vec::new()).unwrap_err().tag(), "stopped", "{name}");
            }
        }
    }
}
