//! Item of a job in the version of a report or an appeal, until a processor has stored it: its media may take
//! seconds.

use serde_json::value::RawValue;
use tidegate_schemas::{
    ids::{AppealId, ItemKey, Kind, OrgId, ReportId, SubmissionId, derive},
    records::{Source, Variant},
};
use tidegate_store::{
    Store,
    tables::{
        items::items::SubmissionState,
        review::{
            appeals::{Appeal, AppealClaim},
            reports::Report,
        },
    },
};

use crate::{
    Error,
    items::{
        context,
        stored::{ItemResponse, Omissions},
    },
};

/// Returns the item of a report in the form of an accepted item.
pub(super) async fn from_report(
    store: &Store,
    org: &OrgId,
    report: ReportId,
) -> Result<Option<ItemResponse>, Error> {
    store.get::<Report>(&(org.clone(), report)).await?.map(of_report).transpose()
}

/// Returns the item of an appeal in the form of an accepted item.
pub(super) async fn from_appeal(
    store: &Store,
    org: &OrgId,
    appeal: &AppealId,
) -> Result<Option<ItemResponse>, Error> {
    let key = (org.clone(), appeal.clone());
    let (row, claim) = (store.get::<Appeal>(&key).await?, store.get::<AppealClaim>(&key).await?);
    // The claim has the digest from which the submission id is derived.
    row.zip(claim).map(|(row, claim)| of_appeal(row, &claim)).transpose()
}

fn of_report(row: Report) -> Result<ItemResponse, Error> {
    Ok(ItemResponse {
        type_version: row.type_version,
        type_schema_variant: row.variant,
        config_version: row.config_version.0,
        received_at: row.received_at.iso(),
        report_id: Some(row.report_id),
        ..accepted_item(row.item, row.submission_id, Source::Report, context::raw(&row.data)?)
    })
}

fn of_appeal(row: Appeal, claim: &AppealClaim) -> Result<ItemResponse, Error> {
    // Must equal the submission id that ingest derives for the appeal.
    let cause = [
        b"appeal".as_slice(),
        row.org.as_str().as_bytes(),
        row.appeal_id.as_str().as_bytes(),
        &claim.digest[..],
    ];
    Ok(ItemResponse {
        type_version: row.type_version,
        type_schema_variant: row.variant,
        config_version: row.config_version.0,
        received_at: row.received_at.iso(),
        ..accepted_item(row.item, derive(Kind::Submission, &cause), Source::Appeal, context::raw(&row.data)?)
    })
}

fn accepted_item(
    item: ItemKey,
    submission_id: SubmissionId,
    source: Source,
    data: Box<RawValue>,
) -> ItemResponse {
    let empty_list = || RawValue::from_string("[]".to_owned()).expect("an empty list is JSON");
    ItemResponse {
        id: item.id,
        type_id: item.type_id,
        submission_id,
        state: SubmissionState::Accepted.into(),
        source: source.into(),
        type_version: None,
        type_schema_variant: Variant::Original.into(),
        data,
        config_version: 0,
        received_at: String::new(),
        evaluated_at: None,
        report_id: None,
        matched_rules: Vec::new(),
        errored_rules: empty_list(),
        left_out: Omissions::default(),
        actions: Vec::new(),
        media: empty_list(),
        deliveries: Vec::new(),
    }
}
