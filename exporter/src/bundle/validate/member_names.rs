//! Classifies names of unknown members by their words: names of counts, of times, and names that may be shown.
//!
//! A name may identify somebody as long as it has a word that is not listed here.

/// Words of names of numbers that count people or their answers.
const COUNTING: [&str; 60] = [
    "n",
    "count",
    "counts",
    "total",
    "totals",
    "sum",
    "size",
    "vote",
    "votes",
    "voter",
    "voters",
    "ballots",
    "response",
    "responses",
    "respondent",
    "respondents",
    "answer",
    "answers",
    "participant",
    "participants",
    "member",
    "members",
    "people",
    "persons",
    "users",
    "sessions",
    "authors",
    "observation",
    "observations",
    "win",
    "wins",
    "won",
    "loss",
    "losses",
    "lost",
    "agree",
    "agrees",
    "agreed",
    "disagree",
    "disagrees",
    "disagreed",
    "pass",
    "passes",
    "passed",
    "prefer",
    "prefers",
    "preferred",
    "equal",
    "cant",
    "cannot",
    "decide",
    "skip",
    "skips",
    "skipped",
    "likes",
    "dislikes",
    "supporters",
    "opponents",
    "abstained",
    "unsure",
];

/// Words that make a name something other than a count.
const OTHERWISE: [&str; 20] = [
    "id",
    "ids",
    "rank",
    "score",
    "index",
    "percent",
    "percentage",
    "pct",
    "rate",
    "ratio",
    "share",
    "fraction",
    "prob",
    "probability",
    "mean",
    "average",
    "avg",
    "median",
    "weight",
    "version",
];

/// Words of names of times.
const TIMES: [&str; 11] = [
    "at",
    "time",
    "timestamp",
    "timestamps",
    "date",
    "datetime",
    "epoch",
    "when",
    "created",
    "updated",
    "modified",
];

/// Words of names of totals, which answers are a part of.
const TOTALS: [&str; 26] = [
    "n",
    "count",
    "total",
    "totals",
    "sum",
    "size",
    "vote",
    "votes",
    "voter",
    "voters",
    "ballots",
    "response",
    "responses",
    "respondent",
    "respondents",
    "answer",
    "answers",
    "participant",
    "participants",
    "people",
    "persons",
    "users",
    "observations",
    "observed",
    "totalvotes",
    "nvotes",
];

/// Words that are neither counts nor names of people.
const PLAIN: [&str; 26] = [
    "group",
    "groups",
    "cluster",
    "clusters",
    "tally",
    "tallies",
    "result",
    "results",
    "item",
    "items",
    "statement",
    "statements",
    "comment",
    "comments",
    "topic",
    "topics",
    "subject",
    "object",
    "num",
    "number",
    "of",
    "by",
    "in",
    "per",
    "and",
    "all",
];

/// Name that may be shown, short enough to be kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownName {
    bytes: [u8; Self::MOST],
    length: u8,
}

impl KnownName {
    const MOST: usize = 30;

    /// Returns the name if every word of it is listed, a single letter or a small number.
    pub(super) fn of(name: &[u8]) -> Option<Self> {
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b" _-.".contains(byte);
        if name.is_empty() || name.len() > Self::MOST || !name.iter().all(is_plain) {
            return None;
        }
        let known = |word: &str| {
            let is_number = word.len() <= 2 && word.bytes().all(|byte| byte.is_ascii_digit());
            word.len() == 1 || is_number || PLAIN.contains(&word) || OTHERWISE.contains(&word) || counts(word)
        };
        let name_words = words(name);
        if name_words.is_empty() || !name_words.iter().all(|word| known(word)) {
            return None;
        }
        let mut bytes = [0; Self::MOST];
        bytes[..name.len()].copy_from_slice(name);
        Some(Self { bytes, length: u8::try_from(name.len()).unwrap_or_default() })
    }

    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.length)]).unwrap_or_default()
    }
}

/// True if a number with this name counts people.
pub(super) fn counts_people(name: &[u8]) -> bool {
    let words = words(name);
    words.iter().any(|word| counts(word)) && !words.iter().any(|word| OTHERWISE.contains(&word.as_str()))
}

/// True if a number with this name is a time.
pub(super) fn is_time(name: &[u8]) -> bool {
    words(name).iter().any(|word| TIMES.contains(&word.as_str()))
}

/// True if a number with this name is a total of answers or of people who answered.
pub(super) fn is_total(name: &[u8]) -> bool {
    let words = words(name);
    let of = |word: &String| ["of", "num", "number", "all"].contains(&word.as_str());
    words.iter().any(|word| !of(word)) && words.iter().all(|word| of(word) || TOTALS.contains(&word.as_str()))
}

/// Splits a name into lower-case words of letters or of digits: `nVotes`, `n-votes` and `N_VOTES` have two.
fn words(name: &[u8]) -> Vec<String> {
    let mut words = Vec::new();
    let mut before = b' ';
    // Longer ones are nobody's count.
    for (at, byte) in name.iter().copied().enumerate().take(LONGEST) {
        let next_is_small = name.get(at + 1).is_some_and(u8::is_ascii_lowercase);
        let begins = !before.is_ascii_alphanumeric()
            || before.is_ascii_digit() != byte.is_ascii_digit()
            || byte.is_ascii_uppercase() && (before.is_ascii_lowercase() || next_is_small);
        if byte.is_ascii_alphanumeric() {
            if begins {
                words.push(String::new());
            }
            if let Some(word) = words.last_mut() {
                word.push(char::from(byte.to_ascii_lowercase()));
            }
        }
        before = byte;
    }
    words
}

const LONGEST: usize = 120;

/// One word, or several that nothing separates.
fn counts(word: &str) -> bool {
    COUNTING.contains(&word)
        || COUNTING.iter().any(|first| {
            word.strip_prefix(first).is_some_and(|rest| {
                !rest.is_empty() && (counts(rest) || PLAIN.contains(&rest) && word.len() > first.len() + 3)
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_counts_are_known_by_their_words() {
        for name in [
            "n",
            "n-votes",
            "n_agree",
            "nVotes",
            "nvotes",
            "NVotes",
            "TOTAL_VOTES",
            "totalvotes",
            "group-a-agree-count",
            "participantCount",
            "group1Size",
            "prefer-subject",
            "PreferSubject",
            "prefersubject",
            "cantDecide",
            "cantdecide",
            "a.agree",
            "ada agrees",
        ] {
            assert!(counts_people(name.as_bytes()), "{name}");
        }
        for name in
            ["", "rank", "voterId", "agree-rank", "passion", "passenger", "sizes", "nation", "clusters", "x"]
        {
            assert!(!counts_people(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn a_name_is_told_if_it_is_nobodys() {
        for name in ["groups", "group-a-agree-count", "totalVotes", "a", "7", "group 12", "NVOTES"] {
            assert_eq!(KnownName::of(name.as_bytes()).as_ref().map(KnownName::as_str), Some(name));
        }
        for name in ["", "ada", "ada-votes", "votes/agree", "~n", "participant:7", "n 493012345678"] {
            assert!(KnownName::of(name.as_bytes()).is_none(), "{name}");
        }
    }
}
