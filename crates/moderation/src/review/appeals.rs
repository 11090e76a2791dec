//! Handles appeals: stores the appeal, opens its job, and finds the actions that it is against.
//!
//! The id of an appeal is claimed before the log takes the appeal.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_catalog::{Compiled, routing::Choice};
use tidegate_schemas::{
    documents::RoutingList,
    ids::{AppealId, ItemKey, Kind, Millis, OrgId, PolicyId, derive},
    nearest,
    records::{self, JobClass, Source},
};
use tidegate_store::{
    At, Inserted, Store, WriteTime,
    tables::{
        items::strikes::ActionByItem,
        review::{
            appeals::{Appeal, AppealClaim},
            jobs::CauseKind,
        },
    },
};
use uuid::Uuid;

use crate::{
    Deps, Error, effects,
    items::{
        context::{self, StoredMention},
        context_media,
        evaluate::{self, Prepared},
    },
    jobs::{self, Cause, JobRequest, Placement},
    partial_items,
    priority::{self, Signals},
    routing, user_history,
};

/// Claims the id for an appeal with this digest. Returns true if the id is new, or was claimed with the same digest.
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
        Inserted::New => true,
        Inserted::Existing(first) => first.digest == digest,
    })
}

/// Stores the appeal and opens its job.
pub async fn accept(deps: &Deps, appeal: &records::Appeal, written_at: Millis) -> Result<(), Error> {
    let config = effects::config(deps, &appeal.org, appeal.config_version, written_at).await?;
    keep_first(&deps.store, &config, appeal, written_at).await?;
    let Choice { queue, routed_by } = route(&config, appeal, written_at);
    let policies: Vec<_> = appeal.violating_policies.iter().map(|it| PolicyId::new(&it.id)).collect();
    let signals = Signals {
        severity: priority::severity(&config, &policies),
        reach: priority::reach(&config, &queue, &appeal.item.data),
        reporters: 0,
    };
    let request = JobRequest {
        org: appeal.org.clone(),
        class: JobClass::Appeal,
        subject: appeal.item.key(),
        queue,
        cause: Cause {
            id: derive(Kind::JobCause, &[b"appeal", appeal.appeal_id.as_str().as_bytes()]),
            kind: CauseKind::Appeal,
            at: written_at,
            report_id: None,
            appeal_id: Some(appeal.appeal_id.clone()),
            submission_id: None,
            rules: "[]".to_owned(),
            hits: None,
            threshold: None,
        },
        placement: Placement {
            routed_by,
            routed_for: None,
            signals,
            reporter: None,
            user: user_history::creator(&config, &appeal.item),
            config: Some(config),
        },
    };
    let job = jobs::open_for_appeal(&deps.store, &request, &appeal.appeal_id, Millis::now()).await?;
    look_at_media(deps, appeal, request.cause.id).await?;
    partial_items::ask_for_appeal(deps, appeal, job, written_at).await
}

/// Chooses the queue by the routing list for appeals.
fn route(config: &Arc<Compiled>, appeal: &records::Appeal, written_at: Millis) -> Choice {
    let (list, item) = (RoutingList::Appeals, appeal.item.key());
    if config.router(list).is_none() {
        return routing::choose(config, list, (&item, None), &Value::Null, written_at);
    }
    let policies = appeal.violating_policies.iter();
    let policies: Vec<_> = policies.map(|policy| routing::policy_key(config, &policy.id)).collect();
    let actions: Vec<_> = appeal.actions_taken.iter().map(|action| &action.id).collect();
    let known = json!({"appeal": {"reason": appeal.reason, "policies": policies, "actions": actions}});
    let prepared = evaluate::prepare(Arc::clone(config), Source::Appeal, &appeal.item, written_at).ok();
    let values = prepared.as_ref().map(Prepared::fields);
    routing::choose(config, list, (&item, values), &known, written_at)
}

/// Stores the first appeal of an id, so that a repeated one is against the same actions as the first.
async fn keep_first(
    store: &Store,
    config: &Compiled,
    appeal: &records::Appeal,
    written_at: Millis,
) -> Result<(), Error> {
    let key = (appeal.org.clone(), appeal.appeal_id.clone());
    if store.get::<Appeal>(&key).await?.is_some() {
        return Ok(());
    }
    let mut named = context::stored_mentions(&appeal.actions_taken);
    for mention in named.iter_mut().filter(|mention| !mention.known) {
        let actions = config.actions().map(|action| action.id.as_str());
        mention.suggestion = nearest(&mention.id, actions).map(str::to_owned);
    }
    for row in taken(store, &appeal.org, &appeal.item.key()).await? {
        let mention = named.iter_mut().find(|mention| mention.id == row.action.as_str());
        if let Some(mention) = mention.filter(|_| row.at > written_at) {
            mention.ahead.push(row.event_id);
        }
    }
    let row = row(appeal, context::text(&named)?, written_at)?;
    store.put(WriteTime::of(written_at, 0), &[row]).await?;
    Ok(())
}

async fn taken(store: &Store, org: &OrgId, item: &ItemKey) -> Result<Vec<ActionByItem>, Error> {
    let partition = (org.clone(), item.type_id.clone(), item.id.clone());
    Ok(store.scan::<ActionByItem>(&partition, At::all()).all().await?)
}

/// Returns the actions that an appeal is against: those that it names and that were taken before it. The item may have
/// changed by a later action, so an appeal that names only actions never taken is against none.
pub(crate) async fn against(store: &Store, appeal: &Appeal) -> Result<Vec<ActionByItem>, Error> {
    let named: Vec<StoredMention> =
        serde_json::from_str(&appeal.actions_taken).map_err(Error::corrupt("appeal"))?;
    let mention = |row: &ActionByItem| named.iter().find(|mention| mention.id == row.action.as_str());
    let taken = taken(store, &appeal.org, &appeal.item).await?.into_iter();
    let taken = taken.filter(|row| mention(row).is_some());
    let (before, after): (Vec<_>, Vec<_>) = taken.partition(|row| row.at <= appeal.written_at);
    if !before.is_empty() {
        return Ok(before);
    }
    // None was taken before it by the clock, which may have been set back between action and appeal.
    let was_there =
        |row: &ActionByItem| mention(row).is_some_and(|mention| mention.ahead.contains(&row.event_id));
    Ok(after.into_iter().filter(was_there).collect())
}

/// The item that was acted on comes first.
async fn look_at_media(deps: &Deps, appeal: &records::Appeal, cause: Uuid) -> Result<(), Error> {
    let along = appeal.additional.iter().enumerate();
    let along = along.map(|(nth, item)| context_media::entry(&appeal.org, cause, nth, item));
    let head = records::Items {
        org: appeal.org.clone(),
        config_version: appeal.config_version,
        source: Source::Appeal,
        received_at: appeal.received_at,
        request_id: appeal.request_id.clone(),
        report_id: None,
        items: Vec::new(),
    };
    let own = std::iter::once(appeal.item.clone());
    context_media::hand_over(deps, head, cause, own.chain(along)).await
}

fn row(appeal: &records::Appeal, actions_taken: String, written_at: Millis) -> Result<Appeal, Error> {
    Ok(Appeal {
        org: appeal.org.clone(),
        appeal_id: appeal.appeal_id.clone(),
        item: appeal.item.key(),
        type_version: appeal.item.type_version.clone(),
        variant: appeal.item.variant.as_str().to_owned(),
        data: appeal.item.data.clone(),
        appealed_by: appeal.appealed_by.clone(),
        appealed_at: appeal.appealed_at,
        received_at: appeal.received_at,
        written_at,
        request_id: appeal.request_id.clone(),
        config_version: appeal.config_version,
        actions_taken,
        violating_policies: context::mentions(&appeal.violating_policies)?,
        reason: appeal.reason.clone(),
        additional: context::items(&appeal.additional)?,
    })
}
