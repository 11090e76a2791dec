//! `/admin/v1/jobs`: lists, shows, claims, releases and decides review jobs. The effects of a decision are applied later, by
//! the role `process`.

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
    jobs::{
        stored_decision::{StoredDecision, StoredRelated},
        summary::{self, DecisionView, JobSummary},
    },
    partial_items::{
        claims,
        views::{self, ItemLimits, RequestView},
    },
    review::{
        decisions::{self, DecisionRefusal},
        job_view::{self, CauseLimits, CauseView, JobView},
        queues::{self, ClaimOutcome, NextJobRequest, Reviewer},
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
    Api, ListResponse,
    audit::{self, AuditDetail},
    caller::Caller,
    child_safety,
    decision_body::DecideRequest,
    extract::{Body, PageQuery, invalid, not_a_cursor, parse_id},
    faults, job_list,
};

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/jobs", get(list_jobs))
        .route("/jobs/claim-next", post(claim_next))
        .route("/jobs/{id}", get(get_job))
        .route("/jobs/{id}/causes", get(list_causes))
        .route("/jobs/{id}/partial-items", get(list_partial_items))
        .route("/jobs/{id}/claim", post(claim_job))
        .route("/jobs/{id}/release", post(release_job))
        .route("/jobs/{id}/decisions", post(decide))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClaimRequest {
    /// Name of the claiming person. Required of API keys, which several people can share.
    #[serde(default)]
    reviewer: Option<String>,
    /// Roles of the reviewer, for queues that restrict access by role.
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
    /// True if a job already claimed by the reviewer may be returned.
    #[serde(default)]
    held: bool,
    #[serde(rename = "org")]
    _org: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ReleaseRequest {
    epoch: i64,
    #[serde(default)]
    reviewer: Option<String>,
}

async fn list_jobs(
    State(api): State<Api>,
    caller: Caller,
    Query(query): Query<job_list::ListJobsQuery>,
) -> Result<Json<ListResponse<JobSummary>>, Problem> {
    job_list::load_page(&api, &caller, &query).await.map(Json)
}

async fn get_job(
    State(api): State<Api>,
    caller: Caller,
    Path(job): Path<String>,
) -> Result<Json<JobView>, Problem> {
    load_job_view(&api, &caller, parse_id(&job)?).await.map(Json)
}

/// Loads a job with its causes up to the limits of one answer.
pub(crate) async fn load_job_view(api: &Api, caller: &Caller, job: JobId) -> Result<JobView, Problem> {
    let limits = build_cause_limits(api, None)?;
    let config = load_config(api, caller).await?;
    // Authorized and recorded before any cause or item of the job is read.
    let row = load_viewable_job(api, caller, job).await?;
    let loaded_view = job_view::load_view(&api.deps.moderation.store, &config, job, limits).await;
    let mut view = loaded_view.map_err(faults::moderation_problem)?.ok_or_else(no_such_job)?;
    let mut items = withheld::collect_items(&view.causes).map_err(faults::moderation_problem)?;
    items.insert(row.item.clone());
    if let Some(fetched_items) = &view.partial_items {
        items.extend(fetched_items.items.iter().map(item_key));
        items.extend(fetched_items.requests.iter().flat_map(requested_items));
    }
    let withheld_items =
        find_withheld_items(api, caller, &row, items, "/jobs/{id}", format!("/jobs/{job}")).await?;
    withheld::withhold(&mut view.causes, &row.item, &withheld_items).map_err(faults::moderation_problem)?;
    if withheld_items.contains(&row.item) {
        view.latest_item = None;
    }
    if let Some(fetched_items) = &mut view.partial_items {
        fetched_items.items.retain(|item| !withheld_items.contains(&item_key(item)));
        fetched_items
            .requests
            .retain(|request| !requested_items(request).iter().any(|item| withheld_items.contains(item)));
    }
    view.withheld = withheld_items.into_iter().collect();
    // A set has no order; sorted, so that equal answers are equal texts.
    view.withheld.sort_unstable();
    Ok(view)
}

/// Lists the causes of a job that exceed the limits of its answer.
async fn list_causes(
    State(api): State<Api>,
    caller: Caller,
    Path(job): Path<String>,
    Query(page): Query<PageQuery>,
) -> Result<Json<ListResponse<CauseView>>, Problem> {
    let limits = build_cause_limits(&api, page.limit)?;
    load_causes(&api, &caller, parse_id(&job)?, page.parse_cursor()?, limits).await.map(Json)
}

/// Loads the causes of a job after a cursor.
async fn load_causes(
    api: &Api,
    caller: &Caller,
    job: JobId,
    after: Option<Cursor>,
    limits: CauseLimits,
) -> Result<ListResponse<CauseView>, Problem> {
    let row = load_viewable_job(api, caller, job).await?;
    let config = load_config(api, caller).await?;
    let page = job_view::load_causes(&api.deps.moderation.store, &config, job, after, limits).await;
    let (mut causes, next) = page.map_err(faults::moderation_problem)?;
    let mut items = withheld::collect_items(&causes).map_err(faults::moderation_problem)?;
    items.insert(row.item.clone());
    let (route, object) = ("/jobs/{id}/causes", format!("/jobs/{job}/causes"));
    let withheld_items = find_withheld_items(api, caller, &row, items, route, object).await?;
    withheld::withhold(&mut causes, &row.item, &withheld_items).map_err(faults::moderation_problem)?;
    Ok(ListResponse { items: causes, next: next.map(|cursor| cursor.to_string()) })
}

/// Loads a page of a job's causes for the console.
pub(crate) async fn load_causes_page(
    api: &Api,
    caller: &Caller,
    job: JobId,
    cursor: Option<&str>,
) -> Result<ListResponse<CauseView>, Problem> {
    let after = cursor.map(str::parse).transpose().map_err(|_| not_a_cursor())?;
    load_causes(api, caller, job, after, build_cause_limits(api, None)?).await
}

/// Lists the fetched items of a job that exceed the limits of its answer.
async fn list_partial_items(
    State(api): State<Api>,
    caller: Caller,
    Path(job): Path<String>,
    Query(page): Query<PageQuery>,
) -> Result<Json<ListResponse<stored::ItemView>>, Problem> {
    let limits = build_cause_limits(&api, page.limit)?;
    load_partial_items(&api, &caller, parse_id(&job)?, page.parse_cursor()?, limits).await.map(Json)
}

/// Loads the fetched items of a job after a cursor.
async fn load_partial_items(
    api: &Api,
    caller: &Caller,
    job: JobId,
    after: Option<views::ItemCursor>,
    CauseLimits { causes: items, bytes }: CauseLimits,
) -> Result<ListResponse<stored::ItemView>, Problem> {
    let row = load_viewable_job(api, caller, job).await?;
    let (store, limits) = (&api.deps.moderation.store, ItemLimits { items, bytes });
    let loaded_page = views::load_items_of_job(store, &caller.org, job, after, limits).await;
    let page = loaded_page.map_err(faults::moderation_problem)?;
    let (route, object) = ("/jobs/{id}/partial-items", format!("/jobs/{job}/partial-items"));
    let mut items = page.items;
    let withheld_items =
        find_withheld_items(api, caller, &row, items.iter().map(item_key), route, object).await?;
    items.retain(|item| !withheld_items.contains(&item_key(item)));
    Ok(ListResponse { items, next: page.next.map(|cursor| cursor.to_string()) })
}

/// Returns the items to withhold from the caller: without the child-safety scope, those with a child-safety job. With the scope,
/// records the view in the audit before the items are shown.
async fn find_withheld_items(
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
    child_safety::withhold_or_record_view(api, caller, &items, route, object).await
}

fn item_key(item: &stored::ItemView) -> ItemKey {
    ItemKey { type_id: item.type_id.clone(), id: item.id.clone() }
}

fn requested_items(request: &RequestView) -> Vec<ItemKey> {
    serde_json::from_str(request.asked.get()).unwrap_or_default()
}

/// Loads a page of a job's fetched items for the console.
pub(crate) async fn load_partial_items_page(
    api: &Api,
    caller: &Caller,
    job: JobId,
    cursor: Option<&str>,
) -> Result<ListResponse<stored::ItemView>, Problem> {
    let after = cursor.map(str::parse).transpose().map_err(|_| not_a_cursor())?;
    load_partial_items(api, caller, job, after, build_cause_limits(api, None)?).await
}

/// Returns the live configuration of this process, or else the newest stored one.
pub(super) async fn load_config(api: &Api, caller: &Caller) -> Result<Arc<Compiled>, Problem> {
    let live = &api.deps.moderation.live;
    match live.org(&caller.org) {
        // The live configuration costs no read. Only an org that this process has not loaded yet is looked up.
        Some(config) => Ok(config),
        None => live.load_latest(&caller.org).await.map_err(faults::catalog_problem),
    }
}

fn build_cause_limits(api: &Api, limit: Option<usize>) -> Result<CauseLimits, Problem> {
    Ok(CauseLimits { causes: job_list::page_limit(api, limit)?, bytes: api.settings.cause_bytes })
}

async fn claim_job(
    State(api): State<Api>,
    caller: Caller,
    Path(job): Path<String>,
    Body(ClaimRequest { reviewer, roles }): Body<ClaimRequest>,
) -> Result<(Extension<AuditDetail>, Json<JobSummary>), Problem> {
    let reviewer = require_named_reviewer(&api, &caller, reviewer)?;
    let (store, job) = (&api.deps.moderation.store, parse_id(&job)?);
    let row = load_viewable_job(&api, &caller, job).await?;
    let config = load_config(&api, &caller).await?;
    // Checked before the claim: a refused reviewer must not hold the job.
    require_queue_access(&config, &row.queue, &reviewer, &roles)?;
    let result = queues::claim(store, &caller.org, job, &reviewer, Millis::now()).await;
    match result.map_err(faults::moderation_problem)? {
        ClaimOutcome::Claimed(job) => {
            request_newer_data(&api, &job);
            Ok((claim_detail(&job), summarize(*job)?))
        }
        // The job's first cause is still to be written, so a reviewer would see an empty job.
        ClaimOutcome::Opening => {
            Err(Problem::conflict("The job is still being opened: try again in a moment."))
        }
        ClaimOutcome::HeldByOther { by, until } => {
            Err(Problem::conflict(format!("The job is claimed by {by} until {}.", until.iso())))
        }
        ClaimOutcome::Decided => Err(already_decided()),
        ClaimOutcome::NotFound => Err(no_such_job()),
    }
}

/// Claims the next free job of a queue. 204: the queue has no free job.
async fn claim_next(
    State(api): State<Api>,
    caller: Caller,
    Query(query): Query<ClaimNextQuery>,
    Body(ClaimNextRequest { queue, reviewer, roles }): Body<ClaimNextRequest>,
) -> Result<Response, Problem> {
    // Spreads reviewers over the free jobs, so that they do not all compete for the first one.
    let random = SubmissionId::random().0.as_u128();
    let draw = |free: usize| usize::try_from(random % (free as u128).max(1)).unwrap_or(0);
    let reviewer = require_named_reviewer(&api, &caller, reviewer)?;
    let store = &api.deps.moderation.store;
    let config = load_config(&api, &caller).await?;
    require_queue_access(&config, &queue, &reviewer, &roles)?;
    // Checked by the class of the queue before the claim. The class of the claimed job is checked below.
    require_queue_class(&config, &caller, &queue)?;
    let order = config.queue(&queue).map(|queue| queue.document.order.clone()).unwrap_or_default();
    let next = NextJobRequest { queue: &queue, order: &order, reviewer: &reviewer, include_own: query.held };
    let result = queues::claim_next(store, &caller.org, next, Millis::now(), draw).await;
    match result.map_err(faults::moderation_problem)? {
        Some(job) => {
            if let Err(problem) = authorize_and_record_view(&api, &caller, &job).await {
                // A configuration older than the job can lack its class, and the audit row can fail to be written. The claim is
                // undone: the job was not shown to the reviewer.
                let (epoch, name) = (job.epoch, &reviewer.name);
                let release_result = queues::release(store, &caller.org, job.job_id, epoch, name).await;
                release_result.map_err(faults::moderation_problem)?;
                return Err(problem);
            }
            request_newer_data(&api, &job);
            Ok((claim_detail(&job), summarize(job)?).into_response())
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

/// Requests newer data of a claimed job in the background, so that the claim is answered at once. A look-up that is lost with
/// the process is repeated by the next claim.
fn request_newer_data(api: &Api, job: &Job) {
    let deps = &api.deps.moderation;
    // Without an endpoint of the platform, newer data cannot be requested.
    if !deps.partial_items.has_endpoint(&job.org) {
        return;
    }
    let (deps, job, refresh_after) = (deps.clone(), job.clone(), api.settings.refresh_after());
    tokio::spawn(async move {
        let result = claims::refresh_claimed(&deps, &job, refresh_after, Millis::now()).await;
        if let Err(error) = result {
            tracing::warn!(org = %job.org, job = %job.job_id, tag = error.tag(),
                "cannot request newer data of a claimed job: {error}");
        }
    });
}

async fn release_job(
    State(api): State<Api>,
    caller: Caller,
    Path(job): Path<String>,
    Body(ReleaseRequest { epoch, reviewer }): Body<ReleaseRequest>,
) -> Result<(StatusCode, Extension<AuditDetail>), Problem> {
    let reviewer = caller.reviewer(reviewer);
    let (store, job) = (&api.deps.moderation.store, parse_id(&job)?);
    let class = load_authorized_job(&api, &caller, job).await?.class;
    let result = queues::release(store, &caller.org, job, epoch, &reviewer).await;
    if result.map_err(faults::moderation_problem)? {
        let detail = AuditDetail::of_job(class, json!({ "reviewer": reviewer }));
        return Ok((StatusCode::NO_CONTENT, Extension(detail)));
    }
    Err(not_your_claim())
}

/// Stores a decision. 202: its effects begin when the time to undo it has passed.
async fn decide(
    State(api): State<Api>,
    caller: Caller,
    Path(job): Path<String>,
    Body(body): Body<DecideRequest>,
) -> Result<(StatusCode, Extension<AuditDetail>, Json<DecisionView>), Problem> {
    let job: JobId = parse_id(&job)?;
    let verdict = body
        .verdict
        .to_lowercase()
        .parse::<Verdict>()
        .ok()
        .ok_or_else(|| invalid("/verdict", "A verdict is ignore, act, accept or reject."))?;
    // Every callback of the decision contains the reason, so its length is bounded.
    let max_bytes = api.settings.reason_bytes;
    if body.reason.as_ref().is_some_and(|reason| reason.len() > max_bytes) {
        return Err(invalid(
            "/reason",
            format!("A reason has at most {max_bytes} bytes (review.reason_bytes)."),
        ));
    }
    let class = load_authorized_job(&api, &caller, job).await?.class;
    // An action on a withheld item would strike its author and name that user in the answer.
    if !child_safety::find_withheld_items(&api, &caller, &body.related_items()).await?.is_empty() {
        return Err(Caller::missing_child_safety_scope());
    }
    let reviewer = caller.reviewer(body.reviewer.clone());
    let request = body.into_request(verdict, reviewer);
    let undo = api.settings.undo();
    let result =
        decisions::decide(&api.deps.moderation, &caller.org, job, &request, undo, Millis::now()).await;
    match result.map_err(faults::moderation_problem)? {
        Ok(decision) => {
            let detail = AuditDetail::of_job(class, decision_detail(&decision));
            Ok((StatusCode::ACCEPTED, Extension(detail), Json(decision.into())))
        }
        Err(DecisionRefusal::NotFound) => Err(no_such_job()),
        Err(DecisionRefusal::AlreadyDecided) => Err(already_decided()),
        Err(DecisionRefusal::NotYours { claimed_by: Some(by) }) => Err(Problem::conflict(format!(
            "The job is claimed by {by}, or under another epoch: claim it first, and decide as the same `reviewer`."
        ))),
        Err(DecisionRefusal::NotYours { claimed_by: None }) => {
            Err(Problem::conflict("The job is not claimed: claim it first."))
        }
        Err(DecisionRefusal::Invalid { pointer, detail }) => Err(invalid(&pointer, detail)),
    }
}

/// Details of a decision for the audit, without its reason: the audit stores no content.
fn decision_detail(decision: &StoredDecision) -> Value {
    let StoredDecision { decided_by, verdict, actions, policies, related, .. } = decision;
    let mut detail =
        json!({ "reviewer": decided_by, "verdict": verdict, "actions": actions, "policies": policies });
    if !related.is_empty() {
        let of_item = |related_item: &StoredRelated| json!({ "item": related_item.item, "actions": related_item.actions });
        detail["related"] = related.iter().map(of_item).collect();
    }
    detail
}

pub(super) fn resolve_reviewer(
    api: &Api,
    caller: &Caller,
    reviewer_name: Option<String>,
) -> Result<Reviewer, Problem> {
    let name = caller.reviewer(reviewer_name);
    if !names::is_name(&name) {
        return Err(invalid("/reviewer", format!("A reviewer's name {}.", names::RULE)));
    }
    Ok(Reviewer { name, lease: api.settings.lease() })
}

/// Returns the reviewer of a claim. API keys must name a person: the holders of a shared key would otherwise share its
/// claims.
fn require_named_reviewer(
    api: &Api,
    caller: &Caller,
    reviewer_name: Option<String>,
) -> Result<Reviewer, Problem> {
    if reviewer_name.is_none() && !caller.is_operator {
        let detail = "A claim needs the name of the person: people who share an API key would get each other's jobs. Add \
                      `reviewer`, such as {\"reviewer\": \"ada\"}.";
        return Err(invalid("/reviewer", detail));
    }
    resolve_reviewer(api, caller, reviewer_name)
}

/// Refuses reviewers that the queue's access list excludes.
pub(super) fn require_queue_access(
    config: &Compiled,
    queue: &QueueId,
    reviewer: &Reviewer,
    roles: &[String],
) -> Result<(), Problem> {
    // A removed queue has no access list any more. Its remaining jobs must stay reachable.
    if config.queue(queue).is_none_or(|queue| queue.document.access.admits(&reviewer.name, roles)) {
        return Ok(());
    }
    Err(Problem::forbidden(format!(
        "The queue {queue} is not open to {}: name the reviewer or one of the roles in the queue's `access`.",
        reviewer.name
    )))
}

/// Loads the job and checks the caller's scope for its class.
pub(super) async fn load_authorized_job(api: &Api, caller: &Caller, job: JobId) -> Result<Job, Problem> {
    let row = api
        .deps
        .moderation
        .store
        .get::<Job>(&(caller.org.clone(), job))
        .await
        .map_err(faults::store_problem)?;
    let row = row.ok_or_else(no_such_job)?;
    if row.class == JobClass::ChildSafety {
        caller.require_child_safety()?;
    }
    Ok(row)
}

/// Loads the job for display. The view of a child-safety job is in the audit before this returns.
pub(super) async fn load_viewable_job(api: &Api, caller: &Caller, job: JobId) -> Result<Job, Problem> {
    let row = load_authorized_job(api, caller, job).await?;
    authorize_and_record_view(api, caller, &row).await?;
    Ok(row)
}

async fn authorize_and_record_view(api: &Api, caller: &Caller, job: &Job) -> Result<(), Problem> {
    if job.class != JobClass::ChildSafety {
        return Ok(());
    }
    caller.require_child_safety()?;
    audit::record_view(api, caller, "GET /jobs/{id}".to_owned(), format!("/jobs/{}", job.job_id)).await
}

/// Refuses callers that lack the scope of the queue's class.
fn require_queue_class(config: &Compiled, caller: &Caller, queue: &QueueId) -> Result<(), Problem> {
    match config.queue(queue).map(|queue| queue.document.class()) {
        Some(QueueClass::ChildSafety) => caller.require_child_safety(),
        _ => Ok(()),
    }
}

fn summarize(job: Job) -> Result<Json<JobSummary>, Problem> {
    summary::summarize(job).map(Json).map_err(faults::moderation_problem)
}

pub(super) fn no_such_job() -> Problem {
    Problem::not_found("There is no such job.")
}

pub(super) fn not_your_claim() -> Problem {
    Problem::conflict(
        "The claim is not yours, or has ended: send the `reviewer` and the `epoch` of the claim.",
    )
}

pub(super) fn already_decided() -> Problem {
    Problem::conflict("The job is decided or closed already, or moved to another class.")
}
