//! Broken links to a server: unknown outcomes are settled, and outages differ from defects.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::future::join_all;
use tidegate_store::{Migration, ReplaceOutcome, Row as _, Store, WriteTime, cql};
use tidegate_test_support::{Proxy, Way, eventually_ok};

use crate::{
    facts::event,
    fixture::{Fixture, MINUTE, connect, table},
    tables::{Counter, Event},
    versioned::{add_one, counter},
};

/// Store behind a link that can be cut, and a directly connected store for comparison.
struct ProxiedStore {
    proxy: Arc<Proxy>,
    store: Store,
    fixture: Fixture,
}

async fn connect_through_proxy(case: &str) -> Option<ProxiedStore> {
    let tables = [table::<Counter>(), table::<Event>()];
    let fixture = Fixture::cql(case, &tables).await?;
    let settings = fixture.settings().unwrap();
    let proxy = Proxy::to(settings.contact_points[0].clone()).await.unwrap();
    let through = cql::Settings { contact_points: vec![proxy.address().to_string()], ..settings.clone() };
    let store = connect(&through, &tables).await;
    store.migrate(Migration::Check).await.unwrap();
    assert!(proxy.bytes(Way::ToServer) > 0, "the driver bypasses the proxy");
    Some(ProxiedStore { proxy: Arc::new(proxy), store, fixture })
}

/// Single writer: in spite of link failures, each of its writes must be reported as done and be applied once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn write_with_a_lost_answer_is_settled() {
    let Some(ProxiedStore { proxy, store, fixture }) = connect_through_proxy("a cut answer").await else {
        return;
    };
    // Both statements are prepared while the link works.
    store.insert_new(&counter("warm", 0)).await.unwrap();
    store.replace(&counter("warm", 1), 1).await.unwrap();
    let cuts = proxy.cuts();
    for round in 0..12 {
        let name = format!("cut {round}");
        // The request contains the name in its bytes, so the proxy can find the answer to cut.
        proxy.cut_answer_to(name.as_bytes());
        assert!(
            store.insert_new(&counter(&name, 0)).await.unwrap().is_new(),
            "{name}: the only writer inserted the row"
        );
        match round % 3 {
            0 => proxy.cut_answer_to(name.as_bytes()),
            1 => proxy.cut_after(Way::ToClient, 0),
            _ => proxy.cut_after(Way::ToServer, 10),
        }
        assert_eq!(store.replace(&counter(&name, 5), 1).await.unwrap(), ReplaceOutcome::Done, "{name}");
        proxy.pass().await.unwrap();
        let truth = fixture.store.get::<Counter>(&counter(&name, 0).to_key()).await.unwrap().unwrap();
        assert_eq!((truth.n, truth.version), (5, 2), "{name}: written once");
    }
    assert!(proxy.cuts() > cuts + 12, "the link was hardly cut: {} times", proxy.cuts() - cuts);
    store.close().await.unwrap();
    fixture.end().await;
}

const EACH: usize = 6;

/// Many writers of one row over a link that is cut all the time: the reported wins must equal the applied ones, even if
/// others replaced the row before the outcome was known.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_link_cuts_neither_lose_nor_repeat_writes() {
    let Some(ProxiedStore { proxy, store, fixture }) =
        connect_through_proxy("a link cut again and again").await
    else {
        return;
    };
    // Prepared while the link works: a failed preparation would be an outage with a known outcome.
    store.insert_new(&counter("warm", 0)).await.unwrap();
    store.replace(&counter("warm", 1), 1).await.unwrap();
    fixture.store.insert_new(&counter("c", 0)).await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let unknown = Arc::new(AtomicU64::new(0));
    let cutter = {
        let (proxy, stop) = (Arc::clone(&proxy), Arc::clone(&stop));
        tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                // Cut after a number of answers, not after a time, so that some answers arrive on a machine of any speed.
                let cuts = proxy.cuts();
                proxy.cut_after(Way::ToClient, 1_500);
                while proxy.cuts() == cuts && !stop.load(Ordering::Relaxed) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        })
    };
    let writer = |store: Store, patient: bool| {
        let unknown = Arc::clone(&unknown);
        tokio::spawn(async move {
            let mut won = Vec::new();
            while won.len() < EACH {
                if patient {
                    won.push(add_one(&store, "c").await);
                    continue;
                }
                // Reads may fail over the broken link, which is only an outage.
                let Ok(Some(mut row)) = store.get::<Counter>(&counter("c", 0).to_key()).await else {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                };
                let read_version = row.version;
                row.n += 1;
                match store.replace(&row, read_version).await {
                    Ok(ReplaceOutcome::Done) => won.push(read_version + 1),
                    Ok(_) => {}
                    Err(error) => {
                        assert!(error.is_outage(), "{error}");
                        unknown.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
            won
        })
    };
    let writers = (0..8)
        .map(|n| if n < 6 { writer(store.clone(), false) } else { writer(fixture.store.clone(), true) });
    let mut won: Vec<i64> = join_all(writers).await.into_iter().flat_map(Result::unwrap).collect();
    stop.store(true, Ordering::Relaxed);
    cutter.await.unwrap();
    won.sort_unstable();
    let truth = fixture.store.get::<Counter>(&counter("c", 0).to_key()).await.unwrap().unwrap();
    assert_eq!(unknown.load(Ordering::Relaxed), 0, "within a minute every outcome can be settled");
    assert!(won.iter().copied().eq(2..=49), "versions reported as won: {won:?}");
    assert_eq!((truth.n, truth.version), (48, 49));
    assert!(proxy.cuts() > 3, "the link was hardly cut");
    proxy.pass().await.unwrap();
    store.close().await.unwrap();
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_server_is_an_outage_until_it_returns() {
    let Some(ProxiedStore { proxy, store, fixture }) = connect_through_proxy("an outage").await else {
        return;
    };
    let row = event(1, "p", None);
    store.put_rows(WriteTime(1), std::slice::from_ref(&row)).await.unwrap();
    proxy.refuse().await.unwrap();
    proxy.cut();
    let fault = store.put_rows(WriteTime(2), std::slice::from_ref(&row)).await.unwrap_err();
    assert!(fault.is_outage(), "{fault}");
    let fault = store.get::<Event>(&row.to_key()).await.unwrap_err();
    assert!(fault.is_outage(), "{fault}");
    assert!(store.ping().await.is_err());
    proxy.pass().await.unwrap();
    eventually_ok("the store to be back", MINUTE, async || Ok(store.ping().await?)).await.unwrap();
    assert_eq!(store.get::<Event>(&row.to_key()).await.unwrap(), Some(row));
    store.close().await.unwrap();
    fixture.end().await;
}

/// The configured limit may exceed the limit of the servers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oversized_write_is_a_refusal_and_no_outage() {
    let tables = [table::<Counter>(), table::<Event>()];
    let Some(fixture) = Fixture::cql("a row above the server's limit", &tables).await else { return };
    let all = cql::Settings { max_row_bytes: usize::MAX, ..fixture.settings().unwrap().clone() };
    let store = connect(&all, &tables).await;
    // The sizes lie just above the limits of a mutation and of a request, and far above them.
    for bytes in [16 << 20, 40 << 20] {
        let payload = Bytes::from(vec![7; bytes]);
        let row = Event { payload: payload.clone(), ..event(1, "", None) };
        let put_result = store.put_rows(WriteTime(1), &[row]).await;
        let insert_result = store.insert_new(&Counter { payload, ..counter("c", 0) }).await.map(drop);
        for answer in [put_result, insert_result] {
            eprintln!("{bytes} bytes: {answer:?}");
            let error = answer.unwrap_err();
            assert!(error.is_refusal() && !error.is_outage(), "{bytes} bytes: {error:?}");
        }
    }
    let small = event(1, "p", None);
    store.put_rows(WriteTime(1), std::slice::from_ref(&small)).await.unwrap();
    assert_eq!(store.get::<Event>(&small.to_key()).await.unwrap(), Some(small));
    store.close().await.unwrap();
    fixture.end().await;
}
