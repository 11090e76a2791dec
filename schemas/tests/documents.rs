//! Configuration documents: reading, faults with their places, validation across documents, canonical text, schemas.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};
use tidegate_schemas::{
    banks::BankKind,
    documents::{
        Action, ActionKind, Bank, Document, DocumentFault, DocumentKind, Endpoint, Event, Expectation,
        FieldDocument, Format, ItemType, On, OnError, Origin, Parameter, ParameterType, Percent, Period,
        Policy, Quarantine, Queue, Rollout, RolloutBy, Rule, RuleAction, RuleLimits, Set, Status, Test,
        Threshold, Window, parse, parse_all, render,
    },
    ids::Millis,
    item_types::{Container, Kind, Role, Scalar},
};

const ALL: &str = "\
item_type: post
name: Post
kind: CONTENT
fields:
  - {name: text, type: STRING, required: true}
  - {name: author, type: RELATED_ITEM, role: creator}
  - {name: tags, type: STRING, container: ARRAY}
strict: true
version: v2
---
policy: scam
name: Scam
---
policy: crypto
parent: scam
---
action: limit_reach
kind: callback
endpoint: platform
strikes: 1
parameters:
  - {name: hours, type: NUMBER, required: true}
---
rule: demo-scam
status: live
on: [item, report]
item_types: [post]
when: {text: {in: [text], any_of: [scamcoin]}}
policies: [crypto]
actions: [{id: limit_reach, params: {hours: 24}}, enqueue]
expires_at: 2027-01-01T00:00:00Z
tests:
  - {item: {text: buy scamcoin}, expect: match}
---
action: enqueue
kind: enqueue_review
---
endpoint: platform
url: https://platform.example/callbacks
headers: {Authorization: '${TOKEN}'}
events: [decision.moderator, action.automatic]
---
threshold: three
strikes: 3
within: 90d
action: enqueue
---
queue: spam
name: Spam
";

fn messages(files: &[(&str, &str)]) -> Vec<String> {
    parse(files).unwrap_err().iter().map(ToString::to_string).collect()
}

fn validate(yaml: &str) -> Vec<String> {
    let set = Set::collect(parse(&[("all.yaml", yaml)]).unwrap_or_else(|faults| panic!("{faults:?}")));
    let faults = set.and_then(|set| set.validate()).err().unwrap_or_default();
    faults.iter().map(ToString::to_string).collect()
}

#[test]
fn every_kind_is_read_with_all_its_fields() {
    let documents = parse(&[("all.yaml", ALL)]).unwrap();
    assert_eq!(documents.len(), 9);
    let lines: Vec<u32> = documents.iter().map(|(origin, _)| origin.line).collect();
    assert_eq!(lines[..3], [1, 11, 14]);
    let Document::Rule(rule) = &documents[4].1 else { panic!() };
    assert_eq!(rule.status, Status::Live);
    assert_eq!(rule.on, [On::Item, On::Report]);
    assert_eq!(rule.when, json!({"text": {"in": ["text"], "any_of": ["scamcoin"]}}));
    assert_eq!(rule.actions[0].params["hours"], json!(24));
    assert_eq!(rule.actions[1].id.as_str(), "enqueue");
    assert_eq!(rule.expires_at, Some(Millis(1_798_761_600_000)));
    assert_eq!(rule.tests[0].expect, Expectation::Match);
    let Document::ItemType(post) = &documents[0].1 else { panic!() };
    assert_eq!(post.fields[1].role, Some(Role::Creator));
    assert_eq!(post.fields[2].container, Some(Container::Array));
    assert!(post.strict && post.version.as_deref() == Some("v2"));
    let Document::Endpoint(endpoint) = &documents[6].1 else { panic!() };
    assert!(endpoint.takes(Event::ModeratorDecision) && !endpoint.takes(Event::AppealDecision));
    assert!(!format!("{endpoint:?}").contains("TOKEN"), "header values stay out of logs");
    assert_eq!(validate(ALL), [""; 0]);
}

#[test]
fn what_is_left_out_has_its_default() {
    let documents =
        parse(&[("r.yaml", "rule: r\nwhen: {}\n---\nqueue: q\n---\nendpoint: e\nurl: https://e.example")])
            .unwrap();
    let Document::Rule(rule) = &documents[0].1 else { panic!() };
    assert_eq!((rule.status, &rule.on[..]), (Status::Draft, &[On::Item][..]));
    assert_eq!(rule.display_name(), "r");
    let Document::Endpoint(endpoint) = &documents[2].1 else { panic!() };
    assert!(Event::ALL.iter().all(|event| endpoint.takes(*event)));
}

#[test]
fn json_is_read_as_yaml_is_one_document_or_a_list() {
    let rule = r#"{
      "rule": "r",
      "when": {"x": "\ud83d\ude00", "n": 1.50},
      "stauts": "live"
    }"#;
    assert_eq!(
        messages(&[("r.json", rule)]),
        ["r.json:4: document 1: stauts: unknown field. Did you mean `status`?"]
    );
    let list = r#"[{"queue":"a"},{"queue":"b"}]"#;
    let keys: Vec<_> =
        parse(&[("q.json", list)]).unwrap().iter().map(|(_, it)| it.key().to_owned()).collect();
    assert_eq!(keys, ["a", "b"]);
    assert!(messages(&[("q.json", "[{\"queue\":\"a\",\n\"queue\":\"b\"}]")])[0].contains("more than once"));
    assert!(messages(&[("q.json", "{\n\"queue\" 1}")])[0].contains("Line 2, column 9"));
}

#[test]
fn every_fault_names_file_line_document_and_path() {
    let yaml = "\
queue: fine
---
item_type: post
kind: CONTENT
fields:
  - name: text
    type: STRING
    requird: true
  - name: author
    tpye: STRING
    type: RELATED_ITEM
nmae: Post
---
item_type: other
kind: CONTEND
---
rulle: x
---
name: Scam
policy: scam
---
threshold: t
strikes: many
within: 90d
action: a
---
threshold: t
strikes: 0
within: 90x
action: a
---
policy: 'not a key'
---
action: a
kind: callback
parameters: [{name: x, type: SELECT}]
---
rule: r
when: {}
actions: [{id: a, parms: {}}]
expires_at: tomorrow
";
    let expected = [
        "c.yaml:12: document 2: nmae: unknown field. Did you mean `name`?",
        "c.yaml:8: document 2: fields[0].requird: unknown field. Did you mean `required`?",
        "c.yaml:10: document 2: fields[1].tpye: unknown field. Did you mean `type`?",
        "c.yaml:15: document 3: kind: `CONTEND` is not one of `CONTENT`, `USER`, `THREAD`. Did you mean `CONTENT`?",
        "c.yaml:17: document 4: `rulle` is no kind of document. Did you mean `rule`?",
        "c.yaml:19: document 5: the first key names the kind: put `policy` before `name`",
        "c.yaml:23: document 6: strikes: a string stands where u32 is expected",
        "c.yaml:28: document 7: strikes: A threshold needs at least one strike.",
        "c.yaml:29: document 7: within: a period is a whole number and one of `d`, `h`, `m`, `s`, such as `90d`",
        "c.yaml:32: document 8: policy: A key begins with a letter or digit and has at most 64 letters, digits, `_`, `.` and `-`.",
        "c.yaml:36: document 9: parameters[0].options: SELECT and MULTISELECT need options, and only they have them.",
        "c.yaml:40: document 10: actions[0].parms: unknown field. Did you mean `params`?",
        "c.yaml:41: document 10: expires_at: an ISO 8601 date with a time is needed, such as `2026-12-31T00:00:00Z`",
    ];
    let mut found = messages(&[("c.yaml", yaml)]);
    found.sort();
    let mut expected = expected.map(str::to_owned).to_vec();
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn reading_goes_on_after_what_cannot_be_read() {
    let torn = "queue: a\n---\n# no end\nbank: b\nentries: [\n---\nthreshold: t\nstrikes: many\nwithin: 30x\n\
        ---\nitem_type: i\nname: I\nkind: THING\nfields: [{name: 7, type: STRNG}, {type: STRING}]\n";
    let parsed = parse_all(&[("t.yaml", torn), ("q.yaml", "queue: q\n"), ("x.json", "{")]);
    let found: Vec<_> = parsed.faults.iter().map(ToString::to_string).collect();
    for (begins, names) in [
        ("t.yaml:", "document 2"),
        ("t.yaml:8: document 3: strikes", "u32"),
        ("t.yaml:9: document 3: within", "`90d`"),
        ("t.yaml:7: document 3", "`action` is missing"),
        ("t.yaml:13: document 4: kind", "`THING`"),
        ("t.yaml:14: document 4: fields[0].name", "a number"),
        ("t.yaml:14: document 4: fields[0].type", "`STRNG`"),
        ("t.yaml:14: document 4: fields[1]", "`name` is missing"),
        ("x.json", ""),
    ] {
        assert!(found.iter().any(|it| it.starts_with(begins) && it.contains(names)), "{begins}: {found:#?}");
    }
    assert_eq!(found.len(), 9, "{found:#?}");
    let read: Vec<_> = parsed.documents.iter().map(|(_, document)| document.key()).collect();
    assert_eq!(read, ["a", "t", "i", "q"]);
}

#[test]
fn nothing_is_called_missing_that_may_only_be_unreadable() {
    let fault = |path: &str, message: &str| {
        let origin = Origin { file: "t.yaml".to_owned(), line: 1, index: 0 };
        DocumentFault { origin, line: None, path: path.to_owned(), message: message.to_owned() }
    };
    let torn =
        parse_all(&[("t.yaml", "threshold: t\nstrikes: 1\nwithin: 1x\naction: a\n---\nbank: b\nkind: [\n")]);
    assert!(torn.is_in_doubt(&fault("rules", "There is no bank `b`.")));
    assert!(!torn.is_in_doubt(&fault("rules", "There is no bank `c`.")));
    assert!(torn.is_in_doubt(&fault("within", "It is too long.")), "that is not what was written");
    assert!(!torn.is_in_doubt(&fault("withinx", "There is no bank `c`.")));
    assert!(parse_all(&[("x.json", "{")]).is_in_doubt(&fault("", "There is no bank `c`.")));
    assert!(!parse_all(&[("q.yaml", "queue: q\n")]).is_in_doubt(&fault("", "There is no bank `c`.")));
}

#[test]
fn broken_yaml_names_its_line_and_bombs_are_refused() {
    assert!(messages(&[("b.yaml", "queue: a\n---\nqueue: [")])[0].starts_with("b.yaml:3"));
    assert!(messages(&[("b.yaml", "queue: a\nqueue: b")])[0].contains("b.yaml:2"));
    for (text, told) in [
        ("queue: [", "b.yaml:1: document 1: column 8: this is no YAML"),
        ("queue: a\n name: b", "this is no YAML"),
        ("queue: \"a", "this is no YAML"),
        ("queue: a\nqueue: b", "b.yaml:2: document 1: column 1: the key `queue` occurs twice"),
        ("queue: *a", "b.yaml:1: document 1: column 8: there is no anchor"),
    ] {
        let found = messages(&[("b.yaml", text)]);
        assert!(found.len() == 1 && found[0].contains(told), "{text:?}: {found:?}");
    }
    let deep = format!("rule: r\nwhen: {}{}", "[".repeat(5000), "]".repeat(5000));
    assert_eq!(messages(&[("d.yaml", &deep)]).len(), 1);
    let laughs = "rule: r\nwhen:\n  a: &a [x,x,x,x,x,x,x,x,x]\n  b: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n  c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n  d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n  e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\n  f: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n  g: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\n  h: [*g,*g,*g,*g,*g,*g,*g,*g,*g]\n";
    assert_eq!(messages(&[("l.yaml", laughs)]).len(), 1);
    for nothing in ["", "# only a comment\n", "---\n---\n"] {
        assert_eq!(parse(&[("e.yaml", nothing)]).unwrap().len(), 0, "{nothing:?}");
    }
    for odd in ["- queue: a", "just text", "{}", "5"] {
        assert_eq!(messages(&[("o.yaml", odd)]).len(), 1, "{odd:?}");
    }
}

#[test]
fn a_file_holds_as_many_documents_as_there_is_room_for() {
    let queues: String = (0..3_000).map(|nth| format!("queue: q{nth}\nname: Q\n---\n")).collect();
    assert_eq!(parse(&[("q.yaml", &queues)]).unwrap().len(), 3_000);
}

#[test]
fn item_types_are_checked_for_their_roles_and_names() {
    let yaml = "\
item_type: u
kind: USER
fields:
  - {name: a, type: RELATED_ITEM, role: creator}
  - {name: a, type: STRING}
  - {name: at, type: STRING, role: createdAt}
  - {name: icons, type: IMAGE, container: ARRAY, role: profileIcon}
  - {name: n, type: STRING, role: displayName}
  - {name: m, type: STRING, role: displayName}
  - {name: images, type: STRING}
";
    let found = messages(&[("u.yaml", yaml)]);
    let expected = [
        "u.yaml:4: document 1: fields[0].role: Items of kind USER have no role `creator`.",
        "u.yaml:5: document 1: fields[1].name: There is another field `a`.",
        "u.yaml:6: document 1: fields[2].role: The role `createdAt` needs a single DATETIME.",
        "u.yaml:7: document 1: fields[3].role: The role `profileIcon` needs a single IMAGE.",
        "u.yaml:9: document 1: fields[5].role: Another field has the role `displayName` already.",
        "u.yaml:10: document 1: fields[6].type: `images` is an array of image URLs in every item type: IMAGE with the container ARRAY.",
    ];
    assert_eq!(found, expected);
}

#[test]
fn what_one_document_names_must_exist_in_another() {
    let yaml = "\
policy: scam
parent: scan
---
action: hide
kind: callback
endpoint: platfrom
---
endpoint: platform
url: https://platform.example
---
threshold: t
strikes: 3
within: 1d
action: ban
---
rule: r
when: {}
item_types: [post]
policies: [scma]
actions: [hid, {id: hide, params: {hours: 3}}]
";
    let expected = [
        "all.yaml:1: document 1: parent: There is no policy `scan`. Did you mean `scam`?",
        "all.yaml:4: document 2: endpoint: There is no endpoint `platfrom`. Did you mean `platform`?",
        "all.yaml:11: document 4: action: There is no action `ban`.",
        "all.yaml:16: document 5: item_types[0]: There is no item type `post`.",
        "all.yaml:16: document 5: policies[0]: There is no policy `scma`. Did you mean `scam`?",
        "all.yaml:16: document 5: actions[0]: There is no action `hid`. Did you mean `hide`?",
        "all.yaml:16: document 5: actions[1].params: The action `hide` has no parameter `hours`.",
    ];
    assert_eq!(validate(yaml), expected);
}

#[test]
fn parameters_are_checked_where_an_action_is_taken() {
    let yaml = "\
action: hide
kind: callback
parameters:
  - {name: hours, type: NUMBER, required: true}
  - {name: why, type: SELECT, options: [spam, scam], default: spam}
---
rule: r
when: {}
actions: [hide, {id: hide, params: {hours: many, why: ham}}, {id: hide, params: {hours: 1}}]
";
    let expected = [
        "all.yaml:7: document 2: actions[0].params: The action `hide` needs the parameter `hours`.",
        "all.yaml:7: document 2: actions[1].params: The parameter `hours` takes a number.",
        "all.yaml:7: document 2: actions[1].params: The parameter `why` takes one of its options.",
    ];
    assert_eq!(validate(yaml), expected);
}

#[test]
fn a_review_names_a_queue_that_takes_reviews() {
    let yaml = "\
queue: spam
---
action: own
kind: enqueue_review
queue: spam
---
action: common
kind: enqueue_review
queue: default
---
action: mistyped
kind: enqueue_review
queue: spma
---
action: of_another_kind
kind: enqueue_review
queue: appeals
";
    let expected = [
        "all.yaml:11: document 4: queue: There is no queue `spma`. Did you mean `spam`?",
        "all.yaml:15: document 5: queue: Reviews do not go to `appeals`: it holds jobs of another kind.",
    ];
    assert_eq!(validate(yaml), expected);
    let callback = "action: a\nkind: callback\nqueue: q";
    let expected = "a.yaml:3: document 1: queue: Only an action of kind `enqueue_review` has a queue.";
    assert_eq!(messages(&[("a.yaml", callback)]), [expected]);
}

#[test]
fn a_policy_is_never_its_own_ancestor() {
    let yaml = "policy: a\nparent: c\n---\npolicy: b\nparent: a\n---\npolicy: c\nparent: b\n---\npolicy: d\nparent: a\n---\npolicy: e\nparent: e";
    let expected = [
        "all.yaml:1: document 1: parent: The policy is its own ancestor: a → c → b → a.",
        "all.yaml:13: document 5: parent: The policy is its own ancestor: e → e.",
    ];
    assert_eq!(validate(yaml), expected);
}

#[test]
fn one_key_stands_once_in_its_kind_over_all_files() {
    let files = [("a.yaml", "queue: q\n---\npolicy: q"), ("b.yaml", "queue: q")];
    let faults = Set::collect(parse(&files).unwrap()).unwrap_err();
    assert_eq!(faults.len(), 1);
    assert_eq!(faults[0].to_string(), "b.yaml:1: document 1: queue: `q` stands in a.yaml:1 already.");
}

#[test]
fn canonical_text_is_what_people_would_write() {
    let documents = parse(&[("all.yaml", ALL)]).unwrap();
    assert_eq!(
        render(&documents[4].1, Format::Yaml),
        "\
rule: demo-scam
status: live
\"on\":
  - item
  - report
item_types:
  - post
when:
  text:
    any_of:
      - scamcoin
    in:
      - text
policies:
  - crypto
actions:
  - id: limit_reach
    params:
      hours: 24
  - enqueue
expires_at: \"2027-01-01T00:00:00.000Z\"
tests:
  - item:
      text: buy scamcoin
    expect: match
"
    );
}

#[test]
fn a_set_gives_all_its_documents_back() {
    let documents = parse(&[("all.yaml", ALL)]).unwrap();
    let again = Set::collect(documents.clone()).unwrap().documents();
    assert_eq!(again.len(), documents.len());
    assert!(documents.iter().all(|document| again.contains(document)));
    let stored = serde_json::to_string(&again.iter().map(|(_, it)| it).collect::<Vec<_>>()).unwrap();
    let read: Vec<Document> = serde_json::from_str(&stored).unwrap();
    assert!(read.iter().zip(&again).all(|(read, (_, it))| read == it));
    assert!(serde_json::from_str::<Document>(r#"{"queue":"q","nmae":1}"#).is_err());
}

/// Documents that are right, and ones that are wrong, by schema and by struct alike.
const TABLE: &[(bool, &str)] = &[
    (true, r#"{"item_type":"t","kind":"USER"}"#),
    (
        true,
        r#"{"item_type":"t","name":"T","kind":"USER","fields":[{"name":"a","type":"ID"}],"strict":true,"version":"1","earlier_versions":["0"]}"#,
    ),
    (false, r#"{"item_type":"t"}"#),
    (false, r#"{"item_type":"t","kind":"user"}"#),
    (false, r#"{"item_type":"t","kind":"USER","strict":"yes"}"#),
    (false, r#"{"item_type":"t","kind":"USER","fields":[{"name":"a","type":"TEXT"}]}"#),
    (false, r#"{"item_type":"t","kind":"USER","fields":[{"name":"a"}]}"#),
    (false, r#"{"item_type":"t","kind":"USER","fields":[{"name":"a","type":"ID","container":"SET"}]}"#),
    (false, r#"{"item_type":"t","kind":"USER","fields":[{"name":"a","type":"ID","role":"boss"}]}"#),
    (false, r#"{"item_type":"t","kind":"USER","fields":[{"name":"a","type":"ID","x":1}]}"#),
    (false, r#"{"item_type":"a b","kind":"USER"}"#),
    (true, r#"{"policy":"p","name":null,"parent":null}"#),
    (true, r#"{"policy":"p","name":"P","parent":"q"}"#),
    (false, r#"{"policy":7}"#),
    (false, r#"{"policy":"p","parent":7}"#),
    (false, r#"{"policy":"p","text":"x"}"#),
    (true, r#"{"queue":"q","name":"Q"}"#),
    (false, r#"{"queue":""}"#),
    (false, r#"{"queue":"q","order":1}"#),
    (true, r#"{"endpoint":"e","url":"https://e.example","headers":{"a":"b"},"events":["user.threshold"]}"#),
    (false, r#"{"endpoint":"e"}"#),
    (false, r#"{"endpoint":"e","url":"https://e.example","headers":{"a":1}}"#),
    (false, r#"{"endpoint":"e","url":"https://e.example","events":["all"]}"#),
    (false, r#"{"endpoint":"e","url":"https://e.example","method":"PUT"}"#),
    (true, r#"{"threshold":"t","strikes":3,"within":"90d","action":"a"}"#),
    (false, r#"{"threshold":"t","strikes":0,"within":"90d","action":"a"}"#),
    (false, r#"{"threshold":"t","strikes":-1,"within":"90d","action":"a"}"#),
    (false, r#"{"threshold":"t","strikes":3,"within":"90 days","action":"a"}"#),
    (false, r#"{"threshold":"t","strikes":3,"within":"90d"}"#),
    (false, r#"{"threshold":"t","strikes":3,"within":"90d","action":"a","user":1}"#),
    (
        true,
        r#"{"action":"a","kind":"callback","name":"A","endpoint":"e","strikes":2,"parameters":[{"name":"x","type":"STRING","required":true,"default":"d"}]}"#,
    ),
    (
        true,
        r#"{"action":"a","kind":"enqueue_review","parameters":[{"name":"x","type":"SELECT","options":["a"]}]}"#,
    ),
    (false, r#"{"action":"a"}"#),
    (false, r#"{"action":"a","kind":"delete"}"#),
    (false, r#"{"action":"a","kind":"callback","strikes":1.5}"#),
    (false, r#"{"action":"a","kind":"callback","parameters":[{"name":"x"}]}"#),
    (false, r#"{"action":"a","kind":"callback","parameters":[{"name":"x","type":"DATE"}]}"#),
    (false, r#"{"action":"a","kind":"callback","url":"x"}"#),
    (
        true,
        r#"{"rule":"r","when":{"all":[]},"name":"R","status":"background","on":["report"],"item_types":["t"],"policies":["p"],"actions":["a",{"id":"b"},{"id":"c","params":{"x":1}}],"expires_at":"2027-01-01T00:00:00Z","tests":[{"name":"n","item_type":"t","item":{},"expect":"no_match"}]}"#,
    ),
    (
        true,
        r#"{"rule":"r","when":{},"rollout":{"percent":0.5,"salt":"v7","by":"user"},"limits":{"actions_per_day":500,"per_user_cooldown":"24h","alarm_per_hour":9},"review_sample":2,"on_error":"review"}"#,
    ),
    (false, r#"{"rule":"r","when":{},"rollout":{"percent":101}}"#),
    (false, r#"{"rule":"r","when":{},"rollout":{"salt":"v7"}}"#),
    (false, r#"{"rule":"r","when":{},"rollout":{"percent":1,"by":"org"}}"#),
    (false, r#"{"rule":"r","when":{},"limits":{"actions_per_day":0}}"#),
    (false, r#"{"rule":"r","when":{},"limits":{"per_user_cooldown":"a day"}}"#),
    (false, r#"{"rule":"r","when":{},"limits":{"per_hour":3}}"#),
    (false, r#"{"rule":"r","when":{},"limits":{"alarm_per_hour":0}}"#),
    (false, r#"{"rule":"r","when":{},"review_sample":-1}"#),
    (false, r#"{"rule":"r","when":{},"on_error":"ignore"}"#),
    (false, r#"{"rule":"r"}"#),
    (false, r#"{"rule":"r","when":{},"status":"on"}"#),
    (false, r#"{"rule":"r","when":{},"on":["user"]}"#),
    (false, r#"{"rule":"r","when":{},"actions":[7]}"#),
    (false, r#"{"rule":"r","when":{},"actions":[{"params":{}}]}"#),
    (false, r#"{"rule":"r","when":{},"actions":[{"id":"a","x":1}]}"#),
    (false, r#"{"rule":"r","when":{},"tests":[{"item":{}}]}"#),
    (false, r#"{"rule":"r","when":{},"tests":[{"item":{},"expect":"yes"}]}"#),
    (false, r#"{"rule":"r","when":{},"priority":1}"#),
    (true, r#"{"bank":"b","kind":"text"}"#),
    (true, r#"{"bank":"b","name":"B","kind":"domain","entries":["example.com"]}"#),
    (
        true,
        r#"{"bank":"b","kind":"pdq","distance":31,"sample":12.5,"suppresses":["c"],"quarantine":{"matches":9,"within":"5m"}}"#,
    ),
    (false, r#"{"bank":"b","kind":"pdq","distance":32}"#),
    (false, r#"{"bank":"b","kind":"pdq","quarantine":{"matches":9}}"#),
    (false, r#"{"bank":"b"}"#),
    (false, r#"{"bank":"b","kind":"words"}"#),
    (false, r#"{"bank":"b","kind":"text","entries":[7]}"#),
    (false, r#"{"bank":"b","kind":"text","enabled":true}"#),
    (true, r#"{"window":"w","over":"24h"}"#),
    (
        true,
        r#"{"window":"w","name":"W","item_types":["t"],"by":"links","where":{"all":[]},"sum":"amount","over":"7d","bucket":"1h"}"#,
    ),
    (true, r#"{"window":"w","by":null,"where":null,"distinct":"to","over":"90s"}"#),
    (false, r#"{"window":"w"}"#),
    (false, r#"{"window":"a b","over":"1d"}"#),
    (false, r#"{"window":"w","over":"1 day"}"#),
    (false, r#"{"window":"w","over":"1d","by":["a"]}"#),
    (false, r#"{"window":"w","over":"1d","item_types":"t"}"#),
    (false, r#"{"window":"w","over":"1d","count":1}"#),
];

/// As much of JSON Schema as the published schemas use.
fn fits(schema: &Value, root: &Value, value: &Value) -> bool {
    if let Some(path) = schema["$ref"].as_str() {
        // Conditions are none of the structs' business.
        if path == "condition.schema.json" {
            return true;
        }
        return fits(root.pointer(&path[1..]).unwrap(), root, value);
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        return choices.iter().filter(|choice| fits(choice, root, value)).count() == 1;
    }
    if let Some(choices) = schema["enum"].as_array() {
        return choices.contains(value);
    }
    let typed = |name: &str| match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("the schema uses the type {other}"),
    };
    let right_type = match &schema["type"] {
        Value::Null => true,
        Value::String(name) => typed(name),
        Value::Array(names) => names.iter().any(|name| typed(name.as_str().unwrap())),
        other => panic!("{other}"),
    };
    let patterned = match (schema["pattern"].as_str(), value.as_str()) {
        (Some("^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"), Some(text)) => tidegate_schemas::documents::is_key(text),
        (Some("^[0-9]+[dhms]$"), Some(text)) => {
            let (digits, unit) = text.split_at(text.len().saturating_sub(1));
            !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) && "dhms".contains(unit)
        }
        (None, _) | (_, None) => true,
        (Some(other), _) => panic!("the schema uses the pattern {other}"),
    };
    let (least, most) = (schema["minimum"].as_f64(), schema["maximum"].as_f64());
    let bounded = value.as_f64().is_none_or(|number| {
        least.is_none_or(|least| number >= least) && most.is_none_or(|most| number <= most)
    });
    let members = value.as_object().is_none_or(|object| {
        let properties = schema["properties"].as_object();
        let required = schema["required"].as_array();
        required.is_none_or(|names| names.iter().all(|name| object.contains_key(name.as_str().unwrap())))
            && object.iter().all(|(key, member)| match properties.and_then(|all| all.get(key)) {
                Some(property) => fits(property, root, member),
                None => match &schema["additionalProperties"] {
                    Value::Bool(allowed) => *allowed,
                    Value::Null => true,
                    schema => fits(schema, root, member),
                },
            })
    });
    let elements = value.as_array().is_none_or(|list| {
        schema["items"].is_null() || list.iter().all(|element| fits(&schema["items"], root, element))
    });
    right_type && patterned && bounded && members && elements
}

#[test]
fn the_published_schemas_and_the_structs_judge_alike() {
    let mut seen = BTreeMap::new();
    for (good, text) in TABLE {
        let value: Value = serde_json::from_str(text).unwrap();
        let kind = DocumentKind::ALL.into_iter().find(|kind| value.get(kind.name()).is_some()).unwrap();
        // `rule` and `action` keys stand inside other kinds, so the first key decides.
        let kind = DocumentKind::ALL
            .into_iter()
            .find(|kind| text.starts_with(&format!("{{\"{}\"", kind.name())))
            .unwrap_or(kind);
        let schema: Value = serde_json::from_str(kind.schema()).unwrap();
        assert_eq!(fits(&schema, &schema, &value), *good, "schema of {text}");
        let parsed = parse(&[("t.json", text)]);
        assert_eq!(parsed.is_ok(), *good, "struct of {text}: {parsed:?}");
        seen.entry((kind, *good)).and_modify(|count| *count += 1).or_insert(1);
    }
    assert_eq!(seen.len(), 2 * DocumentKind::ALL.len(), "every kind has good and bad rows");
}

#[test]
fn the_published_schemas_have_the_fields_of_the_structs_and_no_others() {
    for (kind, full) in full_documents() {
        let schema: Value = serde_json::from_str(kind.schema()).unwrap();
        let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let written: Value = serde_json::to_value(&full).unwrap();
        assert_eq!(names(&schema["properties"]), names(&written), "{}", kind.name());
        for (list, definition) in
            [("fields", "field"), ("parameters", "parameter"), ("actions", "action"), ("tests", "test")]
        {
            if let Some(first) = written[list].get(0) {
                assert_eq!(names(&schema["$defs"][definition]["properties"]), names(first), "{definition}");
            }
        }
        for definition in ["rollout", "limits"] {
            if let Some(part) = written.get(definition) {
                assert_eq!(names(&schema["$defs"][definition]["properties"]), names(part), "{definition}");
            }
        }
    }
}

/// One document a kind with every field set to something that is not its default.
fn full_documents() -> Vec<(DocumentKind, Document)> {
    let documents = vec![
        Document::ItemType(ItemType {
            key: "t".into(),
            name: Some("T".into()),
            kind: Kind::Content,
            fields: vec![FieldDocument {
                name: "f".into(),
                scalar: Scalar::Id,
                required: true,
                container: Some(Container::Map),
                role: Some(Role::Creator),
            }],
            strict: true,
            version: Some("1".into()),
            earlier_versions: vec!["0".into()],
        }),
        Document::Policy(Policy { key: "p".into(), name: Some("P".into()), parent: Some("q".into()) }),
        Document::Action(Action {
            key: "a".into(),
            name: Some("A".into()),
            kind: ActionKind::Callback,
            endpoint: Some("e".into()),
            queue: Some("q".into()),
            strikes: 1,
            parameters: vec![Parameter {
                name: "x".into(),
                kind: ParameterType::Select,
                required: true,
                options: vec!["o".into()],
                default: Some(json!("o")),
            }],
        }),
        Document::Rule(Rule {
            key: "r".into(),
            name: Some("R".into()),
            status: Status::Live,
            on: vec![On::Report],
            item_types: vec!["t".into()],
            when: json!({}),
            policies: vec!["p".into()],
            actions: vec![RuleAction { id: "a".into(), params: [("x".to_owned(), json!(1))].into() }],
            expires_at: Some(Millis(0)),
            rollout: Some(Rollout {
                percent: Percent::new(12.5).unwrap(),
                salt: Some("s".into()),
                by: RolloutBy::User,
            }),
            limits: RuleLimits {
                actions_per_day: Some(5),
                per_user_cooldown: Some(Period::of_seconds(60)),
                alarm_per_hour: Some(9),
            },
            review_sample: Percent::new(1.0),
            on_error: OnError::Matched,
            tests: vec![Test {
                name: Some("n".into()),
                item_type: Some("t".into()),
                item: json!({}),
                strikes: 3,
                counts: [("w".to_owned(), json!(2))].into(),
                scores: [("m".to_owned(), json!(0.5))].into(),
                media: vec![json!({"bank": "b"})],
                expect: Expectation::Match,
            }],
        }),
        Document::Endpoint(Endpoint {
            key: "e".into(),
            url: "https://e.example".into(),
            headers: [("a".to_owned(), "b".to_owned())].into(),
            events: vec![Event::AppealDecision],
        }),
        Document::Threshold(Threshold {
            key: "t".into(),
            strikes: 3,
            within: Period::of_seconds(86_400),
            action: "a".into(),
        }),
        Document::Queue(Queue { key: "q".into(), name: Some("Q".into()) }),
        Document::Bank(Bank {
            key: "b".into(),
            name: Some("B".into()),
            kind: BankKind::Gradient,
            entries: vec!["00ff00ff00ff00ff".into()],
            file: Some("more.txt".into()),
            distance: Some(2),
            sample: Percent::new(12.5),
            suppresses: vec!["c".into()],
            quarantine: Some(Quarantine { matches: 9, within: Period::of_seconds(60), times: 3 }),
        }),
        Document::Window(Window {
            key: "w".into(),
            name: Some("W".into()),
            item_types: vec!["t".into()],
            by: Some("links".into()),
            condition: Some(json!({})),
            sum: Some("amount".into()),
            distinct: Some("to".into()),
            over: Period::of_seconds(86_400),
            bucket: Some(Period::of_seconds(3_600)),
        }),
    ];
    documents.into_iter().map(|document| (document.kind(), document)).collect()
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e300_f64..1e300).prop_map(|f| json!(f)),
        any_text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(any_text(), inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[a-z ._/$-]{0,9}",
        "[ -~\n\t\u{85}\u{2028}\u{feff}é😀]{0,12}",
        Just("yes".to_owned()),
        Just("~".to_owned()),
        Just("<<".to_owned()),
        Just("0o17".to_owned()),
        Just("1_000".to_owned()),
        Just("2026-01-01".to_owned()),
        Just("- a".to_owned()),
        Just("---".to_owned()),
    ]
}

prop_compose! {
    fn any_rule()(
        key in "[A-Za-z0-9][A-Za-z0-9_.-]{0,20}", name in prop::option::of(any_text()), when in any_value(),
        report: bool, policies in prop::collection::vec(any_text(), 0..3), params in prop::collection::btree_map(any_text(), any_value(), 0..3),
        at in prop::option::of(0_i64..4_000_000_000_000), tests in prop::collection::vec(any_value(), 0..2),
        share in 0_u16..=10_000,
    ) -> Document {
        Document::Rule(Rule {
            key: key.into(), name, status: if report { Status::Live } else { Status::Draft },
            on: if report { vec![On::Report] } else { vec![On::Item] }, item_types: vec!["t".into()], when, policies,
            actions: vec![RuleAction { id: "a".into(), params }], expires_at: at.map(Millis),
            rollout: None, limits: RuleLimits::default(),
            review_sample: Percent::new(f64::from(share) / 100.0), on_error: OnError::default(),
            tests: tests.into_iter().map(|item| Test {
                name: None, item_type: None, item, strikes: 0, counts: BTreeMap::new(), scores: BTreeMap::new(), media: Vec::new(),
                expect: Expectation::NoMatch,
            }).collect(),
        })
    }
}

prop_compose! {
    fn any_endpoint()(
        key in "[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", url in any_text(), headers in prop::collection::btree_map(any_text(), any_text(), 0..4),
        events in prop::sample::subsequence(Event::ALL.to_vec(), 0..=4),
    ) -> Document {
        Document::Endpoint(Endpoint { key: key.into(), url, headers, events })
    }
}

prop_compose! {
    fn any_item_type()(
        key in "[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", name in prop::option::of(any_text()), strict: bool, version in prop::option::of(any_text()), earlier_versions in prop::collection::vec(any_text(), 0..3),
        fields in prop::collection::btree_map("[a-zA-Z 0-9._é:#-]{1,12}", (0_usize..16, any::<bool>(), any::<bool>()), 0..6),
    ) -> Document {
        let fields = fields.into_iter().filter(|(name, _)| name != "images").map(|(name, (scalar, required, list))| FieldDocument {
            name, scalar: Scalar::ALL[scalar], required, container: list.then_some(Container::Array), role: None,
        });
        Document::ItemType(ItemType { key: key.into(), name, kind: Kind::Thread, fields: fields.collect(), strict, version, earlier_versions })
    }
}

proptest! {
    #[test]
    fn what_is_rendered_is_read_back_as_it_was(document in prop_oneof![any_rule(), any_endpoint(), any_item_type()]) {
        for (format, name) in [(Format::Json, "d.json"), (Format::Yaml, "d.yaml")] {
            let text = render(&document, format);
            let parsed = parse(&[(name, &text)]).map_err(|faults| TestCaseError::fail(format!("{faults:?}\n{text}")))?;
            prop_assert_eq!(parsed.len(), 1);
            prop_assert_eq!(&parsed[0].1, &document, "{}", text);
            prop_assert_eq!(render(&parsed[0].1, format), text);
        }
    }
}

#[test]
fn every_kind_survives_rendering_in_both_notations() {
    for (_, document) in full_documents() {
        // They combine what real ones may not, so that every key is written.
        let document = match document {
            Document::ItemType(_) => continue,
            Document::Action(action) => Document::Action(Action { queue: None, ..action }),
            other => other,
        };
        for (format, name) in [(Format::Json, "d.json"), (Format::Yaml, "d.yaml")] {
            let text = render(&document, format);
            assert_eq!(parse(&[(name, &text)]).unwrap()[0].1, document, "{text}");
        }
    }
}
