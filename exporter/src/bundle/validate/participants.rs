//! Counts distinct participants by phase and in total, in bounded memory.
//!
//! Pseudonyms are kept as numbers, all other references as bytes.

use std::{collections::HashSet, io};

use foldhash::quality::RandomState;

use super::unique::Set;
use crate::{privacy::participants::reference, storage::spill::SpillOptions};

#[derive(Debug)]
pub(crate) struct Participants {
    /// Phase and number, while there is room.
    pseudonyms: HashSet<[u8; CODE], RandomState>,
    most: usize,
    /// Phase and reference of all others.
    of_phase: Set,
    all: Set,
    key: Vec<u8>,
}

const CODE: usize = 4 + 16;
/// Bytes that a pseudonym takes, including empty slots of the table.
const COST: usize = 2 * CODE;

impl Participants {
    /// Takes three shares of the room.
    pub(crate) fn new(share: &SpillOptions) -> Self {
        Self {
            pseudonyms: HashSet::default(),
            most: share.memory / COST,
            of_phase: Set::new(share.clone()),
            all: Set::new(share.clone()),
            key: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn add(&mut self, phase: u32, reference: &[u8], pseudonym: Option<u128>) -> io::Result<()> {
        let new = match pseudonym {
            Some(number) if self.pseudonyms.len() < self.most => self.pseudonyms.insert(code(phase, number)),
            Some(number) if self.pseudonyms.contains(&code(phase, number)) => false,
            _ => {
                self.key.clear();
                self.key.extend_from_slice(&phase.to_be_bytes());
                self.key.extend_from_slice(reference);
                self.of_phase.insert(&self.key)?
            }
        };
        if new {
            self.all.insert(reference)?;
        }
        Ok(())
    }

    /// Calls with the phase of each and the reference to them; gives how many there are in all.
    pub(crate) fn finish(self, mut each: impl FnMut(u32, Reference<'_>)) -> io::Result<u64> {
        for code in &self.pseudonyms {
            each(phase(code), Reference::Pseudonym(number(code)));
        }
        self.of_phase.finish(|key| each(phase(key), Reference::Other(&key[4..])))?;
        let mut count = 0;
        self.all.finish(|_| count += 1)?;
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
    pub(crate) fn written(self) -> Vec<u8> {
        match self {
            Self::Pseudonym(number) => reference(number).into_bytes(),
            Self::Other(reference) => reference.to_vec(),
        }
    }
}

fn code(phase: u32, number: u128) -> [u8; CODE] {
    let mut code = [0; CODE];
    code[..4].copy_from_slice(&phase.to_be_bytes());
    code[4..].copy_from_slice(&number.to_be_bytes());
    code
}

fn phase(key: &[u8]) -> u32 {
    key.first_chunk().map_or(u32::MAX, |phase| u32::from_be_bytes(*phase))
}

fn number(code: &[u8; CODE]) -> u128 {
    code.last_chunk().map_or(0, |number| u128::from_be_bytes(*number))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::privacy::participants::number_of;

    #[test]
    fn participants_are_counted_once_however_little_room_there_is() {
        let folder = tempfile::tempdir().unwrap();
        for memory in [0, 700, 20_000, usize::MAX] {
            let mut participants =
                Participants::new(&SpillOptions { memory, folder: folder.path().to_owned() });
            let mut written = HashSet::new();
            for at in 0..3_000_u32 {
                let (phase, who) = (at % 2, at * 7 % 331);
                let reference =
                    if who % 3 == 0 { format!("p{who}") } else { format!("participant:{who:032x}") };
                participants.add(phase, reference.as_bytes(), number_of(reference.as_bytes())).unwrap();
                written.insert((phase, reference.into_bytes()));
            }
            let mut phases = BTreeMap::new();
            let all = participants.finish(|phase, who| {
                *phases.entry(phase).or_insert(0) += 1;
                assert!(written.remove(&(phase, who.written())));
            });
            let all = all.unwrap();
            assert!(written.is_empty());
            assert_eq!((all, phases), (331, BTreeMap::from([(0, 331), (1, 331)])), "{memory}");
        }
    }
}
