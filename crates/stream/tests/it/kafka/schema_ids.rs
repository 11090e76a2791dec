//! Schema ids on Kafka: an unknown id pauses its partition until it is known, and a newer version is read.

use rdkafka::{
    ClientConfig,
    producer::{FutureProducer, FutureRecord},
};
use tidegate_schemas::{
    ids::{ConfigVersion, Millis, OrgId, SubmissionId},
    records::{Items, Record as _, Source},
};
use tidegate_stream::{Topic, error::StoppedPartition, schema_registry::RegistrySettings, topics::Partition};
use tidegate_test_support::{PATIENCE, servers};
use tokio::time::timeout;

use super::fixture::{Installation, append, close, consume, next, numbers, settings};
use crate::support::{complete, receive, value};

#[path = "../../../src/schema_registry/fake.rs"]
#[allow(dead_code, reason = "the unit tests use the rest")]
mod fake;

/// Writes a record as another program would.
async fn write(installation: &Installation, partition: Partition, id: u32, datum: &[u8]) {
    let brokers = installation.settings.kafka.brokers.join(",");
    let producer: FutureProducer = ClientConfig::new().set("bootstrap.servers", brokers).create().unwrap();
    let framed = [&[0][..], &id.to_be_bytes(), datum].concat();
    let topic = partition.topic.name(&installation.settings.prefix);
    let record = FutureRecord::to(&topic)
        .partition(i32::try_from(partition.index).unwrap())
        .key("key")
        .payload(&framed);
    producer.send(record, PATIENCE).await.unwrap();
}

fn items() -> Items {
    Items {
        org: OrgId::from("o1"),
        config_version: ConfigVersion(7),
        source: Source::Api,
        received_at: Millis(1),
        request_id: SubmissionId::random().to_string(),
        report_id: None,
        items: Vec::new(),
    }
}

/// The next version's schema, and its datum for the same record: the added string at the end.
fn build_newer_datum(record: &Items) -> (String, Vec<u8>) {
    let mut schema: serde_json::Value = serde_json::from_str(Items::SCHEMA).unwrap();
    let field = serde_json::json!({ "name": "added_later", "type": "string", "default": "" });
    schema["fields"].as_array_mut().unwrap().push(field);
    let mut datum = Vec::new();
    record.encode(&mut datum);
    datum.extend_from_slice(b"\x06new");
    (schema.to_string(), datum)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_schema_pauses_its_partition_until_it_is_known() {
    let Some(brokers) = servers::kafka("kafka: unknown schema") else { return };
    let fake = fake::FakeRegistry::start().await;
    let mut settings = settings(&brokers);
    settings.schema_registry =
        Some(RegistrySettings { url: fake.url.clone(), retry_ms: 20, ..RegistrySettings::default() });
    let installation = Installation::with(settings).await;
    let log = installation.open().await;
    let (paused_partition, other_partition) =
        (Partition::new(Topic::Items, 0), Partition::new(Topic::Items, 1));
    let record = items();
    let (schema, datum) = build_newer_datum(&record);
    append(&log, paused_partition, numbers(0..1)).await;
    write(&installation, paused_partition, 9, &datum).await;
    append(&log, paused_partition, numbers(1..5)).await;
    append(&log, other_partition, numbers(5..6)).await;

    let mut inbox = consume(&log, Topic::Items);
    let mut early_records: Vec<_> = receive(&mut inbox, 2).await.into_iter().collect();
    early_records.sort_by_key(value);
    assert_eq!(early_records.iter().map(value).collect::<Vec<_>>(), ["000000", "000005"]);
    complete(early_records);
    let mut ownership = inbox.ownership();
    let stopped =
        timeout(PATIENCE, ownership.wait_for(|state| !state.stopped.is_empty())).await.unwrap().unwrap();
    assert!(
        matches!(stopped.stopped[..], [StoppedPartition::UnknownSchema { schema: 9, .. }]),
        "{stopped:?}"
    );
    drop(stopped);
    assert!(log.readiness().is_ready(), "an upgrade in progress is no outage");

    // The registry is unreachable meanwhile, which is an outage and still no poison record.
    fake.state.lock().unwrap().status = Some(503);
    let unready = async || (!log.readiness().is_ready()).then_some(());
    tidegate_test_support::eventually("not ready", PATIENCE, unready).await.unwrap();
    fake.add_schema(9, &schema);
    fake.state.lock().unwrap().status = None;
    let late_records = receive(&mut inbox, 5).await;
    assert_eq!(Items::decode(&late_records[0].value).unwrap(), record, "in the reader's schema");
    assert_eq!(late_records[1..].iter().map(value).collect::<Vec<_>>(), numbers(1..5).collect::<Vec<_>>());
    complete(late_records);
    assert!(inbox.ownership().borrow().stopped.is_empty());
    assert!(log.readiness().is_ready());
    close(&log).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_read_each_other_through_a_real_registry() {
    let Some(brokers) = servers::kafka("kafka: real registry") else { return };
    let Some(url) = servers::registry("kafka: real registry") else { return };
    let mut settings = settings(&brokers);
    settings.schema_registry = Some(RegistrySettings { url: url.clone(), ..RegistrySettings::default() });
    let installation = Installation::with(settings).await;
    let log = installation.open().await;
    let partition = Partition::new(Topic::Items, 0);
    let (record, next_one) = (items(), items());
    let mut datum = Vec::new();
    record.encode(&mut datum);
    log.append(&[(partition, tidegate_stream::Record::new(b"key", datum))]).await.unwrap();

    // A newer program registers its version under the same subject, and writes with it.
    let (schema, datum) = build_newer_datum(&next_one);
    let subject = format!("{}-value", Topic::Items.name(&installation.settings.prefix));
    #[expect(clippy::disallowed_methods, reason = "the test's own registry")]
    let client = reqwest::Client::new();
    let answer: serde_json::Value = client
        .post(format!("{url}/subjects/{subject}/versions"))
        .header("content-type", "application/vnd.schemaregistry.v1+json")
        .body(serde_json::json!({ "schema": schema }).to_string())
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    let id = u32::try_from(answer["id"].as_u64().unwrap()).unwrap();
    write(&installation, partition, id, &datum).await;

    let mut inbox = consume(&log, Topic::Items);
    let mut records = next(&mut inbox).await;
    while records.len() < 2 {
        records.extend(next(&mut inbox).await);
    }
    let decoded: Vec<_> = records.iter().map(|received| Items::decode(&received.value).unwrap()).collect();
    assert_eq!(decoded, [record, next_one]);
    complete(records);
    close(&log).await;
}
