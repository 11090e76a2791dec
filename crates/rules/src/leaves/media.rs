//! The condition `media`: a medium of the item matches an entry of a bank, or has a certain state. The caller fetches and
//! compares media.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use tidegate_schemas::{
    banks::{BankKind, HashKind},
    ids::BankId,
};

use super::{
    context::Context,
    input::{EvalInput, LeafDecision},
    kind::{DocumentLeaf, LeafKind},
};
use crate::{
    error::{did_you_mean, excerpt, quote},
    facts::{BankMatch, Facts, Media, MediaState, Need, NoAnswer},
    item::Value,
    limits::{Limits, OutOfSteps, Steps},
    logic::{ConditionResult, Mask},
    reader::{Reader, is_present},
    vocabulary::{Bank, Kind},
};

/// Test of the media in named fields: a match with a bank entry, or a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaTest {
    pub fields: Vec<String>,
    /// Accepted states. Empty if the test asks for a match.
    pub states: Vec<MediaState>,
    /// Banks to compare with. Empty for all banks.
    pub banks: Vec<BankId>,
    /// Kinds of hashes. Empty for all kinds.
    pub kinds: Vec<String>,
    /// Labels of which the entry must have one. Empty for all entries.
    pub labels: Vec<String>,
    /// Maximum number of different bits. `None` for the limit of each bank.
    pub max_distance: Option<u32>,
}

#[derive(Debug)]
pub(crate) struct MediaLeaf {
    slots: Vec<usize>,
    test: MediaTest,
}

/// Kinds of banks that hold hashes of media.
const HASHES: [BankKind; 5] =
    [BankKind::Pdq, BankKind::Gradient, BankKind::Md5, BankKind::Sha1, BankKind::Sha256];

/// Kinds of hashes that need no decoded picture.
const EXACT: [&str; 3] = ["md5", "sha1", "sha256"];

/// Warns of kinds, banks and distances that never match.
fn warn_impossible_tests(test: &MediaTest, banks: &[&Bank], context: &mut Context<'_>) {
    let is_requested =
        |kind: HashKind| test.kinds.is_empty() || test.kinds.iter().any(|name| name == kind.name());
    let is_in_banks =
        |kind: HashKind| banks.is_empty() || banks.iter().any(|bank| bank.kind.hash_kind() == Some(kind));
    for bank in banks.iter().filter(|bank| !bank.kind.hash_kind().is_some_and(is_requested)) {
        let (key, kind) = (quote(bank.key.as_str()), bank.kind.name());
        let detail =
            format!("bank {key} holds hashes of kind {kind}, which `kind` excludes: it never matches");
        context.at("bank", |c| c.warn("nothing_found", detail));
    }
    for kind in test.kinds.iter().filter(|kind| !HashKind::from_name(kind).is_some_and(is_in_banks)) {
        let detail = format!("none of the banks holds hashes of kind {kind}: it never matches");
        context.at("kind", |c| c.warn("nothing_found", detail));
    }
    let compared_kinds = HashKind::ALL
        .into_iter()
        .filter(|kind| kind.is_computed() && is_requested(*kind) && is_in_banks(*kind));
    let farthest = compared_kinds.map(HashKind::max_distance).max();
    if let Some((most, farthest)) = test.max_distance.zip(farthest)
        && most > farthest
    {
        let detail =
            format!("these hashes are compared up to a distance of {farthest}: lower `max_distance`");
        context.at("max_distance", |c| c.warn("nothing_found", detail));
    }
}

impl LeafKind for MediaLeaf {
    type Spec = MediaTest;
    type Explained = MediaExplained;

    const LOOKS_UP: bool = true;

    fn paths(spec: &MediaTest, _context: &Context<'_>) -> Vec<String> {
        spec.fields.clone()
    }

    fn compile(test: MediaTest, context: &mut Context<'_>) -> Option<Self> {
        let slots: Vec<_> = context.at("in", |c| {
            let slot = |(nth, field): (usize, &String)| {
                c.at(nth, |c| c.resolve_slot_of_kind(field, Kind::Media, "IMAGE, VIDEO, AUDIO or MEDIA"))
            };
            test.fields.iter().enumerate().map(slot).collect()
        });
        let slots: Option<Vec<_>> = slots.into_iter().collect();
        let banks: Vec<_> = test.banks.iter().filter_map(|key| context.resolve_bank(key, &HASHES)).collect();
        let is_made = |kind: &&String| HashKind::from_name(kind).is_some_and(HashKind::is_computed);
        let unknown: Vec<_> = test.kinds.iter().filter(|kind| !is_made(kind)).collect();
        for kind in &unknown {
            let computed_kinds = HashKind::ALL.into_iter().filter(|kind| kind.is_computed());
            let suggestion = did_you_mean(kind, computed_kinds.map(HashKind::name));
            let detail = format!("unknown kind of hash {}{suggestion}", quote(kind));
            context.at("kind", |c| c.error("unknown_value", detail));
        }
        let is_known = unknown.is_empty() && banks.len() == test.banks.len();
        // Unknown names are errors already, and would only repeat as warnings.
        if is_known {
            warn_impossible_tests(&test, &banks, context);
        }
        Some(Self { slots: slots?, test }).filter(|_| is_known)
    }

    fn evaluate(&self, input: &EvalInput<'_>, steps: &mut Steps) -> Result<Mask, OutOfSteps> {
        let mut has_media = false;
        for slot in &self.slots {
            let values = input.fields.slot(*slot).values.as_deref().unwrap_or_default();
            steps.take(u64::try_from(values.len()).unwrap_or(u64::MAX))?;
            has_media |= !values.is_empty();
        }
        Ok(if has_media { Mask::OPEN } else { Mask::FAILED })
    }

    fn collect_needs(&self, input: &EvalInput<'_>) -> Vec<Need> {
        let mut media_needs = Vec::new();
        for slot in &self.slots {
            for (_, value) in input.fields.slot(*slot).values.iter().flatten() {
                let Value::Text(url) = value else { continue };
                media_needs.push(Need::Media { url: (*url).to_owned() });
            }
        }
        media_needs
    }

    fn witness(&self) -> Option<f32> {
        // Most items have no medium, and cannot match.
        Some(0.25)
    }

    /// One matching medium suffices. Without one, a medium with an unknown result makes the condition errored, because it
    /// might match.
    fn settle(
        &self,
        needs: &[Need],
        facts: &Facts,
        explained: MediaExplained,
        limits: &Limits,
        _steps: &mut Steps,
    ) -> LeafDecision<MediaExplained> {
        let (mut hits, mut failure, mut has_unanswered, mut has_answered) = (Vec::new(), None, false, false);
        for need in needs {
            let Need::Media { url } = need else { continue };
            match facts.medium(need) {
                Err(NoAnswer::Unknown) => has_unanswered = true,
                Err(no_answer @ (NoAnswer::Failed(_) | NoAnswer::Skipped)) => {
                    failure = failure.or(Some(no_answer.reason()));
                }
                Ok(media) => {
                    let matches = self.find_matches(media);
                    match self.unknown_reason(media.state) {
                        // A match decides even if the medium could be analysed only in part.
                        Some(reason) if matches.is_empty() => failure = failure.or(Some(reason)),
                        _ => has_answered = true,
                    }
                    hits.extend(matches.into_iter().map(|bank_match| MediaHit {
                        url: excerpt(url, limits.excerpt_bytes).to_owned(),
                        state: media.state,
                        found: bank_match.cloned(),
                    }));
                }
            }
        }
        let mask = match failure {
            _ if !hits.is_empty() => Mask::PASSED,
            Some(_) => Mask::ERRORED,
            // If some media have an answer, those without one are ignored.
            None if has_unanswered && !has_answered => Mask::INAPPLICABLE,
            None => Mask::FAILED,
        };
        let reason = failure.filter(|_| mask == Mask::ERRORED);
        hits.truncate(limits.hits);
        let explained =
            MediaExplained { outcome: mask.result(), hits, reason: reason.map(str::to_owned), ..explained };
        LeafDecision { mask, explained, reason: reason.map(|reason| format!("media: {reason}")) }
    }

    fn explain(
        &self,
        mask: Mask,
        _found_needles: Option<&[(u32, u32)]>,
        input: &EvalInput<'_>,
        _steps: &mut Steps,
    ) -> MediaExplained {
        let fields = self.slots.iter().map(|slot| input.fields.path(*slot).to_owned()).collect();
        MediaExplained { outcome: mask.result(), fields, hits: Vec::new(), reason: None }
    }
}

impl DocumentLeaf for MediaLeaf {
    const KEY: &'static str = "media";

    fn parse(reader: &mut Reader<'_>, value: &Json) -> Option<MediaTest> {
        reader.media(value)
    }
}

impl Reader<'_> {
    fn media(&mut self, value: &Json) -> Option<MediaTest> {
        let object = self.object(value, &["in", "state", "bank", "kind", "labels", "max_distance"])?;
        let fields = self.required(object, "in", Self::paths);
        let states = self.optional(object, "state", |r, v| {
            r.one_or_more(v, |r, v| r.variant(v, MediaState::ALL, MediaState::as_str))
        });
        let texts = |r: &mut Self, key: &str| {
            r.optional(object, key, |r, v| r.one_or_more(v, |r, v| r.text(v).map(str::to_owned)))
        };
        let (banks, kinds, labels) = (texts(self, "bank"), texts(self, "kind"), texts(self, "labels"));
        let max_distance = self.optional(object, "max_distance", Self::distance);
        let matching =
            ["bank", "kind", "labels", "max_distance"].into_iter().find(|key| is_present(object, key));
        match (is_present(object, "state"), matching) {
            (true, Some(key)) => {
                return self.at(key, |r| {
                    r.error("shape", "`state` cannot be combined with tests of matches: use two conditions")
                });
            }
            (false, None) => {
                let detail = "expected `state`, or one or more of bank, kind, labels and max_distance";
                return self.error("shape", detail);
            }
            _ => {}
        }
        for (is_present, is_valid) in [
            (is_present(object, "state"), states.is_some()),
            (is_present(object, "bank"), banks.is_some()),
            (is_present(object, "kind"), kinds.is_some()),
            (is_present(object, "labels"), labels.is_some()),
            (is_present(object, "max_distance"), max_distance.is_some()),
        ] {
            // An invalid test would be left out silently, and the condition would have another meaning.
            (is_present == is_valid).then_some(())?;
        }
        Some(MediaTest {
            fields: fields?,
            states: states.unwrap_or_default(),
            banks: banks.unwrap_or_default().into_iter().map(BankId::from).collect(),
            kinds: kinds.unwrap_or_default(),
            labels: labels.unwrap_or_default(),
            max_distance,
        })
    }
}

impl MediaLeaf {
    /// Slots of which one must hold a medium.
    pub(crate) fn slots(&self) -> &[usize] {
        &self.slots
    }

    /// Matches of the medium that pass the test, or one `None` if its state passes.
    fn find_matches<'m>(&self, media: &'m Media) -> Vec<Option<&'m BankMatch>> {
        let test = &self.test;
        if !test.states.is_empty() {
            return if test.states.contains(&media.state) { vec![None] } else { Vec::new() };
        }
        let is_accepted = |bank_match: &&BankMatch| {
            (test.banks.is_empty() || test.banks.contains(&bank_match.bank))
                && (test.kinds.is_empty() || test.kinds.contains(&bank_match.kind))
                && (test.labels.is_empty()
                    || bank_match.labels.iter().any(|label| test.labels.contains(label)))
                && test.max_distance.is_none_or(|limit| bank_match.distance <= limit)
        };
        media.matches.iter().filter(is_accepted).map(Some).collect()
    }

    /// Reason for which a missing match is no proof in this state of the medium.
    fn unknown_reason(&self, state: MediaState) -> Option<&'static str> {
        let needs_no_picture =
            !self.test.kinds.is_empty() && self.test.kinds.iter().all(|kind| EXACT.contains(&kind.as_str()));
        match state {
            _ if !self.test.states.is_empty() => None,
            MediaState::Ok | MediaState::LowQuality => None,
            // Hashes of the bytes were compared, so only tests of other hashes lack an answer.
            MediaState::Undecodable => (!needs_no_picture).then_some("undecodable"),
            MediaState::TooLarge => Some("too_large"),
            MediaState::BlockedAddress => Some("blocked_address"),
            MediaState::FetchFailed => Some("fetch_failed"),
        }
    }
}

/// Explanation of a condition on media.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MediaExplained {
    pub outcome: ConditionResult,
    #[serde(rename = "in")]
    pub fields: Vec<String>,
    /// Matches or states that pass the test.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hits: Vec<MediaHit>,
    /// Reason for which the result of a medium is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Medium that passes the test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MediaHit {
    pub url: String,
    pub state: MediaState,
    /// Matching entry, if the test asks for a match.
    #[serde(default, rename = "match", skip_serializing_if = "Option::is_none")]
    pub found: Option<BankMatch>,
}
