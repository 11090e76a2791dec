//! Reads the bits of a lossless WebP, from the lowest of each byte up. Behind the end there are zeros to peek at.

pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Bits<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Returns the next bits without consuming them, at least 57.
    pub(super) fn peek(&self) -> u64 {
        let rest = self.bytes.get(self.at / 8..).unwrap_or_default();
        let eight = rest.first_chunk().copied().unwrap_or_else(|| {
            let mut eight = [0; 8];
            eight[..rest.len()].copy_from_slice(rest);
            eight
        });
        u64::from_le_bytes(eight) >> (self.at % 8)
    }

    /// Consumes bits; `None` if there are fewer.
    pub(super) fn consume(&mut self, count: usize) -> Option<()> {
        self.at += count;
        (self.at <= 8 * self.bytes.len()).then_some(())
    }

    pub(super) fn read(&mut self, count: usize) -> Option<usize> {
        let value = self.peek() & ((1 << count) - 1);
        self.consume(count)?;
        usize::try_from(value).ok()
    }
}
