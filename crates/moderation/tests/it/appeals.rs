//! Effects of accepted appeals.

#![allow(clippy::unwrap_used)]

use crate::support::{fixture, item_entry, org, post};
use tempfile::TempDir;
use tidegate_catalog::orgs;
use tidegate_moderation::{
    Deps, effects,
    review::{appeals, decisions},
};
use tidegate_schemas::{
    ids::{ActionId, AppealId, ConfigVersion, DecisionId, EventId, ItemKey, Millis, SubmissionId},
    records::{Appeal, Decision, JobClass, Mention, Verdict},
};
use tidegate_store::{Store, WriteTime, tables::items::strikes::ActionByItem};
use uuid::Uuid;

async fn world() -> (Deps, TempDir) {
    let (deps, folder) = fixture().await;
    orgs::create(&deps.store, &org(), "Acme", Millis::now()).await.unwrap();
    (deps, folder)
}

/// Stores the action `limit_reach` at this time. The event id is derived from the time.
async fn take(store: &Store, at: i64) {
    let row = ActionByItem {
        org: org(),
        type_id: post().type_id,
        item_id: post().id,
        event_id: event(at),
        action: ActionId::new("limit_reach"),
        at: Millis(at),
        user: Some(ItemKey::new("user", "u1")),
        points: 1,
        hits: None,
        actor: None,
        recorded_at: None,
    };
    store.put_rows(WriteTime::from_append(Millis(at), 0), &[row]).await.unwrap();
}

fn event(at: i64) -> EventId {
    EventId(Uuid::from_u128(at.unsigned_abs().into()))
}

fn appeal() -> Appeal {
    Appeal {
        org: org(),
        config_version: ConfigVersion(1),
        appeal_id: AppealId::new("a1"),
        received_at: Millis(1),
        request_id: "request".to_owned(),
        appealed_at: Millis(1),
        appealed_by: ItemKey::new("user", "u1"),
        item: item_entry(SubmissionId::random(), false),
        actions_taken: ["other", "limit_reach"].map(|id| Mention { id: id.to_owned(), known: true }).into(),
        violating_policies: Vec::new(),
        reason: None,
        additional: Vec::new(),
    }
}

/// Accepts the appeal. Returns the times of the reversed actions.
async fn accept_appeal(deps: &Deps) -> Vec<u128> {
    let decision = Decision {
        org: org(),
        config_version: ConfigVersion(1),
        decision_id: DecisionId(Uuid::from_u128(1)),
        job_id: Uuid::from_u128(2).into(),
        class: JobClass::Appeal,
        item: post(),
        appeal_id: Some(AppealId::new("a1")),
        decided_at: Millis::now(),
        decided_by: "ann".to_owned(),
        verdict: Verdict::Accept,
        actions: Vec::new(),
        policies: Vec::new(),
        reason: None,
        parameters: None,
        reported_items: Vec::new(),
        related: Vec::new(),
    };
    decisions::accept(deps, &decision, Millis::now()).await.unwrap();
    let plan = effects::load_plan(&deps.store, &org(), decision.decision_id.0).await.unwrap().unwrap();
    assert_eq!(plan.callbacks.len(), 1, "the platform receives the answer in any case");
    let mut reversed_times: Vec<_> =
        plan.strikes.iter().map(|strike| strike.reverses.unwrap().0.as_u128()).collect();
    reversed_times.sort_unstable();
    reversed_times
}

#[tokio::test]
async fn appeal_reverses_only_earlier_actions() {
    const SENT: i64 = 1_000;
    for (case, before, after, expected) in [
        ("taken", &[900][..], &[][..], &[900][..]),
        ("taken twice", &[800, 900], &[], &[800, 900]),
        ("taken again", &[900], &[1_100], &[900]),
        ("never taken", &[], &[], &[]),
        ("taken only later", &[], &[1_100], &[]),
        ("taken before it, and listed later", &[], &[900], &[900]),
        ("the clock was set back since", &[5_000], &[], &[5_000]),
        ("the clock was set back since, and it was taken again", &[5_000], &[1_100, 6_000], &[5_000]),
    ] {
        let (deps, _folder) = world().await;
        for at in before {
            take(&deps.store, *at).await;
        }
        appeals::accept(&deps, &appeal(), Millis(SENT)).await.unwrap();
        for at in after {
            take(&deps.store, *at).await;
        }
        assert_eq!(accept_appeal(&deps).await, expected, "{case}");
    }
}

#[tokio::test]
async fn repeated_appeal_concerns_the_same_actions() {
    let (deps, _folder) = world().await;
    take(&deps.store, 900).await;
    appeals::accept(&deps, &appeal(), Millis(1_000)).await.unwrap();
    take(&deps.store, 1_100).await;
    appeals::accept(&deps, &appeal(), Millis(1_200)).await.unwrap();
    assert_eq!(accept_appeal(&deps).await, [900]);
}
