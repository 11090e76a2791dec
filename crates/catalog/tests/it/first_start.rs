use tidegate_catalog::{DEFAULT_ORG, Keys, Scopes, first_start, keys::NewKey, orgs};
use tidegate_schemas::ids::{ConfigVersion, Millis, OrgId};
use tidegate_store::system_clock;

use crate::support::World;

#[tokio::test]
async fn first_start_creates_org_and_key_once() {
    let world = World::empty();
    let keys = Keys::new(world.store.clone(), &world.settings);
    let first = first_start(&world.store, &keys, &system_clock()).await.unwrap().unwrap();
    assert_eq!(first.org.as_str(), DEFAULT_ORG);
    let caller = keys.authenticate(&first.key.reveal()).await.unwrap();
    assert_eq!((caller.org, caller.scopes), (first.org.clone(), Scopes::platform()));
    assert!(first_start(&world.store, &keys, &system_clock()).await.unwrap().is_none());
    let running = world.live().await;
    assert_eq!(running.live.org(&first.org).unwrap().version(), ConfigVersion(1));
    running.stop().await;
}

#[tokio::test]
async fn one_of_concurrent_first_starts_gets_the_key() {
    let world = World::empty();
    let starts: Vec<_> = (0..8)
        .map(|_| {
            let store = world.store.clone();
            let keys = Keys::new(store.clone(), &world.settings);
            tokio::spawn(async move { first_start(&store, &keys, &system_clock()).await.unwrap() })
        })
        .collect();
    let mut created_keys = Vec::new();
    for start in starts {
        created_keys.extend(start.await.unwrap());
    }
    assert_eq!(created_keys.len(), 1);
    let keys = Keys::new(world.store.clone(), &world.settings);
    assert!(keys.authenticate(&created_keys[0].key.reveal()).await.is_ok());
    assert_eq!(keys.list(&created_keys[0].org).await.unwrap().len(), 1);
}

#[tokio::test]
async fn next_start_completes_a_crashed_first_start() {
    let world = World::empty();
    let keys = Keys::new(world.store.clone(), &world.settings);
    orgs::create(&world.store, &OrgId::new(DEFAULT_ORG), "Default", Millis(1)).await.unwrap();
    assert!(first_start(&world.store, &keys, &system_clock()).await.unwrap().is_some());
}

#[tokio::test]
async fn first_start_skips_a_store_with_organisations() {
    let world = World::new().await;
    let keys = Keys::new(world.store.clone(), &world.settings);
    assert!(first_start(&world.store, &keys, &system_clock()).await.unwrap().is_none());

    let headless = World::empty();
    let keys = Keys::new(headless.store.clone(), &headless.settings);
    let org = OrgId::new(DEFAULT_ORG);
    orgs::create(&headless.store, &org, "Default", Millis(1)).await.unwrap();
    let new_key = NewKey { org, name: "own".to_owned(), scopes: Scopes::platform(), expires_at: None };
    keys.create(new_key).await.unwrap();
    assert!(first_start(&headless.store, &keys, &system_clock()).await.unwrap().is_none());
}

#[tokio::test]
async fn organisation_is_created_once_with_a_valid_id() {
    let world = World::new().await;
    assert!(!orgs::create(&world.store, &world.org, "Again", Millis(2)).await.unwrap());
    let error = orgs::create(&world.store, &OrgId::new("a/b"), "x", Millis(2)).await.unwrap_err();
    assert_eq!(error.tag(), "org_bad_id");
    assert_eq!(orgs::list(&world.store).await.unwrap().len(), 1);
}
