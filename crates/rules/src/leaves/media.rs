//! Whether a medium of the item is like an entry of a bank, or could not be looked at.
//!
//! It neither fetches nor compares media; the caller tells what is known of them.

use tidegate_schemas::banks::{BankKind, HashKind};

use crate::{
    bank::Bank,
    compile::Context,
    evaluate::Mask,
    explain::{Explained, MediaExplained, MediaHit, excerpt},
    facts::{BankMatch, Facts, Media, MediaState, Missing, Need},
    faults::{did_you_mean, shown},
    form::MediaTest,
    item::Value,
    leaves::{Scene, Settled},
    limits::{Limits, Spent, Steps},
    vocabulary::Kind,
};

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
            format!("the bank {key} holds hashes of kind {kind}, which `kind` leaves out: none is found");
        context.at("bank", |c| c.warn("nothing_found", detail));
    }
    for kind in test.kinds.iter().filter(|kind| !HashKind::named(kind).is_some_and(holds)) {
        let detail = format!("no bank that is named holds hashes of kind {kind}: none is found");
        context.at("kind", |c| c.warn("nothing_found", detail));
    }
    let asked = HashKind::ALL.into_iter().filter(|kind| kind.is_made() && asks(*kind) && holds(*kind));
    let farthest = asked.map(HashKind::most_distance).max();
    if let Some((most, farthest)) = test.max_distance.zip(farthest)
        && most > farthest
    {
        let detail = format!("these hashes are compared up to a distance of {farthest}: no more is found");
        context.at("max_distance", |c| c.warn("nothing_found", detail));
    }
}

impl MediaLeaf {
    pub(super) fn compile(test: MediaTest, context: &mut Context<'_>) -> Option<Self> {
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
            let detail = format!("there are no hashes of kind {}{near}", shown(kind));
            context.at("kind", |c| c.fault("unknown_value", detail));
        }
        let is_known = unknown.is_empty() && banks.len() == test.banks.len();
        if is_known {
            doubt(&test, &banks, context);
        }
        Some(Self { slots: slots?, test }).filter(|_| is_known)
    }

    /// One of these must have a medium.
    pub(crate) fn slots(&self) -> &[usize] {
        &self.slots
    }

    pub(super) fn judge(&self, scene: &Scene<'_>, steps: &mut Steps) -> Result<Mask, Spent> {
        let mut some = false;
        for slot in &self.slots {
            let values = scene.views.slot(*slot).values.as_deref().unwrap_or_default();
            steps.take(u64::try_from(values.len()).unwrap_or(u64::MAX))?;
            some |= !values.is_empty();
        }
        Ok(if some { Mask::OPEN } else { Mask::FAILED })
    }

    pub(super) fn needs(&self, scene: &Scene<'_>) -> Vec<Need> {
        let mut needs = Vec::new();
        for slot in &self.slots {
            for (_, value) in scene.views.slot(*slot).values.iter().flatten() {
                let Value::Text(url) = value else { continue };
                needs.push(Need::Media { url: (*url).to_owned() });
            }
        }
        needs
    }

    /// One medium is enough; otherwise what is not known might have been it.
    pub(super) fn settle(
        &self,
        needs: &[Need],
        facts: &Facts,
        explained: Explained,
        limits: &Limits,
    ) -> Settled {
        let (mut hits, mut failure, mut nobody, mut known) = (Vec::new(), None, false, false);
        for need in needs {
            let Need::Media { url } = need else { continue };
            match facts.medium(need) {
                Err(Missing::Nobody) => nobody = true,
                Err(Missing::Failed(reason)) => failure = failure.or(Some(reason)),
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
        let explained = match explained {
            Explained::Media(written) => Explained::Media(MediaExplained {
                outcome: mask.verdict(),
                hits,
                reason: reason.map(str::to_owned),
                ..written
            }),
            other => other,
        };
        Settled { mask, explained, reason: reason.map(|reason| format!("media: {reason}")) }
    }

    /// What makes the medium one that is sought: the entries that it is like, or only its state.
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

    pub(super) fn explain(&self, known: Mask, scene: &Scene<'_>) -> Explained {
        let fields = self.slots.iter().map(|slot| scene.views.path(*slot).to_owned()).collect();
        Explained::Media(MediaExplained { outcome: known.verdict(), fields, hits: Vec::new(), reason: None })
    }
}
