//! The bits of a lossless WebP, from the lowest of each byte up. Whoever looks ahead sees zeros behind the end.

pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Bits<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The next 57 at least.
    pub(super) fn ahead(&self) -> u64 {
        let left = self.bytes.get(self.at / 8..).unwrap_or_default();
        let eight = left.first_chunk().copied().unwrap_or_else(|| {
            let mut eight = [0; 8];
            eight[..left.len()].copy_from_slice(left);
            eight
        });
        u64::from_le_bytes(eight) >> (self.at % 8)
    }

    /// Nothing if there are fewer.
    pub(super) fn pass(&mut self, count: usize) -> Option<()> {
        self.at += count;
        (self.at <= 8 * self.bytes.len()).then_some(())
    }

    pub(super) fn read(&mut self, count: usize) -> Option<usize> {
        let value = self.ahead() & ((1 << count) - 1);
        self.pass(count)?;
        usize::try_from(value).ok()
    }
}
