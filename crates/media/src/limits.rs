//! Settings of decoding and hashing, with defaults and validation. Limits on downloads are in `egress`.

use serde::{Deserialize, Serialize};
use tidegate_image_decode::DecodeLimits;

use crate::hashes::pdq;

/// The section `media` of the service's settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Largest file to decode, in bytes. Larger files get digests only and the state `too_large`. Default 100 MiB.
    pub bytes: u64,
    /// Largest number of pixels of a picture, as stated by its header. Default 50 million.
    pub pixels: u64,
    /// Longest side of a picture in pixels, at most 32,768. Default 32,768.
    pub side: u32,
    /// Largest number of pixels of all frames of an animation together, because a frame cannot be decoded without the
    /// earlier ones. A frame counts at least as the canvas and at least as 64 x 64 pixels, the fixed cost of a tiny frame.
    /// Prefix codes of a lossless WebP count as pixels if they take longer than its pixels. Default 250 million: at most
    /// 61,035 frames.
    pub animation_pixels: u64,
    /// Number of hashed frames of an animation after the first: evenly spaced, including the last. Default 4.
    pub frames: u32,
    /// Memory shared by all concurrent decoders, in bytes. A picture waits until enough is free; a picture that needs more
    /// than the total is `too_large`. Default 512 MiB.
    pub decode_bytes: u64,
    /// Number of decoder threads. Default 0: one per core.
    pub threads: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 100 << 20,
            pixels: 50_000_000,
            side: pdq::MAX_SIDE,
            animation_pixels: 250_000_000,
            frames: 4,
            decode_bytes: 512 << 20,
            threads: 0,
        }
    }
}

/// Invalid setting, or contradiction between two settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitsError {
    #[error("media.{name} = {value}: {problem}")]
    Unusable { name: &'static str, value: u64, problem: &'static str },
    #[error("media.{lesser} = {less} is above media.{greater} = {great}")]
    Contradiction { lesser: &'static str, less: u64, greater: &'static str, great: u64 },
}

impl LimitsError {
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Unusable { .. } => "setting_unusable",
            Self::Contradiction { .. } => "settings_contradict",
        }
    }
}

impl Limits {
    /// Refuses invalid values. A contradiction names both settings.
    pub fn validate(&self) -> Result<(), LimitsError> {
        for (name, value) in [
            ("bytes", self.bytes),
            ("pixels", self.pixels),
            ("side", self.side.into()),
            ("animation_pixels", self.animation_pixels),
            ("decode_bytes", self.decode_bytes),
        ] {
            if value == 0 {
                return Err(LimitsError::Unusable { name, value, problem: "must be at least 1" });
            }
        }
        if self.side > pdq::MAX_SIDE {
            return Err(LimitsError::Unusable {
                name: "side",
                value: self.side.into(),
                problem: "must be at most 32768",
            });
        }
        // A typing error here would otherwise exhaust the threads of the system.
        if self.threads > 1024 {
            return Err(LimitsError::Unusable {
                name: "threads",
                value: self.threads as u64,
                problem: "must be at most 1024",
            });
        }
        // Otherwise every animation with the largest allowed frame would be refused.
        if self.pixels > self.animation_pixels {
            return Err(LimitsError::Contradiction {
                lesser: "pixels",
                less: self.pixels,
                greater: "animation_pixels",
                great: self.animation_pixels,
            });
        }
        Ok(())
    }

    /// Returns the limits of decoding. The shortest side is that of a picture with a hash.
    pub(crate) fn decode_limits(&self) -> DecodeLimits {
        DecodeLimits {
            bytes: self.bytes,
            pixels: self.pixels,
            min_side: pdq::MIN_SIDE,
            side: self.side,
            animation_pixels: self.animation_pixels,
            frames: self.frames,
            decode_bytes: self.decode_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn defaults_are_valid() {
        Limits::default().validate().unwrap();
        assert_eq!(serde_json::from_str::<Limits>("{}").unwrap(), Limits::default());
    }

    #[test]
    fn invalid_value_is_named() {
        let limits = Limits::default;
        for (limits, text) in [
            (Limits { bytes: 0, ..limits() }, "media.bytes = 0: must be at least 1"),
            (Limits { side: 40_000, ..limits() }, "media.side = 40000: must be at most 32768"),
            (Limits { threads: 5_000, ..limits() }, "media.threads = 5000: must be at most 1024"),
            (
                Limits { animation_pixels: 1, ..limits() },
                "media.pixels = 50000000 is above media.animation_pixels = 1",
            ),
        ] {
            assert_eq!(limits.validate().unwrap_err().to_string(), text);
        }
    }
}
