//! What is known of one file: its state, its digests, and the hashes of its pictures.
//!
//! How they come about is the matter of `decode` and `hashes`; which of them match is that of the banks.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

use crate::hashes::{
    digests::Digests,
    hex,
    pdq::{MIN_QUALITY, PdqHash},
};

/// By which algorithms, sizes and luma the hashes of a fingerprint were made. Gradient and median hashes compare only
/// within one pipeline, so whoever keeps fingerprints makes them anew when this has changed. PDQ and digests compare
/// with everybody's.
pub const PIPELINE: &str = "9;pdq:y601;ih3:gradient8:y601;ih3:median-dct16:y601";

/// Whether a file's picture could be hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Ok,
    /// There are hashes, but too little is to be seen for them to say anything.
    LowQuality,
    /// A side has fewer than five pixels: there is nothing to hash.
    TooSmall,
    /// Refused by its header, before anything was decoded.
    TooLarge,
    /// No picture, or none that a decoder can read.
    Undecodable,
}

impl State {
    pub const ALL: [Self; 5] =
        [Self::Ok, Self::LowQuality, Self::TooSmall, Self::TooLarge, Self::Undecodable];

    pub fn tag(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::LowQuality => "low_quality",
            Self::TooSmall => "too_small",
            Self::TooLarge => "too_large",
            Self::Undecodable => "undecodable",
        }
    }

    pub fn named(tag: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.tag() == tag)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.tag())
    }
}

/// Why a file has no hashes: the texts that `Fingerprint::reason` may hold.
pub mod reason {
    /// More bytes than `media.bytes`.
    pub const BYTES: &str = "bytes";
    /// More pixels than `media.pixels`.
    pub const PIXELS: &str = "pixels";
    /// A side longer than `media.side`.
    pub const SIDE: &str = "side";
    /// All frames together have more pixels than `media.animation_pixels`.
    pub const ANIMATION: &str = "animation";
    /// Decoding it needs more memory than `media.decode_bytes`.
    pub const MEMORY: &str = "memory";
    /// The first bytes are those of no format that is decoded.
    pub const UNKNOWN_FORMAT: &str = "unknown_format";
    /// The format's decoders find faults.
    pub const BROKEN: &str = "broken";
    /// The format is known, this variant of it has no decoder.
    pub const UNSUPPORTED: &str = "unsupported";
    /// The decoders ran into a fault of their own.
    pub const DECODER_FAULT: &str = "decoder_fault";

    pub(super) const ALL: [&str; 9] =
        [BYTES, PIXELS, SIDE, ANIMATION, MEMORY, UNKNOWN_FORMAT, BROKEN, UNSUPPORTED, DECODER_FAULT];

    pub fn named(text: &str) -> Option<&'static str> {
        ALL.into_iter().find(|known| *known == text)
    }
}

/// The formats that are decoded, by a file's first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    Jpeg,
    Png,
    Gif,
    WebP,
    Bmp,
    Tiff,
}

impl Format {
    pub fn tag(self) -> &'static str {
        match self {
            Self::Jpeg => "jpeg",
            Self::Png => "png",
            Self::Gif => "gif",
            Self::WebP => "webp",
            Self::Bmp => "bmp",
            Self::Tiff => "tiff",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.tag())
    }
}

/// A frame of an animation, or the one picture of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Its place among the frames, from 0. After them comes the picture that an animated PNG has for those who do not
    /// play it, if it is none of them.
    pub at: u32,
    pub pdq: PdqHash,
    /// How much is to be seen, 0 to 100.
    pub quality: u8,
    /// Its hashes turned and mirrored, in the order of `Turn::ALL`: for look-ups that shall find those, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turned: Vec<PdqHash>,
}

impl Frame {
    /// Whether its hash says enough to be compared.
    pub fn is_telling(&self) -> bool {
        self.quality >= MIN_QUALITY
    }
}

/// Text that is known when the service is built. The name keeps serde from asking for input that lives as long.
pub type Tag = &'static str;

/// What is known of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    pub state: State,
    /// Why there are no hashes: one of `reason`.
    #[serde(default, deserialize_with = "known_reason", skip_serializing_if = "Option::is_none")]
    pub reason: Option<Tag>,
    pub format: Option<Format>,
    /// As the header says; 0 where none was read.
    pub width: u32,
    pub height: u32,
    /// One, or those of an animation that were chosen. Frames with little to see are among them.
    pub frames: Vec<Frame>,
    /// image_hasher's Gradient, 8 x 8, of the first frame.
    #[serde(default, with = "hex::optional", skip_serializing_if = "Option::is_none")]
    pub gradient8: Option<[u8; 8]>,
    /// image_hasher's Median over a DCT, 16 x 16, of the first frame.
    #[serde(default, with = "hex::optional", skip_serializing_if = "Option::is_none")]
    pub dct16: Option<[u8; 32]>,
    pub digests: Digests,
    /// `PIPELINE` when it was made. One of another pipeline is not read: its hashes compare with nothing.
    #[serde(deserialize_with = "this_pipeline")]
    pub pipeline: Tag,
}

impl Fingerprint {
    /// Of a file without hashes of a picture.
    pub fn unhashed(state: State, reason: Option<&'static str>, digests: Digests) -> Self {
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

    /// Of a file with more bytes than are decoded.
    pub fn too_many_bytes(digests: Digests) -> Self {
        Self::unhashed(State::TooLarge, Some(reason::BYTES), digests)
    }
}

fn known_reason<'de, D: Deserializer<'de>>(from: D) -> Result<Option<&'static str>, D::Error> {
    let Some(text) = Option::<String>::deserialize(from)? else { return Ok(None) };
    reason::named(&text).map(Some).ok_or_else(|| D::Error::custom("not a known reason"))
}

fn this_pipeline<'de, D: Deserializer<'de>>(from: D) -> Result<&'static str, D::Error> {
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
    fn a_kept_fingerprint_is_read_as_it_was() {
        let refused = Fingerprint::too_many_bytes(Digests::of(b"y"));
        for whole in [a_fingerprint(), refused] {
            let text = serde_json::to_string(&whole).unwrap();
            assert_eq!(serde_json::from_str::<Fingerprint>(&text).unwrap(), whole, "{text}");
        }
    }

    #[test]
    fn a_fingerprint_of_another_pipeline_is_not_read() {
        let text = serde_json::to_string(&a_fingerprint()).unwrap();
        let other = text.replace(PIPELINE, "0;pdq:y709");
        assert!(
            serde_json::from_str::<Fingerprint>(&other).unwrap_err().to_string().contains("another pipeline")
        );
    }

    #[test]
    fn states_and_formats_are_written_as_their_tags() {
        for state in State::ALL {
            assert_eq!(serde_json::to_string(&state).unwrap(), format!("\"{}\"", state.tag()));
        }
        for format in [Format::Jpeg, Format::Png, Format::Gif, Format::WebP, Format::Bmp, Format::Tiff] {
            assert_eq!(serde_json::to_string(&format).unwrap(), format!("\"{}\"", format.tag()));
        }
    }
}
