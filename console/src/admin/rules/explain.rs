//! `POST /admin/v1/rules/explain`: why a rule matches a stored item or not, with the live documents or with others.

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

use crate::admin::{Api, caller::Caller, child_safety, config::Named, extract::Body, faults};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Wanted {
    item: ItemKey,
    rule: RuleId,
    /// Documents to try in the place of the live ones.
    #[serde(default)]
    files: Vec<Named>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer {
    item: ItemKey,
    submission_id: SubmissionId,
    /// Time at which this version of the item came in. Strikes and windows are looked up as they were then.
    received_at: String,
    rule: RuleId,
    /// The live version, also where other documents were tried.
    config_version: ConfigVersion,
    tree: Explained,
    /// The rule is not evaluated for such an item: another type, another source, or it had expired.
    is_no_concern: bool,
    /// Media, models and windows that were not counted are not known of the past.
    is_guessed: bool,
    #[serde(flatten)]
    left_out: Omissions,
}

pub(crate) async fn explain(
    State(api): State<Api>,
    caller: Caller,
    Body(wanted): Body<Wanted>,
) -> Result<Json<Answer>, Problem> {
    let (org, deps) = (&caller.org, &api.deps.moderation);
    let Wanted { item, rule, files } = wanted;
    child_safety::check_and_record_explained(&api, &caller, &item, "/rules/explain").await?;
    let row = stored::newest(&deps.store, org, &item).await.map_err(faults::moderation)?;
    let row = row.ok_or_else(|| {
        Problem::not_found(format!("There is no stored item `{}` of type `{}`.", item.id, item.type_id))
    })?;
    let live = deps.live.latest(org).await.map_err(faults::catalog)?;
    let config_version = live.version();
    let (config, uncounted) = if files.is_empty() {
        (live, BTreeSet::new())
    } else {
        let _turn = api.trials.org_turn(org, api.settings.turn_wait()).await?;
        let tried = api.trials.find(&api, org, live, files, false).await?;
        (tried.candidate(), tried.uncounted())
    };
    let archive =
        Archive { store: &deps.store, org, uncounted: &uncounted, window_rows: api.deps.window_rows };
    let why =
        stored_evaluation::explain(archive, config, &row, &rule).await.map_err(|error| match error {
            Error::Content { detail, .. } => {
                Problem::conflict(format!("The item does not fit its type any more: {detail}"))
            }
            error => faults::moderation(error),
        })?;
    let why =
        why.ok_or_else(|| Problem::not_found(format!("There is no rule `{rule}` that is evaluated.")))?;
    Ok(Json(Answer {
        submission_id: row.submission_id,
        received_at: row.append_ms.iso(),
        item,
        rule,
        config_version,
        tree: why.tree,
        is_no_concern: why.is_no_concern,
        is_guessed: why.is_guessed,
        left_out: why.left_out,
    }))
}
