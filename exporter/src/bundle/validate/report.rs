//! Formats the result of a validation as text, JSON and SARIF. Unless values were requested, reports contain only
//! positions and names of the form.

use std::{
    collections::BTreeMap,
    fmt::{self, Display, Write as _},
};

use serde::Serialize;
use serde_json::{Value, json};

use super::{Finding, Report, Rule, Severity};
use crate::{
    json::{JsonText, MappedArray},
    plural::format_count,
};

/// Text with one line for each finding, then the totals.
pub fn text<'a>(report: &'a Report, name: &'a str) -> impl Display + 'a {
    fmt::from_fn(move |text| {
        for finding in &report.findings {
            let rule = finding.rule;
            // The pointer of the document is empty, which would read like a missing one.
            let pointer = if finding.pointer.is_empty() { "(document)" } else { &finding.pointer };
            let (id, severity) = (rule.id(), rule.severity().as_str());
            let location = format!("line {}, byte {}", finding.line, finding.offset);
            write!(text, "{pointer}  {id} {severity}  {location}: {}", rule.message())?;
            if let Some(value) = &finding.value {
                write!(text, ": \"{value}\"")?;
            }
            text.write_char('\n')?;
        }
        if report.count_unlisted() > 0 {
            writeln!(text, "and {} more", report.count_unlisted())?;
        }
        for (rule, total) in &report.totals {
            writeln!(text, "{total:>9}  {} {}", rule.id(), rule.message())?;
        }
        let level = report.level.as_str();
        let verdict = match (report.is_valid(), report.count_findings(Severity::Warning)) {
            (true, 0) => format!("valid (level {level})"),
            (true, warnings) => format!("valid (level {level}), {}", format_count(warnings, "warning")),
            (false, warnings) => {
                let errors = format_count(report.count_findings(Severity::Error), "error");
                format!("invalid (level {level}): {errors}, {}", format_count(warnings, "warning"))
            }
        };
        write!(
            text,
            "{name}: {verdict}; {}, {}, {}, {} in {}",
            format_count(report.counts.phases, "phase"),
            format_count(report.counts.items, "item"),
            format_count(report.counts.responses, "response"),
            format_count(report.counts.outcomes, "outcome"),
            format_count(report.bytes, "byte")
        )
    })
}

/// JSON object. Findings are converted one at a time, so that a long list needs no memory of its own.
pub fn json<'a>(report: &'a Report, name: &'a str) -> JsonText<impl Serialize + 'a> {
    #[derive(Serialize)]
    struct Document<'a, F> {
        file: &'a str,
        valid: bool,
        level: &'static str,
        complete: bool,
        bytes: u64,
        errors: u64,
        warnings: u64,
        totals: BTreeMap<&'static str, u64>,
        counted: Value,
        unlisted: u64,
        findings: F,
    }
    let counts = &report.counts;
    JsonText(Document {
        file: name,
        valid: report.is_valid(),
        level: report.level.as_str(),
        complete: report.is_complete,
        bytes: report.bytes,
        errors: report.count_findings(Severity::Error),
        warnings: report.count_findings(Severity::Warning),
        totals: totals(report),
        counted: json!({
            "phases": counts.phases,
            "items": counts.items,
            "responses": counts.responses,
            "outcomes": counts.outcomes,
        }),
        unlisted: report.count_unlisted(),
        findings: MappedArray(&report.findings, finding_json),
    })
}

fn finding_json(finding: &Finding) -> Value {
    let rule = finding.rule;
    let mut entry = json!({
        "pointer": finding.pointer,
        "rule": rule.id(),
        "severity": rule.severity().as_str(),
        "line": finding.line,
        "byte": finding.offset,
        "message": rule.message(),
    });
    if let Some(value) = &finding.value {
        entry["value"] = json!(value);
    }
    entry
}

/// SARIF 2.1.0 log with one run.
pub fn sarif<'a>(report: &'a Report, name: &'a str) -> JsonText<impl Serialize + 'a> {
    #[derive(Serialize)]
    struct Log<F> {
        #[serde(rename = "$schema")]
        schema: &'static str,
        version: &'static str,
        runs: [Run<F>; 1],
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Run<F> {
        tool: Value,
        column_kind: &'static str,
        properties: Value,
        results: F,
    }
    let rules: Vec<Value> = Rule::ALL
        .iter()
        .map(|rule| {
            json!({
                "id": rule.id(),
                "shortDescription": { "text": rule.message() },
                "defaultConfiguration": { "level": rule.severity().as_str() },
            })
        })
        .collect();
    let uri = encode_uri(name);
    JsonText(Log {
        schema: "https://json.schemastore.org/sarif-2.1.0.json",
        version: "2.1.0",
        runs: [Run {
            tool: json!({ "driver": {
                "name": "tidegate bundle validate",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            }}),
            column_kind: "unicodeCodePoints",
            properties: json!({
                "valid": report.is_valid(),
                "complete": report.is_complete,
                "totals": totals(report),
                "unlisted": report.count_unlisted(),
            }),
            results: MappedArray(&report.findings, move |finding: &Finding| sarif_result(finding, &uri)),
        }],
    })
}

fn sarif_result(finding: &Finding, uri: &str) -> Value {
    let message = match &finding.value {
        Some(value) => format!("{}: \"{value}\"", finding.rule.message()),
        None => finding.rule.message().to_owned(),
    };
    json!({
        "ruleId": finding.rule.id(),
        // An index into the driver's rules, which are `Rule::ALL` in the order of the discriminants.
        "ruleIndex": finding.rule as usize,
        "level": finding.rule.severity().as_str(),
        "message": { "text": message },
        "locations": [{
            "physicalLocation": {
                "artifactLocation": { "uri": uri },
                // A finding has a start and no end, so the region is empty.
                "region": { "startLine": finding.line, "byteOffset": finding.offset, "byteLength": 0 },
            },
            "logicalLocations": [{ "fullyQualifiedName": finding.pointer }],
        }],
    })
}

fn totals(report: &Report) -> BTreeMap<&'static str, u64> {
    report.totals.iter().map(|(rule, total)| (rule.id(), *total)).collect()
}

/// Percent-encodes a name as a relative reference.
fn encode_uri(name: &str) -> String {
    let mut uri = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            _ = write!(uri, "%{byte:02X}");
        }
    }
    uri
}
