//! Fingerprint of a file: its state, its digests, and the hashes of its pictures.

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use tidegate_schemas::{hex, string_enum};

use crate::hashes::{
    digests::Digests,
    pdq::{MIN_QUALITY, PdqHash},
};

/// Version of algorithms, sizes and luma that hashes are made with. Gradient and median hashes compare only within one
/// pipeline, so stored fingerprints of another one are made anew. PDQ and digests compare with those of any software.
pub const PIPELINE: &str = "9;pdq:y601;ih3:gradient8:y601;ih3:median-dct16:y601";

string_enum! {
    /// Outcome of hashing a file's pictures.
    pub enum State {
        Ok = "ok",
        /// There are hashes, but the pictures have too little detail for them to be compared.
        LowQuality = "low_quality",
        /// A side has fewer than five pixels.
        TooSmall = "too_small",
        /// Refused because of its header, before anything was decoded.
        TooLarge = "too_large",
        /// Not a picture, or none that a decoder can read.
        Undecodable = "undecodable",
    }
}

string_enum! {
    /// Why a file has no hashes.
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
        /// The first bytes are not those of a format that is decoded.
        UnknownFormat = "unknown_format",
        /// The format's decoders find errors in the file.
        Broken = "broken",
        /// No decoder reads this variant of the format.
        Unsupported = "unsupported",
        /// The decoders panicked.
        DecoderFault = "decoder_fault",
    }
}

string_enum! {
    /// Formats that are decoded. A file's first bytes decide.
    pub enum Format {
        Jpeg = "jpeg",
        Png = "png",
        Gif = "gif",
        WebP = "webp",
        Bmp = "bmp",
        Tiff = "tiff",
    }
}

/// A frame of an animation, or the only picture of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Index among the frames, from 0. The default picture of an animated PNG comes after them, if it is not a frame.
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

/// A version of the pipeline. The name keeps serde from requiring input with a static lifetime.
pub type PipelineVersion = &'static str;

/// State, digests and hashes of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    pub state: State,
    /// Why there are no hashes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    pub format: Option<Format>,
    /// Size as the header states it; 0 if none was read.
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
    /// `PIPELINE` at the time of hashing. A fingerprint of another pipeline is not read, because its hashes cannot be
    /// compared.
    #[serde(deserialize_with = "current_pipeline")]
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

    /// Returns the fingerprint of a file with more bytes than are decoded.
    pub fn too_many_bytes(digests: Digests) -> Self {
        Self::unhashed(State::TooLarge, Some(Reason::Bytes), digests)
    }
}

fn current_pipeline<'de, D: Deserializer<'de>>(from: D) -> Result<&'static str, D::Error> {
    let text = String::deserialize(from)?;
    if text == PIPELINE { Ok(PIPELINE) } else { Err(D::Error::custom("made by another pipeline")) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn a_fingerprint() -> Fingerprint {
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
        let refused = Fingerprint::too_many_bytes(Digests::of(b"y"));
        for whole in [a_fingerprint(), refused] {
            let text = serde_json::to_string(&whole).unwrap();
            assert_eq!(serde_json::from_str::<Fingerprint>(&text).unwrap(), whole, "{text}");
        }
    }

    #[test]
    fn fingerprint_of_another_pipeline_is_not_read() {
        let text = serde_json::to_string(&a_fingerprint()).unwrap();
        let other = text.replace(PIPELINE, "0;pdq:y709");
        assert!(
            serde_json::from_str::<Fingerprint>(&other).unwrap_err().to_string().contains("another pipeline")
        );
    }
}
