use std::{
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use tidegate_catalog::{
    ActionKind, ApplyError, Change, Queue,
    change::{DifferenceKind, Pulls, WaitOutcome, lint_files},
    orgs,
};
use tidegate_schemas::{
    documents::{Event, Severity},
    ids::{ActionId, ConfigVersion, EndpointId, ItemKey, Millis, OrgId, TypeId},
};
use tidegate_store::{
    RowRange,
    tables::catalog::configs::{ConfigHead, ConfigSnapshot},
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    task::JoinSet,
};

use crate::support::{POST, World, change, files};

pub(crate) fn faults(error: ApplyError) -> Vec<String> {
    match error {
        ApplyError::Invalid(faults) => faults.iter().map(ToString::to_string).collect(),
        other_error => panic!("{other_error}"),
    }
}

#[tokio::test]
async fn change_of_a_bank_kind_is_refused() {
    let world = World::new().await;
    world.apply("bank: files\nkind: md5\n").await;
    let result = world.changes().apply(&world.org, change("bank: files\nkind: sha1\n")).await;
    let fault_texts = faults(result.unwrap_err());
    assert!(
        fault_texts.len() == 1 && fault_texts[0].contains("kind") && fault_texts[0].contains("`md5`"),
        "{fault_texts:?}"
    );
    world.apply("bank: files\nkind: md5\nname: Files\n").await;
}

#[tokio::test]
async fn policies_inherit_strikes_and_severity() {
    let world = World::new().await;
    let documents = "
policy: scam
severity: high
strikes: 2
---
policy: crypto
parent: scam
---
policy: rug-pull
parent: crypto
strikes: 5
---
policy: spam
---
action: warn
kind: callback
strikes: policies
";
    world.changes().apply(&world.org, change(documents)).await.unwrap();
    let running = world.live().await;
    let config = running.live.org(&world.org).unwrap();
    let policy = |key: &str| config.policies().iter().find(|policy| policy.key == key).unwrap();
    let of = |key: &str| (policy(key).strikes, policy(key).severity);
    assert_eq!(of("scam"), (2, Severity::High));
    assert_eq!(of("crypto"), (2, Severity::High));
    assert_eq!(of("rug-pull"), (5, Severity::High));
    assert_eq!(of("spam"), (0, Severity::None));

    let action = config.action(&ActionId::new("warn")).unwrap();
    let strikes = |keys: &[&str]| {
        config.strikes(action, &keys.iter().map(|key| policy(key).id.clone()).collect::<Vec<_>>())
    };
    assert_eq!((strikes(&["crypto", "rug-pull", "spam"]), strikes(&["spam"]), strikes(&[])), (5, 0, 0));
}

#[tokio::test]
async fn cycle_of_policies_is_a_fault() {
    let world = World::new().await;
    let documents = "policy: a\nparent: b\n---\npolicy: b\nparent: a\n";
    let result = world.changes().apply(&world.org, change(documents)).await;
    let fault_texts = faults(result.unwrap_err());
    assert!(fault_texts.iter().any(|fault| fault.contains("its own ancestor")), "{fault_texts:?}");
}

#[tokio::test]
async fn applied_configuration_becomes_live() {
    let world = World::new().await;
    let applied = world.changes().apply(&world.org, change(POST)).await.unwrap();
    assert_eq!(applied.version, ConfigVersion(2));
    assert_eq!(applied.differences.len(), 9);
    assert_eq!(applied.new_secrets, [EndpointId::new("platform")]);
    let running = world.live().await;
    let config = running.live.org(&world.org).unwrap();
    assert_eq!(config.version(), ConfigVersion(2));

    let action = config.action(&ActionId::new("limit_reach")).unwrap();
    assert_eq!(action.kind, ActionKind::Callback { endpoint: None });
    assert_eq!(config.strikes(action, &[]), 1);
    assert_eq!(serde_json::to_string(&action.parameters).unwrap(), r#"{"hours":24}"#);
    assert_eq!(config.endpoints_for(Event::AutomaticAction).count(), 1);
    assert_eq!(config.thresholds()[0].within, Some(Duration::from_secs(90 * 86_400)));
    let queues: Vec<_> = config.queues().iter().map(|queue| queue.key.as_str()).collect();
    assert_eq!(queues, ["default", "appeals", "child-safety"]);

    let policies = config.policies();
    assert_eq!(policies[0].name, "Scam");
    assert_eq!(policies[1].parent_id.as_ref(), Some(&policies[0].id));
    let rule = config.plan().rules().next().unwrap();
    assert_eq!(rule.policies, [policies[1].id.clone()]);
    assert_eq!(config.policy(&rule.policies[0]).unwrap().key, "crypto");

    let post = config.item_type(&TypeId::new("post")).unwrap();
    let item = ItemKey::new("post", "1");
    let data = br#"{"text":"hi","author":{"id":"ann","typeId":"user"}}"#;
    assert_eq!(post.creator(&item, data), Some(ItemKey::new("user", "ann")));
    let unfit = br#"{"text":5e400,"author":{"id":"ann","typeId":"user"}}"#;
    assert_eq!(post.creator(&item, unfit), Some(ItemKey::new("user", "ann")));
    assert_eq!(post.creator(&item, br#"{"text":"hi"}"#), None);
    let user = config.item_type(&TypeId::new("user")).unwrap();
    assert_eq!(user.creator(&ItemKey::new("user", "ann"), b"{}"), Some(ItemKey::new("user", "ann")));
    running.stop().await;
}

#[tokio::test]
async fn pulled_files_apply_without_a_difference() {
    let world = World::new().await;
    let version = world.apply(POST).await;
    let pulled = world.changes().pull(&world.org).await.unwrap();
    assert_eq!((pulled.version, pulled.author.as_str()), (version, "tests"));
    for prune in [false, true] {
        let repeated_change = Change {
            files: pulled.files.clone(),
            author: "again".to_owned(),
            expected_version: Some(version),
            prune,
        };
        let applied = world.changes().apply(&world.org, repeated_change.clone()).await.unwrap();
        assert_eq!((applied.version, applied.differences.len()), (version, 0));
    }
    assert_eq!(world.changes().diff(&world.org, pulled.files.clone(), true).await.unwrap(), []);
    let other_world = World::new().await;
    let copied_change =
        Change { files: pulled.files.clone(), author: "x".to_owned(), expected_version: None, prune: true };
    other_world.changes().apply(&other_world.org, copied_change).await.unwrap();
    assert_eq!(other_world.changes().pull(&other_world.org).await.unwrap().files, pulled.files);
}

/// Returns the pulled file of the only endpoint.
async fn pulled_endpoint(world: &World) -> String {
    let files = world.changes().pull(&world.org).await.unwrap().files;
    files.into_iter().map(|(_, text)| text).find(|text| text.contains("endpoint: ")).unwrap()
}

#[tokio::test]
async fn header_values_are_sealed_for_their_own_header() {
    const ENDPOINT: &str = "endpoint: platform\nurl: https://platform.example/\nheaders: {X-Token: t0ken, X-Other: '${CALLBACK_A}'}\n";
    let world = World::new().await;
    let version = world.apply(ENDPOINT).await;
    let pulled = pulled_endpoint(&world).await;
    assert!(
        !pulled.contains("t0ken") && pulled.contains("sealed:") && pulled.contains("${CALLBACK_A}"),
        "{pulled}"
    );
    let head = world.store.get::<ConfigHead>(&ConfigHead::key(world.org.clone())).await.unwrap().unwrap();
    let partition = ConfigSnapshot::partition(world.org.clone(), head.config_version);
    let rows = world.store.scan::<ConfigSnapshot>(&partition, RowRange::all()).all().await.unwrap();
    assert!(!rows.is_empty() && rows.iter().all(|row| !row.documents.contains("t0ken")));

    let running = world.live().await;
    let config = running.live.org(&world.org).unwrap();
    let endpoint = config.endpoint(&EndpointId::new("platform")).unwrap();
    let secrets = world.secrets();
    let open = |header: &str, value: &str| secrets.open_header(&world.org, &endpoint.key, header, value);
    let mut headers = endpoint.resolve_headers(|_| Some("a".to_owned()), open).unwrap();
    headers.sort();
    assert_eq!(headers, [("X-Other", "a"), ("X-Token", "t0ken")].map(|(k, v)| (k.to_owned(), v.to_owned())));
    running.stop().await;

    // Neither the same value nor its sealed text is a difference. Another value is one.
    assert_eq!(world.apply(ENDPOINT).await, version);
    assert_eq!(world.apply(&pulled).await, version);
    assert_eq!(pulled_endpoint(&world).await, pulled);
    assert_eq!(
        world
            .changes()
            .diff(&world.org, files(&ENDPOINT.replace("t0ken", "n3w")), false)
            .await
            .unwrap()
            .len(),
        1
    );

    let elsewhere = [
        pulled.replace("platform", "other"),
        pulled.replace("X-Token", "X-Stolen"),
        pulled.replace("sealed:", "sealed:x"),
    ];
    for text in elsewhere {
        let fault_texts = faults(world.changes().apply(&world.org, change(&text)).await.unwrap_err());
        assert!(fault_texts.len() == 1 && fault_texts[0].contains("does not open here"), "{fault_texts:?}");
    }
}

#[tokio::test]
async fn absent_documents_are_removed_only_by_prune() {
    let world = World::new().await;
    world.apply(POST).await;
    let queue = "queue: spam\n";
    let difference = world.changes().diff(&world.org, files(queue), false).await.unwrap();
    assert_eq!(difference.len(), 1);
    assert_eq!(difference[0].to_string(), "+ queue: spam");
    world.apply(queue).await;
    let pruned = Change { prune: true, ..change(&format!("{POST}---\npolicy: extra\n")) };
    let applied = world.changes().apply(&world.org, pruned).await.unwrap();
    let difference_texts: Vec<_> = applied.differences.iter().map(ToString::to_string).collect();
    assert_eq!(difference_texts, ["+ policy: extra", "- queue: spam"]);
    assert_eq!(applied.differences[1].difference_kind, DifferenceKind::Removed);

    let queues = async || {
        let config = world.live().await.live.org(&world.org).unwrap();
        let keys = |all: &[Queue]| all.iter().map(|it| it.key.to_string()).collect::<Vec<_>>();
        (keys(config.queues()), keys(config.removed_queues()))
    };
    let configured_keys = ["default", "appeals", "child-safety"].map(str::to_owned);
    assert_eq!(queues().await, (configured_keys.to_vec(), vec!["spam".to_owned()]));
    world.apply("queue: default\nname: First\n").await;
    world.apply(queue).await;
    assert!(queues().await.1.is_empty(), "the repeated document restores the queue");
    let pruned = Change { prune: true, ..change(POST) };
    world.changes().apply(&world.org, pruned).await.unwrap();
    assert_eq!(
        queues().await,
        (configured_keys.to_vec(), vec!["spam".to_owned()]),
        "pruning resets the settings of `default` but keeps the queue"
    );

    let without_action = POST.replace("action: limit_reach\nkind: callback", "action: other\nkind: callback");
    let pruned = Change { prune: true, ..change(&without_action) };
    let fault_texts = faults(world.changes().apply(&world.org, pruned).await.unwrap_err());
    assert_eq!(fault_texts.len(), 2, "the rule and the threshold still name the action: {fault_texts:?}");
}

#[tokio::test]
async fn change_from_an_old_version_is_refused() {
    let world = World::new().await;
    let first = world.apply("queue: a\n").await;
    world.apply("queue: b\n").await;
    let stale = Change { expected_version: Some(first), ..change("queue: c\n") };
    let error = world.changes().apply(&world.org, stale).await.unwrap_err();
    assert!(matches!(error, ApplyError::HeadMoved { expected: ConfigVersion(2), found: ConfigVersion(3) }));
    let text = error.to_string();
    assert!(text.contains("version 3") && text.contains("version 2"), "{text}");
}

#[tokio::test]
async fn exactly_one_of_concurrent_changes_is_applied() {
    let world = World::new().await;
    let tasks: Vec<_> = (0..8)
        .map(|number| {
            let (changes, org) = (world.changes(), world.org.clone());
            let change = Change {
                expected_version: Some(ConfigVersion(1)),
                ..change(&format!("queue: q{number}\nname: \"{number}\"\n"))
            };
            tokio::spawn(async move { changes.apply(&org, change).await })
        })
        .collect();
    let mut applied_changes = Vec::new();
    for (number, task) in tasks.into_iter().enumerate() {
        match task.await.unwrap() {
            Ok(applied) => applied_changes.push((number, applied.version)),
            Err(ApplyError::HeadMoved { .. }) => {}
            Err(other_error) => panic!("{other_error}"),
        }
    }
    let [(winner, ConfigVersion(2))] = applied_changes[..] else { panic!("{applied_changes:?}") };
    let pulled = world.changes().pull(&world.org).await.unwrap();
    assert!(pulled.files[0].1.contains(&format!("q{winner}")), "the head names the winner's snapshot");
}

const WRONG: &str = "\
item_type: post
kind: CONTENT
fields: [{name: text, type: STRING}]
---
rule: one
status: live
when: {text: {in: [txet], words: [scamcoin]}}
policies: [scma]
---
rule: two
when: {text: {in: [text], regex: '('}}
---
rule: three
when: {text: {in: [text], words: [bread]}}
tests: [{item: {text: nothing}, expect: match}]
---
endpoint: e
url: ftp://platform.example/
headers: {Host: x, A: '${PATH}'}
---
threshold: t
strikes: 3
within: 1d
action: missing
";

#[tokio::test]
async fn example_with_an_unknown_field_is_refused() {
    let world = World::new().await;
    let rule = |item: &str| {
        format!(
            "item_type: post\nkind: CONTENT\nfields: [{{name: title, type: STRING}}]\n---\n\
            rule: one\nstatus: live\nwhen: {{text: {{in: [title], words: [scamcoin]}}}}\n\
            tests: [{{item_type: post, item: {item}, expect: no_match}}]\n"
        )
    };
    let error = world.changes().apply(&world.org, change(&rule("{titl: buy scamcoin}"))).await.unwrap_err();
    let faults = faults(error).join("\n");
    for part in ["tests[0]", "unknown field `titl` in item type `post`.", "Did you mean `title`?"] {
        assert!(faults.contains(part), "{part}: {faults}");
    }
    world.apply(&rule("{title: buy bread}")).await;
}

#[tokio::test]
async fn all_faults_are_listed_at_their_documents() {
    let world = World::new().await;
    let fault_texts = faults(world.changes().apply(&world.org, change(WRONG)).await.unwrap_err());
    let expected_faults = [
        ("document 2", "policies[0]"),
        ("document 2", "when.text.in"),
        ("document 3", "when.text.regex"),
        ("document 5", "url"),
        ("document 5", "`Host`"),
        ("document 5", "`PATH`"),
        ("document 6", "action"),
    ];
    for (document, part) in expected_faults {
        let is_expected = |fault: &&String| {
            fault.starts_with("all.yaml:") && fault.contains(document) && fault.contains(part)
        };
        assert!(fault_texts.iter().any(|fault| is_expected(&fault)), "{document} {part}: {fault_texts:#?}");
    }
    assert_eq!(world.changes().pull(&world.org).await.unwrap().version, ConfigVersion(1));
    let linted = lint_files(&files(WRONG), &[], &world.settings, Millis(1), 100).unwrap_err();
    assert_eq!(linted.iter().map(ToString::to_string).collect::<Vec<_>>(), fault_texts);
    assert_eq!(lint_files(&files(POST), &[], &world.settings, Millis(1), 100).unwrap().total, 0);
}

#[tokio::test]
async fn missing_name_is_reported_once() {
    let world = World::new().await;
    let documents =
        format!("{POST}---\nrule: two\nitem_types: [nothing]\nwhen: {{text: {{in: [text], words: [x]}}}}\n");
    let faults = lint_files(&files(&documents), &[], &world.settings, Millis(1), 100).unwrap_err();
    let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(faults.len(), 1, "{faults:#?}");
    assert!(faults[0].contains("item_types[0]") && faults[0].contains("nothing"), "{faults:#?}");
}

#[tokio::test]
async fn rule_failing_its_own_example_is_refused() {
    let world = World::new().await;
    let wrong = POST.replace("{text: buy bread}, expect: no_match", "{text: buy bread}, expect: match");
    let fault_texts = faults(world.changes().apply(&world.org, change(&wrong)).await.unwrap_err());
    assert_eq!(fault_texts.len(), 1);
    assert!(
        fault_texts[0].contains("tests[1]") && fault_texts[0].contains("does not match"),
        "{fault_texts:?}"
    );
}

#[tokio::test]
async fn ids_order_and_versions_survive_removal() {
    let world = World::new().await;
    world.apply("policy: b\n---\npolicy: a\n---\nitem_type: t\nkind: CONTENT\n").await;
    let config = world.live().await;
    let before = config.live.load_latest(&world.org).await.unwrap();
    let keys = |config: &tidegate_catalog::Compiled| {
        config.policies().iter().map(|it| it.key.clone()).collect::<Vec<_>>()
    };
    assert_eq!(keys(&before), ["b", "a"]);
    // A change of another document keeps the version of the item type.
    world.apply("queue: other\n").await;
    let pruned = Change { prune: true, ..change("policy: a\n---\npolicy: c\n") };
    world.changes().apply(&world.org, pruned).await.unwrap();
    let renamed = "policy: b\nname: New\n---\nitem_type: t\nkind: CONTENT\nname: T\n";
    world.apply(renamed).await;
    let after = config.live.load_latest(&world.org).await.unwrap();
    assert_eq!(keys(&after), ["b", "a", "c"]);
    assert_eq!(after.policies()[0].id, before.policies()[0].id);
    let version =
        |config: &tidegate_catalog::Compiled| config.item_type(&TypeId::new("t")).unwrap().version.clone();
    assert_eq!((version(&before).as_str(), version(&after).as_str()), ("1", "2"));
    config.stop().await;
}

#[tokio::test]
async fn large_configuration_is_stored_and_pulled_in_parts() {
    let world = World::new().await;
    let word = "é".repeat(200);
    let file = |thousand: usize| {
        let queues = (0..1_000).map(|n| format!("queue: q{thousand}-{n}\nname: \"{word}\"\n"));
        (format!("{thousand}.yaml"), queues.collect::<Vec<_>>().join("---\n"))
    };
    let large = Change { files: (0..3).map(file).collect(), ..change("") };
    let version = world.changes().apply(&world.org, large).await.unwrap().version;
    let pulled = world.changes().pull(&world.org).await.unwrap().files;
    assert!(pulled.len() > 1 && pulled.is_sorted());
    let repeated_change = Change { files: pulled, prune: true, ..change("") };
    assert_eq!(world.changes().apply(&world.org, repeated_change).await.unwrap().differences, []);
    let running = world.live().await;
    let config = running.live.org(&world.org).unwrap();
    assert_eq!((config.version(), config.queues().len()), (version, 3_003));
    running.stop().await;
}

#[tokio::test]
async fn wait_ends_when_all_members_run_the_version() {
    let world = World::new().await;
    let (one, two) = (world.live().await, world.live().await);
    let version = world.apply(POST).await;
    let outcome =
        world.changes().wait_until_live(&world.org, version, Duration::from_secs(30)).await.unwrap();
    assert_eq!(outcome, WaitOutcome::Running(2));
    for running in [&one, &two] {
        assert_eq!(running.live.org(&world.org).unwrap().version(), version);
    }
    one.stop().await;
    let outcome =
        world.changes().wait_until_live(&world.org, version, Duration::from_secs(30)).await.unwrap();
    assert_eq!(outcome, WaitOutcome::Running(1), "the wait excludes a process that stopped in order");
    let result = world.changes().wait_until_live(&world.org, ConfigVersion(99), Duration::from_secs(1)).await;
    assert_eq!(result.unwrap_err().tag(), "config_no_such_version");
    two.stop().await;
}

#[tokio::test]
async fn change_does_not_create_an_organisation() {
    let world = World::new().await;
    let error = world.changes().apply(&OrgId::new("other"), change(POST)).await.unwrap_err();
    assert_eq!(error.tag(), "config_no_such_org");
}

/// Documents above the limit for work on the caller's thread.
fn long_policies() -> String {
    let policies = (0..200).map(|n| format!("policy: p{n}\nname: {}\n", "long ".repeat(40)));
    policies.collect::<Vec<_>>().join("---\n")
}

/// Pulls that report each serialisation to the receiver. A serialisation for the first org blocks until the
/// sender is dropped.
fn held_pulls(world: &World) -> (Arc<Pulls>, UnboundedReceiver<OrgId>, mpsc::Sender<()>) {
    let (begun, begins) = unbounded_channel();
    let (end, ends) = mpsc::channel();
    let (slow, ends) = (world.org.clone(), Mutex::new(ends));
    let pulls = world.changes().pulls(move |org, pulled| {
        begun.send(org.clone()).unwrap();
        if *org == slow {
            let _released = ends.lock().unwrap().recv();
        }
        pulled.version.0.to_string().into_bytes()
    });
    (Arc::new(pulls), begins, end)
}

/// The runtime has one thread: serialising on it would block the answer to the other org.
#[tokio::test]
async fn concurrent_pulls_of_one_org_share_one_result() {
    let mut world = World::new().await;
    world.settings.computations = 2;
    let version = world.apply(&long_policies()).await;
    let other_org = OrgId::new("other");
    orgs::create(&world.store, &other_org, "Other", Millis(1)).await.unwrap();
    let other_version = world.changes().apply(&other_org, change(&long_policies())).await.unwrap().version;

    let (pulls, mut begins, end) = held_pulls(&world);
    let mut pull_tasks = JoinSet::new();
    for _ in 0..200 {
        let (pulls, org) = (Arc::clone(&pulls), world.org.clone());
        pull_tasks.spawn(async move { pulls.get(&org).await.unwrap() });
    }
    assert_eq!(begins.recv().await, Some(world.org.clone()));
    for _ in 0..2 {
        assert_eq!(pulls.get(&other_org).await.unwrap(), other_version.0.to_string());
    }
    assert_eq!(begins.recv().await, Some(other_org));
    assert!(pull_tasks.try_join_next().is_none());
    drop(end);
    for answer in pull_tasks.join_all().await {
        assert_eq!(answer, version.0.to_string());
    }
    assert!(begins.try_recv().is_err(), "each pull was serialised once");

    let next = world.apply("policy: another\n").await;
    assert_eq!(pulls.get(&world.org).await.unwrap(), next.0.to_string());
}

#[tokio::test]
async fn result_of_a_cancelled_pull_serves_the_next_one() {
    let world = World::new().await;
    let version = world.apply(&long_policies()).await;
    let (pulls, mut begins, end) = held_pulls(&world);
    let cancelled_pull = {
        let (pulls, org) = (Arc::clone(&pulls), world.org.clone());
        tokio::spawn(async move { pulls.get(&org).await })
    };
    begins.recv().await.unwrap();
    cancelled_pull.abort();
    assert!(cancelled_pull.await.is_err());
    drop(end);
    assert_eq!(pulls.get(&world.org).await.unwrap(), version.0.to_string());
    assert!(begins.try_recv().is_err(), "the pull was serialised once");
}
