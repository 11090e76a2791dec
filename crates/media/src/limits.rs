//! Settings of decoding and hashing, their defaults, and the checks on their values. Limits of downloads are in `egress`.

use serde::{Deserialize, Serialize};

use crate::hashes::pdq;

/// The section `media` of the service's settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Largest file whose picture is hashed, in bytes. Larger files have only digests, and the state `too_large`. Default
    /// 100 MiB.
    pub bytes: u64,
    /// Largest number of pixels of a picture, by its header. Default 50 million.
    pub pixels: u64,
    /// Longest side of a picture in pixels, at most 32,768. Default 32,768.
    pub side: u32,
    /// Largest number of pixels of all frames of an animation together: each must be decoded to reach a later one. A frame
    /// counts at least as the canvas, and as 64 x 64 pixels, since a tiny one costs more than its own pixels. Codes of a
    /// lossless WebP that take longer than its pixels count as pixels. Default 250 million, so at most 61,035 frames.
    pub animation_pixels: u64,
    /// Number of frames of an animation that are hashed beside the first, evenly spaced, the last one included. Default 4.
    pub frames: u32,
    /// Memory for everything that is decoded at once, in bytes. A picture waits until its share is free; one that needs more
    /// than all of it is `too_large`. Default 512 MiB.
    pub decode_bytes: u64,
    /// Number of threads that decode and hash. Default 0: one per core.
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

/// A value that cannot be used, alone or together with another one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitsError {
    #[error("media.{name} = {value}: {why}")]
    Unusable { name: &'static str, value: u64, why: &'static str },
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
    /// Refuses values that cannot work, naming both where two contradict each other.
    pub fn validate(&self) -> Result<(), LimitsError> {
        for (name, value) in [
            ("bytes", self.bytes),
            ("pixels", self.pixels),
            ("side", self.side.into()),
            ("animation_pixels", self.animation_pixels),
            ("decode_bytes", self.decode_bytes),
        ] {
            if value == 0 {
                return Err(LimitsError::Unusable { name, value, why: "must be at least 1" });
            }
        }
        if self.side > pdq::MAX_SIDE {
            return Err(LimitsError::Unusable {
                name: "side",
                value: self.side.into(),
                why: "must be at most 32768",
            });
        }
        if self.threads > 1024 {
            return Err(LimitsError::Unusable {
                name: "threads",
                value: self.threads as u64,
                why: "must be at most 1024",
            });
        }
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
