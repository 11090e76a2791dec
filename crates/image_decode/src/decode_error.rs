//! Errors of decoding, with the stored reason.

use tidegate_schemas::string_enum;

string_enum! {
    /// Reason for a file without decoded pictures, stored with its fingerprint.
    pub enum Reason {
        /// More bytes than `media.bytes`.
        Bytes = "bytes",
        /// More pixels than `media.pixels`.
        Pixels = "pixels",
        /// A side longer than `media.side`.
        Side = "side",
        /// All frames together have more pixels than `media.animation_pixels`.
        Animation = "animation",
        /// Decoding needs more memory than `media.decode_bytes`.
        Memory = "memory",
        /// The first bytes match no supported format.
        UnknownFormat = "unknown_format",
        /// The format's decoders find errors in the file.
        Broken = "broken",
        /// No decoder reads this variant of the format.
        Unsupported = "unsupported",
        /// The decoders panicked.
        DecoderFault = "decoder_fault",
    }
}

/// Reason for a failed decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    TooLarge(Reason),
    TooSmall,
    Undecodable(Reason),
}

impl DecodeError {
    pub(crate) const BROKEN: Self = Self::Undecodable(Reason::Broken);
    pub(crate) const UNSUPPORTED: Self = Self::Undecodable(Reason::Unsupported);
    pub(crate) const OUT_OF_MEMORY: Self = Self::TooLarge(Reason::Memory);
}
