//! Callbacks of a killed process.

use std::collections::BTreeSet;

use anyhow::bail;
use serde_json::{Value, json};
use tidegate_test_support::{
    PATIENCE, eventually_ok,
    pictures::{Answer, Host},
};

use crate::support::{Demo, Place, post};

/// Above the number of calls to one endpoint at once, so that some wait behind the others.
const COUNT: usize = 12;

#[tokio::test]
async fn callbacks_of_a_killed_process_do_not_wait_for_its_leases() {
    let place = Place::new();
    // The lease margin is an hour, longer than any test.
    let lease = [("TIDEGATE__CALLBACKS__LEASE_MARGIN_MS", "3600000")];
    let mut demo = place.start_with(&lease).await.unwrap();
    let silent = Host::start(|_| Answer::Never).await.unwrap();
    let endpoint = format!("endpoint: demo-receiver\nurl: {}\n", silent.url("callbacks"));
    let change = json!({ "files": [{ "name": "endpoints.yaml", "text": endpoint }] });
    assert_eq!(demo.command("/config", &change).await.0, 200);
    for n in 0..COUNT {
        demo.submit(&post(&format!("p{n}"), &format!("author-{n}"), "scamcoin")).await;
    }
    wait_until_accepted(&demo).await;
    demo.process.kill().await.unwrap();

    // The demo configures its own receiver again at this start.
    let demo = place.start_with(&lease).await.unwrap();
    let callbacks = demo.wait_for_callbacks("action.automatic", COUNT).await;
    let items: BTreeSet<_> = callbacks.iter().map(|body| body["item"]["id"].to_string()).collect();
    assert_eq!(items.len(), COUNT, "{callbacks:?}");
    eventually_ok("all deliveries to be done", PATIENCE, async || {
        let delivery_list = demo.admin("/deliveries").await;
        let deliveries = delivery_list["items"].as_array().unwrap();
        let is_done = |it: &Value| it["state"] == "delivered" && it["attempts"] == 1;
        if deliveries.len() == COUNT && deliveries.iter().all(is_done) {
            Ok(())
        } else {
            bail!("{delivery_list}")
        }
    })
    .await
    .unwrap();
}

/// Waits until all callbacks are accepted; some calls are then in progress and the others are queued.
async fn wait_until_accepted(demo: &Demo) {
    eventually_ok("the callbacks to be accepted", PATIENCE, async || {
        let (_, metrics) = demo.operations("/metrics").await;
        let value = |name: &str| {
            let line = metrics.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|value| value.trim().parse::<usize>().ok()).unwrap_or_default()
        };
        let (in_flight, waiting) =
            (value("tidegate_callbacks_in_flight "), value("tidegate_callbacks_waiting "));
        if in_flight > 0 && waiting > 0 && in_flight + waiting == COUNT {
            Ok(())
        } else {
            bail!("{in_flight} in flight, {waiting} waiting")
        }
    })
    .await
    .unwrap();
}
