//! The configuration that fault tests run with.
//!
//! Small: one action with a strike, one review, one threshold, and their endpoints and policies.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::{
    limits::{DAILY, FLOOD, FULL, ONCE, PER_DAY},
    oracle::{REVIEW_ACTION, SCAM_ACTION, THRESHOLD, THRESHOLD_ACTION},
    own_actions::OWN_ACTION,
    receiver::Receiver,
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
fields:
  - {name: name, type: STRING}
---
policy: scam
name: Scams and fraud
";

/// Scams and pictures cause an action, threats a review. The first two rules also apply to the items of reports.
fn rules(scam_action: &str) -> String {
    format!(
        "\
rule: scams
status: live
on: [item, report]
item_types: [post]
when:
  text: {{in: [text], words: [scamcoin]}}
policies: [scam]
actions: [{scam_action}]
---
rule: pictures
status: live
on: [item, report]
item_types: [post]
when:
  media: {{in: [images], state: [ok]}}
policies: [scam]
actions: [{scam_action}]
---
rule: threats
status: live
item_types: [post]
when:
  text: {{in: [text], words: [threaten]}}
actions: [review]
"
    )
}

/// Rules with limits. They match only scams of the load, because other tests count the effects of their own scams.
fn limits(scam_endpoint: &str) -> String {
    let mut all = "\
window: offers-by-author
item_types: [post]
where: {text: {in: [text], words: [offer]}}
over: 12h
"
    .to_owned();
    let offer = "text: {in: [text], words: [offer]}";
    let full = format!("all: [{{{offer}}}, {{count: {{window: offers-by-author, gte: {FULL}}}}}]");
    for (action, when, limits) in [
        (DAILY, offer, format!("{{actions_per_day: {PER_DAY}}}")),
        (ONCE, offer, "{per_user_cooldown: 30d}".to_owned()),
        (FLOOD, full.as_str(), "{}".to_owned()),
    ] {
        let _infallible = write!(
            all,
            "\
---
action: {action}
kind: callback
endpoint: {scam_endpoint}
---
rule: {action}
status: live
item_types: [post]
when: {{{when}}}
limits: {limits}
actions: [{action}]
"
        );
    }
    all
}

/// All documents. Callbacks without an endpoint are sent to `all` of the receiver, the others to `scam_endpoint`.
pub(crate) fn all(receiver: &Receiver, scam_endpoint: &str) -> Value {
    let url = receiver.url("all");
    let scam_url = receiver.url(scam_endpoint);
    let endpoints = format!(
        "endpoint: all\nurl: {url}\nevents: [action.automatic, user.threshold, appeal.decision]\n\
         ---\nendpoint: {scam_endpoint}\nurl: {scam_url}\nevents: [decision.moderator]\n"
    );
    let actions = format!(
        "\
action: {SCAM_ACTION}
kind: callback
endpoint: {scam_endpoint}
strikes: 1
---
action: {REVIEW_ACTION}
kind: callback
endpoint: {scam_endpoint}
---
action: {OWN_ACTION}
kind: callback
endpoint: {scam_endpoint}
strikes: 1
---
action: {THRESHOLD_ACTION}
kind: callback
endpoint: all
---
action: review
kind: enqueue_review
---
threshold: strikes
strikes: {THRESHOLD}
within: 30d
action: {THRESHOLD_ACTION}
"
    );
    files(&[
        ("types.yaml", TYPES),
        ("endpoints.yaml", &endpoints),
        ("actions.yaml", &actions),
        ("rules.yaml", &rules(SCAM_ACTION)),
        ("limits.yaml", &limits(scam_endpoint)),
    ])
}

/// Returns the same rules with another action for scams.
pub(crate) fn other_action(scam_action: &str) -> Vec<(String, String)> {
    vec![("rules.yaml".to_owned(), rules(scam_action))]
}

fn files(files: &[(&str, &str)]) -> Value {
    let files: Vec<_> = files.iter().map(|(name, text)| json!({ "name": name, "text": text })).collect();
    json!({ "files": files })
}
