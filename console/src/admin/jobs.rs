//! `/admin/v1/jobs`: what waits for a moderator, claims, and decisions.
//!
//! A decision's effects come later, from the log; here it is only taken.

use std::{collections::HashSet, sync::Arc};

use axum::{
    Extension, Json, Router,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tidegate_catalog::Compiled;
use tidegate_moderation::{
    items::stored,
    partial_items::{
        claims,
        views::{self, ItemLimits, RequestView},
    },
    review::{
        decisions::{self, Refusal, StoredDecision, StoredRelated},
        job_view::{self, Cause, CauseLimits, DecisionView, JobView, Summary},
        queues::{self, Claim, ClaimNext, Reviewer},
        withheld,
    },
};
use tidegate_schemas::{
    documents::QueueClass,
    ids::{ItemKey, JobId, Millis, QueueId, SubmissionId},
    names,
    records::{JobClass, Verdict},
};
use tidegate_store::{Cursor, tables::review::jobs::Job};
use tidegate_web::{Path, Problem, Query};

use super::{
    Api, List,
    audit::{self, AuditDetail},
    caller::Caller,
    child_safety,
    decision_body::DecisionBody,
    extract::{Body, Page, id, invalid, not_a_cursor},
    faults, job_list,
};

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/jobs", get(list))
        .route("/jobs/claim-next", post(claim_next))
        .route("/jobs/{id}", get(one))
        .route("/jobs/{id}/causes", get(causes))
        .route("/jobs/{id}/partial-items", get(partial_items))
        .route("/jobs/{id}/claim", post(claim))
        .route("/jobs/{id}/release", post(release))
        .route("/jobs/{id}/decisions", post(decide))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClaimRequest {
    /// Name of the claiming person. Required of API keys, which several people can share.
    #[serde(default)]
    reviewer: Option<String>,
    /// Roles of the reviewer, for queues whose access names roles.
    #[serde(default)]
    roles: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClaimNextRequest {
    queue: QueueId,
    /// Name of the claiming person. Required of API keys, which several people can share.
    #[serde(default)]
    reviewer: Option<String>,
    #[serde(default)]
    roles: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimNextQuery {
    /// True if a job that the reviewer has claimed already may be the next one.
    #[serde(default)]
    held: bool,
    #[serde(rename = "org")]
    _org: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Released {
    epoch: i64,
    #[serde(default)]
    reviewer: Option<String>,
}

async fn list(
    State(api): State<Api>,
    caller: Caller,
    Query(wanted): Query<job_list::Wanted>,
) -> Result<Json<List<Summary>>, Problem> {
    job_list::page(&api, &caller, &wanted).await.map(Json)
}

async fn one(
    State(api): State<Api>,
    caller: Caller,
    Path(job): Path<String>,
) -> Result<Json<JobView>, Problem> {
    view(&api, &caller, id(&job)?).await.map(Json)
}

/// A job with its causes, as far as they fit into one answer.
pub(crate) async fn view(api: &Api, caller: &Caller, job: JobId) -> Result<JobView, Problem> {
    let limits = cause_limits(api, None)?;
    let config = config(api, caller).await?;
    let row = shown(api, caller, job).await?;
    let answer = job_view::answer(&api.deps.moderation.store, &config, job, limits).await;
    let mut answer = answer.map_err(faults::moderation)?.ok_or_else(no_such_job)?;
    let mut items = withheld::items_of(&answer.causes).map_err(faults::moderation)?;
    items.insert(row.item.clone());
    if let Some(fetched) = &answer.partial_items {
        items.extend(fetched.items.iter().map(key_of));
        items.extend(fetched.requests.iter().flat_map(asked));
    }
    let hidden = hidden_items(api, caller, &row, items, "/jobs/{id}", format!("/jobs/{job}")).await?;
    withheld::withhold(&mut answer.causes, &row.item, &hidden).map_err(faults::moderation)?;
    if hidden.contains(&row.item) {
        answer.latest_item = None;
    }
    if let Some(fetched) = &mut answer.partial_items {
        fetched.items.retain(|item| !hidden.contains(&key_of(item)));
        fetched.requests.retain(|request| !asked(request).iter().any(|item| hidden.contains(item)));
    }
    answer.withheld = hidden.into_iter().collect();
    answer.withheld.sort_unstable();
    Ok(answer)
}

/// Lists the causes of a job that exceed the limits of its answer.
async fn causes(
    State(api): State<Api>,
    caller: Caller,
    Path(job): Path<String>,
    Query(page): Query<Page>,
) -> Result<Json<List<Cause>>, Problem> {
    let limits = cause_limits(&api, page.limit)?;
    causes_after(&api, &caller, id(&job)?, page.after()?, limits).await.map(Json)
}

/// Causes of a job from a place on.
async fn causes_after(
    api: &Api,
    caller: &Caller,
    job: JobId,
    after: Option<Cursor>,
    limits: CauseLimits,
) -> Result<List<Cause>, Problem> {
    let row = shown(api, caller, job).await?;
    let config = config(api, caller).await?;
    let found = job_view::causes(&api.deps.moderation.store, &config, job, after, limits).await;
    let (mut causes, next) = found.map_err(faults::moderation)?;
    let mut items = withheld::items_of(&causes).map_err(faults::moderation)?;
    items.insert(row.item.clone());
    let (route, object) = ("/jobs/{id}/causes", format!("/jobs/{job}/causes"));
    let hidden = hidden_items(api, caller, &row, items, route, object).await?;
    withheld::withhold(&mut causes, &row.item, &hidden).map_err(faults::moderation)?;
    Ok(List { items: causes, next: next.map(|cursor| cursor.to_string()) })
}

/// A page of the causes of a job.
pub(crate) async fn causes_page(
    api: &Api,
    caller: &Caller,
    job: JobId,
    cursor: Option<&str>,
) -> Result<List<Cause>, Problem> {
    let after = cursor.map(str::parse).transpose().map_err(|_| not_a_cursor())?;
    causes_after(api, caller, job, after, cause_limits(api, None)?).await
}

/// Lists the fetched items of a job that exceed the limits of its answer.
async fn partial_items(
    State(api): State<Api>,
    caller: Caller,
    Path(job): Path<String>,
    Query(page): Query<Page>,
) -> Result<Json<List<stored::Answer>>, Problem> {
    let limits = cause_limits(&api, page.limit)?;
    partial_items_after(&api, &caller, id(&job)?, page.after()?, limits).await.map(Json)
}

/// Fetched items of a job from a place on.
async fn partial_items_after(
    api: &Api,
    caller: &Caller,
    job: JobId,
    after: Option<views::ItemCursor>,
    CauseLimits { causes: items, bytes }: CauseLimits,
) -> Result<List<stored::Answer>, Problem> {
    let row = shown(api, caller, job).await?;
    let (store, limits) = (&api.deps.moderation.store, ItemLimits { items, bytes });
    let found = views::items_of_job(store, &caller.org, job, after, limits).await;
    let found = found.map_err(faults::moderation)?;
    let (route, object) = ("/jobs/{id}/partial-items", format!("/jobs/{job}/partial-items"));
    let mut items = found.items;
    let hidden = hidden_items(api, caller, &row, items.iter().map(key_of), route, object).await?;
    items.retain(|item| !hidden.contains(&key_of(item)));
    Ok(List { items, next: found.next.map(|cursor| cursor.to_string()) })
}

/// Returns those of the items whose content the caller may not see: without the scope those with a child-safety job. With it,
/// the view is in the audit before they are shown.
async fn hidden_items(
    api: &Api,
    caller: &Caller,
    job: &Job,
    items: impl IntoIterator<Item = ItemKey>,
    route: &str,
    object: String,
) -> Result<HashSet<ItemKey>, Problem> {
    // The view of a child-safety job's own item is recorded with the job.
    let is_recorded = |item: &ItemKey| job.class == JobClass::ChildSafety && *item == job.item;
    let items: Vec<_> = items.into_iter().filter(|item| !is_recorded(item)).collect();
    child_safety::hidden_or_recorded(api, caller, &items, route, object).await
}

fn key_of(item: &stored::Answer) -> ItemKey {
    ItemKey { type_id: item.type_id.clone(), id: item.id.clone() }
}

fn asked(request: &RequestView) -> Vec<ItemKey> {
    serde_json::from_str(request.asked.get()).unwrap_or_default()
}

/// A page of the fetched items of a job.
pub(crate) async fn partial_items_page(
    api: &Api,
    caller: &Caller,
    job: JobId,
    cursor: Option<&str>,
) -> Result<List<stored::Answer>, Problem> {
    let after = cursor.map(str::parse).transpose().map_err(|_| not_a_cursor())?;
    partial_items_after(api, caller, job, after, cause_limits(api, None)?).await
}

/// The configuration that is live here, or else the newest one.
pub(super) async fn config(api: &Api, caller: &Caller) -> Result<Arc<Compiled>, Problem> {
    let live = &api.deps.moderation.live;
    match live.org(&caller.org) {
        Some(config) => Ok(config),
        None => live.latest(&caller.org).await.map_err(faults::catalog),
    }
}

fn cause_limits(api: &Api, wanted: Option<usize>) -> Result<CauseLimits, Problem> {
    Ok(CauseLimits { causes: job_list::limit(api, wanted)?, bytes: api.settings.cause_bytes })
}

async fn claim(
    State(api): State<Api>,
    caller: Caller,
    Path(job): Path<String>,
    Body(ClaimRequest { reviewer, roles }): Body<ClaimRequest>,
) -> Result<(Extension<AuditDetail>, Json<Summary>), Problem> {
    let who = require_reviewer(&api, &caller, reviewer)?;
    let (store, job) = (&api.deps.moderation.store, id(&job)?);
    let row = shown(&api, &caller, job).await?;
    let config = config(&api, &caller).await?;
    check_access(&config, &row.queue, &who, &roles)?;
    let claim = queues::claim(store, &caller.org, job, &who, Millis::now()).await;
    match claim.map_err(faults::moderation)? {
        Claim::Yours(job) => {
            refresh(&api, &job);
            Ok((claim_detail(&job), summary(*job)?))
        }
        Claim::Opening => Err(Problem::conflict("The job is still being opened: try again in a moment.")),
        Claim::Taken { by, until } => {
            Err(Problem::conflict(format!("The job is claimed by {by} until {}.", until.iso())))
        }
        Claim::Decided => Err(decided_already()),
        Claim::NotFound => Err(no_such_job()),
    }
}

/// 204: the queue has no job that is free.
async fn claim_next(
    State(api): State<Api>,
    caller: Caller,
    Query(query): Query<ClaimNextQuery>,
    Body(ClaimNextRequest { queue, reviewer, roles }): Body<ClaimNextRequest>,
) -> Result<Response, Problem> {
    // Uniform enough to keep reviewers apart; a random id is drawn for each request.
    let random = SubmissionId::random().0.as_u128();
    let draw = |free: usize| usize::try_from(random % (free as u128).max(1)).unwrap_or(0);
    let who = require_reviewer(&api, &caller, reviewer)?;
    let store = &api.deps.moderation.store;
    let config = config(&api, &caller).await?;
    check_access(&config, &queue, &who, &roles)?;
    check_class(&config, &caller, &queue)?;
    let order = config.queue(&queue).map(|queue| queue.document.order.clone()).unwrap_or_default();
    let next = ClaimNext { queue: &queue, order: &order, reviewer: &who, include_held: query.held };
    let claimed = queues::claim_next(store, &caller.org, next, Millis::now(), draw).await;
    match claimed.map_err(faults::moderation)? {
        Some(job) => {
            if let Err(refused) = check_and_record(&api, &caller, &job).await {
                // The queue's document says nothing of child safety, or the row cannot be written: nobody saw the job.
                let (epoch, name) = (job.epoch, &who.name);
                let released = queues::release(store, &caller.org, job.job_id, epoch, name).await;
                released.map_err(faults::moderation)?;
                return Err(refused);
            }
            refresh(&api, &job);
            Ok((claim_detail(&job), summary(job)?).into_response())
        }
        None => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}

/// Details of a claim for the audit.
fn claim_detail(job: &Job) -> Extension<AuditDetail> {
    let Job { job_id, class, queue, claimed_by, epoch, .. } = job;
    let detail = json!({ "reviewer": claimed_by, "job": job_id, "queue": queue, "epoch": epoch });
    Extension(AuditDetail::of_job(*class, detail))
}

/// Lets newer data of the job be asked for. The claim is answered at once: a look-up that is lost with the process is made
/// by the next claim.
fn refresh(api: &Api, job: &Job) {
    let deps = &api.deps.moderation;
    if !deps.partial_items.has(&job.org) {
        return;
    }
    let (deps, job, refresh_after) = (deps.clone(), job.clone(), api.settings.refresh_after());
    tokio::spawn(async move {
        let asked = claims::refresh_claimed(&deps, &job, refresh_after, Millis::now()).await;
        if let Err(error) = asked {
            tracing::warn!(org = %job.org, job = %job.job_id, tag = error.tag(),
                "newer data of a claimed job is not asked for: {error}");
        }
    });
}

async fn release(
    State(api): State<Api>,
    caller: Caller,
    Path(job): Path<String>,
    Body(Released { epoch, reviewer }): Body<Released>,
) -> Result<(StatusCode, Extension<AuditDetail>), Problem> {
    let who = caller.reviewer(reviewer);
    let (store, job) = (&api.deps.moderation.store, id(&job)?);
    let class = known(&api, &caller, job).await?.class;
    let released = queues::release(store, &caller.org, job, epoch, &who).await;
    if released.map_err(faults::moderation)? {
        let detail = AuditDetail::of_job(class, json!({ "reviewer": who }));
        return Ok((StatusCode::NO_CONTENT, Extension(detail)));
    }
    Err(not_your_claim())
}

/// 202: taken; its effects begin when the time to undo it is over.
async fn decide(
    State(api): State<Api>,
    caller: Caller,
    Path(job): Path<String>,
    Body(said): Body<DecisionBody>,
) -> Result<(StatusCode, Extension<AuditDetail>, Json<DecisionView>), Problem> {
    let job: JobId = id(&job)?;
    let verdict = said
        .verdict
        .to_lowercase()
        .parse::<Verdict>()
        .ok()
        .ok_or_else(|| invalid("/verdict", "A verdict is ignore, act, accept or reject."))?;
    let longest = api.settings.reason_bytes;
    if said.reason.as_ref().is_some_and(|reason| reason.len() > longest) {
        return Err(invalid(
            "/reason",
            format!("A reason has at most {longest} bytes (review.reason_bytes)."),
        ));
    }
    let class = known(&api, &caller, job).await?.class;
    let by = caller.reviewer(said.reviewer.clone());
    let request = said.into_request(verdict, by);
    let undo = api.settings.undo();
    let taken =
        decisions::decide(&api.deps.moderation, &caller.org, job, &request, undo, Millis::now()).await;
    match taken.map_err(faults::moderation)? {
        Ok(decided) => {
            let detail = AuditDetail::of_job(class, decision_detail(&decided));
            Ok((StatusCode::ACCEPTED, Extension(detail), Json(decided.into())))
        }
        Err(Refusal::NotFound) => Err(no_such_job()),
        Err(Refusal::AlreadyDecided) => Err(decided_already()),
        Err(Refusal::NotYours { claimed_by: Some(by) }) => Err(Problem::conflict(format!(
            "The job is claimed by {by}, or under another epoch: claim it first, and decide as the same `reviewer`."
        ))),
        Err(Refusal::NotYours { claimed_by: None }) => {
            Err(Problem::conflict("The job is not claimed: claim it first."))
        }
        Err(Refusal::Invalid { pointer, detail }) => Err(invalid(&pointer, detail)),
    }
}

/// Details of a decision for the audit. The reason is content, which the audit has none of.
fn decision_detail(decided: &StoredDecision) -> Value {
    let StoredDecision { decided_by, verdict, actions, policies, related, .. } = decided;
    let mut detail =
        json!({ "reviewer": decided_by, "verdict": verdict, "actions": actions, "policies": policies });
    if !related.is_empty() {
        let of_item = |it: &StoredRelated| json!({ "item": it.item, "actions": it.actions });
        detail["related"] = related.iter().map(of_item).collect();
    }
    detail
}

pub(super) fn reviewer_of(api: &Api, caller: &Caller, named: Option<String>) -> Result<Reviewer, Problem> {
    let name = caller.reviewer(named);
    if !names::is_name(&name) {
        return Err(invalid("/reviewer", format!("A reviewer's name {}.", names::RULE)));
    }
    Ok(Reviewer { name, lease: api.settings.lease() })
}

/// Returns the reviewer of a claim. Several people may share an API key, and under its name they would share each claim.
fn require_reviewer(api: &Api, caller: &Caller, named: Option<String>) -> Result<Reviewer, Problem> {
    if named.is_none() && !caller.is_operator {
        let detail = "A claim needs the name of the person: people who share an API key would get each other's jobs. Add \
                      `reviewer`, such as {\"reviewer\": \"ada\"}.";
        return Err(invalid("/reviewer", detail));
    }
    reviewer_of(api, caller, named)
}

/// Refuses reviewers whom the access of the job's queue does not name.
pub(super) fn check_access(
    config: &Compiled,
    queue: &QueueId,
    reviewer: &Reviewer,
    roles: &[String],
) -> Result<(), Problem> {
    if config.queue(queue).is_none_or(|queue| queue.document.access.admits(&reviewer.name, roles)) {
        return Ok(());
    }
    Err(Problem::forbidden(format!(
        "The queue {queue} is not open to {}: name the reviewer or one of the roles in the queue's `access`.",
        reviewer.name
    )))
}

/// Returns the job if the caller may work on it.
pub(super) async fn known(api: &Api, caller: &Caller, job: JobId) -> Result<Job, Problem> {
    let row =
        api.deps.moderation.store.get::<Job>(&(caller.org.clone(), job)).await.map_err(faults::store)?;
    let row = row.ok_or_else(no_such_job)?;
    if row.class == JobClass::ChildSafety {
        caller.needs_child_safety()?;
    }
    Ok(row)
}

/// Returns the job if the caller may see it. A view of a child-safety job is in the audit before the job is shown.
pub(super) async fn shown(api: &Api, caller: &Caller, job: JobId) -> Result<Job, Problem> {
    let row = known(api, caller, job).await?;
    check_and_record(api, caller, &row).await?;
    Ok(row)
}

async fn check_and_record(api: &Api, caller: &Caller, job: &Job) -> Result<(), Problem> {
    if job.class != JobClass::ChildSafety {
        return Ok(());
    }
    caller.needs_child_safety()?;
    audit::record_view(api, caller, "GET /jobs/{id}".to_owned(), format!("/jobs/{}", job.job_id)).await
}

/// Refuses callers without the scope of the queue's class.
fn check_class(config: &Compiled, caller: &Caller, queue: &QueueId) -> Result<(), Problem> {
    match config.queue(queue).map(|queue| queue.document.class()) {
        Some(QueueClass::ChildSafety) => caller.needs_child_safety(),
        _ => Ok(()),
    }
}

fn summary(job: Job) -> Result<Json<Summary>, Problem> {
    job_view::summary(job).map(Json).map_err(faults::moderation)
}

pub(super) fn no_such_job() -> Problem {
    Problem::not_found("There is no such job.")
}

pub(super) fn not_your_claim() -> Problem {
    Problem::conflict(
        "The claim is not yours, or has ended: send the `reviewer` and the `epoch` of the claim.",
    )
}

pub(super) fn decided_already() -> Problem {
    Problem::conflict("The job is decided or closed already, or moved to another class.")
}
