//! The data folder as one process after the other finds it.

use std::{fs, path::Path};

use crate::support::{BINARY, Place, http, post, text};
use anyhow::bail;
use serde_json::Value;
use tidegate_test_support::{PATIENCE, Program, eventually_ok};

/// Starts on a data folder, wherever it may listen.
fn up(data: &Path) -> Vec<&str> {
    let mut args = vec!["up", "--data", data.to_str().unwrap()];
    for flag in ["--api-listen", "--console-listen", "--ops-listen"] {
        args.extend([flag, "127.0.0.1:0"]);
    }
    args
}

#[tokio::test]
async fn of_two_first_starts_the_second_makes_nothing() {
    let place = Place::new();
    fs::create_dir(place.data()).unwrap();
    let data = place.data();
    let first = fs::File::open(&data).unwrap();
    first.lock().unwrap();
    let second = place.run(&up(&data)).await;
    let said = text(&second.stderr);
    assert_eq!(second.status.code(), Some(1), "{said}");
    assert!(said.contains("is being opened by another process"), "{said}");
    // A key that it made would be in the place of the first one's.
    assert_eq!(fs::read_dir(&data).unwrap().count(), 0);
    drop(first);
    assert_eq!(place.start().await.unwrap().stop().await.code(), Some(0));
}

#[tokio::test]
async fn a_first_start_without_room_leaves_nothing_in_the_way_of_the_next() {
    let place = Place::new();
    assert!(place.start_with_short_files(6).await.is_err());
    let database = place.data().join("db");
    assert!(!database.exists() && !place.data().join("db.new").exists());
    assert_eq!(place.start().await.unwrap().stop().await.code(), Some(0));
}

#[tokio::test]
async fn a_second_process_on_the_same_data_is_refused_by_name() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let before = fs::read(place.data().join("server.json")).unwrap();
    let data = place.data();
    let second = place.run(&up(&data)).await;
    assert_eq!(second.status.code(), Some(1));
    assert!(text(&second.stderr).contains("is open in another process"), "{}", text(&second.stderr));
    assert_eq!(fs::read(place.data().join("server.json")).unwrap(), before);
    assert_eq!(demo.stop().await.code(), Some(0));
}

#[cfg(unix)]
#[tokio::test]
async fn a_process_whose_data_is_taken_away_ends_by_name_without_traffic() {
    let place = Place::new();
    let mut demo = place.start().await.unwrap();
    fs::rename(place.data(), place.folder.path().join("aside")).unwrap();
    assert_eq!(demo.process.exit(PATIENCE).await.unwrap().code(), Some(4));
    let said = demo.process.output().unwrap();
    assert!(said.contains("role data failed: the data folder was taken away"), "{said}");

    // What a process that is about to end may make in its place is no data that lost its key.
    let table = place.data().join("db/keyspaces/7");
    fs::create_dir_all(table.join("tables")).unwrap();
    fs::write(table.join("current"), "list").unwrap();
    assert_eq!(place.start().await.unwrap().stop().await.code(), Some(0));
}

#[tokio::test]
async fn first_key_is_in_a_private_file_and_not_in_the_output() {
    for format in ["json", "text"] {
        let place = Place::new();
        let data = place.data();
        let program = Program::new(BINARY, place.folder.path().join("output"));
        let mut process = program.args(up(&data)).env("TIDEGATE__TELEMETRY__FORMAT", format).start().unwrap();
        let ready = process.line("is ready: api", PATIENCE).await.unwrap();
        let file = data.join("first-key");
        let key = fs::read_to_string(&file).unwrap();
        let said = process.output().unwrap();
        assert!(!said.contains("tg_") && said.contains(&file.display().to_string()), "{said}");
        #[cfg(unix)]
        assert_eq!(
            std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&file).unwrap().permissions()) & 0o777,
            0o600
        );
        let api = ready.split("api ").nth(1).unwrap().split(',').next().unwrap();
        let answer =
            http().get(format!("{api}/api/v1/policies/")).header("x-api-key", key.trim()).send().await;
        assert_eq!(answer.unwrap().status(), 200);
        process.terminate().await.unwrap();
        assert_eq!(process.exit(PATIENCE).await.unwrap().code(), Some(0));
    }
}

#[tokio::test]
async fn data_that_lost_its_master_key_is_not_given_another_one() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    assert_eq!(demo.stop().await.code(), Some(0));
    let data = place.data();
    let key = data.join("master.key");
    fs::remove_file(&key).unwrap();
    let mut args = vec!["up", "--data", data.to_str().unwrap()];
    for flag in ["--api-listen", "--console-listen", "--ops-listen"] {
        args.extend([flag, "127.0.0.1:0"]);
    }
    let refused = place.run(&args).await;
    assert_eq!(refused.status.code(), Some(1));
    let said = text(&refused.stderr);
    assert!(said.contains("master.key is missing") && said.contains("security.master_key"), "{said}");
    assert!(!key.exists());
}

#[tokio::test]
async fn another_master_key_than_that_of_the_data_refuses_to_start() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    assert_eq!(demo.stop().await.code(), Some(0));
    let data = place.data();
    let mut args = vec!["up", "--data", data.to_str().unwrap()];
    for flag in ["--api-listen", "--console-listen", "--ops-listen"] {
        args.extend([flag, "127.0.0.1:0"]);
    }
    let key = "A".repeat(43) + "=";
    let refused = place.run_with(&args, &[("TIDEGATE__SECURITY__MASTER_KEY", &key)]).await;
    assert_eq!(refused.status.code(), Some(1));
    let said = text(&refused.stderr);
    for named in ["fingerprint", "security.master_key", "security.lost_master_key"] {
        assert!(said.contains(named), "{named}: {said}");
    }
    assert!(!said.contains(&key), "{said}");
    assert_eq!(place.start().await.unwrap().stop().await.code(), Some(0));

    // Lost, as the settings say: the demo starts, and what only the former key opens is held, not sent unsigned.
    let former = said.split("fingerprint ").nth(1).unwrap().split(',').next().unwrap();
    let demo = place
        .start_with(&[
            ("TIDEGATE__SECURITY__MASTER_KEY", &key),
            ("TIDEGATE__SECURITY__LOST_MASTER_KEY", former),
        ])
        .await
        .unwrap();
    demo.submit(&post("p1", "mallory", "scamcoin")).await;
    let held = eventually_ok("the callback to be held", PATIENCE, async || {
        let listed = demo.admin("/deliveries?itemId=p1").await;
        let delivery = listed["items"][0].clone();
        if delivery["state"] == "held" { Ok(delivery) } else { bail!("{listed}") }
    });
    let held = held.await.unwrap();
    assert_eq!(held["heldReason"], "secret_other_master_key", "{held}");
    assert_eq!(demo.all_received().await.unwrap(), Vec::<Value>::new());
    let told = place.tell(&["demo", "send", "scam"]).await;
    assert!(told.contains("the callback is held") && !told.contains("printed"), "{told}");
    assert_eq!(demo.stop().await.code(), Some(0));
}
