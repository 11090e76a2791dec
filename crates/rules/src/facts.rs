//! Facts beyond the item that a plan needs, and the answers of the caller.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use tidegate_schemas::{
    duration::{format_duration, parse_duration},
    ids::{BankId, ItemKey, Millis, SubmissionId, WindowId},
};

use crate::windows::{Amount, WindowKey};

/// A span of time back from an item's append time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Within(i64);

const UNITS: [&str; 5] = ["w", "d", "h", "m", "s"];
const LONGEST: i64 = 3_660 * 86_400_000;

impl Within {
    /// Parses a whole number and one unit, such as `30d`, `24h`, `15m`, `90s` or `2w`: at most ten years.
    pub fn parse(text: &str) -> Option<Self> {
        let span = parse_duration(text, &UNITS).ok()?;
        let millis = i64::try_from(span.as_millis()).ok()?;
        (1..=LONGEST).contains(&millis).then_some(Self(millis))
    }

    pub(crate) const fn of_millis(millis: i64) -> Self {
        Self(millis)
    }

    pub fn millis(self) -> i64 {
        self.0
    }

    /// The first instant inside the span that ends at `now`.
    pub fn since(self, now: Millis) -> Millis {
        Millis(now.0.saturating_sub(self.0))
    }
}

impl fmt::Display for Within {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = Duration::from_millis(self.0.unsigned_abs());
        f.write_str(&format_duration(span, &["w", "d", "h", "m", "s", "ms"]))
    }
}

/// One look-up that undecided rules wait for. Equal needs of several items have one answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Need {
    /// The sum of the user's strike points, over `within` or over all that have not expired.
    Strikes { user: ItemKey, within: Option<Within> },
    /// The amount that a window has counted under a key. What lies beyond `at_least` is not asked for, so rows need not
    /// be read any further; of several rules the largest number counts.
    Count { window: WindowId, key: WindowKey, at_least: Amount },
    /// State of a picture, a sound or a film, and the entries of banks that it is like.
    Media { url: String },
    /// The answer of a model for the item. The submission stands for it: another item has another answer.
    Score { model: String, submission: SubmissionId },
}

impl Need {
    /// The question of the need: equal for needs that one answer serves.
    pub(crate) fn question(&self) -> Self {
        match self {
            Self::Count { window, key, .. } => {
                Self::Count { window: window.clone(), key: key.clone(), at_least: Amount::ZERO }
            }
            other => other.clone(),
        }
    }

    /// Makes one need of two that ask about the same.
    pub(crate) fn join(&mut self, other: &Self) {
        if let (Self::Count { at_least, .. }, Self::Count { at_least: more, .. }) = (self, other) {
            *at_least = (*at_least).max(*more);
        }
    }
}

/// State and matches of a medium.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Media {
    pub state: MediaState,
    /// Entries of banks that it is like, in the order in which they are to be named.
    pub matches: Vec<BankMatch>,
}

tidegate_schemas::string_enum! {
    /// State of a medium: how far it could be looked at.
    #[derive(Default)]
    pub enum MediaState {
        #[default]
        Ok = "ok",
        /// Looked at, but too plain or too small for its hashes to say much.
        LowQuality = "low_quality",
        /// There are bytes, and so exact hashes, but no picture in them.
        Undecodable = "undecodable",
        TooLarge = "too_large",
        /// Its address, or one that it redirects to, may not be called.
        BlockedAddress = "blocked_address",
        FetchFailed = "fetch_failed",
    }
}

/// A medium is like an entry of a bank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BankMatch {
    pub bank: BankId,
    pub entry: String,
    /// Kind of hash: `pdq`, `md5`, `sha1`, `sha256`, ...
    pub kind: String,
    /// Number of bits that differ; 0 for exact hashes.
    #[serde(default)]
    pub distance: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
}

/// Answer of a model for an item: one number, several by label, texts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scores {
    pub whole: Option<f64>,
    pub labels: HashMap<String, f64>,
    /// A text for each input, in their order; none if the model returns no text.
    pub texts: Vec<Arc<str>>,
}

/// The answers. A need without one counts as failed.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    answers: HashMap<Need, Answer>,
}

#[derive(Clone, Debug)]
enum Answer {
    Points(i64),
    Counted(Amount),
    Media(Media),
    Scores(Scores),
    /// No answer exists, and that is no failure.
    Nobody,
    Failed(String),
    /// The look-up was left out, because it could not change the outcome.
    Skipped,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing<'f> {
    /// No answer exists: there is nothing to compare.
    Nobody,
    Failed(&'f str),
    Skipped,
}

impl<'f> Missing<'f> {
    /// Standings and windows are there for everybody, so that nobody can say is a failure.
    pub(crate) fn reason(self) -> &'f str {
        match self {
            Self::Nobody => "unknown",
            Self::Failed(reason) => reason,
            Self::Skipped => "not_looked_up",
        }
    }
}

#[allow(clippy::needless_pass_by_value, reason = "a need is handed over with its answer")]
impl Facts {
    pub fn new() -> Self {
        Self::default()
    }

    /// The answers where there is no store and no service: users have no strikes, windows have counted nothing, and
    /// nobody knows media or models.
    pub fn offline(needs: &[Need]) -> Self {
        let mut facts = Self::new();
        for need in needs {
            match need {
                Need::Strikes { .. } => facts.strikes(need.clone(), 0),
                Need::Count { .. } => facts.count(need.clone(), Amount::ZERO),
                Need::Media { .. } | Need::Score { .. } => facts.unknown(need.clone()),
            }
        }
        facts
    }

    /// The user's standing is `points`.
    pub fn strikes(&mut self, need: Need, points: i64) {
        self.answer(&need, Answer::Points(points));
    }

    /// The window has counted so much, or at least so much if that is no less than what was asked.
    pub fn count(&mut self, need: Need, counted: Amount) {
        self.answer(&need, Answer::Counted(counted));
    }

    /// This is known of the medium.
    pub fn media(&mut self, need: Need, media: Media) {
        self.answer(&need, Answer::Media(media));
    }

    /// The model says so.
    pub fn scores(&mut self, need: Need, scores: Scores) {
        self.answer(&need, Answer::Scores(scores));
    }

    /// Sets that no answer exists: conditions on it are inapplicable.
    pub fn unknown(&mut self, need: Need) {
        self.answer(&need, Answer::Nobody);
    }

    /// The look-up failed. `reason` is stored with the item, so it is a tag and no payload.
    pub fn failed(&mut self, need: Need, reason: impl Into<String>) {
        self.answer(&need, Answer::Failed(reason.into()));
    }

    /// Sets that nobody looked, because no outcome depends on the answer: explanations show the condition as skipped.
    pub fn skipped(&mut self, need: Need) {
        self.answer(&need, Answer::Skipped);
    }

    /// Sets that nobody asked for the scores among these needs that have no answer.
    pub fn skip_scores(&mut self, needs: &[Need]) {
        for need in needs {
            if matches!(need, Need::Score { .. }) && !self.has(need) {
                self.skipped(need.clone());
            }
        }
    }

    /// True if an answer is a text, which takes time to search.
    pub fn have_texts(&self) -> bool {
        self.answers
            .values()
            .any(|answer| matches!(answer, Answer::Scores(scores) if !scores.texts.is_empty()))
    }

    pub(crate) fn has(&self, need: &Need) -> bool {
        self.answers.contains_key(&need.question())
    }

    fn answer(&mut self, need: &Need, answer: Answer) {
        self.answers.insert(need.question(), answer);
    }

    fn find<'f, T>(
        &'f self,
        need: &Need,
        fitting: impl FnOnce(&'f Answer) -> Option<T>,
    ) -> Result<T, Missing<'f>> {
        match self.answers.get(&need.question()) {
            Some(Answer::Nobody) => Err(Missing::Nobody),
            Some(Answer::Failed(reason)) => Err(Missing::Failed(reason)),
            Some(Answer::Skipped) => Err(Missing::Skipped),
            Some(answer) => fitting(answer).ok_or(Missing::Failed("not_looked_up")),
            None => Err(Missing::Failed("not_looked_up")),
        }
    }

    pub(crate) fn points(&self, need: &Need) -> Result<i64, &str> {
        self.find(need, |answer| if let Answer::Points(points) = answer { Some(*points) } else { None })
            .map_err(Missing::reason)
    }

    pub(crate) fn counted(&self, need: &Need) -> Result<Amount, &str> {
        self.find(need, |answer| if let Answer::Counted(counted) = answer { Some(*counted) } else { None })
            .map_err(Missing::reason)
    }

    pub(crate) fn medium(&self, need: &Need) -> Result<&Media, Missing<'_>> {
        self.find(need, |answer| if let Answer::Media(media) = answer { Some(media) } else { None })
    }

    pub(crate) fn scores_of(&self, need: &Need) -> Result<&Scores, Missing<'_>> {
        self.find(need, |answer| if let Answer::Scores(scores) = answer { Some(scores) } else { None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_a_number_and_a_unit() {
        assert_eq!(Within::parse("30d").map(Within::millis), Some(2_592_000_000));
        assert_eq!(Within::parse("14d").map(|w| w.to_string()).as_deref(), Some("2w"));
        assert_eq!(Within::parse("90s").map(|w| w.to_string()).as_deref(), Some("90s"));
        for bad in ["", "d", "0d", "-1d", "+1d", "1", "1y", "1 d", "5é", "99999999999999999999d", "4000d"] {
            assert_eq!(Within::parse(bad), None, "{bad}");
        }
    }
}
