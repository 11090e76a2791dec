//! Reads slices of a file, with other bytes inserted between them, as one file without copying.

use std::io::{self, BufRead, Read, Seek, SeekFrom};

pub(super) struct SplicedReader<'a, const N: usize> {
    parts: [&'a [u8]; N],
    at: u64,
    is_endless: bool,
}

impl<'a, const N: usize> SplicedReader<'a, N> {
    pub(super) fn new(parts: [&'a [u8]; N]) -> Self {
        Self { parts, at: 0, is_endless: false }
    }

    /// Appends endless zeros.
    pub(super) fn with_endless_zeros(self) -> Self {
        Self { is_endless: true, ..self }
    }

    /// Returns the rest of the part at the current position.
    fn remaining_part(&self) -> &'a [u8] {
        let mut offset = self.at;
        for part in self.parts {
            match usize::try_from(offset).ok().and_then(|at| part.get(at..)) {
                Some(rest) if !rest.is_empty() => return rest,
                _ => offset -= part.len() as u64,
            }
        }
        if self.is_endless { &[0; 1024] } else { &[] }
    }

    fn length(&self) -> u64 {
        self.parts.iter().map(|part| part.len() as u64).sum()
    }
}

impl<'a> SplicedReader<'a, 3> {
    /// Reads a file with some of its bytes replaced.
    pub(super) fn with_patch(bytes: &'a [u8], at: usize, replacement: &'a [u8]) -> Self {
        let (head, tail) = (bytes.get(..at), bytes.get(at + replacement.len()..));
        Self::new([head.unwrap_or(bytes), replacement, tail.unwrap_or_default()])
    }
}

impl<const N: usize> Read for SplicedReader<'_, N> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.remaining_part().read(buffer)?;
        self.consume(count);
        Ok(count)
    }
}

impl<const N: usize> BufRead for SplicedReader<'_, N> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        Ok(self.remaining_part())
    }

    fn consume(&mut self, amount: usize) {
        self.at += amount as u64;
    }
}

impl<const N: usize> Seek for SplicedReader<'_, N> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(to) => Some(to),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.length().checked_add_signed(by),
        };
        self.at = position.ok_or(io::ErrorKind::InvalidInput)?;
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
        let mut spliced =
            SplicedReader::new([&whole[..0], &whole[..7], &whole[7..7], &whole[7..60], &whole[60..]]);
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
            assert_eq!(spliced.seek(to).unwrap(), plain.seek(to).unwrap());
            let read = |from: &mut dyn Read| {
                let mut bytes = Vec::new();
                from.take(9).read_to_end(&mut bytes).unwrap();
                bytes
            };
            assert_eq!(read(&mut spliced), read(&mut plain), "{to:?}");
        }
        assert!(spliced.seek(SeekFrom::Current(-1_000)).is_err());
        let mut endless = SplicedReader::new([&whole[..60], &whole[60..]]).with_endless_zeros();
        endless.seek(SeekFrom::End(-2)).unwrap();
        let mut read = [9; 4];
        endless.read_exact(&mut read).unwrap();
        assert_eq!(read, [98, 99, 0, 0]);
        endless.read_exact(&mut [9; 5_000]).unwrap();
        let (mut all, _) = (Vec::new(), spliced.rewind().unwrap());
        spliced.read_to_end(&mut all).unwrap();
        assert_eq!(all, whole);
    }
}
