//! Derives pseudonyms of participants with a secret key.
//!
//! A plain hash would be reversible: source ids are small numbers, so all of them can be hashed in seconds.

#![allow(clippy::cast_possible_truncation, reason = "a number that was found to be small")]

use std::{
    collections::{HashMap, HashSet},
    fs::Metadata,
    io,
    os::unix::fs::PermissionsExt as _,
    sync::{Arc, PoisonError, RwLock},
};

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::ParticipantNaming;
use crate::{error::ConvertError, input::table::canonical_number, json::write, plural::HiddenBelow};

/// Secret key of the pseudonyms. Its `Debug` output is redacted.
#[derive(Clone)]
pub struct Key(pub(crate) Vec<u8>);

/// Minimum key length in bytes; shorter keys can be guessed.
const MIN_KEY_BYTES: usize = 16;
const FRESH_KEY_BYTES: usize = 32;

impl Key {
    /// Key from stored bytes, to link several bundles. `None` if it is too short.
    pub fn from_bytes(bytes: Vec<u8>) -> Option<Self> {
        (bytes.len() >= MIN_KEY_BYTES).then_some(Self(bytes))
    }

    /// Generates a random key, which lives as long as the process.
    pub(crate) fn generate() -> Result<Self, ConvertError> {
        let mut bytes = vec![0; FRESH_KEY_BYTES];
        let failed =
            |error| ConvertError::Io { action: "making a key".to_owned(), error: io::Error::other(error) };
        getrandom::fill(&mut bytes).map_err(failed)?;
        Ok(Self(bytes))
    }

    /// Mode of the key file if users other than its owner can read it. They could reverse the pseudonyms.
    pub fn exposed_mode(file: &Metadata) -> Option<u32> {
        let mode = file.permissions().mode() & 0o777;
        (mode & 0o044 != 0).then_some(mode)
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Prefix of participant references.
pub(crate) const PREFIX: &str = "participant:";

/// Domain of pseudonyms. Equal ids of two domains have different pseudonyms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Domain {
    Participant,
    Moderator,
    Item,
    /// Row of a dataset, such as a decision.
    Row,
}

impl Domain {
    fn name(self) -> &'static [u8] {
        match self {
            Self::Participant => b"participant",
            Self::Moderator => b"moderator",
            Self::Item => b"item",
            Self::Row => b"row",
        }
    }
}

/// Deriver of the pseudonyms of one domain and scope.
#[derive(Clone, Debug)]
pub(crate) struct Pseudonymizer {
    mac: Hmac<Sha256>,
}

impl Pseudonymizer {
    pub(crate) fn new(key: &Key, domain: Domain, scope: &str) -> Self {
        let mut mac = Hmac::new_from_slice(&key.0).expect("a key of HMAC may have any length");
        // Zero bytes separate domain, scope and id, so that different inputs are never equal.
        mac.update(domain.name());
        mac.update(&[0]);
        mac.update(scope.as_bytes());
        mac.update(&[0]);
        Self { mac }
    }

    /// Pseudonym of an id; never 0, which is reserved for "no participant".
    pub(crate) fn pseudonym(&self, id: &[u8]) -> u128 {
        let mut mac = self.mac.clone();
        mac.update(id);
        let digest = mac.finalize().into_bytes();
        let mut leading_bytes = [0; 16];
        leading_bytes.copy_from_slice(&digest[..16]);
        u128::from_be_bytes(leading_bytes).max(1)
    }
}

/// References by pseudonym, shared with the row writer.
pub(crate) type ReferenceNames = Arc<RwLock<HashMap<u128, String>>>;

/// Creates the registry of a source from its [`scope`]; `None` if the input does not identify the source.
pub(crate) type RegistryFor<'p> = dyn FnMut(Option<&str>) -> Result<ParticipantRegistry, ConvertError> + 'p;

/// Scope of a source's pseudonyms. Participant ids are unique only within one source of one tool.
pub(crate) fn scope(tool: &str, source: &str) -> String {
    format!("{tool}\0{source}")
}

/// Participants of one source.
#[derive(Debug)]
pub(crate) struct ParticipantRegistry {
    pseudonymizer: Pseudonymizer,
    naming: ParticipantNaming,
    /// Pseudonyms by participant number, 0 for none. Most sources number their participants, so this vector serves
    /// most rows.
    pseudonyms: Vec<u128>,
    /// Groups by participant number. Stays empty for sources without groups.
    number_groups: Vec<u16>,
    large_numbers: HashMap<u64, (u128, u16)>,
    by_text: HashMap<Box<[u8]>, (u128, u16)>,
    /// Participants of rows that have pseudonyms already.
    by_pseudonym: HashSet<u128>,
    /// Participants registered by a table that is read before the rows.
    known_participants: HashMap<Box<[u8]>, KnownParticipant>,
    external_ids: HashMap<Box<[u8]>, String>,
    /// References other than pseudonyms, for naming by source or external ids.
    names: ReferenceNames,
    count: u64,
    /// Threshold below which notes hide counts of participants.
    pub(crate) hidden_below: HiddenBelow,
}

#[derive(Debug, Default)]
struct KnownParticipant {
    /// Group number; 0 for none.
    group: u16,
    /// Number of answers stated by a table beside the votes.
    answers: u32,
}

/// Counts of registered participants without an answer in the rows.
#[derive(Debug, Default)]
pub(crate) struct WithoutAnswers {
    /// Participants with at least one answer stated by a table.
    pub(crate) with_stated_answers: u64,
    pub(crate) without_stated_answers: u64,
    /// Sum of the answers stated for them.
    pub(crate) missing_answers: u64,
}

/// Participant numbers below this are looked up by index, in a vector of at most 16 MiB.
const DIRECT_IDS: u64 = 1 << 20;

impl ParticipantRegistry {
    pub(crate) fn new(key: &Key, scope: &str, naming: ParticipantNaming) -> Self {
        Self {
            pseudonymizer: Pseudonymizer::new(key, Domain::Participant, scope),
            naming,
            pseudonyms: Vec::new(),
            number_groups: Vec::new(),
            large_numbers: HashMap::new(),
            by_text: HashMap::new(),
            by_pseudonym: HashSet::new(),
            known_participants: HashMap::new(),
            external_ids: HashMap::new(),
            names: ReferenceNames::default(),
            count: 0,
            hidden_below: HiddenBelow::default(),
        }
    }

    /// Sets the threshold below which notes hide counts.
    pub(crate) fn hiding_below(self, hidden_below: HiddenBelow) -> Self {
        Self { hidden_below, ..self }
    }

    /// Number of participants with a row.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn set_group(&mut self, id: &[u8], group: u16) {
        self.known_participants.entry(id.into()).or_default().group = group;
    }

    /// Sets the number of answers that a table beside the votes states for the participant.
    pub(crate) fn set_answers(&mut self, id: &[u8], answers: u32) {
        self.known_participants.entry(id.into()).or_default().answers = answers;
    }

    pub(crate) fn uses_external_ids(&self) -> bool {
        self.naming == ParticipantNaming::ExternalIds
    }

    pub(crate) fn set_external_id(&mut self, id: &[u8], external: &str) {
        if self.uses_external_ids() {
            self.external_ids.insert(id.into(), external.to_owned());
        }
    }

    /// Clears the participants with rows, before the rows are read again. Registrations are kept.
    pub(crate) fn forget_answers(&mut self) {
        self.pseudonyms.clear();
        self.number_groups.clear();
        self.large_numbers.clear();
        self.by_text.clear();
        self.by_pseudonym.clear();
        self.count = 0;
    }

    /// Pseudonym of any participant, with or without rows.
    pub(crate) fn pseudonym(&self, id: &[u8]) -> u128 {
        // The id may be a pseudonym of an earlier conversion.
        if self.naming == ParticipantNaming::KeepPseudonyms
            && let Some(pseudonym) = parse_reference(id)
        {
            return pseudonym;
        }
        self.pseudonymizer.pseudonym(id)
    }

    /// Registers the participant of a row that has a pseudonym already.
    pub(crate) fn register_pseudonym(&mut self, pseudonym: u128) {
        self.count += u64::from(self.by_pseudonym.insert(pseudonym));
    }

    /// Registers the participant of a row, and returns the pseudonym and group.
    #[inline]
    pub(crate) fn look_up(&mut self, id: &[u8]) -> (u128, u16) {
        // Ids such as `012` differ from `12` and are looked up as text.
        let Some(number) = canonical_number(id) else {
            return match self.by_text.get(id) {
                Some(participant) => *participant,
                None => {
                    let participant = self.register(id);
                    self.by_text.insert(id.into(), participant);
                    participant
                }
            };
        };
        self.look_up_number(number)
    }

    /// Same as `look_up`, for an id that is a canonical number.
    #[inline]
    pub(crate) fn look_up_number(&mut self, number: u64) -> (u128, u16) {
        let participant = if number < DIRECT_IDS {
            self.find_by_number(number as usize)
        } else {
            self.large_numbers.get(&number).copied()
        };
        participant.unwrap_or_else(|| self.register_number(number))
    }

    #[inline]
    fn find_by_number(&self, number: usize) -> Option<(u128, u16)> {
        let pseudonym = *self.pseudonyms.get(number)?;
        let group = || self.number_groups.get(number).copied().unwrap_or_default();
        (pseudonym != 0).then(|| (pseudonym, group()))
    }

    #[cold]
    fn register_number(&mut self, number: u64) -> (u128, u16) {
        let participant = self.register(number.to_string().as_bytes());
        if number >= DIRECT_IDS {
            self.large_numbers.insert(number, participant);
            return participant;
        }
        let index = number as usize;
        if self.pseudonyms.len() <= index {
            self.pseudonyms.resize(index + 1, 0);
        }
        self.pseudonyms[index] = participant.0;
        // Only registered participants have groups; without them the vector is not needed.
        if !self.known_participants.is_empty() {
            if self.number_groups.len() <= index {
                self.number_groups.resize(index + 1, 0);
            }
            self.number_groups[index] = participant.1;
        }
        participant
    }

    #[cold]
    fn register(&mut self, id: &[u8]) -> (u128, u16) {
        self.count += 1;
        let pseudonym = self.pseudonym(id);
        let name = match self.naming {
            ParticipantNaming::SourceIds => Some(String::from_utf8_lossy(id).into_owned()),
            // Participants without an external id keep their pseudonym.
            ParticipantNaming::ExternalIds => self.external_ids.get(id).cloned(),
            ParticipantNaming::Pseudonyms | ParticipantNaming::KeepPseudonyms => None,
        };
        if let Some(name) = name {
            let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
            names.insert(pseudonym, format!("{PREFIX}{name}"));
        }
        (pseudonym, self.known_participants.get(id).map_or(0, |participant| participant.group))
    }

    /// Sorted references of group members with rows, by group.
    pub(crate) fn members(&self, groups: usize) -> Vec<Vec<String>> {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        let mut members = vec![Vec::new(); groups];
        for (id, participant) in &self.known_participants {
            let Some(pseudonym) = self.find_pseudonym(id) else { continue };
            let name = names.get(&pseudonym).cloned().unwrap_or_else(|| reference(pseudonym));
            // Group 0 means no group.
            if let Some(group_members) =
                usize::from(participant.group).checked_sub(1).and_then(|at| members.get_mut(at))
            {
                group_members.push(name);
            }
        }
        // Map order is random, and equal input must give an identical bundle.
        members.iter_mut().for_each(|group_members| group_members.sort());
        members
    }

    /// Counts registered participants without rows.
    pub(crate) fn count_silent(&self) -> WithoutAnswers {
        let mut totals = WithoutAnswers::default();
        for (_, participant) in
            self.known_participants.iter().filter(|(id, _)| self.find_pseudonym(id).is_none())
        {
            let with_stated_answers = u64::from(participant.answers > 0);
            totals.with_stated_answers += with_stated_answers;
            totals.without_stated_answers += 1 - with_stated_answers;
            totals.missing_answers += u64::from(participant.answers);
        }
        totals
    }

    /// Pseudonym of a participant with rows; `None` for others.
    fn find_pseudonym(&self, id: &[u8]) -> Option<u128> {
        match canonical_number(id) {
            Some(number) if number < DIRECT_IDS => {
                self.find_by_number(number as usize).map(|participant| participant.0)
            }
            Some(number) => self.large_numbers.get(&number).map(|participant| participant.0),
            None => self.by_text.get(id).map(|participant| participant.0),
        }
    }

    /// References other than pseudonyms, if the naming uses them. Rows add entries while they are read.
    pub(crate) fn names(&self) -> Option<ReferenceNames> {
        self.naming.identifies().then(|| Arc::clone(&self.names))
    }
}

/// Formats a pseudonym as a participant reference.
pub(crate) fn reference(number: u128) -> String {
    format!("{PREFIX}{number:032x}")
}

/// Parses a participant reference written by [`reference`]; never returns 0.
#[inline]
pub(crate) fn parse_reference(id: &[u8]) -> Option<u128> {
    let digits: &[u8; 32] = id.strip_prefix(PREFIX.as_bytes())?.try_into().ok()?;
    let number = digits.as_chunks::<8>().0.iter().fold(0, |sum, eight| sum << 32 | u128::from(hex(*eight)));
    // Round trip: other spellings, such as upper case, are not references of this exporter.
    (number != 0 && write::hex(number) == *digits).then_some(number)
}

/// True if the text contains a participant reference.
pub(crate) fn mentions_participant(text: &[u8]) -> bool {
    let prefix = PREFIX.as_bytes();
    memchr::memmem::find_iter(text, prefix)
        .any(|at| text.get(at + prefix.len()).is_some_and(u8::is_ascii_alphanumeric))
}

/// True if an id contains the digits of a pseudonym that are not part of one of the `names`.
#[inline]
pub(crate) fn has_pseudonym(id: &[u8], names: &[&[u8]]) -> bool {
    // Random digits hardly ever start with eight zeros; zero-padded counters do.
    let is_pseudonym = |word: &[u8]| {
        word.len() == 32 && word.iter().all(u8::is_ascii_hexdigit) && !word.starts_with(b"00000000")
    };
    let is_in_name = |word: &[u8]| names.iter().any(|name| memchr::memmem::find(name, word).is_some());
    id.len() >= 32
        && id.split(|byte| !byte.is_ascii_alphanumeric()).any(|word| is_pseudonym(word) && !is_in_name(word))
}

/// Value of eight hexadecimal digits; unspecified for other bytes.
#[inline]
fn hex(eight: [u8; 8]) -> u32 {
    let digits = u64::from_le_bytes(eight);
    let letters = digits >> 6 & 0x0101_0101_0101_0101;
    let ones = (digits & 0x0f0f_0f0f_0f0f_0f0f) + 9 * letters;
    // Joins neighbours in steps: single digits, pairs, groups of four.
    let twos = (ones << 4 | ones >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = (twos << 8 | twos >> 16) & 0x0000_ffff_0000_ffff;
    (fours << 16 | fours >> 32) as u32
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn new_registry(naming: ParticipantNaming) -> ParticipantRegistry {
        ParticipantRegistry::new(&Key::from_bytes(vec![7; 32]).unwrap(), "scope", naming)
    }

    #[test]
    fn each_id_has_one_pseudonym() {
        let mut people = new_registry(ParticipantNaming::Pseudonyms);
        people.set_group(b"12", 3);
        let ids: [&[u8]; 6] = [b"12", b"0", b"1048575", b"1048576", b"012", b"p12"];
        let first: Vec<_> = ids.iter().map(|id| people.look_up(id)).collect();
        let repeated: Vec<_> = ids.iter().map(|id| people.look_up(id)).collect();
        assert_eq!(first, repeated);
        assert_eq!(people.count(), 6);
        let mut distinct: Vec<_> = first.iter().map(|seen| seen.0).collect();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 6);
        assert_eq!((first[0].1, first[4].1), (3, 0));
    }

    #[test]
    fn key_and_scope_separate_bundles() {
        let key = Key::from_bytes(vec![7; 32]).unwrap();
        let other_key = Key::from_bytes(vec![8; 32]).unwrap();
        let pseudonym_of =
            |key, scope| ParticipantRegistry::new(key, scope, ParticipantNaming::Pseudonyms).pseudonym(b"1");
        assert_eq!(pseudonym_of(&key, "a"), pseudonym_of(&key, "a"));
        assert_ne!(pseudonym_of(&key, "a"), pseudonym_of(&key, "b"));
        assert_ne!(pseudonym_of(&key, "a"), pseudonym_of(&other_key, "a"));
        assert!(Key::from_bytes(vec![1; 15]).is_none());
    }

    #[test]
    fn domains_separate_users_from_moderators() {
        let key = Key::from_bytes(vec![7; 32]).unwrap();
        let domains = [Domain::Participant, Domain::Moderator, Domain::Item, Domain::Row];
        let pseudonyms = domains.map(|domain| Pseudonymizer::new(&key, domain, "scope").pseudonym(b"1"));
        assert_eq!(pseudonyms[0], new_registry(ParticipantNaming::Pseudonyms).pseudonym(b"1"));
        assert_eq!(std::collections::BTreeSet::from(pseudonyms).len(), domains.len());
    }

    #[test]
    fn key_readable_by_others_is_reported() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (mode, is_exposed) in
            [(0o600, false), (0o400, false), (0o640, true), (0o604, true), (0o644, true), (0o666, true)]
        {
            std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            let exposed_mode = Key::exposed_mode(&file.path().metadata().unwrap());
            assert_eq!(exposed_mode, is_exposed.then_some(mode), "{mode:o}");
        }
    }

    #[test]
    fn pseudonyms_are_kept_only_when_asked() {
        let reference = format!("{PREFIX}{:032x}", 0xab_u128);
        assert_eq!(new_registry(ParticipantNaming::KeepPseudonyms).pseudonym(reference.as_bytes()), 0xab);
        assert_ne!(new_registry(ParticipantNaming::Pseudonyms).pseudonym(reference.as_bytes()), 0xab);
        assert_ne!(new_registry(ParticipantNaming::KeepPseudonyms).pseudonym(b"171"), 0xab);
    }

    #[test]
    fn pseudonyms_in_ids_are_told_from_names_and_numbers() {
        let digits = "0a0b0c0d0a0b0c0d0a0b0c0d0a0b0c0d";
        for id in
            [format!("vote:1:{digits}"), digits.to_uppercase(), format!("{digits}:1"), format!("a-{digits}")]
        {
            assert!(has_pseudonym(id.as_bytes(), &[b"statement:1"]), "{id}");
            let thing = format!("statement:{id}");
            assert!(!has_pseudonym(id.as_bytes(), &[b"phase", thing.as_bytes()]), "{id}");
        }
        for other in [
            "tally:1:agree",
            &format!("vote:1:{digits}0"),
            &format!("vote:1:x{digits}"),
            "vote:1:00000000000000000000000000000012",
            "vote:3f2b8c1e-0000-4000-8000-000000000001",
            "vote:1:a b c d a b c d a b c d a b c d ",
        ] {
            assert!(!has_pseudonym(other.as_bytes(), &[]), "{other}");
        }
    }

    #[test]
    fn pseudonym_has_one_spelling() {
        for number in [1, 0xab, 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210, u128::MAX] {
            let reference = format!("{PREFIX}{number:032x}");
            assert_eq!(parse_reference(reference.as_bytes()), Some(number));
            for other in [
                &reference[1..],
                &reference[..reference.len() - 1],
                &format!("{reference}0"),
                &reference.to_uppercase(),
                &format!("{PREFIX}{number:032X}").replace('0', "O"),
                &reference.replace('1', "g").replace('f', "F").replace('a', ":"),
            ] {
                assert_eq!(parse_reference(other.as_bytes()), None, "{other}");
            }
        }
        assert_eq!(parse_reference(format!("{PREFIX}{:032}", 0).as_bytes()), None);
    }
}
