//! Media fetches: shared, limited per host and org, retried, and cached as long as their freshness allows.
#![allow(clippy::unwrap_used)]

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use futures::{FutureExt as _, future::join_all};
use parking_lot::Mutex;
use tidegate_egress::{Client, settings::MediaSettings};
use tidegate_media::{Decoders, Digests, Limits};
use tidegate_moderation::media::{
    self, HashDepth, InspectedMedium, Inspection, MediaFetches, MediaInspector, MediumRequest, Settings,
};
use tidegate_schemas::{
    documents::{self, Document},
    ids::OrgId,
    item_types::{ItemType, Mode},
    validation_error::Pointer,
};
use tidegate_store::Store;
use tidegate_test_support::{
    PATIENCE, eventually,
    pictures::{Answer, Host, picture},
};
use tokio::sync::Semaphore;

fn store(folder: &tempfile::TempDir) -> Store {
    let db = fjall::Database::builder(folder.path()).open().unwrap();
    Store::open_embedded(&db, tidegate_store::embedded::Settings::default()).unwrap()
}

/// Host that delays each answer until the test adds a permit.
async fn host_that_waits() -> (Host, Arc<Semaphore>) {
    let go = Arc::new(Semaphore::new(0));
    let open = Arc::clone(&go);
    let host = Host::start(move |_| Answer::After(Arc::clone(&open), Box::new(Answer::Picture(picture(1)))));
    (host.await.unwrap(), go)
}

/// Settings with short pauses, so that a slow test machine does not matter.
fn settings() -> Settings {
    Settings { retry_ms: 1, longest_retry_ms: 60_000, host_rest_ms: 1, ..Settings::default() }
}

/// Settings with a long rest after four failures.
fn without_patience() -> Settings {
    Settings {
        attempts: 1,
        host_failures: 4,
        host_rest_ms: 3_600_000,
        longest_host_rest_ms: 3_600_000,
        ..settings()
    }
}

fn signals(store: Store, host: &Host, settings: &Settings) -> MediaInspector {
    of_hosts(store, &[host], settings)
}

fn of_hosts(store: Store, hosts: &[&Host], settings: &Settings) -> MediaInspector {
    with_total(store, hosts, settings, 60_000)
}

fn with_total(store: Store, hosts: &[&Host], settings: &Settings, total_ms: u64) -> MediaInspector {
    let egress = tidegate_egress::Settings {
        allow_cidrs: vec!["127.0.0.0/8".parse().unwrap(), "::1".parse().unwrap()],
        connect_timeout_ms: 15_000,
        media: MediaSettings {
            ports: hosts.iter().map(|host| host.address.port()).collect(),
            first_byte_ms: 60_000,
            idle_ms: 60_000,
            total_ms,
            min_rate: 0,
            ..MediaSettings::default()
        },
        ..tidegate_egress::Settings::default()
    };
    MediaInspector::new(
        Client::new(egress).unwrap(),
        Decoders::new(Limits::default()).unwrap(),
        store,
        settings,
    )
}

async fn inspect_as(signals: &MediaInspector, org: &str, url: String, depth: HashDepth) -> Inspection {
    let mut search = signals.gather(&OrgId::new(org), &[MediumRequest { url, depth }]);
    tokio::time::timeout(PATIENCE, search.settle()).await.unwrap();
    search.end().pop().unwrap().inspection
}

async fn inspect(signals: &MediaInspector, url: String) -> Inspection {
    inspect_as(signals, "acme", url, HashDepth::Picture).await
}

fn state(inspection: &Inspection) -> String {
    match inspection {
        Inspection::Hashed(print) => print.state.as_str().to_owned(),
        Inspection::TooLarge => "too_large".to_owned(),
        Inspection::BlockedAddress => "blocked_address".to_owned(),
        Inspection::FetchFailed(reason) => reason.clone().into_owned(),
    }
}

#[tokio::test]
async fn a_successful_probe_wakes_all_waiting_fetches() {
    let (folder, go) = (tempfile::tempdir().unwrap(), Arc::new(Semaphore::new(0)));
    let (request_count, open) = (AtomicUsize::new(0), Arc::clone(&go));
    let answer = move |_: &str| match request_count.fetch_add(1, Ordering::Relaxed) {
        0..8 => Answer::Head("503 Service Unavailable".to_owned(), Vec::new()),
        8 => Answer::After(Arc::clone(&open), Box::new(Answer::Picture(picture(1)))),
        _ => Answer::Picture(picture(1)),
    };
    let host = Host::start(answer).await.unwrap();
    // The probe may take up to an hour.
    let signals = with_total(store(&folder), &[&host], &settings(), 3_600_000);
    let ask = |nth: usize| {
        let (signals, url) = (signals.clone(), host.url(&format!("{nth}.bmp")));
        tokio::spawn(async move { inspect(&signals, url).await })
    };
    let tasks: Vec<_> = (0..30).map(ask).collect();
    eventually("a probe", PATIENCE, async || (host.asked("").len() == 9).then_some(())).await.unwrap();
    go.add_permits(1);
    for one in tasks {
        assert_eq!(state(&one.await.unwrap()), "ok");
    }
    assert_eq!(host.asked("").len(), 8 + 30);
}

#[tokio::test]
async fn concurrent_fetches_are_shared_within_an_org_only() {
    let (folder, (host, go)) = (tempfile::tempdir().unwrap(), host_that_waits().await);
    let signals = signals(store(&folder), &host, &settings());
    let ask = |org: &'static str| {
        let (signals, url) = (signals.clone(), host.url("a.bmp"));
        tokio::spawn(async move { inspect_as(&signals, org, url, HashDepth::Picture).await })
    };
    let tasks: Vec<_> = ["acme", "acme", "acme", "other"].into_iter().map(ask).collect();
    eventually("two requests", PATIENCE, async || (host.asked("a.bmp").len() == 2).then_some(()))
        .await
        .unwrap();
    go.add_permits(4);
    for one in tasks {
        assert_eq!(state(&one.await.unwrap()), "ok");
    }
    assert_eq!(host.asked("").len(), 2);
}

#[tokio::test]
async fn spellings_of_one_url_share_one_fetch_and_keep_their_text() {
    let folder = tempfile::tempdir().unwrap();
    let host = Host::start(|_| Answer::Picture(picture(1))).await.unwrap();
    let signals = signals(store(&folder), &host, &settings());
    let port = host.address.port();
    let urls = [
        format!("http://127.0.0.1:{port}/a.bmp?key=1"),
        format!("http://127.0.0.1:{port}/a.bmp?key=1#whole"),
        format!("HTTP://127.1:{port}/b/../a.bmp?key=1#part"),
        format!("http:\\\\0x7F.0.0.1:{port}/./a.bmp?key=1"),
    ];
    let other_url = format!("http://127.0.0.1:{port}/a.bmp?key=2");
    let medium_request = |url: &String| MediumRequest { url: url.clone(), depth: HashDepth::Picture };
    let inspect = async |urls: &[String]| {
        let all: Vec<_> = urls.iter().map(medium_request).collect();
        let mut search = signals.gather(&OrgId::new("acme"), &all);
        tokio::time::timeout(PATIENCE, search.settle()).await.unwrap();
        let inspected_media = search.end();
        assert_eq!(inspected_media.iter().map(|signal| signal.url.clone()).collect::<Vec<_>>(), urls);
        assert!(inspected_media.iter().all(|signal| state(&signal.inspection) == "ok"));
    };
    inspect(&urls).await;
    assert_eq!(host.asked("a.bmp").len(), 1, "the spellings share one fetch");
    inspect(&urls[2..]).await;
    inspect(&urls).await;
    assert_eq!(host.asked("a.bmp").len(), 1, "the URL is cached");
    inspect(&[other_url]).await;
    assert_eq!(host.asked("a.bmp").len(), 2, "another query is another URL");
}

#[tokio::test]
async fn a_fetch_without_waiters_ends_unless_left_running() {
    let (folder, (host, go)) = (tempfile::tempdir().unwrap(), host_that_waits().await);
    // One fetch at a time: the start of the second one proves that the first has ended.
    let one = Settings { fetches: 1, fetches_per_host: 1, fetches_per_org: 1, ..settings() };
    let signals = signals(store(&folder), &host, &one);
    let medium_requests = |path: &str| [MediumRequest { url: host.url(path), depth: HashDepth::Picture }];
    let org = OrgId::new("acme");
    let wait_for_request = async |path: &str| {
        eventually("a request", PATIENCE, async || (!host.asked(path).is_empty()).then_some(()))
            .await
            .unwrap();
    };
    let mut given_up = signals.gather(&org, &medium_requests("given-up"));
    tokio::select! {
        () = given_up.settle() => unreachable!("the host holds its answer"),
        () = wait_for_request("given-up") => {}
    }
    drop(given_up);
    let mut background_fetch = signals.gather(&org, &medium_requests("left"));
    tokio::select! {
        () = background_fetch.settle() => unreachable!("the host holds its answer"),
        () = wait_for_request("left") => {}
    }
    assert_eq!(background_fetch.leave_running(PATIENCE), [(host.url("left"), None)]);
    go.add_permits(2);
    assert_eq!(state(&inspect(&signals, host.url("left")).await), "ok");
    assert_eq!(host.asked("left").len(), 1, "the fetch was joined or its result cached");
}

#[tokio::test]
async fn background_fetches_are_bounded_and_shared_among_orgs() {
    let (folder, (host, go)) = (tempfile::tempdir().unwrap(), host_that_waits().await);
    let wide_limits = Settings {
        fetches_per_host_in_all: 100,
        fetches_per_host: 40,
        hosts: 100,
        left_running: 8,
        ..settings()
    };
    let signals = signals(store(&folder), &host, &wide_limits);
    let search = |org: &str| {
        let medium_request =
            |nth: usize| MediumRequest { url: host.url(&format!("{org}-{nth}")), depth: HashDepth::Picture };
        signals.gather(&OrgId::new(org), &(0..10).map(medium_request).collect::<Vec<_>>())
    };
    let are_asked = async |search: &mut MediaFetches, org: &str, times: usize| {
        let were = async || (host.asked(org).len() == times).then_some(());
        let arrival = eventually("requests", PATIENCE, were);
        tokio::select! {
            () = search.settle() => unreachable!("the host holds its answer"),
            arrival = arrival => arrival.unwrap(),
        }
    };
    for org in ["wild", "other"] {
        let mut first = search(org);
        are_asked(&mut first, org, 10).await;
        first.leave_running(PATIENCE);
    }
    let mut second_searches = Vec::new();
    for (org, background_count) in [("wild", 4), ("other", 2)] {
        let mut second = search(org);
        are_asked(&mut second, org, 20 - background_count).await;
        second_searches.push(second);
    }
    go.add_permits(100);
    for mut search in second_searches {
        search.settle().await;
        assert!(search.end().iter().all(|signal| state(&signal.inspection) == "ok"));
    }
    assert_eq!(
        (host.asked("wild").len(), host.asked("other").len()),
        (16, 18),
        "the continuing fetches were joined"
    );
}

#[tokio::test]
async fn a_cached_url_is_revalidated_when_it_is_stale() {
    let folder = tempfile::tempdir().unwrap();
    let host = Host::start(|head| {
        let unchanged = head.to_lowercase().contains("if-none-match: \"1\"");
        match (head.split(' ').nth(1).unwrap(), unchanged) {
            ("/never", _) => Answer::Head("200 OK\r\ncache-control: no-store".to_owned(), picture(1)),
            ("/led", _) => {
                let head = "302 Found\r\nlocation: /elsewhere\r\ncache-control: no-store";
                Answer::Head(head.to_owned(), Vec::new())
            }
            ("/always-asked", false) => {
                Answer::Head("200 OK\r\netag: \"1\"\r\ncache-control: no-cache".to_owned(), picture(1))
            }
            ("/said-once", false) => {
                Answer::Head("200 OK\r\netag: \"1\"\r\ncache-control: max-age=0".to_owned(), picture(1))
            }
            ("/said-once", true) => Answer::Head("304 Not Modified\r\netag: \"1\"".to_owned(), Vec::new()),
            (_, true) => Answer::Head("304 Not Modified\r\ncache-control: no-cache".to_owned(), Vec::new()),
            _ => Answer::Picture(picture(1)),
        }
    });
    let host = host.await.unwrap();
    let signals = signals(store(&folder), &host, &settings());
    for (path, requests) in [("never", 3), ("always-asked", 3), ("said-once", 3), ("led", 3), ("silent", 1)] {
        for _ in 0..3 {
            assert_eq!(state(&inspect(&signals, host.url(path)).await), "ok", "{path}");
        }
        assert_eq!(host.asked(path).len(), requests, "{path}");
    }
    assert!(host.asked("always-asked")[2].to_lowercase().contains("if-none-match"));
    // The URL cache of one organisation does not answer for another.
    assert_eq!(state(&inspect_as(&signals, "other", host.url("silent"), HashDepth::Picture).await), "ok");
    assert_eq!(host.asked("silent").len(), 2);
}

#[tokio::test]
async fn stored_fingerprints_serve_other_processes() {
    let folder = tempfile::tempdir().unwrap();
    let host = Host::start(|_| Answer::Picture(picture(1))).await.unwrap();
    let store = store(&folder);
    let first = inspect(&signals(store.clone(), &host, &settings()), host.url("a")).await;
    let Inspection::Hashed(print) = &first else { panic!("{first:?}") };
    assert_eq!(print.digests, Digests::of(&picture(1)));
    // This inspector cannot decode pictures, so its result must be the stored one.
    let blind = Limits { pixels: 1, side: 1, ..Limits::default() };
    let egress = tidegate_egress::Settings {
        allow_cidrs: vec!["127.0.0.0/8".parse().unwrap()],
        media: MediaSettings { ports: vec![host.address.port()], ..MediaSettings::default() },
        ..tidegate_egress::Settings::default()
    };
    let (client, decoders) = (Client::new(egress).unwrap(), Decoders::new(blind).unwrap());
    let other_inspector = MediaInspector::new(client, decoders, store, &settings());
    assert_eq!(inspect(&other_inspector, host.url("b")).await, first);
}

#[tokio::test]
async fn a_busy_host_is_retried_and_a_missing_picture_is_not() {
    let (folder, count) = (tempfile::tempdir().unwrap(), Arc::new(AtomicUsize::new(0)));
    let host = Host::start(move |head| match head.split(' ').nth(1).unwrap() {
        "/busy" if count.fetch_add(1, Ordering::SeqCst) < 2 => {
            Answer::Head("503 Service Unavailable\r\nretry-after: 0".to_owned(), Vec::new())
        }
        "/broken" => Answer::Head("500 Internal Server Error".to_owned(), Vec::new()),
        "/later" => Answer::Head("429 Too Many Requests\r\nretry-after: 3600".to_owned(), Vec::new()),
        "/gone" => Answer::Head("404 Not Found".to_owned(), Vec::new()),
        _ => Answer::Picture(picture(1)),
    });
    let host = host.await.unwrap();
    let signals = signals(store(&folder), &host, &settings());
    for (path, expected, requests) in
        [("busy", "ok", 3), ("broken", "http_500", 3), ("later", "http_429", 1), ("gone", "http_404", 1)]
    {
        assert_eq!(state(&inspect(&signals, host.url(path)).await), expected);
        assert_eq!(host.asked(path).len(), requests, "{path}");
    }
}

/// A busy machine can prolong a pause but not shorten it.
#[tokio::test]
async fn a_retry_after_is_honoured_unless_it_is_too_long() {
    let folder = tempfile::tempdir().unwrap();
    let request_times: Arc<Mutex<HashMap<String, Vec<Instant>>>> = Arc::default();
    let asked_at = Arc::clone(&request_times);
    let host = Host::start(move |head| {
        let path = head.split(' ').nth(1).unwrap().trim_start_matches('/').to_owned();
        let mut times_by_path = asked_at.lock();
        let times = times_by_path.entry(path.clone()).or_default();
        times.push(Instant::now());
        match times.len() {
            1 => Answer::Head(format!("503 Service Unavailable\r\nretry-after: {path}"), Vec::new()),
            _ => Answer::Picture(picture(1)),
        }
    });
    let host = host.await.unwrap();
    let signals = signals(store(&folder), &host, &Settings { longest_retry_ms: 2_000, ..settings() });
    let cases = [(1, "ok", 2), (2, "ok", 2), (3, "http_503", 1)];
    join_all(cases.map(async |(seconds, expected, requests)| {
        assert_eq!(state(&inspect(&signals, host.url(&seconds.to_string())).await), expected, "{seconds}");
        let times = request_times.lock()[&seconds.to_string()].clone();
        assert_eq!(times.len(), requests, "{seconds}");
        if let [first, second] = times[..] {
            assert!(second - first >= Duration::from_secs(seconds), "{seconds}: {:?}", second - first);
        }
    }))
    .await;
}

#[tokio::test]
async fn a_host_that_fails_repeatedly_rests() {
    let folder = tempfile::tempdir().unwrap();
    let host =
        Host::start(|_| Answer::Head("500 Internal Server Error".to_owned(), Vec::new())).await.unwrap();
    let signals = signals(store(&folder), &host, &without_patience());
    for nth in 0..20 {
        let expected_state = if nth < 4 { "http_500" } else { "host_unavailable" };
        assert_eq!(state(&inspect(&signals, host.url(&nth.to_string())).await), expected_state);
    }
    assert_eq!(host.asked("").len(), 4);
}

#[tokio::test]
async fn a_hanging_host_does_not_block_another_host() {
    let folder = tempfile::tempdir().unwrap();
    let hanging = Host::start(|_| Answer::Never).await.unwrap();
    let healthy_host = Host::start(|_| Answer::Picture(picture(1))).await.unwrap();
    let few = Settings { fetches: 4, fetches_per_host: 2, fetches_per_org: 4, ..settings() };
    let signals = of_hosts(store(&folder), &[&hanging, &healthy_host], &few);
    let hangs: Vec<_> = (0..50)
        .map(|nth| MediumRequest { url: hanging.url(&nth.to_string()), depth: HashDepth::Picture })
        .collect();
    let mut stuck = signals.gather(&OrgId::new("acme"), &hangs);
    tokio::select! {
        () = stuck.settle() => unreachable!("the host hangs"),
        seen = inspect(&signals, by_name(&healthy_host, "a.bmp")) => assert_eq!(state(&seen), "ok"),
    }
}

/// Hosts are distinguished by name.
fn by_name(host: &Host, path: &str) -> String {
    format!("http://localhost:{}/{path}", host.address.port())
}

/// Serves pictures itself and redirects all other paths to the other host.
async fn leading_to(other: &Host) -> Host {
    let target_url = other.url("elsewhere");
    let answer = move |head: &str| match head.starts_with("GET /own") {
        true => Answer::Picture(picture(1)),
        false => Answer::Head(format!("302 Found\r\nlocation: {target_url}"), Vec::new()),
    };
    Host::start(answer).await.unwrap()
}

#[tokio::test]
async fn a_dropped_probe_lets_the_next_fetch_probe() {
    let folder = tempfile::tempdir().unwrap();
    let host = Host::start(|head| match head.split(' ').nth(1).unwrap() {
        "/bad" => Answer::Head("500 Internal Server Error".to_owned(), Vec::new()),
        _ => Answer::Picture(picture(1)),
    });
    let host = host.await.unwrap();
    let no_retries = Settings { attempts: 1, host_failures: 1, longest_host_rest_ms: 1, ..settings() };
    let signals = signals(store(&folder), &host, &no_retries);
    assert_eq!(state(&inspect(&signals, host.url("bad")).await), "http_500");
    let host_answers = async || {
        let request = MediumRequest { url: host.url("left"), depth: HashDepth::Picture };
        // The fetch waits for an answer, or the host still rests.
        let _left = signals.gather(&OrgId::new("acme"), &[request]).settle().now_or_never();
        (state(&inspect(&signals, host.url("good")).await) == "ok").then_some(())
    };
    // Half of the longest duration of a probe.
    eventually("the host to answer a probe", PATIENCE / 2, host_answers).await.unwrap();
}

#[tokio::test]
async fn a_redirect_needs_a_permit_for_its_target_host() {
    let folder = tempfile::tempdir().unwrap();
    let hanging = Host::start(|_| Answer::Never).await.unwrap();
    let redirecting_host = leading_to(&hanging).await;
    let few = Settings { fetches: 8, fetches_per_host: 2, fetches_per_org: 8, ..settings() };
    let signals = of_hosts(store(&folder), &[&hanging, &redirecting_host], &few);
    let leading = |nth: u32| MediumRequest {
        url: by_name(&redirecting_host, &nth.to_string()),
        depth: HashDepth::Picture,
    };
    let mut stuck = signals.gather(&OrgId::new("acme"), &(0..20).map(leading).collect::<Vec<_>>());
    let all_were_asked = async {
        let all =
            async || (redirecting_host.asked("").len() == 20 && hanging.asked("").len() == 2).then_some(());
        eventually("all requests to be redirected", PATIENCE, all).await.unwrap();
    };
    tokio::select! { () = stuck.settle() => unreachable!("the host hangs"), () = all_were_asked => {} }
    tokio::select! {
        () = stuck.settle() => unreachable!("the host hangs"),
        seen = inspect(&signals, by_name(&redirecting_host, "own.bmp")) => assert_eq!(state(&seen), "ok"),
    }
    assert_eq!(hanging.asked("").len(), 2, "the permits of the host bound its requests");
}

#[tokio::test]
async fn only_the_failing_redirect_target_rests() {
    let folder = tempfile::tempdir().unwrap();
    let broken_host =
        Host::start(|_| Answer::Head("500 Internal Server Error".to_owned(), Vec::new())).await.unwrap();
    let redirecting_host = leading_to(&broken_host).await;
    let signals = of_hosts(store(&folder), &[&broken_host, &redirecting_host], &without_patience());
    for nth in 0..12 {
        let expected_state = if nth < 4 { "http_500" } else { "host_unavailable" };
        assert_eq!(
            state(&inspect(&signals, by_name(&redirecting_host, &nth.to_string())).await),
            expected_state
        );
    }
    assert_eq!(state(&inspect(&signals, by_name(&redirecting_host, "own.bmp")).await), "ok");
    assert_eq!((broken_host.asked("").len(), redirecting_host.asked("").len()), (4, 13));
}

#[tokio::test]
async fn audio_has_exact_hashes_and_items_a_bounded_number_of_media() {
    let folder = tempfile::tempdir().unwrap();
    let host = Host::start(|_| Answer::Head("200 OK".to_owned(), b"sound".to_vec())).await.unwrap();
    let signals = signals(store(&folder), &host, &Settings { per_item: 2, ..settings() });
    let audio_inspection = inspect_as(&signals, "acme", host.url("a.mp3"), HashDepth::Exact).await;
    let Inspection::Hashed(print) = &audio_inspection else { panic!("{audio_inspection:?}") };
    assert_eq!((print.state.as_str(), print.digests), ("ok", Digests::of(b"sound")));
    assert_eq!(state(&inspect(&signals, host.url("a.bmp")).await), "undecodable");

    let requests: Vec<_> = (0..4)
        .map(|nth| MediumRequest { url: host.url(&nth.to_string()), depth: HashDepth::Exact })
        .collect();
    let mut search = signals.gather(&OrgId::new("acme"), &requests);
    search.settle().await;
    let states: Vec<_> =
        search.end().iter().map(|InspectedMedium { inspection, .. }| state(inspection)).collect();
    assert_eq!(states, ["ok", "ok", "too_many", "too_many"]);
}

#[test]
fn a_url_in_several_fields_is_fetched_once_at_the_deepest_level() {
    const CLIPS: &str = "item_type: clip\nkind: CONTENT\nfields:\n  - {name: film, type: VIDEO}\n  \
                         - {name: sound, type: AUDIO}\n  - {name: cover, type: IMAGE}\n  \
                         - {name: last, type: VIDEO}\n";
    let parsed = documents::parse(&[("clip.yaml", CLIPS)]).unwrap();
    let Document::ItemType(document) = &parsed[0].1 else { panic!("no item type") };
    let clip = ItemType::compile(document, "1", &["clip".into()].into());
    let (exact, picture) = (HashDepth::Exact, HashDepth::Picture);
    for (data, expected) in [
        (r#"{"film":"http://a/1","sound":"http://a/1"}"#, vec![("http://a/1", exact)]),
        (r#"{"film":"http://a/1","cover":"http://a/1"}"#, vec![("http://a/1", picture)]),
        (r#"{"cover":"http://a/1","last":"http://a/1"}"#, vec![("http://a/1", picture)]),
        (
            r#"{"film":"http://a/1","sound":"http://a/2","images":["http://a/3","http://a/2"]}"#,
            vec![("http://a/1", exact), ("http://a/2", picture), ("http://a/3", picture)],
        ),
    ] {
        let values = clip.check(data.as_bytes(), Mode::Strict, &Pointer::Root).unwrap();
        let requests = media::list_media(&values);
        let requests: Vec<_> = requests.iter().map(|it| (it.url.as_str(), it.depth)).collect();
        assert_eq!(requests, expected, "{data}");
    }
}

#[tokio::test]
async fn a_digest_only_fetch_does_not_answer_for_a_picture() {
    let (folder, (host, go)) = (tempfile::tempdir().unwrap(), host_that_waits().await);
    let signals = signals(store(&folder), &host, &settings());
    let frames = |inspection: &Inspection| match inspection {
        Inspection::Hashed(print) => print.frames.len(),
        other => panic!("{other:?}"),
    };
    let acme = OrgId::new("acme");
    let ask = |path: &str, depth| signals.gather(&acme, &[MediumRequest { url: host.url(path), depth }]);
    let (mut exact, mut deep) = (ask("at-once", HashDepth::Exact), ask("at-once", HashDepth::Picture));
    go.add_permits(100);
    tokio::join!(exact.settle(), deep.settle());
    assert_eq!((frames(&exact.end()[0].inspection), frames(&deep.end()[0].inspection)), (0, 1));
    assert_eq!(frames(&inspect_as(&signals, "acme", host.url("before"), HashDepth::Exact).await), 0);
    assert_eq!(frames(&inspect(&signals, host.url("before")).await), 1);
}

#[tokio::test]
async fn digests_are_not_cached_instead_of_hashes() {
    let folder = tempfile::tempdir().unwrap();
    let host = Host::start(|_| Answer::Picture(picture(1))).await.unwrap();
    let signals = signals(store(&folder), &host, &settings());
    inspect_as(&signals, "acme", host.url("a"), HashDepth::Exact).await;
    let Inspection::Hashed(print) = inspect_as(&signals, "other", host.url("b"), HashDepth::Picture).await
    else {
        panic!()
    };
    assert_eq!(print.frames.len(), 1);
}

#[tokio::test]
async fn blocked_addresses_differ_from_failed_fetches() {
    let folder = tempfile::tempdir().unwrap();
    let host = Host::start(|_| Answer::Never).await.unwrap();
    let signals = signals(store(&folder), &host, &settings());
    for (url, expected) in [
        ("http://10.0.0.1/a.png".to_owned(), "url_port"),
        (format!("http://10.0.0.1:{}/a.png", host.address.port()), "blocked_address"),
        ("ftp://example.com/a.png".to_owned(), "url_scheme"),
        ("http://user:word@example.com/a.png".to_owned(), "url_userinfo"),
        ("a.png".to_owned(), "url_syntax"),
    ] {
        assert_eq!(state(&inspect(&signals, url).await), expected);
    }
    assert_eq!(host.asked("").len(), 0);
    // An unfinished fetch ends with the reason `deadline`.
    let mut search = signals
        .gather(&OrgId::new("acme"), &[MediumRequest { url: host.url("a"), depth: HashDepth::Picture }]);
    let result = tokio::time::timeout(Duration::from_millis(1), search.settle()).await;
    assert!(result.is_err());
    assert_eq!(state(&search.end()[0].inspection), "deadline");
}
