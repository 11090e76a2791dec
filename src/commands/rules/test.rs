//! `tidegate rules test`: runs the examples of the rules, and files of items with expected matches.
//!
//! No store is read: the examples state the facts, such as strikes and counts.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::Context as _;
use clap::Args;
use tidegate_catalog::{Compiled, change};
use tidegate_moderation::items::evaluate::PreparedItem;
use tidegate_rules::TestResult;
use tidegate_schemas::ids::Millis;

use super::{
    Folder, evaluate_with,
    fixtures::{self, Fixture},
    items, report_unknown_rule,
};
use crate::output::{print_error, print_line};

#[derive(Debug, Args)]
pub(crate) struct Test {
    #[command(flatten)]
    folder: Folder,
    /// File with one item per line, each with `expect`, the exact list of matching rules; `-` reads standard input; may be
    /// repeated
    #[arg(long, value_name = "FILE")]
    fixtures: Vec<PathBuf>,
    /// Test only the examples and expected matches of this rule
    #[arg(long, value_name = "RULE")]
    rule: Option<String>,
    /// Write a JUnit report to this file
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

/// Result of one example or fixture.
struct Case {
    suite: String,
    name: String,
    /// Reason of the failure. `None`: the test passed.
    fault: Option<String>,
}

impl Test {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let result = self.run_tests();
        // A run that stops early must replace the report of an earlier run, or a CI job would read that one.
        if let Err(error) = &result {
            self.write_junit(&error_report(&[format!("{error:#}")]))?;
        }
        result
    }

    fn run_tests(&self) -> anyhow::Result<ExitCode> {
        let config = match self.folder.compile_with_faults()? {
            Ok(config) => config,
            Err(faults) => {
                self.write_junit(&error_report(&faults))?;
                return Ok(ExitCode::FAILURE);
            }
        };
        // A mistyped rule selects no test, and a run without tests succeeds.
        if let Some(rule) = &self.rule
            && config.plan().rule(&rule.as_str().into()).is_none()
        {
            return Ok(report_unknown_rule(rule, config.plan().rules().map(|head| head.rule.as_str())));
        }
        let now = Millis::now();
        let mut cases = self.run_examples(&config, now);
        for file in &self.fixtures {
            self.run_fixtures(&config, file, now, &mut cases)?;
        }
        let mut failed = 0;
        for case in &cases {
            if let Some(fault) = &case.fault {
                failed += 1;
                print_error(format!("{}, {}: {fault}", case.suite, case.name));
            }
        }
        print_line(format!("{} tests, {failed} failed", cases.len()));
        self.write_junit(&junit_report(&cases))?;
        Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Writes the report if the command has `--junit`.
    fn write_junit(&self, xml: &str) -> anyhow::Result<()> {
        match &self.junit {
            Some(file) => {
                fs::write(file, xml).with_context(|| format!("{} cannot be written", file.display()))
            }
            None => Ok(()),
        }
    }

    fn is_selected(&self, rule: &str) -> bool {
        self.rule.as_deref().is_none_or(|selected_rule| selected_rule == rule)
    }

    fn run_examples(&self, config: &Compiled, now: Millis) -> Vec<Case> {
        let reports = change::run_examples(config, now)
            .into_iter()
            .filter(|report| self.is_selected(report.rule.as_str()));
        let cases = reports.map(|report| Case {
            suite: report.rule.to_string(),
            name: match &report.name {
                Some(name) => format!("example {}, {name}", report.test + 1),
                None => format!("example {}", report.test + 1),
            },
            fault: match report.result {
                TestResult::Right => None,
                TestResult::Missed => Some("the rule should match, and does not".to_owned()),
                TestResult::Matched => Some("the rule should not match, and does".to_owned()),
                TestResult::Errored(reason) => Some(format!("the rule cannot be evaluated: {reason}")),
                TestResult::Unreadable(reason) => Some(format!("the example cannot be read: {reason}")),
            },
        });
        cases.collect()
    }

    fn run_fixtures(
        &self,
        config: &Arc<Compiled>,
        file: &Path,
        now: Millis,
        cases: &mut Vec<Case>,
    ) -> anyhow::Result<()> {
        for line in items::lines(file)? {
            let (number, text) = line?;
            let line = items::parse_line(config, &text, now);
            let (name, fixture) = fixtures::read(config, &text);
            let fault = match (line.item, fixture) {
                // An unreadable item or fixture is one failed test, not the end of the run.
                (Err(fault), _) | (Ok(_), Err(fault)) => Some(fault),
                (Ok(prepared), Ok(fixture)) => self.compare_matches(&prepared, &fixture),
            };
            let id = line.key.map_or_else(String::new, |key| format!(", {} {}", key.type_id, key.id));
            let name = name.map_or_else(String::new, |name| format!(", {name}"));
            let name = format!("line {number}{id}{name}");
            cases.push(Case { suite: file.display().to_string(), name, fault });
        }
        Ok(())
    }

    /// Returns the difference between actual and expected matches of an item.
    fn compare_matches(&self, prepared: &PreparedItem, fixture: &Fixture) -> Option<String> {
        let outcome = evaluate_with(prepared, &fixture.facts);
        let matched_rules: BTreeSet<_> =
            outcome.matched.iter().map(|rule_match| rule_match.rule.as_str()).collect();
        let expected_rules: BTreeSet<_> = fixture.expect.iter().map(String::as_str).collect();
        let list_difference = |one: &BTreeSet<&str>, other: &BTreeSet<&str>| {
            let rules = one.difference(other).copied().filter(|rule| self.is_selected(rule));
            rules.collect::<Vec<_>>().join(", ")
        };
        let (missing, surplus) = (
            list_difference(&expected_rules, &matched_rules),
            list_difference(&matched_rules, &expected_rules),
        );
        match (missing.is_empty(), surplus.is_empty()) {
            (true, true) => None,
            (false, true) => Some(format!("not matched: {missing}")),
            (true, false) => Some(format!("matched: {surplus}")),
            (false, false) => Some(format!("not matched: {missing}; matched: {surplus}")),
        }
    }
}

fn junit_report(cases: &[Case]) -> String {
    let failed = cases.iter().filter(|case| case.fault.is_some()).count();
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"rules\" tests=\"{}\" failures=\"{failed}\">\n",
        cases.len()
    );
    for Case { suite, name, fault } in cases {
        let case = format!("  <testcase classname=\"{}\" name=\"{}\"", escape_xml(suite), escape_xml(name));
        let write_result = match fault {
            None => writeln!(xml, "{case}/>"),
            Some(fault) => writeln!(xml, "{case}><failure message=\"{}\"/></testcase>", escape_xml(fault)),
        };
        write_result.expect("writing to a string does not fail");
    }
    xml.push_str("</testsuite>\n");
    xml
}

/// JUnit report for documents with errors, where no test can run.
fn error_report(faults: &[String]) -> String {
    let count = faults.len();
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"rules\" tests=\"{count}\" failures=\"0\" \
         errors=\"{count}\">\n"
    );
    for (nth, fault) in faults.iter().enumerate() {
        let fault = escape_xml(fault);
        writeln!(
            xml,
            "  <testcase classname=\"documents\" name=\"fault {}\"><error message=\"{fault}\"/></testcase>",
            nth + 1
        )
        .expect("writing to a string does not fail");
    }
    xml.push_str("</testsuite>\n");
    xml
}

fn escape_xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // Not allowed in XML, not even as a character reference.
            '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => {
                escaped.push('\u{fffd}');
            }
            // XML parsers would turn these into blanks within an attribute anyway.
            '\t' | '\n' | '\r' => escaped.push(' '),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_is_valid_xml_for_any_test_name() {
        let case = |fault: Option<&str>| Case {
            suite: "a<b".to_owned(),
            name: "\"&\u{1}\"".to_owned(),
            fault: fault.map(str::to_owned),
        };
        let report = junit_report(&[case(None), case(Some("x > y\nz"))]);
        assert!(report.contains("tests=\"2\" failures=\"1\""));
        assert!(report.contains("<testcase classname=\"a&lt;b\" name=\"&quot;&amp;\u{fffd}&quot;\"/>"));
        assert!(report.contains("<failure message=\"x &gt; y z\"/>"));
        let report = error_report(&["a < b".to_owned()]);
        assert!(report.contains("tests=\"1\" failures=\"0\" errors=\"1\""));
        assert!(report.contains("name=\"fault 1\"><error message=\"a &lt; b\"/>"));
    }
}
