//! Fingerprint of a file: its state, its digests, and the hashes of its pictures.

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use tidegate_image_decode::{Format, Reason};
use tidegate_schemas::{hex, string_enum};

use crate::hashes::{
    digests::Digests,
    pdq::{MIN_QUALITY, PdqHash},
};

/// Version of the hash algorithms, their sizes and the luma conversion. Gradient and median hashes are comparable only
/// within one version, so stored fingerprints of another version are recomputed. PDQ and digests are comparable with any
/// software.
pub const PIPELINE: &str = "9;pdq:y601;ih3:gradient8:y601;ih3:median-dct16:y601";

string_enum! {
    /// Outcome of hashing a file's pictures.
    pub enum State {
        Ok = "ok",
        /// Hashes exist, but the pictures have too little detail to be compared.
        LowQuality = "low_quality",
        /// A side has fewer than five pixels.
        TooSmall = "too_small",
        /// Refused by its header, before decoding.
        TooLarge = "too_large",
        /// Not a picture, or unreadable for every decoder.
        Undecodable = "undecodable",
    }
}

/// A frame of an animation, or the only picture of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Index among the frames, from 0. The default picture of an animated PNG follows the last frame if it is not a frame
    /// itself.
    pub at: u32,
    pub pdq: PdqHash,
    /// Amount of detail, from 0 to 100.
    pub quality: u8,
    /// Hashes of the picture rotated and mirrored, in the order of `Orientation::ALL`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turned: Vec<PdqHash>,
}

impl Frame {
    /// True if the picture has enough detail for its hash to be compared.
    pub fn is_comparable(&self) -> bool {
        self.quality >= MIN_QUALITY
    }
}

/// A value of `PIPELINE`. With a plain `&'static str`, serde's derive would require input with a static lifetime.
pub type PipelineVersion = &'static str;

/// State, digests and hashes of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    pub state: State,
    /// Reason for missing hashes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    pub format: Option<Format>,
    /// Size stated by the header; 0 if the header was not read.
    pub width: u32,
    pub height: u32,
    /// The picture, or the chosen frames of an animation, including those with little detail.
    pub frames: Vec<Frame>,
    /// Gradient hash of `image_hasher`, 8 x 8, of the first frame.
    #[serde(default, with = "hex::optional", skip_serializing_if = "Option::is_none")]
    pub gradient8: Option<[u8; 8]>,
    /// Median hash over a DCT of `image_hasher`, 16 x 16, of the first frame.
    #[serde(default, with = "hex::optional", skip_serializing_if = "Option::is_none")]
    pub dct16: Option<[u8; 32]>,
    pub digests: Digests,
    /// `PIPELINE` at the time of hashing. Deserialization rejects every other version, because its hashes are not
    /// comparable.
    #[serde(deserialize_with = "deserialize_pipeline")]
    pub pipeline: PipelineVersion,
}

impl Fingerprint {
    /// Returns the fingerprint of a file without picture hashes.
    pub fn unhashed(state: State, reason: Option<Reason>, digests: Digests) -> Self {
        Self {
            state,
            reason,
            format: None,
            width: 0,
            height: 0,
            frames: Vec::new(),
            gradient8: None,
            dct16: None,
            digests,
            pipeline: PIPELINE,
        }
    }

    /// Returns the fingerprint of a file larger than `media.bytes`.
    pub fn too_many_bytes(digests: Digests) -> Self {
        Self::unhashed(State::TooLarge, Some(Reason::Bytes), digests)
    }
}

fn deserialize_pipeline<'de, D: Deserializer<'de>>(deserializer: D) -> Result<&'static str, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text == PIPELINE { Ok(PIPELINE) } else { Err(D::Error::custom("made by another pipeline")) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn sample_fingerprint() -> Fingerprint {
        Fingerprint {
            state: State::Ok,
            format: Some(Format::WebP),
            width: 640,
            height: 480,
            frames: vec![Frame {
                at: 0,
                pdq: PdqHash([7; 32]),
                quality: 99,
                turned: vec![PdqHash([9; 32]); 7],
            }],
            gradient8: Some([1; 8]),
            dct16: Some([2; 32]),
            ..Fingerprint::unhashed(State::Ok, None, Digests::of(b"x"))
        }
    }

    #[test]
    fn stored_fingerprint_is_read_back_unchanged() {
        let oversized = Fingerprint::too_many_bytes(Digests::of(b"y"));
        for fingerprint in [sample_fingerprint(), oversized] {
            let text = serde_json::to_string(&fingerprint).unwrap();
            assert_eq!(serde_json::from_str::<Fingerprint>(&text).unwrap(), fingerprint, "{text}");
        }
    }

    #[test]
    fn fingerprint_of_another_pipeline_is_not_read() {
        let text = serde_json::to_string(&sample_fingerprint()).unwrap();
        let other_pipeline_text = text.replace(PIPELINE, "0;pdq:y709");
        assert!(
            serde_json::from_str::<Fingerprint>(&other_pipeline_text)
                .unwrap_err()
                .to_string()
                .contains("another pipeline")
        );
    }
}
