//! Media fetches from slow, endless, malformed and redirecting hosts. Each fetch ends with its documented tag
//! in bounded time and memory, and reaches only allowed destinations.
#![allow(clippy::unwrap_used)]

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::support::receiver::{Answers, NOW, Receiver, Step, patient, write};
use bytes::Bytes;
use tidegate_egress::media::{self, AttemptUsage, FetchOutcome, FetchRequest, NoRoom, Sink, Validators};
use tidegate_egress::settings::MediaSettings;
use tidegate_egress::target::Target;
use tidegate_egress::{Client, Settings};
use tidegate_schemas::ids::OrgId;

/// Sink that keeps the body up to a size.
#[derive(Default)]
struct BodySink {
    announced: Vec<Option<u64>>,
    bytes: Vec<u8>,
    room: Option<usize>,
}

impl Sink for BodySink {
    async fn begin(&mut self, length: Option<u64>) -> Result<(), NoRoom> {
        self.announced.push(length);
        Ok(())
    }

    async fn take(&mut self, piece: Bytes) -> Result<(), NoRoom> {
        self.bytes.extend_from_slice(&piece);
        if self.room.is_some_and(|room| self.bytes.len() > room) { Err(NoRoom) } else { Ok(()) }
    }
}

/// Settings that allow loopback and the ports of these receivers. A slow machine does not reach the limits.
fn open_to(receivers: &[&Receiver]) -> Settings {
    let mut settings = patient();
    settings.media = MediaSettings {
        ports: receivers.iter().map(|receiver| receiver.address.port()).collect(),
        first_byte_ms: 60_000,
        idle_ms: 60_000,
        total_ms: 60_000,
        min_rate: 0,
        ..MediaSettings::default()
    };
    settings
}

async fn fetch_with(client: &Client, url: &str, validators: Option<&Validators>) -> (FetchOutcome, BodySink) {
    fetch_into(client, url, validators, BodySink::default()).await
}

/// Follows redirects to the final outcome. The timeout exceeds all deadlines of the settings, so only a hang
/// reaches it.
async fn fetch_into(
    client: &Client,
    url: &str,
    validators: Option<&Validators>,
    mut sink: BodySink,
) -> (FetchOutcome, BodySink) {
    let mut target = match Target::parse(url) {
        Ok(target) => target,
        Err(fault) => panic!("{fault}"),
    };
    let (org, mut spent) = (OrgId::new("acme"), AttemptUsage::default());
    let redirect_chain = async {
        loop {
            let request = FetchRequest { org: &org, target, validators };
            match media::fetch(client, request, &mut spent, &mut sink, NOW).await {
                FetchOutcome::Redirected { to, .. } => target = *to,
                outcome => break outcome,
            }
        }
    };
    let outcome =
        tokio::time::timeout(Duration::from_secs(100), redirect_chain).await.expect("the fetch hangs");
    (outcome, sink)
}

async fn fetch(settings: Settings, url: &str) -> (FetchOutcome, BodySink) {
    fetch_with(&Client::new(settings).unwrap(), url, None).await
}

/// Returns the tag of the outcome, or the detail of a failure.
fn outcome_label(outcome: &FetchOutcome) -> String {
    match outcome {
        FetchOutcome::FetchFailed { reason, .. } => reason.detail().into_owned(),
        other => other.tag().to_owned(),
    }
}

fn answer(head: &str, body: &str) -> Vec<Step> {
    let length = body.len();
    vec![
        Step::Read,
        write(&format!("HTTP/1.1 {head}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}")),
    ]
}

fn redirect(to: &str) -> Vec<Step> {
    answer(&format!("302 Found\r\nlocation: {to}"), "elsewhere")
}

#[tokio::test]
async fn media_fetch_is_an_unauthenticated_get() {
    let head =
        "200 OK\r\ncontent-type: image/png\r\nset-cookie: a=b\r\netag: \"1\"\r\ncache-control: max-age=9";
    let receiver = Receiver::start(answer(head, "pixels")).await;
    let url = receiver.url();
    let client = Client::new(open_to(&[&receiver])).unwrap();
    for _ in 0..2 {
        let (outcome, sink) = fetch_with(&client, &url, None).await;
        let FetchOutcome::Ok(arrived) = outcome else { panic!("{outcome:?}") };
        assert_eq!((arrived.bytes, arrived.content_type.as_deref()), (6, Some("image/png")));
        assert_eq!(arrived.freshness.fresh_for, Some(Duration::from_secs(9)));
        assert_eq!((sink.bytes.as_slice(), sink.announced.as_slice()), (&b"pixels"[..], &[Some(6)][..]));
    }
    for request in receiver.log.requests.lock().unwrap().iter() {
        let request = String::from_utf8(request.clone()).unwrap().to_lowercase();
        assert!(request.starts_with("get /hook?token=in-the-query http/1.1\r\n"), "{request}");
        assert!(request.contains("accept-encoding: identity") && request.contains("user-agent: tidegate/"));
        for name in ["cookie", "authorization", "referer", "origin", "if-none-match", "x-api-key"] {
            assert!(!request.contains(&format!("\r\n{name}:")), "{name}");
        }
    }
}

#[tokio::test]
async fn unchanged_media_is_not_downloaded_again() {
    let receiver = Receiver::start(answer("304 Not Modified", "")).await;
    let client = Client::new(open_to(&[&receiver])).unwrap();
    let validators = Validators { etag: Some("\"1\"".parse().unwrap()), last_modified: None };
    let (outcome, _) = fetch_with(&client, &receiver.url(), Some(&validators)).await;
    assert_eq!(outcome_label(&outcome), "unchanged");
    assert!(receiver.request().to_lowercase().contains("if-none-match: \"1\""));
    // A 304 to a request without validators is a failure.
    assert_eq!(outcome_label(&fetch_with(&client, &receiver.url(), None).await.0), "http_304");
}

#[tokio::test]
async fn internal_addresses_are_never_fetched() {
    let receiver = Receiver::start_on("0.0.0.0:0", answer("200 OK", "secret")).await.unwrap();
    let port = receiver.address.port();
    let shut = Settings { allow_cidrs: Vec::new(), ..open_to(&[&receiver]) };
    for host in ["127.0.0.1", "0x7f.1", "2130706433", "127.1", "0", "[::ffff:7f00:1]", "localhost"] {
        let (outcome, _) = fetch(shut.clone(), &format!("http://{host}:{port}/a.png")).await;
        assert_eq!(outcome_label(&outcome), "blocked_address", "{host}");
    }
    // Loopback is allowed, but not this port.
    let mut other_ports = open_to(&[]);
    other_ports.media.ports = vec![80, 443];
    assert_eq!(outcome_label(&fetch(other_ports, &receiver.url()).await.0), "url_port");
    assert_eq!(receiver.log.connections(), 0);
}

#[tokio::test]
async fn port_is_open_only_to_its_own_org() {
    let receiver = Receiver::start(answer("200 OK", "pixels")).await;
    for (org, expected) in [("acme", "ok"), ("other", "url_port")] {
        let mut settings = open_to(&[]);
        settings.media.ports_by_org = [(OrgId::new(org), vec![receiver.address.port()])].into();
        assert_eq!(outcome_label(&fetch(settings, &receiver.url()).await.0), expected, "{org}");
    }
    assert_eq!(receiver.log.connections(), 1);
}

#[tokio::test]
async fn name_that_moves_to_an_internal_address_is_blocked() {
    let (outside, inside) = loop {
        let outside = Receiver::start_on("127.0.0.2:0", answer("200 OK", "pixels")).await.unwrap();
        let same_port = format!("127.0.0.1:{}", outside.address.port());
        // A port that is free at one address may be taken at the other.
        match Receiver::start_on(&same_port, answer("200 OK", "secret")).await {
            Ok(inside) => break (outside, inside),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::AddrInUse),
        }
    };
    let mut settings = open_to(&[&outside]);
    settings.allow_cidrs = vec!["127.0.0.2".parse().unwrap()];
    let answers = Answers::new(&[&["127.0.0.2"], &["127.0.0.1"]]);
    let client = Client::with_resolver(settings, answers).unwrap();
    let url = format!("http://rebinding.example:{}/a.png", outside.address.port());
    assert_eq!(outcome_label(&fetch_with(&client, &url, None).await.0), "ok");
    assert_eq!(outcome_label(&fetch_with(&client, &url, None).await.0), "blocked_address");
    assert_eq!((outside.log.connections(), inside.log.connections()), (1, 0));
}

#[tokio::test]
async fn redirect_targets_are_checked_like_item_urls() {
    let inside = Receiver::start_on("127.0.0.1:0", answer("200 OK", "secret")).await.unwrap();
    let internal_address = inside.address;
    for (location, expected) in [
        (format!("http://{internal_address}/"), "blocked_address"),
        (format!("//{internal_address}/"), "blocked_address"),
        (format!("http://0x7f.1:{}/", internal_address.port()), "blocked_address"),
        ("http://169.254.169.254/latest/meta-data/".to_owned(), "blocked_address"),
        ("http://[::1]/".to_owned(), "blocked_address"),
        ("http://127.0.0.2:22/".to_owned(), "url_port"),
        ("http://127.0.0.2:9999/".to_owned(), "url_port"),
        ("http://user:word@127.0.0.2/".to_owned(), "url_userinfo"),
        ("file:///etc/passwd".to_owned(), "url_scheme"),
        ("gopher://127.0.0.2/".to_owned(), "url_scheme"),
        ("http://".to_owned(), "url_syntax"),
    ] {
        let lure = Receiver::start_on("127.0.0.2:0", redirect(&location)).await.unwrap();
        let mut settings = open_to(&[&lure, &inside]);
        settings.media.ports.extend([80, 443]);
        settings.allow_cidrs = vec!["127.0.0.2".parse().unwrap()];
        assert_eq!(outcome_label(&fetch(settings, &lure.url()).await.0), expected, "{location}");
        assert_eq!(lure.log.connections(), 1, "{location}");
    }
    assert_eq!(inside.log.connections(), 0);
}

#[tokio::test]
async fn fourth_redirect_is_refused() {
    let end = Receiver::start(answer("200 OK\r\netag: \"1\"", "pixels")).await;
    let mut chain = vec![end];
    for _ in 0..4 {
        let next = chain.last().unwrap().url();
        chain.push(Receiver::start(redirect(&next)).await);
    }
    let settings = open_to(&chain.iter().collect::<Vec<_>>());
    let (outcome, sink) = fetch(settings.clone(), &chain[3].url()).await;
    let FetchOutcome::Ok(arrived) = outcome else { panic!("{outcome:?}") };
    assert_eq!(sink.bytes, b"pixels");
    assert!(arrived.freshness.validators.is_empty(), "the validators belong to another address");
    assert_eq!(outcome_label(&fetch(settings.clone(), &chain[4].url()).await.0), "too_many_redirects");

    let circle = Receiver::start(redirect("/hook?token=in-the-query")).await;
    let settings = open_to(&[&circle]);
    assert_eq!(outcome_label(&fetch(settings, &circle.url()).await.0), "too_many_redirects");
    assert_eq!(circle.log.connections(), 4);
    let nowhere = Receiver::start(answer("301 Moved Permanently", "")).await;
    assert_eq!(
        outcome_label(&fetch(open_to(&[&nowhere]), &nowhere.url()).await.0),
        "redirect_without_location"
    );
}

#[tokio::test]
async fn body_above_the_limit_is_refused() {
    let announced = Receiver::start(vec![
        Step::Read,
        write("HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n"),
        Step::Endless(vec![b'x'; 1 << 16]),
    ])
    .await;
    let mut settings = open_to(&[&announced]);
    settings.media.max_bytes = 1 << 20;
    let (outcome, sink) = fetch(settings, &announced.url()).await;
    assert_eq!(
        (outcome_label(&outcome).as_str(), sink.announced.len()),
        ("too_large", 0),
        "the fetch read none of the body"
    );

    let chunk = format!("10000\r\n{}\r\n", "x".repeat(1 << 16));
    for (head, body) in [
        ("HTTP/1.1 200 OK\r\n\r\n", vec![b'x'; 1 << 16]),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", chunk.into_bytes()),
    ] {
        let endless = Receiver::start(vec![Step::Read, write(head), Step::Endless(body)]).await;
        let mut settings = open_to(&[&endless]);
        settings.media.max_bytes = 1 << 20;
        let (outcome, sink) = fetch(settings, &endless.url()).await;
        assert_eq!(outcome_label(&outcome), "too_large", "{head}");
        assert!(sink.bytes.len() <= 1 << 20, "{}", sink.bytes.len());
    }
}

#[tokio::test]
async fn malformed_or_truncated_response_is_an_error() {
    for (script, expected) in [
        (vec![Step::Read, write("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\npixels")], "reset"),
        (
            vec![Step::Read, write("HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\npixels")],
            "malformed_response",
        ),
        (vec![Step::Read, write("SSH-2.0-x\r\n\r\n")], "malformed_response"),
        (
            vec![Step::Read, write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\npixels\r\n")],
            "malformed_response",
        ),
        (
            vec![
                Step::Read,
                write("HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 9\r\n\r\npixels"),
            ],
            "malformed_response",
        ),
    ] {
        let receiver = Receiver::start(script).await;
        assert_eq!(outcome_label(&fetch(open_to(&[&receiver]), &receiver.url()).await.0), expected);
    }
    // Bytes after the declared length are not part of the body.
    let receiver =
        Receiver::start(vec![Step::Read, write("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\npixels")]).await;
    let (outcome, sink) = fetch(open_to(&[&receiver]), &receiver.url()).await;
    assert_eq!((outcome_label(&outcome).as_str(), sink.bytes.as_slice()), ("ok", &b"pix"[..]));
}

#[tokio::test]
async fn a_compressed_body_is_refused_unread() {
    for encoding in ["gzip", "br", "zstd", "deflate", "identity, gzip", "x-unknown"] {
        let head = format!("200 OK\r\ncontent-encoding: {encoding}");
        let receiver = Receiver::start(answer(&head, "pixels")).await;
        let (outcome, sink) = fetch(open_to(&[&receiver]), &receiver.url()).await;
        assert_eq!(
            (outcome_label(&outcome).as_str(), sink.announced.len()),
            ("content_encoding", 0),
            "{encoding}"
        );
    }
    let plain = Receiver::start(answer("200 OK\r\ncontent-encoding: identity", "pixels")).await;
    assert_eq!(outcome_label(&fetch(open_to(&[&plain]), &plain.url()).await.0), "ok");
}

#[tokio::test]
async fn only_status_200_or_203_is_a_file() {
    for (head, expected) in [
        ("204 No Content", "http_204"),
        ("206 Partial Content", "http_206"),
        ("300 Multiple Choices", "http_300"),
        ("401 Unauthorized", "http_401"),
        ("404 Not Found", "http_404"),
        ("500 Internal Server Error", "http_500"),
    ] {
        let receiver = Receiver::start(answer(head, "")).await;
        assert_eq!(outcome_label(&fetch(open_to(&[&receiver]), &receiver.url()).await.0), expected);
    }
    let busy = Receiver::start(answer("503 Service Unavailable\r\nretry-after: 7", "")).await;
    let (outcome, _) = fetch(open_to(&[&busy]), &busy.url()).await;
    let FetchOutcome::FetchFailed { reason, retry_after } = outcome else { panic!("{outcome:?}") };
    assert!(reason.is_retryable());
    assert_eq!(retry_after, Some(Duration::from_secs(7)));
}

#[tokio::test]
async fn each_kind_of_slowness_has_its_own_limit() {
    let silent = vec![Step::Read, Step::Hang];
    let no_body = vec![Step::Read, write("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n"), Step::Hang];
    let drip = |head: &str| {
        vec![Step::Read, write("HTTP/1.1 200 OK\r\n\r\n"), Step::Drip(format!("{head}x").into_bytes())]
    };
    let endless_head = vec![Step::Read, write("HTTP/1.1 200 OK\r\nx: "), Step::Drip(b"x".to_vec())];
    let patience = MediaSettings {
        first_byte_ms: 60_000,
        idle_ms: 60_000,
        total_ms: 60_000,
        min_rate: 0,
        ..MediaSettings::default()
    };
    for (name, script, bound, expected) in [
        ("first byte", silent.clone(), MediaSettings { first_byte_ms: 50, ..patience.clone() }, "timeout"),
        ("first byte", endless_head, MediaSettings { first_byte_ms: 50, ..patience.clone() }, "timeout"),
        ("idle", no_body, MediaSettings { idle_ms: 50, ..patience.clone() }, "body_timeout"),
        (
            "rate",
            drip(""),
            MediaSettings { min_rate: 1 << 20, min_rate_grace_ms: 50, ..patience.clone() },
            "body_timeout",
        ),
        (
            "total",
            drip(""),
            MediaSettings {
                total_ms: 500,
                first_byte_ms: 500,
                idle_ms: 500,
                min_rate_grace_ms: 0,
                ..patience.clone()
            },
            "body_timeout",
        ),
    ] {
        let receiver = Receiver::start(script).await;
        let mut settings = open_to(&[&receiver]);
        settings.connect_timeout_ms = 2_000;
        settings.media = MediaSettings { ports: settings.media.ports, ..bound };
        assert_eq!(outcome_label(&fetch(settings, &receiver.url()).await.0), expected, "{name}");
    }
}

#[tokio::test]
async fn redirects_share_the_total_time() {
    let mut circle = redirect("/again");
    circle.insert(1, Step::Await(Arc::new(tokio::sync::Semaphore::new(1))));
    let receiver = Receiver::start(circle).await;
    let mut settings = open_to(&[&receiver]);
    settings.connect_timeout_ms = 1_000;
    settings.media.total_ms = 1_000;
    (settings.media.first_byte_ms, settings.media.idle_ms) = (1_000, 1_000);
    settings.media.min_rate_grace_ms = 0;
    // The first request succeeds and the second hangs, until the total time is over.
    assert_eq!(outcome_label(&fetch(settings, &receiver.url()).await.0), "timeout");
    assert_eq!(receiver.log.connections(), 2);
}

#[tokio::test]
async fn a_sink_without_room_ends_the_fetch() {
    let receiver = Receiver::start(answer("200 OK", "pixels")).await;
    let client = Client::new(open_to(&[&receiver])).unwrap();
    let sink = BodySink { room: Some(2), ..BodySink::default() };
    let (outcome, _) = fetch_into(&client, &receiver.url(), None, sink).await;
    assert_eq!(outcome_label(&outcome), "no_room");
}

#[tokio::test]
async fn closed_idle_connection_is_retried() {
    let answer = write("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npixels");
    let receiver = Receiver::start(vec![Step::Read, answer, Step::Read]).await;
    let client = Client::new(open_to(&[&receiver])).unwrap();
    for _ in 0..2 {
        let (outcome, sink) = fetch_with(&client, &receiver.url(), None).await;
        assert_eq!((outcome.tag(), sink.bytes.as_slice()), ("ok", &b"pixels"[..]));
    }
    assert_eq!((receiver.log.connections(), receiver.log.requests.lock().unwrap().len()), (2, 3));
}
