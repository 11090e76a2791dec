//! Formats the result of a validation as text, JSON and SARIF.
//!
//! Reports hold positions and names of the form only, unless values were asked for.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{Report, Rule, Severity};
use crate::plural::counted;

/// A line a finding, then totals.
pub fn text(report: &Report, name: &str) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        let rule = finding.rule;
        let pointer = if finding.pointer.is_empty() { "(document)" } else { &finding.pointer };
        let (id, severity) = (rule.id(), rule.severity().as_str());
        let location = format!("line {}, byte {}", finding.line, finding.offset);
        _ = write!(text, "{pointer}  {id} {severity}  {location}: {}", rule.says());
        if let Some(value) = &finding.value {
            _ = write!(text, ": \"{value}\"");
        }
        text.push('\n');
    }
    let all: u64 = report.totals.iter().map(|(_, total)| total).sum();
    let shown = report.findings.len() as u64;
    if all > shown {
        _ = writeln!(text, "and {} more", all - shown);
    }
    for (rule, total) in &report.totals {
        _ = writeln!(text, "{total:>9}  {} {}", rule.id(), rule.says());
    }
    let level = report.level.as_str();
    let said = match (report.is_valid(), report.total(Severity::Warning)) {
        (true, 0) => format!("valid (level {level})"),
        (true, warnings) => format!("valid (level {level}), {}", counted(warnings, "warning")),
        (false, warnings) => {
            let errors = counted(report.total(Severity::Error), "error");
            format!("invalid (level {level}): {errors}, {}", counted(warnings, "warning"))
        }
    };
    _ = writeln!(
        text,
        "{name}: {said}; {}, {}, {}, {} in {}",
        counted(report.counted.phases, "phase"),
        counted(report.counted.items, "item"),
        counted(report.counted.responses, "response"),
        counted(report.counted.outcomes, "outcome"),
        counted(report.bytes, "byte")
    );
    text
}

/// One object.
pub fn json(report: &Report, name: &str) -> Value {
    let findings: Vec<Value> = report
        .findings
        .iter()
        .map(|finding| {
            let rule = finding.rule;
            let mut entry = json!({
                "pointer": finding.pointer,
                "rule": rule.id(),
                "severity": rule.severity().as_str(),
                "line": finding.line,
                "byte": finding.offset,
                "message": rule.says(),
            });
            if let Some(value) = &finding.value {
                entry["value"] = json!(value);
            }
            entry
        })
        .collect();
    let counted = &report.counted;
    json!({
        "file": name,
        "valid": report.is_valid(),
        "level": report.level.as_str(),
        "complete": report.complete,
        "bytes": report.bytes,
        "errors": report.total(Severity::Error),
        "warnings": report.total(Severity::Warning),
        "totals": totals(report),
        "counted": {
            "phases": counted.phases,
            "items": counted.items,
            "responses": counted.responses,
            "outcomes": counted.outcomes,
        },
        "findings": findings,
    })
}

/// A SARIF 2.1.0 log with one run.
pub fn sarif(report: &Report, name: &str) -> Value {
    let rules: Vec<Value> = Rule::ALL
        .iter()
        .map(|rule| {
            json!({
                "id": rule.id(),
                "shortDescription": { "text": rule.says() },
                "defaultConfiguration": { "level": rule.severity().as_str() },
            })
        })
        .collect();
    let results: Vec<Value> = report
        .findings
        .iter()
        .map(|finding| {
            let message = match &finding.value {
                Some(value) => format!("{}: \"{value}\"", finding.rule.says()),
                None => finding.rule.says().to_owned(),
            };
            json!({
                "ruleId": finding.rule.id(),
                "ruleIndex": finding.rule as usize,
                "level": finding.rule.severity().as_str(),
                "message": { "text": message },
                "locations": [{
                    "physicalLocation": {
                        "artifactLocation": { "uri": uri(name) },
                        "region": { "startLine": finding.line, "byteOffset": finding.offset, "byteLength": 0 },
                    },
                    "logicalLocations": [{ "fullyQualifiedName": finding.pointer }],
                }],
            })
        })
        .collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "tidegate bundle validate",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            }},
            "columnKind": "unicodeCodePoints",
            "results": results,
            "properties": { "valid": report.is_valid(), "complete": report.complete, "totals": totals(report) },
        }],
    })
}

fn totals(report: &Report) -> Value {
    report.totals.iter().map(|(rule, total)| (rule.id().to_owned(), json!(total))).collect()
}

/// Percent-encodes a name as a relative reference.
fn uri(name: &str) -> String {
    let mut uri = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            _ = write!(uri, "%{byte:02X}");
        }
    }
    uri
}
