//! Describes the source of a bundle of moderation: phases, policies, notes and limitations.

#![allow(clippy::cast_possible_truncation, reason = "a list of items in memory is shorter than 2^32")]

use std::collections::BTreeSet;

use serde_json::Map;
use tidegate_history::Dataset;

use super::{
    Policy, Snapshot, TOOL,
    claims::{APPEAL, APPEAL_REVIEW, Claims, REPORT, REVIEW},
    event::EventKind,
};
use crate::{
    error::{ConvertError, ErrorKind},
    form::Answer,
    model::{Artifact, BundleHeader, Item, Origin, Phase, PublishedOutcome, SINGLE, Source},
    privacy::Profile,
    storage::rows::spool::SpooledRows,
};

pub(super) struct SourceDescription<'d> {
    pub(super) org: &'d str,
    pub(super) snapshot: Snapshot,
    pub(super) profile: Profile,
    pub(super) policies: &'d [Policy],
}

const POLICY: u16 = 4;
const CLAIM_TYPE: &str = "moderation-claim";
const POLICY_PARENT: &str = "policy-parent";

/// Phases in the order of their indexes.
const PHASES: [(u16, Phase); 5] = [
    (REPORT, phase("phase-report", "report", "Reports of users", CLAIM_TYPE, &[Answer::Agree])),
    (REVIEW, phase("phase-review", "review", "Reviews by moderators", CLAIM_TYPE, SINGLE)),
    (APPEAL, phase("phase-appeal", "appeal", "Appeals of users", CLAIM_TYPE, &[Answer::Disagree])),
    (
        APPEAL_REVIEW,
        phase(
            "phase-appeal-review",
            "appeal-review",
            "Reviews of appeals",
            CLAIM_TYPE,
            &[Answer::Agree, Answer::Disagree],
        ),
    ),
    (POLICY, phase("phase-policy", "policy", "Policies", "policy", &[])),
];

const fn phase(
    id: &'static str,
    kind: &'static str,
    title: &'static str,
    item_type: &'static str,
    answers: &'static [Answer],
) -> Phase {
    Phase { id, kind, title: Some(title), item_type, answers }
}

/// Limitations of every bundle of moderation, for its data card.
pub(super) const LIMITATIONS: [&str; 2] = [
    "Reports, decisions, appeals and actions about child safety are left out, and are not counted.",
    "Payloads of items, addresses of media and reasons in free text are left out.",
];

const NOTE_ABOUT_CLAIMS: &str = "A claim says that an item breaks a policy; the policy is `unspecified` if none was named. \
    A claim without a decision in the period is open, even if a rule acted on it.";
const NOTE_ABOUT_ANSWERS: &str = "Reports agree with a claim and appeals disagree. Decisions agree, disagree, or pass on \
    policies that were reviewed but not named.";
const NOTE_ABOUT_COVERAGE: &str =
    "Coverage does not apply to claims and is 0: no participant answers all of them.";
const NOTE_ABOUT_PEOPLE: &str = "Users, moderators and items have pseudonyms of three separate domains.";
const NOTE_ABOUT_PUBLIC_ITEMS: &str = "Items have pseudonyms; users and moderators do not appear.";

/// Describes the source, and adds the policies to the items.
pub(super) fn describe(
    source: &SourceDescription<'_>,
    claims: Claims,
) -> Result<(BundleHeader, SpooledRows), ConvertError> {
    let Claims { items: claims, mut questions, rows, row_counts } = claims;
    let mut items = policy_items(source.policies)?;
    // Policies precede the claims in the list of items.
    let policy_count = items.len() as u32;
    questions.iter_mut().for_each(|question| question.item += policy_count);
    items.extend(claims);
    let Snapshot { since, until } = source.snapshot;
    let period = format!("from {since} up to {until}");
    let org = source.org;
    let about_people = match source.profile {
        Profile::Private => NOTE_ABOUT_PEOPLE,
        Profile::Public => NOTE_ABOUT_PUBLIC_ITEMS,
    };
    let mut notes = vec![format!("Rows are those recorded {period}, without the end.")];
    notes.extend(
        [
            NOTE_ABOUT_CLAIMS,
            NOTE_ABOUT_ANSWERS,
            NOTE_ABOUT_COVERAGE,
            about_people,
            LIMITATIONS[0],
            LIMITATIONS[1],
        ]
        .map(str::to_owned),
    );
    let head = BundleHeader {
        phases: PHASES.map(|(_, phase)| phase).to_vec(),
        questions: Some(questions),
        is_recurring: true,
        artifacts: artifacts(row_counts),
        notes,
        ..BundleHeader::of_statements(
            "tidegate:moderation/v1",
            Source {
                tool: TOOL.to_owned(),
                schema: "urn:tidegate:schema:history:v1".to_owned(),
                id: format!("{org}:{since}..{until}"),
                title: format!("Moderation of {org}").chars().take(MAX_TITLE_CHARS).collect(),
                description: format!("Reports, decisions and appeals recorded {period}."),
                url: String::new(),
            },
            items,
        )
    };
    Ok((head, rows))
}

/// Maximum length of a title in the schema of bundles.
const MAX_TITLE_CHARS: usize = 120;

/// Lists datasets instead of files, so that the bundle does not depend on the division into files.
fn artifacts(row_counts: [u64; EventKind::ALL.len()]) -> Vec<Artifact> {
    let datasets = [
        (Dataset::Reports, EventKind::Report),
        (Dataset::Decisions, EventKind::Decision),
        (Dataset::Appeals, EventKind::Appeal),
        (Dataset::Actions, EventKind::RuleAction),
    ];
    let artifact = |(dataset, kind): (Dataset, EventKind)| Artifact {
        role: dataset.as_str(),
        name: dataset.as_str().to_owned(),
        archive_name: None,
        file_digest: None,
        rows: Some(row_counts[kind as usize]),
    };
    datasets.map(artifact).to_vec()
}

fn policy_items(policies: &[Policy]) -> Result<Vec<Item>, ConvertError> {
    let mut ids = BTreeSet::new();
    let mut items = Vec::new();
    for (at, policy) in policies.iter().enumerate() {
        if !ids.insert(&policy.id) {
            let detail = "the id of this policy occurs twice: remove one of the two";
            return Err(ConvertError::content("policies", at as u64 + 1, ErrorKind::Duplicate, detail));
        }
        let outcomes = policy.parent_id.iter().map(|parent_id| PublishedOutcome {
            phase: POLICY,
            is_public: true,
            other_members: Map::from_iter([("parentId".to_owned(), parent_id.as_str().into())]),
            ..PublishedOutcome::counts(POLICY_PARENT, Map::new())
        });
        items.push(Item {
            id: format!("policy:{}", policy.id),
            key: policy.id.clone(),
            row: at as u64 + 1,
            text: policy.name.clone(),
            status: "active".to_owned(),
            origin: Origin::Organizer,
            phase: POLICY,
            created: None,
            author: None,
            outcomes: outcomes.collect(),
        });
    }
    items.sort_by(|left, right| left.key.cmp(&right.key));
    Ok(items)
}
