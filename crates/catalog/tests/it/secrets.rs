use std::path::Path;

use bytes::Bytes;
use tidegate_catalog::{MasterKey, Secrets, secrets::SecretError};
use tidegate_schemas::ids::EndpointId;
use tidegate_store::{ReplaceOutcome, tables::catalog::secrets::EndpointSecret};

use crate::support::{POST, World, change, open};

pub(crate) fn all_bytes(folder: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            bytes.extend(all_bytes(&path));
        } else if path.file_name().is_some_and(|name| name != "lock") {
            bytes.extend(std::fs::read(&path).unwrap());
        }
    }
    bytes
}

pub(crate) fn contains_bytes(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn platform() -> EndpointId {
    EndpointId::new("platform")
}

#[tokio::test]
async fn endpoint_keeps_one_secret_which_is_stored_sealed() {
    let world = World::new().await;
    world.apply(POST).await;
    let secrets = world.secrets();
    let secret = secrets.for_endpoint(&world.org, &platform()).await.unwrap().unwrap();
    let text = secrets.reveal(&world.org, &platform()).await.unwrap().unwrap();
    assert_eq!(secret.expose(), text);
    let applied =
        world.changes().apply(&world.org, change(&POST.replace("/callbacks", "/other"))).await.unwrap();
    assert_eq!(applied.new_secrets, []);
    assert!(!format!("{secrets:?}{secret:?}").contains(&text[6..]));

    world.store.close().await.unwrap();
    let World { store, folder, settings, org } = world;
    drop((store, secrets));
    let bytes = all_bytes(&folder.path().join("db"));
    let tail = text.strip_prefix("whsec_").unwrap();
    let raw = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, tail).unwrap();
    assert!(!contains_bytes(&bytes, tail.as_bytes()) && !contains_bytes(&bytes, &raw));
    assert!(contains_bytes(&bytes, b"platform.example"), "the search finds existing bytes");

    let store = open(folder.path());
    let world = World { store, folder, settings, org };
    assert_eq!(world.secrets().reveal(&world.org, &platform()).await.unwrap().unwrap(), text);
}

#[tokio::test]
async fn tampered_or_copied_secret_is_refused() {
    let world = World::new().await;
    world.apply(POST).await;
    world.apply("endpoint: other\nurl: https://other.example/\n").await;
    let key = |endpoint: &str| EndpointSecret::key(world.org.clone(), endpoint);
    let row = world.store.get::<EndpointSecret>(&key("platform")).await.unwrap().unwrap();
    let other_row = world.store.get::<EndpointSecret>(&key("other")).await.unwrap().unwrap();

    let copied = EndpointSecret { sealed: other_row.sealed, ..row.clone() };
    assert_eq!(world.store.replace(&copied, row.version).await.unwrap(), ReplaceOutcome::Done);
    let error = world.secrets().for_endpoint(&world.org, &platform()).await.unwrap_err();
    assert_eq!((error.tag(), error.is_outage()), ("secret_tampered", false));

    let mut tampered_bytes = row.sealed.to_vec();
    tampered_bytes[30] ^= 1;
    let tampered_row = EndpointSecret { sealed: Bytes::from(tampered_bytes), ..row.clone() };
    assert_eq!(world.store.replace(&tampered_row, row.version + 1).await.unwrap(), ReplaceOutcome::Done);
    let error = world.secrets().reveal(&world.org, &platform()).await.unwrap_err();
    assert_eq!(error.tag(), "secret_tampered");
}

#[tokio::test]
async fn secret_under_another_master_key_is_kept() {
    let world = World::new().await;
    world.apply(POST).await;
    let other_secrets = Secrets::new(world.store.clone(), MasterKey::new([1; 32]), &world.settings);
    let error = other_secrets.for_endpoint(&world.org, &platform()).await.unwrap_err();
    assert_eq!(error.tag(), "secret_other_master_key");
    assert!(!other_secrets.ensure_secret(&world.org, &platform()).await.unwrap());
    assert!(world.secrets().for_endpoint(&world.org, &platform()).await.unwrap().is_some());
}

#[tokio::test]
async fn other_master_key_is_refused_unless_first_is_lost() {
    let world = World::new().await;
    let (first, second) = (world.secrets(), MasterKey::new([1; 32]));
    let name = second.id().to_owned();
    let second = Secrets::new(world.store.clone(), second, &world.settings);
    first.claim_store(None).await.unwrap();
    first.claim_store(None).await.unwrap();
    let error = second.claim_store(None).await.unwrap_err();
    let SecretError::OtherKey { sealed_under, at_hand } = &error else { panic!("{error}") };
    assert_eq!((*at_hand == name, *sealed_under == name, error.is_outage()), (true, false, false));
    assert!(error.to_string().contains(sealed_under.as_str()) && error.to_string().contains(&name));
    assert!(second.claim_store(Some(&name)).await.is_err(), "the named key is not the key of the store");
    second.claim_store(Some(sealed_under)).await.unwrap();
    second.claim_store(None).await.unwrap();
    assert_eq!(first.claim_store(None).await.unwrap_err().tag(), "other_master_key");
}

#[tokio::test]
async fn master_key_of_old_data_is_found_in_its_secrets() {
    let world = World::new().await;
    world.apply(POST).await;
    let other_secrets = Secrets::new(world.store.clone(), MasterKey::new([1; 32]), &world.settings);
    assert_eq!(other_secrets.claim_store(None).await.unwrap_err().tag(), "other_master_key");
    world.secrets().claim_store(None).await.unwrap();
    assert_eq!(other_secrets.claim_store(None).await.unwrap_err().tag(), "other_master_key");
}

#[tokio::test]
async fn an_endpoint_without_a_secret_has_none() {
    let world = World::new().await;
    assert!(world.secrets().for_endpoint(&world.org, &platform()).await.unwrap().is_none());
    assert!(world.secrets().reveal(&world.org, &platform()).await.unwrap().is_none());
}

#[tokio::test]
async fn partial_items_secret_of_another_process_is_found() {
    let world = World::new().await;
    let (ours, theirs) = (world.secrets(), world.secrets());
    let absent_secret = ours.for_endpoint(&world.org, &EndpointId::new("@partial-items")).await.unwrap();
    assert!(absent_secret.is_none(), "the first look-up caches the absence");
    let created_secret = theirs.for_partial_items(&world.org).await.unwrap();
    assert_eq!(ours.for_partial_items(&world.org).await.unwrap().expose(), created_secret.expose());
}
