//! `POST /api/v1/content`, the legacy endpoint: appends one item to the log and by default returns the outcome of its
//! evaluation.
//!
//! The item is processed like any other, so its outcome is stored and carried out once, even if the response is lost.
//! Only the wait for the outcome is here.

use std::sync::Arc;

use axum::{
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tidegate_catalog::{Compiled, ItemType};
use tidegate_moderation::items::stored::{
    self, ItemResponse, ListedAction, MatchedRule, Omissions, WITHOUT_MEDIA,
};
use tidegate_schemas::{
    hint,
    ids::{ActionId, ItemKey, Kind, PolicyId, RuleId, SubmissionId, TypeId, derive},
    item_types::{Mode, Role},
    json::Node,
    records::{ItemEntry, Variant},
    validation_error::{Pointer, ValidationError, tag},
    wire::{self, content::ContentRequest},
};
use tidegate_store::tables::items::items::SubmissionState;
use tidegate_web::{Holder, Json, Problem};

use crate::{
    Api, Shared,
    admission::{AdmittedRequest, ReceivedRequest},
};

type ParsedBody = wire::Request<ContentRequest>;

/// Start of the deprecation in the format of RFC 9745: 26 November 2026.
const DEPRECATED: (HeaderName, HeaderValue) =
    (HeaderName::from_static("deprecation"), HeaderValue::from_static("@1795651200"));

const SUCCESSOR: (HeaderName, HeaderValue) =
    (header::LINK, HeaderValue::from_static(r#"</api/v1/items/async/>; rel="successor-version""#));

pub(crate) async fn submit(api: Shared, admitted: AdmittedRequest) -> Result<Response, Problem> {
    let headers = [DEPRECATED, SUCCESSOR];
    match api.content(admitted).await {
        Ok(answer) => Ok((axum::response::AppendHeaders(headers), answer).into_response()),
        Err(problem) => {
            Err(headers.into_iter().fold(problem, |problem, (name, value)| problem.with_header(name, value)))
        }
    }
}

impl Api {
    async fn content(&self, admitted: AdmittedRequest) -> Result<Response, Problem> {
        self.check_lag(&admitted.org)?;
        let request = self.receive_request(admitted).await?;
        let (config, entry, is_sync) = self.validate_content(&request).await?;
        let (item, submission) = (entry.key(), entry.submission_id);
        // Before the append: a request that is refused for too many waits must not submit its item.
        let holder = Holder { org: Some(request.org.clone()), connection: None };
        let permit_result = if is_sync { Some(self.waiting_requests.take(holder, 1)) } else { None };
        let _permit = permit_result.transpose().map_err(|refusal| self.wait_limit_problem(refusal))?;
        // Without media: the client waits, and a fetch may take longer than the request.
        self.append_items(&request, &config, vec![entry], &[(WITHOUT_MEDIA, b"1")]).await?;
        if !is_sync {
            return Ok(StatusCode::ACCEPTED.into_response());
        }
        let (store, wait_limit) = (&self.deps.store, self.settings.content_wait());
        let evaluation = stored::wait_for_answer(store, &request.org, &item, Some(submission), wait_limit);
        // A stop ends the wait like a timeout: the item is in the log and is evaluated later.
        let answer = match self.stop.run_until_cancelled(evaluation).await {
            Some(answer) => answer.map_err(|error| self.moderation_problem(&error))?,
            None => None,
        };
        match answer {
            Some(answer) if answer.state == SubmissionState::Evaluated => {
                let errored_rules = read_errored_rules(&config, &answer).map_err(|error| {
                    tracing::error!(%error, "the stored errored rules of an item cannot be parsed");
                    Problem::internal()
                })?;
                Ok(Json(build_response(&config, answer, errored_rules)).into_response())
            }
            _ => Err(self.evaluation_timeout_problem(&item, submission)),
        }
    }

    async fn validate_content(
        &self,
        request: &ReceivedRequest,
    ) -> Result<(Arc<Compiled>, ItemEntry, bool), Problem> {
        let (body, limits) = (request.bytes().clone(), self.settings.limits.clone());
        let size = body.len();
        let parse_result = self.offload_if_large(size, move || wire::content::parse(&body, &limits)).await?;
        let parsed_body = parse_result.map_err(|rejection| Problem::from(rejection.into_vec()))?;
        let type_reference = &parsed_body.content.content_type;
        let config =
            self.load_config(&request.org, |config| find_type(config, type_reference).is_some()).await?;
        let digest = request.digest(parsed_body.root());
        let submission = match (&request.key, &digest) {
            (Some(key), Some(digest)) => {
                let org = request.org.as_str().as_bytes();
                derive(Kind::Submission, &[org, key.as_bytes(), b"content", digest])
            }
            _ => SubmissionId::random(),
        };
        let is_sync = parsed_body.content.sync;
        let (is_keyed, entry_config) = (request.key.is_some(), Arc::clone(&config));
        let entry_result = self
            .offload_if_large(size, move || build_entry(&entry_config, &parsed_body, submission, is_keyed))
            .await?;
        let entry = entry_result.map_err(|faults| {
            self.item_counters.refused_items.increment(1);
            Problem::from(faults)
        })?;
        // After the validation: an invalid request must not claim its key, so the client can correct it.
        self.claim_key(request, "content", digest.as_ref()).await?;
        Ok((config, entry, is_sync))
    }

    fn evaluation_timeout_problem(&self, item: &ItemKey, submission: SubmissionId) -> Problem {
        let ItemKey { type_id, id } = item;
        let detail = format!(
            "The item is stored and will be evaluated once. Look it up at /api/v1/items/{type_id}/{id}?submission={submission}, \
             or send the request again under the same `Idempotency-Key`."
        );
        let title = "The evaluation did not finish within the wait limit.";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, tag::EVALUATION_TIMEOUT, title, detail)
            .retry_after(self.settings.retry_after())
    }
}

/// Finds an item type by id, or else by name.
fn find_type<'c>(config: &'c Compiled, type_reference: &str) -> Option<&'c ItemType> {
    config
        .item_type(&TypeId::new(type_reference))
        .or_else(|| config.item_types().find(|item_type| item_type.name == type_reference))
}

/// Validates the item against its type and builds its log entry.
fn build_entry(
    config: &Compiled,
    parsed_body: &ParsedBody,
    submission_id: SubmissionId,
    is_keyed: bool,
) -> Result<ItemEntry, Vec<ValidationError>> {
    let request = &parsed_body.content;
    let item_type = find_type(config, &request.content_type)
        .ok_or_else(|| vec![unknown_type_error(config, &request.content_type)])?;
    let data = with_creator(config, item_type, request, parsed_body.root())?;
    item_type.check(&data, Mode::Strict, &Pointer::Root.key("content"))?;
    Ok(ItemEntry {
        submission_id,
        type_id: item_type.key.clone(),
        id: request.content_id.clone(),
        type_version: None,
        variant: Variant::Original,
        data,
        origin: None,
        keyed: is_keyed,
    })
}

fn unknown_type_error(config: &Compiled, type_reference: &str) -> ValidationError {
    let type_names = config.item_types().flat_map(|item_type| [item_type.key.as_str(), &*item_type.name]);
    let detail = format!("No item type has this id or name.{}", hint(type_reference, type_names));
    ValidationError {
        tags: vec![tag::UNKNOWN_CONTENT_TYPE, tag::INVALID_INPUT],
        ..ValidationError::invalid(&Pointer::Root.key("contentType"), "Content type not found", detail)
    }
}

/// Adds `userId` as the creator to content without a creator.
fn with_creator(
    config: &Compiled,
    item_type: &ItemType,
    request: &ContentRequest,
    root: Node<'_>,
) -> Result<Bytes, Vec<ValidationError>> {
    let (Some(user), Some(field)) = (&request.user_id, item_type.role(Role::Creator)) else {
        return Ok(request.content.clone());
    };
    let content = request.content_in(root);
    let existing_creator = content.get(&field.name);
    if existing_creator.is_some_and(|creator| !creator.is_null()) {
        return Ok(request.content.clone());
    }
    let type_id = find_user_type(config).ok_or_else(|| {
        let name = &field.name;
        let detail = format!(
            "The organisation does not have exactly one user type. Name the creator in `content.{name}`."
        );
        vec![ValidationError::data(&Pointer::Root.key("userId"), detail)]
    })?;
    let key = ItemKey::new(type_id.clone(), user.clone());
    let creator = serde_json::to_string(&key).expect("an item key has string keys only");
    // The creator is spliced into the bytes, so the other bytes of the content are stored as sent. Positions of nodes are those
    // in the body, the splice needs those in the content.
    let start = content.range().start;
    // A null creator is replaced; a missing one is inserted after the opening brace.
    let (from, to, replacement) = match existing_creator {
        Some(null_node) => (null_node.range().start - start, null_node.range().end - start, creator),
        None => {
            let name = serde_json::to_string(&*field.name).expect("a name is a text");
            let comma = if content.entries().next().is_some() { "," } else { "" };
            (1, 1, format!("{name}:{creator}{comma}"))
        }
    };
    Ok([&request.content[..from], replacement.as_bytes(), &request.content[to..]].concat().into())
}

/// Returns the only user type, or of several the one with the id `user`.
fn find_user_type(config: &Compiled) -> Option<&TypeId> {
    let mut users =
        config.item_types().filter(|item_type| item_type.is_user()).map(|item_type| &item_type.key);
    let (first_user_type, second_user_type) = (users.next()?, users.next());
    let find_type_named_user = || {
        let mut user_types = config.item_types().filter(|item_type| item_type.is_user());
        user_types.find(|item_type| item_type.key.as_str() == "user").map(|item_type| &item_type.key)
    };
    if second_user_type.is_none() { Some(first_user_type) } else { find_type_named_user() }
}

/// Body of the response: the outcome of the evaluation.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ContentResponse {
    submission_id: SubmissionId,
    matched_rules: Vec<MatchedRuleResponse>,
    /// Undecided rules, for example after a failed fetch. They count neither as matched nor as not matched.
    errored_rules: Vec<ErroredRuleResponse>,
    #[serde(flatten)]
    omissions: Omissions,
    actions_triggered: Vec<NamedEntity<ActionId>>,
    derived_fields: EmptyFields,
}

#[derive(Serialize)]
struct MatchedRuleResponse {
    #[serde(flatten)]
    rule: MatchedRule,
    policies: Vec<NamedEntity<PolicyId>>,
}

#[derive(Serialize)]
struct ErroredRuleResponse {
    #[serde(flatten)]
    rule: NamedEntity<RuleId>,
    reason: String,
}

#[derive(Serialize)]
struct NamedEntity<Id> {
    id: Id,
    name: String,
}

/// Always-empty object: Tidegate has no derived fields, but clients of the legacy endpoint expect the member.
#[derive(Serialize)]
struct EmptyFields {}

fn read_errored_rules(
    config: &Compiled,
    answer: &ItemResponse,
) -> serde_json::Result<Vec<ErroredRuleResponse>> {
    #[derive(Deserialize)]
    struct StoredFailure {
        rule: RuleId,
        reason: String,
    }
    let failures: Vec<StoredFailure> = serde_json::from_str(answer.errored_rules.get())?;
    let to_errored_rule = |StoredFailure { rule, reason }: StoredFailure| {
        let name = config.rule(&rule).map_or_else(|| rule.to_string(), |head| head.name.clone());
        ErroredRuleResponse { rule: NamedEntity { id: rule, name }, reason }
    };
    Ok(failures.into_iter().map(to_errored_rule).collect())
}

fn build_response(
    config: &Compiled,
    answer: ItemResponse,
    errored_rules: Vec<ErroredRuleResponse>,
) -> ContentResponse {
    let to_matched_rule = |rule: MatchedRule| {
        let policies = config.rule(&rule.id).map(|head| head.policies.as_slice()).unwrap_or_default();
        let policies = policies.iter().map(|id| NamedEntity {
            id: id.clone(),
            name: config.policy(id).map_or_else(|| id.to_string(), |policy| policy.name.clone()),
        });
        MatchedRuleResponse { policies: policies.collect(), rule }
    };
    // Suppressed actions matched, but a limit or an alarm prevented them.
    let executed_actions = answer.actions.into_iter().filter(|action| action.suppressed.is_none());
    let to_named_action = |action: ListedAction| NamedEntity {
        name: config
            .action(&action.id)
            .map_or_else(|| action.id.to_string(), |configured_action| configured_action.name.clone()),
        id: action.id,
    };
    ContentResponse {
        submission_id: answer.submission_id,
        matched_rules: answer.matched_rules.into_iter().map(to_matched_rule).collect(),
        errored_rules,
        omissions: answer.left_out,
        actions_triggered: executed_actions.map(to_named_action).collect(),
        derived_fields: EmptyFields {},
    }
}
