//! Responses under overload and during outages of log or store.

use axum::{
    body::{Body, Bytes},
    http::Request,
};
use futures::{
    StreamExt,
    stream::{self, FuturesUnordered},
};
use serde_json::json;
use tidegate_test_support::{PATIENCE, eventually_ok};
use tokio::time::Instant;

use crate::support::{APPEAL, Answer, ITEMS, REPORT, Service, appeal, post, report};

fn assert_come_again(answer: &Answer) {
    assert_eq!(answer.status, 503, "{answer:?}");
    answer.assert_envelope();
    assert!(answer.header("retry-after").parse::<u64>().unwrap() >= 1);
}

async fn post_all(service: &Service) -> [Answer; 3] {
    [
        service.post(ITEMS, &json!({"items": [post("a")]})).await,
        service.post(REPORT, &report()).await,
        service.post(APPEAL, &appeal("a-1")).await,
    ]
}

#[tokio::test]
async fn a_full_log_is_503_and_never_an_acknowledgement() {
    let service = Service::with(|_, _, stream| stream.embedded.min_free_bytes = Some(u64::MAX)).await;
    for answer in post_all(&service).await {
        assert_come_again(&answer);
    }
    service.assert_nothing_appended().await;
}

#[tokio::test]
async fn a_closed_log_is_503() {
    let service = Service::with(|_, _, _| {}).await;
    service.deps.log.close(Instant::now() + PATIENCE).await;
    for answer in post_all(&service).await {
        assert_come_again(&answer);
    }
}

#[tokio::test]
async fn rate_limited_organisation_gets_retry_after() {
    let service = Service::with(|_, http, _| {
        http.requests_per_second = 1;
        http.burst = 2;
    })
    .await;
    let send_empty = async || service.post(ITEMS, &json!({"items": []})).await;
    let first = send_empty().await;
    assert_eq!(first.status, 202);
    assert_eq!(first.header("ratelimit-policy"), r#""org";q=2;w=2"#);
    assert_eq!(first.header("ratelimit"), r#""org";r=1;t=0"#);
    let mut answers = Vec::new();
    for _ in 0..20 {
        answers.push(send_empty().await);
    }
    let refused_answer =
        answers.iter().find(|answer| answer.status == 429).expect("the rate limit refused no request");
    refused_answer.assert_envelope();
    assert_eq!(refused_answer.header("retry-after"), "1");
    assert_eq!(refused_answer.header("ratelimit"), r#""org";r=0;t=1"#);
}

#[tokio::test]
async fn rate_limit_is_answered_before_the_body_is_read() {
    let service = Service::with(|_, http, _| {
        http.requests_per_second = 1;
        http.burst = 1;
    })
    .await;
    let silent = || Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
    // The requests that are not refused wait for their body.
    let mut pending_answers: FuturesUnordered<_> =
        (0..20).map(|_| service.post_text(ITEMS, silent())).collect();
    let first_answer =
        tokio::time::timeout(PATIENCE, pending_answers.next()).await.expect("the service refused no request");
    assert_eq!(first_answer.unwrap().status, 429);
}

#[tokio::test]
async fn a_spent_byte_budget_is_503_until_a_request_ends() {
    let service = Service::with(|_, http, _| {
        http.body_bytes = 50_000;
        http.in_flight_bytes = 100_000;
    })
    .await;
    let (gate, opened) = futures::channel::oneshot::channel::<()>();
    let begin = format!("{{\"items\":{}", " ".repeat(40_000));
    let body =
        stream::once(async { Ok::<_, std::io::Error>(Bytes::from(begin)) }).chain(stream::once(async {
            let _told = opened.await;
            Ok(Bytes::from_static(b"[]}"))
        }));
    let slow = service.request("POST", ITEMS).header("content-length", "45000");
    let slow = slow.body(Body::from_stream(body)).unwrap();
    let second_request = async {
        let large = format!("{{\"items\":[]}}{}", " ".repeat(20_000));
        let request = service.request("POST", ITEMS).header("content-length", large.len());
        let second_answer = service.ask(request.body(large.clone().into()).unwrap()).await;
        gate.send(()).unwrap();
        second_answer
    };
    let (slow, second_answer) = futures::join!(service.ask(slow), second_request);
    assert_come_again(&second_answer);
    assert_eq!(slow.status, 202, "{slow:?}");
    assert_eq!(service.post(ITEMS, &json!({"items": []})).await.status, 202);
}

/// Body that sends some bytes and then stalls.
fn stalled_body(bytes: usize) -> Body {
    let first_chunk = stream::iter([Ok::<_, std::io::Error>(Bytes::from(vec![b' '; bytes]))]);
    Body::from_stream(first_chunk.chain(stream::pending()))
}

#[tokio::test]
async fn unsent_bodies_take_no_budget_of_another_organisation() {
    let service = Service::with(|_, _, _| {}).await;
    let other_org = service.other_org().await;
    for sent in [0, (8 << 20) - 1] {
        let stuck = (0..32).map(|_| {
            let request = service.request("POST", ITEMS).header("content-length", 8 << 20);
            service.ask(request.body(stalled_body(sent)).unwrap())
        });
        let stuck: FuturesUnordered<_> = stuck.collect();
        let stuck = stuck.for_each(|answer| async move { assert_come_again(&answer) });
        let good_requests = async {
            for _ in 0..20 {
                let large = format!("{{\"items\":[]}}{}", " ".repeat(7 << 20));
                let request = Request::post(ITEMS).header("x-api-key", &other_org);
                let request = request.header("content-type", "application/json");
                let answer = service.ask(request.body(large.into()).unwrap()).await;
                assert_eq!(answer.status, 202, "{answer:?}");
            }
        };
        // The order matters: the stuck requests take their bytes first.
        tokio::select! {
            biased;
            () = stuck => panic!("the service answered all requests"),
            () = good_requests => {}
        }
    }
}

#[tokio::test]
async fn slow_body_is_408() {
    let service = Service::with(|_, http, _| http.body_read_ms = 20).await;
    let body = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
    let answer = service.post_text(ITEMS, body).await;
    assert_eq!(answer.status, 408);
    answer.assert_envelope();
}

#[tokio::test]
async fn body_below_its_minimum_rate_is_408() {
    let service = Service::with(|_, http, _| (http.body_read_ms, http.body_pace_ms) = (600_000, 50)).await;
    let answer =
        tokio::time::timeout(PATIENCE, service.post_text(ITEMS, stalled_body(20_000))).await.unwrap();
    assert_eq!(answer.status, 408);
    answer.assert_envelope();
    assert!(answer.detail().contains("4096 bytes a second"), "{answer:?}");
}

#[tokio::test]
async fn waiting_look_ups_leave_slots_to_other_organisations() {
    let service = Service::with(|settings, _, _| settings.waiting_requests = 100).await;
    let other_org = service.other_org().await;
    let mut stuck: FuturesUnordered<_> =
        (0..100).map(|_| service.get("/api/v1/items/post/p-1?wait=30s")).collect();
    for _ in 0..50 {
        assert_come_again(&stuck.next().await.unwrap());
    }
    let request = Request::get("/api/v1/items/post/p-1?wait=1ms").header("x-api-key", &other_org);
    let answer = service.ask(request.body(Body::empty()).unwrap()).await;
    assert_eq!(answer.status, 404, "{answer:?}");
    drop(stuck);
}

#[tokio::test]
async fn waiting_look_ups_above_the_limit_are_503() {
    let service = Service::with(|settings, _, _| settings.waiting_requests = 0).await;
    assert_come_again(&service.get("/api/v1/items/post/p-1?wait=1s").await);
    assert_eq!(service.get("/api/v1/items/post/p-1").await.status, 404);
}

#[tokio::test]
async fn appeal_without_a_claimed_id_is_503_and_not_appended() {
    let service = Service::with(|_, _, _| {}).await;
    service.deps.store.close().await.unwrap();
    assert_come_again(&service.post(APPEAL, &appeal("a-1")).await);
    assert_eq!(service.appeals().await.len(), 0);
}

#[tokio::test]
async fn items_are_503_above_the_lag_limit() {
    // No processor runs in this test.
    let service = Service::with(|settings, _, _| settings.max_lag_seconds = 1).await;
    let items = json!({"items": [post("a")]});
    assert_eq!(service.post(ITEMS, &items).await.status, 202);
    let wait_for_refusal = async || {
        let answer = service.post(ITEMS, &items).await;
        if answer.status == 503 { Ok(answer) } else { Err(anyhow::anyhow!("{answer:?}")) }
    };
    let answer = eventually_ok("the service detects the lag", PATIENCE, wait_for_refusal).await.unwrap();
    assert_come_again(&answer);
    assert!(answer.detail().contains("behind"), "{answer:?}");
    // Reports and look-ups are still accepted.
    assert_eq!(service.post(REPORT, &report()).await.status, 201);
    assert_eq!(service.get("/api/v1/items/post/a").await.status, 404);
}
