//! `POST /api/v1/report/appeal`: claims the id of an appeal and appends the appeal to the log.
//!
//! The topic's consumer opens the job, one even if the appeal is appended several times.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{AppendHeaders, IntoResponse, Response},
};
use tidegate_catalog::Compiled;
use tidegate_moderation::review::appeals::claim;
use tidegate_schemas::{
    ids::{Kind, Millis, OrgId, derive},
    json::in_order,
    nearest, records,
    validation_error::{Pointer, ValidationError, ValidationErrors, tag},
    wire::{self, appeals::AppealRequest},
};
use tidegate_stream::{Record, Topic};
use tidegate_web::Problem;

use crate::{
    Api, Shared,
    admission::{AdmittedRequest, ReceivedRequest},
    config, context, items, metrics,
    reports::check_main_item,
};

type Appeal = wire::Request<AppealRequest>;

pub(crate) async fn submit(api: Shared, admitted: AdmittedRequest) -> Result<Response, Problem> {
    let request = api.receive_request(admitted).await?;
    let CheckedAppeal { appeal, digest, warnings } = api.validate_appeal(&request).await?;
    // Before the append, so two different appeals with one id cannot both enter the log.
    let claim_result =
        claim(&api.deps.store, &appeal.org, &appeal.appeal_id, &digest, appeal.received_at).await;
    if !claim_result.map_err(|error| api.moderation_problem(&error))? {
        return Err(vec![appeal_id_conflict()].into());
    }
    // Appended even if this body claimed the id before, because the process may have died between claim and append.
    let key = appeal.item.key().log_key(&appeal.org);
    let partition = api.deps.log.partition(Topic::Appeals, &key);
    let append_result = api.deps.log.append(&[(partition, Record::from_content(&key, &appeal))]).await;
    append_result.map_err(|error| api.append_problem(&error))?;
    tidegate_stream::failpoint!("after_append");
    let unknown_actions = appeal.actions_taken.iter().filter(|action| !action.known);
    metrics::count_unknown_appealed_actions(unknown_actions.count());
    let warnings = warnings.into_iter().map(|warning| (header::WARNING, warning));
    Ok((AppendHeaders(warnings), StatusCode::NO_CONTENT).into_response())
}

/// Validated appeal.
struct CheckedAppeal {
    appeal: records::Appeal,
    digest: [u8; 32],
    /// One warning for each unknown action. The action may have been removed from the configuration after it was taken, so
    /// the appeal is not refused.
    warnings: Vec<HeaderValue>,
}

/// Builds warnings about unknown actions. They do not repeat ids of the request, which may contain any characters.
fn build_action_warnings(config: &Compiled, appeal: &AppealRequest) -> Vec<HeaderValue> {
    let actions = appeal.actions_taken.iter().enumerate();
    let unknown_actions = actions.filter(|(_, id)| !config::mention_action(config, id).known);
    let to_warning = |(index, id): (usize, &String)| {
        let nearest_action = nearest(id, config.actions().map(|action| action.id.as_str()));
        // The hint is inside a quoted string of the header.
        let is_quotable =
            |name: &&str| name.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\'));
        let hint = nearest_action
            .filter(is_quotable)
            .map_or_else(String::new, |action| format!(", did you mean {action}?"));
        HeaderValue::try_from(format!("299 tidegate \"/actionsTaken/{index}: unknown action{hint}\""))
    };
    unknown_actions.take(MAX_WARNINGS).filter_map(|action| to_warning(action).ok()).collect()
}

/// Number of warnings in one response. Clients limit the size of headers.
const MAX_WARNINGS: usize = 20;

fn appeal_id_conflict() -> ValidationError {
    let detail = "This `appealId` was used for an appeal with different content. Send the original appeal unchanged, \
                  or use a new id.";
    let fault = ValidationError::invalid(&Pointer::Root.key("appealId"), "The appealId is in use.", detail);
    ValidationError { tags: vec![tag::UNIQUE_VIOLATION, tag::INVALID_INPUT], ..fault }
}

impl Api {
    async fn validate_appeal(&self, request: &ReceivedRequest) -> Result<CheckedAppeal, Problem> {
        let (body, limits) = (request.bytes().clone(), self.settings.limits.clone());
        let size = body.len();
        let parsed_body =
            match self.offload_if_large(size, move || wire::appeals::parse(&body, &limits)).await? {
                Ok(body) => body,
                Err(rejection) => return Err(self.rejection_problem(request, rejection).await),
            };
        let config =
            self.load_config(&request.org, |config| has_all_references(config, &parsed_body.content)).await?;
        let envelope = AppealEnvelope {
            org: request.org.clone(),
            received_at: request.received_at,
            request_id: request.request_id.to_string(),
        };
        self.offload_if_large(size, move || {
            check_appeal(&config, &parsed_body)?;
            let digest = parsed_body.root().digest();
            Ok::<_, Vec<ValidationError>>(CheckedAppeal {
                appeal: build_record(&config, &parsed_body, envelope, &digest),
                digest,
                warnings: build_action_warnings(&config, &parsed_body.content),
            })
        })
        .await?
        .map_err(Problem::from)
    }
}

/// Fields of the record that are not in the body.
struct AppealEnvelope {
    org: OrgId,
    received_at: Millis,
    request_id: String,
}

fn has_all_references(config: &Compiled, appeal: &AppealRequest) -> bool {
    let item = &appeal.item;
    config::has_item_type(config, &item.type_id, item.type_version.as_deref())
        && appeal.actions_taken.iter().all(|id| config::mention_action(config, id).known)
        && appeal.violating_policies.iter().all(|id| config::mention_policy(config, id).known)
        && context::has_all_types(config, &appeal.additional)
}

fn check_appeal(config: &Compiled, parsed_body: &Appeal) -> Result<(), Vec<ValidationError>> {
    let mut faults = ValidationErrors::default();
    let appeal = &parsed_body.content;
    let root = parsed_body.root();
    check_main_item(config, root, &appeal.item, "actionedItem", &mut faults);
    in_order(faults, root).or(Some(()))
}

fn build_record(
    config: &Compiled,
    parsed_body: &Appeal,
    envelope: AppealEnvelope,
    digest: &[u8; 32],
) -> records::Appeal {
    let appeal = &parsed_body.content;
    let AppealEnvelope { org, received_at, request_id } = envelope;
    // Derived, so a repeated append of the appeal submits the same item once.
    let cause = [b"appeal".as_slice(), org.as_str().as_bytes(), appeal.appeal_id.as_str().as_bytes(), digest];
    records::Appeal {
        config_version: config.version(),
        appeal_id: appeal.appeal_id.clone(),
        received_at,
        request_id,
        appealed_at: appeal.appealed_at,
        appealed_by: appeal.appealed_by.clone(),
        item: items::build_entry(appeal.item.clone(), derive(Kind::Submission, &cause), false),
        actions_taken: appeal.actions_taken.iter().map(|id| config::mention_action(config, id)).collect(),
        violating_policies: appeal
            .violating_policies
            .iter()
            .map(|id| config::mention_policy(config, id))
            .collect(),
        reason: appeal.reason.clone(),
        // Invalid context must not prevent an appeal: its faults are stored with it.
        additional: context::check_context_items(config, parsed_body, &appeal.additional),
        org,
    }
}
