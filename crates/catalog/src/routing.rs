//! Compiled routing lists, which choose the queue of a job.
//!
//! Conditions are compiled like those of rules. They use fields of the item, and facts about the cause under
//! reserved names. Only the list for reports may use facts that are looked up: scores of models that cache
//! their answers.

use std::collections::HashSet;

use serde_json::{Value as Json, json};
use tidegate_rules::{
    Explained, Facts, Fields, Item, Kind, Limits, Number, Plan, RuleError, RuleSource, Scan, Shape, Trigger,
    Value, Vocabulary,
};
use tidegate_schemas::{
    documents::{DocumentFault, Routing, RoutingEntry, RoutingList},
    ids::{ItemKey, Millis, QueueId, RuleId, SubmissionId, TypeId},
};

use crate::error::document_path;

/// Compiled routing list.
#[derive(Debug)]
pub struct Router {
    list: RoutingList,
    entries: Vec<RoutingEntry>,
    plan: Plan,
    /// True if a condition uses the rules that matched.
    uses_matched_rules: bool,
}

/// Queue chosen by a routing list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    pub queue: QueueId,
    /// List and entry, such as `reports/scams` or `reports/2`; `None` if no entry matched.
    pub routed_by: Option<String>,
}

/// Choice with the index of its entry in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankedChoice {
    pub choice: Choice,
    /// `None` if no entry matched.
    entry: Option<usize>,
}

impl RankedChoice {
    /// Returns the choice of a list that is not configured.
    pub fn without_list(list: RoutingList) -> Self {
        Self { choice: Choice { queue: list.default_queue(), routed_by: None }, entry: None }
    }

    /// True if this choice's entry precedes the other's. A default choice is last.
    pub fn is_before(&self, other: &Self) -> bool {
        let entry_index = |ranked: &Self| ranked.entry.unwrap_or(usize::MAX);
        entry_index(self) < entry_index(other)
    }
}

/// Cause to route.
#[derive(Clone, Copy)]
pub struct RoutingInput<'a> {
    pub item: &'a ItemKey,
    /// Values of the item's data; `None` if the data is invalid under the item's type.
    pub values: Option<&'a dyn Fields>,
    /// Facts about the cause: an object for each reserved name, such as `{"report": {"reporters": 3}}`.
    pub cause_facts: &'a Json,
    /// Known scores of the item.
    pub facts: &'a Facts,
    pub now: Millis,
}

/// Result of one entry for one cause.
#[derive(Debug)]
pub struct ExplainedEntry {
    pub name: String,
    pub queue: QueueId,
    pub matches: bool,
    /// False if the entry is restricted to other item types.
    pub concerns: bool,
    /// Result of each condition; `None` if the entry has no condition.
    pub tree: Option<Explained>,
}

/// Returns the reserved fields of a list's causes.
fn reserved_fields(list: RoutingList) -> &'static [(&'static str, Shape)] {
    const TEXT: Shape = Shape::one(Kind::Text);
    const NUMBER: Shape = Shape::one(Kind::Number);
    const TEXTS: Shape = Shape::list(Kind::Text);
    match list {
        RoutingList::Reports => &[
            ("report.source", TEXT),
            ("report.policy", TEXT),
            ("report.reason", TEXT),
            ("report.reporters", NUMBER),
            ("report.accuracy", NUMBER),
            ("rules.matched", TEXTS),
            ("media.banks", TEXTS),
        ],
        RoutingList::Rules => &[("rules.matched", TEXTS), ("rules.policies", TEXTS), ("media.banks", TEXTS)],
        RoutingList::Appeals => {
            &[("appeal.reason", TEXT), ("appeal.policies", TEXTS), ("appeal.actions", TEXTS)]
        }
    }
}

/// Fields of the item and of the cause in one namespace.
struct CombinedFields<'a> {
    values: Option<&'a dyn Fields>,
    known: &'a Json,
    reserved: &'static [(&'static str, Shape)],
}

impl Fields for CombinedFields<'_> {
    fn field(&self, name: &str) -> Option<Value<'_>> {
        if self.reserved.iter().any(|(reserved, _)| *reserved == name) {
            let (section, member) = name.split_once('.')?;
            return convert_value(self.known.get(section)?.get(member)?);
        }
        self.values?.field(name)
    }
}

fn convert_value(json: &Json) -> Option<Value<'_>> {
    match json {
        Json::String(text) => Some(Value::Text(text)),
        Json::Number(number) => Number::parse(&number.to_string()).map(Value::Number),
        Json::Array(list) => Some(Value::List(list.iter().filter_map(convert_value).collect())),
        _ => None,
    }
}

/// Returns the key under which an entry's condition is compiled as a rule.
fn entry_rule_id(index: usize) -> RuleId {
    RuleId::new(format!("entry-{index}"))
}

fn parse_entry_index(rule: &str) -> Option<usize> {
    rule.strip_prefix("entry-")?.parse().ok()
}

impl Router {
    pub(crate) fn compile(
        list: RoutingList,
        document: &(tidegate_schemas::documents::Origin, Routing),
        types: &[TypeId],
        mut vocabulary: Vocabulary,
        limits: &Limits,
    ) -> Result<Self, Vec<DocumentFault>> {
        let (origin, routing) = document;
        for type_id in types {
            // Reserved fields belong to the cause, so every item type has them.
            vocabulary.add(type_id.clone(), reserved_fields(list).iter().copied());
        }
        let conditions = routing.entries.iter().enumerate().filter_map(|(index, entry)| {
            let condition = entry.when.as_ref()?;
            Some(json!({
                "rule": entry_rule_id(index), "status": "live", "item_types": entry.item_types, "when": condition,
            }))
        });
        let documents: Vec<Json> = conditions.collect();
        let sources: Vec<_> = documents.iter().map(|document| RuleSource { document, version: "" }).collect();
        let fault = |it: &RuleError| {
            let entry_path =
                parse_entry_index(&it.rule).map_or_else(String::new, |index| format!("entries[{index}]"));
            let inner = document_path(&it.pointer);
            let path = if inner.is_empty() { entry_path } else { format!("{entry_path}.{inner}") };
            DocumentFault {
                missing: it.missing.clone(),
                ..DocumentFault::new(origin, path, it.detail.clone())
            }
        };
        let plan = Plan::compile(&sources, &vocabulary, limits)
            .map_err(|faults| faults.iter().map(fault).collect::<Vec<_>>())?;
        let (message, rules_with_lookups) = match list {
            RoutingList::Reports => (
                "Routing uses fields of the item and the cause, and scores: remove strikes, count and media. `media.banks` has the \
                 banks that media matched.",
                plan.rules_that_look_up_other_than_scores().collect::<Vec<_>>(),
            ),
            RoutingList::Rules | RoutingList::Appeals => (
                "This list uses fields of the item and the cause only: remove strikes, count, media and score. `media.banks` has \
                 the banks that media matched.",
                plan.rules_that_look_up().collect(),
            ),
        };
        let lookup_faults: Vec<DocumentFault> = rules_with_lookups
            .into_iter()
            .filter_map(|rule| parse_entry_index(rule.as_str()))
            .map(|index| DocumentFault::new(origin, format!("entries[{index}].when"), message))
            .collect();
        if lookup_faults.is_empty() {
            let conditions = routing.entries.iter().filter_map(|entry| entry.when.as_ref());
            // The text may also stand in a value. The rules are then determined without need, but the choice
            // is the same.
            let uses_matched_rules = conditions.map(Json::to_string).any(|it| it.contains("rules.matched"));
            Ok(Self { list, entries: routing.entries.clone(), plan, uses_matched_rules })
        } else {
            Err(lookup_faults)
        }
    }

    /// Returns warnings about conditions that cannot match, with the index of their entry.
    pub(crate) fn warnings(&self) -> Vec<(&'static str, usize, String, String)> {
        // Entries have no actions and policies, and may share conditions.
        let warnings = self.plan.warnings().into_iter();
        let warnings =
            warnings.filter(|it| !matches!(it.tag(), "no_action" | "no_policy" | "same_condition"));
        warnings
            .filter_map(|it| {
                Some((it.tag(), parse_entry_index(&it.rule)?, document_path(&it.pointer), it.detail.clone()))
            })
            .collect()
    }

    fn name(&self, index: usize) -> String {
        self.entries[index].name.clone().unwrap_or_else(|| (index + 1).to_string())
    }

    /// True if a condition uses a score.
    pub fn asks_models(&self) -> bool {
        self.plan.rules_that_look_up().next().is_some()
    }

    /// True if a condition uses the rules that matched, so that these have to be determined first.
    pub fn uses_matched_rules(&self) -> bool {
        self.uses_matched_rules
    }

    /// Returns the compiled conditions. Their scan tells which scores an item needs.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Evaluates the conditions on the cause's own fields. `cause.facts` is ignored.
    pub fn scan(&self, cause: RoutingInput<'_>) -> Scan {
        self.plan.scan(&build_item(cause, &self.combine_fields(cause)))
    }

    /// Returns the queue of the first entry that matches, or the list's default.
    pub fn choose(&self, cause: RoutingInput<'_>) -> RankedChoice {
        let matched_ids = self.find_matched_ids(cause);
        match self
            .entries
            .iter()
            .enumerate()
            .find(|(index, entry)| entry_matches(*index, entry, cause, &matched_ids))
        {
            Some((index, entry)) => {
                let routed_by = Some(format!("{}/{}", self.list, self.name(index)));
                RankedChoice { choice: Choice { queue: entry.queue.clone(), routed_by }, entry: Some(index) }
            }
            None => RankedChoice::without_list(self.list),
        }
    }

    /// Explains every entry, in order.
    pub fn explain(&self, cause: RoutingInput<'_>) -> Vec<ExplainedEntry> {
        let matched_ids = self.find_matched_ids(cause);
        let combined = self.combine_fields(cause);
        let item = build_item(cause, &combined);
        let entries = self.entries.iter().enumerate().map(|(index, entry)| {
            let pending = self.plan.begin_explanation(&item, &entry_rule_id(index));
            ExplainedEntry {
                name: self.name(index),
                queue: entry.queue.clone(),
                matches: entry_matches(index, entry, cause, &matched_ids),
                concerns: applies_to_type(entry, cause),
                tree: pending.map(|pending| self.plan.finish_explanation(pending, cause.facts)),
            }
        });
        entries.collect()
    }

    fn combine_fields<'a>(&self, cause: RoutingInput<'a>) -> CombinedFields<'a> {
        CombinedFields {
            values: cause.values,
            known: cause.cause_facts,
            reserved: reserved_fields(self.list),
        }
    }

    fn find_matched_ids(&self, cause: RoutingInput<'_>) -> HashSet<RuleId> {
        let combined = self.combine_fields(cause);
        let scan = self.plan.scan(&build_item(cause, &combined));
        let outcome = self.plan.finish(scan, cause.facts);
        outcome.matched.iter().map(|rule_match| rule_match.rule.clone()).collect()
    }
}

fn build_item<'a>(cause: RoutingInput<'a>, values: &'a CombinedFields<'a>) -> Item<'a> {
    Item {
        type_id: &cause.item.type_id,
        values,
        user: None,
        on: Trigger::Item,
        now: cause.now,
        submission: SubmissionId(uuid::Uuid::nil()),
    }
}

fn applies_to_type(entry: &RoutingEntry, cause: RoutingInput<'_>) -> bool {
    entry.item_types.is_empty() || entry.item_types.contains(&cause.item.type_id)
}

fn entry_matches(
    index: usize,
    entry: &RoutingEntry,
    cause: RoutingInput<'_>,
    matched_ids: &HashSet<RuleId>,
) -> bool {
    applies_to_type(entry, cause) && (entry.when.is_none() || matched_ids.contains(&entry_rule_id(index)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{Compiled, Settings, change};

    const DOCUMENTS: &str = "item_type: post\nkind: CONTENT\nfields: [{name: text, type: STRING}]\n---\n\
                             item_type: user\nkind: USER\nfields: [{name: name, type: STRING}]\n---\n\
                             queue: scams\n---\nqueue: users\n---\nqueue: crowd\n---\n\
                             queue: second-look\nclass: appeal\n---\npolicy: scam\n---\n";

    fn compile(routing: &str) -> Result<Compiled, Vec<String>> {
        let files = [("all.yaml".to_owned(), format!("{DOCUMENTS}{routing}"))];
        match change::compile_offline(&files, &Settings::default()) {
            Ok((compiled, _)) => Ok(compiled),
            Err(faults) => Err(faults.iter().map(ToString::to_string).collect()),
        }
    }

    struct Text(&'static str);

    impl Fields for Text {
        fn field(&self, name: &str) -> Option<Value<'_>> {
            (name == "text").then_some(Value::Text(self.0))
        }
    }

    const REPORTS: &str = "routing: reports\nentries:\n\
        - {name: scams, when: {any: [{field: {path: report.policy, eq: scam}}, \
           {text: {in: [text], words: [wallet]}}]}, item_types: [post], queue: scams}\n\
        - {item_types: [user], queue: users}\n\
        - {when: {field: {path: report.reporters, gte: 10}}, queue: crowd}\n";

    fn choose(
        config: &Compiled,
        type_id: &str,
        text: &'static str,
        known: &Json,
    ) -> (String, Option<String>) {
        let item = ItemKey::new(type_id, "1");
        let values = Text(text);
        let facts = Facts::new();
        let cause = RoutingInput {
            item: &item,
            values: Some(&values),
            cause_facts: known,
            facts: &facts,
            now: Millis(0),
        };
        let choice = config.router(RoutingList::Reports).unwrap().choose(cause).choice;
        (choice.queue.to_string(), choice.routed_by)
    }

    #[test]
    fn first_entry_that_matches_chooses_the_queue() {
        let config = compile(REPORTS).unwrap();
        let by = |queue: &str, entry: &str| (queue.to_owned(), Some(entry.to_owned()));
        let many = json!({"report": {"reporters": 10}});
        assert_eq!(choose(&config, "post", "my wallet", &many), by("scams", "reports/scams"));
        let scam = json!({"report": {"policy": "scam"}});
        assert_eq!(choose(&config, "post", "", &scam), by("scams", "reports/scams"));
        assert_eq!(choose(&config, "user", "", &scam), by("users", "reports/2"));
        assert_eq!(choose(&config, "post", "", &many), by("crowd", "reports/3"));
        let few = json!({"report": {"reporters": 9}});
        assert_eq!(choose(&config, "post", "", &few), ("default".to_owned(), None));
    }

    #[test]
    fn only_the_reports_list_may_use_cached_scores() {
        let signal = |cache: &str| {
            format!(
                "signal: toxic\nurl: https://m.example/\ninput: text\noutput: {{score: /s}}\n{cache}---\n"
            )
        };
        let entry = "entries: [{queue: scams, when: {score: {model: toxic, gte: 0.5}}}]\n";
        let config = compile(&format!("{}routing: reports\n{entry}", signal(""))).unwrap();
        assert!(config.router(RoutingList::Reports).unwrap().asks_models());
        for (routing, expected) in [
            (format!("{}routing: reports\n{entry}", signal("cache: 0s\n")), "keeps no answers"),
            (format!("{}routing: rules\n{entry}", signal("")), "remove strikes, count, media and score"),
            (format!("routing: reports\n{entry}"), "There is no signal `toxic`"),
        ] {
            let files = [("all.yaml".to_owned(), format!("{DOCUMENTS}{routing}"))];
            let faults = change::lint_files(&files, &[], &Settings::default(), Millis(0), 9).unwrap_err();
            let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
            let faults = faults.join("\n");
            assert!(faults.contains(expected), "{routing}: {faults}");
        }
    }

    #[test]
    fn every_entry_is_explained() {
        let config = compile(REPORTS).unwrap();
        let item = ItemKey::new("post", "1");
        let known = json!({"report": {"reporters": 12}});
        let facts = Facts::new();
        let cause =
            RoutingInput { item: &item, values: None, cause_facts: &known, facts: &facts, now: Millis(0) };
        let told = config.router(RoutingList::Reports).unwrap().explain(cause);
        let told: Vec<_> =
            told.iter().map(|it| (&*it.name, it.matches, it.concerns, it.tree.is_some())).collect();
        let expected = [("scams", false, true, true), ("2", false, false, false), ("3", true, true, true)];
        assert_eq!(told, expected);
    }

    #[test]
    fn faults_of_routing_name_the_entry() {
        for (routing, expected) in [
            ("entries: [{queue: scam}]", "entries[0].queue: There is no queue `scam`"),
            ("entries: [{queue: second-look}]", "has the class `appeal`"),
            ("entries: [{queue: scams}, {queue: users}]", "entries[1]: The entry is never reached"),
            (
                "entries: [{queue: scams, when: {field: {path: report.polcy, eq: a}}}]",
                "entries[0].when.field",
            ),
            ("entries: [{queue: scams, when: {strikes: {gte: 1}}}]", "remove strikes, count and media"),
            ("entries: [{queue: scams, item_types: [pots]}]", "entries[0].item_types[0]"),
            (
                "entries: [{queue: scams, when: {field: {path: appeal.reason, eq: a}}}]",
                "entries[0].when.field",
            ),
        ] {
            let faults = compile(&format!("routing: reports\n{routing}\n")).unwrap_err().join("\n");
            assert!(faults.contains(expected), "{routing}: {faults}");
        }
    }
}
