//! Rows of the datasets, as far as a bundle needs them. Free-text reasons and payloads are not read at all.

use std::borrow::Cow;

use serde::Deserialize;
use tidegate_history::Dataset;

use super::Line;
use crate::{
    error::{ConvertError, ErrorKind},
    timestamp::Timestamp,
};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReportRow<'l> {
    #[serde(borrow)]
    pub(super) report_id: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) recorded_at: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) reported_at: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) item_type_id: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) item_id: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) reporter_type_id: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) reporter_id: Cow<'l, str>,
    pub(super) policy_id: Option<String>,
    pub(super) child_safety: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DecisionRow<'l> {
    #[serde(borrow)]
    pub(super) decision_id: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) recorded_at: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) decided_at: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) decided_by: Cow<'l, str>,
    pub(super) class: Option<String>,
    pub(super) job_created_at: Option<String>,
    #[serde(borrow)]
    pub(super) item_type_id: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) item_id: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) verdict: Cow<'l, str>,
    pub(super) actions: Vec<String>,
    pub(super) policies: Vec<String>,
    pub(super) reviewed_policies: Vec<String>,
    pub(super) child_safety: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AppealRow<'l> {
    #[serde(borrow)]
    pub(super) appeal_id: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) recorded_at: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) appealed_at: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) item_type_id: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) item_id: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) appealed_by_type_id: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) appealed_by_id: Cow<'l, str>,
    pub(super) policies: Vec<String>,
    pub(super) child_safety: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ActionRow<'l> {
    #[serde(borrow)]
    pub(super) event_id: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) recorded_at: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) acted_at: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) source: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) item_type_id: Cow<'l, str>,
    #[serde(borrow)]
    pub(super) item_id: Cow<'l, str>,
    pub(super) policies: Vec<String>,
    pub(super) child_safety: bool,
}

/// Parses a line. The error names the problem without values of the row.
pub(super) fn parse_line<'l, T: Deserialize<'l>>(
    dataset: Dataset,
    line: Line<'l>,
) -> Result<T, ConvertError> {
    serde_json::from_slice(line.text).map_err(|error| {
        let message = error.to_string();
        // Other messages of the parser may quote a value.
        let missing_column = message
            .strip_prefix("missing field `")
            .and_then(|message| message.split_once('`'))
            .map(|(name, _)| format!("the column {name} is missing"));
        let problem = missing_column.unwrap_or_else(|| match error.classify() {
            serde_json::error::Category::Data => {
                format!("a column has an unexpected type (character {})", error.column())
            }
            _ => format!("it is not valid JSON (character {})", error.column()),
        });
        let name = dataset.as_str();
        row_error(line, &format!("{problem}: a line holds a row of `tidegate export {name} --format ndjson`"))
    })
}

pub(super) fn parse_time(line: Line<'_>, column: &str, text: &str) -> Result<Timestamp, ConvertError> {
    Timestamp::parse(text)
        .ok_or_else(|| row_error(line, &format!("{column} is not a time such as 2026-01-02T03:04:05.678Z")))
}

pub(super) fn row_error(line: Line<'_>, detail: &str) -> ConvertError {
    ConvertError::content(line.source, line.number, ErrorKind::Value, detail)
}
