//! Pieces of a file, and what is put between them, read as one file without a copy.

use std::io::{self, BufRead, Read, Seek, SeekFrom};

pub(super) struct Joined<'a, const N: usize> {
    parts: [&'a [u8]; N],
    at: u64,
    is_endless: bool,
}

impl<'a, const N: usize> Joined<'a, N> {
    pub(super) fn new(parts: [&'a [u8]; N]) -> Self {
        Self { parts, at: 0, is_endless: false }
    }

    /// With zeros after its end.
    pub(super) fn endless(self) -> Self {
        Self { is_endless: true, ..self }
    }

    fn left(&self) -> &'a [u8] {
        let mut at = self.at;
        for part in self.parts {
            match usize::try_from(at).ok().and_then(|at| part.get(at..)) {
                Some(left) if !left.is_empty() => return left,
                _ => at -= part.len() as u64,
            }
        }
        if self.is_endless { &[0; 1024] } else { &[] }
    }

    fn length(&self) -> u64 {
        self.parts.iter().map(|part| part.len() as u64).sum()
    }
}

impl<'a> Joined<'a, 3> {
    /// A file with other bytes in one place.
    pub(super) fn patched(bytes: &'a [u8], at: usize, with: &'a [u8]) -> Self {
        let (before, after) = (bytes.get(..at), bytes.get(at + with.len()..));
        Self::new([before.unwrap_or(bytes), with, after.unwrap_or_default()])
    }
}

impl<const N: usize> Read for Joined<'_, N> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.left().read(into)?;
        self.consume(read);
        Ok(read)
    }
}

impl<const N: usize> BufRead for Joined<'_, N> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        Ok(self.left())
    }

    fn consume(&mut self, amount: usize) {
        self.at += amount as u64;
    }
}

impl<const N: usize> Seek for Joined<'_, N> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let to = match to {
            SeekFrom::Start(to) => Some(to),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.length().checked_add_signed(by),
        };
        self.at = to.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::Cursor;

    use super::*;

    #[test]
    fn parts_are_read_as_one_file() {
        let whole: Vec<u8> = (0..100).collect();
        let mut joined = Joined::new([&whole[..0], &whole[..7], &whole[7..7], &whole[7..60], &whole[60..]]);
        let mut plain = Cursor::new(&whole);
        let steps = [
            SeekFrom::Start(0),
            SeekFrom::Start(6),
            SeekFrom::Current(40),
            SeekFrom::Current(-5),
            SeekFrom::End(-3),
            SeekFrom::Start(500),
            SeekFrom::Start(59),
        ];
        for to in steps {
            assert_eq!(joined.seek(to).unwrap(), plain.seek(to).unwrap());
            let read = |from: &mut dyn Read| {
                let mut bytes = Vec::new();
                from.take(9).read_to_end(&mut bytes).unwrap();
                bytes
            };
            assert_eq!(read(&mut joined), read(&mut plain), "{to:?}");
        }
        assert!(joined.seek(SeekFrom::Current(-1_000)).is_err());
        let mut endless = Joined::new([&whole[..60], &whole[60..]]).endless();
        endless.seek(SeekFrom::End(-2)).unwrap();
        let mut read = [9; 4];
        endless.read_exact(&mut read).unwrap();
        assert_eq!(read, [98, 99, 0, 0]);
        endless.read_exact(&mut [9; 5_000]).unwrap();
        let (mut all, _) = (Vec::new(), joined.rewind().unwrap());
        joined.read_to_end(&mut all).unwrap();
        assert_eq!(all, whole);
    }
}
