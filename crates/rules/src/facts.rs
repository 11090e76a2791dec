//! Facts beyond the item that a plan needs, and the answers of the caller.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use tidegate_schemas::{
    duration::{format_duration, parse_duration},
    ids::{BankId, ItemKey, Millis, SubmissionId, WindowId},
};

use crate::windows::{Amount, WindowKey};

/// Span of time that ends at an item's append time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lookback(i64);

const UNITS: [&str; 5] = ["w", "d", "h", "m", "s"];
const LONGEST_MILLIS: i64 = 3_660 * 86_400_000;

impl Lookback {
    /// Parses a whole number and one unit, such as `30d`, `24h`, `15m`, `90s` or `2w`. The maximum is ten years.
    pub fn parse(text: &str) -> Option<Self> {
        let span = parse_duration(text, &UNITS).ok()?;
        let millis = i64::try_from(span.as_millis()).ok()?;
        (1..=LONGEST_MILLIS).contains(&millis).then_some(Self(millis))
    }

    pub(crate) const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    pub fn millis(self) -> i64 {
        self.0
    }

    /// First instant of the span that ends at `now`.
    pub fn start(self, now: Millis) -> Millis {
        Millis(now.0.saturating_sub(self.0))
    }
}

impl fmt::Display for Lookback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = Duration::from_millis(self.0.unsigned_abs());
        f.write_str(&format_duration(span, &["w", "d", "h", "m", "s", "ms"]))
    }
}

/// Look-up that undecided rules depend on. Equal needs of several items share one answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Need {
    /// Sum of the user's strike points, over `within` or over all points that have not expired.
    Strikes { user: ItemKey, within: Option<Lookback> },
    /// Amount that a window has counted under a key. The caller may stop reading rows at `at_least`, the largest number that
    /// a rule compares with.
    Count { window: WindowId, key: WindowKey, at_least: Amount },
    /// State of a picture, sound or film, and the bank entries that match it.
    Media { url: String },
    /// Answer of a model for the item. The submission identifies the item, because the answer depends on its content.
    Score { model: String, submission: SubmissionId },
}

impl Need {
    /// Returns the key of the answer, which is equal for needs that share an answer.
    pub(crate) fn question(&self) -> Self {
        match self {
            // Rules with different bounds share one answer.
            Self::Count { window, key, .. } => {
                Self::Count { window: window.clone(), key: key.clone(), at_least: Amount::ZERO }
            }
            other => other.clone(),
        }
    }

    /// Merges a need with the same question into this one.
    pub(crate) fn merge(&mut self, other: &Self) {
        if let (Self::Count { at_least, .. }, Self::Count { at_least: other_at_least, .. }) = (self, other) {
            *at_least = (*at_least).max(*other_at_least);
        }
    }
}

/// State and matches of a medium.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Media {
    pub state: MediaState,
    /// Matching bank entries, in the order of outcomes.
    pub matches: Vec<BankMatch>,
}

tidegate_schemas::string_enum! {
    /// State of a medium: how far it could be analysed.
    #[derive(Default)]
    pub enum MediaState {
        #[default]
        Ok = "ok",
        /// Analysed, but too plain or too small for significant hashes.
        LowQuality = "low_quality",
        /// Exact hashes exist, but the bytes cannot be decoded as a picture.
        Undecodable = "undecodable",
        TooLarge = "too_large",
        /// The address, or one that it redirects to, is blocked.
        BlockedAddress = "blocked_address",
        FetchFailed = "fetch_failed",
    }
}

/// Match of a medium with an entry of a bank.
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

/// Answer of a model for an item: one number, numbers by label, or texts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scores {
    pub overall: Option<f64>,
    pub labels: HashMap<String, f64>,
    /// One text for each input, in input order. Empty if the model returns no text.
    pub texts: Vec<Arc<str>>,
}

/// Answers to needs. A need without an answer counts as failed.
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
    /// No answer exists. Conditions on it are inapplicable instead of failed.
    Unknown,
    Failed(String),
    /// No outcome depends on the answer, so the look-up was skipped.
    Skipped,
}

/// Reason why a need has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer<'f> {
    /// No answer exists, so there is no value to compare.
    Unknown,
    Failed(&'f str),
    Skipped,
}

impl<'f> NoAnswer<'f> {
    /// Tag for the outcome. Strike points and windows exist for every key, so for them even an unknown answer is a failure.
    pub(crate) fn reason(self) -> &'f str {
        match self {
            Self::Unknown => "unknown",
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

    /// Answers without a store and without services: users have no strikes, windows have counted zero, media and models are
    /// unknown.
    pub fn offline(needs: &[Need]) -> Self {
        let mut facts = Self::new();
        for need in needs {
            match need {
                Need::Strikes { .. } => facts.set_strikes(need.clone(), 0),
                Need::Count { .. } => facts.set_count(need.clone(), Amount::ZERO),
                Need::Media { .. } | Need::Score { .. } => facts.set_unknown(need.clone()),
            }
        }
        facts
    }

    /// Sets the strike points of the user.
    pub fn set_strikes(&mut self, need: Need, points: i64) {
        self.answer(&need, Answer::Points(points));
    }

    /// Sets the amount of the window. It may be a lower bound that reaches the need's `at_least`.
    pub fn set_count(&mut self, need: Need, counted: Amount) {
        self.answer(&need, Answer::Counted(counted));
    }

    /// Sets the state and the matches of the medium.
    pub fn set_media(&mut self, need: Need, media: Media) {
        self.answer(&need, Answer::Media(media));
    }

    /// Sets the answer of the model.
    pub fn set_scores(&mut self, need: Need, scores: Scores) {
        self.answer(&need, Answer::Scores(scores));
    }

    /// Sets that no answer exists. Conditions on it are inapplicable.
    pub fn set_unknown(&mut self, need: Need) {
        self.answer(&need, Answer::Unknown);
    }

    /// Sets that the look-up failed. `reason` is stored with the item, so it is a short tag without user data.
    pub fn set_failed(&mut self, need: Need, reason: impl Into<String>) {
        self.answer(&need, Answer::Failed(reason.into()));
    }

    /// Sets that the look-up was skipped because no outcome depends on it. Explanations show the condition as skipped.
    pub fn set_skipped(&mut self, need: Need) {
        self.answer(&need, Answer::Skipped);
    }

    /// Marks the scores among these needs as skipped unless they have an answer.
    pub fn skip_scores(&mut self, needs: &[Need]) {
        for need in needs {
            if matches!(need, Need::Score { .. }) && !self.has(need) {
                self.set_skipped(need.clone());
            }
        }
    }

    /// True if an answer is a text. Its search takes CPU time.
    pub fn has_texts(&self) -> bool {
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

    fn find_answer<'f, T>(
        &'f self,
        need: &Need,
        select: impl FnOnce(&'f Answer) -> Option<T>,
    ) -> Result<T, NoAnswer<'f>> {
        match self.answers.get(&need.question()) {
            Some(Answer::Unknown) => Err(NoAnswer::Unknown),
            Some(Answer::Failed(reason)) => Err(NoAnswer::Failed(reason)),
            Some(Answer::Skipped) => Err(NoAnswer::Skipped),
            // An answer of another kind is a mistake of the caller, and counts as missing.
            Some(answer) => select(answer).ok_or(NoAnswer::Failed("not_looked_up")),
            None => Err(NoAnswer::Failed("not_looked_up")),
        }
    }

    pub(crate) fn strike_points(&self, need: &Need) -> Result<i64, &str> {
        self.find_answer(
            need,
            |answer| if let Answer::Points(points) = answer { Some(*points) } else { None },
        )
        .map_err(NoAnswer::reason)
    }

    pub(crate) fn window_amount(&self, need: &Need) -> Result<Amount, &str> {
        self.find_answer(
            need,
            |answer| if let Answer::Counted(counted) = answer { Some(*counted) } else { None },
        )
        .map_err(NoAnswer::reason)
    }

    pub(crate) fn medium(&self, need: &Need) -> Result<&Media, NoAnswer<'_>> {
        self.find_answer(need, |answer| if let Answer::Media(media) = answer { Some(media) } else { None })
    }

    pub(crate) fn scores_of(&self, need: &Need) -> Result<&Scores, NoAnswer<'_>> {
        self.find_answer(need, |answer| if let Answer::Scores(scores) = answer { Some(scores) } else { None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn span_is_a_number_and_a_unit() {
        assert_eq!(Lookback::parse("30d").map(Lookback::millis), Some(2_592_000_000));
        assert_eq!(Lookback::parse("14d").map(|w| w.to_string()).as_deref(), Some("2w"));
        assert_eq!(Lookback::parse("90s").map(|w| w.to_string()).as_deref(), Some("90s"));
        for bad in ["", "d", "0d", "-1d", "+1d", "1", "1y", "1 d", "5é", "99999999999999999999d", "4000d"] {
            assert_eq!(Lookback::parse(bad), None, "{bad}");
        }
    }
}
