//! Rules that act on an item, and the reasons of the other rules.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_catalog::{Compiled, Settings, change};
use tidegate_moderation::{
    effects::{AlarmThreshold, LimitRefusals, Plan, RuleLimitRequest},
    items::{
        evaluate::{self, PreparedItem, ScanResult},
        stored::Submission,
        submissions,
    },
    rules::stats::{OutcomeKind, Suppression},
};
use tidegate_rules::Outcome;
use tidegate_schemas::{
    ids::{ConfigVersion, Kind, Millis, OrgId, RuleId, derive},
    records::{Coordinates, ItemEntry, Items, Source, Variant},
};

const TYPES: &str = "\
item_type: post
kind: CONTENT
fields:
  - {name: text, type: STRING, required: true}
  - {name: author, type: RELATED_ITEM, role: creator}
---
item_type: user
kind: USER
---
action: hide
kind: callback
---
action: look
kind: enqueue_review
---
";

/// Outcome of rules on one item.
struct Case {
    record: Items,
    prepared: PreparedItem,
    outcome: Outcome,
}

impl Case {
    fn new(rules: &str) -> Self {
        Self::of(rules, &Settings::default())
    }

    fn of(rules: &str, settings: &Settings) -> Self {
        let files = [("rules.yaml".to_owned(), format!("{TYPES}{rules}"))];
        let (config, _) = change::compile_offline(&files, settings).unwrap();
        let config: Arc<Compiled> = Arc::new(config);
        let data = json!({"text": "scamcoin", "author": {"typeId": "user", "id": "u1"}});
        let entry = ItemEntry {
            submission_id: derive(Kind::Submission, &[b"one"]),
            type_id: "post".into(),
            id: "p1".into(),
            type_version: None,
            variant: Variant::Original,
            data: Bytes::from(data.to_string()),
            origin: None,
            keyed: false,
        };
        let prepared = evaluate::prepare(Arc::clone(&config), Source::Api, &entry, Millis(0)).unwrap();
        let ScanResult::Finished(outcome) = evaluate::scan(&prepared) else {
            panic!("the scan asks for facts")
        };
        let record = Items {
            org: OrgId::new("acme"),
            config_version: ConfigVersion(1),
            source: Source::Api,
            received_at: Millis(0),
            request_id: String::new(),
            report_id: None,
            items: vec![entry],
        };
        Self { record, prepared, outcome }
    }

    fn submission(&self) -> Submission<'_> {
        let coordinates = Coordinates { append_ms: Millis(0), offset: 0, position: 0 };
        Submission::new(&self.record, &self.record.items[0], coordinates)
    }

    fn claims(&self) -> Vec<RuleLimitRequest> {
        submissions::limit_requests(&self.submission(), &self.prepared, &self.outcome, None, None)
    }

    fn plan(&self) -> Plan {
        self.plan_without(&[], None)
    }

    fn plan_without(&self, refused: &[(&str, Suppression)], no_reviews: Option<&'static str>) -> Plan {
        let refusals: LimitRefusals =
            refused.iter().map(|(rule, suppression)| (RuleId::new(*rule), *suppression)).collect();
        submissions::plan(&self.submission(), &self.prepared, &self.outcome, no_reviews, &refusals, None)
    }
}

fn parse_findings(plan: &Plan) -> (Value, Value, Value) {
    let findings = plan.evaluation.as_ref().unwrap();
    let read = |text: &str| serde_json::from_str(text).unwrap();
    (read(&findings.matched), read(&findings.errored), read(&findings.actions))
}

fn rule(key: &str, rest: &str) -> String {
    format!("rule: {key}\nwhen: {{text: {{in: [text], words: [scamcoin]}}}}\n{rest}\n---\n")
}

#[test]
fn only_live_rules_act_and_others_give_a_reason() {
    let rules = rule("draft", "actions: [hide]")
        + &rule("trial", "status: background\nactions: [hide]")
        + &rule("partly", "status: live\nrollout: {percent: 0}\nactions: [hide]");
    let plan = Case::new(&rules).plan();
    assert!(!plan.has_effects());
    let (matched, _, actions) = parse_findings(&plan);
    let suppressions: Vec<_> =
        matched.as_array().unwrap().iter().map(|it| (&it["rule"], &it["suppressed"])).collect();
    assert_eq!(
        json!(suppressions),
        json!([["draft", "background"], ["partly", "rollout"], ["trial", "background"]])
    );
    assert_eq!(
        actions,
        json!([{"id": "hide", "rules": ["partly"], "policies": [], "suppressed": "rollout"}])
    );
    let outcome_kinds: Vec<_> =
        plan.rule_outcomes.iter().map(|it| (it.rule.as_str(), it.kind.as_str())).collect();
    assert_eq!(outcome_kinds, [("draft", "background"), ("partly", "rollout"), ("trial", "background")]);
}

#[test]
fn an_alarm_is_reported_before_the_rollout() {
    let case = Case::new(&rule("partly", "status: live\nrollout: {percent: 0}\nactions: [hide]"));
    let plan = case.plan_without(&[("partly", Suppression::Alarm)], None);
    assert!(!plan.has_effects());
    assert_eq!(parse_findings(&plan).0[0]["suppressed"], "alarm");
}

#[test]
fn action_lists_only_the_rules_that_act() {
    let rules = rule("limited", "status: live\nlimits: {actions_per_day: 1}\nactions: [hide, look]")
        + &rule("free", "status: live\nactions: [hide]");
    let plan = Case::new(&rules).plan_without(&[("limited", Suppression::Limit)], None);
    assert_eq!((plan.callbacks.len(), plan.reviews.len()), (1, 0));
    let (matched, _, actions) = parse_findings(&plan);
    assert_eq!((&matched[0]["suppressed"], &matched[1]["suppressed"]), (&Value::Null, &json!("limit")));
    assert_eq!(actions[0]["rules"], json!(["free"]));
    assert_eq!(actions[1]["suppressed"], "limit");
    assert!(actions[1].get("eventId").is_none());
}

#[test]
fn only_acting_rules_use_limits_but_live_rules_feed_alarms() {
    let limits = "limits: {actions_per_day: 3, per_user_cooldown: 24h}";
    let rules = rule("acts", &format!("status: live\nactions: [hide]\n{limits}"))
        + &rule("idle", &format!("status: background\nactions: [hide]\n{limits}"))
        + &rule("out", &format!("status: live\nrollout: {{percent: 0}}\nactions: [hide]\n{limits}"))
        + &rule("says-nothing", &format!("status: live\n{limits}"))
        + &rule("free", "status: live\nactions: [hide]");
    let claims = Case::new(&rules).claims();
    let limit_requests: Vec<_> = claims.iter().map(|claim| (claim.rule.as_str(), claim.per_day)).collect();
    assert_eq!(limit_requests, [("acts", Some(3)), ("free", None), ("out", None), ("says-nothing", None)]);
    // Without a limit the alarm uses the last backtest.
    for claim in &claims[1..] {
        let watched = claim.alarm.as_ref().unwrap();
        assert_eq!(
            (watched.threshold, watched.counts, &claim.cooldown),
            (AlarmThreshold::Measured, true, &None)
        );
    }
    let (user, span) = claims[0].cooldown.clone().unwrap();
    assert_eq!((user.to_string().as_str(), span.as_secs()), ("user/u1", 86_400));
}

#[test]
fn callback_carries_defaults_then_the_rules_parameters() {
    let ban = "action: ban\nkind: callback\nparameters:\n  - {name: hours, type: NUMBER, default: 24}\n  \
               - {name: why, type: STRING, default: none}\n  - {name: note, type: STRING}\n---\n";
    let of = |plan: &Plan| -> Value { serde_json::from_str(&plan.callbacks[0].body).unwrap() };
    let one = rule("b", "status: live\nactions: [{id: ban, params: {hours: 48}}]");
    let body = of(&Case::new(&format!("{ban}{one}")).plan());
    assert_eq!(body["custom"], json!({"hours": 48, "why": "none"}));
    assert!(body.get("conflicts").is_none(), "{body}");

    let rules = ban.to_owned()
        + &rule("c", "status: live\nactions: [{id: ban, params: {hours: 72, note: seen}}]")
        + &one
        + &rule("d", "status: live\nactions: [{id: ban, params: {hours: 48}}]")
        + &rule("a", "status: background\nactions: [{id: ban, params: {hours: 1}}]");
    let body = of(&Case::new(&rules).plan());
    assert_eq!(body["custom"], json!({"hours": 48, "why": "none", "note": "seen"}));
    assert_eq!(body["conflicts"], json!([{"parameter": "hours", "rule": "c", "value": 72}]));
}

#[test]
fn a_sampled_hit_is_reviewed_once_for_all_its_rules() {
    let rules = rule("a", "status: live\nreview_sample: 100\nactions: [hide]")
        + &rule("b", "status: live\nreview_sample: 100")
        + &rule("c", "status: background\nreview_sample: 100")
        + &rule("d", "status: live\nreview_sample: 0");
    let case = Case::new(&rules);
    let plan = case.plan();
    assert_eq!(plan.reviews.len(), 1);
    assert_eq!(plan.reviews[0].rules, [RuleId::new("a"), RuleId::new("b")]);
    let (matched, ..) = parse_findings(&plan);
    let sampled: Vec<_> = (0..4).map(|nth| matched[nth]["sampled"] == json!(true)).collect();
    assert_eq!(sampled, [true, true, false, false]);
    assert_eq!(case.plan(), plan, "the same submission falls into the same sample");
    assert!(case.plan_without(&[], Some("child_safety")).reviews.is_empty());
}

#[test]
fn failed_rule_follows_its_on_error_setting() {
    let failing = |key: &str, rest: &str| {
        let word_list = "scamcoin, scamcoim, scamcoil, scamcoik, scamcoij, scamcoih";
        format!(
            "rule: {key}\nwhen: {{all: [{{text: {{in: [text], words: [scamcoin]}}}}, {{text: {{in: [text], \
             words: [{word_list}]}}}}, {{field: {{path: text, exists: true}}}}]}}\n{rest}\n---\n"
        )
    };
    let rules = failing("acts", "status: live\non_error: matched\nactions: [hide]")
        + &failing("asks", "status: live\non_error: review")
        + &failing("idle", "status: background\non_error: matched\nactions: [hide]")
        + &failing("silent", "status: live\nactions: [hide]");
    let mut settings = Settings::default();
    settings.rules.steps_per_rule = 1;
    settings.rules.errored = 0;
    let plan = Case::of(&rules, &settings).plan();
    let (matched, errored, actions) = parse_findings(&plan);
    assert_eq!(matched, json!([]));
    let listed_failures: Vec<_> = errored
        .as_array()
        .unwrap()
        .iter()
        .map(|it| json!([it["rule"], it["reason"], it["counts_as"], it["suppressed"]]))
        .collect();
    assert_eq!(
        json!(listed_failures),
        json!([
            ["acts", "deadline", "matched", null],
            ["asks", "deadline", "review", null],
            ["idle", "deadline", "matched", "background"],
        ]),
        "failures with consequences are listed beyond the limit"
    );
    assert_eq!(actions[0]["rules"], json!(["acts"]));
    assert_eq!(plan.callbacks.len(), 1);
    assert_eq!(plan.reviews.iter().map(|it| it.rules.clone()).collect::<Vec<_>>(), [[RuleId::new("asks")]]);
}

/// Size of a stored evaluation in bytes: findings, actions, hits, callbacks and reviews.
fn stored_bytes(plan: &Plan) -> usize {
    serde_json::to_string(plan).unwrap().len()
}

#[test]
fn ten_thousand_matching_rules_store_a_bounded_evaluation() {
    let rules: String = (0..10_000)
        .map(|nth| {
            let status = if nth < 20 { "background" } else { "live" };
            rule(
                &format!("a-rule-that-matches-all-{nth}"),
                &format!("status: {status}\nactions: [hide, look]"),
            )
        })
        .collect();
    let case = Case::new(&rules);
    let plan = case.plan();
    // Without limits, row and plan had 2.5 and 7 MB.
    assert!(stored_bytes(&plan) < 64 << 10, "{}", stored_bytes(&plan));

    let (matched, _, actions) = parse_findings(&plan);
    let findings = plan.evaluation.as_ref().unwrap();
    let count = matched.as_array().unwrap().len();
    assert!(findings.matched.len() <= 16 << 10 && count > 20, "{count}");
    assert_eq!(findings.left_out.matched_more, 10_000 - count);
    // Acting rules are listed first, in order.
    assert!(matched.as_array().unwrap().iter().all(|it| it.get("suppressed").is_none()), "{matched}");
    let keys: Vec<_> = matched.as_array().unwrap().iter().map(|it| it["rule"].as_str().unwrap()).collect();
    assert!(keys.is_sorted());
    assert_eq!(actions[0]["rules"].as_array().unwrap().len(), 100);
    assert_eq!(actions[0]["rulesMore"], 9_880);

    // All effects are planned, and every rule is counted.
    assert_eq!((plan.taken.len(), plan.callbacks.len(), plan.reviews.len()), (2, 1, 1));
    let acted = plan.rule_outcomes.iter().filter(|it| it.kind == OutcomeKind::Acted).count();
    assert_eq!((acted, case.claims().len()), (9_980, 9_980));
    let body: Value = serde_json::from_str(&plan.callbacks[0].body).unwrap();
    assert_eq!((body["rules"].as_array().unwrap().len(), &body["rulesMore"]), (100, &json!(9_880)));
}

#[test]
fn few_matches_are_stored_with_full_explanations() {
    let rules: String = (0..3).map(|nth| rule(&format!("r{nth}"), "status: live\nactions: [hide]")).collect();
    let plan = Case::new(&rules).plan();
    let (matched, _, actions) = parse_findings(&plan);
    for finding in matched.as_array().unwrap() {
        assert_eq!(finding["tree"]["text"]["hits"][0]["found"], "scamcoin", "{finding}");
    }
    assert_eq!((actions[0].get("rulesMore"), plan.callbacks[0].body.contains("rulesMore")), (None, false));
    assert_eq!(plan.evaluation.unwrap().left_out.matched_more, 0);
}
