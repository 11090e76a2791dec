//! `tidegate bundle diff`: differences between two bundles.
//!
//! Prints ids, field names, totals and data card flags, and no other values.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use serde_json::{Map, Value, json};
use tidegate_exporter::{
    bundle::{
        diff::{self, Change, DiffError, Difference, LISTS},
        invalid_json::InvalidJson,
    },
    unpack::File,
};

use super::{ReadLimits, shorten};
use crate::output::print_line;

#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// Old bundle; gzip and zstd are unpacked
    #[arg(value_name = "A")]
    before: PathBuf,
    /// New bundle; `-` reads standard input
    #[arg(value_name = "B")]
    after: PathBuf,
    /// Maximum number of differing elements to list; all are counted
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    max_shown: usize,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    costs: ReadLimits,
}

/// Exit code if the bundles differ, as for `diff(1)`.
const DIFFERENT: u8 = 1;

impl Diff {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let mut files = [File::new(&self.before), File::new(&self.after)];
        let [before, after] = &mut files;
        if before.is_standard_input() && after.is_standard_input() {
            anyhow::bail!("only one of the two can be standard input");
        }
        let result =
            diff::diff(before, after, self.costs.limits(), &self.costs.spill_options(), self.max_shown);
        let difference = result.map_err(|diff_error| {
            let with_path = |invalid_json: InvalidJson, path: &PathBuf| {
                anyhow::anyhow!("{}: {invalid_json}", path.display())
            };
            match diff_error {
                DiffError::First(invalid_json) => with_path(invalid_json, &self.before),
                DiffError::Second(invalid_json) => with_path(invalid_json, &self.after),
                DiffError::Io(error) => error.into(),
            }
        })?;
        if self.json {
            print_line(as_json(&difference));
        } else {
            print_difference(&difference);
        }
        Ok(if difference.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(DIFFERENT) })
    }
}

fn print_difference(difference: &Difference) {
    for member in &difference.members {
        match (&member.before, &member.after) {
            (None, None) => print_line(format!("~ {}", member.pointer)),
            (before, after) => {
                print_line(format!(
                    "~ {}: {} → {}",
                    member.pointer,
                    display_value(before.as_ref()),
                    display_value(after.as_ref())
                ));
            }
        }
    }
    for (list, totals) in LISTS.iter().zip(&difference.totals) {
        if totals.added + totals.removed + totals.changed == 0 {
            continue;
        }
        let fields: Vec<_> = totals.fields.iter().map(|(name, count)| format!("{name} {count}")).collect();
        let fields = if fields.is_empty() { String::new() } else { format!(" ({})", fields.join(", ")) };
        print_line(format!(
            "{list}: {} added, {} removed, {} changed{fields}",
            totals.added, totals.removed, totals.changed
        ));
        for element in difference.elements.iter().filter(|element| LISTS[element.list] == *list) {
            let (sign, _) = label(element.change);
            let fields = element.fields.join(", ");
            let colon = if fields.is_empty() { "" } else { ": " };
            print_line(format!("  {sign} {}{colon}{fields}", element.id));
        }
    }
}

/// Length in bytes up to which a value is shown in full.
const MAX_VALUE_BYTES: usize = 80;

fn display_value(value: Option<&String>) -> String {
    match value {
        None => "nothing".to_owned(),
        Some(value) => shorten(value, MAX_VALUE_BYTES).into_owned(),
    }
}

/// Returns the sign and the word for a change.
fn label(change: Change) -> (char, &'static str) {
    match change {
        Change::Added => ('+', "added"),
        Change::Removed => ('-', "removed"),
        Change::Changed => ('~', "changed"),
    }
}

/// Lists all counts, including those of lists without differences.
fn as_json(difference: &Difference) -> Value {
    let members = difference.members.iter().map(|member| {
        let mut member_json = Map::from_iter([("pointer".to_owned(), member.pointer.clone().into())]);
        for (name, text) in [("before", &member.before), ("after", &member.after)] {
            if let Some(text) = text {
                member_json
                    .insert(name.to_owned(), serde_json::from_str(text).unwrap_or_else(|_| json!(text)));
            }
        }
        Value::Object(member_json)
    });
    let lists = LISTS.iter().zip(&difference.totals).enumerate().map(|(list, (name, totals))| {
        let elements = difference.elements.iter().filter(|element| element.list == list).map(
            |element| json!({ "id": element.id, "change": label(element.change).1, "fields": element.fields }),
        );
        let list_json = json!({
            "added": totals.added,
            "removed": totals.removed,
            "changed": totals.changed,
            "fields": totals.fields,
            "elements": elements.collect::<Vec<_>>(),
        });
        ((*name).to_owned(), list_json)
    });
    json!({
        "equal": difference.is_empty(),
        "members": members.collect::<Vec<_>>(),
        "lists": lists.collect::<Map<_, _>>(),
    })
}
