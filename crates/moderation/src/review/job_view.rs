//! A job as the API shows it: its causes, the item, and everything that was sent along.

use serde::Serialize;
use serde_json::value::RawValue;
use tidegate_catalog::Compiled;
use tidegate_schemas::{
    ids::{
        ActionId, AppealId, ConfigVersion, DecisionId, ItemId, ItemKey, JobId, Millis, OrgId, PolicyId,
        QueueId, ReportId, SubmissionId, TypeId,
    },
    records::{JobClass, Verdict},
    wire::reports::REPORTER_KIND,
};
use tidegate_store::{
    At, Cursor, Store,
    tables::review::{
        appeals::Appeal,
        jobs::{CauseKind, DecisionState, Job, JobCause, JobState},
        reports::Report,
    },
};

use super::{
    comments::{self, Comment},
    decisions::{Parameters, StoredDecision, StoredRelated},
    sent_item, skips, thread,
};
use crate::{
    Error,
    effects::events::CrossedThreshold,
    items::{context, context_media, stored},
    job_moves,
    partial_items::views,
    priority::Signals,
};

/// A job as lists show it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    pub id: JobId,
    pub class: JobClass,
    pub queue: QueueId,
    pub state: JobState,
    pub item: ItemKey,
    pub generation: i64,
    pub priority: i64,
    /// Severity, reporters and reach, from which the priority comes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signals: Option<Signals>,
    /// Routing list and entry that chose the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routed_by: Option<String>,
    pub created_at: String,
    /// Time at which the decision could no longer be undone, or the job was closed without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub appeal_id: Option<AppealId>,
    pub epoch: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claimed_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_until: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<DecisionView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision_state: Option<DecisionState>,
    /// Moves to other queues, the oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<MoveView>,
    /// The last skip of each reviewer, the oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skips: Vec<SkipView>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MoveView {
    pub at: String,
    pub from: QueueId,
    pub to: QueueId,
    /// Review job that has the causes of a job that left child safety.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// True if the routing list moved the job, and not a person.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub routed: bool,
}

#[derive(Debug, Serialize)]
pub struct SkipView {
    pub at: String,
    pub by: String,
}

/// A decision as the API shows it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionView {
    pub decision_id: DecisionId,
    pub config_version: ConfigVersion,
    pub verdict: Verdict,
    pub actions: Vec<ActionId>,
    #[serde(skip_serializing_if = "Parameters::is_empty")]
    pub parameters: Parameters,
    pub policies: Vec<PolicyId>,
    /// Actions on items that belong to the job.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub related: Vec<StoredRelated>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub decided_by: String,
    pub decided_at: String,
    /// Time at which its effects begin.
    pub release_at: String,
}

impl From<StoredDecision> for DecisionView {
    fn from(decided: StoredDecision) -> Self {
        Self {
            decision_id: decided.decision_id,
            config_version: decided.config_version,
            verdict: decided.verdict,
            actions: decided.actions,
            parameters: decided.parameters,
            policies: decided.policies,
            related: decided.related,
            reason: decided.reason,
            decided_by: decided.decided_by,
            decided_at: decided.decided_at.iso(),
            release_at: decided.release_at.iso(),
        }
    }
}

#[derive(Debug, Serialize)]
pub struct JobView {
    #[serde(flatten)]
    pub job: Summary,
    pub causes: Vec<Cause>,
    /// Cursor of the causes that exceed the limits of this answer.
    #[serde(rename = "nextCause", skip_serializing_if = "Option::is_none")]
    pub next_cause: Option<String>,
    /// The first comments, oldest first; `GET jobs/{id}/comments` has all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub comments: Vec<Comment>,
    /// The item as it is known now: until a processor stored it, as the newest report or appeal sent it.
    #[serde(rename = "latestItem", skip_serializing_if = "Option::is_none")]
    pub latest_item: Option<stored::Answer>,
    /// Items that the platform was asked for; absent if it was not.
    #[serde(rename = "partialItems", skip_serializing_if = "Option::is_none")]
    pub partial_items: Option<views::OfJob>,
    /// Items whose content the reader may not see.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub withheld: Vec<ItemKey>,
}

/// Limits of the causes in one answer. The first cause is always shown, and each is shown as a whole.
#[derive(Clone, Copy, Debug)]
pub struct CauseLimits {
    pub causes: usize,
    /// Bytes of content that was sent along.
    pub bytes: usize,
}

/// A cause of the job, with the content that the platform sent.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cause {
    pub kind: CauseKind,
    pub at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submission_id: Option<SubmissionId>,
    pub rules: Box<RawValue>,
    /// Threshold that the user crossed; causes that were stored by earlier versions have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<CrossedThreshold>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<ReportView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub appeal: Option<AppealView>,
    /// Media of the items that came along; absent until they were fetched.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub media: Vec<ItemMedia>,
}

/// The media of an item that came along, as `stored::Answer` shows those of an item.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ItemMedia {
    pub type_id: TypeId,
    pub id: ItemId,
    pub media: Box<RawValue>,
}

/// The item of a report or an appeal, as it was sent.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SentItem {
    #[serde(flatten)]
    pub key: ItemKey,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub type_version: Option<String>,
    pub type_schema_variant: String,
    pub data: Box<RawValue>,
    /// True if the reader may not see the data.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub withheld: bool,
}

/// A user who reported or appealed, as the platform named it.
#[derive(Debug, Serialize)]
pub struct NamedUser {
    #[serde(flatten)]
    pub key: ItemKey,
    /// Reason why its type is none of a user. What it reports counts all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

impl NamedUser {
    fn new(config: &Compiled, key: ItemKey) -> Self {
        let type_id = &key.type_id;
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
    /// The only kind of reporter that is accepted.
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
    /// `{id, known}` as the platform named it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub csam: bool,
    /// Entries in the order of creation; those of `reported_items_in_thread` have `reported: true`.
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

pub fn summary(job: Job) -> Result<Summary, Error> {
    let decision: Option<StoredDecision> =
        job.decision.as_deref().map(serde_json::from_str).transpose().map_err(Error::corrupt("job"))?;
    let signals = Signals::of(&job)?;
    let moves = job_moves::of(&job)?.into_iter();
    let skips = skips::of(&job)?.into_iter();
    Ok(Summary {
        moves: moves
            .map(|it| MoveView {
                at: it.at.iso(),
                from: it.from,
                to: it.to,
                job_id: it.job,
                routed: it.routed,
            })
            .collect(),
        skips: skips.map(|it| SkipView { at: it.at.iso(), by: it.by }).collect(),
        id: job.job_id,
        class: job.class,
        queue: job.queue,
        state: job.state,
        item: job.item,
        generation: job.generation,
        priority: job.priority,
        signals,
        routed_by: job.routed_by,
        created_at: job.created_at.iso(),
        closed_at: job.closed_at.map(Millis::iso),
        appeal_id: job.appeal_id,
        epoch: job.epoch,
        claimed_by: job.claimed_by,
        lease_until: job.lease_until.map(Millis::iso),
        decision: decision.map(DecisionView::from),
        decision_state: job.decision_state,
    })
}

pub async fn answer(
    store: &Store,
    config: &Compiled,
    job_id: JobId,
    limits: CauseLimits,
) -> Result<Option<JobView>, Error> {
    let org = config.org();
    let Some(job) = store.get::<Job>(&(org.clone(), job_id)).await? else { return Ok(None) };
    let (causes, next) = causes(store, config, job_id, None, limits).await?;
    let latest_item = match stored::answer(store, org, &job.item, None).await? {
        Some(item) => Some(item),
        None => newest_sent(store, org, &job.item, &causes).await?,
    };
    let next_cause = next.map(|cursor| cursor.to_string());
    let (comments, _) = comments::list(store, org, job_id, None, limits.causes).await?;
    let item_limits = views::ItemLimits { items: limits.causes, bytes: limits.bytes };
    let partial_items = views::of_job(store, org, job_id, item_limits).await?;
    let job = summary(job)?;
    Ok(Some(JobView { job, causes, next_cause, comments, latest_item, partial_items, withheld: Vec::new() }))
}

/// Returns the item as the newest of these causes sent it.
async fn newest_sent(
    store: &Store,
    org: &OrgId,
    item: &ItemKey,
    causes: &[Cause],
) -> Result<Option<stored::Answer>, Error> {
    let sends_item = |cause: &&Cause| {
        let reported_item = cause.report.as_ref().map(|report| &report.reported_item.key);
        let actioned_item = cause.appeal.as_ref().map(|appeal| &appeal.actioned_item.key);
        reported_item.or(actioned_item) == Some(item)
    };
    // Times in this form sort as text.
    let cause = causes.iter().filter(sends_item).max_by(|one, other| one.at.cmp(&other.at));
    match cause.map(|cause| (&cause.report, &cause.appeal)) {
        Some((Some(report), _)) => sent_item::from_report(store, org, report.id).await,
        Some((None, Some(appeal))) => sent_item::from_appeal(store, org, &appeal.id).await,
        _ => Ok(None),
    }
}

/// Returns causes of a job, in no order, and a cursor if there may be more.
pub async fn causes(
    store: &Store,
    config: &Compiled,
    job_id: JobId,
    mut after: Option<Cursor>,
    limits: CauseLimits,
) -> Result<(Vec<Cause>, Option<Cursor>), Error> {
    let org = config.org();
    let range = At::all().limit(limits.causes).after(after.clone());
    let mut rows = store.scan::<JobCause>(&(org.clone(), job_id), range);
    let (mut causes, mut bytes) = (Vec::new(), 0);
    for row in rows.all().await? {
        let cursor = Cursor::after(&row);
        let cause = cause(store, config, row).await?;
        bytes += cause.bytes();
        if bytes > limits.bytes && !causes.is_empty() {
            return Ok((causes, after));
        }
        causes.push(cause);
        after = Some(cursor);
    }
    Ok((causes, rows.cursor()))
}

impl Cause {
    /// Bytes of the content that was sent along, which is nearly the whole size.
    fn bytes(&self) -> usize {
        let of = |raw: &RawValue| raw.get().len();
        let report = self.report.as_ref().map_or(0, |report| {
            of(&report.reported_item.data)
                + of(&report.reported_item_thread)
                + of(&report.reported_items_in_thread)
                + of(&report.additional_items)
        });
        let appeal = self.appeal.as_ref().map_or(0, |appeal| {
            of(&appeal.actioned_item.data)
                + of(&appeal.actions_taken)
                + of(&appeal.violating_policies)
                + of(&appeal.additional_items)
        });
        let media: usize = self.media.iter().map(|item| of(&item.media)).sum();
        of(&self.rules) + report + appeal + media
    }
}

async fn cause(store: &Store, config: &Compiled, row: JobCause) -> Result<Cause, Error> {
    let org = config.org();
    let report = match row.report_id {
        Some(id) => {
            store.get::<Report>(&(org.clone(), id)).await?.map(|row| report(config, row)).transpose()?
        }
        None => None,
    };
    let appeal = match &row.appeal_id {
        Some(id) => store
            .get::<Appeal>(&(org.clone(), id.clone()))
            .await?
            .map(|row| appeal(config, row))
            .transpose()?,
        None => None,
    };
    let media = context_media::of_cause(store, org, row.cause).await?.into_iter();
    let media = media.map(|row| {
        let media = context::raw(row.media.as_bytes())?;
        Ok(ItemMedia { type_id: row.type_id, id: row.item_id, media })
    });
    Ok(Cause {
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

fn report(config: &Compiled, row: Report) -> Result<ReportView, Error> {
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
        reported_item_thread: thread::ordered(config, &row.thread, &row.reported_in_thread)?,
        reported_items_in_thread: context::raw(row.reported_in_thread.as_bytes())?,
        additional_items: context::raw(row.additional.as_bytes())?,
    })
}

fn appeal(config: &Compiled, row: Appeal) -> Result<AppealView, Error> {
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
