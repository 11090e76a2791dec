//! Votes on statements, kept for the opinion map.

use crate::form::Answer;

/// Vote on a statement. The value is its number in the vote matrix, plus one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Vote {
    Disagree = 0,
    Pass = 1,
    Agree = 2,
}

impl Vote {
    pub(super) fn from_answer(answer: Answer) -> Option<Self> {
        match answer {
            Answer::Agree => Some(Self::Agree),
            Answer::Disagree => Some(Self::Disagree),
            Answer::Pass => Some(Self::Pass),
            Answer::PreferSubject | Answer::PreferObject | Answer::Equal => None,
        }
    }

    /// Number in the vote matrix: agree 1, pass 0, disagree -1.
    pub(super) fn as_number(self) -> f64 {
        f64::from(self as u8) - 1.0
    }
}

/// Vote of a participant on an item, in 8 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct PackedVote(u64);

impl PackedVote {
    /// `None` if the item's number needs more than 30 bits.
    fn new(participant: u32, item: u32, vote: Vote) -> Option<Self> {
        (item < 1 << 30)
            .then(|| Self(u64::from(participant) << 32 | u64::from(item) << 2 | u64::from(vote as u8)))
    }

    /// Participant and item as one number, in the order of participants.
    pub(super) fn pair(self) -> u64 {
        self.0 >> 2
    }

    pub(super) fn participant(self) -> u32 {
        u32::try_from(self.0 >> 32).unwrap_or(u32::MAX)
    }

    pub(super) fn item(self) -> u32 {
        u32::try_from(self.pair() & ((1 << 30) - 1)).unwrap_or(u32::MAX)
    }

    pub(super) fn vote(self) -> Vote {
        match self.0 & 3 {
            0 => Vote::Disagree,
            1 => Vote::Pass,
            _ => Vote::Agree,
        }
    }
}

/// Votes of each phase in the order of the file, up to a limit for all phases together.
#[derive(Debug, Default)]
pub(super) struct VoteLists {
    lists: Vec<(u32, Vec<PackedVote>)>,
    free: usize,
    has_overflowed: bool,
}

impl VoteLists {
    pub(super) fn new(max_votes: usize) -> Self {
        Self { free: max_votes, ..Self::default() }
    }

    /// Adds a vote. The first vote above the limit empties all lists, because a part of them would give a wrong map.
    pub(super) fn push(&mut self, phase: u32, participant: u32, item: u32, vote: Vote) {
        if self.has_overflowed {
            return;
        }
        let Some(packed) = PackedVote::new(participant, item, vote).filter(|_| self.free > 0) else {
            (self.lists, self.has_overflowed) = (Vec::new(), true);
            return;
        };
        self.free -= 1;
        match self.lists.iter_mut().find(|(number, _)| *number == phase) {
            Some((_, votes)) => votes.push(packed),
            None => self.lists.push((phase, vec![packed])),
        }
    }

    /// True if there were more votes than the limit.
    pub(super) fn has_overflowed(&self) -> bool {
        self.has_overflowed
    }

    /// Returns the longest list of a phase that `is_opinion` accepts, sorted by participant and item, with the last vote of each pair.
    pub(super) fn take_longest(
        &mut self,
        is_opinion: impl Fn(u32) -> bool,
    ) -> Option<(u32, Vec<PackedVote>)> {
        let lists = std::mem::take(&mut self.lists).into_iter().filter(|(phase, _)| is_opinion(*phase));
        // Of lists of equal length, the first is chosen: `max_by_key` returns the last of equal elements.
        let (phase, mut votes) = lists.rev().max_by_key(|(_, votes)| votes.len())?;
        votes.sort_by_key(|vote| vote.pair());
        // `dedup` keeps the first of equal elements, so the list is reversed around it.
        votes.reverse();
        votes.dedup_by_key(|vote| vote.pair());
        votes.reverse();
        Some((phase, votes))
    }
}
