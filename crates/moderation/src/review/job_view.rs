//! JSON view of a job: its causes, its item and the content that reports and appeals sent with it.

use async_recursion::async_recursion as boxed;
use serde::Serialize;
use serde_json::value::RawValue;
use tidegate_catalog::Compiled;
use tidegate_schemas::{
    ids::{AppealId, ItemId, ItemKey, OrgId, ReportId, SubmissionId, TypeId},
    records::Variant,
    wire::reports::REPORTER_KIND,
};
use tidegate_store::{
    Cursor, OpenEnum, RowRange, Store,
    tables::review::{
        appeals::Appeal,
        jobs::{CauseKind, Job, JobCause},
        reports::Report,
    },
};

use super::{
    comments::{self, CommentResponse},
    sent_item, thread,
};
use crate::{
    Error,
    child_safety::AuthorizedJob,
    effects::events::CrossedThreshold,
    items::{context, context_media, stored},
    jobs::summary::{self, JobSummaryResponse},
    partial_items::views,
};

#[derive(Debug, Serialize)]
pub struct JobResponse {
    #[serde(flatten)]
    pub job: JobSummaryResponse,
    pub causes: Vec<CauseResponse>,
    /// Cursor of the causes beyond this answer.
    #[serde(rename = "nextCause", skip_serializing_if = "Option::is_none")]
    pub next_cause: Option<String>,
    /// First comments, oldest first. `GET jobs/{id}/comments` returns all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub comments: Vec<CommentResponse>,
    /// Newest version of the item. Until a processor has stored it, the version of the newest report or appeal.
    #[serde(rename = "latestItem", skip_serializing_if = "Option::is_none")]
    pub latest_item: Option<stored::ItemResponse>,
    /// Items requested from the platform; absent without a request.
    #[serde(rename = "partialItems", skip_serializing_if = "Option::is_none")]
    pub partial_items: Option<views::JobRequestsView>,
    /// Items with content that the reader may not see.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub withheld: Vec<ItemKey>,
}

/// Limits of the causes in one answer. The first cause is always included, and each cause is complete.
#[derive(Clone, Copy, Debug)]
pub struct CauseLimits {
    pub causes: usize,
    /// Bytes of platform content.
    pub bytes: usize,
}

/// Cause of the job, with the platform's content.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CauseResponse {
    pub kind: CauseKind,
    pub at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submission_id: Option<SubmissionId>,
    pub rules: Box<RawValue>,
    /// Threshold that the user crossed. Absent in causes of earlier versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<CrossedThreshold>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<ReportView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub appeal: Option<AppealView>,
    /// Media of the context items; absent until they are fetched.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub media: Vec<ItemMedia>,
}

/// Media of a context item, in the form of [`stored::ItemResponse`].
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ItemMedia {
    pub type_id: TypeId,
    pub id: ItemId,
    pub media: Box<RawValue>,
}

/// Item of a report or an appeal, as sent by the platform.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SentItem {
    #[serde(flatten)]
    pub key: ItemKey,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub type_version: Option<String>,
    pub type_schema_variant: OpenEnum<Variant>,
    pub data: Box<RawValue>,
    /// True if the reader may not see the data.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub withheld: bool,
}

/// Reporter or appellant, as named by the platform.
#[derive(Debug, Serialize)]
pub struct NamedUser {
    #[serde(flatten)]
    pub key: ItemKey,
    /// Reason why the type is not a user type. The report counts nevertheless.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

impl NamedUser {
    fn new(config: &Compiled, key: ItemKey) -> Self {
        let type_id = &key.type_id;
        // Shown instead of refused: a report with a wrong reporter type still counts.
        let fault = match config.item_type(type_id) {
            None => Some(format!("There is no item type `{type_id}`.")),
            Some(item_type) if !item_type.is_user() => {
                Some(format!("`{type_id}` is no type of users; a user's type has the kind `USER`."))
            }
            Some(_) => None,
        };
        Self { key, fault }
    }
}

#[derive(Debug, Serialize)]
pub struct Reporter {
    /// The only accepted kind of reporter.
    pub kind: &'static str,
    #[serde(flatten)]
    pub user: NamedUser,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportView {
    pub id: ReportId,
    pub reporter: Reporter,
    pub reported_at: String,
    pub reported_item: SentItem,
    /// `{id, known}` as named by the platform.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub csam: bool,
    /// Entries in order of creation; those of `reported_items_in_thread` have `reported: true`.
    pub reported_item_thread: Box<RawValue>,
    pub reported_items_in_thread: Box<RawValue>,
    pub additional_items: Box<RawValue>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AppealView {
    pub id: AppealId,
    pub appealed_by: NamedUser,
    pub appealed_at: String,
    pub actioned_item: SentItem,
    /// `[{id, known, didYouMean?, ahead?}]`
    pub actions_taken: Box<RawValue>,
    pub violating_policies: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub additional_items: Box<RawValue>,
}

#[boxed]
pub async fn load_view(
    store: &Store,
    config: &Compiled,
    job: &AuthorizedJob,
    limits: CauseLimits,
) -> Result<Option<JobResponse>, Error> {
    let org = job.org();
    let Some(row) = store.get::<Job>(&job.key()).await? else { return Ok(None) };
    let (job_causes, next_cursor) = load_causes(store, config, job, None, limits).await?;
    // A reported item may wait for its media for seconds, and reviewers must see it meanwhile.
    let latest_item = match stored::load_answer(store, org, &row.item, None).await? {
        Some(item) => Some(item),
        None => newest_sent_item(store, org, &row.item, &job_causes).await?,
    };
    let next_cause = next_cursor.map(|cursor| cursor.to_string());
    // Only the first page: comments have their own endpoint.
    let (comments, _) = comments::list_comments(store, job, None, limits.causes).await?;
    let item_limits = views::ItemLimits { items: limits.causes, bytes: limits.bytes };
    let partial_items = views::load_for_job(store, job, item_limits).await?;
    // The caller knows the reader's clearance and fills in `withheld`.
    Ok(Some(JobResponse {
        job: summary::summarize(row)?,
        causes: job_causes,
        next_cause,
        comments,
        latest_item,
        partial_items,
        withheld: Vec::new(),
    }))
}

/// Returns the item in the version of the newest of these causes.
async fn newest_sent_item(
    store: &Store,
    org: &OrgId,
    item: &ItemKey,
    job_causes: &[CauseResponse],
) -> Result<Option<stored::ItemResponse>, Error> {
    let sends_item = |cause: &&CauseResponse| {
        let reported_item = cause.report.as_ref().map(|report| &report.reported_item.key);
        let actioned_item = cause.appeal.as_ref().map(|appeal| &appeal.actioned_item.key);
        reported_item.or(actioned_item) == Some(item)
    };
    // ISO times sort as text.
    let cause = job_causes.iter().filter(sends_item).max_by(|one, other| one.at.cmp(&other.at));
    match cause.map(|cause| (&cause.report, &cause.appeal)) {
        Some((Some(report), _)) => sent_item::from_report(store, org, report.id).await,
        Some((None, Some(appeal))) => sent_item::from_appeal(store, org, &appeal.id).await,
        _ => Ok(None),
    }
}

/// Returns causes of a job, unordered, and a cursor if more may follow.
#[boxed]
pub async fn load_causes(
    store: &Store,
    config: &Compiled,
    job: &AuthorizedJob,
    mut after: Option<Cursor>,
    limits: CauseLimits,
) -> Result<(Vec<CauseResponse>, Option<Cursor>), Error> {
    let range = RowRange::all().limit(limits.causes).after(after.clone());
    let mut rows = store.scan::<JobCause>(&job.key(), range);
    let (mut loaded_causes, mut bytes) = (Vec::new(), 0);
    for row in rows.all().await? {
        let cursor = Cursor::after(&row);
        let cause = build_cause(store, config, row).await?;
        bytes += cause.bytes();
        // Checked after loading, because the size is only known then. The first cause is always returned, so that
        // pages advance.
        if bytes > limits.bytes && !loaded_causes.is_empty() {
            return Ok((loaded_causes, after));
        }
        loaded_causes.push(cause);
        after = Some(cursor);
    }
    Ok((loaded_causes, rows.cursor()))
}

impl CauseResponse {
    /// Bytes of platform content, which is nearly the whole size.
    fn bytes(&self) -> usize {
        let length = |raw: &RawValue| raw.get().len();
        let report = self.report.as_ref().map_or(0, |report| {
            length(&report.reported_item.data)
                + length(&report.reported_item_thread)
                + length(&report.reported_items_in_thread)
                + length(&report.additional_items)
        });
        let appeal = self.appeal.as_ref().map_or(0, |appeal| {
            length(&appeal.actioned_item.data)
                + length(&appeal.actions_taken)
                + length(&appeal.violating_policies)
                + length(&appeal.additional_items)
        });
        let media: usize = self.media.iter().map(|item| length(&item.media)).sum();
        length(&self.rules) + report + appeal + media
    }
}

async fn build_cause(store: &Store, config: &Compiled, row: JobCause) -> Result<CauseResponse, Error> {
    let org = config.org();
    let report = match row.report_id {
        Some(id) => {
            store.get::<Report>(&(org.clone(), id)).await?.map(|row| report_view(config, row)).transpose()?
        }
        None => None,
    };
    let appeal = match &row.appeal_id {
        Some(id) => store
            .get::<Appeal>(&(org.clone(), id.clone()))
            .await?
            .map(|row| appeal_view(config, row))
            .transpose()?,
        None => None,
    };
    // Media arrive after the cause, so the list may still be empty.
    let media = context_media::load_media(store, org, row.cause).await?.into_iter();
    let media = media.map(|row| {
        let media = context::raw(row.media.as_bytes())?;
        Ok(ItemMedia { type_id: row.type_id, id: row.item_id, media })
    });
    Ok(CauseResponse {
        media: media.collect::<Result<_, Error>>()?,
        kind: row.kind,
        at: row.at.iso(),
        submission_id: row.submission_id,
        rules: context::raw(row.rules.as_bytes())?,
        threshold: row
            .threshold
            .as_deref()
            .map(serde_json::from_str)
            .transpose()
            .map_err(Error::corrupt("job cause"))?,
        report,
        appeal,
    })
}

fn report_view(config: &Compiled, row: Report) -> Result<ReportView, Error> {
    Ok(ReportView {
        id: row.report_id,
        reporter: Reporter { kind: REPORTER_KIND, user: NamedUser::new(config, row.reporter) },
        reported_at: row.reported_at.iso(),
        reported_item: SentItem {
            key: row.item,
            type_version: row.type_version,
            type_schema_variant: row.variant,
            data: context::raw(&row.data)?,
            withheld: false,
        },
        policy: row.policy.map(|policy| context::raw(policy.as_bytes())).transpose()?,
        reason: row.reason,
        csam: row.csam,
        reported_item_thread: thread::order_thread(config, &row.thread, &row.reported_in_thread)?,
        reported_items_in_thread: context::raw(row.reported_in_thread.as_bytes())?,
        additional_items: context::raw(row.additional.as_bytes())?,
    })
}

fn appeal_view(config: &Compiled, row: Appeal) -> Result<AppealView, Error> {
    Ok(AppealView {
        id: row.appeal_id,
        appealed_by: NamedUser::new(config, row.appealed_by),
        appealed_at: row.appealed_at.iso(),
        actioned_item: SentItem {
            key: row.item,
            type_version: row.type_version,
            type_schema_variant: row.variant,
            data: context::raw(&row.data)?,
            withheld: false,
        },
        actions_taken: context::raw(row.actions_taken.as_bytes())?,
        violating_policies: context::raw(row.violating_policies.as_bytes())?,
        reason: row.reason,
        additional_items: context::raw(row.additional.as_bytes())?,
    })
}
