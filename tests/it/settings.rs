//! Settings that the service refuses to start with, and its output about the effective settings.

use tidegate_test_support::PATIENCE;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{Place, text};

/// Runs `check-config` on a settings file and variables. Returns its exit code, output and complaints.
async fn check(file: &str, env: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let place = Place::new();
    std::fs::write(place.folder.path().join("tidegate.toml"), file).unwrap();
    let output = place.run_with(&["check-config"], env).await;
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[tokio::test]
async fn check_config_names_the_origin_of_each_value() {
    let file = "[stream]\nprefix = \"ours\"\n[review]\nundo_ms = 5\n";
    let (code, output, _) = check(file, &[("TIDEGATE__REVIEW__UNDO_MS", "7")]).await;
    assert_eq!(code, Some(0));
    for line in [
        "stream.prefix = \"ours\"  # tidegate.toml",
        "review.undo_ms = 7  # TIDEGATE__REVIEW__UNDO_MS",
        "stream.engine = \"embedded\"  # default",
    ] {
        assert!(output.lines().any(|output_line| output_line == line), "{line}: {output}");
    }
}

#[tokio::test]
async fn secrets_are_masked() {
    let key = "A".repeat(43) + "=";
    let env = [
        ("TIDEGATE__SECURITY__MASTER_KEY", key.as_str()),
        ("TIDEGATE__STORE__CQL__USERNAME", "us"),
        ("TIDEGATE__STORE__CQL__PASSWORD", "hunter2"),
        ("TIDEGATE__STREAM__SCHEMA_REGISTRY__URL", "http://127.0.0.1:1"),
        ("TIDEGATE__STREAM__SCHEMA_REGISTRY__USERNAME", "us"),
        ("TIDEGATE__STREAM__SCHEMA_REGISTRY__PASSWORD", "hunter3"),
    ];
    let file = "[stream.kafka.librdkafka]\n\"sasl.password\" = \"hunter4\"\n";
    let (code, output, complaints) = check(file, &env).await;
    assert_eq!(code, Some(0), "{complaints}");
    assert_eq!(output.matches("***").count(), 4, "{output}");
    for secret in [key.as_str(), "hunter"] {
        assert!(!output.contains(secret) && !complaints.contains(secret));
    }
}

#[tokio::test]
async fn invalid_toml_is_reported_by_place_without_its_text() {
    for (file, place) in [
        ("# ä\n[security]\nmaster_key = \"hunter2\n", "line 3, column 22: "),
        ("[security]\nmaster_key = hunter2\n", "line 2, column 14: "),
        ("[security]\nmaster_key = \"a\"\nmaster_key = \"hunter2\"\n", "line 3, column 1: "),
        ("[security] hunter2", "line 1, column 12: "),
    ] {
        let (code, _, complaints) = check(file, &[]).await;
        assert_eq!(code, Some(2));
        assert!(complaints.contains(&format!("tidegate.toml is not TOML: {place}")), "{complaints}");
        assert!(!complaints.contains("hunter2"), "{complaints}");
    }
}

#[tokio::test]
async fn invalid_settings_are_refused_with_name_and_origin() {
    for (file, env, named) in [
        ("[api]\nlisen = \"x\"\n", None, &["api.lisen", "tidegate.toml"][..]),
        ("[revew]\n", None, &["revew", "unknown"]),
        ("[review]\nundo_ms = \"soon\"\n", None, &["review.undo_ms", "tidegate.toml"]),
        ("", Some(("TIDEGATE__REVIEW__UNDO_MS", "soon")), &["review.undo_ms", "TIDEGATE__REVIEW__UNDO_MS"]),
        ("", Some(("TIDEGATE__NOTHING", "1")), &["nothing", "TIDEGATE__NOTHING"]),
        ("[api]\nlisten = \"127.0.0.1:9464\"\n", None, &["api.listen", "ops.listen", "127.0.0.1:9464"]),
        (
            "[egress]\nconnect_timeout_ms = 20000\n",
            None,
            &["egress.connect_timeout_ms = 20000", "egress.total_timeout_ms = 15000", "tidegate.toml"],
        ),
        (
            "[store]\nengine = \"cql\"\n[store.cql]\nsettle_timeout_ms = 1\n",
            None,
            &["store.cql", "settle_timeout_ms"],
        ),
        ("[ops]\ndrain_ms = 1\n", None, &["ops.drain_ms = 1", "stream.consume.drain_timeout_ms"]),
        (
            "[security]\nmaster_key = \"x\"\nmaster_key_file = \"y\"\n",
            None,
            &["security.master_key", "security.master_key_file"],
        ),
        ("[stream]\nengine = \"redis\"\n", None, &["stream.engine", "redis"]),
        ("[api\n", None, &["tidegate.toml"]),
    ] {
        let (code, _, complaints) = check(file, env.as_slice()).await;
        assert_eq!(code, Some(2), "{file}: {complaints}");
        for name in named {
            assert!(complaints.contains(name), "{name}: {complaints}");
        }
    }
}

#[tokio::test]
async fn check_config_refuses_the_settings_that_a_start_refuses() {
    const CQL: &str = "[store]\nengine = \"cql\"\n[store.cql]\npassword = \"hunter2\"\n";
    const PASSWORD: &str =
        "[store]\nengine = \"cql\"\n[store.cql]\nusername = \"us\"\npassword_file = \"nowhere\"\n";
    const KAFKA: &str = "[stream]\nengine = \"kafka\"\n";
    const REGISTRY: &str = "[stream.schema_registry]\nurl = \"http://127.0.0.1:1\"\n";
    let file = |setting: &str| format!("{setting} is set by tidegate.toml");
    let security = format!("[security]\nmaster_key = \"{}=\"\n", "A".repeat(43));
    let password = format!("{security}{PASSWORD}");
    let broker = format!("{KAFKA}[stream.kafka.librdkafka_files]\n\"sasl.password\" = \"nowhere\"\n");
    let registry = format!("{KAFKA}{REGISTRY}username = \"us\"\npassword_file = \"nowhere\"\n");
    let authority = format!("{KAFKA}{REGISTRY}ca_file = \"nowhere\"\n");
    for (text, env, setting) in [
        ("[security]\nmaster_key = \"x\"\n", None, "security.master_key"),
        ("[security]\nmaster_key = \"\"\n", None, "security.master_key"),
        ("", Some(("TIDEGATE__SECURITY__MASTER_KEY", "x")), "security.master_key"),
        ("[security]\nmaster_key_file = \"/nonexistent\"\n", None, "security.master_key_file"),
        ("[egress]\nca_file = \"/nope\"\n", None, "egress.ca_file"),
        ("[telemetry]\nfilter = \"not==a(filter\"\n", None, "telemetry.filter"),
        ("[data]\nfolder = \"\"\n", None, "data.folder"),
        ("[api.http]\nbody_bytes = 0\n", None, "api.http.body_bytes"),
        ("[callbacks]\nin_flight = 0\n", None, "callbacks.in_flight"),
        ("[ingest.limits]\ndata_bytes = 0\n", None, "ingest.limits.data_bytes"),
        ("", Some(("TIDEGATE__INGEST__LIMITS__ID_BYTES", "0")), "ingest.limits.id_bytes"),
        (CQL, None, "store.cql.password"),
        (&password, None, "store.cql.password_file"),
        (&broker, None, "stream.kafka.librdkafka_files.sasl.password"),
        (&registry, None, "stream.schema_registry.password_file"),
        (&authority, None, "stream.schema_registry.ca_file"),
    ] {
        let place = Place::new();
        std::fs::write(place.folder.path().join("tidegate.toml"), text).unwrap();
        let origin = env.map_or_else(|| file(setting), |(name, _)| format!("{setting} is set by {name}"));
        let anywhere = ["--api-listen", "--console-listen", "--ops-listen"];
        let up: Vec<_> = anywhere.into_iter().flat_map(|flag| [flag, "127.0.0.1:0"]).collect();
        for args in [vec!["check-config"], [&["up"][..], &up].concat()] {
            let output = place.run_with(&args, env.as_slice()).await;
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{args:?} {text}: {stderr}");
            assert!(stderr.contains(&origin) && !stderr.contains("hunter"), "{args:?} {text}: {stderr}");
        }
        let left: Vec<_> = std::fs::read_dir(place.folder.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "{text}: the check created files: {left:?}");
    }
}

#[tokio::test]
async fn check_config_refuses_a_shared_store_without_master_key() {
    let (code, _, complaints) = check("[stream]\nengine = \"kafka\"\n[store]\nengine = \"cql\"\n", &[]).await;
    assert_eq!(code, Some(2), "{complaints}");
    assert!(complaints.contains("security.master_key_file"), "{complaints}");
}

#[tokio::test]
async fn settings_that_ask_for_tls_are_refused_by_a_build_without_it_and_by_no_other() {
    for (file, setting, named) in [
        (
            "[stream]\nengine = \"kafka\"\n[stream.kafka.librdkafka]\n\"security.protocol\" = \"ssl\"\n",
            "security.protocol",
            None,
        ),
        (
            "[store]\nengine = \"cql\"\n[store.cql.tls]\nca_file = \"ca.pem\"\n",
            "store.cql",
            Some("store.cql.tls.ca_file is set by tidegate.toml"),
        ),
    ] {
        let file = format!("[security]\nmaster_key = \"{}=\"\n{file}", "A".repeat(43));
        let (code, _, complaints) = check(&file, &[]).await;
        match named {
            _ if cfg!(not(feature = "tls")) => {
                assert!(
                    complaints.contains(setting) && complaints.contains("the feature `tls`"),
                    "{complaints}"
                );
                assert_eq!(code, Some(2), "{complaints}");
            }
            // The check reads the named file, which does not exist.
            Some(missing) => assert!(code == Some(2) && complaints.contains(missing), "{complaints}"),
            None => assert_eq!(code, Some(0), "{complaints}"),
        }
    }
}

#[tokio::test]
async fn named_settings_file_must_exist() {
    let place = Place::new();
    let output = place.run(&["check-config", "--config", "missing.toml"]).await;
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("missing.toml"));
}

#[tokio::test]
async fn a_start_with_too_few_open_files_is_refused_with_the_remedy() {
    for files in [24, 128, 255] {
        let place = Place::new();
        let mut process = place.begin_with_few_files(files).unwrap();
        let code = process.exit(PATIENCE).await.unwrap().code();
        let process_output = process.output().unwrap();
        assert_eq!(code, Some(1), "{process_output}");
        for part in [&format!("may open {files} files"), "needs 256", "ulimit -n 256", "LimitNOFILE=256"] {
            assert!(process_output.contains(part), "{part}: {process_output}");
        }
        assert!(!place.data().join("db").exists(), "the refused start created a database");
    }
}

#[tokio::test]
async fn minimum_of_open_files_serves_64_connections() {
    let place = Place::new();
    let mut process = place.begin_with_few_files(256).unwrap();
    let ready = process.line("is ready: api", PATIENCE).await.unwrap();
    let api = ready.split("api http://").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
    // One address may use half of the API's 48 connections.
    let mut clients = Vec::new();
    for _ in 0..24 {
        clients.push(tokio::net::TcpStream::connect(api).await.unwrap());
    }
    for client in &mut clients {
        client.write_all(b"GET /livez HTTP/1.1\r\nhost: h\r\n\r\n").await.unwrap();
        assert!(client.read(&mut [0; 16]).await.unwrap() > 0, "the request is answered");
    }
    process.terminate().await.unwrap();
    assert_eq!(process.exit(PATIENCE).await.unwrap().code(), Some(0));
}

/// Settings file with one schedule and further lines of it.
fn schedule_file(more: &str) -> String {
    format!(
        "[[export.schedules]]\nname = \"nightly\"\norg = \"acme\"\ncron = \"30 2 * * *\"\n{more}\n\
         [export.schedules.destination]\nurl = \"s3://exports/x\"\naccess_key_id = \"${{TEST_EXPORT_KEY}}\"\n\
         secret_access_key = \"hunter2\"\n"
    )
}

#[tokio::test]
async fn unusable_schedule_is_refused_with_setting_remedy_and_origin() {
    let key = &[("TEST_EXPORT_KEY", "id")][..];
    for (more, env, parts) in [
        ("", key, &["export.schedules[nightly].datasets", "list datasets"][..]),
        (
            "datasets = [\"decisons\"]",
            key,
            &["export.schedules", "no dataset `decisons`", "did you mean `decisions`?"],
        ),
        ("datasets = [\"decisions\"]\ncolumn = [\"x\"]", key, &["export.schedules", "`column`", "`columns`"]),
        (
            "datasets = [\"decisions\"]\ncolumns = [\"verdct\"]",
            key,
            &["export.schedules[nightly].columns", "did you mean `verdict`?"],
        ),
        (
            "datasets = [\"decisions\"]",
            &[],
            &["export.schedules[nightly].destination.access_key_id", "`TEST_EXPORT_KEY`", "not set"],
        ),
    ] {
        let (code, _, complaints) = check(&schedule_file(more), env).await;
        assert_eq!(code, Some(2), "{more}: {complaints}");
        for part in parts.iter().copied().chain(["tidegate.toml"]) {
            assert!(complaints.contains(part), "{part}: {complaints}");
        }
        assert!(!complaints.contains("hunter2"), "{complaints}");
    }
    let (code, output, complaints) = check(&schedule_file("datasets = [\"decisions\"]"), key).await;
    assert_eq!(code, Some(0), "{complaints}");
    assert!(output.contains("export.schedules = ") && output.contains("***"), "{output}");
    assert!(!output.contains("hunter2"), "{output}");
}

#[tokio::test]
async fn run_exports_names_its_needs() {
    let schedule = schedule_file("datasets = [\"decisions\"]");
    let cql = format!(
        "[store]\nengine = \"cql\"\n[store.cql]\nusername = \"us\"\npassword_file = \"nowhere\"\n{schedule}"
    );
    for (file, parts) in [
        ("", &["export.schedules", "deploy/tidegate.toml"][..]),
        (&schedule, &["store.engine = embedded", "`tidegate up`"]),
        // Neither a log nor a master key is needed.
        (&cql, &["store.cql.password_file", "nowhere"]),
    ] {
        let place = Place::new();
        std::fs::write(place.folder.path().join("tidegate.toml"), file).unwrap();
        let output = place.run_with(&["run-exports"], &[("TEST_EXPORT_KEY", "id")]).await;
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        for part in parts {
            assert!(stderr.contains(part), "{part}: {stderr}");
        }
    }
}
