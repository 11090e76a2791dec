//! Query of an export: period, position, part and columns.

use std::{collections::HashSet, time::Duration};

use serde::Deserialize;
use tidegate_history::{Column, Dataset, InvalidPosition, Part, RowPosition, RowRequest, Visibility};
use tidegate_schemas::{
    ids::Millis,
    item_types::datetime,
    nearest::{hint, truncate_name},
};
use tidegate_store::tables::catalog::orgs::Org;
use tidegate_web::Problem;

use super::dictionary;
use crate::admin::request::invalid;

/// Difference of the clocks of two processes, with a wide margin.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(86_400);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExportQuery {
    since: Option<String>,
    until: Option<String>,
    /// Time and id of the last row received, with `~` in between.
    pub(super) after: Option<String>,
    part: Option<String>,
    columns: Option<String>,
    /// False leaves child-safety material out for a caller with its scope.
    #[serde(rename = "childSafety")]
    pub(super) child_safety: Option<bool>,
    #[serde(rename = "org")]
    _org: Option<String>,
}

/// Rows and columns of an export.
#[derive(Debug)]
pub(super) struct ExportRequest {
    pub(super) request: RowRequest,
    pub(super) columns: Vec<&'static Column>,
}

impl ExportQuery {
    pub(super) fn parse(
        &self,
        org: &Org,
        dataset: Dataset,
        visibility: Visibility,
        settled_until: Millis,
    ) -> Result<ExportRequest, Problem> {
        let parse = |parameter: &str, text: &Option<String>| {
            text.as_deref().map(|text| parse_instant(parameter, text)).transpose()
        };
        let (requested_since, requested_until) = (parse("since", &self.since)?, parse("until", &self.until)?);
        let period_end = requested_until.map_or(settled_until, |until| until.min(settled_until));
        // No row is older than its organisation, apart from the difference of clocks, so earlier days are not read: a reader of
        // empty decades would keep the store busy. A new organisation has an empty export instead of an error.
        let org_start = org.created_at.minus(CLOCK_TOLERANCE).min(Millis(period_end.0 - 1));
        let requested_start = requested_since.unwrap_or(org_start);
        if requested_start >= period_end {
            let (start, end) = (requested_start.iso(), period_end.iso());
            return Err(invalid(
                "",
                format!("`since` ({start}) is not before the end of the export ({end})."),
            ));
        }
        let period_start = requested_start.max(org_start);
        let part = self.part.as_deref().map_or(Ok(Part::WHOLE), str::parse);
        let part = part.map_err(|error| invalid("", format!("`part`: {error}.")))?;
        let after = self.after.as_deref().map(|text| parse_position(dataset, text)).transpose();
        let after = after.map_err(|error| invalid("", format!("`after`: {error}.")))?;
        let columns = self.parse_columns(dataset)?;
        let request = RowRequest {
            org: org.org.clone(),
            dataset,
            since: period_start,
            until: period_end,
            part,
            after,
            visibility,
        };
        Ok(ExportRequest { request, columns })
    }

    fn parse_columns(&self, dataset: Dataset) -> Result<Vec<&'static Column>, Problem> {
        let all_columns = dataset.columns();
        let Some(names) = &self.columns else {
            let columns = all_columns.iter().filter(|column| dictionary::is_default(dataset, column));
            return Ok(columns.collect());
        };
        let mut named_columns = HashSet::new();
        let find_column = |name: &str| {
            let column = all_columns.iter().find(|column| column.name == name).ok_or_else(|| {
                let hint = hint(name, all_columns.iter().map(|column| column.name));
                let name = truncate_name(name);
                invalid("", format!("The dataset `{dataset}` has no column `{name}`.{hint}"))
            })?;
            match named_columns.insert(column.name) {
                true => Ok(column),
                false => Err(invalid("", format!("`columns` names `{}` twice.", column.name))),
            }
        };
        names.split(',').map(find_column).collect()
    }
}

/// Parses the position of a row. Its time may also have the form of the row's line.
fn parse_position(dataset: Dataset, text: &str) -> Result<RowPosition, InvalidPosition> {
    let at_and_id = text.split_once('~').and_then(|(at, id)| Some((datetime::parse(at)?, id)));
    match at_and_id {
        Some((at, id)) => RowPosition::parse(dataset, &format!("{}~{id}", at.0)),
        None => RowPosition::parse(dataset, text),
    }
}

/// Parses an instant in ISO 8601, or in milliseconds since 1970 as in `after`.
fn parse_instant(parameter: &str, text: &str) -> Result<Millis, Problem> {
    let milliseconds =
        text.parse().ok().map(Millis).filter(|instant| (Millis(0)..=Millis::LAST).contains(instant));
    milliseconds.or_else(|| datetime::parse(text)).ok_or_else(|| {
        let detail = format!(
            "`{parameter}` is not an instant; expected the form 2026-01-31T12:00:00Z, or milliseconds since 1970."
        );
        invalid("", detail)
    })
}
