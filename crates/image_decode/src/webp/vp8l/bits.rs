//! Reads the bits of a lossless WebP, from the lowest bit of each byte. `peek` returns zeros after the end.

pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Bits<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Returns at least 57 bits without consuming them.
    pub(super) fn peek(&self) -> u64 {
        let remaining_bytes = self.bytes.get(self.at / 8..).unwrap_or_default();
        let window = remaining_bytes.first_chunk().copied().unwrap_or_else(|| {
            let mut padded_bytes = [0; 8];
            padded_bytes[..remaining_bytes.len()].copy_from_slice(remaining_bytes);
            padded_bytes
        });
        u64::from_le_bytes(window) >> (self.at % 8)
    }

    /// Consumes bits; `None` at the end of the data.
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
