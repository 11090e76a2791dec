//! Classifies names of unknown members by their words: names of counts, names of times, and names that reports may
//! show. A name with a word outside these lists can identify a person.

/// Words in names of numbers that count people or their answers.
const COUNT_WORDS: [&str; 60] = [
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

/// Words in names of numbers that are not counts, in spite of a word from [`COUNT_WORDS`].
const NON_COUNT_WORDS: [&str; 20] = [
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

/// Words in names of times.
const TIME_WORDS: [&str; 11] = [
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

/// Words in names of totals over all answers.
const TOTAL_WORDS: [&str; 26] = [
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

/// Words that may be shown and are not counts.
const PLAIN_WORDS: [&str; 26] = [
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

/// Name that may be shown, stored inline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownName {
    bytes: [u8; Self::MAX_BYTES],
    length: u8,
}

impl KnownName {
    const MAX_BYTES: usize = 30;

    /// Returns the name if each of its words is listed, a single letter or a number of up to two digits.
    pub(super) fn from_name(name: &[u8]) -> Option<Self> {
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b" _-.".contains(byte);
        if name.is_empty() || name.len() > Self::MAX_BYTES || !name.iter().all(is_plain) {
            return None;
        }
        let is_listed = |word: &str| {
            // Longer numbers can be ids of persons.
            let is_number = word.len() <= 2 && word.bytes().all(|byte| byte.is_ascii_digit());
            word.len() == 1
                || is_number
                || PLAIN_WORDS.contains(&word)
                || NON_COUNT_WORDS.contains(&word)
                || is_count_word(word)
        };
        let name_words = split_words(name);
        if name_words.is_empty() || !name_words.iter().all(|word| is_listed(word)) {
            return None;
        }
        let mut bytes = [0; Self::MAX_BYTES];
        bytes[..name.len()].copy_from_slice(name);
        Some(Self { bytes, length: u8::try_from(name.len()).unwrap_or_default() })
    }

    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.length)]).unwrap_or_default()
    }
}

/// True if a number with this name counts people.
pub(super) fn counts_people(name: &[u8]) -> bool {
    let words = split_words(name);
    // `voterId` and `agree-rank` contain a count word, but their numbers are no counts.
    words.iter().any(|word| is_count_word(word))
        && !words.iter().any(|word| NON_COUNT_WORDS.contains(&word.as_str()))
}

/// True if a number with this name is a time.
pub(super) fn is_time(name: &[u8]) -> bool {
    split_words(name).iter().any(|word| TIME_WORDS.contains(&word.as_str()))
}

/// True if a number with this name is a total of answers or of respondents.
pub(super) fn is_total(name: &[u8]) -> bool {
    let words = split_words(name);
    let is_filler = |word: &String| ["of", "num", "number", "all"].contains(&word.as_str());
    // Fillers alone, as in `number`, leave open whether answers are counted.
    words.iter().any(|word| !is_filler(word))
        && words.iter().all(|word| is_filler(word) || TOTAL_WORDS.contains(&word.as_str()))
}

/// Splits a name into lower-case words of letters or of digits: `nVotes`, `n-votes` and `N_VOTES` have two.
fn split_words(name: &[u8]) -> Vec<String> {
    let mut words = Vec::new();
    let mut previous_byte = b' ';
    // The limit bounds the cost of names in hostile files.
    for (at, byte) in name.iter().copied().enumerate().take(MAX_NAME_BYTES) {
        let is_next_lowercase = name.get(at + 1).is_some_and(u8::is_ascii_lowercase);
        // In `NVotes` the last capital of a run begins the next word.
        let begins_word = !previous_byte.is_ascii_alphanumeric()
            || previous_byte.is_ascii_digit() != byte.is_ascii_digit()
            || byte.is_ascii_uppercase() && (previous_byte.is_ascii_lowercase() || is_next_lowercase);
        if byte.is_ascii_alphanumeric() {
            if begins_word {
                words.push(String::new());
            }
            if let Some(word) = words.last_mut() {
                word.push(char::from(byte.to_ascii_lowercase()));
            }
        }
        previous_byte = byte;
    }
    words
}

/// Bytes of a name that are split into words.
const MAX_NAME_BYTES: usize = 120;

/// True for a count word, also if other listed words follow without a separator, as in `agreecount`.
fn is_count_word(word: &str) -> bool {
    COUNT_WORDS.contains(&word)
        || COUNT_WORDS.iter().any(|prefix| {
            word.strip_prefix(prefix).is_some_and(|suffix| {
                // Plain words of up to three letters, such as `in` and `all`, also end unrelated words by chance.
                !suffix.is_empty()
                    && (is_count_word(suffix)
                        || PLAIN_WORDS.contains(&suffix) && word.len() > prefix.len() + 3)
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_counts_are_recognized_by_their_words() {
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
    fn name_is_shown_if_all_its_words_are_listed() {
        for name in ["groups", "group-a-agree-count", "totalVotes", "a", "7", "group 12", "NVOTES"] {
            assert_eq!(KnownName::from_name(name.as_bytes()).as_ref().map(KnownName::as_str), Some(name));
        }
        for name in ["", "ada", "ada-votes", "votes/agree", "~n", "participant:7", "n 493012345678"] {
            assert!(KnownName::from_name(name.as_bytes()).is_none(), "{name}");
        }
    }
}
