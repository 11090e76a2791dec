//! TLS and passwords, in builds with the feature: trusted certificates and the errors for others.

use std::{collections::BTreeSet, path::Path};

use tidegate_stream::{
    Log, Topic, consumer::inbox::DrainResult, error::OpenError, kafka, settings::Settings, topics::Partition,
};
use tidegate_test_support::{OwnServer, PATIENCE, Proxy, eventually, servers};

use super::fixture::{Installation, append, close, consume, next, numbers, settings, wait_for_ownership};
use crate::support::{complete, receive, value};

/// Returns settings for the same topics through listeners that speak TLS.
fn through(installation: &Settings, brokers: &str, keys: &[(&str, &str)]) -> Settings {
    let mut settings = installation.clone();
    settings.kafka.brokers = brokers.split(',').map(str::to_owned).collect();
    settings.kafka.open_timeout_ms = 15_000;
    for (key, value) in keys {
        settings.kafka.librdkafka.0.insert((*key).to_owned(), (*value).to_owned());
    }
    settings
}

fn file(certificates: &Path, name: &str) -> String {
    certificates.join(name).display().to_string()
}

async fn expect_open_error(settings: Settings) -> OpenError {
    let error = Log::open_kafka(settings).await.map(drop).unwrap_err();
    assert!(!error.is_outage(), "{error}");
    error
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_appended_read_and_taken_over_through_tls() {
    let case = "kafka: tls";
    let Some(plain) = servers::kafka(case) else { return };
    let (Some(brokers), Some(certificates)) = (servers::kafka_tls(case), servers::certificates(case)) else {
        return;
    };
    let installation = Installation::on(&plain).await;
    let authority = file(&certificates, "ca.pem");
    let keys = [("security.protocol", "SSL"), ("ssl.ca.location", authority.as_str())];
    let settings = through(&installation.settings, &brokers, &keys);
    let report = kafka::create_topics(&settings).await.unwrap();
    assert_eq!((report.created.len(), report.existing.len()), (0, Topic::ALL.len()));

    let first = Log::open_kafka(settings.clone()).await.unwrap();
    for index in 0..2 {
        append(&first, Partition::new(Topic::Strikes, index), numbers(0..100)).await;
    }
    let mut old_inbox = consume(&first, Topic::Strikes);
    complete(receive(&mut old_inbox, 200).await);
    let second = Log::open_kafka(settings).await.unwrap();
    let mut new_inbox = consume(&second, Topic::Strikes);
    wait_for_ownership(&new_inbox, 1).await;
    wait_for_ownership(&old_inbox, 1).await;
    assert_eq!(close(&first).await, DrainResult::Clean);
    wait_for_ownership(&new_inbox, 2).await;
    for index in 0..2 {
        append(&second, Partition::new(Topic::Strikes, index), [format!("late {index}")]).await;
    }
    let records = receive(&mut new_inbox, 2).await;
    let late_values: BTreeSet<_> = records.iter().map(value).collect();
    assert_eq!(late_values, BTreeSet::from(["late 0".to_owned(), "late 1".to_owned()]));
    complete(records);
    assert_eq!(close(&second).await, DrainResult::Clean);
}

#[tokio::test(flavor = "multi_thread")]
async fn untrusted_or_mismatched_certificate_is_refused_by_name() {
    let case = "kafka: strangers";
    let (Some(brokers), Some(certificates)) = (servers::kafka_tls(case), servers::certificates(case)) else {
        return;
    };
    let stranger = file(&certificates, "stranger.pem");
    let keys = [("security.protocol", "SSL"), ("ssl.ca.location", stranger.as_str())];
    let error = expect_open_error(through(&settings(&brokers), &brokers, &keys)).await;
    assert!(error.to_string().contains("verif"), "{error}");
    // By default the authorities of the system are used, and none of them signed the certificate.
    let error = expect_open_error(through(&settings(&brokers), &brokers, &keys[..1])).await;
    assert!(error.to_string().contains("verif"), "{error}");

    // Other systems have a single loopback address.
    if cfg!(target_os = "linux") {
        let first = brokers.split(',').next().unwrap();
        let elsewhere = Proxy::at("127.0.0.2", first).await.unwrap();
        let authority = file(&certificates, "ca.pem");
        let keys = [("security.protocol", "SSL"), ("ssl.ca.location", authority.as_str())];
        let error =
            expect_open_error(through(&settings(&brokers), &elsewhere.address().to_string(), &keys)).await;
        assert!(error.to_string().contains("certificate"), "{error}");
    }
}

/// The broker may also be starting, so it counts as unreachable; the error contains the reason.
#[tokio::test(flavor = "multi_thread")]
async fn tls_mismatch_is_reported_with_its_reason() {
    let case = "kafka: one side";
    let Some(plain) = servers::kafka(case) else { return };
    let (Some(brokers), Some(certificates)) = (servers::kafka_tls(case), servers::certificates(case)) else {
        return;
    };
    let authority = file(&certificates, "ca.pem");
    let keys = [("security.protocol", "SSL"), ("ssl.ca.location", authority.as_str())];
    for (brokers, keys, named) in [(plain, &keys[..], "PLAINTEXT broker"), (brokers, &keys[..0], "want TLS")]
    {
        let mut settings = through(&settings(&brokers), &brokers, keys);
        settings.kafka.open_timeout_ms = 2_000;
        let error = Log::open_kafka(settings).await.map(drop).unwrap_err();
        assert!(error.to_string().contains(named), "{error}");
    }
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let garbage = file(folder.path(), "garbage.pem");
    std::fs::write(&garbage, "no certificate").unwrap();
    let missing = file(folder.path(), "missing.pem");
    for key in ["ssl.ca.location", "ssl.certificate.location", "ssl.key.location"] {
        for path in [&missing, &garbage] {
            let keys = [("security.protocol", "SSL"), (key, path.as_str())];
            let error = expect_open_error(through(&settings("127.0.0.1:1"), "127.0.0.1:1", &keys)).await;
            assert!(matches!(error, OpenError::Settings(_)), "{error}");
            assert!(error.to_string().contains(key) && error.to_string().contains(path), "{error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_right_password_opens_and_a_wrong_one_is_refused_by_name() {
    let case = "kafka: passwords";
    let Some(plain) = servers::kafka(case) else { return };
    let (Some(brokers), Some(certificates)) = (servers::kafka_sasl(case), servers::certificates(case)) else {
        return;
    };
    let installation = Installation::on(&plain).await;
    let authority = file(&certificates, "ca.pem");
    for mechanism in ["SCRAM-SHA-512", "PLAIN"] {
        let keys = [
            ("security.protocol", "SASL_SSL"),
            ("ssl.ca.location", authority.as_str()),
            ("sasl.mechanism", mechanism),
            ("sasl.username", "tidegate"),
        ];
        let with = |password: &str| {
            let mut settings = through(&installation.settings, &brokers, &keys);
            settings.kafka.librdkafka.0.insert("sasl.password".to_owned(), password.to_owned());
            settings
        };
        let log = Log::open_kafka(with("tidegate-test")).await.unwrap();
        append(&log, Partition::new(Topic::Strikes, 0), [mechanism.to_owned()]).await;
        let mut inbox = consume(&log, Topic::Strikes);
        let records = next(&mut inbox).await;
        assert_eq!(records.iter().map(value).collect::<Vec<_>>(), [mechanism]);
        complete(records);
        assert_eq!(close(&log).await, DrainResult::Clean);

        let error = expect_open_error(with("mistaken")).await;
        assert!(matches!(error, OpenError::Refused { .. }), "{error}");
        assert!(error.to_string().to_lowercase().contains("authentication"), "{mechanism}: {error}");
        assert!(!error.to_string().contains("mistaken"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broker_with_client_certificates_is_found_after_a_kill() {
    let case = "kafka: tls, broker killed";
    if servers::kafka_tls(case).is_none() {
        return;
    }
    let server =
        OwnServer::start("kafka", &[("KAFKA_SETTINGS", "listener.name.tls.ssl.client.auth=required")]);
    let server = server.await.unwrap();
    let brokers = server.told("TIDEGATE_TEST_KAFKA_TLS").await.unwrap();
    let certificates = server.told("TIDEGATE_TEST_TLS").await.unwrap();
    let [authority, certificate, key] =
        ["ca.pem", "client.pem", "client.key"].map(|name| file(Path::new(&certificates), name));
    let keys = [
        ("security.protocol", "SSL"),
        ("ssl.ca.location", authority.as_str()),
        ("ssl.certificate.location", certificate.as_str()),
        ("ssl.key.location", key.as_str()),
    ];
    let settings = settings(&brokers);
    let error = Log::open_kafka(through(&settings, &brokers, &keys[..2])).await.map(drop).unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");

    let installation = Installation::passing(through(&settings, &brokers, &keys));
    kafka::create_topics(&installation.settings).await.unwrap();
    let log = installation.open().await;
    append(&log, Partition::new(Topic::Strikes, 0), ["before".to_owned()]).await;
    let mut inbox = consume(&log, Topic::Strikes);
    let records = next(&mut inbox).await;
    assert_eq!(records.iter().map(value).collect::<Vec<_>>(), ["before"]);
    complete(records);
    server.kill().await.unwrap();
    eventually("not ready", PATIENCE, async || (!log.readiness().is_ready()).then_some(())).await.unwrap();
    server.start_again().await.unwrap();
    eventually("ready", PATIENCE, async || log.readiness().is_ready().then_some(())).await.unwrap();
    append(&log, Partition::new(Topic::Strikes, 0), ["after".to_owned()]).await;
    loop {
        let records = next(&mut inbox).await;
        let texts: Vec<_> = records.iter().map(value).collect();
        complete(records);
        if texts.contains(&"after".to_owned()) {
            break;
        }
    }
    assert_eq!(close(&log).await, DrainResult::Clean);
}
