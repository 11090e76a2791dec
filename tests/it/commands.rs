//! Commands against a running process, and their messages when no process runs.

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
async fn pulled_documents_apply_unless_the_version_has_changed() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let folder = place.folder.path().join("documents");
    let documents = folder.to_str().unwrap();
    let pulled = place.run_ok(&["pull", documents]).await;
    assert!(pulled.contains("rules.yaml") && pulled.contains("version 2"), "{pulled}");
    assert_eq!(place.run_ok(&["diff", documents]).await, "");
    assert!(place.run_ok(&["apply", documents]).await.contains("version 2, unchanged"));
    let lint = place.run(&["lint", documents]).await;
    assert!(lint.status.success(), "{}", text(&lint.stderr));

    let rules = fs::read_to_string(folder.join("rules.yaml")).unwrap();
    let word = rules.lines().find(|line| line.trim() == "- scamcoin").unwrap();
    let words = format!("{word}\n{}", word.replace("scamcoin", "moonbag"));
    fs::write(folder.join("rules.yaml"), rules.replace(word, &words)).unwrap();
    let data = place.data();
    let diff = place.run(&["diff", documents, "--data", data.to_str().unwrap()]).await;
    assert_eq!((diff.status.code(), text(&diff.stdout)), (Some(2), "~ rule: demo-scam\n".to_owned()));
    let applied = place.run_ok(&["apply", documents, "--wait"]).await;
    assert!(applied.contains("~ rule: demo-scam") && applied.contains("version 3"), "{applied}");
    assert!(applied.contains("1 processes run it"), "{applied}");
    demo.submit(&post("m1", "mallory", "a moonbag for you")).await;
    assert_eq!(demo.evaluated("post", "m1").await["matchedRules"][0]["id"], "demo-scam");

    // Another operator changes the configuration in between.
    let change = json!({ "files": [{ "name": "q.yaml", "text": "queue: night\n" }] });
    assert_eq!(demo.command("/config", &change).await.0, 200);
    let refusal = place.run(&["apply", documents, "--data", data.to_str().unwrap()]).await;
    assert_eq!(refusal.status.code(), Some(1));
    let stderr = text(&refusal.stderr);
    assert!(stderr.contains("version 4") && stderr.contains("version 3"), "{stderr}");
}

#[tokio::test]
async fn pulled_folder_is_applied_only_to_its_organisation() {
    let place = Place::new();
    let _demo = place.start().await.unwrap();
    place.run_ok(&["org", "create", "acme"]).await;
    let (pulled, own_folder) = (place.folder.path().join("pulled"), place.folder.path().join("own"));
    let (documents, data) = (pulled.to_str().unwrap(), place.data());
    place.run_ok(&["pull", documents]).await;
    // The same number of changes gives both organisations the same version.
    fs::create_dir(&own_folder).unwrap();
    fs::write(own_folder.join("q.yaml"), "queue: day\n").unwrap();
    place.run_ok(&["apply", own_folder.to_str().unwrap(), "--org", "acme"]).await;
    let version = |output: &str| output.lines().last().unwrap().to_owned();
    let acme_folder = place.folder.path().join("other");
    let summary = place.run_ok(&["pull", acme_folder.to_str().unwrap(), "--org", "acme"]).await;
    assert_eq!(version(&summary), version(&place.run_ok(&["pull", documents]).await));

    for command in ["apply", "diff"] {
        let args = [command, documents, "--prune", "--org", "acme", "--data", data.to_str().unwrap()];
        let refusal = place.run(&args).await;
        assert_eq!(refusal.status.code(), Some(1), "{command}");
        let stderr = text(&refusal.stderr);
        assert!(stderr.contains("`default`") && stderr.contains("`acme`"), "{command}: {stderr}");
    }
    let summary = place.run_ok(&["apply", documents, "--prune", "--force", "--org", "acme"]).await;
    assert!(summary.contains("- queue: day"), "{summary}");
    // The folder and its recorded version now belong to the other organisation.
    assert_eq!(place.run_ok(&["diff", documents, "--org", "acme"]).await, "");
    let refusal = place.run(&["diff", documents, "--data", data.to_str().unwrap()]).await;
    assert_eq!(refusal.status.code(), Some(1));
    // A folder pulled by an earlier version of the command records no organisation.
    let state_file = pulled.join(".tidegate.json");
    let state_without_org = fs::read_to_string(&state_file).unwrap().replace(r#","org":"acme""#, "");
    assert!(!state_without_org.contains("org"), "{state_without_org}");
    fs::write(&state_file, state_without_org).unwrap();
    assert_eq!(place.run_ok(&["diff", documents]).await, "");
    for is_told in [true, false] {
        let args = ["apply", documents, "--org", "acme", "--data", data.to_str().unwrap()];
        let applied = place.run(&args).await;
        let stderr = text(&applied.stderr);
        assert!(applied.status.success(), "{stderr}");
        assert_eq!(stderr.contains("it is recorded as `acme` now"), is_told, "{stderr}");
    }
    let refusal = place.run(&["apply", documents, "--data", data.to_str().unwrap()]).await;
    assert_eq!(refusal.status.code(), Some(1));
}

#[tokio::test]
async fn pulled_folder_does_not_restore_documents_removed_elsewhere() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let text = "queue: tmpq\n---\nendpoint: tmpe\nurl: https://e.example/\n";
    let change = json!({ "files": [{ "name": "q.yaml", "text": text }] });
    assert_eq!(demo.command("/config", &change).await.0, 200);
    let (ours, theirs) = (place.folder.path().join("ours"), place.folder.path().join("theirs"));
    let (ours, theirs) = (ours.to_str().unwrap(), theirs.to_str().unwrap());
    place.run_ok(&["pull", ours]).await;
    place.run_ok(&["pull", theirs]).await;
    fs::remove_file(format!("{theirs}/queues.yaml")).unwrap();
    let endpoints = fs::read_to_string(format!("{theirs}/endpoints.yaml")).unwrap();
    let remaining_endpoints: Vec<_> = endpoints.split("---\n").filter(|it| !it.contains("tmpe")).collect();
    fs::write(format!("{theirs}/endpoints.yaml"), remaining_endpoints.join("---\n")).unwrap();
    let applied = place.run_ok(&["apply", theirs, "--prune"]).await;
    assert!(applied.contains("- queue: tmpq") && applied.contains("- endpoint: tmpe"), "{applied}");

    let pulled = place.run_ok(&["pull", ours]).await;
    assert!(pulled.contains("removed") && pulled.contains("queues.yaml"), "{pulled}");
    assert!(!fs::exists(format!("{ours}/queues.yaml")).unwrap());
    assert_eq!(place.run_ok(&["diff", ours]).await, "");
    assert!(place.run_ok(&["apply", ours]).await.contains("unchanged"));
}

#[tokio::test]
async fn pull_keeps_edited_files_unless_forced() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let change = |text: &str| json!({ "files": [{ "name": "q.yaml", "text": text }] });
    assert_eq!(demo.command("/config", &change("queue: tmpq\n")).await.0, 200);
    let folder = place.folder.path().join("documents");
    let (documents, data) = (folder.to_str().unwrap(), place.data());
    let pull = ["pull", documents, "--data", data.to_str().unwrap()];
    place.run_ok(&["pull", documents]).await;
    let rules = fs::read_to_string(folder.join("rules.yaml")).unwrap();
    fs::write(folder.join("rules.yaml"), format!("# mine\n{rules}")).unwrap();
    fs::write(folder.join("queues.yaml"), "queue: mine\n").unwrap();
    fs::write(folder.join("own.yaml"), "queue: own\n").unwrap();
    // The service has no thresholds now, so a pull would remove their file.
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
    let refusal = place.run(&pull).await;
    let stderr = text(&refusal.stderr);
    assert_eq!(refusal.status.code(), Some(1), "{stderr}");
    for named in
        ["rules.yaml was changed", "queues.yaml was changed", "thresholds.yaml was changed", "--force"]
    {
        assert!(stderr.contains(named), "{named}: {stderr}");
    }
    assert!(!stderr.contains("actions.yaml") && !stderr.contains("own.yaml was changed"), "{stderr}");
    assert_eq!(fs::read_to_string(folder.join("queues.yaml")).unwrap(), "queue: mine\n");
    assert_eq!(fs::read(folder.join(".tidegate.json")).unwrap(), before);

    let forced = place.run(&[&pull[..], &["--force"]].concat()).await;
    let stderr = text(&forced.stderr);
    assert!(forced.status.success(), "{stderr}");
    assert!(stderr.contains("own.yaml") && stderr.contains("queue: own"), "{stderr}");
    assert_eq!(fs::read_to_string(folder.join("rules.yaml")).unwrap(), rules);
    assert!(fs::read_to_string(folder.join("queues.yaml")).unwrap().contains("Other"));
    assert_eq!(fs::read_to_string(folder.join("own.yaml")).unwrap(), "queue: own\n");
    assert!(!folder.join("thresholds.yaml").exists());
    let second_pull = place.run(&pull).await;
    assert!(second_pull.status.success(), "{}", text(&second_pull.stderr));
}

#[tokio::test]
async fn lint_lists_each_fault_with_its_place_without_a_server() {
    let place = Place::new();
    let folder = place.folder.path().join("documents");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("a.yaml"), "rule: r\nwhen: {text: {words: [x]}}\nactions: [nothing]\n").unwrap();
    fs::write(folder.join("b.yml"), "policy: p\nparent: q\n---\nolicy: x\n").unwrap();
    let output = place.run(&["lint", "documents"]).await;
    assert_eq!(output.status.code(), Some(1));
    let stderr = text(&output.stderr);
    for named in ["b.yml:4", "a.yaml", "`nothing`", "parent: There is no policy `q`", "4 faults"] {
        assert!(stderr.contains(named), "{named}: {stderr}");
    }
}

#[tokio::test]
async fn unreadable_document_hides_no_other_faults() {
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
    let stderr = text(&output.stderr);
    let has = |parts: &[&str]| stderr.lines().any(|line| parts.iter().all(|part| line.contains(part)));
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
        assert!(has(parts), "{parts:?}: {stderr}");
    }
}

#[tokio::test]
async fn unreadable_files_are_reported_with_faults_of_other_files() {
    let place = Place::new();
    let folder = place.folder.path().join("documents");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("latin.yaml"), b"policy: \xff\n").unwrap();
    std::os::unix::fs::symlink("nowhere", folder.join("away.yaml")).unwrap();
    fs::write(folder.join("policies.yaml"), "policy: p\nparent: may-be-latin\n").unwrap();
    fs::write(folder.join("queues.yaml"), "queue: q\ncolour: red\n").unwrap();
    let output = place.run(&["lint", "documents"]).await;
    assert_eq!(output.status.code(), Some(1));
    let stderr = text(&output.stderr);
    for parts in [["latin.yaml", "UTF-8"], ["away.yaml", "No such file"], ["queues.yaml", "colour"]] {
        assert!(
            stderr.lines().any(|line| parts.iter().all(|part| line.contains(part))),
            "{parts:?}: {stderr}"
        );
    }
    assert!(stderr.ends_with("3 faults\n") && !stderr.contains("may-be-latin"), "{stderr}");
}

#[tokio::test]
async fn keys_are_made_used_listed_and_ended() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let key = place.run_ok(&["keys", "create", "--name", "night shift", "--scopes", "admin"]).await;
    let key = key.trim();
    assert_eq!(demo.admin_as(key, Method::GET, "/jobs", None).await.0, 200);
    let key_list = place.run_ok(&["keys", "list"]).await;
    let line = key_list.lines().find(|line| line.contains("night shift")).unwrap();
    assert!(!key_list.contains(key), "the list contains no complete key");
    let id = line.split_whitespace().next().unwrap();
    place.run_ok(&["keys", "revoke", id]).await;
    assert_eq!(demo.admin_as(key, Method::GET, "/jobs", None).await.0, 401);
    assert!(place.run_ok(&["keys", "list"]).await.contains("revoked"));

    let data = place.data();
    let expired_key =
        place.run(&["keys", "create", "--expires-in-days", "0", "--data", data.to_str().unwrap()]).await;
    assert_eq!(expired_key.status.code(), Some(2));
    assert!(text(&expired_key.stderr).contains("--expires-in-days"), "{}", text(&expired_key.stderr));
    let wrong =
        place.run(&["keys", "create", "--scopes", "everything", "--data", data.to_str().unwrap()]).await;
    assert!(!wrong.status.success());
    assert!(text(&wrong.stderr).contains("everything"));
}

#[tokio::test]
async fn rotated_key_works_for_its_overlap() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let old = place.run_ok(&["keys", "create", "--name", "sender", "--scopes", "admin"]).await;
    let id_of = async |ending: &str| {
        let key_list = place.run_ok(&["keys", "list"]).await;
        let mut lines = key_list.lines().filter(|line| line.contains("sender") && line.ends_with(ending));
        lines.next().map(|line| line.split_whitespace().next().unwrap().to_owned())
    };
    let before = Millis::now();
    let new_key = place.run_ok(&["keys", "rotate", &id_of("active").await.unwrap()]).await;
    assert_ne!(new_key, old);
    for key in [&old, &new_key] {
        assert_eq!(demo.admin_as(key.trim(), Method::GET, "/jobs", None).await.0, 200);
    }
    let key_list = demo.admin("/keys").await;
    let keys: Vec<_> =
        key_list["items"].as_array().unwrap().iter().filter(|key| key["name"] == "sender").collect();
    let ends: Vec<_> = keys.iter().filter_map(|key| key["expiresAt"].as_str()).collect();
    let day = Duration::from_secs(86_400);
    assert!(matches!(ends[..], [end] if end >= before.plus(day).iso().as_str()), "{keys:?}");
    assert!(keys.iter().all(|key| key["scopes"] == json!(["admin"])), "{keys:?}");

    let newest =
        place.run_ok(&["keys", "rotate", &id_of("active").await.unwrap(), "--overlap-hours", "0"]).await;
    assert_eq!(demo.admin_as(new_key.trim(), Method::GET, "/jobs", None).await.0, 401);
    assert_eq!(demo.admin_as(newest.trim(), Method::GET, "/jobs", None).await.0, 200);
}

#[tokio::test]
async fn changing_requests_are_audited_with_their_status() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    place.run_ok(&["org", "create", "acme"]).await;
    let key = place.run_ok(&["keys", "create", "--name", "bot", "--scopes", "admin"]).await;
    let lines = async |arguments: &[&str]| {
        let audit_text = place.run_ok(&[&["audit", "list"], arguments].concat()).await;
        audit_text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    };
    let create_entries = lines(&["--action", "POST /keys"]).await;
    let create_entry = create_entries.iter().find(|entry| entry["detail"]["name"] == "bot").unwrap();
    assert_eq!(
        (&create_entry["actor"], &create_entry["status"]),
        (&json!("operator"), &json!(201)),
        "{create_entry}"
    );
    assert!(!create_entry.to_string().contains(key.trim()), "the audit log contains no secret");

    let id = create_entry["detail"]["key"].as_str().unwrap().to_owned();
    let path = format!("/keys/{id}/rotate");
    assert_eq!(demo.admin_as(key.trim(), Method::POST, &path, Some(&json!({}))).await.0, 201);
    let unknown_key_path = "/keys/nobody/revoke";
    assert_eq!(demo.admin_as(key.trim(), Method::POST, unknown_key_path, None).await.0, 404);
    let of_bot = lines(&["--actor", "bot"]).await;
    let bot_entries: Vec<_> = of_bot
        .iter()
        .map(|entry| (entry["object"].as_str().unwrap(), entry["status"].as_i64(), &entry["action"]))
        .collect();
    let (rotate, revoke) = (json!("POST /keys/{id}/rotate"), json!("POST /keys/{id}/revoke"));
    assert_eq!(bot_entries, [(unknown_key_path, Some(404), &revoke), (&path, Some(201), &rotate)]);

    // Each page starts at the end of the page before it, and reading adds no entries.
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
    let refusal = demo.admin_as(key.trim(), Method::GET, "/audit?since=yesterday", None).await;
    assert_eq!(refusal.0, 400);

    let acme_key = place.run_ok(&["keys", "create", "--scopes", "admin", "--org", "acme"]).await;
    let acme_log = demo.admin_as(acme_key.trim(), Method::GET, "/audit", None).await.1;
    assert!(!acme_log.to_string().contains("bot"), "an organisation sees only its own entries: {acme_log}");
}

#[tokio::test]
async fn second_organisation_starts_empty_and_isolated() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    let (status, _) = demo
        .platform(Method::POST, "/api/v1/report", Some(&crate::support::report(&post("p1", "mallory", "hm"))))
        .await;
    assert_eq!(status, 201);
    let job = demo.job("default", "p1").await;

    place.run_ok(&["org", "create", "acme", "--name", "Acme"]).await;
    let key = place.run_ok(&["keys", "create", "--scopes", "admin", "--org", "acme"]).await;
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
async fn only_selected_dead_letters_are_replayed() {
    let place = Place::new();
    let _demo = place.start().await.unwrap();
    assert_eq!(place.run_ok(&["dead-letters", "list"]).await, "");
    let data = place.data();
    let unnamed = place.run(&["dead-letters", "replay", "--data", data.to_str().unwrap()]).await;
    assert!(!unnamed.status.success());
    assert!(text(&unnamed.stderr).contains("all"));
    assert!(place.run_ok(&["dead-letters", "replay", "--all"]).await.contains("0 replayed"));
    let nope = ["dead-letters", "replay", "--id", "nope", "--data", data.to_str().unwrap()];
    let unknown = place.run(&nope).await;
    let stderr = text(&unknown.stderr);
    assert_eq!(unknown.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("no such dead letter") && stderr.contains("nope"), "{stderr}");
}

#[tokio::test]
async fn single_role_refuses_embedded_engines_by_setting_name() {
    let place = Place::new();
    for role in ["ingest", "process", "deliver", "console"] {
        let output = place.run(&[role]).await;
        assert_eq!(output.status.code(), Some(2), "{role}");
        let stderr = text(&output.stderr);
        for named in [role, "stream.engine = embedded", "store.engine = embedded", "tidegate up"] {
            assert!(stderr.contains(named), "{named}: {stderr}");
        }
    }
    assert!(!place.folder.path().join("tidegate-data").exists(), "no data folder was created");
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
    let mut response_head = [0; 25];
    client.read_exact(&mut response_head).await.unwrap();
    assert_eq!(&response_head, b"HTTP/1.1 100 Continue\r\n\r\n", "the server waits for the body");
    client
}

#[tokio::test]
async fn forced_shutdown_has_its_own_exit_code() {
    let place = Place::new();
    let demo = place.start_with(&[("TIDEGATE__API__HTTP__DRAIN_MS", "100")]).await.unwrap();
    let _request = hanging(&demo).await;
    assert_eq!(demo.stop().await.code(), Some(3), "the drain timeout has expired");

    // The timeout is so long that only the second signal can end the process.
    let long = ["API__HTTP__DRAIN_MS", "API__HTTP__BODY_READ_MS", "OPS__DRAIN_MS"];
    let long = long.map(|name| format!("TIDEGATE__{name}"));
    let long: Vec<_> = long.iter().map(|name| (name.as_str(), "600000")).collect();
    let mut demo = place.start_with(&long).await.unwrap();
    let _request = hanging(&demo).await;
    demo.process.terminate().await.unwrap();
    let stopping =
        async || (demo.operations("/readyz").await.0 == StatusCode::SERVICE_UNAVAILABLE).then_some(());
    eventually("the process to be stopping", PATIENCE, stopping).await.unwrap();
    // Signals in quick succession count as one, so a signal to a process group does not force the end.
    let signal_again = async || {
        let _ended = demo.process.terminate().await;
        demo.process.exit(Duration::from_millis(500)).await.ok()
    };
    let forced = eventually("the process to end by force", PATIENCE, signal_again).await.unwrap();
    assert_eq!(forced.code(), Some(3), "a second signal ends the wait");

    let demo = place.start().await.unwrap();
    assert_eq!(demo.stop().await.code(), Some(0));
}

#[tokio::test]
async fn failed_disk_write_ends_the_process_and_a_restart_recovers() {
    let place = Place::new();
    assert_eq!(
        place.start().await.unwrap().stop().await.code(),
        Some(0),
        "the first start creates the files"
    );
    let mut demo = place.start_with_short_files(800).await.unwrap();
    let mut accepted = Vec::new();
    loop {
        let ids: Vec<_> = (0..50).map(|nth| format!("{}-{nth}", accepted.len())).collect();
        let items: Vec<_> = ids.iter().map(|id| post(id, "mallory", &"scamcoin ".repeat(100))).collect();
        let request_body = json!({ "items": items });
        match demo.platform(Method::POST, "/api/v1/items/async/", Some(&request_body)).await.0 {
            StatusCode::ACCEPTED => accepted.extend(ids),
            refused => break assert_eq!(refused, StatusCode::SERVICE_UNAVAILABLE),
        }
    }
    assert_eq!(demo.process.exit(PATIENCE).await.unwrap().code(), Some(4));
    let process_output = demo.process.output().unwrap();
    assert!(
        process_output.contains("another one can") && process_output.contains("a write had failed"),
        "{process_output}"
    );

    let demo = place.start().await.unwrap();
    assert!(!accepted.is_empty());
    for id in accepted.iter().step_by(7).chain(accepted.last()) {
        demo.evaluated("post", id).await;
    }
    assert_eq!(demo.stop().await.code(), Some(0));
}

#[tokio::test]
async fn address_in_use_is_reported_with_its_setting() {
    let place = Place::new();
    let occupied_port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = occupied_port.local_addr().unwrap().to_string();
    let output = place.run(&["up", "--api-listen", &address, "--ops-listen", "127.0.0.1:0"]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains(&format!("api.listen = {address}")), "{}", text(&output.stderr));
}

#[tokio::test]
async fn commands_without_a_process_print_a_remedy() {
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
async fn messages_hide_user_and_password_of_an_address() {
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
        let refused_list = place.run(&keys).await;
        let env = place.run_with(&["keys", "list", "--help"], &[("TIDEGATE_SERVER", address)]).await;
        assert!(text(&with_key.stderr).contains(named), "{address}: {}", text(&with_key.stderr));
        assert!(text(&refused_list.stderr).contains("--token"), "{address}: {}", text(&refused_list.stderr));
        assert!(env.status.success() && text(&env.stdout).contains("TIDEGATE_SERVER"));
        for output in [with_key, refused_list, env] {
            let output_text = text(&output.stdout) + &text(&output.stderr);
            assert!(!output_text.contains("hush"), "{address}: {output_text}");
        }
    }
}

#[tokio::test]
async fn rules_run_test_and_bench_need_no_server() {
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

    let rule_run =
        place.run(&["rules", "run", "--config", "documents", "--items", "items.ndjson", "--explain"]).await;
    assert!(rule_run.status.success(), "{}", text(&rule_run.stderr));
    let lines: Vec<Value> =
        text(&rule_run.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
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
    let rule_run = place.run(&["rules", "run", "--config", "documents", "--items", "items.ndjson"]).await;
    assert_eq!(rule_run.status.code(), Some(1));
    assert!(text(&rule_run.stdout).contains(r#""refused""#), "{}", text(&rule_run.stdout));
}
