//! No literal, name, answer of a name server, redirect or proxy variable reaches a listener that the settings
//! do not allow.
#![allow(clippy::unwrap_used)]

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::support::receiver::{Answers, Receiver, Step, attempt_with, ip, patient, tag, write};
use futures::future::{BoxFuture, FutureExt};
use tidegate_egress::resolver::Resolver;
use tidegate_egress::{Client, Settings};

struct HangingResolver;

impl Resolver for HangingResolver {
    fn resolve(&self, _host: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        std::future::pending().boxed()
    }
}

fn answer() -> Vec<Step> {
    vec![Step::Read, write("HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n")]
}

/// Settings that allow exactly these ranges.
fn opening(ranges: &[&str]) -> Settings {
    Settings { allow_cidrs: ranges.iter().map(|range| range.parse().unwrap()).collect(), ..patient() }
}

const TRICKS: [&str; 13] = [
    "127.0.0.1",
    "127.0.0.1.",
    "0x7f.1",
    "0x7f000001",
    "2130706433",
    "017700000001",
    "127.1",
    "127.9.8.7",
    "0",
    "[::ffff:7f00:1]",
    "[::ffff:127.0.0.1]",
    "①②⑦.⓪.⓪.①",
    "%31%32%37%2e1",
];

#[tokio::test]
async fn no_notation_of_loopback_is_called_by_default() {
    let receiver = Receiver::start_on("0.0.0.0:0", answer()).await.unwrap();
    let port = receiver.address.port();
    let shut = Client::new(Settings::default()).unwrap();
    for host in TRICKS {
        let attempt = attempt_with(&shut, &format!("http://{host}:{port}/")).await.unwrap();
        assert_eq!(
            (attempt.outcome.tag(), tag(&attempt)),
            ("blocked_address", Some("blocked_address")),
            "{host}"
        );
        assert!(attempt.error.unwrap().to_string().contains("egress.allow_cidrs"));
    }
    assert_eq!(receiver.log.connections(), 0);

    // With the address allowed, the same texts reach the listener. So the guard blocked them before.
    let open = Client::new(opening(&["127.0.0.0/8", "0.0.0.0/8"])).unwrap();
    for (count, host) in TRICKS.into_iter().enumerate() {
        let attempt = attempt_with(&open, &format!("http://{host}:{port}/")).await.unwrap();
        assert_eq!((attempt.outcome.tag(), tag(&attempt)), ("delivered", None), "{host}");
        assert_eq!(receiver.log.connections(), count + 1);
    }
}

#[tokio::test]
async fn ipv6_loopback_is_blocked_unless_allowed() {
    let receiver = match Receiver::start_on("[::1]:0", answer()).await {
        Ok(receiver) => receiver,
        // A host without IPv6 has no such listener.
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => return,
        Err(error) => panic!("{error}"),
    };
    let url = format!("http://[0:0::0:1]:{}/", receiver.address.port());
    for (settings, outcome, connections) in [
        (Settings::default(), "blocked_address", 0),
        (patient(), "blocked_address", 0),
        (opening(&["::1"]), "delivered", 1),
    ] {
        let attempt = attempt_with(&Client::new(settings).unwrap(), &url).await.unwrap();
        assert_eq!(attempt.outcome.tag(), outcome);
        assert_eq!(receiver.log.connections(), connections);
    }
}

#[tokio::test]
async fn credentials_in_a_url_do_not_hide_its_host() {
    let receiver = Receiver::start(answer()).await;
    let client = Client::new(patient()).unwrap();
    let url = format!("http://example.com@{}/", receiver.address);
    assert_eq!(attempt_with(&client, &url).await.unwrap_err().tag(), "url_userinfo");
    assert_eq!(receiver.log.connections(), 0);
}

#[tokio::test]
async fn localhost_name_is_blocked_by_its_address() {
    let receiver = Receiver::start(answer()).await;
    let client = Client::new(Settings::default()).unwrap();
    for host in ["localhost", "LOCALHOST", "localhost."] {
        let attempt =
            attempt_with(&client, &format!("http://{host}:{}/", receiver.address.port())).await.unwrap();
        // Some systems do not resolve the name with a trailing dot.
        assert!(
            matches!(tag(&attempt), Some("blocked_address" | "dns_error")),
            "{host}: {:?}",
            attempt.error
        );
        assert!(host.ends_with('.') || attempt.outcome.tag() == "blocked_address", "{host}");
    }
    assert_eq!(receiver.log.connections(), 0);
}

#[tokio::test]
async fn a_name_is_blocked_if_any_of_its_addresses_is() {
    let receiver = Receiver::start_on("0.0.0.0:0", answer()).await.unwrap();
    let url = format!("http://receiver.example:{}/", receiver.address.port());
    // 127.0.0.2 stands for a public address: it is allowed, and the rest of loopback is not.
    for addresses in [
        &["127.0.0.1"][..],
        &["10.0.0.1"],
        &["169.254.169.254"],
        &["fd00:ec2::254"],
        &["::1"],
        &["::ffff:127.0.0.1"],
        &["64:ff9b::7f00:1"],
        &["0.0.0.0"],
        &["127.0.0.2", "127.0.0.1"],
        &["127.0.0.1", "127.0.0.2"],
        &["127.0.0.2", "127.0.0.2", "fe80::1"],
    ] {
        let client = Client::with_resolver(opening(&["127.0.0.2"]), Answers::new(&[addresses])).unwrap();
        let attempt = attempt_with(&client, &url).await.unwrap();
        assert_eq!(
            (attempt.outcome.tag(), tag(&attempt)),
            ("blocked_address", Some("blocked_address")),
            "{addresses:?}"
        );
    }
    assert_eq!(receiver.log.connections(), 0);
    let client = Client::with_resolver(opening(&["127.0.0.2"]), Answers::new(&[&["127.0.0.2"]])).unwrap();
    let attempt = attempt_with(&client, &url).await.unwrap();
    assert_eq!((attempt.outcome.tag(), attempt.remote_ip), ("delivered", Some(ip("127.0.0.2"))));
}

#[tokio::test]
async fn rebinding_name_never_reaches_an_internal_address() {
    let outside = Receiver::start_on("127.0.0.2:0", answer()).await.unwrap();
    let inside =
        Receiver::start_on(&format!("127.0.0.1:{}", outside.address.port()), answer()).await.unwrap();
    let url = format!("http://rebinding.example:{}/", outside.address.port());
    let answers = Answers::new(&[&["127.0.0.2"], &["127.0.0.1"]]);
    let client = Client::with_resolver(opening(&["127.0.0.2"]), answers.clone()).unwrap();
    let first = attempt_with(&client, &url).await.unwrap();
    assert_eq!((first.outcome.tag(), first.remote_ip), ("delivered", Some(ip("127.0.0.2"))));
    assert_eq!(answers.asked.load(Ordering::SeqCst), 1, "the connection uses the checked address");
    let second = attempt_with(&client, &url).await.unwrap();
    assert_eq!(second.outcome.tag(), "blocked_address");
    assert_eq!((outside.log.connections(), inside.log.connections()), (1, 0));
}

#[tokio::test]
async fn missing_address_is_dns_error_and_hung_dns_connect_timeout() {
    let unknown = Answers::failing();
    let lookups: [(Arc<dyn Resolver>, _); 3] = [
        (unknown, "dns_error"),
        (Answers::new(&[&[]]), "dns_error"),
        (Arc::new(HangingResolver), "connect_timeout"),
    ];
    for (lookup, error) in lookups {
        let settings = Settings { connect_timeout_ms: 100, ..patient() };
        let client = Client::with_resolver(settings, lookup).unwrap();
        let attempt = attempt_with(&client, "http://receiver.example/").await.unwrap();
        assert_eq!((attempt.outcome.tag(), tag(&attempt)), ("unreachable", Some(error)));
    }
}

#[tokio::test]
async fn a_proxy_in_the_environment_is_ignored() {
    const CHILD: &str = "TIDEGATE_EGRESS_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let receiver = Receiver::start(answer()).await;
        let attempt = attempt_with(&Client::new(patient()).unwrap(), &receiver.url()).await.unwrap();
        assert_eq!((attempt.outcome.tag(), receiver.log.connections()), ("delivered", 1));
        let shut = Client::new(Settings::default()).unwrap();
        assert_eq!(attempt_with(&shut, &receiver.url()).await.unwrap().outcome.tag(), "blocked_address");
        return;
    }
    // A child process repeats this test, because an environment belongs to a process.
    let proxy = Receiver::start(answer()).await;
    let mut child = tokio::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "address_guard::a_proxy_in_the_environment_is_ignored"]).env(CHILD, "1");
    for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        child.env(name, format!("http://{}", proxy.address));
    }
    let output = child.env_remove("NO_PROXY").env_remove("no_proxy").output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    assert_eq!(proxy.log.connections(), 0);
}
