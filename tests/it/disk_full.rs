//! Disks of several sizes that a flood of items fills: requests are refused before the database fails, no acknowledged
//! item is lost, and the service continues once the disk has space again.

#![cfg(target_os = "linux")]

use std::{
    path::Path,
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use reqwest::{Method, StatusCode};
use serde_json::json;
use tidegate_test_support::{PATIENCE, eventually};

use crate::support::{Demo, Place, post};

/// Separate file system mounted on the place's data folder.
struct Disk<'a>(&'a Path);

impl<'a> Disk<'a> {
    /// Returns `None` and prints a skip message where the test may not mount file systems.
    fn mount(folder: &'a Path, mib: u64) -> Option<Self> {
        std::fs::create_dir_all(folder).unwrap();
        let size = format!("size={mib}m");
        let mounted = run("mount", &["-t", "tmpfs", "-o", &size, "tmpfs", folder.to_str().unwrap()]);
        if !mounted {
            tidegate_test_support::servers::skipped("a full disk", "no file system can be mounted here");
        }
        mounted.then_some(Self(folder))
    }

    fn resize(&self, mib: u64) {
        let size = format!("remount,size={mib}m");
        assert!(run("mount", &["-o", &size, self.0.to_str().unwrap()]));
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        run("umount", &["-l", self.0.to_str().unwrap()]);
    }
}

fn run(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|output| output.status.success())
}

/// Text that does not compress.
fn noise(seed: usize) -> String {
    let mut state = seed as u64 * 0x9e37_79b9 + 0x1234_5678_9abc_def1;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'a' + u8::try_from(state % 26).unwrap())
    })
    .take(20_000)
    .collect()
}

/// Sends items from several senders until one is refused or the time is over. Returns the acknowledged items.
async fn flood(
    demo: &Demo,
    next: &AtomicUsize,
    longest: Duration,
) -> (Vec<usize>, Option<(StatusCode, String)>) {
    let began = Instant::now();
    let send = async || {
        let mut acknowledged = Vec::new();
        while began.elapsed() < longest {
            let first = next.fetch_add(20, Ordering::Relaxed);
            let items: Vec<_> =
                (first..first + 20).map(|n| post(&format!("p{n}"), "mallory", &noise(n))).collect();
            let (status, body) =
                demo.platform(Method::POST, "/api/v1/items/async/", Some(&json!({ "items": items }))).await;
            if status != StatusCode::ACCEPTED {
                return (acknowledged, Some((status, body.to_string())));
            }
            acknowledged.extend(first..first + 20);
        }
        (acknowledged, None)
    };
    let all = futures::future::join_all((0..8).map(|_| send())).await;
    let refusal = all.iter().find_map(|(_, refused)| refused.clone());
    (all.into_iter().flat_map(|(acknowledged, _)| acknowledged).collect(), refusal)
}

async fn fills_a_disk(mib: u64, ballast_mib: u64) {
    let place = Place::new();
    let data = place.data();
    let Some(disk) = Disk::mount(&data, mib) else { return };
    let ballast = data.join("ballast");
    if ballast_mib > 0 {
        std::fs::write(&ballast, vec![1; usize::try_from(ballast_mib << 20).unwrap()]).unwrap();
    }
    // A refusal because of the processing lag would hide the refusal because of the disk.
    let mut demo = place.start_with(&[("TIDEGATE__INGEST__MAX_LAG_SECONDS", "86400")]).await.unwrap();
    let next = AtomicUsize::new(0);
    let mut acknowledged = Vec::new();
    let (mut refusals, mut refused_with) = (0, String::new());
    // Clients retry after each refusal, and a few items may be accepted each time.
    while refusals < 8 {
        let (more, refusal) = flood(&demo, &next, PATIENCE).await;
        assert!(refusal.is_some() || !more.is_empty(), "no item was acknowledged or refused");
        acknowledged.extend(more);
        if let Some((status, body)) = refusal {
            assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{body}");
            assert!(body.contains("MiB free") || body.contains("wait for the disk"), "{body}");
            refusals += 1;
            refused_with = body;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
    assert!(refused_with.contains("are kept") || refused_with.contains("needs"), "{refused_with}");
    let (live, _) = demo.operations("/livez").await;
    assert_eq!(live, StatusCode::OK);
    assert!(demo.process.runs(), "{}", demo.process.output().unwrap());

    // The disk has space again, so the service must accept requests without a restart.
    disk.resize(mib * 3 + 1_024);
    eventually("requests to be taken again", PATIENCE, async || {
        let item = json!({ "items": [post("after", "mallory", "hello")] });
        let (status, _) = demo.platform(Method::POST, "/api/v1/items/async/", Some(&item)).await;
        (status == StatusCode::ACCEPTED).then_some(())
    })
    .await
    .unwrap();
    demo.evaluated("post", "after").await;
    for n in acknowledged.iter().rev().step_by(acknowledged.len() / 50 + 1) {
        demo.evaluated("post", &format!("p{n}")).await;
    }
    demo.process.kill().await.unwrap();
    let demo = place.start().await.unwrap();
    for n in acknowledged.iter().step_by(acknowledged.len() / 50 + 1) {
        demo.evaluated("post", &format!("p{n}")).await;
    }
    assert_eq!(demo.stop().await.code(), Some(0));
}

#[tokio::test]
async fn a_flood_on_a_disk_of_256_mib_is_refused_in_time() {
    fills_a_disk(256, 0).await;
}

#[tokio::test]
async fn a_flood_on_a_disk_of_1_gib_is_refused_in_time() {
    fills_a_disk(1_024, 400).await;
}

#[tokio::test]
async fn a_flood_on_a_disk_of_4_gib_is_refused_in_time() {
    fills_a_disk(4_096, 3_200).await;
}
