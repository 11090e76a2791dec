//! Luma of one decoded picture.

/// Luma of one picture, in rows without gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LumaImage {
    pub width: u32,
    pub height: u32,
    pub samples: Vec<u8>,
}

impl LumaImage {
    /// Returns `None` if the number of samples is not width x height.
    pub(crate) fn new(width: u32, height: u32, samples: Vec<u8>) -> Option<Self> {
        (samples.len() as u64 == u64::from(width) * u64::from(height)).then_some(Self {
            width,
            height,
            samples,
        })
    }
}
