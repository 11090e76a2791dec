//! Datasets and their columns. The guide `docs/guides/exports.md` lists them for users; a test compares both.

use tidegate_schemas::string_enum;

use crate::{
    Column,
    ColumnType::{Boolean, Integer, Structs, Text, Texts, Time},
};

string_enum! {
    /// Exported table of an organisation's history.
    pub enum Dataset {
        Items = "items",
        Evaluations = "evaluations",
        Reports = "reports",
        Jobs = "jobs",
        Decisions = "decisions",
        Appeals = "appeals",
        Actions = "actions",
        Strikes = "strikes",
        Deliveries = "deliveries",
        Audit = "audit",
    }
}

/// Short forms of the constructors, for the tables below.
const fn required(name: &'static str, column_type: super::ColumnType, about: &'static str) -> Column {
    Column::required(name, column_type, about)
}

const fn optional(name: &'static str, column_type: super::ColumnType, about: &'static str) -> Column {
    Column::optional(name, column_type, about)
}

impl Dataset {
    /// Returns the columns in the order of files. The first is the id of the row, the second its time, by which rows are
    /// selected and sorted.
    pub const fn columns(self) -> &'static [Column] {
        match self {
            Self::Items => ITEMS,
            Self::Evaluations => EVALUATIONS,
            Self::Reports => REPORTS,
            Self::Jobs => JOBS,
            Self::Decisions => DECISIONS,
            Self::Appeals => APPEALS,
            Self::Actions => ACTIONS,
            Self::Strikes => STRIKES,
            Self::Deliveries => DELIVERIES,
            Self::Audit => AUDIT,
        }
    }
}

const ITEM_TYPE_ID: Column = required("itemTypeId", Text, "Item type of the item");
const ITEM_ID: Column = required("itemId", Text, "Id of the item on the platform");
const CHILD_SAFETY: Column = required(
    "childSafety",
    Boolean,
    "True for child-safety material; such rows need the scope `child_safety`",
);

const ITEMS: &[Column] = &[
    required("submissionId", Text, "Id of the submission"),
    required("appendedAt", Time, "Time of the append to the log"),
    required("receivedAt", Time, "Time of the request"),
    ITEM_TYPE_ID,
    ITEM_ID,
    optional("typeVersion", Text, "Version of the item type, if the platform sent one"),
    required("variant", Text, "`original` or `partial`"),
    required("source", Text, "Origin of the submission, such as `api`, `report` or `retroact`"),
    required("state", Text, "`accepted` or `evaluated`"),
    optional("reportId", Text, "Report that sent the item"),
    required("configVersion", Integer, "Version of the configuration that validated the item"),
    required("requestId", Text, "Id of the request"),
    optional("data", Text, "Fields of the item as JSON; only with `--columns`"),
];

const EVALUATIONS: &[Column] = &[
    required("submissionId", Text, "Id of the evaluated submission"),
    required("appendedAt", Time, "Time of the submission's append to the log"),
    optional("evaluatedAt", Time, "Time of the evaluation"),
    ITEM_TYPE_ID,
    ITEM_ID,
    required("configVersion", Integer, "Version of the evaluating configuration"),
    required("matched", Structs(MATCHED), "Rules that matched"),
    required("errored", Structs(ERRORED), "Rules that failed"),
    required("actions", Structs(LISTED_ACTIONS), "Actions that the rules asked for"),
    required("media", Structs(MEDIA), "State and matches of the item's media, without addresses"),
    optional("leftOut", Text, "JSON: skipped parts of the evaluation"),
];

const MATCHED: &[Column] = &[
    required("rule", Text, "Rule"),
    required("version", Text, "Version of the rule"),
    optional("suppressed", Text, "Reason why the rule did not act"),
];

const ERRORED: &[Column] = &[
    required("rule", Text, "Rule"),
    required("version", Text, "Version of the rule"),
    required("reason", Text, "Reason of the failure"),
];

const LISTED_ACTIONS: &[Column] = &[
    required("action", Text, "Action"),
    optional("eventId", Text, "Callback event of the action"),
    optional("suppressed", Text, "Reason why the action was not taken"),
];

const MEDIA: &[Column] = &[
    required("state", Text, "`ok`, `low_quality`, `undecodable`, `too_large` or `fetch_failed`"),
    optional("reason", Text, "Reason of a failure"),
    required("matches", Integer, "Number of matching bank entries"),
];

const REPORTS: &[Column] = &[
    required("reportId", Text, "Id of the report"),
    required("recordedAt", Time, "Time of the append to the log"),
    required("reportedAt", Time, "Time of the report on the platform"),
    required("receivedAt", Time, "Time of the request"),
    ITEM_TYPE_ID,
    ITEM_ID,
    required("reporterTypeId", Text, "Item type of the reporting user"),
    required("reporterId", Text, "Id of the reporting user"),
    optional("policyId", Text, "Policy that the reporter chose"),
    optional("reason", Text, "Reason in the reporter's words"),
    required("jobId", Text, "Job that the report opened or joined"),
    CHILD_SAFETY,
];

const JOBS: &[Column] = &[
    required("jobId", Text, "Id of the job"),
    required("createdAt", Time, "Time at which the job was opened"),
    required("class", Text, "`review`, `child_safety` or `appeal`"),
    required("queue", Text, "Present queue"),
    required("state", Text, "`open`, `decided`, `closed` or `moved`"),
    ITEM_TYPE_ID,
    ITEM_ID,
    required("generation", Integer, "Number of the job among the jobs of its item and class"),
    required("priority", Integer, "Present priority"),
    optional("appealId", Text, "Appeal of the job"),
    optional("claimedBy", Text, "Moderator of the last claim"),
    optional("decisionId", Text, "Decision, also while it can be undone"),
    optional("verdict", Text, "Verdict of the decision"),
    optional("decidedBy", Text, "Deciding moderator"),
    optional("decidedAt", Time, "Time of the decision"),
    optional("decisionState", Text, "`pending`, `released` or `appended`"),
    optional("closedAt", Time, "Time at which the job ended"),
    optional("routedBy", Text, "Routing list and entry that chose the queue"),
    CHILD_SAFETY,
];

const DECISIONS: &[Column] = &[
    required("decisionId", Text, "Id of the decision"),
    required("recordedAt", Time, "Time of the append to the log"),
    required("decidedAt", Time, "Time of the decision"),
    required("source", Text, "`moderator`, or `platform` for actions that the platform took itself"),
    required("decidedBy", Text, "Moderator, or actor of the platform"),
    optional("jobId", Text, "Decided job"),
    optional("class", Text, "`review`, `child_safety` or `appeal`"),
    optional("queue", Text, "Queue of the job at the decision"),
    optional("jobCreatedAt", Time, "Time at which the job was opened"),
    ITEM_TYPE_ID,
    ITEM_ID,
    required("verdict", Text, "`ignore`, `act`, `accept` or `reject`"),
    required("actions", Texts, "Actions on the item"),
    required("policies", Texts, "Violated policies"),
    required("reviewedPolicies", Texts, "Policies of the reports, rules and appeals that led to the job"),
    optional("appealId", Text, "Answered appeal"),
    optional("reason", Text, "Reason in the moderator's words"),
    required("related", Structs(RELATED), "Actions on related items"),
    CHILD_SAFETY,
];

const RELATED: &[Column] = &[ITEM_TYPE_ID, ITEM_ID, required("action", Text, "Action")];

const APPEALS: &[Column] = &[
    required("appealId", Text, "Id of the appeal on the platform"),
    required("recordedAt", Time, "Time of the append to the log"),
    required("appealedAt", Time, "Time of the appeal on the platform"),
    required("receivedAt", Time, "Time of the request"),
    ITEM_TYPE_ID,
    ITEM_ID,
    required("appealedByTypeId", Text, "Item type of the appealing user"),
    required("appealedById", Text, "Id of the appealing user"),
    required("actions", Texts, "Appealed actions"),
    required("policies", Texts, "Policies that the platform names"),
    optional("reason", Text, "Reason in the user's words"),
    required("jobId", Text, "Job of the appeal"),
    CHILD_SAFETY,
];

const ACTIONS: &[Column] = &[
    required("eventId", Text, "Id of the action and of its callback event"),
    required("recordedAt", Time, "Time of the append to the log"),
    required("actedAt", Time, "Time of the cause: the item's append or the decision"),
    required("source", Text, "`rule`, `moderator`, `platform` or `threshold`"),
    required("action", Text, "Action"),
    ITEM_TYPE_ID,
    ITEM_ID,
    optional("userTypeId", Text, "Item type of the affected user"),
    optional("userId", Text, "Id of the affected user"),
    required("strikePoints", Integer, "Strike points of the action"),
    required("policies", Texts, "Violated policies"),
    required("rules", Structs(RULES), "Rules that caused the action"),
    optional("decisionId", Text, "Decision that took the action"),
    optional("submissionId", Text, "Submission on which a rule acted"),
    optional("threshold", Text, "Crossed threshold"),
    optional("actor", Text, "Moderator, or actor of the platform"),
    CHILD_SAFETY,
];

const RULES: &[Column] = &[required("rule", Text, "Rule"), required("version", Text, "Version of the rule")];

const STRIKES: &[Column] = &[
    required("strikeId", Text, "Id of the strike or of the reversal"),
    required("recordedAt", Time, "Time of the append to the log"),
    required("kind", Text, "`issued` or `reversed`"),
    required("userTypeId", Text, "Item type of the user"),
    required("userId", Text, "Id of the user"),
    required("points", Integer, "Strike points"),
    required("action", Text, "Action that carried the strike"),
    ITEM_TYPE_ID,
    ITEM_ID,
    optional("reversedStrikeId", Text, "Strike that a reversal cancels"),
    CHILD_SAFETY,
];

const DELIVERIES: &[Column] = &[
    required("eventId", Text, "Id of the callback event"),
    required("createdAt", Time, "Time at which the delivery was created"),
    required("eventType", Text, "Type of the event, such as `action.automatic`"),
    optional("endpoint", Text, "Endpoint"),
    ITEM_TYPE_ID,
    ITEM_ID,
    required("state", Text, "State of the delivery"),
    required("attempts", Integer, "Number of attempts"),
    required("occurredAt", Time, "Time of the event"),
    optional("deliveredAt", Time, "Time of the successful attempt"),
    optional("nextAt", Time, "Time of the next attempt"),
    optional("heldReason", Text, "Reason of a held delivery"),
    optional("lastStatus", Integer, "HTTP status of the last attempt"),
    optional("lastError", Text, "Error of the last attempt"),
    required("sequence", Integer, "Sequence number of the event"),
];

const AUDIT: &[Column] = &[
    required("entryId", Text, "Id of the entry"),
    required("at", Time, "Time of the request"),
    required("actor", Text, "API key, person or part of the service"),
    required("action", Text, "Method and route, or name of the change"),
    required("object", Text, "Path of the request"),
    required("requestId", Text, "Id of the request"),
    optional("status", Integer, "HTTP status; absent if the outcome is unknown"),
    optional("detail", Text, "JSON object with details of the change"),
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{collections::BTreeSet, fmt::Write as _, fs};

    use super::*;

    fn type_name(column: &Column) -> String {
        let name = match column.column_type {
            Text => "text",
            Integer => "integer",
            Boolean => "boolean",
            Time => "time",
            Texts => "list of texts",
            Structs(members) => {
                let members: Vec<_> = members
                    .iter()
                    .map(|member| format!("`{}`: {}", member.name, type_name(member)))
                    .collect();
                return format!("list of ({})", members.join(", "));
            }
        };
        if column.is_nullable { format!("{name} or null") } else { name.to_owned() }
    }

    /// Renders the section of the guide that lists a dataset.
    fn render(dataset: Dataset) -> String {
        let mut section = format!("### `{dataset}`\n\n| column | type | meaning |\n|---|---|---|\n");
        for column in dataset.columns() {
            writeln!(section, "| `{}` | {} | {} |", column.name, type_name(column), column.about).unwrap();
        }
        section
    }

    #[test]
    fn guide_lists_the_columns_of_every_dataset() {
        let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guides/exports.md");
        let guide = fs::read_to_string(guide).unwrap();
        for dataset in Dataset::ALL {
            let section = render(*dataset);
            assert!(guide.contains(&section), "docs/guides/exports.md must contain:\n{section}");
        }
    }

    #[test]
    fn names_of_columns_are_distinct_and_begin_with_id_and_time() {
        for dataset in Dataset::ALL {
            let columns = dataset.columns();
            let names: BTreeSet<_> = columns.iter().map(|column| column.name).collect();
            assert_eq!(names.len(), columns.len(), "{dataset}");
            assert_eq!((columns[0].column_type, columns[1].column_type), (Text, Time), "{dataset}");
        }
    }
}
