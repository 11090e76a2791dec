#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use tempfile::TempDir;
use tidegate_catalog::MasterKey;
use tidegate_schemas::{
    ids::{ItemKey, OrgId},
    records::{Callback, Command},
};
use tidegate_store::{At, tables::callbacks::due::Due};
use tidegate_stream::Log;

use super::*;
use crate::{
    callbacks::{Deps, scan::DueDeliveries},
    due_scan::{DueTable as _, Next, minute_of},
};

const SHARD: u32 = 0;
/// Longer than a test takes on any machine.
const GRACE: Duration = Duration::from_secs(3_600);

async fn deps(folder: &TempDir) -> Deps {
    let db = fjall::Database::builder(folder.path()).open().unwrap();
    let log = Log::open_embedded(db.clone(), &tidegate_stream::Settings::default()).unwrap();
    let store = Store::open_embedded(&db, tidegate_store::embedded::Settings::default()).unwrap();
    let catalog = tidegate_catalog::Settings::default();
    let live = Arc::new(Live::open(store.clone(), catalog.clone()).await.unwrap());
    let secrets = Secrets::new(store.clone(), MasterKey::new([7; 32]), &catalog);
    let client = Client::new(tidegate_egress::Settings::default()).unwrap();
    Deps { log, store, live, secrets, client, health: Health::default() }
}

/// As it is where other processes own shards before and after it. This one owns none now.
fn courier(deps: &Deps) -> Arc<Courier> {
    let (_, ownership) = watch::channel(Ownership::default());
    let mut courier = Courier::new(deps, Settings::default(), Arc::default(), ownership);
    courier.grace = GRACE;
    Arc::new(courier)
}

async fn owed(deps: &Deps, now: Millis) -> Delivery {
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
    let row = rows::begun(record, Bytes::from_static(b"{}"), (SHARD, 1), now, now);
    rows::begin(&deps.store, &row, None, now).await.unwrap();
    row
}

async fn due_rows(deps: &Deps, from: Millis) -> Vec<Due> {
    let mut all = Vec::new();
    for minute in minute_of(from)..=minute_of(Millis::now()) {
        let rows = deps.store.scan::<Due>(&(i64::from(SHARD), minute), At::all()).all().await.unwrap();
        all.extend(rows);
    }
    all
}

#[tokio::test]
async fn what_waited_for_a_lost_shard_is_begun_by_its_next_owner_at_once_and_by_a_later_one_after_its_grace()
{
    let folder = tempfile::tempdir().unwrap();
    let deps = deps(&folder).await;
    let began = Millis::now();
    let row = owed(&deps, began).await;
    let former = courier(&deps);
    assert_eq!(former.offer(&row, true, began), Offered::Taken);
    let mut tasks = JoinSet::new();
    former.divide(&mut tasks);
    while tasks.join_next().await.is_some() {}
    assert_eq!(former.lanes.lock().waiting(), 0);
    let left = due_rows(&deps, began).await;
    assert_eq!(left.len(), 1);
    assert!(rows::was_let_go(&left[0]));

    let since = Millis::now().plus(Duration::from_millis(1));
    let next = courier(&deps);
    next.took_over(SHARD, since);
    let table = DueDeliveries(Arc::clone(&next));
    assert_eq!(table.act(&left[0], since).await.unwrap(), Next::Settled);
    assert_eq!(next.lanes.lock().waiting(), 1, "it is begun at once");

    // Its call may be under way when the shard is lost again.
    let left = due_rows(&deps, began).await.into_iter().find(|due| due.due_at < since).unwrap();
    assert!(!rows::was_let_go(&left));
    let later = courier(&deps);
    later.took_over(SHARD, since);
    let table = DueDeliveries(Arc::clone(&later));
    let until = since.plus(GRACE);
    assert_eq!(table.act(&left, since).await.unwrap(), Next::Again(until));
    assert_eq!(later.lanes.lock().waiting(), 0);
}

#[tokio::test]
async fn what_is_offered_after_a_stop_is_left_to_the_next_owner() {
    let folder = tempfile::tempdir().unwrap();
    let deps = deps(&folder).await;
    let began = Millis::now();
    let row = owed(&deps, began).await;
    let courier = courier(&deps);
    let stop = CancellationToken::new();
    stop.cancel();
    assert_eq!(Arc::clone(&courier).run(stop).await, Drained::Clean);
    assert_eq!(courier.offer(&row, true, began), Offered::Closed);
    // A due row that was being acted on at the stop.
    let due = rows::due(&row, began);
    let table = DueDeliveries(Arc::clone(&courier));
    assert_eq!(table.act(&due, began).await.unwrap(), Next::Settled);
    assert!(due_rows(&deps, began).await.iter().any(rows::was_let_go));
}
