//! How far two fingerprints are apart, by each kind of hash that both have.
//!
//! What is near enough to be a match is decided by who asks; many at once are compared by an index.

use serde::{Serialize, Serializer};

use crate::{
    fingerprint::Fingerprint,
    hashes::pdq::{PdqHash, Turn},
};

/// The distance of the nearest two frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PdqDistance {
    pub distance: u32,
    /// The frames' places.
    pub frames: (u32, u32),
    /// How the first picture must be turned to be this near. Not said where it is as near as it stands.
    #[serde(serialize_with = "tag", skip_serializing_if = "Option::is_none")]
    pub turned: Option<Turn>,
}

fn tag<S: Serializer>(turn: &Option<Turn>, to: S) -> Result<S::Ok, S::Error> {
    turn.map(Turn::tag).serialize(to)
}

/// Nothing where one of both has no such hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Comparison {
    pub same_bytes: bool,
    /// In bits, of 256. Up to 31 are taken for the same picture.
    pub pdq: Option<PdqDistance>,
    /// In bits, of 64.
    pub gradient8: Option<u32>,
    /// In bits, of 256.
    pub dct16: Option<u32>,
}

impl Comparison {
    pub fn of(one: &Fingerprint, other: &Fingerprint) -> Self {
        Self {
            same_bytes: one.digests == other.digests,
            pdq: nearest(one, other),
            gradient8: one.gradient8.zip(other.gradient8).map(|(one, other)| bits(&one, &other)),
            dct16: one.dct16.zip(other.dct16).map(|(one, other)| bits(&one, &other)),
        }
    }
}

fn nearest(one: &Fingerprint, other: &Fingerprint) -> Option<PdqDistance> {
    let mut nearest: Option<PdqDistance> = None;
    for frame in &one.frames {
        let turned = Turn::ALL.into_iter().map(Some).zip(frame.turned.iter());
        for (turn, hash) in std::iter::once((None, &frame.pdq)).chain(turned) {
            for theirs in &other.frames {
                let distance = PdqHash::distance(hash, &theirs.pdq);
                if nearest.is_none_or(|nearest| distance < nearest.distance) {
                    nearest = Some(PdqDistance { distance, frames: (frame.at, theirs.at), turned: turn });
                }
            }
        }
    }
    nearest
}

fn bits(one: &[u8], other: &[u8]) -> u32 {
    one.iter().zip(other).map(|(one, other)| (one ^ other).count_ones()).sum()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{Digests, Frame, State};

    fn print(name: &[u8], hashes: &[u8]) -> Fingerprint {
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
    fn the_nearest_frames_count_and_a_turn_only_if_it_is_nearer() {
        let (one, other) = (print(b"a", &[0xff, 0b111]), print(b"b", &[0xf0, 0b011]));
        let comparison = Comparison::of(&one, &other);
        let expected = PdqDistance { distance: 1, frames: (1, 1), turned: None };
        assert_eq!((comparison.pdq, comparison.same_bytes), (Some(expected), false));
        assert_eq!((comparison.gradient8, comparison.dct16), (Some(32), None));

        let mut turned = print(b"c", &[0xff]);
        turned.frames[0].turned[4] = other.frames[0].pdq;
        let nearest = Comparison::of(&turned, &other).pdq.unwrap();
        assert_eq!((nearest.distance, nearest.turned), (0, Some(Turn::MirrorTopBottom)));
        assert!(serde_json::to_string(&nearest).unwrap().contains("\"mirror_top_bottom\""));
    }

    #[test]
    fn what_has_no_hash_has_no_distance() {
        let none = Fingerprint::unhashed(State::Undecodable, None, Digests::of(b"a"));
        let comparison = Comparison::of(&none, &print(b"a", &[1]));
        assert_eq!(comparison, Comparison { same_bytes: true, pdq: None, gradient8: None, dct16: None });
    }
}
