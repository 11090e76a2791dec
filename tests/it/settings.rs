//! What the service refuses to start with, and what it says about the settings that are in force.

use tidegate_test_support::PATIENCE;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{Place, text};

/// Runs `check-config` on a settings file and variables; gives its exit code, output and complaints.
async fn check(file: &str, env: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let place = Place::new();
    std::fs::write(place.folder.path().join("tidegate.toml"), file).unwrap();
    let output = place.run_with(&["check-config"], env).await;
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[tokio::test]
async fn defaults_file_and_variables_are_told_apart() {
    let file = "[stream]\nprefix = \"ours\"\n[review]\nundo_ms = 5\n";
    let (code, shown, _) = check(file, &[("TIDEGATE__REVIEW__UNDO_MS", "7")]).await;
    assert_eq!(code, Some(0));
    for line in [
        "stream.prefix = \"ours\"  # tidegate.toml",
        "review.undo_ms = 7  # TIDEGATE__REVIEW__UNDO_MS",
        "stream.engine = \"embedded\"  # default",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line}: {shown}");
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
    let (code, shown, complaints) = check(file, &env).await;
    assert_eq!(code, Some(0), "{complaints}");
    assert_eq!(shown.matches("***").count(), 4, "{shown}");
    for secret in [key.as_str(), "hunter"] {
        assert!(!shown.contains(secret) && !complaints.contains(secret));
    }
}

#[tokio::test]
async fn a_file_that_is_no_toml_is_told_by_its_place_without_its_text() {
    for (file, place) in [
        ("# ä\n[security]\nmaster_key = \"hunter2\n", "line 3, column 22: "),
        ("[security]\nmaster_key = hunter2\n", "line 2, column 14: "),
        ("[security]\nmaster_key = \"a\"\nmaster_key = \"hunter2\"\n", "line 3, column 1: "),
        ("[security] hunter2", "line 1, column 12: "),
    ] {
        let (code, _, said) = check(file, &[]).await;
        assert_eq!(code, Some(2));
        assert!(said.contains(&format!("tidegate.toml is not TOML: {place}")), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
}

#[tokio::test]
async fn what_cannot_work_is_refused_by_name_and_by_who_set_it() {
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
async fn what_a_start_would_refuse_is_refused_by_the_check_too_with_who_set_it() {
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
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{args:?} {text}: {said}");
            assert!(said.contains(&origin) && !said.contains("hunter"), "{args:?} {text}: {said}");
        }
        let left: Vec<_> = std::fs::read_dir(place.folder.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "{text}: nothing was made: {left:?}");
    }
}

#[tokio::test]
async fn a_shared_store_without_a_master_key_is_refused_by_the_check_too() {
    let (code, _, said) = check("[stream]\nengine = \"kafka\"\n[store]\nengine = \"cql\"\n", &[]).await;
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("security.master_key_file"), "{said}");
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
            // The file that it names is looked at, and is not there.
            Some(missing) => assert!(code == Some(2) && complaints.contains(missing), "{complaints}"),
            None => assert_eq!(code, Some(0), "{complaints}"),
        }
    }
}

#[tokio::test]
async fn a_file_that_was_named_must_be_there() {
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
        let said = process.output().unwrap();
        assert_eq!(code, Some(1), "{said}");
        for part in [&format!("may open {files} files"), "needs 256", "ulimit -n 256", "LimitNOFILE=256"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(!place.data().join("db").exists(), "nothing was made");
    }
}

#[tokio::test]
async fn the_fewest_open_files_are_enough_for_64_connections() {
    let place = Place::new();
    let mut process = place.begin_with_few_files(256).unwrap();
    let ready = process.line("is ready: api", PATIENCE).await.unwrap();
    let api = ready.split("api http://").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
    // Half of the API's 48 are for one address.
    let mut clients = Vec::new();
    for _ in 0..24 {
        clients.push(tokio::net::TcpStream::connect(api).await.unwrap());
    }
    for client in &mut clients {
        client.write_all(b"GET /livez HTTP/1.1\r\nhost: h\r\n\r\n").await.unwrap();
        assert!(client.read(&mut [0; 16]).await.unwrap() > 0, "it is answered");
    }
    process.terminate().await.unwrap();
    assert_eq!(process.exit(PATIENCE).await.unwrap().code(), Some(0));
}
