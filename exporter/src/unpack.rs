//! A file as what was packed into it: gzip and zstd are known by their first bytes.
//!
//! It unpacks one stream; archives of several files are `input`'s.

use std::{
    fs,
    io::{self, Chain, Cursor, Read},
    path::{Path, PathBuf},
};

use crate::validate::Source;

/// What `from` holds, unpacked if it is packed.
///
/// # Errors
/// If it cannot be read.
pub fn unpack<'r>(mut from: impl Read + 'r) -> io::Result<Box<dyn Read + 'r>> {
    let (packed, magic) = Packed::of(&mut from)?;
    let whole: Chain<_, _> = Cursor::new(magic).chain(from);
    Ok(match packed {
        Packed::Gzip => Box::new(flate2::read::MultiGzDecoder::new(whole)),
        Packed::Zstd => Box::new(zstd::stream::read::Decoder::new(whole)?),
        Packed::No | Packed::Zip => Box::new(whole),
    })
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
