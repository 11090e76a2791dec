//! HTTPS receivers need a valid certificate for their name from a trusted authority.
//! `certificates/make.sh` creates the certificates.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::receiver::{Answers, Receiver, Step, attempt_with, patient, tag, write};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tidegate_egress::callback::Attempt;
use tidegate_egress::{Client, Settings};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/certificates").join(name)
}

/// Answers one request over TLS, on a thread of its own.
fn receiver_with(certificate: &str) -> SocketAddr {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_file(file(certificate)).unwrap()],
            PrivateKeyDer::from_pem_file(file("receiver.key")).unwrap(),
        )
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let session = rustls::ServerConnection::new(Arc::new(config)).unwrap();
        let mut stream = rustls::StreamOwned::new(session, stream);
        // A client that rejects the certificate sends no request.
        if stream.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {
            stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").unwrap();
            stream.conn.send_close_notify();
            stream.flush().unwrap();
        }
    });
    address
}

async fn attempt(settings: Settings, name: &str, address: SocketAddr) -> Attempt {
    let client = Client::with_resolver(settings, Answers::new(&[&["127.0.0.1"]])).unwrap();
    attempt_with(&client, &format!("https://{name}:{}/", address.port())).await.unwrap()
}

fn trusting() -> Settings {
    Settings { ca_file: Some(file("ca.pem")), ..patient() }
}

#[tokio::test]
async fn receiver_with_a_trusted_certificate_is_called() {
    let attempt = attempt(trusting(), "receiver.example", receiver_with("receiver.pem")).await;
    assert_eq!((attempt.outcome.tag(), attempt.http_status, tag(&attempt)), ("delivered", Some(204), None));
}

#[tokio::test]
async fn invalid_certificate_is_a_tls_error_with_reason() {
    for (settings, name, certificate, reason) in [
        (patient(), "receiver.example", "receiver.pem", "UnknownIssuer"),
        (trusting(), "other.example", "receiver.pem", "not valid for"),
        (trusting(), "receiver.example", "expired.pem", "expired"),
    ] {
        let attempt = attempt(settings, name, receiver_with(certificate)).await;
        assert_eq!((attempt.outcome.tag(), tag(&attempt)), ("unreachable", Some("tls_error")), "{reason}");
        let error_text = attempt.error.unwrap().to_string();
        assert!(error_text.contains(reason), "{error_text}");
    }
}

#[tokio::test]
async fn plain_peer_is_tls_error_and_silent_peer_connect_timeout() {
    let plain = Receiver::start(vec![write("HTTP/1.1 400 Bad Request\r\n\r\n"), Step::Hang]).await;
    let plain_attempt = attempt(patient(), "receiver.example", plain.address).await;
    assert_eq!((plain_attempt.outcome.tag(), tag(&plain_attempt)), ("unreachable", Some("tls_error")));

    let silent = Receiver::start(vec![Step::Hang]).await;
    let settings = Settings { connect_timeout_ms: 500, ..patient() };
    let silent_attempt = attempt(settings, "receiver.example", silent.address).await;
    assert_eq!(
        (silent_attempt.outcome.tag(), tag(&silent_attempt)),
        ("unreachable", Some("connect_timeout"))
    );
}

#[test]
fn unusable_ca_file_is_named() {
    for name in ["missing.pem", "make.sh", "receiver.key"] {
        let settings = Settings { ca_file: Some(file(name)), ..Settings::default() };
        let error = Client::new(settings).err().unwrap();
        assert_eq!(error.tag(), "ca_file");
        assert!(error.to_string().contains(name), "{error}");
    }
}
