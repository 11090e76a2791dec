//! Limits of decoding, given by the caller. The settings behind them, with defaults and validation, are in `tidegate-media`.

/// Limits that a file is checked against before and while it is decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeLimits {
    /// Largest file, in bytes.
    pub bytes: u64,
    /// Largest number of pixels of a picture, as stated by its header.
    pub pixels: u64,
    /// Shortest side of a picture in pixels. A smaller picture is `DecodeError::TooSmall`.
    pub min_side: u32,
    /// Longest side of a picture in pixels.
    pub side: u32,
    /// Largest number of pixels of all frames of an animation together.
    pub animation_pixels: u64,
    /// Number of decoded frames of an animation after the first.
    pub frames: u32,
    /// Size of the memory budget in bytes, as an upper bound of the prefix codes of a WebP.
    pub decode_bytes: u64,
}
