//! `POST /api/v1/content`: the legacy endpoint. One item into the log, and by default the outcome of its evaluation.
//!
//! The item takes the same way as any other, so its outcome is stored and carried out once whether or not the answer reaches
//! the client. Only the wait is here.

use std::sync::Arc;

use axum::{
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tidegate_catalog::{Compiled, ItemType};
use tidegate_moderation::items::stored::{self, Answer, ListedAction, MatchedRule, Omissions, WITHOUT_MEDIA};
use tidegate_schemas::{
    hint,
    ids::{ActionId, ItemKey, Kind, PolicyId, RuleId, SubmissionId, TypeId, derive},
    item_types::{Mode, Role},
    json::Node,
    records::{ItemEntry, Variant},
    validation_error::{Pointer, ValidationError, tag},
    wire::{self, content::ContentRequest},
};
use tidegate_store::tables::items::items::EVALUATED;
use tidegate_web::{Holder, Json, Problem};

use crate::{
    Api, Shared,
    admission::{Admitted, Received},
};

type Content = wire::Request<ContentRequest>;

/// Date since which the endpoint is deprecated, as RFC 9745 writes it: 26 November 2026.
const DEPRECATED: (HeaderName, HeaderValue) =
    (HeaderName::from_static("deprecation"), HeaderValue::from_static("@1795651200"));

const SUCCESSOR: (HeaderName, HeaderValue) =
    (header::LINK, HeaderValue::from_static(r#"</api/v1/items/async/>; rel="successor-version""#));

pub(crate) async fn submit(api: Shared, admitted: Admitted) -> Result<Response, Problem> {
    let headers = [DEPRECATED, SUCCESSOR];
    match api.content(admitted).await {
        Ok(answer) => Ok((axum::response::AppendHeaders(headers), answer).into_response()),
        Err(problem) => {
            Err(headers.into_iter().fold(problem, |problem, (name, value)| problem.with(name, value)))
        }
    }
}

impl Api {
    async fn content(&self, admitted: Admitted) -> Result<Response, Problem> {
        self.check_lag(&admitted.org)?;
        let received = self.receive(admitted).await?;
        let (config, entry, is_sync) = self.checked_content(&received).await?;
        let (item, submission) = (entry.key(), entry.submission_id);
        // Before the append: whoever may not wait submits nothing.
        let holder = Holder { org: Some(received.org.clone()), connection: None };
        let permit = if is_sync { Some(self.waiting.take(holder, 1)) } else { None };
        let _permit = permit.transpose().map_err(|refusal| self.too_many_wait(refusal))?;
        self.append_items(&received, &config, vec![entry], &[(WITHOUT_MEDIA, b"1")]).await?;
        if !is_sync {
            return Ok(StatusCode::ACCEPTED.into_response());
        }
        let (store, wait) = (&self.deps.store, self.settings.content_wait());
        let waited = stored::answer_when_evaluated(store, &received.org, &item, Some(submission), wait);
        let answer = match self.stop.run_until_cancelled(waited).await {
            Some(answer) => answer.map_err(|error| self.moderation_problem(&error))?,
            None => None,
        };
        match answer {
            Some(answer) if answer.state == EVALUATED => {
                let errored_rules = errored_rules(&config, &answer).map_err(|error| {
                    tracing::error!(%error, "stored errored rules cannot be read");
                    Problem::internal()
                })?;
                Ok(Json(outcome(&config, answer, errored_rules)).into_response())
            }
            _ => Err(self.out_of_time(&item, submission)),
        }
    }

    async fn checked_content(
        &self,
        received: &Received,
    ) -> Result<(Arc<Compiled>, ItemEntry, bool), Problem> {
        let (body, limits) = (received.bytes().clone(), self.settings.limits.clone());
        let size = body.len();
        let parsed = self.work(size, move || wire::content::parse(&body, &limits)).await?;
        let parsed = parsed.map_err(|refused| Problem::from(refused.into_vec()))?;
        let named = &parsed.content.content_type;
        let config = self.config(&received.org, |config| find_type(config, named).is_some()).await?;
        let digest = received.digest(parsed.root());
        let submission = match (&received.key, &digest) {
            (Some(key), Some(digest)) => {
                let org = received.org.as_str().as_bytes();
                derive(Kind::Submission, &[org, key.as_bytes(), b"content", digest])
            }
            _ => SubmissionId::random(),
        };
        let is_sync = parsed.content.sync;
        let (keyed, checking) = (received.key.is_some(), Arc::clone(&config));
        let checked = self.work(size, move || entry(&checking, &parsed, submission, keyed)).await?;
        let entry = checked.map_err(|faults| {
            self.items.refused.increment(1);
            Problem::from(faults)
        })?;
        self.claim_key(received, "content", digest.as_ref()).await?;
        Ok((config, entry, is_sync))
    }

    fn out_of_time(&self, item: &ItemKey, submission: SubmissionId) -> Problem {
        let ItemKey { type_id, id } = item;
        let detail = format!(
            "The item is kept and is evaluated later, once. Look it up at /api/v1/items/{type_id}/{id}?submission={submission}, \
             or send the request again under the same `Idempotency-Key`."
        );
        let title = "The evaluation takes longer than a request may wait.";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, tag::EVALUATION_TIMEOUT, title, detail)
            .retry_after(self.settings.retry_after())
    }
}

/// Finds an item type by its id, or else by its name.
fn find_type<'c>(config: &'c Compiled, named: &str) -> Option<&'c ItemType> {
    config
        .item_type(&TypeId::new(named))
        .or_else(|| config.item_types().find(|item_type| item_type.name == named))
}

/// The item as the log keeps it, once it fits its type.
fn entry(
    config: &Compiled,
    parsed: &Content,
    submission_id: SubmissionId,
    keyed: bool,
) -> Result<ItemEntry, Vec<ValidationError>> {
    let request = &parsed.content;
    let item_type = find_type(config, &request.content_type)
        .ok_or_else(|| vec![unknown_type(config, &request.content_type)])?;
    let data = with_creator(config, item_type, request, parsed.root())?;
    item_type.check(&data, Mode::Strict, &Pointer::Root.key("content"))?;
    Ok(ItemEntry {
        submission_id,
        type_id: item_type.key.clone(),
        id: request.content_id.clone(),
        type_version: None,
        variant: Variant::Original,
        data,
        origin: None,
        keyed,
    })
}

fn unknown_type(config: &Compiled, named: &str) -> ValidationError {
    let known = config.item_types().flat_map(|known| [known.key.as_str(), &*known.name]);
    let detail = format!("No item type has this id or name.{}", hint(named, known));
    ValidationError {
        tags: vec![tag::UNKNOWN_CONTENT_TYPE, tag::INVALID_INPUT],
        ..ValidationError::invalid(&Pointer::Root.key("contentType"), "Content type not found", detail)
    }
}

/// The content, with `userId` as its creator if it names none itself.
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
    let present = content.get(&field.name);
    if present.is_some_and(|creator| !creator.is_null()) {
        return Ok(request.content.clone());
    }
    let type_id = user_type(config).ok_or_else(|| {
        let name = &field.name;
        let detail = format!("There is not one type of users, so name the creator in `content.{name}`.");
        vec![ValidationError::data(&Pointer::Root.key("userId"), detail)]
    })?;
    let key = ItemKey::new(type_id.clone(), user.clone());
    let creator = serde_json::to_string(&key).expect("an item key has string keys only");
    let start = content.range().start;
    let (from, to, text) = match present {
        Some(null) => (null.range().start - start, null.range().end - start, creator),
        None => {
            let name = serde_json::to_string(&*field.name).expect("a name is a text");
            let comma = if content.entries().next().is_some() { "," } else { "" };
            (1, 1, format!("{name}:{creator}{comma}"))
        }
    };
    Ok([&request.content[..from], text.as_bytes(), &request.content[to..]].concat().into())
}

/// The only type of users, or the one whose id is `user`.
fn user_type(config: &Compiled) -> Option<&TypeId> {
    let mut users =
        config.item_types().filter(|item_type| item_type.is_user()).map(|item_type| &item_type.key);
    let (first, second) = (users.next()?, users.next());
    let named = || config.item_types().find(|it| it.is_user() && it.key.as_str() == "user").map(|it| &it.key);
    if second.is_none() { Some(first) } else { named() }
}

/// The outcome as the answer shows it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Outcome {
    submission_id: SubmissionId,
    matched_rules: Vec<OutcomeRule>,
    /// Rules that could not be decided. An outcome with an errored rule says nothing about that rule's condition.
    errored_rules: Vec<ErroredRule>,
    #[serde(flatten)]
    left_out: Omissions,
    actions_triggered: Vec<Named<ActionId>>,
    derived_fields: NoFields,
}

#[derive(Serialize)]
struct OutcomeRule {
    #[serde(flatten)]
    rule: MatchedRule,
    policies: Vec<Named<PolicyId>>,
}

#[derive(Serialize)]
struct ErroredRule {
    #[serde(flatten)]
    rule: Named<RuleId>,
    reason: String,
}

#[derive(Serialize)]
struct Named<Id> {
    id: Id,
    name: String,
}

/// Fields that rules read beside those of the item. There are none.
#[derive(Serialize)]
struct NoFields {}

fn errored_rules(config: &Compiled, answer: &Answer) -> serde_json::Result<Vec<ErroredRule>> {
    #[derive(Deserialize)]
    struct StoredFailure {
        rule: RuleId,
        reason: String,
    }
    let failures: Vec<StoredFailure> = serde_json::from_str(answer.errored_rules.get())?;
    let errored_rule = |StoredFailure { rule, reason }: StoredFailure| {
        let name = config.rule(&rule).map_or_else(|| rule.to_string(), |head| head.name.clone());
        ErroredRule { rule: Named { id: rule, name }, reason }
    };
    Ok(failures.into_iter().map(errored_rule).collect())
}

fn outcome(config: &Compiled, answer: Answer, errored_rules: Vec<ErroredRule>) -> Outcome {
    let rule = |rule: MatchedRule| {
        let policies = config.rule(&rule.id).map(|head| head.policies.as_slice()).unwrap_or_default();
        let policies = policies.iter().map(|id| Named {
            id: id.clone(),
            name: config.policy(id).map_or_else(|| id.to_string(), |policy| policy.name.clone()),
        });
        OutcomeRule { policies: policies.collect(), rule }
    };
    let taken = answer.actions.into_iter().filter(|action| action.suppressed.is_none());
    let action = |action: ListedAction| Named {
        name: config.action(&action.id).map_or_else(|| action.id.to_string(), |it| it.name.clone()),
        id: action.id,
    };
    Outcome {
        submission_id: answer.submission_id,
        matched_rules: answer.matched_rules.into_iter().map(rule).collect(),
        errored_rules,
        left_out: answer.left_out,
        actions_triggered: taken.map(action).collect(),
        derived_fields: NoFields {},
    }
}
