//! Reads files that may be packed with gzip or zstd, which are recognised by their first bytes.
//!
//! Archives of several files are read in `input`.

use std::{
    fs,
    io::{self, BufReader, Chain, Cursor, Read},
    path::{Path, PathBuf},
};

use flate2::bufread::GzDecoder;

/// Returns a reader of the content of `from`, unpacked if it is packed.
///
/// # Errors
///
/// If it cannot be read.
pub fn unpack<'r>(mut from: impl Read + 'r) -> io::Result<Box<dyn Read + 'r>> {
    let (packed, magic) = Packed::of(&mut from)?;
    unpacked(packed, magic, from)
}

/// Like [`unpack`], after the first bytes have been read to detect the format.
pub(crate) fn unpacked<'r>(
    packed: Packed,
    magic: Vec<u8>,
    from: impl Read + 'r,
) -> io::Result<Box<dyn Read + 'r>> {
    Ok(match packed {
        Packed::Gzip | Packed::Zstd => Box::new(Decompressor::new(packed, magic, BufReader::new(from))?),
        Packed::No | Packed::Zip => Box::new(Cursor::new(magic).chain(from)),
    })
}

/// Damage of a packed file, passed to readers within an `io::Error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CompressionError {
    #[error("its packed data ends too early")]
    Cut,
    #[error("its packed data is damaged")]
    Spoiled,
    #[error("something else follows its packed data")]
    Followed,
}

impl CompressionError {
    pub(crate) fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }

    /// Turns errors of the unpackers, which are only texts, into typed ones; system errors have numbers and are kept.
    fn told(error: io::Error) -> io::Error {
        match error.kind() {
            _ if error.raw_os_error().is_some() => error,
            io::ErrorKind::Interrupted => error,
            io::ErrorKind::UnexpectedEof => io::Error::new(io::ErrorKind::UnexpectedEof, Self::Cut),
            _ => io::Error::new(io::ErrorKind::InvalidData, Self::Spoiled),
        }
    }
}

/// Memory that an intact file asks for beyond the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its packed data needs a window of {} bytes, and {WIDEST} are allowed: pack it without --long or --ultra", self.0)]
struct WindowTooLarge(u64);

/// Describes damage of packed data; `None` if the error is the system's.
pub(crate) fn damage_of(error: &io::Error) -> Option<String> {
    let is_told =
        error.get_ref().is_some_and(|told| told.is::<CompressionError>() || told.is::<WindowTooLarge>());
    match error.kind() {
        _ if is_told => Some(error.to_string()),
        _ if error.raw_os_error().is_some() => None,
        io::ErrorKind::UnexpectedEof => Some(CompressionError::Cut.to_string()),
        io::ErrorKind::Unsupported => Some(format!("it is packed in a way that is not read: {error}")),
        _ => Some(format!("{}: {error}", CompressionError::Spoiled)),
    }
}

/// Bytes of what came before that may be referred to.
const WIDEST: u64 = 128 << 20;
/// Bytes of the longest header of a frame.
const HEADER: usize = 18;

/// Reads on to the end of a frame's header, and holds what it asks for to the limit.
fn hold_window(ahead: &mut Vec<u8>, from: &mut impl Read) -> io::Result<Result<(), WindowTooLarge>> {
    from.take(HEADER.saturating_sub(ahead.len()) as u64).read_to_end(ahead)?;
    let window = window(ahead).filter(|window| *window > WIDEST);
    Ok(window.map_or(Ok(()), |window| Err(WindowTooLarge(window))))
}

/// Window size of a frame (RFC 8878); `None` if it is not a frame of data.
fn window(frame: &[u8]) -> Option<u64> {
    let [0x28, 0xb5, 0x2f, 0xfd, descriptor, rest @ ..] = frame else { return None };
    if descriptor & 0x20 == 0 {
        let (exponent, mantissa) = (rest.first()? >> 3, rest.first()? & 7);
        let base = 1_u64 << (10 + exponent);
        return Some(base + base / 8 * u64::from(mantissa));
    }
    // The content is its own window.
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let length = [1, 2, 4, 8][usize::from(descriptor >> 6)];
    let size = rest.get(dictionary..dictionary + length)?;
    let size = size.iter().rev().fold(0_u64, |size, byte| size << 8 | u64::from(*byte));
    Some(if length == 2 { size + 256 } else { size })
}

/// Streams packed one way, one after the other, as `cat a.gz b.gz` makes them.
struct Decompressor<R> {
    packed: Packed,
    at: Option<Decoder<R>>,
}

/// Reader with the bytes that were read ahead to detect the format.
type Peeked<R> = Chain<Cursor<Vec<u8>>, BufReader<R>>;

enum Decoder<R> {
    Gzip(GzDecoder<Peeked<R>>),
    Zstd(zstd::stream::read::Decoder<'static, Peeked<R>>),
}

impl<R: Read> Decompressor<R> {
    fn new(packed: Packed, mut ahead: Vec<u8>, mut from: BufReader<R>) -> io::Result<Self> {
        if packed == Packed::Zstd {
            hold_window(&mut ahead, &mut from)?.map_err(io::Error::other)?;
        }
        let from = Cursor::new(ahead).chain(from);
        let at = match packed {
            Packed::Gzip => Decoder::Gzip(GzDecoder::new(from)),
            _ => Decoder::Zstd(zstd::stream::read::Decoder::with_buffer(from)?.single_frame()),
        };
        Ok(Self { packed, at: Some(at) })
    }

    /// Goes on to the next stream, if there is one.
    fn next(&mut self) -> io::Result<bool> {
        let mut from = match self.at.take() {
            None => return Ok(false),
            Some(Decoder::Gzip(ended)) => ended.into_inner(),
            Some(Decoder::Zstd(ended)) => ended.finish(),
        };
        let (packed, mut ahead) = Packed::of(&mut from)?;
        if ahead.is_empty() {
            return Ok(false);
        }
        // Frames of zstd that hold no data.
        let is_more = packed == self.packed
            || self.packed == Packed::Zstd && matches!(ahead[..], [0x50..=0x5f, 0x2a, 0x4d, 0x18]);
        if !is_more {
            return Err(io::Error::new(io::ErrorKind::InvalidData, CompressionError::Followed));
        }
        // Of a short stream not all that was looked at is used up.
        let (looked_at, from) = from.into_inner();
        let used = usize::try_from(looked_at.position()).unwrap_or(usize::MAX);
        ahead.extend_from_slice(looked_at.get_ref().get(used..).unwrap_or_default());
        *self = Self::new(self.packed, ahead, from)?;
        Ok(true)
    }
}

impl<R: Read> Read for Decompressor<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        loop {
            let read = match &mut self.at {
                None => return Ok(0),
                Some(Decoder::Gzip(stream)) => stream.read(into),
                Some(Decoder::Zstd(stream)) => stream.read(into),
            };
            let read = read.map_err(CompressionError::told)?;
            if read > 0 || !self.next()? {
                return Ok(read);
            }
        }
    }
}

/// Compression of a file.
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

/// Source of a document.
pub trait Source {
    /// # Errors
    /// If it cannot be read.
    fn open(&mut self) -> io::Result<Box<dyn Read + '_>>;

    /// True if it can be opened again with the same content.
    fn opens_again(&self) -> bool;
}

impl Source for &[u8] {
    fn open(&mut self) -> io::Result<Box<dyn Read + '_>> {
        Ok(Box::new(*self))
    }

    fn opens_again(&self) -> bool {
        true
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

    /// Packs the text with a first frame that asks for a window of `exponent`, more than it needs.
    fn wide(text: &str, exponent: u8) -> Vec<u8> {
        let mut packer = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        packer.write_all(text.as_bytes()).unwrap();
        let mut frame = packer.finish().unwrap();
        assert_eq!(frame[4] & 0x20, 0, "its length is not told");
        frame[5] = (exponent - 10) << 3;
        frame
    }

    #[test]
    fn a_window_that_is_too_wide_is_told_and_is_no_damage() {
        let text = "{\"a\": 1}\n".repeat(1000);
        for behind in [false, true] {
            let before = if behind { zstd::encode_all(&b"{}"[..], 1).unwrap() } else { Vec::new() };
            let unpacked = |exponent| {
                let mut unpacked = String::new();
                let packed = [before.clone(), wide(&text, exponent)].concat();
                let read = unpack(&*packed).and_then(|mut from| from.read_to_string(&mut unpacked));
                read.map(|_| unpacked)
            };
            assert!(unpacked(27).unwrap().ends_with(&text));
            let error = unpacked(28).unwrap_err();
            assert_eq!(CompressionError::of(&error), None);
            let said = error.to_string();
            assert!(said.contains("268435456 bytes") && said.contains("134217728 are allowed"), "{said}");
        }
    }

    #[test]
    fn short_frames_are_all_read() {
        let frames: Vec<Vec<u8>> =
            ["", "a", "", "", "b"].iter().map(|text| zstd::encode_all(text.as_bytes(), 1).unwrap()).collect();
        let mut unpacked = String::new();
        unpack(&*frames.concat()).unwrap().read_to_string(&mut unpacked).unwrap();
        assert_eq!(unpacked, "ab");
    }

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
