//! Distances between two fingerprints, one for each kind of hash that both have. The caller sets the match thresholds.

use serde::{Serialize, Serializer};

use crate::{
    fingerprint::Fingerprint,
    hashes::pdq::{Orientation, PdqHash},
};

/// Distance of the two nearest frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PdqDistance {
    pub distance: u32,
    /// Indices of the frames.
    pub frames: (u32, u32),
    /// Rotation or mirroring of the first picture at this distance. `None` if the unchanged picture is equally near.
    #[serde(serialize_with = "serialize_tag", skip_serializing_if = "Option::is_none")]
    pub turned: Option<Orientation>,
}

fn serialize_tag<S: Serializer>(orientation: &Option<Orientation>, serializer: S) -> Result<S::Ok, S::Error> {
    orientation.map(Orientation::tag).serialize(serializer)
}

/// Distances by kind of hash; `None` if one of the fingerprints has no such hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Comparison {
    pub same_bytes: bool,
    /// Differing bits of 256. Up to 31 count as the same picture.
    pub pdq: Option<PdqDistance>,
    /// Differing bits of 64.
    pub gradient8: Option<u32>,
    /// Differing bits of 256.
    pub dct16: Option<u32>,
}

impl Comparison {
    pub fn of(one: &Fingerprint, other: &Fingerprint) -> Self {
        Self {
            same_bytes: one.digests == other.digests,
            pdq: find_nearest_frames(one, other),
            gradient8: one.gradient8.zip(other.gradient8).map(|(one, other)| differing_bits(&one, &other)),
            dct16: one.dct16.zip(other.dct16).map(|(one, other)| differing_bits(&one, &other)),
        }
    }
}

fn find_nearest_frames(one: &Fingerprint, other: &Fingerprint) -> Option<PdqDistance> {
    let mut nearest: Option<PdqDistance> = None;
    for frame in &one.frames {
        let reoriented_hashes = Orientation::ALL.into_iter().map(Some).zip(frame.turned.iter());
        // The unchanged picture is compared first, so that it wins a tie against its rotations.
        for (orientation, hash) in std::iter::once((None, &frame.pdq)).chain(reoriented_hashes) {
            for other_frame in &other.frames {
                let distance = PdqHash::distance(hash, &other_frame.pdq);
                if nearest.is_none_or(|nearest| distance < nearest.distance) {
                    nearest = Some(PdqDistance {
                        distance,
                        frames: (frame.at, other_frame.at),
                        turned: orientation,
                    });
                }
            }
        }
    }
    nearest
}

fn differing_bits(one: &[u8], other: &[u8]) -> u32 {
    one.iter().zip(other).map(|(one, other)| (one ^ other).count_ones()).sum()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{Digests, Frame, State};

    fn fingerprint_with_hashes(name: &[u8], hashes: &[u8]) -> Fingerprint {
        let frame = |(at, first): (u32, &u8)| {
            let mut hash = [0; 32];
            hash[0] = *first;
            Frame { at, pdq: PdqHash(hash), quality: 100, turned: vec![PdqHash([!first; 32]); 7] }
        };
        Fingerprint {
            frames: (0..).zip(hashes).map(frame).collect(),
            gradient8: Some([hashes[0]; 8]),
            ..Fingerprint::unhashed(State::Ok, None, Digests::of(name))
        }
    }

    #[test]
    fn nearest_frames_count_and_rotation_only_if_nearer() {
        let (one, other) =
            (fingerprint_with_hashes(b"a", &[0xff, 0b111]), fingerprint_with_hashes(b"b", &[0xf0, 0b011]));
        let comparison = Comparison::of(&one, &other);
        let expected = PdqDistance { distance: 1, frames: (1, 1), turned: None };
        assert_eq!((comparison.pdq, comparison.same_bytes), (Some(expected), false));
        assert_eq!((comparison.gradient8, comparison.dct16), (Some(32), None));

        let mut turned = fingerprint_with_hashes(b"c", &[0xff]);
        turned.frames[0].turned[4] = other.frames[0].pdq;
        let nearest = Comparison::of(&turned, &other).pdq.unwrap();
        assert_eq!((nearest.distance, nearest.turned), (0, Some(Orientation::MirrorTopBottom)));
        assert!(serde_json::to_string(&nearest).unwrap().contains("\"mirror_top_bottom\""));
    }

    #[test]
    fn missing_hash_has_no_distance() {
        let unhashed = Fingerprint::unhashed(State::Undecodable, None, Digests::of(b"a"));
        let comparison = Comparison::of(&unhashed, &fingerprint_with_hashes(b"a", &[1]));
        assert_eq!(comparison, Comparison { same_bytes: true, pdq: None, gradient8: None, dct16: None });
    }
}
