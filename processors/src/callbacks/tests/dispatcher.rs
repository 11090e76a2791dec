#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use tempfile::TempDir;
use tidegate_catalog::{Change, Changes, MasterKey, orgs};
use tidegate_schemas::{
    ids::{ItemKey, OrgId},
    records::{Callback, Command},
};
use tidegate_store::{OpenEnum, RowRange, tables::callbacks::due::Due};
use tidegate_stream::Log;

use super::*;
use crate::{
    callbacks::{Deps, due::DueDeliveries},
    due::{
        index::{FollowUp, minute_of},
        stored_rows::StoredDueTable as _,
    },
};

const SHARD: u32 = 0;
/// Longer than any test.
const GRACE: Duration = Duration::from_secs(3_600);

async fn deps(folder: &TempDir) -> Deps {
    let db = fjall::Database::builder(folder.path()).open().unwrap();
    let log = Log::open_embedded(db.clone(), &tidegate_stream::settings::Settings::default()).unwrap();
    let store = Store::open_embedded(&db, tidegate_store::embedded::Settings::default()).unwrap();
    let catalog = tidegate_catalog::Settings::default();
    let live = Arc::new(LiveConfigs::open(store.clone(), catalog.clone()).await.unwrap());
    let secrets = Secrets::new(store.clone(), MasterKey::new([7; 32]), &catalog);
    let client = Client::new(tidegate_egress::Settings::default()).unwrap();
    Deps { log, store, live, secrets, client, health: Health::default() }
}

/// Creates a dispatcher with other owners of the shards; it owns none itself.
fn new_dispatcher(deps: &Deps) -> Arc<Dispatcher> {
    let (_, ownership) = watch::channel(Ownership::default());
    let mut dispatcher = Dispatcher::new(deps, Settings::default(), Arc::default(), ownership);
    dispatcher.takeover_grace = GRACE;
    Arc::new(dispatcher)
}

async fn insert_due_delivery(deps: &Deps, now: Millis) -> Delivery {
    let record = Callback {
        org: OrgId::new("acme"),
        command: Command::Send,
        event_id: EventId::random(),
        event_type: "action.automatic".to_owned(),
        endpoint: None,
        subject: ItemKey::new("post", "p1"),
        occurred_at: now,
        body: Bytes::from_static(b"{}"),
    };
    let row = rows::new_delivery(record, Bytes::from_static(b"{}"), (SHARD, 1), now, now);
    rows::insert(&deps.store, &row, None, now).await.unwrap();
    row
}

async fn due_rows(deps: &Deps, from: Millis) -> Vec<Due> {
    let mut all_rows = Vec::new();
    for minute in minute_of(from)..=minute_of(Millis::now()) {
        let rows = deps.store.scan::<Due>(&(i64::from(SHARD), minute), RowRange::all()).all().await.unwrap();
        all_rows.extend(rows);
    }
    all_rows
}

#[tokio::test]
async fn released_delivery_is_attempted_at_once_by_the_next_owner() {
    let folder = tempfile::tempdir().unwrap();
    let deps = deps(&folder).await;
    let began = Millis::now();
    let row = insert_due_delivery(&deps, began).await;
    let former = new_dispatcher(&deps);
    assert_eq!(former.offer(&row, true, began), OfferResult::Queued);
    let mut tasks = JoinSet::new();
    former.on_ownership_change(&mut tasks);
    while tasks.join_next().await.is_some() {}
    assert_eq!(former.queues.lock().count_queued(), 0);
    let remaining_rows = due_rows(&deps, began).await;
    assert_eq!(remaining_rows.len(), 1);
    assert!(rows::is_released(&remaining_rows[0]));

    let takeover_at = Millis::now().plus(Duration::from_millis(1));
    let next = new_dispatcher(&deps);
    next.record_takeover(SHARD, takeover_at);
    let table = DueDeliveries(Arc::clone(&next));
    assert_eq!(table.act(&remaining_rows[0], takeover_at).await.unwrap(), FollowUp::Settled);
    assert_eq!(next.queues.lock().count_queued(), 1, "it is begun at once");

    // The call may be running when the shard is lost again.
    let remaining_row =
        due_rows(&deps, began).await.into_iter().find(|due| due.due_at < takeover_at).unwrap();
    assert!(!rows::is_released(&remaining_row));
    let later_dispatcher = new_dispatcher(&deps);
    later_dispatcher.record_takeover(SHARD, takeover_at);
    let table = DueDeliveries(Arc::clone(&later_dispatcher));
    let until = takeover_at.plus(GRACE);
    assert_eq!(table.act(&remaining_row, takeover_at).await.unwrap(), FollowUp::DueAgain(until));
    assert_eq!(later_dispatcher.queues.lock().count_queued(), 0);
}

#[tokio::test]
async fn offer_after_a_stop_is_released_to_the_next_owner() {
    let folder = tempfile::tempdir().unwrap();
    let deps = deps(&folder).await;
    let began = Millis::now();
    let row = insert_due_delivery(&deps, began).await;
    let dispatcher = new_dispatcher(&deps);
    let stop = CancellationToken::new();
    stop.cancel();
    assert_eq!(Arc::clone(&dispatcher).run(stop).await, DrainResult::Clean);
    assert_eq!(dispatcher.offer(&row, true, began), OfferResult::Closed);
    // A due row in processing at the stop.
    let due_row = rows::due_row(&row, began);
    let table = DueDeliveries(Arc::clone(&dispatcher));
    assert_eq!(table.act(&due_row, began).await.unwrap(), FollowUp::Settled);
    assert!(due_rows(&deps, began).await.iter().any(rows::is_released));
}

#[tokio::test]
async fn callback_follows_its_actions_endpoint_until_the_first_call() {
    let folder = tempfile::tempdir().unwrap();
    let deps = deps(&folder).await;
    let now = Millis::now();
    let row = insert_due_delivery(&deps, now).await;
    let changes =
        Changes::new(deps.store.clone(), deps.secrets.clone(), &tidegate_catalog::Settings::default());
    let documents = "endpoint: first\nurl: https://first.example/\n---\n\
         endpoint: other\nurl: https://other.example/\nevents: [appeal.decision]\n---\n\
         action: moved\nkind: callback\nendpoint: other\n---\naction: plain\nkind: callback\n---\n\
         action: review\nkind: enqueue_review\n";
    let change = Change {
        files: vec![("config.yaml".to_owned(), documents.to_owned())],
        author: "test".to_owned(),
        expected_version: None,
        prune: false,
    };
    orgs::create(&deps.store, &row.org, "Acme", now).await.unwrap();
    changes.apply(&row.org, change).await.unwrap();
    deps.live.load_latest(&row.org).await.unwrap();
    let dispatcher = new_dispatcher(&deps);
    for (named, attempts, action, expected) in [
        (Some("first"), 0, "moved", Some("other")),
        (Some("first"), 1, "moved", Some("first")),
        (Some("gone"), 0, "moved", Some("other")),
        (Some("gone"), 3, "moved", Some("other")),
        (None, 0, "moved", Some("other")),
        (Some("other"), 0, "plain", Some("first")),
        (Some("other"), 1, "plain", Some("other")),
        (Some("gone"), 0, "plain", Some("first")),
        (Some("gone"), 0, "review", None),
        (Some("gone"), 0, "deleted", None),
        (Some("gone"), 0, "", None),
        (None, 0, "deleted", Some("first")),
        (None, 0, "", Some("first")),
        (Some("other"), 0, "plain of a decision", Some("other")),
        (Some("first"), 0, "moved of a decision", Some("first")),
        (Some("gone"), 0, "moved of a decision", None),
        (None, 0, "plain of a decision", Some("first")),
    ] {
        let (id, decision) = match action.strip_suffix(" of a decision") {
            Some(id) => (id, r#","decision":{"verdict":"act"}"#),
            None => (action, ""),
        };
        let body = if id.is_empty() {
            "{}".to_owned()
        } else {
            format!(r#"{{"action":{{"id":"{id}"}}{decision}}}"#)
        };
        let row =
            Delivery { endpoint: named.map(EndpointId::new), attempts, body: body.into(), ..row.clone() };
        let endpoint = dispatcher.configured_endpoint(&row);
        assert_eq!(endpoint.as_ref().map(EndpointId::as_str), expected, "{named:?}, {attempts}, {action:?}");
    }
    let of_newer_version = Delivery { event_type: OpenEnum::parse("other"), ..row };
    assert_eq!(dispatcher.configured_endpoint(&of_newer_version), None);
}
