//! The condition `media`: a medium of the item is like an entry of a bank, or could not be looked at. The caller
//! fetches and compares.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use tidegate_schemas::{
    banks::{BankKind, HashKind},
    ids::BankId,
};

use super::{
    context::Context,
    input::{EvalInput, Settled},
    kind::{DocumentLeaf, LeafKind},
};
use crate::{
    error::{did_you_mean, excerpt, shown},
    facts::{BankMatch, Facts, Media, MediaState, Missing, Need},
    item::Value,
    limits::{Limits, OutOfSteps, Steps},
    logic::{ConditionResult, Mask},
    reader::{Reader, present},
    vocabulary::{Bank, Kind},
};

/// A medium of named fields is like an entry of a bank, or could not be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaTest {
    pub fields: Vec<String>,
    /// One of these; empty: asks for a match.
    pub states: Vec<MediaState>,
    /// Empty: any bank.
    pub banks: Vec<BankId>,
    /// Kinds of hash; empty: any.
    pub kinds: Vec<String>,
    /// The entry has one of these; empty: whatever it has.
    pub labels: Vec<String>,
    /// Most bits that may differ; if left out, as many as the bank allows.
    pub max_distance: Option<u32>,
}

#[derive(Debug)]
pub(crate) struct MediaLeaf {
    slots: Vec<usize>,
    test: MediaTest,
}

/// The kinds of banks that media are compared with.
const HASHES: [BankKind; 5] =
    [BankKind::Pdq, BankKind::Gradient, BankKind::Md5, BankKind::Sha1, BankKind::Sha256];

/// Hashes of bytes, which need no picture.
const EXACT: [&str; 3] = ["md5", "sha1", "sha256"];

/// Names kinds, banks and distances of which nothing is ever found.
fn doubt(test: &MediaTest, banks: &[&Bank], context: &mut Context<'_>) {
    let asks = |kind: HashKind| test.kinds.is_empty() || test.kinds.iter().any(|it| it == kind.name());
    let holds = |kind: HashKind| banks.is_empty() || banks.iter().any(|bank| bank.kind.hash() == Some(kind));
    for bank in banks.iter().filter(|bank| !bank.kind.hash().is_some_and(asks)) {
        let (key, kind) = (shown(bank.key.as_str()), bank.kind.name());
        let detail =
            format!("bank {key} holds hashes of kind {kind}, which `kind` excludes: it never matches");
        context.at("bank", |c| c.warn("nothing_found", detail));
    }
    for kind in test.kinds.iter().filter(|kind| !HashKind::named(kind).is_some_and(holds)) {
        let detail = format!("none of the banks holds hashes of kind {kind}: it never matches");
        context.at("kind", |c| c.warn("nothing_found", detail));
    }
    let asked = HashKind::ALL.into_iter().filter(|kind| kind.is_made() && asks(*kind) && holds(*kind));
    let farthest = asked.map(HashKind::most_distance).max();
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
                c.at(nth, |c| c.path_of(field, Kind::Media, "IMAGE, VIDEO, AUDIO or MEDIA"))
            };
            test.fields.iter().enumerate().map(slot).collect()
        });
        let slots: Option<Vec<_>> = slots.into_iter().collect();
        let banks: Vec<_> = test.banks.iter().filter_map(|key| context.bank(key, &HASHES)).collect();
        let is_made = |kind: &&String| HashKind::named(kind).is_some_and(HashKind::is_made);
        let unknown: Vec<_> = test.kinds.iter().filter(|kind| !is_made(kind)).collect();
        for kind in &unknown {
            let made = HashKind::ALL.into_iter().filter(|kind| kind.is_made());
            let near = did_you_mean(kind, made.map(HashKind::name));
            let detail = format!("unknown kind of hash {}{near}", shown(kind));
            context.at("kind", |c| c.error("unknown_value", detail));
        }
        let is_known = unknown.is_empty() && banks.len() == test.banks.len();
        if is_known {
            doubt(&test, &banks, context);
        }
        Some(Self { slots: slots?, test }).filter(|_| is_known)
    }

    fn evaluate(&self, input: &EvalInput<'_>, steps: &mut Steps) -> Result<Mask, OutOfSteps> {
        let mut some = false;
        for slot in &self.slots {
            let values = input.fields.slot(*slot).values.as_deref().unwrap_or_default();
            steps.take(u64::try_from(values.len()).unwrap_or(u64::MAX))?;
            some |= !values.is_empty();
        }
        Ok(if some { Mask::OPEN } else { Mask::FAILED })
    }

    fn needs(&self, input: &EvalInput<'_>) -> Vec<Need> {
        let mut needs = Vec::new();
        for slot in &self.slots {
            for (_, value) in input.fields.slot(*slot).values.iter().flatten() {
                let Value::Text(url) = value else { continue };
                needs.push(Need::Media { url: (*url).to_owned() });
            }
        }
        needs
    }

    fn witness(&self) -> Option<f32> {
        // Most items have no medium, and so none that could be like an entry of a bank.
        Some(0.25)
    }

    /// One medium is enough; otherwise what is not known might have been it.
    fn settle(
        &self,
        needs: &[Need],
        facts: &Facts,
        explained: MediaExplained,
        limits: &Limits,
        _steps: &mut Steps,
    ) -> Settled<MediaExplained> {
        let (mut hits, mut failure, mut nobody, mut known) = (Vec::new(), None, false, false);
        for need in needs {
            let Need::Media { url } = need else { continue };
            match facts.medium(need) {
                Err(Missing::Nobody) => nobody = true,
                Err(missing @ (Missing::Failed(_) | Missing::Skipped)) => {
                    failure = failure.or(Some(missing.reason()));
                }
                Ok(media) => {
                    let found = self.found(media);
                    match self.hidden(media.state) {
                        Some(reason) if found.is_empty() => failure = failure.or(Some(reason)),
                        _ => known = true,
                    }
                    hits.extend(found.into_iter().map(|found| MediaHit {
                        url: excerpt(url, limits.excerpt_bytes).to_owned(),
                        state: media.state,
                        found: found.cloned(),
                    }));
                }
            }
        }
        let mask = match failure {
            _ if !hits.is_empty() => Mask::PASSED,
            Some(_) => Mask::ERRORED,
            // Somebody knows some of them: those that nobody knows are not there to be compared.
            None if nobody && !known => Mask::INAPPLICABLE,
            None => Mask::FAILED,
        };
        let reason = failure.filter(|_| mask == Mask::ERRORED);
        hits.truncate(limits.hits);
        let explained =
            MediaExplained { outcome: mask.result(), hits, reason: reason.map(str::to_owned), ..explained };
        Settled { mask, explained, reason: reason.map(|reason| format!("media: {reason}")) }
    }

    fn explain(
        &self,
        known: Mask,
        _found: Option<&[(u32, u32)]>,
        input: &EvalInput<'_>,
        _steps: &mut Steps,
    ) -> MediaExplained {
        let fields = self.slots.iter().map(|slot| input.fields.path(*slot).to_owned()).collect();
        MediaExplained { outcome: known.result(), fields, hits: Vec::new(), reason: None }
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
            ["bank", "kind", "labels", "max_distance"].into_iter().find(|key| present(object, key));
        match (present(object, "state"), matching) {
            (true, Some(key)) => {
                return self
                    .at(key, |r| r.error("shape", "`state` does not go with matches: use two conditions"));
            }
            (false, None) => {
                let detail = "expected `state`, or one or more of bank, kind, labels and max_distance";
                return self.error("shape", detail);
            }
            _ => {}
        }
        for (written, read) in [
            (present(object, "state"), states.is_some()),
            (present(object, "bank"), banks.is_some()),
            (present(object, "kind"), kinds.is_some()),
            (present(object, "labels"), labels.is_some()),
            (present(object, "max_distance"), max_distance.is_some()),
        ] {
            // Left out it would mean another thing.
            (written == read).then_some(())?;
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
    /// One of these must have a medium.
    pub(crate) fn slots(&self) -> &[usize] {
        &self.slots
    }

    /// Reasons for which the medium is one that is sought: entries that it is like, or its state.
    fn found<'m>(&self, media: &'m Media) -> Vec<Option<&'m BankMatch>> {
        let test = &self.test;
        if !test.states.is_empty() {
            return if test.states.contains(&media.state) { vec![None] } else { Vec::new() };
        }
        let fits = |found: &&BankMatch| {
            (test.banks.is_empty() || test.banks.contains(&found.bank))
                && (test.kinds.is_empty() || test.kinds.contains(&found.kind))
                && (test.labels.is_empty() || found.labels.iter().any(|label| test.labels.contains(label)))
                && test.max_distance.is_none_or(|most| found.distance <= most)
        };
        media.matches.iter().filter(fits).map(Some).collect()
    }

    /// Why it cannot be said that a medium in this state is like no entry.
    fn hidden(&self, state: MediaState) -> Option<&'static str> {
        let exact =
            !self.test.kinds.is_empty() && self.test.kinds.iter().all(|kind| EXACT.contains(&kind.as_str()));
        match state {
            _ if !self.test.states.is_empty() => None,
            MediaState::Ok | MediaState::LowQuality => None,
            MediaState::Undecodable => (!exact).then_some("undecodable"),
            MediaState::TooLarge => Some("too_large"),
            MediaState::BlockedAddress => Some("blocked_address"),
            MediaState::FetchFailed => Some("fetch_failed"),
        }
    }
}

/// The evaluation of a condition on media, as explanations show it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MediaExplained {
    pub outcome: ConditionResult,
    #[serde(rename = "in")]
    pub fields: Vec<String>,
    /// The matches or states that were sought.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hits: Vec<MediaHit>,
    /// The reason for which a medium is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A medium that is what was sought.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MediaHit {
    pub url: String,
    pub state: MediaState,
    /// The entry that it is like, if that was sought.
    #[serde(default, rename = "match", skip_serializing_if = "Option::is_none")]
    pub found: Option<BankMatch>,
}
