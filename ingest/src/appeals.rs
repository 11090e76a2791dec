//! `POST /api/v1/report/appeal`: an appeal into the log, once its id is claimed.
//!
//! It opens no job; the consumer of the topic does, and opens one however often the appeal is appended.

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
    admission::{Admitted, Received},
    config, context, items, metrics,
    reports::main_item,
};

type Appeal = wire::Request<AppealRequest>;

pub(crate) async fn submit(api: Shared, admitted: Admitted) -> Result<Response, Problem> {
    let received = api.receive(admitted).await?;
    let CheckedAppeal { appeal, digest, warnings } = api.checked_appeal(&received).await?;
    let claimed = claim(&api.deps.store, &appeal.org, &appeal.appeal_id, &digest, appeal.received_at).await;
    if !claimed.map_err(|error| api.moderation_problem(&error))? {
        return Err(vec![conflict()].into());
    }
    // Also when the id was claimed before: whoever claimed it may have died before the append.
    let key = appeal.item.key().log_key(&appeal.org);
    let partition = api.deps.log.partition(Topic::Appeals, &key);
    let appended = api.deps.log.append(&[(partition, Record::of(&key, &appeal))]).await;
    appended.map_err(|error| api.append_problem(&error))?;
    tidegate_stream::failpoint!("after_append");
    let unknown_actions = appeal.actions_taken.iter().filter(|action| !action.known);
    metrics::unknown_appealed_actions(unknown_actions.count());
    let warnings = warnings.into_iter().map(|warning| (header::WARNING, warning));
    Ok((AppendHeaders(warnings), StatusCode::NO_CONTENT).into_response())
}

/// An appeal that may be appended.
struct CheckedAppeal {
    appeal: records::Appeal,
    digest: [u8; 32],
    /// One for each action that the configuration does not have. Such an action may have been removed after it was taken, so the appeal
    /// is not refused.
    warnings: Vec<HeaderValue>,
}

/// Warnings about unknown actions. They show no id of the request, which may be anything.
fn unknown_actions(config: &Compiled, appeal: &AppealRequest) -> Vec<HeaderValue> {
    let actions = appeal.actions_taken.iter().enumerate();
    let unknown = actions.filter(|(_, id)| !config::action(config, id).known);
    let warning = |(index, id): (usize, &String)| {
        let nearest_action = nearest(id, config.actions().map(|action| action.id.as_str()));
        // Only texts that fit between the quotes of the header.
        let is_plain =
            |name: &&str| name.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\'));
        let hint = nearest_action
            .filter(is_plain)
            .map_or_else(String::new, |action| format!(", did you mean {action}?"));
        HeaderValue::try_from(format!("299 tidegate \"/actionsTaken/{index}: unknown action{hint}\""))
    };
    unknown.take(LISTED_WARNINGS).filter_map(|action| warning(action).ok()).collect()
}

/// Warnings of one answer; headers are short.
const LISTED_WARNINGS: usize = 20;

fn conflict() -> ValidationError {
    let detail = "An appeal with another content was submitted under this `appealId` before. Send it unchanged, \
                  or under an id of its own.";
    let fault = ValidationError::invalid(&Pointer::Root.key("appealId"), "The appealId is in use.", detail);
    ValidationError { tags: vec![tag::UNIQUE_VIOLATION, tag::INVALID_INPUT], ..fault }
}

impl Api {
    async fn checked_appeal(&self, received: &Received) -> Result<CheckedAppeal, Problem> {
        let (body, limits) = (received.bytes().clone(), self.settings.limits.clone());
        let size = body.len();
        let parsed = match self.work(size, move || wire::appeals::parse(&body, &limits)).await? {
            Ok(parsed) => parsed,
            Err(refused) => return Err(self.refused(received, refused).await),
        };
        let config = self.config(&received.org, |config| all_known(config, &parsed.content)).await?;
        let header = Header {
            org: received.org.clone(),
            received_at: received.received_at,
            request_id: received.request_id.to_string(),
        };
        self.work(size, move || {
            check(&config, &parsed)?;
            let digest = parsed.root().digest();
            Ok::<_, Vec<ValidationError>>(CheckedAppeal {
                appeal: record(&config, &parsed, header, &digest),
                digest,
                warnings: unknown_actions(&config, &parsed.content),
            })
        })
        .await?
        .map_err(Problem::from)
    }
}

/// Parts of the record that are not in the body.
struct Header {
    org: OrgId,
    received_at: Millis,
    request_id: String,
}

fn all_known(config: &Compiled, appeal: &AppealRequest) -> bool {
    let item = &appeal.item;
    config::knows(config, &item.type_id, item.type_version.as_deref())
        && appeal.actions_taken.iter().all(|id| config::action(config, id).known)
        && appeal.violating_policies.iter().all(|id| config::policy(config, id).known)
        && context::all_known(config, &appeal.additional)
}

fn check(config: &Compiled, parsed: &Appeal) -> Result<(), Vec<ValidationError>> {
    let mut faults = ValidationErrors::default();
    let appeal = &parsed.content;
    let root = parsed.root();
    main_item(config, root, &appeal.item, "actionedItem", &mut faults);
    in_order(faults, root).or(Some(()))
}

fn record(config: &Compiled, parsed: &Appeal, header: Header, digest: &[u8; 32]) -> records::Appeal {
    let appeal = &parsed.content;
    let Header { org, received_at, request_id } = header;
    let cause = [b"appeal".as_slice(), org.as_str().as_bytes(), appeal.appeal_id.as_str().as_bytes(), digest];
    records::Appeal {
        config_version: config.version(),
        appeal_id: appeal.appeal_id.clone(),
        received_at,
        request_id,
        appealed_at: appeal.appealed_at,
        appealed_by: appeal.appealed_by.clone(),
        item: items::entry(appeal.item.clone(), derive(Kind::Submission, &cause), false),
        actions_taken: appeal.actions_taken.iter().map(|id| config::action(config, id)).collect(),
        violating_policies: appeal.violating_policies.iter().map(|id| config::policy(config, id)).collect(),
        reason: appeal.reason.clone(),
        additional: context::checked(config, parsed, &appeal.additional),
        org,
    }
}
