//! `/admin/v1/config`: the organisation's documents, checked, changed and read back as files.
//!
//! It judges no document; `catalog` does.

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
use tidegate_catalog::change::{self, ApplyError, Change, Difference, File, How, Planned, Waited};
use tidegate_moderation::review::queues;
use tidegate_schemas::{
    documents::DocumentFault,
    ids::{ConfigVersion, EndpointId, Millis, OrgId},
    validation_error::{Pointer, ValidationError},
};
use tidegate_web::{Problem, Query};

use super::{Api, audit::AuditDetail, caller::Caller, extract::Body, faults, long_answers};

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/config", get(pull).put(apply).post(apply))
        .route("/config/validate", post(validate))
        .route("/config/wait", get(wait))
}

/// A file of documents. Its name's ending says whether it is JSON or YAML, and faults name it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) text: String,
}

impl Named {
    pub(super) fn into_file(self) -> File {
        (self.name, self.text)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Documents {
    files: Vec<Named>,
    /// The version that the change was made from; another current one refuses it.
    #[serde(default)]
    expected_version: Option<ConfigVersion>,
    /// The organisation that they were made for; another one refuses them.
    #[serde(default)]
    expected_org: Option<OrgId>,
    /// True if documents that are not in the files are removed.
    #[serde(default)]
    prune: bool,
}

impl Documents {
    fn are_for(&self, org: &OrgId) -> Result<(), Problem> {
        match &self.expected_org {
            Some(own) if own != org => Err(Problem::conflict(format!(
                "the documents are of the organisation `{own}`, and this is `{org}`"
            ))),
            _ => Ok(()),
        }
    }

    fn files(self) -> Vec<File> {
        self.files.into_iter().map(Named::into_file).collect()
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Pulled {
    org: OrgId,
    version: ConfigVersion,
    changed_at: String,
    author: String,
    files: Vec<Named>,
}

#[derive(Serialize)]
pub(super) struct Changed {
    kind: &'static str,
    key: String,
    how: &'static str,
}

impl From<Difference> for Changed {
    fn from(difference: Difference) -> Self {
        let how = match difference.how {
            How::Added => "added",
            How::Changed => "changed",
            How::Removed => "removed",
        };
        Self { kind: difference.kind.name(), key: difference.key, how }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Applied {
    org: OrgId,
    version: ConfigVersion,
    changes: Vec<Changed>,
    warnings: Vec<String>,
    /// Endpoints that got a signing secret; their receivers need it.
    new_secrets: Vec<EndpointId>,
}

#[derive(Serialize)]
struct Valid {
    changes: Vec<Changed>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Wanted {
    version: i64,
    #[serde(default = "ten_seconds")]
    within_ms: u64,
    #[serde(rename = "org")]
    _org: Option<String>,
}

fn ten_seconds() -> u64 {
    10_000
}

/// One request holds its connection at most so long.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

#[derive(Serialize)]
struct Answer {
    /// `running`, `failing` or `behind`.
    state: &'static str,
    /// Processes that live, where all of them run it.
    #[serde(skip_serializing_if = "Option::is_none")]
    members: Option<usize>,
    /// Those that do not, and why.
    others: Vec<String>,
}

/// The answer to a pull, as JSON.
pub(super) fn write_pulled(org: &OrgId, pulled: change::Pulled) -> Vec<u8> {
    let pulled = Pulled {
        org: org.clone(),
        version: pulled.version,
        changed_at: pulled.changed_at.iso(),
        author: pulled.author,
        files: pulled.files.into_iter().map(|(name, text)| Named { name, text }).collect(),
    };
    serde_json::to_vec(&pulled).expect("documents have string keys only")
}

async fn pull(State(api): State<Api>, caller: Caller) -> Result<Response, Problem> {
    api.pulls.get(&caller.org).await.map(long_answers::written).map_err(faults::catalog)
}

async fn apply(
    State(api): State<Api>,
    caller: Caller,
    Body(documents): Body<Documents>,
) -> Result<(Extension<AuditDetail>, Json<Applied>), Problem> {
    documents.are_for(&caller.org)?;
    let change = Change {
        expected_version: documents.expected_version,
        prune: documents.prune,
        author: caller.name.to_string(),
        files: documents.files(),
    };
    let planned = api.deps.changes.plan(&caller.org, change).await.map_err(refused)?;
    check_scope(&caller, &planned)?;
    removed_queues_are_empty(&api, &caller, &planned).await?;
    let applied = api.deps.changes.commit(planned).await.map_err(refused)?;
    let detail = json!({"version": applied.version, "changes": applied.differences.len()});
    // Whoever is answered finds it live here; where it cannot be loaded now, the poll does it.
    if let Err(error) = api.deps.moderation.live.latest(&caller.org).await {
        tracing::warn!(tag = error.tag(), "an applied configuration is not live here yet");
    }
    let answer = Json(Applied {
        org: caller.org,
        version: applied.version,
        changes: applied.differences.into_iter().map(Changed::from).collect(),
        warnings: applied.warnings.iter().map(ToString::to_string).collect(),
        new_secrets: applied.new_secrets,
    });
    Ok((Extension(AuditDetail(detail)), answer))
}

async fn validate(
    State(api): State<Api>,
    caller: Caller,
    Body(documents): Body<Documents>,
) -> Result<Json<Valid>, Problem> {
    documents.are_for(&caller.org)?;
    let prune = documents.prune;
    let change = Change::unsigned(documents.files(), prune);
    let planned = api.deps.changes.plan(&caller.org, change).await.map_err(refused)?;
    check_scope(&caller, &planned)?;
    removed_queues_are_empty(&api, &caller, &planned).await?;
    Ok(Json(Valid { changes: planned.differences().iter().cloned().map(Changed::from).collect() }))
}

/// Refuses callers without the scope `child_safety` if the change touches a destination of child-safety material. Such a
/// change could send the material to the caller, or stop sending it to the child-safety team.
fn check_scope(caller: &Caller, planned: &Planned) -> Result<(), Problem> {
    if caller.may_child_safety() {
        return Ok(());
    }
    let protected = planned.differences().iter().filter(|difference| difference.is_child_safety);
    let names: Vec<_> = protected.map(|it| format!("{} `{}`", it.kind.name(), it.key)).collect();
    if names.is_empty() {
        return Ok(());
    }
    Err(Problem::forbidden(format!(
        "Documents with `child_safety: true` are added, changed and removed only with a key that has the scope \
         `child_safety`, which this key lacks: {}.",
        names.join(", ")
    )))
}

/// Number of open jobs of a queue that are counted; each is read.
const COUNTED_JOBS: usize = 1_000;

/// Refuses to remove queues in which jobs wait, since reviewers look into the queues that are configured. The lists of
/// jobs and queues keep removed queues for jobs that arrive between this check and the change.
async fn removed_queues_are_empty(api: &Api, caller: &Caller, planned: &Planned) -> Result<(), Problem> {
    let now = Millis::now();
    let mut held = Vec::new();
    for queue in planned.removed_queues() {
        let store = &api.deps.moderation.store;
        let open = queues::waiting(store, &caller.org, &queue, COUNTED_JOBS, now, |_| true);
        let open = open.await.map_err(faults::moderation)?;
        let is_uncounted = open.iter().any(|job| !caller.clearance().covers_job(job));
        match open.len() {
            0 => {}
            _ if is_uncounted => held.push(format!("`{queue}` has open jobs of child safety")),
            1 => held.push(format!("`{queue}` has 1 open job")),
            COUNTED_JOBS => held.push(format!("`{queue}` has {COUNTED_JOBS} open jobs or more")),
            open => held.push(format!("`{queue}` has {open} open jobs")),
        }
    }
    if held.is_empty() {
        return Ok(());
    }
    Err(Problem::conflict(format!(
        "Queues with open jobs cannot be removed: {}. Keep the document, route no more jobs there, and move or decide \
         these first; `GET /admin/v1/jobs?queue=` lists them",
        held.join(", ")
    )))
}

async fn wait(
    State(api): State<Api>,
    caller: Caller,
    Query(wanted): Query<Wanted>,
) -> Result<Json<Answer>, Problem> {
    let within = Duration::from_millis(wanted.within_ms).min(LONGEST_WAIT);
    let version = ConfigVersion(wanted.version);
    let waited = api.deps.changes.wait(&caller.org, version, within).await.map_err(|error| match error {
        error @ tidegate_catalog::Error::NoSuchVersion { .. } => Problem::not_found(error.to_string()),
        error => faults::catalog(error),
    })?;
    Ok(Json(match waited {
        Waited::Running(members) => Answer { state: "running", members: Some(members), others: Vec::new() },
        Waited::Failing(members) => Answer {
            state: "failing",
            members: None,
            others: members
                .into_iter()
                .map(|(label, failing)| format!("{label}: {}", failing.reason))
                .collect(),
        },
        Waited::Behind(members) => Answer { state: "behind", members: None, others: members },
    }))
}

pub(super) fn refused(error: ApplyError) -> Problem {
    match error {
        ApplyError::Invalid(found) => Problem {
            status: StatusCode::BAD_REQUEST,
            title: "The documents are not valid.",
            ..Problem::of_errors(found.iter().map(fault).collect())
        },
        error @ ApplyError::HeadMoved { .. } => Problem::conflict(error.to_string()),
        ApplyError::Catalog(error) => faults::catalog(error),
        ApplyError::Secret(error) => faults::secret(error),
    }
}

/// Its detail names the file, the line and the path in the document.
fn fault(found: &DocumentFault) -> ValidationError {
    ValidationError::invalid(&Pointer::Root, "Invalid document", found.to_string())
}
