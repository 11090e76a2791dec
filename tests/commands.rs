//! The commands against a running process, and what they say where there is none.

#![allow(clippy::unwrap_used)]

mod running;

use std::fs;

use reqwest::Method;
use running::{Place, post, text};
use serde_json::json;

#[tokio::test]
async fn documents_go_round_and_a_moved_head_is_refused() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let folder = place.folder.path().join("documents");
    let documents = folder.to_str().unwrap();
    let pulled = place.tell(&["pull", documents]).await;
    assert!(pulled.contains("rules.yaml") && pulled.contains("version 2"), "{pulled}");
    assert_eq!(place.tell(&["diff", documents]).await, "");
    assert!(place.tell(&["apply", documents]).await.contains("version 2, unchanged"));
    let lint = place.run(&["lint", documents]).await;
    assert!(lint.status.success(), "{}", text(&lint.stderr));

    let rules = fs::read_to_string(folder.join("rules.yaml")).unwrap();
    let word = rules.lines().find(|line| line.trim() == "- scamcoin").unwrap();
    let words = format!("{word}\n{}", word.replace("scamcoin", "moonbag"));
    fs::write(folder.join("rules.yaml"), rules.replace(word, &words)).unwrap();
    let data = place.data();
    let diff = place.run(&["diff", documents, "--data", data.to_str().unwrap()]).await;
    assert_eq!((diff.status.code(), text(&diff.stdout)), (Some(2), "~ rule: demo-scam\n".to_owned()));
    let applied = place.tell(&["apply", documents, "--wait"]).await;
    assert!(applied.contains("~ rule: demo-scam") && applied.contains("version 3"), "{applied}");
    assert!(applied.contains("1 processes run it"), "{applied}");
    demo.submit(&post("m1", "mallory", "a moonbag for you")).await;
    assert_eq!(demo.evaluated("post", "m1").await["matchedRules"][0]["id"], "demo-scam");

    // Somebody else's change in between.
    let change = json!({ "files": [{ "name": "q.yaml", "text": "queue: night\n" }] });
    assert_eq!(demo.command("/config", &change).await.0, 200);
    let refused = place.run(&["apply", documents, "--data", data.to_str().unwrap()]).await;
    assert_eq!(refused.status.code(), Some(1));
    let said = text(&refused.stderr);
    assert!(said.contains("version 4") && said.contains("version 3"), "{said}");
}

#[tokio::test]
async fn lint_lists_every_fault_with_its_place_and_needs_no_server() {
    let place = Place::new();
    let folder = place.folder.path().join("documents");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("a.yaml"), "rule: r\nwhen: {text: {words: [x]}}\nactions: [nothing]\n").unwrap();
    fs::write(folder.join("b.yml"), "policy: p\nparent: q\n---\nolicy: x\n").unwrap();
    let output = place.run(&["lint", "documents"]).await;
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("b.yml:4"), "{said}");
    fs::write(folder.join("b.yml"), "policy: p\nparent: q\n").unwrap();
    let said = text(&place.run(&["lint", "documents"]).await.stderr);
    assert!(said.contains("a.yaml") && said.contains("nothing") && said.contains("b.yml"), "{said}");
}

#[tokio::test]
async fn keys_are_made_used_listed_and_ended() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let key = place.tell(&["keys", "create", "--name", "night shift", "--scopes", "admin"]).await;
    let key = key.trim();
    assert_eq!(demo.admin_as(key, Method::GET, "/jobs", None).await.0, 200);
    let listed = place.tell(&["keys", "list"]).await;
    let line = listed.lines().find(|line| line.contains("night shift")).unwrap();
    assert!(!listed.contains(key), "a list holds no whole key");
    let id = line.split_whitespace().next().unwrap();
    place.tell(&["keys", "revoke", id]).await;
    assert_eq!(demo.admin_as(key, Method::GET, "/jobs", None).await.0, 401);
    assert!(place.tell(&["keys", "list"]).await.contains("revoked"));

    let data = place.data();
    let past =
        place.run(&["keys", "create", "--expires-in-days", "0", "--data", data.to_str().unwrap()]).await;
    assert_eq!(past.status.code(), Some(2));
    assert!(text(&past.stderr).contains("--expires-in-days"), "{}", text(&past.stderr));
    let wrong =
        place.run(&["keys", "create", "--scopes", "everything", "--data", data.to_str().unwrap()]).await;
    assert!(!wrong.status.success());
    assert!(text(&wrong.stderr).contains("everything"));
}

#[tokio::test]
async fn another_organisation_starts_empty_and_sees_nothing_of_the_first() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let (status, _) = demo
        .platform(Method::POST, "/api/v1/report", Some(&running::report(&post("p1", "mallory", "hm"))))
        .await;
    assert_eq!(status, 201);
    let job = demo.job("default", "p1").await;

    place.tell(&["org", "create", "acme", "--name", "Acme"]).await;
    let key = place.tell(&["keys", "create", "--scopes", "admin", "--org", "acme"]).await;
    let key = key.trim();
    let (status, jobs) = demo.admin_as(key, Method::GET, "/jobs?state=all", None).await;
    assert_eq!((status.as_u16(), &jobs["items"]), (200, &json!([])));
    let path = format!("/jobs/{}", job["id"].as_str().unwrap());
    assert_eq!(demo.admin_as(key, Method::GET, &path, None).await.0, 404);
    assert_eq!(demo.admin_as(key, Method::POST, &format!("{path}/claim"), None).await.0, 404);
    assert_eq!(demo.admin_as(key, Method::GET, "/deliveries", None).await.1["items"], json!([]));
    assert_eq!(demo.admin_as(key, Method::GET, "/config", None).await.1["files"], json!([]));
    assert_eq!(demo.admin_as(key, Method::GET, "/jobs?org=default", None).await.0, 403);
    assert_eq!(demo.admin_as(key, Method::GET, "/orgs", None).await.0, 403);
}

#[tokio::test]
async fn dead_letters_are_listed_and_sent_back_by_selection_only() {
    let place = Place::new();
    let _demo = place.start().await.unwrap();
    assert_eq!(place.tell(&["dead-letters", "list"]).await, "");
    let data = place.data();
    let unnamed = place.run(&["dead-letters", "replay", "--data", data.to_str().unwrap()]).await;
    assert!(!unnamed.status.success());
    assert!(text(&unnamed.stderr).contains("all"));
    assert!(place.tell(&["dead-letters", "replay", "--all"]).await.contains("0 sent back"));
}

#[tokio::test]
async fn single_roles_refuse_embedded_data_by_name() {
    let place = Place::new();
    for role in ["ingest", "process", "deliver", "console"] {
        let output = place.run(&[role]).await;
        assert_eq!(output.status.code(), Some(2), "{role}");
        let said = text(&output.stderr);
        for named in [role, "stream.engine = embedded", "store.engine = embedded", "tidegate up"] {
            assert!(said.contains(named), "{named}: {said}");
        }
    }
    assert!(!place.folder.path().join("tidegate-data").exists(), "nothing was opened");
}

#[tokio::test]
async fn a_second_process_on_the_same_data_is_refused_by_name() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let before = fs::read(place.data().join("server.json")).unwrap();
    let data = place.data();
    let mut args = vec!["up", "--data", data.to_str().unwrap()];
    for flag in ["--api-listen", "--console-listen", "--ops-listen"] {
        args.extend([flag, "127.0.0.1:0"]);
    }
    let second = place.run(&args).await;
    assert_eq!(second.status.code(), Some(1));
    assert!(text(&second.stderr).contains("is open in another process"), "{}", text(&second.stderr));
    assert_eq!(fs::read(place.data().join("server.json")).unwrap(), before);
    assert_eq!(demo.stop().await.code(), Some(0));
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
async fn an_address_in_use_is_told_with_its_setting() {
    let place = Place::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = place.run(&["up", "--api-listen", &address, "--ops-listen", "127.0.0.1:0"]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains(&format!("api.listen = {address}")), "{}", text(&output.stderr));
}

#[tokio::test]
async fn commands_without_a_process_say_what_to_do() {
    let place = Place::new();
    for (args, named) in [
        (&["keys", "list"][..], "tidegate up"),
        (&["apply", "."], "no .yaml"),
        (&["demo", "send", "scam"], "tidegate up --demo"),
        (&["keys", "list", "--server", "http://127.0.0.1:1"], "--token"),
        (&["keys", "list", "--server", "http://127.0.0.1:1", "--token", "tg_x"], "nobody listens"),
    ] {
        let output = place.run(args).await;
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(text(&output.stderr).contains(named), "{args:?}: {}", text(&output.stderr));
    }
    for command in [&["store", "migrate"][..], &["topics", "create"]] {
        let output = place.run(command).await;
        assert!(output.status.success());
        assert!(text(&output.stdout).contains("embedded"), "{command:?}");
    }
}

#[tokio::test]
async fn rules_run_test_and_are_measured_without_a_server() {
    let place = Place::new();
    let folder = place.folder.path().join("documents");
    fs::create_dir(&folder).unwrap();
    let documents = "item_type: post\nname: Post\nkind: CONTENT\nfields: [{name: text, type: STRING}]\n---\n\
        rule: scam\nwhen: {text: {in: [text], words: [scam]}}\n\
        tests: [{item_type: post, item: {text: a scam}, expect: match}]\n";
    fs::write(folder.join("rules.yaml"), documents).unwrap();
    let item = |id: &str, text: &str, expect: &str| {
        format!(r#"{{"id":"{id}","typeId":"post","data":{{"text":"{text}"}},"expect":[{expect}]}}"#)
    };
    let items = [item("1", "a Scam!", r#""scam""#), String::new(), item("2", "scams", "")].join("\n");
    fs::write(place.folder.path().join("items.ndjson"), &items).unwrap();

    let ran =
        place.run(&["rules", "run", "--config", "documents", "--items", "items.ndjson", "--explain"]).await;
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let lines: Vec<serde_json::Value> =
        text(&ran.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["matched"], &lines[1]["matched"]), (&json!(["scam"]), &json!([])));
    assert_eq!(lines[0]["trees"]["scam"]["text"]["hits"][0]["found"], "Scam");
    assert_eq!(lines.len(), 2);

    let test =
        ["rules", "test", "--config", "documents", "--fixtures", "items.ndjson", "--junit", "junit.xml"];
    let tested = place.run(&test).await;
    assert_eq!((tested.status.code(), text(&tested.stdout)), (Some(0), "3 tests, 0 failed\n".to_owned()));
    fs::write(place.folder.path().join("items.ndjson"), format!("{items}\n{}", item("3", "a scam", "")))
        .unwrap();
    let tested = place.run(&test).await;
    assert_eq!(tested.status.code(), Some(1));
    assert!(text(&tested.stderr).contains("line 4, post 3: matched: scam"), "{}", text(&tested.stderr));
    let report = fs::read_to_string(place.folder.path().join("junit.xml")).unwrap();
    assert!(report.contains(r#"tests="4" failures="1""#), "{report}");

    let bench = ["rules", "bench", "--config", "documents", "--items", "items.ndjson", "--seconds", "1"];
    let measured = text(&place.run(&bench).await.stdout);
    assert!(
        measured.contains("2 items of 3 match a rule") && measured.contains("items a second"),
        "{measured}"
    );

    fs::write(place.folder.path().join("items.ndjson"), r#"{"id":"4","typeId":"pots","data":{}}"#).unwrap();
    let ran = place.run(&["rules", "run", "--config", "documents", "--items", "items.ndjson"]).await;
    assert_eq!(ran.status.code(), Some(1));
    assert!(text(&ran.stdout).contains(r#""refused""#), "{}", text(&ran.stdout));
}
