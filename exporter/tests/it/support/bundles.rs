//! Small valid bundle, and helpers for tests with bundles.

#![allow(dead_code, clippy::unwrap_used, reason = "shared by test binaries that use parts of it")]

use std::io::{self, Read};

use serde_json::{Value, json};
use tidegate_exporter::{
    bundle::validate::{Options, Report, validate},
    form::SCHEMA_URL,
    storage::spill::SpillOptions,
    unpack::Source,
};

/// Two phases (opinions and a comparison), three items, eight responses.
pub(crate) fn bundle() -> Value {
    let response = |id: &str, subject: &str, who: &str, answer: &str, at: &str| {
        json!({ "id": id, "phaseId": "phase-opinion", "subjectRef": subject, "participantRef": who,
            "response": answer, "count": 1, "occurredAt": at })
    };
    let comparison = |id: &str, who: &str, answer: &str| {
        json!({ "id": id, "phaseId": "phase-rank", "subjectRef": "option:1", "objectRef": "option:2",
            "participantRef": who, "response": answer, "count": 1, "occurredAt": null })
    };
    let item = |id: &str, phase: &str, status: &str, origin: &str| {
        json!({ "id": id, "phaseId": phase, "type": "statement", "text": "More trees.", "status": status,
            "origin": origin, "createdAt": "2024-05-06T07:08:09Z" })
    };
    let (ada, bob) =
        ("participant:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a", "participant:0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b");
    json!({
        "schema": SCHEMA_URL,
        "kind": "service-data-bundle",
        "bundleId": "polis:1",
        "exportedAt": "2024-05-06T07:08:09.123Z",
        "source": {
            "tool": "Polis", "sourceSchema": "https://example.org/schema", "sourceId": "1",
            "title": "Trees", "description": "", "url": "https://example.org/1",
        },
        "phases": [
            { "id": "phase-opinion", "type": "opinion", "title": "Trees", "status": "completed" },
            { "id": "phase-rank", "type": "prioritize", "title": "Rank", "status": "completed" },
        ],
        "items": [
            item("statement:1", "phase-opinion", "approved", "participant"),
            item("statement:2", "phase-opinion", "pending", "organizer"),
            item("option:1", "phase-rank", "active", "organizer"),
            item("option:2", "phase-rank", "active", "organizer"),
            item("option:3", "phase-rank", "active", "model"),
        ],
        "responses": [
            response("vote:1:a", "statement:1", ada, "agree", "2024-05-06T07:08:09Z"),
            response("vote:1:b", "statement:1", bob, "pass", "2024-05-06T07:08:10Z"),
            response("vote:2:a", "statement:2", ada, "disagree", "2024-05-06T07:08:11Z"),
            comparison("vote:3:a", ada, "prefer-subject"),
            comparison("vote:3:b", bob, "equal"),
        ],
        "outcomes": [
            { "id": "counts:1", "phaseId": "phase-opinion", "type": "response-counts", "itemRef": "statement:1",
                "counts": { "agree": 1, "disagree": 0, "pass": 1 } },
            { "id": "rank:1", "phaseId": "phase-rank", "type": "relative-ranking", "itemRef": "option:1",
                "rank": 1, "score": 0.5, "observations": 2, "theirs": { "a": [1, null] } },
        ],
        // Two of two possible answers, and one of three pairs.
        "summary": { "participants": 2, "items": 5, "responses": 5, "coverage": 0.6 },
        "provenance": {
            "adapter": "tests/v1", "transformedAt": "2024-05-06T07:08:09Z",
            "sourceArtifacts": [{ "role": "votes", "name": "votes.csv" }], "notes": ["none"],
        },
        "dataCard": {
            "containsParticipantData": true, "containsDirectIdentifiers": false,
            "containsParticipantFreeText": true, "containsPseudonymousLinkage": true,
            "aggregation": "individual-responses-plus-item-counts", "publicationStatus": "local-private-export",
            "storedByService": false, "suitableForPublicSharing": false, "limitations": [],
        },
    })
}

/// Bundle of counts that is suitable for sharing.
pub(crate) fn shared() -> Value {
    let mut shared = bundle();
    shared["outcomes"][1]["observations"] = json!(8);
    let row = |id: &str, subject: &str, object: Option<&str>, answer: &str, count: u64| {
        let phase = if object.is_some() { "phase-rank" } else { "phase-opinion" };
        let mut row = json!({ "id": id, "phaseId": phase, "subjectRef": subject, "participantRef": null,
            "response": answer, "count": count, "occurredAt": "2024-05-06T00:00:00Z" });
        if let Some(object) = object {
            row["objectRef"] = json!(object);
        }
        row
    };
    shared["responses"] = json!([
        row("c:1", "statement:1", None, "agree", 4),
        row("c:2", "statement:1", None, "disagree", 3),
        row("c:3", "option:1", Some("option:2"), "prefer-subject", 7),
    ]);
    shared["outcomes"][0]["counts"] = json!({ "agree": 4, "disagree": 3, "pass": 0 });
    shared["summary"] = json!({ "participants": 14, "items": 5, "responses": 14, "coverage": 0.9 });
    shared["items"][0]["text"] = json!("");
    for item in shared["items"].as_array_mut().unwrap() {
        item["createdAt"] = json!("2024-05-06T00:00:00Z");
    }
    shared["dataCard"]["containsParticipantFreeText"] = json!(false);
    shared["dataCard"]["containsPseudonymousLinkage"] = json!(false);
    shared["dataCard"]["suitableForPublicSharing"] = json!(true);
    shared
}

pub(crate) fn options() -> Options {
    Options::new(SpillOptions { memory: 64 << 20, folder: std::env::temp_dir() })
}

pub(crate) fn check_with(text: &[u8], options: &Options) -> Report {
    validate(&mut &*text, options).unwrap()
}

pub(crate) fn check(text: &[u8]) -> Report {
    check_with(text, &options())
}

/// Formats each finding as `BND-REF-02 /responses/0/objectRef`.
pub(crate) fn finding_places(report: &Report) -> Vec<String> {
    report.findings.iter().map(|finding| format!("{} {}", finding.rule.id(), finding.pointer)).collect()
}

/// Source that returns a few bytes at a time, and optionally opens only once.
pub(crate) struct Drips<'a> {
    pub(crate) text: &'a [u8],
    pub(crate) drip: usize,
    pub(crate) once: bool,
}

struct Dripping<'a>(&'a [u8], usize);

impl Read for Dripping<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.1.min(self.0.len()).min(into.len());
        into[..count].copy_from_slice(&self.0[..count]);
        self.0 = &self.0[count..];
        Ok(count)
    }
}

impl Source for Drips<'_> {
    fn open(&mut self) -> io::Result<Box<dyn Read + '_>> {
        Ok(Box::new(Dripping(self.text, self.drip)))
    }

    fn can_reopen(&self) -> bool {
        !self.once
    }
}

/// Shuffles the members of objects recursively; equal seeds give equal orders.
pub(crate) fn shuffled(value: &Value, seed: u64) -> String {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| {
                name.bytes().fold(seed ^ 0x9e37_79b9_7f4a_7c15, |hash, byte| {
                    (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3).rotate_left(23)
                })
            });
            let members: Vec<_> = members
                .into_iter()
                .map(|(name, value)| format!("{}: {}", json!(name), shuffled(value, seed.rotate_left(7))))
                .collect();
            format!("{{{}}}", members.join(",\n"))
        }
        Value::Array(entries) => {
            let entries: Vec<_> = entries.iter().map(|entry| shuffled(entry, seed)).collect();
            format!("[{}]", entries.join(", "))
        }
        other => other.to_string(),
    }
}
