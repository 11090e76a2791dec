use std::time::Duration;

use tidegate_catalog::{
    KeyRejection, Keys, Scope, Scopes,
    keys::{CreatedKey, KeyError, NewKey},
    orgs,
};
use tidegate_schemas::ids::{ApiKeyId, Millis, OrgId};
use tidegate_store::tables::catalog::keys::ApiKey;
use tidegate_test_support::{PATIENCE, eventually};

use crate::support::{ManualClock, World};

struct KeyFixture {
    world: World,
    clock: ManualClock,
    keys: Keys,
}

impl KeyFixture {
    async fn new() -> Self {
        let (world, manual_clock) = (World::new().await, ManualClock::new());
        let keys = Keys::with_clock(world.store.clone(), &world.settings, manual_clock.clock());
        Self { world, clock: manual_clock, keys }
    }

    /// Returns the keys as another process on the same store sees them.
    fn keys_of_other_process(&self) -> Keys {
        Keys::with_clock(self.world.store.clone(), &self.world.settings, self.clock.clock())
    }

    async fn create(&self, expires_at: Option<Millis>) -> CreatedKey {
        let new_key = NewKey {
            org: self.world.org.clone(),
            name: "app".to_owned(),
            scopes: Scopes::platform(),
            expires_at,
        };
        self.keys.create(new_key).await.unwrap()
    }
}

#[tokio::test]
async fn a_key_names_its_organisation_and_its_scopes() {
    let fixture = KeyFixture::new().await;
    let created = fixture.create(None).await;
    let text = created.token.reveal();
    let caller = fixture.keys_of_other_process().authenticate(&text).await.unwrap();
    assert_eq!((caller.org.clone(), caller.key_id), (fixture.world.org.clone(), created.info.id));
    assert!(caller.has_scope(Scope::ItemsWrite) && !caller.has_scope(Scope::Admin));
    assert!(text.starts_with(&created.info.prefix));
    assert!(text.starts_with("tg_live_"));
}

#[tokio::test]
async fn invalid_keys_are_denied_with_their_reason() {
    let fixture = KeyFixture::new().await;
    let text = fixture.create(None).await.token.reveal();
    let denied = async |key: &str| fixture.keys.authenticate(key).await.unwrap_err();
    assert_eq!(denied("").await, KeyRejection::Missing);
    assert_eq!(denied("tg_live_x").await, KeyRejection::Malformed);
    assert_eq!(denied(&text[..text.len() - 1]).await, KeyRejection::Malformed);
    let other_text = KeyFixture::new().await.create(None).await.token.reveal();
    assert_eq!(denied(&other_text).await, KeyRejection::Unknown);
    let id = tidegate_catalog::keys::Token::parse(&text).unwrap().id;
    let forged = tidegate_catalog::keys::Token::new("live", id, [1; 32]).reveal();
    assert_eq!(denied(&forged).await, KeyRejection::Unknown, "the id exists, but the secret is wrong");
    assert!(fixture.keys.authenticate(&text).await.is_ok());
}

#[tokio::test]
async fn key_needs_a_printable_name_and_a_valid_expiry() {
    let fixture = KeyFixture::new().await;
    let new_key = |name: &str, expires_at| NewKey {
        org: fixture.world.org.clone(),
        name: name.to_owned(),
        scopes: Scopes::platform(),
        expires_at,
    };
    for name in ["", "x\n2026 ERROR fake\u{1b}[31m", &"x".repeat(201)] {
        let error = fixture.keys.create(new_key(name, None)).await.unwrap_err();
        assert!(matches!(error, KeyError::BadName), "{name:?}: {error}");
    }
    let error = fixture.keys.create(new_key("app", Some(Millis(Millis::LAST.0 + 1)))).await.unwrap_err();
    assert!(matches!(error, KeyError::TooLate), "{error}");
    let last = fixture.keys.create(new_key("app", Some(Millis::LAST))).await.unwrap();
    assert_eq!(last.info.expires_at.map(Millis::iso).as_deref(), Some("9999-12-30T22:00:00.000Z"));
    let forever = Duration::from_secs(u64::MAX);
    let error = fixture.keys.rotate(&fixture.world.org, last.info.id, forever).await.unwrap_err();
    assert!(matches!(error, KeyError::TooLate), "{error}");
    assert_eq!(fixture.keys.list(&fixture.world.org).await.unwrap().len(), 1, "no other key was created");
}

#[tokio::test]
async fn cached_key_expires_on_time() {
    let fixture = KeyFixture::new().await;
    let text = fixture.create(Some(fixture.clock.now().plus(Duration::from_secs(10)))).await.token.reveal();
    fixture.clock.advance(9_999);
    assert!(fixture.keys.authenticate(&text).await.is_ok());
    fixture.clock.advance(1);
    assert_eq!(fixture.keys.authenticate(&text).await.unwrap_err(), KeyRejection::Expired);
}

#[tokio::test]
async fn revoked_key_stops_within_the_cache_time() {
    let fixture = KeyFixture::new().await;
    let created = fixture.create(None).await;
    let text = created.token.reveal();
    let elsewhere = fixture.keys_of_other_process();
    assert!(elsewhere.authenticate(&text).await.is_ok());
    fixture.clock.advance(1);
    fixture.keys.revoke(&fixture.world.org, created.info.id).await.unwrap();
    assert_eq!(fixture.keys.authenticate(&text).await.unwrap_err(), KeyRejection::Revoked);
    fixture.clock.advance(29_998);
    assert!(elsewhere.authenticate(&text).await.is_ok(), "the key is still cached");
    fixture.clock.advance(1);
    assert_eq!(elsewhere.authenticate(&text).await.unwrap_err(), KeyRejection::Revoked);
    let first = fixture.keys.list(&fixture.world.org).await.unwrap()[0].revoked_at;
    fixture.keys.revoke(&fixture.world.org, created.info.id).await.unwrap();
    assert_eq!(fixture.keys.list(&fixture.world.org).await.unwrap()[0].revoked_at, first);
}

#[tokio::test]
async fn keys_of_a_disabled_organisation_are_denied() {
    let fixture = KeyFixture::new().await;
    let text = fixture.create(None).await.token.reveal();
    orgs::set_disabled(&fixture.world.store, &fixture.world.org, Some(fixture.clock.now())).await.unwrap();
    let denied = fixture.keys_of_other_process().authenticate(&text).await.unwrap_err();
    assert_eq!((denied, denied.status()), (KeyRejection::OrgDisabled, 403));
    orgs::set_disabled(&fixture.world.store, &fixture.world.org, None).await.unwrap();
    assert!(fixture.keys_of_other_process().authenticate(&text).await.is_ok());
}

#[tokio::test]
async fn rotated_key_works_during_the_overlap_only() {
    let fixture = KeyFixture::new().await;
    let old = fixture.create(None).await;
    let new_key =
        fixture.keys.rotate(&fixture.world.org, old.info.id, Duration::from_secs(3_600)).await.unwrap();
    assert_eq!(new_key.info.scopes, old.info.scopes);
    let (old_text, new_text) = (old.token.reveal(), new_key.token.reveal());
    fixture.clock.advance(3_599_999);
    assert!(fixture.keys.authenticate(&old_text).await.is_ok());
    fixture.clock.advance(1);
    assert_eq!(fixture.keys.authenticate(&old_text).await.unwrap_err(), KeyRejection::Expired);
    assert!(fixture.keys.authenticate(&new_text).await.is_ok());
    let error = fixture.keys.rotate(&fixture.world.org, old.info.id, Duration::ZERO).await.unwrap_err();
    assert_eq!(error.tag(), "key_ended");
}

#[tokio::test]
async fn rotated_key_keeps_the_original_expiry() {
    let fixture = KeyFixture::new().await;
    for end in [None, Some(Millis(fixture.clock.clock()().0 + 1_000))] {
        let old = fixture.create(end).await;
        let new_key =
            fixture.keys.rotate(&fixture.world.org, old.info.id, Duration::from_secs(3_600)).await.unwrap();
        assert_eq!(new_key.info.expires_at, end);
    }
}

#[tokio::test]
async fn organisations_cannot_access_keys_of_others() {
    let fixture = KeyFixture::new().await;
    let other_org = OrgId::new("other");
    orgs::create(&fixture.world.store, &other_org, "Other", Millis(1)).await.unwrap();
    let created = fixture.create(None).await;
    assert_eq!(fixture.keys.revoke(&other_org, created.info.id).await.unwrap_err().tag(), "key_no_such_key");
    assert_eq!(fixture.keys.list(&other_org).await.unwrap(), []);
    assert!(fixture.keys.authenticate(&created.token.reveal()).await.is_ok());
}

#[tokio::test]
async fn key_use_is_stored_once_per_minute() {
    let fixture = KeyFixture::new().await;
    let text = fixture.create(None).await.token.reveal();
    let last_use = async || fixture.keys.list(&fixture.world.org).await.unwrap()[0].last_used_at;
    assert_eq!(last_use().await, None);
    let first = fixture.clock.now();
    fixture.keys.authenticate(&text).await.unwrap();
    eventually("the use to be stored", PATIENCE, async || last_use().await.filter(|at| *at == first))
        .await
        .unwrap();
    fixture.clock.advance(59_999);
    fixture.keys.authenticate(&text).await.unwrap();
    fixture.clock.advance(1);
    fixture.keys.authenticate(&text).await.unwrap();
    let last = fixture.clock.now();
    eventually("the later use to be stored", PATIENCE, async || last_use().await.filter(|at| *at == last))
        .await
        .unwrap();
}

#[tokio::test]
async fn store_contains_no_secret_of_a_key() {
    let fixture = KeyFixture::new().await;
    let text = fixture.create(None).await.token.reveal();
    let secret = text.split('_').nth(3).unwrap().to_owned();
    assert!(fixture.keys.authenticate(&text).await.is_ok());
    fixture.world.store.close().await.unwrap();
    let bytes = crate::secrets::all_bytes(fixture.world.folder.path());
    let raw: Vec<u8> =
        (0..64).step_by(2).map(|at| u8::from_str_radix(&secret[at..at + 2], 16).unwrap()).collect();
    assert!(
        !crate::secrets::contains_bytes(&bytes, secret.as_bytes())
            && !crate::secrets::contains_bytes(&bytes, &raw)
    );
    let id = text.split('_').nth(2).unwrap();
    let id = uuid::Uuid::parse_str(id).unwrap();
    assert!(crate::secrets::contains_bytes(&bytes, id.as_bytes()), "the search finds existing bytes");
}

#[tokio::test]
async fn repeated_rotation_to_one_id_creates_one_key() {
    let fixture = KeyFixture::new().await;
    let (org, old, new_id) = (&fixture.world.org, fixture.create(None).await, ApiKeyId::random());
    let overlap = Duration::from_secs(3_600);
    let new_key = fixture.keys.rotate_once(org, old.info.id, new_id, overlap).await.unwrap();
    assert_eq!(new_key.info.id, new_id);
    let error =
        fixture.keys_of_other_process().rotate_once(org, old.info.id, new_id, overlap).await.unwrap_err();
    assert!(matches!(error, KeyError::Exists), "{error}");
    assert_eq!(fixture.keys.list(org).await.unwrap().iter().filter(|key| key.id == new_id).count(), 1);
    fixture.keys.authenticate(&new_key.token.reveal()).await.unwrap();

    // The first attempt crashed between creating the new key and expiring the old one.
    let (unexpired_key, new_id) = (fixture.create(None).await, ApiKeyId::random());
    let properties =
        NewKey { org: org.clone(), name: "app".to_owned(), scopes: Scopes::platform(), expires_at: None };
    fixture.keys.create_once(new_id, properties.clone()).await.unwrap();
    assert!(fixture.keys.rotate_once(org, unexpired_key.info.id, new_id, Duration::ZERO).await.is_err());
    assert_eq!(fixture.keys.authenticate(&unexpired_key.token.reveal()).await, Err(KeyRejection::Expired));
    assert!(matches!(fixture.keys.create_once(new_id, properties).await, Err(KeyError::Exists)));
}

#[tokio::test]
async fn key_rotates_once_and_its_successor_does_not_expire() {
    let fixture = KeyFixture::new().await;
    let (org, old) = (&fixture.world.org, fixture.create(None).await);
    let overlap = Duration::from_secs(3_600);
    let successor = fixture.keys.rotate(org, old.info.id, overlap).await.unwrap();
    assert_eq!(successor.info.expires_at, None);
    // The client repeats the request after a lost response.
    let error = fixture.keys.rotate(org, old.info.id, overlap).await.unwrap_err();
    assert!(matches!(error, KeyError::Rotated), "{error}");
    let next = fixture.keys.rotate(org, successor.info.id, overlap).await.unwrap();
    assert_eq!(next.info.expires_at, None);
}

#[tokio::test]
async fn caller_is_found_by_key_id_until_the_key_ends() {
    let fixture = KeyFixture::new().await;
    let created = fixture.create(Some(fixture.clock.now().plus(Duration::from_secs(60)))).await;
    let holder = fixture.keys.caller_of_key(created.info.id).await.unwrap();
    assert_eq!(holder, fixture.keys.authenticate(&created.token.reveal()).await.unwrap());
    assert_eq!(fixture.keys.caller_of_key(ApiKeyId::random()).await, Err(KeyRejection::Unknown));
    fixture.clock.advance(60_000);
    assert_eq!(fixture.keys.caller_of_key(created.info.id).await, Err(KeyRejection::Expired));
    let revoked = fixture.create(None).await.info.id;
    fixture.keys.revoke(&fixture.world.org, revoked).await.unwrap();
    assert_eq!(fixture.keys.caller_of_key(revoked).await, Err(KeyRejection::Revoked));
}

/// Rotates a new key from eight tasks at once, thirty times, and requires one winner each time.
async fn rotate_concurrently(world: &World, overlap: Duration) {
    const ROUNDS: usize = 30;
    // With two processes, a lock within one of them is not enough.
    let keys =
        [Keys::new(world.store.clone(), &world.settings), Keys::new(world.store.clone(), &world.settings)];
    for round in 0..ROUNDS {
        let new_key = NewKey {
            org: world.org.clone(),
            name: "app".to_owned(),
            scopes: Scopes::platform(),
            expires_at: None,
        };
        let old = keys[0].create(new_key).await.unwrap();
        let keys_before = keys[0].list(&world.org).await.unwrap().len();
        let rotations: Vec<_> = (0..8)
            .map(|task| {
                let (keys, org, id) = (keys[task % 2].clone(), world.org.clone(), old.info.id);
                tokio::spawn(async move { keys.rotate(&org, id, overlap).await })
            })
            .collect();
        let mut new_keys = Vec::new();
        for rotation in rotations {
            match rotation.await.unwrap() {
                Ok(created) => new_keys.push(created),
                // `Exists` is the answer to the first rotation if another one inserts the key in its place.
                Err(KeyError::Rotated | KeyError::Ended | KeyError::Exists) => {}
                Err(error) => panic!("round {round}: {error}"),
            }
        }
        assert_eq!(new_keys.len(), 1, "round {round}");
        keys[1].authenticate(&new_keys[0].token.reveal()).await.unwrap();
        let listed_keys = keys[0].list(&world.org).await.unwrap();
        assert_eq!(listed_keys.len(), keys_before + 1, "round {round}: no key is left over");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn exactly_one_of_eight_concurrent_rotations_wins() {
    let world = World::new().await;
    rotate_concurrently(&world, Duration::from_secs(3_600)).await;
    rotate_concurrently(&world, Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn exactly_one_of_eight_concurrent_rotations_wins_on_cassandra() {
    let Some(world) = World::on_cql("concurrent rotations").await else { return };
    rotate_concurrently(&world, Duration::from_secs(3_600)).await;
}

#[tokio::test]
async fn next_rotation_completes_a_crashed_one() {
    let fixture = KeyFixture::new().await;
    let (org, end) = (&fixture.world.org, fixture.clock.now().plus(Duration::from_secs(7_200)));
    let old = fixture.create(Some(end)).await;
    // State after a crash between the two writes.
    let (row, lost) = (ApiKey::key(old.info.id), ApiKeyId::random());
    let row = fixture.world.store.get::<ApiKey>(&row).await.unwrap().unwrap();
    let claimed_row = ApiKey {
        expires_at: Some(fixture.clock.now()),
        rotated_at: Some(fixture.clock.now()),
        rotated_to: Some(lost),
        successor_expires_at: row.expires_at,
        ..row.clone()
    };
    fixture.world.store.replace(&claimed_row, row.version).await.unwrap();
    let new_key = fixture.keys_of_other_process().rotate(org, old.info.id, Duration::ZERO).await.unwrap();
    assert_eq!((new_key.info.id, new_key.info.expires_at), (lost, Some(end)));
    fixture.keys.authenticate(&new_key.token.reveal()).await.unwrap();
    assert!(fixture.keys.rotate(org, old.info.id, Duration::ZERO).await.is_err());
}
