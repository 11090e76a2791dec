//! Against a registry of a few lines, and the real one where it is named.

use tidegate_schemas::records::{Record, Strike};
use tidegate_test_support::{PATIENCE, eventually, servers};

use super::{fake::FakeRegistry, *};

fn settings(url: &str) -> RegistrySettings {
    RegistrySettings { url: url.to_owned(), retry_ms: 10, retry_max_ms: 40, ..RegistrySettings::default() }
}

async fn found(registry: &SchemaRegistry, id: u32) -> Arc<WriterSchema> {
    eventually("the schema", PATIENCE, async || registry.get(id)).await.unwrap()
}

#[tokio::test]
async fn a_schema_is_registered_once_and_found_by_its_id() {
    let fake = FakeRegistry::start().await;
    let registry = SchemaRegistry::new(&settings(&fake.url)).unwrap();
    let id = registry.register("t.strikes-value", Strike::SCHEMA).await.unwrap();
    assert_eq!(registry.register("t.strikes-value", Strike::SCHEMA).await, Ok(id));
    assert!(matches!(&*found(&registry, id).await, WriterSchema::Avro(_)));
    let requests = fake.state.lock().unwrap().requests.clone();
    assert_eq!(requests[0].1, "/apis/x/subjects/t.strikes-value/versions");
    assert!(requests[0].2.contains(&format!("content-type: {CONTENT_TYPE}")), "{}", requests[0].2);
}

#[tokio::test]
async fn many_callers_cause_one_look_up_and_later_ones_none() {
    let fake = FakeRegistry::start().await;
    fake.add_schema(7, Strike::SCHEMA);
    let registry = SchemaRegistry::new(&settings(&fake.url)).unwrap();
    for _ in 0..100 {
        assert!(registry.get(7).is_none(), "no look-up runs before we wait");
    }
    found(&registry, 7).await;
    for _ in 0..100 {
        assert!(registry.get(7).is_some());
    }
    assert_eq!(fake.requests_of("/apis/x/schemas/ids/7"), 1);
}

#[tokio::test]
async fn missing_schema_is_found_after_its_registration() {
    let fake = FakeRegistry::start().await;
    let registry = SchemaRegistry::new(&settings(&fake.url)).unwrap();
    assert!(registry.get(7).is_none());
    eventually("a look-up", PATIENCE, async || (fake.requests_of("/apis/x/schemas/ids/7") > 0).then_some(()))
        .await
        .unwrap();
    assert_eq!(registry.outage(), None, "an upgrade in progress is no outage");
    fake.add_schema(7, Strike::SCHEMA);
    found(&registry, 7).await;
}

#[tokio::test]
async fn failing_registry_is_an_outage_and_is_retried() {
    let fake = FakeRegistry::start().await;
    fake.add_schema(7, Strike::SCHEMA);
    fake.state.lock().unwrap().status = Some(503);
    let registry = SchemaRegistry::new(&settings(&fake.url)).unwrap();
    assert!(registry.get(7).is_none());
    let outage = eventually("the outage", PATIENCE, async || registry.outage()).await.unwrap();
    assert_eq!(outage.tag(), "registry_unreachable");
    fake.state.lock().unwrap().status = Some(401);
    let denied = async || registry.outage().filter(|outage| outage.tag() == "registry_denied");
    eventually("the refusal", PATIENCE, denied).await.unwrap();
    fake.state.lock().unwrap().status = None;
    // No caller repeats the look-up: it goes on by itself.
    eventually("the end of the outage", PATIENCE, async || registry.outage().is_none().then_some(()))
        .await
        .unwrap();
    found(&registry, 7).await;
}

#[tokio::test]
async fn a_schema_of_another_kind_is_known_as_foreign() {
    let fake = FakeRegistry::start().await;
    for (id, schema) in [
        (1, serde_json::json!({ "schema": "{}", "schemaType": "JSON" })),
        (2, serde_json::json!({ "schema": "\"nonsense\"" })),
        (
            3,
            serde_json::json!({ "schema": Strike::SCHEMA, "references": [{ "name": "a", "subject": "b", "version": 1 }] }),
        ),
    ] {
        fake.state.lock().unwrap().schemas.insert(id, schema);
    }
    let registry = SchemaRegistry::new(&settings(&fake.url)).unwrap();
    for id in 1..=3 {
        assert!(matches!(&*found(&registry, id).await, WriterSchema::Foreign(_)), "{id}");
    }
}

#[tokio::test]
async fn a_refused_schema_shows_the_registrys_text_and_no_address() {
    let fake = FakeRegistry::start().await;
    fake.state.lock().unwrap().status = Some(409);
    let registry = SchemaRegistry::new(&settings(&fake.url)).unwrap();
    let error = registry.register("s", Strike::SCHEMA).await.unwrap_err();
    assert_eq!(error, RegistryError::Refused { status: 409, message: "told to".to_owned() });
    let gone = SchemaRegistry::new(&settings("http://127.0.0.1:1/hidden")).unwrap();
    let error = gone.register("s", Strike::SCHEMA).await.unwrap_err();
    assert_eq!(error.tag(), "registry_unreachable");
    assert!(!error.to_string().contains("hidden"), "{error}");
}

#[tokio::test]
async fn credentials_are_sent_and_may_be_read_from_a_file() {
    let fake = FakeRegistry::start().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("password");
    std::fs::write(&path, "open sesame\n").unwrap();
    let mut settings = settings(&fake.url);
    settings.username = Some("ali".to_owned());
    settings.password_file = Some(path);
    SchemaRegistry::new(&settings).unwrap().register("s", Strike::SCHEMA).await.unwrap();
    let head = fake.state.lock().unwrap().requests[0].2.clone();
    // `ali:open sesame`
    assert!(head.contains("authorization: Basic YWxpOm9wZW4gc2VzYW1l"), "{head}");
    settings.password = Some("sesame".into());
    let error = settings.validate().unwrap_err();
    assert!(error.contains("password_file") && !error.contains("sesame"), "{error}");
}

#[test]
fn url_with_a_user_name_is_refused_and_not_shown() {
    let error = settings("http://ali:sesame@host/").validate().unwrap_err();
    assert!(error.contains("schema_registry.url") && !error.contains("sesame"), "{error}");
    for url in ["ftp://host/", "host", "http://host/?x=1"] {
        assert!(settings(url).validate().is_err(), "{url}");
    }
    let shown =
        format!("{:?}", RegistrySettings { password: Some("sesame".into()), ..RegistrySettings::default() });
    assert!(!shown.contains("sesame"), "{shown}");
}

#[tokio::test]
async fn real_registry_stores_and_returns_our_schemas() {
    let Some(url) = servers::registry("stream: schema registry") else { return };
    let registry = SchemaRegistry::new(&settings(&url)).unwrap();
    let subject = format!("test-{}-value", tidegate_schemas::ids::SubmissionId::random());
    let id = registry.register(&subject, Strike::SCHEMA).await.unwrap();
    assert_eq!(registry.register(&subject, Strike::SCHEMA).await, Ok(id));
    let WriterSchema::Avro(schema) = &*found(&registry, id).await else { panic!("it is Avro") };
    assert_eq!(schema.canonical_form(), Schema::parse_str(Strike::SCHEMA).unwrap().canonical_form());
    let unknown = registry.inner.client.by_id(u32::MAX >> 1).await.map(|_| ());
    assert_eq!(unknown, Err(RegistryError::NotFound));
}
