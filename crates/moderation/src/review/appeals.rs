//! Handles appeals: stores the appeal, opens its job, and determines the appealed actions.
//!
//! The id of an appeal is claimed before the appeal is appended to the log.

use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_catalog::{Compiled, routing::Choice};
use tidegate_schemas::{
    documents::RoutingList,
    history::AppealEvent,
    ids::{ActionId, AppealId, ItemKey, Kind, Millis, OrgId, PolicyId, derive},
    nearest,
    records::{self, JobClass, Source},
};
use tidegate_store::{
    Batch, InsertOutcome, RowRange, Store, WriteTime,
    tables::{
        history::events::{EventHead, HistoryEvent},
        items::strikes::ActionByItem,
        review::{
            appeals::{Appeal, AppealClaim},
            jobs::CauseKind,
        },
    },
};
use uuid::Uuid;

use crate::{
    Deps, Error, child_safety, effects,
    items::{
        context::{self, StoredMention},
        context_media,
        evaluate::{self, PreparedItem},
    },
    jobs::{
        self, Cause, JobRequest, Placement,
        priority::{self, PrioritySignals},
        routing, user_history,
    },
    partial_items,
};

/// Claims the id for an appeal with this digest. Returns true if the id is new, or is claimed with the same digest.
#[boxed]
pub async fn claim(
    store: &Store,
    org: &OrgId,
    appeal_id: &AppealId,
    digest: &[u8],
    now: Millis,
) -> Result<bool, Error> {
    let claim = AppealClaim {
        org: org.clone(),
        appeal_id: appeal_id.clone(),
        digest: Bytes::copy_from_slice(digest),
        claimed_at: now,
        version: 1,
    };
    Ok(match store.insert_new(&claim).await? {
        InsertOutcome::New => true,
        // Another body under the id is a different appeal and is refused.
        InsertOutcome::Existing(first) => first.digest == digest,
    })
}

/// Stores the appeal and opens its job.
#[boxed]
pub async fn accept(deps: &Deps, appeal: &records::Appeal, written_at: Millis) -> Result<(), Error> {
    let config = effects::load_config(deps, &appeal.org, appeal.config_version, written_at).await?;
    // Before the job, so that every reviewer of the job finds the appeal.
    store_first(deps, &config, appeal, written_at).await?;
    let Choice { queue, routed_by } = choose_queue(&config, appeal, written_at);
    let policies: Vec<_> = appeal.violating_policies.iter().map(|policy| PolicyId::new(&policy.id)).collect();
    let signals = PrioritySignals {
        severity: priority::highest_severity(&config, &policies),
        reach: priority::read_reach(&config, &queue, &appeal.item.data),
        reporters: 0,
    };
    let request = JobRequest {
        org: appeal.org.clone(),
        class: JobClass::Appeal,
        subject: appeal.item.key(),
        queue,
        cause: Cause {
            id: cause_id(appeal),
            kind: CauseKind::Appeal,
            at: written_at,
            report_id: None,
            appeal_id: Some(appeal.appeal_id.clone()),
            submission_id: None,
            rules: "[]".to_owned(),
            hits: None,
            threshold: None,
            policies,
        },
        placement: Placement {
            routed_by,
            routed_for: None,
            signals,
            reporter: None,
            user: user_history::creator_of(&config, &appeal.item),
            config: Some(config),
        },
    };
    let job_id = jobs::open_for_appeal(&deps.store, &request, &appeal.appeal_id, Millis::now()).await?;
    fetch_media(deps, appeal, request.cause.id).await?;
    partial_items::ask_for_appeal(deps, appeal, job_id, written_at).await
}

/// Chooses the queue with the routing list for appeals.
fn choose_queue(config: &Arc<Compiled>, appeal: &records::Appeal, written_at: Millis) -> Choice {
    let (list, item) = (RoutingList::Appeals, appeal.item.key());
    if config.router(list).is_none() {
        return routing::choose_queue(config, list, (&item, None), &Value::Null, written_at);
    }
    let policies = appeal.violating_policies.iter();
    let policies: Vec<_> = policies.map(|policy| routing::policy_key(config, &policy.id)).collect();
    let actions: Vec<_> = appeal.actions_taken.iter().map(|action| &action.id).collect();
    let cause_facts = json!({"appeal": {"reason": appeal.reason, "policies": policies, "actions": actions}});
    let prepared = evaluate::prepare(Arc::clone(config), Source::Appeal, &appeal.item, written_at).ok();
    let values = prepared.as_ref().map(PreparedItem::fields);
    routing::choose_queue(config, list, (&item, values), &cause_facts, written_at)
}

fn cause_id(appeal: &records::Appeal) -> Uuid {
    derive(Kind::JobCause, &[b"appeal", appeal.appeal_id.as_str().as_bytes()])
}

async fn history_row(deps: &Deps, appeal: &records::Appeal, at: Millis) -> Result<HistoryEvent, Error> {
    let item = appeal.item.key();
    let is_child_safety = child_safety::is_restricted(&deps.store, &appeal.org, &item).await?;
    let head = EventHead { org: &appeal.org, id: cause_id(appeal), at, item: &item, is_child_safety };
    let event = AppealEvent {
        appeal_id: appeal.appeal_id.clone(),
        appealed_by: appeal.appealed_by.clone(),
        appealed_at: appeal.appealed_at,
        received_at: appeal.received_at,
        actions: appeal.actions_taken.iter().map(|action| ActionId::new(&action.id)).collect(),
        policies: appeal.violating_policies.iter().map(|policy| PolicyId::new(&policy.id)).collect(),
        reason: appeal.reason.clone(),
        job_id: jobs::appeal_job_id(&appeal.org, &appeal.appeal_id),
    };
    Ok(HistoryEvent::new(head, &event))
}

/// Stores the appeal and its history event unless its id is stored: a repeated appeal concerns the same actions as the first.
async fn store_first(
    deps: &Deps,
    config: &Compiled,
    appeal: &records::Appeal,
    written_at: Millis,
) -> Result<(), Error> {
    let store = &deps.store;
    let key = (appeal.org.clone(), appeal.appeal_id.clone());
    if store.get::<Appeal>(&key).await?.is_some() {
        return Ok(());
    }
    let mut mentions = context::stored_mentions(&appeal.actions_taken);
    for mention in mentions.iter_mut().filter(|mention| !mention.known) {
        let actions = config.actions().map(|action| action.id.as_str());
        mention.suggestion = nearest(&mention.id, actions).map(str::to_owned);
    }
    // Notes actions with a later time than the appeal: the log's clock may have been set back, see
    // `find_appealed_actions`.
    for row in load_actions(store, &appeal.org, &appeal.item.key()).await? {
        let mention = mentions.iter_mut().find(|mention| mention.id == row.action.as_str());
        if let Some(mention) = mention.filter(|_| row.at > written_at) {
            mention.ahead.push(row.event_id);
        }
    }
    let row = appeal_row(appeal, context::to_json(&mentions)?, written_at)?;
    let at = WriteTime::from_append(written_at, 0);
    let mut batch = Batch::new();
    // The event first: a replay that finds the appeal's row writes no event.
    batch.put_owned(at, history_row(deps, appeal, written_at).await?).begin_step().put_row(at, &row);
    store.write(batch).await?;
    Ok(())
}

async fn load_actions(store: &Store, org: &OrgId, item: &ItemKey) -> Result<Vec<ActionByItem>, Error> {
    let partition = (org.clone(), item.type_id.clone(), item.id.clone());
    Ok(store.scan::<ActionByItem>(&partition, RowRange::all()).all().await?)
}

/// Returns the appealed actions: those that the appeal names and that were taken before it. A later action may
/// concern other content, so an appeal that only names actions never taken before concerns none.
pub(crate) async fn find_appealed_actions(
    store: &Store,
    appeal: &Appeal,
) -> Result<Vec<ActionByItem>, Error> {
    let mentions: Vec<StoredMention> =
        serde_json::from_str(&appeal.actions_taken).map_err(Error::corrupt("appeal"))?;
    let mention_of = |row: &ActionByItem| mentions.iter().find(|mention| mention.id == row.action.as_str());
    let actions = load_actions(store, &appeal.org, &appeal.item).await?.into_iter();
    let named_actions = actions.filter(|row| mention_of(row).is_some());
    let (before, after): (Vec<_>, Vec<_>) = named_actions.partition(|row| row.at <= appeal.written_at);
    if !before.is_empty() {
        return Ok(before);
    }
    // By the clock, all were taken after the appeal. The clock may have been set back, so actions noted in `ahead`
    // count.
    let is_noted =
        |row: &ActionByItem| mention_of(row).is_some_and(|mention| mention.ahead.contains(&row.event_id));
    Ok(after.into_iter().filter(is_noted).collect())
}

/// Hands the media of the appealed item and of the context items over, the appealed item first.
async fn fetch_media(deps: &Deps, appeal: &records::Appeal, cause: Uuid) -> Result<(), Error> {
    let context_items = appeal.additional.iter().enumerate();
    let context_entries =
        context_items.map(|(nth, item)| context_media::build_entry(&appeal.org, cause, nth, item));
    let head = records::Items {
        org: appeal.org.clone(),
        config_version: appeal.config_version,
        source: Source::Appeal,
        received_at: appeal.received_at,
        request_id: appeal.request_id.clone(),
        report_id: None,
        items: Vec::new(),
    };
    let appealed_item = std::iter::once(appeal.item.clone());
    context_media::hand_over(deps, head, cause, appealed_item.chain(context_entries)).await
}

fn appeal_row(appeal: &records::Appeal, actions_taken: String, written_at: Millis) -> Result<Appeal, Error> {
    Ok(Appeal {
        org: appeal.org.clone(),
        appeal_id: appeal.appeal_id.clone(),
        item: appeal.item.key(),
        type_version: appeal.item.type_version.clone(),
        variant: appeal.item.variant.into(),
        data: appeal.item.data.clone(),
        appealed_by: appeal.appealed_by.clone(),
        appealed_at: appeal.appealed_at,
        received_at: appeal.received_at,
        written_at,
        request_id: appeal.request_id.clone(),
        config_version: appeal.config_version,
        actions_taken,
        violating_policies: context::mentions_to_json(&appeal.violating_policies)?,
        reason: appeal.reason.clone(),
        additional: context::items_to_json(&appeal.additional)?,
    })
}
