//! The commands against a running process, and what they say where there is none.

use std::{fs, time::Duration};

use crate::support::{Place, post, text};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tidegate_schemas::ids::Millis;
use tidegate_test_support::{PATIENCE, eventually};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

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
async fn a_folder_pulled_from_one_organisation_is_not_applied_to_another() {
    let place = Place::new();
    let _demo = place.start().await.unwrap();
    place.tell(&["org", "create", "acme"]).await;
    let (pulled, own) = (place.folder.path().join("pulled"), place.folder.path().join("own"));
    let (documents, data) = (pulled.to_str().unwrap(), place.data());
    place.tell(&["pull", documents]).await;
    // As many changes, so that the versions are the same.
    fs::create_dir(&own).unwrap();
    fs::write(own.join("q.yaml"), "queue: day\n").unwrap();
    place.tell(&["apply", own.to_str().unwrap(), "--org", "acme"]).await;
    let version = |told: &str| told.lines().last().unwrap().to_owned();
    let other = place.folder.path().join("other");
    let told = place.tell(&["pull", other.to_str().unwrap(), "--org", "acme"]).await;
    assert_eq!(version(&told), version(&place.tell(&["pull", documents]).await));

    for command in ["apply", "diff"] {
        let args = [command, documents, "--prune", "--org", "acme", "--data", data.to_str().unwrap()];
        let refused = place.run(&args).await;
        assert_eq!(refused.status.code(), Some(1), "{command}");
        let said = text(&refused.stderr);
        assert!(said.contains("`default`") && said.contains("`acme`"), "{command}: {said}");
    }
    let told = place.tell(&["apply", documents, "--prune", "--force", "--org", "acme"]).await;
    assert!(told.contains("- queue: day"), "{told}");
    // It is that organisation's from now on, as its version is.
    assert_eq!(place.tell(&["diff", documents, "--org", "acme"]).await, "");
    let refused = place.run(&["diff", documents, "--data", data.to_str().unwrap()]).await;
    assert_eq!(refused.status.code(), Some(1));
    // As an earlier version pulled it.
    let kept = pulled.join(".tidegate.json");
    let without = fs::read_to_string(&kept).unwrap().replace(r#","org":"acme""#, "");
    assert!(!without.contains("org"), "{without}");
    fs::write(&kept, without).unwrap();
    assert_eq!(place.tell(&["diff", documents]).await, "");
    for is_told in [true, false] {
        let args = ["apply", documents, "--org", "acme", "--data", data.to_str().unwrap()];
        let applied = place.run(&args).await;
        let said = text(&applied.stderr);
        assert!(applied.status.success(), "{said}");
        assert_eq!(said.contains("it is recorded as `acme` now"), is_told, "{said}");
    }
    let refused = place.run(&["apply", documents, "--data", data.to_str().unwrap()]).await;
    assert_eq!(refused.status.code(), Some(1));
}

#[tokio::test]
async fn what_was_removed_elsewhere_is_not_brought_back_by_a_pulled_folder() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let text = "queue: tmpq\n---\nendpoint: tmpe\nurl: https://e.example/\n";
    let change = json!({ "files": [{ "name": "q.yaml", "text": text }] });
    assert_eq!(demo.command("/config", &change).await.0, 200);
    let (ours, theirs) = (place.folder.path().join("ours"), place.folder.path().join("theirs"));
    let (ours, theirs) = (ours.to_str().unwrap(), theirs.to_str().unwrap());
    place.tell(&["pull", ours]).await;
    place.tell(&["pull", theirs]).await;
    fs::remove_file(format!("{theirs}/queues.yaml")).unwrap();
    let endpoints = fs::read_to_string(format!("{theirs}/endpoints.yaml")).unwrap();
    let kept: Vec<_> = endpoints.split("---\n").filter(|it| !it.contains("tmpe")).collect();
    fs::write(format!("{theirs}/endpoints.yaml"), kept.join("---\n")).unwrap();
    let applied = place.tell(&["apply", theirs, "--prune"]).await;
    assert!(applied.contains("- queue: tmpq") && applied.contains("- endpoint: tmpe"), "{applied}");

    let pulled = place.tell(&["pull", ours]).await;
    assert!(pulled.contains("removed") && pulled.contains("queues.yaml"), "{pulled}");
    assert!(!fs::exists(format!("{ours}/queues.yaml")).unwrap());
    assert_eq!(place.tell(&["diff", ours]).await, "");
    assert!(place.tell(&["apply", ours]).await.contains("unchanged"));
}

#[tokio::test]
async fn a_pull_touches_no_file_that_was_edited_unless_forced() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let change = |text: &str| json!({ "files": [{ "name": "q.yaml", "text": text }] });
    assert_eq!(demo.command("/config", &change("queue: tmpq\n")).await.0, 200);
    let folder = place.folder.path().join("documents");
    let (documents, data) = (folder.to_str().unwrap(), place.data());
    let pull = ["pull", documents, "--data", data.to_str().unwrap()];
    place.tell(&["pull", documents]).await;
    let rules = fs::read_to_string(folder.join("rules.yaml")).unwrap();
    fs::write(folder.join("rules.yaml"), format!("# mine\n{rules}")).unwrap();
    fs::write(folder.join("queues.yaml"), "queue: mine\n").unwrap();
    fs::write(folder.join("own.yaml"), "queue: own\n").unwrap();
    // Without thresholds, so a pull would remove their file.
    let mut files = vec![json!({ "name": "queues.yaml", "text": "queue: tmpq\nname: Other\n" })];
    for kind in ["item_types", "policies", "actions", "rules", "endpoints", "banks", "windows"] {
        if let Ok(text) = fs::read_to_string(folder.join(format!("{kind}.yaml"))) {
            files.push(json!({ "name": format!("{kind}.yaml"), "text": text }));
        }
    }
    let (status, answer) = demo.command("/config", &json!({ "files": files, "prune": true })).await;
    assert_eq!(status, 200, "{answer}");
    let thresholds = fs::read_to_string(folder.join("thresholds.yaml")).unwrap();
    fs::write(folder.join("thresholds.yaml"), format!("# mine\n{thresholds}")).unwrap();

    let before = fs::read(folder.join(".tidegate.json")).unwrap();
    let refused = place.run(&pull).await;
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    for named in
        ["rules.yaml was changed", "queues.yaml was changed", "thresholds.yaml was changed", "--force"]
    {
        assert!(said.contains(named), "{named}: {said}");
    }
    assert!(!said.contains("actions.yaml") && !said.contains("own.yaml was changed"), "{said}");
    assert_eq!(fs::read_to_string(folder.join("queues.yaml")).unwrap(), "queue: mine\n");
    assert_eq!(fs::read(folder.join(".tidegate.json")).unwrap(), before);

    let forced = place.run(&[&pull[..], &["--force"]].concat()).await;
    let said = text(&forced.stderr);
    assert!(forced.status.success(), "{said}");
    assert!(said.contains("own.yaml") && said.contains("queue: own"), "{said}");
    assert_eq!(fs::read_to_string(folder.join("rules.yaml")).unwrap(), rules);
    assert!(fs::read_to_string(folder.join("queues.yaml")).unwrap().contains("Other"));
    assert_eq!(fs::read_to_string(folder.join("own.yaml")).unwrap(), "queue: own\n");
    assert!(!folder.join("thresholds.yaml").exists());
    let again = place.run(&pull).await;
    assert!(again.status.success(), "{}", text(&again.stderr));
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
    for named in ["b.yml:4", "a.yaml", "`nothing`", "parent: There is no policy `q`", "4 faults"] {
        assert!(said.contains(named), "{named}: {said}");
    }
}

#[tokio::test]
async fn a_document_that_cannot_be_read_hides_no_fault_of_the_others_nor_of_its_own() {
    let place = Place::new();
    let folder = place.folder.path().join("documents");
    fs::create_dir(&folder).unwrap();
    let endpoints = "endpoint: a\nurl: ftp://a.example/\n---\nendpoint: b\nurl: http://u:p@b.example/\n---\n\
        endpoint: c\nurl: ftp://c.example/\nevents: [foo]\n";
    let rule = "rule: r\nwhen:\n  all:\n  - {text: {in: [text], regex: ['(']}}\n  - {txet: {words: [x]}}\n  - {field: 7}\n\
        actoins: []\nstatus: lively\n";
    fs::write(folder.join("endpoints.yaml"), endpoints).unwrap();
    fs::write(folder.join("rules.yaml"), rule).unwrap();
    let types = "item_type: post\nname: Post\nkind: CONTENT\nfields: [{name: text, type: STRING}]\n";
    fs::write(folder.join("types.yaml"), types).unwrap();
    fs::write(folder.join("thresholds.yaml"), "threshold: t\nstrikes: 0\nwithin: 30x\naction: none\n")
        .unwrap();
    fs::write(folder.join("torn.yaml"), "queue: [\n").unwrap();
    let output = place.run(&["lint", "documents"]).await;
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    let has = |parts: &[&str]| said.lines().any(|line| parts.iter().all(|part| line.contains(part)));
    for parts in [
        &["endpoints.yaml", "document 1", "url"][..],
        &["endpoints.yaml", "document 2", "url"],
        &["endpoints.yaml", "document 3", "url"],
        &["endpoints.yaml", "document 3", "events[0]", "foo"],
        &["rules.yaml", "when.all[0].text.regex", "unclosed group"],
        &["rules.yaml", "when.all[1]", "txet"],
        &["rules.yaml", "when.all[2].field"],
        &["rules.yaml", "actoins"],
        &["rules.yaml", "status", "lively"],
        &["thresholds.yaml", "strikes", "at least one"],
        &["thresholds.yaml", "within", "`90d`"],
        &["thresholds.yaml", "action", "`none`"],
        &["torn.yaml"],
    ] {
        assert!(has(parts), "{parts:?}: {said}");
    }
}

#[tokio::test]
async fn files_that_are_no_text_are_told_together_and_with_what_is_certain_of_the_others() {
    let place = Place::new();
    let folder = place.folder.path().join("documents");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("latin.yaml"), b"policy: \xff\n").unwrap();
    std::os::unix::fs::symlink("nowhere", folder.join("away.yaml")).unwrap();
    fs::write(folder.join("policies.yaml"), "policy: p\nparent: may-be-latin\n").unwrap();
    fs::write(folder.join("queues.yaml"), "queue: q\ncolour: red\n").unwrap();
    let output = place.run(&["lint", "documents"]).await;
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    for parts in [["latin.yaml", "UTF-8"], ["away.yaml", "No such file"], ["queues.yaml", "colour"]] {
        assert!(said.lines().any(|line| parts.iter().all(|part| line.contains(part))), "{parts:?}: {said}");
    }
    assert!(said.ends_with("3 faults\n") && !said.contains("may-be-latin"), "{said}");
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
async fn rotated_key_works_for_its_overlap() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let old = place.tell(&["keys", "create", "--name", "sender", "--scopes", "admin"]).await;
    let id_of = async |ending: &str| {
        let listed = place.tell(&["keys", "list"]).await;
        let mut lines = listed.lines().filter(|line| line.contains("sender") && line.ends_with(ending));
        lines.next().map(|line| line.split_whitespace().next().unwrap().to_owned())
    };
    let before = Millis::now();
    let new = place.tell(&["keys", "rotate", &id_of("active").await.unwrap()]).await;
    assert_ne!(new, old);
    for key in [&old, &new] {
        assert_eq!(demo.admin_as(key.trim(), Method::GET, "/jobs", None).await.0, 200);
    }
    let listed = demo.admin("/keys").await;
    let keys: Vec<_> =
        listed["items"].as_array().unwrap().iter().filter(|key| key["name"] == "sender").collect();
    let ends: Vec<_> = keys.iter().filter_map(|key| key["expiresAt"].as_str()).collect();
    let day = Duration::from_secs(86_400);
    assert!(matches!(ends[..], [end] if end >= before.plus(day).iso().as_str()), "{keys:?}");
    assert!(keys.iter().all(|key| key["scopes"] == json!(["admin"])), "{keys:?}");

    let newest =
        place.tell(&["keys", "rotate", &id_of("active").await.unwrap(), "--overlap-hours", "0"]).await;
    assert_eq!(demo.admin_as(new.trim(), Method::GET, "/jobs", None).await.0, 401);
    assert_eq!(demo.admin_as(newest.trim(), Method::GET, "/jobs", None).await.0, 200);
}

#[tokio::test]
async fn requests_that_change_something_are_audited_with_their_end() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    place.tell(&["org", "create", "acme"]).await;
    let key = place.tell(&["keys", "create", "--name", "bot", "--scopes", "admin"]).await;
    let lines = async |arguments: &[&str]| {
        let listed = place.tell(&[&["audit", "list"], arguments].concat()).await;
        listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    };
    let made = lines(&["--action", "POST /keys"]).await;
    let made = made.iter().find(|entry| entry["detail"]["name"] == "bot").unwrap();
    assert_eq!((&made["actor"], &made["status"]), (&json!("operator"), &json!(201)), "{made}");
    assert!(!made.to_string().contains(key.trim()), "no secret is recorded");

    let id = made["detail"]["key"].as_str().unwrap().to_owned();
    let path = format!("/keys/{id}/rotate");
    assert_eq!(demo.admin_as(key.trim(), Method::POST, &path, Some(&json!({}))).await.0, 201);
    let missing = "/keys/nobody/revoke";
    assert_eq!(demo.admin_as(key.trim(), Method::POST, missing, None).await.0, 404);
    let of_bot = lines(&["--actor", "bot"]).await;
    let told: Vec<_> = of_bot
        .iter()
        .map(|entry| (entry["object"].as_str().unwrap(), entry["status"].as_i64(), &entry["action"]))
        .collect();
    let (rotate, revoke) = (json!("POST /keys/{id}/rotate"), json!("POST /keys/{id}/revoke"));
    assert_eq!(told, [(missing, Some(404), &revoke), (&path, Some(201), &rotate)]);

    // Each page ends where the next begins, and reading adds nothing.
    let all = lines(&[]).await;
    let (mut paged, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = demo.admin(&format!("/audit?limit=1{cursor}")).await;
        paged.extend(page["items"].as_array().unwrap().clone());
        let Some(next) = page["next"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(paged, all);
    assert_eq!(lines(&["--until", "2026-01-01T00:00:00Z"]).await, Vec::<Value>::new());
    let refused = demo.admin_as(key.trim(), Method::GET, "/audit?since=yesterday", None).await;
    assert_eq!(refused.0, 400);

    let other = place.tell(&["keys", "create", "--scopes", "admin", "--org", "acme"]).await;
    let seen = demo.admin_as(other.trim(), Method::GET, "/audit", None).await.1;
    assert!(!seen.to_string().contains("bot"), "another organisation sees its own only: {seen}");
}

#[tokio::test]
async fn another_organisation_starts_empty_and_sees_nothing_of_the_first() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let (status, _) = demo
        .platform(Method::POST, "/api/v1/report", Some(&crate::support::report(&post("p1", "mallory", "hm"))))
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
    let claim = json!({ "reviewer": "ann" });
    assert_eq!(demo.admin_as(key, Method::POST, &format!("{path}/claim"), Some(&claim)).await.0, 404);
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
    assert!(place.tell(&["dead-letters", "replay", "--all"]).await.contains("0 replayed"));
    let nope = ["dead-letters", "replay", "--id", "nope", "--data", data.to_str().unwrap()];
    let unknown = place.run(&nope).await;
    let said = text(&unknown.stderr);
    assert_eq!(unknown.status.code(), Some(1), "{said}");
    assert!(said.contains("no such dead letter") && said.contains("nope"), "{said}");
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

/// A request that never ends, on the port for platforms.
async fn hanging(demo: &crate::support::Demo) -> TcpStream {
    let mut client =
        TcpStream::connect(demo.var("TIDEGATE_URL").trim_start_matches("http://")).await.unwrap();
    let key = demo.var("TIDEGATE_API_KEY");
    let head = format!(
        "POST /api/v1/items/async/ HTTP/1.1\r\nhost: h\r\nx-api-key: {key}\r\ncontent-type: application/json\r\n\
         expect: 100-continue\r\ncontent-length: 100\r\n\r\n"
    );
    client.write_all(head.as_bytes()).await.unwrap();
    let mut told = [0; 25];
    client.read_exact(&mut told).await.unwrap();
    assert_eq!(&told, b"HTTP/1.1 100 Continue\r\n\r\n", "the body is waited for");
    client
}

#[tokio::test]
async fn an_end_that_cut_something_off_has_an_exit_code_of_its_own() {
    let place = Place::new();
    let demo = place.start_with(&[("TIDEGATE__API__HTTP__DRAIN_MS", "100")]).await.unwrap();
    let _request = hanging(&demo).await;
    assert_eq!(demo.stop().await.code(), Some(3), "its time to drain is over");

    // Long enough that only the second signal ends it.
    let long = ["API__HTTP__DRAIN_MS", "API__HTTP__BODY_READ_MS", "OPS__DRAIN_MS"];
    let long = long.map(|name| format!("TIDEGATE__{name}"));
    let long: Vec<_> = long.iter().map(|name| (name.as_str(), "600000")).collect();
    let mut demo = place.start_with(&long).await.unwrap();
    let _request = hanging(&demo).await;
    demo.process.terminate().await.unwrap();
    let stopping =
        async || (demo.operations("/readyz").await.0 == StatusCode::SERVICE_UNAVAILABLE).then_some(());
    eventually("the process to be stopping", PATIENCE, stopping).await.unwrap();
    // Signals right after one another are one, so that whoever sends to a group does not force anything.
    let again = async || {
        let _ended = demo.process.terminate().await;
        demo.process.exit(Duration::from_millis(500)).await.ok()
    };
    let forced = eventually("the process to end by force", PATIENCE, again).await.unwrap();
    assert_eq!(forced.code(), Some(3), "told twice it waits no more");

    let demo = place.start().await.unwrap();
    assert_eq!(demo.stop().await.code(), Some(0));
}

#[tokio::test]
async fn a_process_whose_disk_refused_a_write_ends_by_name_and_the_next_one_goes_on() {
    let place = Place::new();
    assert_eq!(place.start().await.unwrap().stop().await.code(), Some(0), "the files are made");
    let mut demo = place.start_with_short_files(800).await.unwrap();
    let mut accepted = Vec::new();
    loop {
        let ids: Vec<_> = (0..50).map(|nth| format!("{}-{nth}", accepted.len())).collect();
        let items: Vec<_> = ids.iter().map(|id| post(id, "mallory", &"scamcoin ".repeat(100))).collect();
        let sent = json!({ "items": items });
        match demo.platform(Method::POST, "/api/v1/items/async/", Some(&sent)).await.0 {
            StatusCode::ACCEPTED => accepted.extend(ids),
            refused => break assert_eq!(refused, StatusCode::SERVICE_UNAVAILABLE),
        }
    }
    assert_eq!(demo.process.exit(PATIENCE).await.unwrap().code(), Some(4));
    let said = demo.process.output().unwrap();
    assert!(said.contains("another one can") && said.contains("a write had failed"), "{said}");

    let demo = place.start().await.unwrap();
    assert!(!accepted.is_empty());
    for id in accepted.iter().step_by(7).chain(accepted.last()) {
        demo.evaluated("post", id).await;
    }
    assert_eq!(demo.stop().await.code(), Some(0));
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
        (&["keys", "list", "--server", "http://127.0.0.1:1", "--token", "tg_x"], "no process listens"),
        (&["keys", "list", "--server", "ftp://127.0.0.1:1", "--token", "tg_x"], "http://"),
        (&["keys", "list", "--server", "localhost:8081", "--token", "tg_x"], "http://"),
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
async fn no_message_shows_the_user_and_password_of_an_address() {
    let place = Place::new();
    for (address, named) in [
        (
            "http://me:hush@127.0.0.1:1",
            "http://...@127.0.0.1:1 (from --server or TIDEGATE_SERVER) names a user",
        ),
        ("https://hush@127.0.0.1:1", "https://...@127.0.0.1:1"),
        ("http://:hush@127.0.0.1:1", "without them"),
        ("http://me:hu/hush@127.0.0.1:1", "is not an address"),
        ("http://me:@hush@127.0.0.1:x", "is not an address"),
        ("me:hush@127.0.0.1:1", "...@127.0.0.1:1"),
        ("http://me:hush%40127.0.0.1:1", "http://... (from --server or TIDEGATE_SERVER) is not an address"),
        ("http://me:hush\u{ff20}127.0.0.1:1", "http://... (from"),
        ("http://me:hush", "http://... (from"),
        ("http://me:hush/", "http://... (from"),
        ("hush://me:hush@127.0.0.1:1", "...@127.0.0.1:1"),
    ] {
        let keys = ["keys", "list", "--server", address];
        let with_key = place.run(&[&keys[..], &["--token", "tg_x"]].concat()).await;
        let without = place.run(&keys).await;
        let env = place.run_with(&["keys", "list", "--help"], &[("TIDEGATE_SERVER", address)]).await;
        assert!(text(&with_key.stderr).contains(named), "{address}: {}", text(&with_key.stderr));
        assert!(text(&without.stderr).contains("--token"), "{address}: {}", text(&without.stderr));
        assert!(env.status.success() && text(&env.stdout).contains("TIDEGATE_SERVER"));
        for output in [with_key, without, env] {
            let said = text(&output.stdout) + &text(&output.stderr);
            assert!(!said.contains("hush"), "{address}: {said}");
        }
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
    let lines: Vec<Value> =
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
