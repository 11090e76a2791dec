//! Shipped signal documents, checked against exchanges written from the services' documentation; and the
//! sealed header values of signals.

use std::{collections::HashMap, fs, path::Path};

use serde_json::Value;
use tidegate_catalog::{Settings, change};
use tidegate_schemas::ids::Millis;

use super::{
    changes::faults,
    support::{World, change as change_of},
};

#[test]
fn shipped_signals_speak_the_documented_forms() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for entry in fs::read_dir(root.join("../../deploy/signals")).unwrap() {
        let path = entry.unwrap().path();
        files.push((
            path.file_name().unwrap().to_str().unwrap().to_owned(),
            fs::read_to_string(path).unwrap(),
        ));
    }
    let settings = Settings::default();
    let warnings = change::lint_files(&files, &[], &settings, Millis(0), 9).unwrap();
    assert_eq!(warnings.total, 0, "{:?}", warnings.listed_warnings);
    let (compiled, _) = change::compile_offline(&files, &settings).unwrap();
    let mut exchange_count = 0;
    for entry in fs::read_dir(root.join("tests/it/exchanges")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|it| it != "json") {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap();
        let exchange: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let signal = compiled.signal(name).unwrap_or_else(|| panic!("no signal {name}"));
        let inputs = exchange["inputs"].as_array().unwrap();
        let body: Value = serde_json::from_slice(&signal.body(inputs)).unwrap();
        assert_eq!(body, exchange["request"], "{name}");
        let all = signal.read(exchange["response"].to_string().as_bytes(), inputs.len()).unwrap();
        let all: Vec<_> = all.into_iter().map(|scores| scores.unwrap().labels).collect();
        let expected_labels: Vec<HashMap<String, f64>> =
            serde_json::from_value(exchange["scores"].clone()).unwrap();
        assert_eq!(all, expected_labels, "{name}");
        exchange_count += 1;
    }
    assert_eq!(exchange_count, 4);
}

const SIGNAL: &str =
    "signal: s\nurl: https://m.example/\nheaders: {X-Key: t0ken}\ninput: text\noutput: {score: /s}\n";

#[tokio::test]
async fn header_values_of_signals_are_sealed_for_their_signal() {
    let world = World::new().await;
    let version = world.apply(SIGNAL).await;
    let pulled = world.changes().pull(&world.org).await.unwrap().files;
    let (_, pulled) = pulled.into_iter().find(|(name, _)| name == "signals.yaml").unwrap();
    assert!(!pulled.contains("t0ken") && pulled.contains("sealed:"), "{pulled}");
    assert_eq!(world.apply(SIGNAL).await, version);
    assert_eq!(world.apply(&pulled).await, version);
    let running = world.live().await;
    let config = running.live.org(&world.org).unwrap();
    let signal = config.signal("s").unwrap();
    let secrets = world.secrets();
    let open = |header: &str, value: &str| secrets.open_header(&world.org, &signal.key, header, value);
    let headers = signal.resolve_headers(|_| None, open).unwrap();
    assert_eq!(headers, [("X-Key".to_owned(), "t0ken".to_owned())]);
    running.stop().await;
    // Neither another signal nor an endpoint of the same name can open the sealed value.
    let sealed = pulled.lines().find(|line| line.contains("sealed:")).unwrap();
    let endpoint = format!("endpoint: s\nurl: https://m.example/\nheaders:\n{sealed}\n");
    for text in [pulled.replace("signal: s", "signal: t"), endpoint] {
        let fault_texts = faults(world.changes().apply(&world.org, change_of(&text)).await.unwrap_err());
        assert!(fault_texts.len() == 1 && fault_texts[0].contains("does not open here"), "{fault_texts:?}");
    }
}
