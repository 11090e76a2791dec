//! Profile `dsa`: rows of `actions` or `decisions` as statements of reasons, with the field names of the EU's DSA
//! Transparency Database.
//!
//! A statement has fields that only the platform knows, such as the legal ground. [`UNKNOWN_FIELDS`] lists them, and the
//! columns named `tidegate_...` have the keys by which a platform adds them.

use tidegate_history::{Column, ColumnType, Dataset, Value};

use super::{names::format_day, selection::find_column};
use crate::{
    error::ConvertError,
    timestamp::{MAX_MILLIS, MIN_MILLIS},
};

/// Name of the profile.
pub const PROFILE: &str = "dsa";

/// Fields of a statement that the service does not know.
pub const UNKNOWN_FIELDS: &[&str] = &[
    "decision_visibility",
    "decision_visibility_other",
    "end_date_visibility_restriction",
    "decision_monetary",
    "decision_monetary_other",
    "end_date_monetary_restriction",
    "decision_provision",
    "end_date_service_restriction",
    "decision_account",
    "end_date_account_restriction",
    "account_type",
    "decision_ground",
    "decision_ground_reference_url",
    "illegal_content_legal_ground",
    "illegal_content_explanation",
    "incompatible_content_ground",
    "incompatible_content_explanation",
    "incompatible_content_illegal",
    "category_addition",
    "category_specification",
    "category_specification_other",
    "content_type",
    "content_type_other",
    "content_language",
    "content_date",
    "content_id",
    "territorial_scope",
    "decision_facts",
    "source_type",
    "source_identity",
];

const fn column(
    name: &'static str,
    column_type: ColumnType,
    is_nullable: bool,
    about: &'static str,
) -> Column {
    Column { name, column_type, is_nullable, about }
}

const PUID: Column = column("puid", ColumnType::Text, false, "Id of the action or decision");
const APPLICATION_DATE: Column =
    column("application_date", ColumnType::Text, false, "Day (UTC) of the action or decision");
const CATEGORY: Column = column(
    "category",
    ColumnType::Text,
    true,
    "`STATEMENT_CATEGORY_PROTECTION_OF_MINORS` for child-safety material, otherwise null",
);
const AUTOMATED_DECISION: Column = column(
    "automated_decision",
    ColumnType::Text,
    true,
    "`AUTOMATED_DECISION_FULLY` for rules and thresholds, `AUTOMATED_DECISION_NOT_AUTOMATED` for moderators, null for the platform",
);
const SOURCE: Column = column("tidegate_source", ColumnType::Text, false, "Column `source` of the dataset");
const POLICIES: Column = column(
    "tidegate_policies",
    ColumnType::Texts,
    false,
    "Violated policies, for the ground and the category",
);
const ITEM_TYPE_ID: Column =
    column("tidegate_item_type_id", ColumnType::Text, false, "Item type, for the content type");
const ITEM_ID: Column = column("tidegate_item_id", ColumnType::Text, false, "Item, for date and language");

const ACTION_COLUMNS: &[Column] = &[
    PUID,
    APPLICATION_DATE,
    CATEGORY,
    column("automated_detection", ColumnType::Text, true, "`Yes` for actions of rules, otherwise null"),
    AUTOMATED_DECISION,
    SOURCE,
    column("tidegate_action", ColumnType::Text, false, "Action, for the kind of the restriction"),
    POLICIES,
    ITEM_TYPE_ID,
    ITEM_ID,
    column("tidegate_user_type_id", ColumnType::Text, true, "Item type of the affected user"),
    column("tidegate_user_id", ColumnType::Text, true, "Affected user"),
    column("tidegate_decision_id", ColumnType::Text, true, "Decision that took the action"),
];

const DECISION_COLUMNS: &[Column] = &[
    PUID,
    APPLICATION_DATE,
    CATEGORY,
    AUTOMATED_DECISION,
    SOURCE,
    column("tidegate_actions", ColumnType::Texts, false, "Actions, for the kind of the restriction"),
    POLICIES,
    ITEM_TYPE_ID,
    ITEM_ID,
];

/// Columns of statements that are made from a dataset. An error for a dataset without restrictions.
pub fn columns(dataset: Dataset) -> Result<&'static [Column], ConvertError> {
    match dataset {
        Dataset::Actions => Ok(ACTION_COLUMNS),
        Dataset::Decisions => Ok(DECISION_COLUMNS),
        _ => Err(ConvertError::Refused(format!(
            "--profile {PROFILE} needs the dataset `actions` or `decisions`, not `{dataset}`"
        ))),
    }
}

/// Mapping from rows of a dataset to statements.
#[derive(Clone, Debug)]
pub(super) struct StatementMapper {
    dataset: Dataset,
    row_length: usize,
    /// Positions of the dataset's columns.
    acted_at: usize,
    source: usize,
    child_safety: usize,
    verdict: Option<usize>,
    /// Columns that are copied, in the order of the statement's last columns.
    copied: Vec<usize>,
}

impl StatementMapper {
    pub(super) fn new(dataset: Dataset) -> Result<Self, ConvertError> {
        let statement_columns = columns(dataset)?;
        let dataset_columns = dataset.columns();
        let find = |name: &str| find_column(dataset_columns, "--profile", name);
        let (acted_at, verdict, copied): (_, _, &[&str]) = match dataset {
            Dataset::Decisions => (
                "decidedAt",
                Some(find("verdict")?),
                &["source", "actions", "policies", "itemTypeId", "itemId"],
            ),
            _ => (
                "actedAt",
                None,
                &[
                    "source",
                    "action",
                    "policies",
                    "itemTypeId",
                    "itemId",
                    "userTypeId",
                    "userId",
                    "decisionId",
                ],
            ),
        };
        debug_assert!(statement_columns.len() > copied.len(), "copied columns are the last of a statement");
        Ok(Self {
            dataset,
            row_length: dataset_columns.len(),
            acted_at: find(acted_at)?,
            source: find("source")?,
            child_safety: find("childSafety")?,
            verdict,
            copied: copied.iter().map(|name| find(name)).collect::<Result<_, _>>()?,
        })
    }

    /// Returns the statement of a row, or `None` if the row restricts no content: a decision to ignore an item, or one
    /// about an appeal.
    pub(super) fn map_row<'r>(&self, row: &'r [Value<'_>]) -> Option<Vec<Value<'r>>> {
        if row.len() != self.row_length {
            // The sink refuses a row without values, and names the file.
            return Some(Vec::new());
        }
        if self.verdict.is_some_and(|position| !is_text(&row[position], "act")) {
            return None;
        }
        let source = &row[self.source];
        let is_rule = is_text(source, "rule");
        let mut statement = vec![borrow(&row[0]), format_date(&row[self.acted_at])];
        let is_child_safety = row[self.child_safety] == Value::Boolean(true);
        statement.push(known_text(is_child_safety, "STATEMENT_CATEGORY_PROTECTION_OF_MINORS"));
        if self.dataset == Dataset::Actions {
            statement.push(known_text(is_rule, "Yes"));
        }
        statement.push(if is_rule || is_text(source, "threshold") {
            Value::text("AUTOMATED_DECISION_FULLY")
        } else {
            known_text(is_text(source, "moderator"), "AUTOMATED_DECISION_NOT_AUTOMATED")
        });
        statement.extend(self.copied.iter().map(|position| borrow(&row[*position])));
        Some(statement)
    }
}

fn known_text(is_known: bool, text: &'static str) -> Value<'static> {
    if is_known { Value::text(text) } else { Value::Null }
}

fn is_text(value: &Value<'_>, expected: &str) -> bool {
    matches!(value, Value::Text(text) if text == expected)
}

/// Formats a time as a day; the database takes no time of day.
fn format_date(value: &Value<'_>) -> Value<'static> {
    match value {
        Value::Time(time) if (MIN_MILLIS..=MAX_MILLIS).contains(&time.0) => {
            Value::text(format_day(time.day()))
        }
        _ => Value::Null,
    }
}

/// Copies a value without its texts. Statements have no structs.
fn borrow<'r>(value: &'r Value<'_>) -> Value<'r> {
    match value {
        Value::Null | Value::Structs(_) => Value::Null,
        Value::Text(text) => Value::text(text.as_ref()),
        Value::Integer(integer) => Value::Integer(*integer),
        Value::Boolean(boolean) => Value::Boolean(*boolean),
        Value::Time(time) => Value::Time(*time),
        Value::Texts(texts) => Value::Texts(texts.iter().map(|text| text.as_ref().into()).collect()),
    }
}
