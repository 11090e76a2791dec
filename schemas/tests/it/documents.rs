//! Configuration documents: reading, faults with their places, validation across documents, canonical text.

use serde_json::{Value, json};
use tidegate_schemas::{
    documents::{
        Document, DocumentFault, DocumentKind, DocumentSet, Event, Expectation, Format, MissingReference,
        Origin, Status, SubmissionOrigin, parse, parse_all, render,
    },
    ids::Millis,
    item_types::{Container, Role},
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
    let set =
        DocumentSet::collect(parse(&[("all.yaml", yaml)]).unwrap_or_else(|faults| panic!("{faults:?}")));
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
    assert_eq!(rule.on, [SubmissionOrigin::Item, SubmissionOrigin::Report]);
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
    assert!(
        endpoint.accepts_event(Event::ModeratorDecision) && !endpoint.accepts_event(Event::AppealDecision)
    );
    assert!(!format!("{endpoint:?}").contains("TOKEN"), "header values stay out of logs");
    assert_eq!(validate(ALL), [""; 0]);
}

#[test]
fn absent_members_have_their_defaults() {
    let documents =
        parse(&[("r.yaml", "rule: r\nwhen: {}\n---\nqueue: q\n---\nendpoint: e\nurl: https://e.example")])
            .unwrap();
    let Document::Rule(rule) = &documents[0].1 else { panic!() };
    assert_eq!((rule.status, &rule.on[..]), (Status::Draft, &[SubmissionOrigin::Item][..]));
    assert_eq!(rule.display_name(), "r");
    let Document::Endpoint(endpoint) = &documents[2].1 else { panic!() };
    assert!(Event::ALL.iter().all(|event| endpoint.accepts_event(*event)));
}

#[test]
fn json_file_is_a_document_or_a_list() {
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

fn rule_of(name: &str, text: &str) -> Value {
    let documents = parse(&[(name, text)]).unwrap_or_else(|faults| panic!("{text}: {faults:?}"));
    let Document::Rule(rule) = &documents[0].1 else { panic!("{text}") };
    rule.when.clone()
}

#[test]
fn whole_numbers_stay_exact_in_every_notation() {
    let numbers = [
        "9007199254740993",
        "9223372036854775808",
        "-9223372036854775809",
        "18446744073709551617",
        "-18446744073709551617",
        "1267650600228229401496703205377",
        "170141183460469231731687303715884105727",
        "-170141183460469231731687303715884105728",
    ];
    for digits in numbers {
        let json = format!("{{\"rule\": \"r\", \"when\": {{\"n\": [{digits}]}}}}");
        for (name, text) in [
            ("r.json", json.clone()),
            ("r.yaml", json),
            ("r.yaml", format!("rule: r\nwhen:\n  n:\n    - {digits}")),
            ("r.yaml", format!("rule: r\r\nwhen: {{n: [{digits}]}} # as it is\r\n")),
            ("r.yaml", format!("\u{feff}# \u{1f600} é\nrule: r\nwhen: {{n: [  {digits}  ]}}\n")),
            ("r.yaml", format!("rule: r\nname: &n \"é\"\nwhen: {{n: [&a {digits}]}}\ntests: []")),
            ("r.yaml", format!("---\nrule: r\nitem_types: [\"ü\"]\nwhen:\n  n: [\n    {digits}\n  ]\n...\n")),
            ("r.yaml", format!("rule: r\nwhen: {{n: [!!float {digits}]}}")),
            ("r.yaml", format!("rule: r\nwhen: {{n: [!!float \"{digits}\", x]}}")),
            ("r.yaml", format!("rule: r\nwhen:\n  n:\n    - !!float >-\n      {digits}\n    - 1\n")),
            (
                "r.yaml",
                format!("rule: r\nname: ü\nwhen:\n  n:\n    - !!float &n ' {digits} ' # so\n    - *n"),
            ),
        ] {
            let condition = rule_of(name, &text);
            assert_eq!(condition["n"][0].to_string(), digits, "{text}");
            for format in [Format::Yaml, Format::Json] {
                let (_, document) = parse(&[(name, &text)]).unwrap().remove(0);
                let rendered = render(&document, format);
                let name = if format == Format::Yaml { "r.yaml" } else { "r.json" };
                assert_eq!(parse(&[(name, &rendered)]).unwrap()[0].1, document, "{rendered}");
            }
        }
        if !digits.starts_with('-') {
            assert_eq!(
                rule_of("r.yaml", &format!("rule: r\nwhen: {{n: +{digits}}}"))["n"].to_string(),
                digits
            );
        }
    }
    let twice = rule_of("r.yaml", "rule: r\nwhen: {a: &a 18446744073709551617, b: [*a, *a]}");
    assert_eq!(twice["b"].to_string(), "[18446744073709551617,18446744073709551617]");
    for (written, read) in [("1.50", "1.5"), ("1e3", "1000.0"), (".5", "0.5"), ("!!float 3.5", "3.5")] {
        assert_eq!(rule_of("r.yaml", &format!("rule: r\nwhen: {{n: {written}}}"))["n"].to_string(), read);
    }
    assert_eq!(
        rule_of("r.yaml", "rule: r\nwhen: {n: \"18446744073709551617\"}")["n"],
        "18446744073709551617"
    );
}

#[test]
fn number_that_would_be_rounded_is_refused() {
    let errors_of = |written: &str| messages(&[("r.yaml", &format!("rule: r\nwhen:\n  n: {written}\n"))]);
    for written in [
        r#"!!float "\x39007199254740993""#,
        r#"!!float "9007199254740993\n""#,
        r#"!!float "-1844674407370955\u0031617""#,
    ] {
        let errors = errors_of(written);
        assert!(errors.len() == 1 && errors[0].starts_with("r.yaml:"), "{written}: {errors:?}");
        assert!(errors[0].contains("must be written in plain digits"), "{written}: {errors:?}");
    }
    let errors = errors_of("!!float \"170141183460469231731687303715884105728\"");
    assert!(errors.len() == 1 && errors[0].contains("exceeds 127 bits"), "{errors:?}");
    for written in ["!!int 18446744073709551617", "!!int \"seven\"", "!!float \"seven\""] {
        let errors = errors_of(written);
        assert!(errors.len() == 1 && errors[0].contains("remove the tag"), "{written}: {errors:?}");
    }
    for (written, read) in [("!!float \"\\x39.5\"", "9.5"), ("!!int \"7\"", "7")] {
        assert_eq!(rule_of("r.yaml", &format!("rule: r\nwhen:\n  n: {written}\n"))["n"].to_string(), read);
    }
}

#[test]
fn too_large_whole_number_is_refused_with_its_line() {
    let digits = "170141183460469231731687303715884105728";
    for digits in [digits.to_owned(), format!("-{digits}1"), "9".repeat(300)] {
        for (name, text) in [
            ("r.yaml", format!("queue: q\n---\nrule: r\nwhen:\n  n: {digits}\n")),
            (
                "r.json",
                format!("[{{\"queue\": \"q\"}},\n\n\n{{\"rule\": \"r\",\n\"when\": {{\"n\": {digits}}}}}]"),
            ),
        ] {
            let errors = messages(&[(name, &text)]);
            let place = format!("{name}:5: ");
            assert!(errors.len() == 1 && errors[0].starts_with(&place), "{text}: {errors:?}");
            assert!(errors[0].contains("exceeds 127 bits"), "{errors:?}");
        }
    }
    let torn = parse_all(&[("r.yaml", format!("queue: q\n---\nrule: r\nwhen: {{n: {digits}}}\n"))]);
    assert_eq!((torn.documents.len(), torn.faults.len()), (1, 1));
    // Other fields have a message of their own.
    for (text, detail) in [
        (
            "action: a\nkind: callback\nstrikes: 18446744073709551617",
            "strikes: expected a whole number from 0 to 4294967295, or `policies`",
        ),
        ("rule: r\nwhen: {}\nreview_sample: 18446744073709551617", "review_sample: "),
        ("rule: r\nwhen: {}\nstatus: 18446744073709551617", "status: "),
        ("rule: 18446744073709551617\nwhen: {}", "rule: "),
    ] {
        let errors = messages(&[("a.yaml", text)]);
        assert!(errors.len() == 1 && errors[0].contains(detail), "{errors:?}");
    }
}

#[test]
fn every_error_has_file_line_document_and_path() {
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
    let expected_errors = [
        "c.yaml:12: document 2: nmae: unknown field. Did you mean `name`?",
        "c.yaml:8: document 2: fields[0].requird: unknown field. Did you mean `required`?",
        "c.yaml:10: document 2: fields[1].tpye: unknown field. Did you mean `type`?",
        "c.yaml:15: document 3: kind: `CONTEND` is not one of `CONTENT`, `USER`, `THREAD`. Did you mean `CONTENT`?",
        "c.yaml:17: document 4: `rulle` is not a kind of document. Did you mean `rule`?",
        "c.yaml:19: document 5: the first key names the kind: put `policy` before `name`",
        "c.yaml:23: document 6: strikes: u32 is expected, not a string",
        "c.yaml:28: document 7: strikes: A threshold needs at least one strike.",
        "c.yaml:29: document 7: within: a period is a whole number and one of `d`, `h`, `m`, `s`, such as `90d`",
        "c.yaml:32: document 8: policy: A key begins with a letter or digit and has at most 64 letters, digits, `_`, `.` and `-`.",
        "c.yaml:36: document 9: parameters[0].options: SELECT and MULTISELECT need options, and only they have them.",
        "c.yaml:40: document 10: actions[0].parms: unknown field. Did you mean `params`?",
        "c.yaml:41: document 10: expires_at: expected an ISO 8601 date with a time, such as `2026-12-31T00:00:00Z`",
    ];
    let mut errors = messages(&[("c.yaml", yaml)]);
    errors.sort();
    let mut expected_errors = expected_errors.map(str::to_owned).to_vec();
    expected_errors.sort();
    assert_eq!(errors, expected_errors);
}

#[test]
fn reading_continues_after_an_invalid_value() {
    let torn = "queue: a\n---\n# no end\nbank: b\nentries: [\n---\nthreshold: t\nstrikes: many\nwithin: 30x\n\
        ---\nitem_type: i\nname: I\nkind: THING\nfields: [{name: 7, type: STRNG}, {type: STRING}]\n";
    let parsed = parse_all(&[("t.yaml", torn), ("q.yaml", "queue: q\n"), ("x.json", "{")]);
    let errors: Vec<_> = parsed.faults.iter().map(ToString::to_string).collect();
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
        assert!(
            errors.iter().any(|it| it.starts_with(begins) && it.contains(names)),
            "{begins}: {errors:#?}"
        );
    }
    assert_eq!(errors.len(), 9, "{errors:#?}");
    let read: Vec<_> = parsed.documents.iter().map(|(_, document)| document.key()).collect();
    assert_eq!(read, ["a", "t", "i", "q"]);
}

#[test]
fn possibly_unreadable_names_are_not_reported_as_missing() {
    let origin = Origin { file: "t.yaml".to_owned(), line: 1, index: Some(0) };
    let fault = |path: &str, missing: Option<&str>| {
        let reference = missing.map(|bank| MissingReference::Document(DocumentKind::Bank, bank.to_owned()));
        DocumentFault { missing: reference, ..DocumentFault::new(&origin, path, "It is wrong.") }
    };
    let torn =
        parse_all(&[("t.yaml", "threshold: t\nstrikes: 1\nwithin: 1x\naction: a\n---\nbank: b\nkind: [\n")]);
    assert!(torn.is_in_doubt(&fault("rules", Some("b"))));
    assert!(!torn.is_in_doubt(&fault("rules", Some("c"))));
    assert!(torn.is_in_doubt(&fault("within", None)), "the value in the file was unreadable");
    assert!(!torn.is_in_doubt(&fault("withinx", None)));
    assert!(parse_all(&[("x.json", "{")]).is_in_doubt(&fault("", Some("c"))));
    assert!(!parse_all(&[("q.yaml", "queue: q\n")]).is_in_doubt(&fault("", Some("c"))));
}

#[test]
fn invalid_yaml_has_its_line_and_alias_bombs_are_refused() {
    assert!(messages(&[("b.yaml", "queue: a\n---\nqueue: [")])[0].starts_with("b.yaml:3"));
    assert!(messages(&[("b.yaml", "queue: a\nqueue: b")])[0].contains("b.yaml:2"));
    for (text, detail) in [
        ("queue: [", "b.yaml:1: document 1: column 8: invalid YAML"),
        ("queue: a\n name: b", "invalid YAML"),
        ("queue: \"a", "invalid YAML"),
        ("queue: a\nqueue: b", "b.yaml:2: document 1: column 1: the key `queue` occurs twice"),
        ("queue: *a", "b.yaml:1: document 1: column 8: the alias has no anchor"),
    ] {
        let errors = messages(&[("b.yaml", text)]);
        assert!(errors.len() == 1 && errors[0].contains(detail), "{text:?}: {errors:?}");
    }
    let deep = format!("rule: r\nwhen: {}{}", "[".repeat(5000), "]".repeat(5000));
    assert_eq!(messages(&[("d.yaml", &deep)]).len(), 1);
    let laughs = "rule: r\nwhen:\n  a: &a [x,x,x,x,x,x,x,x,x]\n  b: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n  c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n  d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n  e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\n  f: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n  g: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\n  h: [*g,*g,*g,*g,*g,*g,*g,*g,*g]\n";
    assert_eq!(messages(&[("l.yaml", laughs)]).len(), 1);
    for empty_text in ["", "# only a comment\n", "---\n---\n"] {
        assert_eq!(parse(&[("e.yaml", empty_text)]).unwrap().len(), 0, "{empty_text:?}");
    }
    for odd in ["- queue: a", "just text", "{}", "5"] {
        assert_eq!(messages(&[("o.yaml", odd)]).len(), 1, "{odd:?}");
    }
}

#[test]
fn reader_depth_exceeds_the_depth_limit_of_rules() {
    let nested = |levels: usize| {
        let leaf = json!({"field": {"path": "author", "in": [{"typeId": "user", "id": "u"}]}});
        (0..levels).fold(leaf, |inner, _| json!({"all": [inner]}))
    };
    for levels in [31, 32, 40] {
        let rule = json!({"rule": "r", "when": nested(levels)});
        let inline = format!("rule: r\nwhen: {}\n", rule["when"]);
        for (name, text) in
            [("r.yaml", inline), ("r.json", rule.to_string()), ("l.json", json!([rule]).to_string())]
        {
            let document =
                parse(&[(name, &text)]).unwrap_or_else(|faults| panic!("{levels}: {faults:?}")).remove(0).1;
            for (name, format) in [("again.yaml", Format::Yaml), ("again.json", Format::Json)] {
                let reread = parse(&[(name, render(&document, format))]).unwrap().remove(0).1;
                assert!(reread == document, "{levels} {name}");
            }
        }
    }
    let deep = json!({"rule": "r", "when": nested(60)}).to_string();
    assert!(messages(&[("r.json", &deep)])[0].contains("nested 96 deep at most"));
    assert!(messages(&[("r.yaml", &deep)])[0].contains("nested too deep"));
}

#[test]
fn number_of_documents_in_a_file_is_unlimited() {
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
    let errors = messages(&[("u.yaml", yaml)]);
    let expected_errors = [
        "u.yaml:4: document 1: fields[0].role: Items of kind USER have no role `creator`.",
        "u.yaml:5: document 1: fields[1].name: There is another field `a`.",
        "u.yaml:6: document 1: fields[2].role: The role `createdAt` needs a single DATETIME.",
        "u.yaml:7: document 1: fields[3].role: The role `profileIcon` needs a single IMAGE.",
        "u.yaml:9: document 1: fields[5].role: Another field has the role `displayName` already.",
        "u.yaml:10: document 1: fields[6].type: `images` is an array of image URLs in every item type: IMAGE with the container ARRAY.",
    ];
    assert_eq!(errors, expected_errors);
}

#[test]
fn references_between_documents_must_resolve() {
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
    let expected_errors = [
        "all.yaml:1: document 1: parent: There is no policy `scan`. Did you mean `scam`?",
        "all.yaml:4: document 2: endpoint: There is no endpoint `platfrom`. Did you mean `platform`?",
        "all.yaml:11: document 4: action: There is no action `ban`.",
        "all.yaml:16: document 5: item_types[0]: There is no item type `post`.",
        "all.yaml:16: document 5: policies[0]: There is no policy `scma`. Did you mean `scam`?",
        "all.yaml:16: document 5: actions[0]: There is no action `hid`. Did you mean `hide`?",
        "all.yaml:16: document 5: actions[1].params: The action `hide` has no parameter `hours`.",
    ];
    assert_eq!(validate(yaml), expected_errors);
}

#[test]
fn arguments_of_actions_are_checked() {
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
    let expected_errors = [
        "all.yaml:7: document 2: actions[0].params: The action `hide` needs the parameter `hours`.",
        "all.yaml:7: document 2: actions[1].params: The parameter `hours` takes a number.",
        "all.yaml:7: document 2: actions[1].params: The parameter `why` takes one of its options.",
    ];
    assert_eq!(validate(yaml), expected_errors);
}

#[test]
fn queue_of_an_action_must_have_the_class_of_its_jobs() {
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
---
queue: minors
class: child_safety
---
action: hand-over
kind: enqueue_child_safety
queue: minors
---
action: to-reviewers
kind: enqueue_child_safety
queue: spam
---
action: to-the-team
kind: enqueue_review
queue: minors
";
    let expected_errors = [
        "all.yaml:11: document 4: queue: There is no queue `spma`. Did you mean `spam`?",
        "all.yaml:15: document 5: queue: The queue `appeals` has the class `appeal`, but the jobs have the class `review`. Name another queue.",
        "all.yaml:26: document 8: queue: The queue `spam` has the class `review`, but the jobs have the class `child_safety`. Name another queue.",
        "all.yaml:30: document 9: queue: The queue `minors` has the class `child_safety`, but the jobs have the class `review`. Name another queue.",
    ];
    assert_eq!(validate(yaml), expected_errors);
    let callback = "action: a\nkind: callback\nqueue: q";
    let expected_error = "a.yaml:3: document 1: queue: Only an action of kind `enqueue_review` or `enqueue_child_safety` has a queue.";
    assert_eq!(messages(&[("a.yaml", callback)]), [expected_error]);
    let calling = "action: a\nkind: enqueue_child_safety\nendpoint: e";
    let expected_error = "a.yaml:3: document 1: endpoint: Only an action of kind `callback` has an endpoint.";
    assert_eq!(messages(&[("a.yaml", calling)]), [expected_error]);
}

#[test]
fn cycles_of_policies_are_refused() {
    let yaml = "policy: a\nparent: c\n---\npolicy: b\nparent: a\n---\npolicy: c\nparent: b\n---\npolicy: d\nparent: a\n---\npolicy: e\nparent: e";
    let expected_errors = [
        "all.yaml:1: document 1: parent: The policy is its own ancestor: a → c → b → a.",
        "all.yaml:13: document 5: parent: The policy is its own ancestor: e → e.",
    ];
    assert_eq!(validate(yaml), expected_errors);
}

#[test]
fn key_is_unique_in_its_kind_across_files() {
    let files = [("a.yaml", "queue: q\n---\npolicy: q"), ("b.yaml", "queue: q")];
    let faults = DocumentSet::collect(parse(&files).unwrap()).unwrap_err();
    assert_eq!(faults.len(), 1);
    assert_eq!(faults[0].to_string(), "b.yaml:1: document 1: queue: `q` is already defined in a.yaml:1.");
}

#[test]
fn canonical_yaml_has_block_style() {
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
fn set_returns_all_its_documents() {
    let documents = parse(&[("all.yaml", ALL)]).unwrap();
    let set_documents = DocumentSet::collect(documents.clone()).unwrap().documents();
    assert_eq!(set_documents.len(), documents.len());
    assert!(documents.iter().all(|document| set_documents.contains(document)));
    let stored = serde_json::to_string(&set_documents.iter().map(|(_, it)| it).collect::<Vec<_>>()).unwrap();
    let read: Vec<Document> = serde_json::from_str(&stored).unwrap();
    assert!(read.iter().zip(&set_documents).all(|(read, (_, it))| read == it));
    assert!(serde_json::from_str::<Document>(r#"{"queue":"q","nmae":1}"#).is_err());
}
