//! Decompresses gzip and zstd files, recognised by their first bytes.
//!
//! Archives are read in `input`.

use std::{
    fs,
    io::{self, BufReader, Chain, Cursor, Read},
    path::{Path, PathBuf},
};

use flate2::bufread::GzDecoder;

/// Returns a reader of the decompressed content; uncompressed input passes unchanged.
///
/// # Errors
///
/// If the input cannot be read.
pub fn unpack<'r>(mut input: impl Read + 'r) -> io::Result<Box<dyn Read + 'r>> {
    let (compression, magic) = Compression::detect(&mut input)?;
    unpack_as(compression, magic, input)
}

/// Decompresses input after its first bytes (`magic`) were read to detect the format.
pub(crate) fn unpack_as<'r>(
    compression: Compression,
    magic: Vec<u8>,
    input: impl Read + 'r,
) -> io::Result<Box<dyn Read + 'r>> {
    Ok(match compression {
        Compression::Gzip | Compression::Zstd => {
            Box::new(Decompressor::new(compression, magic, BufReader::new(input))?)
        }
        Compression::Plain | Compression::Zip => Box::new(Cursor::new(magic).chain(input)),
    })
}

/// Damage of a compressed file, passed to readers within an `io::Error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CompressionError {
    #[error("its packed data ends too early")]
    Truncated,
    #[error("its packed data is damaged")]
    Damaged,
    #[error("something else follows its packed data")]
    TrailingData,
}

impl CompressionError {
    pub(crate) fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }

    /// Converts text-only errors of the decompressors to typed ones. System errors, which have a code, pass
    /// unchanged.
    fn classify(error: io::Error) -> io::Error {
        match error.kind() {
            _ if error.raw_os_error().is_some() => error,
            io::ErrorKind::Interrupted => error,
            // Validation reports truncation under a rule of its own.
            io::ErrorKind::UnexpectedEof => io::Error::new(io::ErrorKind::UnexpectedEof, Self::Truncated),
            _ => io::Error::new(io::ErrorKind::InvalidData, Self::Damaged),
        }
    }
}

/// Window larger than the limit, requested by an intact zstd file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its packed data needs a window of {} bytes, and {MAX_WINDOW} are allowed: pack it without --long \
    or --ultra", self.0)]
struct WindowTooLarge(u64);

/// Describes damage of compressed data; `None` for a system error.
pub(crate) fn damage_of(error: &io::Error) -> Option<String> {
    let is_typed = error
        .get_ref()
        .is_some_and(|source| source.is::<CompressionError>() || source.is::<WindowTooLarge>());
    match error.kind() {
        _ if is_typed => Some(error.to_string()),
        _ if error.raw_os_error().is_some() => None,
        io::ErrorKind::UnexpectedEof => Some(CompressionError::Truncated.to_string()),
        io::ErrorKind::Unsupported => Some(format!("its compression is not supported: {error}")),
        _ => Some(format!("{}: {error}", CompressionError::Damaged)),
    }
}

/// Largest back-reference window of a zstd frame, in bytes: the decoder allocates it at once.
const MAX_WINDOW: u64 = 128 << 20;
/// Largest header of a zstd frame, in bytes.
const MAX_FRAME_HEADER: usize = 18;

/// Reads the header of the first frame ahead and checks its window against the limit.
fn check_window(peeked: &mut Vec<u8>, input: &mut impl Read) -> io::Result<Result<(), WindowTooLarge>> {
    input.take(MAX_FRAME_HEADER.saturating_sub(peeked.len()) as u64).read_to_end(peeked)?;
    let window = window_size(peeked).filter(|window| *window > MAX_WINDOW);
    Ok(window.map_or(Ok(()), |window| Err(WindowTooLarge(window))))
}

/// Window size of a zstd frame (RFC 8878); `None` for a skippable frame or other data.
fn window_size(frame: &[u8]) -> Option<u64> {
    let [0x28, 0xb5, 0x2f, 0xfd, descriptor, fields @ ..] = frame else { return None };
    if descriptor & 0x20 == 0 {
        let (exponent, mantissa) = (fields.first()? >> 3, fields.first()? & 7);
        let base = 1_u64 << (10 + exponent);
        return Some(base + base / 8 * u64::from(mantissa));
    }
    // Single-segment frame: the window is the content size, stored behind the dictionary id.
    let dictionary_length = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let size_length = [1, 2, 4, 8][usize::from(descriptor >> 6)];
    let size = fields.get(dictionary_length..dictionary_length + size_length)?;
    let size = size.iter().rev().fold(0_u64, |size, byte| size << 8 | u64::from(*byte));
    Some(if size_length == 2 { size + 256 } else { size })
}

/// Reader of concatenated streams of one format, as `cat a.gz b.gz` makes them.
struct Decompressor<R> {
    compression: Compression,
    decoder: Option<Decoder<R>>,
}

/// Reader that first returns the bytes that were read to detect the format.
type Peeked<R> = Chain<Cursor<Vec<u8>>, BufReader<R>>;

enum Decoder<R> {
    Gzip(GzDecoder<Peeked<R>>),
    Zstd(zstd::stream::read::Decoder<'static, Peeked<R>>),
}

impl<R: Read> Decompressor<R> {
    fn new(compression: Compression, mut peeked: Vec<u8>, mut input: BufReader<R>) -> io::Result<Self> {
        if compression == Compression::Zstd {
            check_window(&mut peeked, &mut input)?.map_err(io::Error::other)?;
        }
        let input = Cursor::new(peeked).chain(input);
        let decoder = match compression {
            Compression::Gzip => Decoder::Gzip(GzDecoder::new(input)),
            _ => Decoder::Zstd(zstd::stream::read::Decoder::with_buffer(input)?.single_frame()),
        };
        Ok(Self { compression, decoder: Some(decoder) })
    }

    /// Opens the next stream; returns false at the end of the input.
    fn open_next_stream(&mut self) -> io::Result<bool> {
        let mut input = match self.decoder.take() {
            None => return Ok(false),
            Some(Decoder::Gzip(decoder)) => decoder.into_inner(),
            Some(Decoder::Zstd(decoder)) => decoder.finish(),
        };
        let (compression, mut peeked) = Compression::detect(&mut input)?;
        if peeked.is_empty() {
            return Ok(false);
        }
        // Skippable frames of zstd have another magic number and may stand between data frames.
        let is_next_stream = compression == self.compression
            || self.compression == Compression::Zstd && matches!(peeked[..], [0x50..=0x5f, 0x2a, 0x4d, 0x18]);
        if !is_next_stream {
            return Err(io::Error::new(io::ErrorKind::InvalidData, CompressionError::TrailingData));
        }
        // A short stream ends within the bytes read ahead; the unconsumed ones belong to the next stream.
        let (peeked_before, input) = input.into_inner();
        let consumed = usize::try_from(peeked_before.position()).unwrap_or(usize::MAX);
        peeked.extend_from_slice(peeked_before.get_ref().get(consumed..).unwrap_or_default());
        *self = Self::new(self.compression, peeked, input)?;
        Ok(true)
    }
}

impl<R: Read> Read for Decompressor<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            let byte_count = match &mut self.decoder {
                None => return Ok(0),
                Some(Decoder::Gzip(stream)) => stream.read(buffer),
                Some(Decoder::Zstd(stream)) => stream.read(buffer),
            };
            let byte_count = byte_count.map_err(CompressionError::classify)?;
            if byte_count > 0 || !self.open_next_stream()? {
                return Ok(byte_count);
            }
        }
    }
}

/// Compression of a file, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    Plain,
    Gzip,
    Zstd,
    /// Archive of several files.
    Zip,
}

impl Compression {
    /// Reads the first bytes, and returns them with the detected format.
    pub(crate) fn detect(input: &mut impl Read) -> io::Result<(Self, Vec<u8>)> {
        let mut magic = Vec::with_capacity(4);
        input.take(4).read_to_end(&mut magic)?;
        let compression = match magic[..] {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd] => Self::Zstd,
            [b'P', b'K', 3, 4] | [b'P', b'K', 5, 6] => Self::Zip,
            _ => Self::Plain,
        };
        Ok((compression, magic))
    }
}

/// Source of a document for readers of bundles.
pub trait Source {
    /// # Errors
    /// If the source cannot be read.
    fn open(&mut self) -> io::Result<Box<dyn Read + '_>>;

    /// True if the source can be opened again with the same content.
    fn can_reopen(&self) -> bool;
}

impl Source for &[u8] {
    fn open(&mut self) -> io::Result<Box<dyn Read + '_>> {
        Ok(Box::new(*self))
    }

    fn can_reopen(&self) -> bool {
        true
    }
}

/// Named file, or standard input.
#[derive(Clone, Debug)]
pub struct File {
    path: Option<PathBuf>,
}

impl File {
    /// Opens a path; `-` is standard input.
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

    fn can_reopen(&self) -> bool {
        self.path.as_ref().is_some_and(|path| fs::metadata(path).is_ok_and(|metadata| metadata.is_file()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Write as _;

    use super::*;

    /// Packs the text with a first frame that asks for a window of `exponent`, more than it needs.
    fn pack_with_window(text: &str, exponent: u8) -> Vec<u8> {
        let mut packer = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        packer.write_all(text.as_bytes()).unwrap();
        let mut frame = packer.finish().unwrap();
        assert_eq!(frame[4] & 0x20, 0, "its length is not told");
        frame[5] = (exponent - 10) << 3;
        frame
    }

    #[test]
    fn too_large_window_is_refused_but_is_no_damage() {
        let text = "{\"a\": 1}\n".repeat(1000);
        for is_second_frame in [false, true] {
            let first_frame =
                if is_second_frame { zstd::encode_all(&b"{}"[..], 1).unwrap() } else { Vec::new() };
            let unpacked = |exponent| {
                let mut unpacked = String::new();
                let packed = [first_frame.clone(), pack_with_window(&text, exponent)].concat();
                let read = unpack(&*packed).and_then(|mut from| from.read_to_string(&mut unpacked));
                read.map(|_| unpacked)
            };
            assert!(unpacked(27).unwrap().ends_with(&text));
            let error = unpacked(28).unwrap_err();
            assert_eq!(CompressionError::of(&error), None);
            let message = error.to_string();
            assert!(
                message.contains("268435456 bytes") && message.contains("134217728 are allowed"),
                "{message}"
            );
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
    fn packed_files_unpack_to_their_content() {
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
