//! A file as what was packed into it: gzip and zstd are known by their first bytes.
//!
//! It unpacks one stream; archives of several files are `input`'s.

use std::{
    fs,
    io::{self, BufReader, Chain, Cursor, Read},
    path::{Path, PathBuf},
};

use flate2::bufread::GzDecoder;

use crate::validate::Source;

/// What `from` holds, unpacked if it is packed.
///
/// # Errors
/// If it cannot be read.
pub fn unpack<'r>(mut from: impl Read + 'r) -> io::Result<Box<dyn Read + 'r>> {
    let (packed, magic) = Packed::of(&mut from)?;
    Ok(match packed {
        Packed::Gzip | Packed::Zstd => Box::new(Unpacking::new(packed, magic, BufReader::new(from))?),
        Packed::No | Packed::Zip => Box::new(Cursor::new(magic).chain(from)),
    })
}

/// What is wrong with a packed file, as readers are told it within an `io::Error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Damaged {
    #[error("its packed data ends too early")]
    Cut,
    #[error("its packed data is damaged")]
    Spoiled,
    #[error("something else follows its packed data")]
    Followed,
}

impl Damaged {
    pub(crate) fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }

    /// Unpackers tell by words what is wrong with the data; the system has numbers.
    fn told(error: io::Error) -> io::Error {
        match error.kind() {
            _ if error.raw_os_error().is_some() => error,
            io::ErrorKind::Interrupted => error,
            io::ErrorKind::UnexpectedEof => io::Error::new(io::ErrorKind::UnexpectedEof, Self::Cut),
            _ => io::Error::new(io::ErrorKind::InvalidData, Self::Spoiled),
        }
    }
}

/// Streams packed one way, one after the other, as `cat a.gz b.gz` makes them.
struct Unpacking<R> {
    packed: Packed,
    at: Option<At<R>>,
}

/// With the bytes that were looked at to know what comes.
type Ahead<R> = Chain<Cursor<Vec<u8>>, BufReader<R>>;

enum At<R> {
    Gzip(GzDecoder<Ahead<R>>),
    Zstd(zstd::stream::read::Decoder<'static, Ahead<R>>),
}

impl<R: Read> Unpacking<R> {
    fn new(packed: Packed, ahead: Vec<u8>, from: BufReader<R>) -> io::Result<Self> {
        let from = Cursor::new(ahead).chain(from);
        let at = match packed {
            Packed::Gzip => At::Gzip(GzDecoder::new(from)),
            _ => At::Zstd(zstd::stream::read::Decoder::with_buffer(from)?.single_frame()),
        };
        Ok(Self { packed, at: Some(at) })
    }

    /// Goes on to the next stream, if there is one.
    fn next(&mut self) -> io::Result<bool> {
        let mut from = match self.at.take() {
            None => return Ok(false),
            Some(At::Gzip(ended)) => ended.into_inner(),
            Some(At::Zstd(ended)) => ended.finish(),
        };
        let (packed, ahead) = Packed::of(&mut from)?;
        if ahead.is_empty() {
            return Ok(false);
        }
        // Frames of zstd that hold no data.
        let is_more = packed == self.packed
            || self.packed == Packed::Zstd && matches!(ahead[..], [0x50..=0x5f, 0x2a, 0x4d, 0x18]);
        if !is_more {
            return Err(io::Error::new(io::ErrorKind::InvalidData, Damaged::Followed));
        }
        *self = Self::new(self.packed, ahead, from.into_inner().1)?;
        Ok(true)
    }
}

impl<R: Read> Read for Unpacking<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        loop {
            let read = match &mut self.at {
                None => return Ok(0),
                Some(At::Gzip(stream)) => stream.read(into),
                Some(At::Zstd(stream)) => stream.read(into),
            };
            let read = read.map_err(Damaged::told)?;
            if read > 0 || !self.next()? {
                return Ok(read);
            }
        }
    }
}

/// How a file is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packed {
    No,
    Gzip,
    Zstd,
    /// An archive of files.
    Zip,
}

impl Packed {
    /// Takes the first bytes away, and gives them back.
    pub(crate) fn of(from: &mut impl Read) -> io::Result<(Self, Vec<u8>)> {
        let mut magic = Vec::with_capacity(4);
        from.take(4).read_to_end(&mut magic)?;
        let packed = match magic[..] {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd] => Self::Zstd,
            [b'P', b'K', 3, 4] | [b'P', b'K', 5, 6] => Self::Zip,
            _ => Self::No,
        };
        Ok((packed, magic))
    }
}

/// A named file, or standard input.
#[derive(Clone, Debug)]
pub struct File {
    path: Option<PathBuf>,
}

impl File {
    /// `-` is standard input.
    pub fn new(path: &Path) -> Self {
        Self { path: (path != Path::new("-")).then(|| path.to_owned()) }
    }

    pub fn is_standard_input(&self) -> bool {
        self.path.is_none()
    }
}

impl Source for File {
    fn open(&mut self) -> io::Result<Box<dyn Read + '_>> {
        match &self.path {
            Some(path) => unpack(fs::File::open(path)?),
            None => unpack(io::stdin()),
        }
    }

    fn opens_again(&self) -> bool {
        self.path.as_ref().is_some_and(|path| fs::metadata(path).is_ok_and(|found| found.is_file()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Write as _;

    use super::*;

    #[test]
    fn packed_files_are_what_was_packed() {
        let text = "{\"a\": 1}\n".repeat(1000);
        let half = text.len() / 2;
        let mut gzip = Vec::new();
        // Two members, as `cat a.gz b.gz` makes them.
        for part in [&text[..half], &text[half..]] {
            let mut packer = flate2::write::GzEncoder::new(&mut gzip, flate2::Compression::fast());
            packer.write_all(part.as_bytes()).unwrap();
            packer.finish().unwrap();
        }
        let zstd = zstd::encode_all(text.as_bytes(), 1).unwrap();
        for packed in [text.as_bytes(), &gzip, &zstd] {
            let mut unpacked = String::new();
            unpack(packed).unwrap().read_to_string(&mut unpacked).unwrap();
            assert_eq!(unpacked, text);
        }
        let mut short = String::new();
        unpack(&b"ab"[..]).unwrap().read_to_string(&mut short).unwrap();
        assert_eq!(short, "ab");
    }
}
