//! Counts distinct participants by phase and in total, in bounded memory. Pseudonyms are stored as numbers, other
//! references as bytes.

use std::{collections::HashSet, io};

use foldhash::quality::RandomState;

use super::unique::KeySet;
use crate::{privacy::participants::reference, storage::spill::SpillOptions};

/// Distinct participants of each phase.
#[derive(Debug)]
pub(crate) struct Participants {
    /// Phase and pseudonym, up to `max_pseudonyms`.
    pseudonyms: HashSet<[u8; CODE_BYTES], RandomState>,
    max_pseudonyms: usize,
    /// Phase and reference of all participants that are not in `pseudonyms`.
    references_by_phase: KeySet,
    references: KeySet,
    key: Vec<u8>,
}

/// Size of an encoded phase and pseudonym.
const CODE_BYTES: usize = 4 + 16;
/// Memory of a pseudonym in bytes, with its share of the empty slots of the table.
const BYTES_PER_PSEUDONYM: usize = 2 * CODE_BYTES;

impl Participants {
    /// Uses the memory of `share` three times.
    pub(crate) fn new(share: &SpillOptions) -> Self {
        Self {
            pseudonyms: HashSet::default(),
            max_pseudonyms: share.memory / BYTES_PER_PSEUDONYM,
            references_by_phase: KeySet::new(share.clone()),
            references: KeySet::new(share.clone()),
            key: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn add(&mut self, phase: u32, reference: &[u8], pseudonym: Option<u128>) -> io::Result<()> {
        let is_new = match pseudonym {
            Some(number) if self.pseudonyms.len() < self.max_pseudonyms => {
                self.pseudonyms.insert(encode_code(phase, number))
            }
            // The table is full: further pseudonyms are stored like other references, but not if they are in the table.
            Some(number) if self.pseudonyms.contains(&encode_code(phase, number)) => false,
            _ => {
                self.key.clear();
                self.key.extend_from_slice(&phase.to_be_bytes());
                self.key.extend_from_slice(reference);
                self.references_by_phase.insert(&self.key)?
            }
        };
        // A participant that is new in this phase may be known from another, so the set of all counts it once.
        if is_new {
            self.references.insert(reference)?;
        }
        Ok(())
    }

    /// Calls `visit` with each participant of each phase, and returns the number of distinct participants.
    pub(crate) fn finish(self, mut visit: impl FnMut(u32, Reference<'_>)) -> io::Result<u64> {
        for code in &self.pseudonyms {
            visit(decode_phase(code), Reference::Pseudonym(decode_number(code)));
        }
        self.references_by_phase.finish(|key| visit(decode_phase(key), Reference::Other(&key[4..])))?;
        let mut count = 0;
        self.references.finish(|_| count += 1)?;
        Ok(count)
    }
}

/// Reference to a participant.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reference<'r> {
    Pseudonym(u128),
    Other(&'r [u8]),
}

impl Reference<'_> {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        match self {
            Self::Pseudonym(number) => reference(number).into_bytes(),
            Self::Other(reference) => reference.to_vec(),
        }
    }
}

fn encode_code(phase: u32, number: u128) -> [u8; CODE_BYTES] {
    let mut code = [0; CODE_BYTES];
    code[..4].copy_from_slice(&phase.to_be_bytes());
    code[4..].copy_from_slice(&number.to_be_bytes());
    code
}

fn decode_phase(key: &[u8]) -> u32 {
    key.first_chunk().map_or(u32::MAX, |phase| u32::from_be_bytes(*phase))
}

fn decode_number(code: &[u8; CODE_BYTES]) -> u128 {
    code.last_chunk().map_or(0, |number| u128::from_be_bytes(*number))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::privacy::participants::parse_reference;

    #[test]
    fn participants_are_counted_once_within_any_memory() {
        let folder = tempfile::tempdir().unwrap();
        for memory in [0, 700, 20_000, usize::MAX] {
            let mut participants =
                Participants::new(&SpillOptions { memory, folder: folder.path().to_owned() });
            let mut remaining = HashSet::new();
            for at in 0..3_000_u32 {
                let (phase, participant) = (at % 2, at * 7 % 331);
                let reference = if participant % 3 == 0 {
                    format!("p{participant}")
                } else {
                    format!("participant:{participant:032x}")
                };
                participants.add(phase, reference.as_bytes(), parse_reference(reference.as_bytes())).unwrap();
                remaining.insert((phase, reference.into_bytes()));
            }
            let mut phases = BTreeMap::new();
            let participant_count = participants.finish(|phase, reference| {
                *phases.entry(phase).or_insert(0) += 1;
                assert!(remaining.remove(&(phase, reference.to_bytes())));
            });
            let all = participant_count.unwrap();
            assert!(remaining.is_empty());
            assert_eq!((all, phases), (331, BTreeMap::from([(0, 331), (1, 331)])), "{memory}");
        }
    }
}
