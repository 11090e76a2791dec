//! `POST /admin/v1/rules/explain`: explains why a rule matches a stored item or not, with the live or with other documents.

use std::collections::BTreeSet;

use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use tidegate_moderation::{
    Error,
    items::stored,
    reevaluation::stored_evaluation::{self, Archive},
};
use tidegate_rules::{Explained, Omissions};
use tidegate_schemas::ids::{ConfigVersion, ItemKey, RuleId, SubmissionId};
use tidegate_web::Problem;

use super::backtest::compile_candidate;
use crate::{
    admin::{
        access::child_safety,
        config::documents::NamedFile,
        request::{Body, Caller, faults},
    },
    api::Api,
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ExplainRequest {
    item: ItemKey,
    rule: RuleId,
    /// Documents to use instead of the live ones.
    #[serde(default)]
    files: Vec<NamedFile>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExplainResponse {
    item: ItemKey,
    submission_id: SubmissionId,
    /// Time at which this version of the item arrived. Strikes and windows are looked up as of then.
    received_at: String,
    rule: RuleId,
    /// Live version, also if other documents were used.
    config_version: ConfigVersion,
    tree: Explained,
    /// True if the rule does not apply to the item: another type, another source, or an expired rule.
    is_no_concern: bool,
    /// True if facts had to be assumed: past media, scores and uncounted windows are not stored.
    is_guessed: bool,
    #[serde(flatten)]
    left_out: Omissions,
}

pub(crate) async fn explain_rule(
    State(api): State<Api>,
    caller: Caller,
    Body(request): Body<ExplainRequest>,
) -> Result<Json<ExplainResponse>, Problem> {
    let (org, deps) = (&caller.org, &api.deps.moderation);
    let ExplainRequest { item, rule, files } = request;
    child_safety::authorize_explained_item(&api, &caller, &item, "/rules/explain").await?;
    let row = stored::load_newest(&deps.store, org, &item).await.map_err(faults::moderation_problem)?;
    let row = row.ok_or_else(|| {
        Problem::not_found(format!("There is no stored item `{}` of type `{}`.", item.id, item.type_id))
    })?;
    let live = deps.live.load_latest(org).await.map_err(faults::catalog_problem)?;
    let config_version = live.version();
    let (config, uncounted) = if files.is_empty() {
        (live, BTreeSet::new())
    } else {
        let trial = compile_candidate(&api, org, live, files).await?;
        (trial.candidate(), trial.uncounted())
    };
    let archive =
        Archive { store: &deps.store, org, uncounted: &uncounted, window_rows: api.deps.window_rows };
    let result =
        stored_evaluation::explain(archive, config, &row, &rule).await.map_err(|error| match error {
            Error::Content { detail, .. } => {
                Problem::conflict(format!("The item does not fit its type any more: {detail}"))
            }
            error => faults::moderation_problem(error),
        })?;
    let explanation =
        result.ok_or_else(|| Problem::not_found(format!("There is no rule `{rule}` that is evaluated.")))?;
    Ok(Json(ExplainResponse {
        submission_id: row.submission_id,
        received_at: row.append_ms.iso(),
        item,
        rule,
        config_version,
        tree: explanation.tree,
        is_no_concern: explanation.is_no_concern,
        is_guessed: explanation.is_guessed,
        left_out: explanation.left_out,
    }))
}
