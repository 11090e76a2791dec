//! TLS to the nodes, in builds with the feature: trusted certificates and the errors for others.

use std::{fs, path::Path};

use tidegate_store::{Error, Migration, Row as _, Store, Table, WriteTime, cql};
use tidegate_test_support::{OwnServer, Proxy, eventually_ok, servers};

use crate::{
    facts::event,
    fixture::{Fixture, MINUTE, connect, settings, table},
    tables::{Counter, Event},
    versioned::counter,
};

/// Store on the port without TLS, and settings for the same tables on the TLS port.
struct TlsFixture {
    fixture: Fixture,
    plain: cql::Settings,
    secured: cql::Settings,
}

fn tables() -> [&'static Table; 2] {
    [table::<Counter>(), table::<Event>()]
}

async fn open_tls_fixture(case: &str) -> Option<TlsFixture> {
    let address = servers::cql_tls(case)?;
    let certificates = servers::certificates(case)?;
    let fixture = Fixture::cql(case, &tables()).await?;
    let plain = fixture.settings().unwrap().clone();
    let secured =
        cql::Settings { contact_points: vec![address], tls: trusting(&certificates, "ca"), ..plain.clone() };
    Some(TlsFixture { fixture, plain, secured })
}

fn trusting(certificates: &Path, authority: &str) -> Option<cql::Tls> {
    Some(cql::Tls {
        ca_file: certificates.join(authority).with_extension("pem"),
        certificate_file: None,
        key_file: None,
    })
}

async fn expect_open_error(settings: &cql::Settings) -> Error {
    Store::open_cql(settings.clone()).await.map(drop).unwrap_err()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_written_over_tls_are_read_by_all_clients() {
    let Some(TlsFixture { fixture, secured, .. }) = open_tls_fixture("tls").await else { return };
    let store = connect(&secured, &tables()).await;
    let rows = [event(1, "p", None), event(2, "q", Some("n"))];
    store.put_rows(WriteTime(1), &rows).await.unwrap();
    assert!(store.insert_new(&counter("c", 3)).await.unwrap().is_new());
    for store in [&store, &fixture.store] {
        for row in &rows {
            assert_eq!(store.get::<Event>(&row.to_key()).await.unwrap().as_ref(), Some(row));
        }
        assert!(store.get::<Counter>(&counter("c", 0).to_key()).await.unwrap().is_some());
    }
    store.close().await.unwrap();
    fixture.end().await;
}

/// An untrusted certificate needs an operator, so it is no outage.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn untrusted_or_mismatched_certificate_is_refused_by_name() {
    let Some(TlsFixture { fixture, secured, .. }) = open_tls_fixture("tls: strangers").await else { return };
    let certificates = servers::certificates("tls: strangers").unwrap();
    let strange = cql::Settings { tls: trusting(&certificates, "stranger"), ..secured.clone() };
    let error = expect_open_error(&strange).await;
    assert!(!error.is_outage() && error.to_string().contains("tidegate test"), "{error}");
    assert!(error.to_string().contains("is refused: unable to get local issuer certificate"), "{error}");

    // Other systems have a single loopback address.
    if cfg!(target_os = "linux") {
        let elsewhere = Proxy::at("127.0.0.2", secured.contact_points[0].clone()).await.unwrap();
        let moved_settings =
            cql::Settings { contact_points: vec![elsewhere.address().to_string()], ..secured };
        let error = expect_open_error(&moved_settings).await;
        assert!(
            !error.is_outage() && error.to_string().contains("is refused: IP address mismatch"),
            "{error}"
        );
    }
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_mismatch_is_reported_with_its_reason() {
    let Some(TlsFixture { fixture, plain, secured }) = open_tls_fixture("tls: one side").await else {
        return;
    };
    let error = expect_open_error(&cql::Settings { tls: secured.tls.clone(), ..plain.clone() }).await;
    assert!(!error.is_outage() && error.to_string().contains("speaks no TLS"), "{error}");
    // The node may also be starting, so it counts as unreachable; the error contains a hint.
    let error = expect_open_error(&cql::Settings { tls: None, ..secured }).await;
    assert!(error.to_string().contains("speak TLS alone"), "{error}");
    fixture.end().await;
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named() {
    let Some(certificates) = servers::certificates("tls: files") else { return };
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("garbage.pem"), "no certificate").unwrap();
    let valid_file = |name: &str| certificates.join(name);
    let invalid_file = |name: &str| folder.path().join(name);
    for (ca_file, ours, named) in [
        (invalid_file("missing.pem"), None, "tls.ca_file"),
        (invalid_file("garbage.pem"), None, "tls.ca_file"),
        (
            valid_file("ca.pem"),
            Some((invalid_file("missing.pem"), valid_file("client.key"))),
            "tls.certificate_file",
        ),
        (
            valid_file("ca.pem"),
            Some((invalid_file("garbage.pem"), valid_file("client.key"))),
            "tls.certificate_file",
        ),
        (valid_file("ca.pem"), Some((valid_file("client.pem"), invalid_file("missing.pem"))), "tls.key_file"),
        (valid_file("ca.pem"), Some((valid_file("client.pem"), invalid_file("garbage.pem"))), "tls.key_file"),
        (valid_file("ca.pem"), Some((valid_file("client.pem"), valid_file("server.key"))), "tls.key_file"),
    ] {
        let (certificate_file, key_file) = ours.unzip();
        let at_fault = match named {
            "tls.ca_file" => ca_file.clone(),
            "tls.key_file" => key_file.clone().unwrap(),
            _ => certificate_file.clone().unwrap(),
        };
        let tls = Some(cql::Tls { ca_file, certificate_file, key_file });
        let error = expect_open_error(&cql::Settings { tls, ..settings("127.0.0.1:1") }).await;
        assert!(matches!(error, Error::Settings(_)), "{error}");
        assert!(error.to_string().contains(&format!("{named} {}: ", at_fault.display())), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_with_client_certificates_is_found_again_after_a_kill() {
    if servers::cql_tls("tls: node killed").is_none() {
        return;
    }
    let server =
        OwnServer::start("cassandra", &[("CASSANDRA_CLIENT_AUTH", "true"), ("CASSANDRA_HEAP", "640m")]);
    let server = server.await.unwrap();
    let certificates = server.told("TIDEGATE_TEST_TLS").await.unwrap();
    let certificates = Path::new(&certificates);
    let address = server.told("TIDEGATE_TEST_CQL_TLS").await.unwrap();
    let without_certificate = cql::Settings { tls: trusting(certificates, "ca"), ..settings(&address) };
    let error = expect_open_error(&without_certificate).await;
    assert!(error.to_string().contains("certificate of ours"), "{error}");

    let client_tls = cql::Tls {
        certificate_file: Some(certificates.join("client.pem")),
        key_file: Some(certificates.join("client.key")),
        ..without_certificate.tls.clone().unwrap()
    };
    let store = connect(&cql::Settings { tls: Some(client_tls), ..without_certificate }, &tables()).await;
    store.migrate(Migration::Expand).await.unwrap();
    let row = event(1, "p", None);
    store.put_rows(WriteTime(1), std::slice::from_ref(&row)).await.unwrap();
    server.kill().await.unwrap();
    let fault = store.get::<Event>(&row.to_key()).await.unwrap_err();
    assert!(fault.is_outage(), "{fault}");
    server.start_again().await.unwrap();
    eventually_ok("the store to be back", MINUTE, async || Ok(store.ping().await?)).await.unwrap();
    store.put_rows(WriteTime(1), &[event(2, "q", None)]).await.unwrap();
    assert!(store.get::<Event>(&event(2, "q", None).to_key()).await.unwrap().is_some());
    store.close().await.unwrap();
}
