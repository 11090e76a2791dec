//! The data folder across successive processes.

use std::{fs, path::Path};

use crate::support::{BINARY, Place, http, post, text};
use anyhow::bail;
use serde_json::Value;
use tidegate_test_support::{PATIENCE, Program, eventually_ok};

/// Arguments for a start on a data folder, on free ports.
fn up(data: &Path) -> Vec<&str> {
    let mut args = vec!["up", "--data", data.to_str().unwrap()];
    for flag in ["--api-listen", "--console-listen", "--ops-listen"] {
        args.extend([flag, "127.0.0.1:0"]);
    }
    args
}

#[tokio::test]
async fn second_of_two_first_starts_creates_no_files() {
    let place = Place::new();
    fs::create_dir(place.data()).unwrap();
    let data = place.data();
    let first = fs::File::open(&data).unwrap();
    first.lock().unwrap();
    let second = place.run(&up(&data)).await;
    let stderr = text(&second.stderr);
    assert_eq!(second.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("is being opened by another process"), "{stderr}");
    // A key of the second process would replace the key of the first.
    assert_eq!(fs::read_dir(&data).unwrap().count(), 0);
    drop(first);
    assert_eq!(place.start().await.unwrap().stop().await.code(), Some(0));
}

#[tokio::test]
async fn first_start_without_disk_space_does_not_block_the_next() {
    let place = Place::new();
    assert!(place.start_with_short_files(6).await.is_err());
    let database = place.data().join("db");
    assert!(!database.exists() && !place.data().join("db.new").exists());
    assert_eq!(place.start().await.unwrap().stop().await.code(), Some(0));
}

#[tokio::test]
async fn second_process_on_the_same_data_is_refused() {
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
async fn process_ends_when_its_data_folder_is_removed() {
    let place = Place::new();
    let mut demo = place.start().await.unwrap();
    fs::rename(place.data(), place.folder.path().join("aside")).unwrap();
    assert_eq!(demo.process.exit(PATIENCE).await.unwrap().code(), Some(4));
    let process_output = demo.process.output().unwrap();
    assert!(process_output.contains("role data failed: the data folder was taken away"), "{process_output}");

    // The ending process may recreate the folder. The next start must not take that folder for data without its key.
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
        let process_output = process.output().unwrap();
        assert!(
            !process_output.contains("tg_") && process_output.contains(&file.display().to_string()),
            "{process_output}"
        );
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
async fn missing_master_key_is_not_replaced() {
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
    let refusal = place.run(&args).await;
    assert_eq!(refusal.status.code(), Some(1));
    let stderr = text(&refusal.stderr);
    assert!(stderr.contains("master.key is missing") && stderr.contains("security.master_key"), "{stderr}");
    assert!(!key.exists());
}

#[tokio::test]
async fn start_with_another_master_key_is_refused() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    assert_eq!(demo.stop().await.code(), Some(0));
    let data = place.data();
    let mut args = vec!["up", "--data", data.to_str().unwrap()];
    for flag in ["--api-listen", "--console-listen", "--ops-listen"] {
        args.extend([flag, "127.0.0.1:0"]);
    }
    let key = "A".repeat(43) + "=";
    let refusal = place.run_with(&args, &[("TIDEGATE__SECURITY__MASTER_KEY", &key)]).await;
    assert_eq!(refusal.status.code(), Some(1));
    let stderr = text(&refusal.stderr);
    for named in ["fingerprint", "security.master_key", "security.lost_master_key"] {
        assert!(stderr.contains(named), "{named}: {stderr}");
    }
    assert!(!stderr.contains(&key), "{stderr}");
    assert_eq!(place.start().await.unwrap().stop().await.code(), Some(0));

    // The demo starts with the key declared lost. Callbacks that need the former key are held, not sent unsigned.
    let former = stderr.split("fingerprint ").nth(1).unwrap().split(',').next().unwrap();
    let demo = place
        .start_with(&[
            ("TIDEGATE__SECURITY__MASTER_KEY", &key),
            ("TIDEGATE__SECURITY__LOST_MASTER_KEY", former),
        ])
        .await
        .unwrap();
    demo.submit(&post("p1", "mallory", "scamcoin")).await;
    let held_delivery = eventually_ok("the callback to be held", PATIENCE, async || {
        let delivery_list = demo.admin("/deliveries?itemId=p1").await;
        let delivery = delivery_list["items"][0].clone();
        if delivery["state"] == "held" { Ok(delivery) } else { bail!("{delivery_list}") }
    });
    let held_delivery = held_delivery.await.unwrap();
    assert_eq!(held_delivery["heldReason"], "secret_other_master_key", "{held_delivery}");
    assert_eq!(demo.all_received().await.unwrap(), Vec::<Value>::new());
    let command_output = place.run_ok(&["demo", "send", "scam"]).await;
    assert!(
        command_output.contains("the callback is held") && !command_output.contains("printed"),
        "{command_output}"
    );
    assert_eq!(demo.stop().await.code(), Some(0));
}
