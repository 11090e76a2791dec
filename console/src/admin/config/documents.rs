//! `/admin/v1/config`: validates, applies and returns the documents of an org. `catalog` decides whether documents are valid.

use std::time::Duration;

use axum::{
    Extension, Json, Router,
    extract::State,
    http::StatusCode,
    response::Response,
    routing::{get, post},
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tidegate_catalog::change::{
    self, ApplyError, Change, Difference, DifferenceKind, File, PlannedChange, WaitOutcome,
};
use tidegate_moderation::review::queues;
use tidegate_schemas::{
    documents::DocumentFault,
    ids::{ConfigVersion, EndpointId, Millis, OrgId},
    validation_error::{Pointer, ValidationError},
};
use tidegate_web::{Problem, Query};

use crate::{
    admin::{
        access::audit::AuditDetail,
        request::{Body, Caller, faults, long_answers},
    },
    api::Api,
};

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route("/config", get(pull_documents).put(apply_documents).post(apply_documents))
        .route("/config/validate", post(validate_documents))
        .route("/config/wait", get(wait_for_version))
}

/// File of documents. The extension of its name selects JSON or YAML, and errors quote the name.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamedFile {
    pub(crate) name: String,
    pub(crate) text: String,
}

impl NamedFile {
    pub(crate) fn into_file(self) -> File {
        (self.name, self.text)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DocumentsRequest {
    files: Vec<NamedFile>,
    /// Version that the change is based on. The change is refused if another version is current.
    #[serde(default)]
    expected_version: Option<ConfigVersion>,
    /// Org that the documents belong to. Another org refuses them.
    #[serde(default)]
    expected_org: Option<OrgId>,
    /// True if documents missing from the files are removed.
    #[serde(default)]
    prune: bool,
}

impl DocumentsRequest {
    fn require_org(&self, org: &OrgId) -> Result<(), Problem> {
        match &self.expected_org {
            Some(expected_org) if expected_org != org => Err(Problem::conflict(format!(
                "The documents belong to the organisation `{expected_org}`, but this is `{org}`."
            ))),
            _ => Ok(()),
        }
    }

    fn files(self) -> Vec<File> {
        self.files.into_iter().map(NamedFile::into_file).collect()
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PullResponse {
    org: OrgId,
    version: ConfigVersion,
    changed_at: String,
    author: String,
    files: Vec<NamedFile>,
}

#[derive(Serialize)]
pub(crate) struct DocumentChange {
    kind: &'static str,
    key: String,
    how: &'static str,
}

impl From<Difference> for DocumentChange {
    fn from(difference: Difference) -> Self {
        let action = match difference.difference_kind {
            DifferenceKind::Added => "added",
            DifferenceKind::Changed => "changed",
            DifferenceKind::Removed => "removed",
        };
        Self { kind: difference.kind.name(), key: difference.key, how: action }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ApplyResponse {
    org: OrgId,
    version: ConfigVersion,
    changes: Vec<DocumentChange>,
    warnings: Vec<String>,
    /// Endpoints that got a signing secret; their receivers need it.
    new_secrets: Vec<EndpointId>,
}

#[derive(Serialize)]
struct ValidateResponse {
    changes: Vec<DocumentChange>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WaitQuery {
    version: i64,
    #[serde(default = "default_wait_ms")]
    within_ms: u64,
    #[serde(rename = "org")]
    _org: Option<String>,
}

fn default_wait_ms() -> u64 {
    10_000
}

/// Time that one request may wait, and so hold its connection.
const MAX_WAIT: Duration = Duration::from_secs(60);

#[derive(Serialize)]
struct WaitResponse {
    /// `running`, `failing` or `behind`.
    state: &'static str,
    /// Number of live processes, once all of them run the version.
    #[serde(skip_serializing_if = "Option::is_none")]
    members: Option<usize>,
    /// Processes that do not run it, with the reason.
    others: Vec<String>,
}

/// Serializes the answer to a pull.
pub(crate) fn serialize_pulled(org: &OrgId, pulled: change::PulledConfig) -> Vec<u8> {
    let response = PullResponse {
        org: org.clone(),
        version: pulled.version,
        changed_at: pulled.changed_at.iso(),
        author: pulled.author,
        files: pulled.files.into_iter().map(|(name, text)| NamedFile { name, text }).collect(),
    };
    serde_json::to_vec(&response).expect("documents have string keys only")
}

async fn pull_documents(State(api): State<Api>, caller: Caller) -> Result<Response, Problem> {
    // Pulls of one snapshot share one serialized answer.
    api.pulls.get(&caller.org).await.map(long_answers::json_response).map_err(faults::catalog_problem)
}

async fn apply_documents(
    State(api): State<Api>,
    caller: Caller,
    Body(documents): Body<DocumentsRequest>,
) -> Result<(Extension<AuditDetail>, Json<ApplyResponse>), Problem> {
    documents.require_org(&caller.org)?;
    let change = Change {
        expected_version: documents.expected_version,
        prune: documents.prune,
        author: caller.name.to_string(),
        files: documents.files(),
    };
    // Planned and checked as a whole before anything is stored: a refused change has no effect.
    let planned = api.deps.changes.plan(&caller.org, change).await.map_err(apply_problem)?;
    require_document_scope(&caller, &planned)?;
    require_empty_removed_queues(&api, &caller, &planned).await?;
    let applied = api.deps.changes.commit(planned).await.map_err(apply_problem)?;
    let detail = json!({"version": applied.version, "changes": applied.differences.len()});
    // The caller may use the configuration right after the answer. If it cannot be loaded now, the poll loads it later.
    if let Err(error) = api.deps.moderation.live.load_latest(&caller.org).await {
        tracing::warn!(tag = error.tag(), "an applied configuration is not loaded in this process yet");
    }
    let answer = Json(ApplyResponse {
        org: caller.org,
        version: applied.version,
        changes: applied.differences.into_iter().map(DocumentChange::from).collect(),
        warnings: applied.warnings.iter().map(ToString::to_string).collect(),
        new_secrets: applied.new_secrets,
    });
    Ok((Extension(AuditDetail(detail)), answer))
}

async fn validate_documents(
    State(api): State<Api>,
    caller: Caller,
    Body(documents): Body<DocumentsRequest>,
) -> Result<Json<ValidateResponse>, Problem> {
    documents.require_org(&caller.org)?;
    let prune = documents.prune;
    let change = Change::for_check(documents.files(), prune);
    let planned = api.deps.changes.plan(&caller.org, change).await.map_err(apply_problem)?;
    require_document_scope(&caller, &planned)?;
    require_empty_removed_queues(&api, &caller, &planned).await?;
    Ok(Json(ValidateResponse {
        changes: planned.differences().iter().cloned().map(DocumentChange::from).collect(),
    }))
}

/// Refuses callers without the scope `child_safety` if the change touches a destination of child-safety material, or a queue or an
/// action of the child-safety team. Such a change could send the material to the caller, or keep it from the team.
fn require_document_scope(caller: &Caller, planned: &PlannedChange) -> Result<(), Problem> {
    if caller.may_see_child_safety() {
        return Ok(());
    }
    let protected = planned.differences().iter().filter(|difference| difference.is_child_safety);
    let names: Vec<_> =
        protected.map(|difference| format!("{} `{}`", difference.kind.name(), difference.key)).collect();
    if names.is_empty() {
        return Ok(());
    }
    Err(Problem::forbidden(format!(
        "These documents send child-safety material to a destination, or child-safety jobs depend on them, so they are \
         changed only with a key that has the scope `child_safety`, which this key lacks: {}.",
        names.join(", ")
    )))
}

/// Open jobs counted for one queue. Bounded because each of them is read.
const MAX_COUNTED_JOBS: usize = 1_000;

/// Refuses to remove queues with waiting jobs, because reviewers only look into configured queues. The lists of jobs and
/// queues keep removed queues for jobs that arrive between this check and the change.
async fn require_empty_removed_queues(
    api: &Api,
    caller: &Caller,
    planned: &PlannedChange,
) -> Result<(), Problem> {
    let checked_at = Millis::now();
    let mut blocking_queues = Vec::new();
    for queue in planned.removed_queues() {
        let store = &api.deps.moderation.store;
        let listing =
            queues::list_waiting(store, &caller.org, &queue, MAX_COUNTED_JOBS, checked_at, |_| true);
        let open_jobs = listing.await.map_err(faults::moderation_problem)?;
        // Counted over all jobs, also those that the caller may not see: a queue with any open job must stay.
        let is_uncounted = open_jobs.iter().any(|job| !caller.clearance().covers_job(job));
        match open_jobs.len() {
            0 => {}
            // The number of child-safety jobs is withheld from callers without the scope.
            _ if is_uncounted => blocking_queues.push(format!("`{queue}` has open jobs of child safety")),
            1 => blocking_queues.push(format!("`{queue}` has 1 open job")),
            MAX_COUNTED_JOBS => {
                blocking_queues.push(format!("`{queue}` has {MAX_COUNTED_JOBS} open jobs or more"));
            }
            count => blocking_queues.push(format!("`{queue}` has {count} open jobs")),
        }
    }
    if blocking_queues.is_empty() {
        return Ok(());
    }
    Err(Problem::conflict(format!(
        "Queues with open jobs cannot be removed: {}. Keep the document, route no more jobs there, and move or decide \
         these first; `GET /admin/v1/jobs?queue=` lists them",
        blocking_queues.join(", ")
    )))
}

async fn wait_for_version(
    State(api): State<Api>,
    caller: Caller,
    Query(query): Query<WaitQuery>,
) -> Result<Json<WaitResponse>, Problem> {
    // Longer waits are shortened, not refused: the client repeats the request.
    let timeout = Duration::from_millis(query.within_ms).min(MAX_WAIT);
    let version = ConfigVersion(query.version);
    let outcome =
        api.deps.changes.wait_until_live(&caller.org, version, timeout).await.map_err(
            |error| match error {
                error @ tidegate_catalog::Error::NoSuchVersion { .. } => {
                    Problem::not_found(error.to_string())
                }
                error => faults::catalog_problem(error),
            },
        )?;
    Ok(Json(match outcome {
        WaitOutcome::Running(members) => {
            WaitResponse { state: "running", members: Some(members), others: Vec::new() }
        }
        WaitOutcome::Failing(members) => WaitResponse {
            state: "failing",
            members: None,
            others: members
                .into_iter()
                .map(|(label, failure)| format!("{label}: {}", failure.reason))
                .collect(),
        },
        WaitOutcome::Behind(members) => WaitResponse { state: "behind", members: None, others: members },
    }))
}

pub(crate) fn apply_problem(error: ApplyError) -> Problem {
    match error {
        ApplyError::Invalid(document_faults) => Problem {
            status: StatusCode::BAD_REQUEST,
            title: "The documents are not valid.",
            ..Problem::of_errors(document_faults.iter().map(document_error).collect())
        },
        error @ ApplyError::HeadMoved { .. } => Problem::conflict(error.to_string()),
        ApplyError::Catalog(error) => faults::catalog_problem(error),
        ApplyError::Secret(error) => faults::secret_problem(error),
    }
}

/// Builds an error with the file, the line and the path in the document in its detail.
fn document_error(fault: &DocumentFault) -> ValidationError {
    ValidationError::invalid(&Pointer::Root, "Invalid document", fault.to_string())
}
