//! What a rule uses beside itself, and how that changed: windows, banks, actions, and fields of the items it judges.
//!
//! It does not look at the rule's own members.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value as Json, json};
use tidegate_rules::{Limits, form::Known};
use tidegate_schemas::{
    documents::{Document, DocumentKind, Rule},
    ids::{TypeId, WindowId},
};

use super::{different, same_form, set};

/// The documents of a folder.
#[derive(Default)]
pub(super) struct Side {
    pub(super) rules: BTreeMap<String, Rule>,
    others: BTreeMap<Name, Map<String, Json>>,
}

type Name = (DocumentKind, String);

impl Side {
    pub(super) fn new(documents: impl Iterator<Item = Document>) -> Self {
        let mut side = Self::default();
        for document in documents {
            let name = (document.kind(), document.key().to_owned());
            match (document, name) {
                (Document::Rule(rule), (_, key)) => drop(side.rules.insert(key, rule)),
                (other, name) => {
                    if let Ok(Json::Object(members)) = serde_json::to_value(&other) {
                        side.others.insert(name, members);
                    }
                }
            }
        }
        side
    }

    fn of(&self, kind: DocumentKind) -> impl Iterator<Item = (&String, &Map<String, Json>)> {
        self.others.iter().filter(move |((own, _), _)| *own == kind).map(|((_, key), members)| (key, members))
    }
}

impl Side {
    /// Whether something is so of a field in each of these item types that have it; in all if none are named.
    fn each_is(&self, item_types: &[TypeId], path: &str, is: impl Fn(&Json) -> bool) -> bool {
        let asked = |key: &str| item_types.is_empty() || item_types.iter().any(|own| own.as_str() == key);
        let fields =
            self.of(DocumentKind::ItemType).filter(|(key, _)| asked(key)).filter_map(|(_, members)| {
                let mut fields = members.get("fields")?.as_array()?.iter();
                fields.find(|field| field.get("name").is_some_and(|name| name == path))
            });
        let mut fields = fields.peekable();
        fields.peek().is_some() && fields.all(is)
    }
}

/// What is certain of fields and windows on both sides.
pub(super) struct Both<'s> {
    before: (&'s Side, &'s [TypeId]),
    after: (&'s Side, &'s [TypeId]),
}

impl<'s> Both<'s> {
    pub(super) fn of((before, one): (&'s Side, &'s Rule), (after, other): (&'s Side, &'s Rule)) -> Self {
        Self { before: (before, &one.item_types), after: (after, &other.item_types) }
    }

    fn each_is(&self, path: &str, is: impl Fn(&Json) -> bool) -> bool {
        [self.before, self.after].iter().all(|(side, item_types)| side.each_is(item_types, path, &is))
    }
}

impl Known for Both<'_> {
    fn is_single(&self, path: &str) -> bool {
        self.each_is(path, |field| field.get("container").is_none_or(Json::is_null))
    }

    fn is_instant(&self, path: &str) -> bool {
        self.each_is(path, |field| field.get("type").is_some_and(|kind| kind == "DATETIME"))
    }

    fn counts_whole(&self, window: &WindowId) -> bool {
        let name = (DocumentKind::Window, window.to_string());
        let members = [self.before, self.after].map(|(side, _)| side.others.get(&name));
        members.iter().all(|members| members.is_some_and(|it| it.get("sum").is_none_or(Json::is_null)))
    }
}

/// What a rule uses on one side.
#[derive(Default)]
struct Used {
    names: BTreeSet<Name>,
    /// Paths of fields, and formulas that hold some.
    paths: Vec<String>,
    formulas: Vec<String>,
}

impl Used {
    fn by(side: &Side, rule: &Rule) -> Self {
        let mut used = Self::default();
        used.read(side, "when", &rule.when);
        for action in &rule.actions {
            used.names.insert((DocumentKind::Action, action.id.to_string()));
        }
        used
    }

    /// A condition, or what is in it, under its name.
    fn read(&mut self, side: &Side, name: &str, condition: &Json) {
        match condition {
            Json::Array(parts) => parts.iter().for_each(|part| self.read(side, name, part)),
            Json::Object(members) => {
                for (member, value) in members {
                    match (member.as_str(), value) {
                        ("window", Json::String(key)) => self.window(side, key),
                        ("bank", Json::String(key)) => self.bank(side, key),
                        ("expr", Json::String(formula)) => self.formulas.push(formula.clone()),
                        ("path" | "lat" | "lng", Json::String(path)) => self.paths.push(path.clone()),
                        // The values that one field is compared with.
                        ("in", _) if name == "field" => {}
                        ("in", Json::Array(paths)) => {
                            self.paths.extend(paths.iter().filter_map(Json::as_str).map(str::to_owned));
                        }
                        _ => self.read(side, member, value),
                    }
                }
            }
            Json::String(_) | Json::Null | Json::Bool(_) | Json::Number(_) => {}
        }
    }

    fn names(&self, field: &str) -> bool {
        let begins = |path: &String| {
            path.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let inside = |c: char| c.is_alphanumeric() || c == '_';
        let is_word = |formula: &str, at: usize| {
            !formula[..at].ends_with(inside) && !formula[at + field.len()..].starts_with(inside)
        };
        let holds = |formula: &String| formula.match_indices(field).any(|(at, _)| is_word(formula, at));
        self.paths.iter().any(begins) || self.formulas.iter().any(holds)
    }

    fn window(&mut self, side: &Side, key: &str) {
        let name = (DocumentKind::Window, key.to_owned());
        let members = side.others.get(&name);
        if self.names.insert(name) {
            let of = |member: &str| members.and_then(|it| it.get(member));
            of("where").into_iter().for_each(|condition| self.read(side, "where", condition));
            let paths = ["by", "sum", "distinct"].map(of).into_iter().flatten();
            self.paths.extend(paths.filter_map(Json::as_str).map(str::to_owned));
        }
    }

    /// The bank, and those that take matches of it back.
    fn bank(&mut self, side: &Side, key: &str) {
        self.names.insert((DocumentKind::Bank, key.to_owned()));
        let suppresses = |members: &Map<String, Json>| {
            members.get("suppresses").and_then(Json::as_array).is_some_and(|it| it.contains(&json!(key)))
        };
        let negative = side.of(DocumentKind::Bank).filter(|(_, members)| suppresses(members));
        self.names.extend(negative.map(|(key, _)| (DocumentKind::Bank, key.clone())));
    }

    /// The fields of a type that the rule may look at, and the one that names the user.
    fn fields(&self, item_type: &Map<String, Json>) -> Map<String, Json> {
        let fields = item_type.get("fields").and_then(Json::as_array).into_iter().flatten();
        let used = fields.filter_map(|field| {
            let name = field.get("name")?.as_str()?;
            let is_user = field.get("role").is_some_and(|role| role == "creator");
            let mut field = field.as_object()?.clone();
            // Whether it must be there is asked when an item comes in.
            field.remove("required");
            (is_user || self.names(name)).then(|| (name.to_owned(), Json::Object(field)))
        });
        used.collect()
    }
}

/// What of all that has another meaning.
pub(super) fn changes(
    (before, one): (&Side, &Rule),
    (after, other): (&Side, &Rule),
    limits: &Limits,
) -> Vec<String> {
    let (old, new) = (Used::by(before, one), Used::by(after, other));
    let mut changes = Vec::new();
    // What only one of them uses is a change of the rule itself.
    for name in old.names.intersection(&new.names) {
        let (Some(one), Some(other)) = (before.others.get(name), after.others.get(name)) else { continue };
        let differing = different(one, other, |member, one, other| match member {
            "name" | "file" => true,
            "entries" | "item_types" | "suppresses" => set(one) == set(other),
            "where" => {
                let both = Both { before: (before, &[]), after: (after, &[]) };
                one == other || same_where(one, other, limits, &both)
            }
            _ => one == other,
        });
        if !differing.is_empty() {
            changes.push(format!("{} {}: {}", name.0.name(), name.1, differing.join(", ")));
        }
    }
    let judged = |side: &Side, rule: &Rule, used: &Used| -> BTreeMap<String, Map<String, Json>> {
        let all = rule.item_types.is_empty();
        let types = side.of(DocumentKind::ItemType);
        let judged = types.filter(|(key, _)| all || rule.item_types.iter().any(|own| own.as_str() == *key));
        judged.map(|(key, members)| (key.clone(), used.fields(members))).collect()
    };
    let (old, new) = (judged(before, one, &old), judged(after, other, &new));
    let types: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    changes.extend(types.into_iter().filter_map(|key| match (old.get(key), new.get(key)) {
        (Some(old), Some(new)) => {
            let fields = old.keys().chain(new.keys()).filter(|field| old.get(*field) != new.get(*field));
            let fields: BTreeSet<&str> = fields.map(String::as_str).collect();
            let fields = fields.into_iter().collect::<Vec<_>>().join(", ");
            (!fields.is_empty()).then(|| format!("item_type {key}: {fields}"))
        }
        // Where the rule names its types, that is its own change.
        (old, _) if one.item_types.is_empty() && other.item_types.is_empty() => {
            Some(format!("item_type {key}: judged {}", if old.is_some() { "no more" } else { "too" }))
        }
        _ => None,
    }));
    changes
}

fn same_where(before: Option<&Json>, after: Option<&Json>, limits: &Limits, known: &dyn Known) -> bool {
    let rule = |condition: &Json| json!({"rule": "where", "when": condition});
    before.zip(after).is_some_and(|(before, after)| same_form(&rule(before), &rule(after), limits, known))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tidegate_schemas::documents::parse;

    use super::*;

    const DOCUMENTS: &str = "\
item_type: post
kind: CONTENT
fields:
  - {name: text, type: STRING}
  - {name: tags, type: STRING}
  - {name: author, type: RELATED_ITEM, role: creator}
---
action: remove
kind: callback
---
bank: words
kind: text
entries: [one, two]
---
window: often
over: 24h
where: {all: [{text: {in: [text], any_of: [a b]}}, {field: {path: text, exists: true}}]}
---
rule: r
when: {all: [{count: {window: often, gte: 3}}, {text: {in: [text], bank: words}}]}
actions: [remove]
---
rule: free
item_types: [post]
when: {field: {path: text, eq: x}}
";

    fn side(documents: &str) -> Side {
        Side::new(parse(&[("d.yaml", documents)]).unwrap().into_iter().map(|(_, document)| document))
    }

    fn changed(rule: &str, from: &str, to: &str) -> Vec<String> {
        let (before, after) = (side(DOCUMENTS), side(&DOCUMENTS.replace(from, to)));
        let with = |side: &Side| side.rules[rule].clone();
        changes((&before, &with(&before)), (&after, &with(&after)), &Limits::default())
    }

    #[test]
    fn a_rule_changes_with_what_it_uses() {
        for (from, to, told) in [
            ("over: 24h", "over: 30d", "window often: over 1d → 30d"),
            ("any_of: [a b]", "any_of: [a c]", "window often: condition"),
            ("[one, two]", "[one, two, three]", "bank words: entries"),
            ("kind: callback", "kind: enqueue_review", "action remove: kind callback → enqueue_review"),
            ("text, type: STRING}", "text, type: STRING, container: ARRAY}", "post: text"),
            (", role: creator", "", "item_type post: author"),
            ("---\naction", "---\nitem_type: page\nkind: CONTENT\n---\naction", "item_type page: judged too"),
        ] {
            let changes = changed("r", from, to);
            assert_eq!(changes.len(), 1, "{to}: {changes:?}");
            assert!(changes[0].contains(told), "{to}: {changes:?}");
        }
        let formula = DOCUMENTS.replace("{field: {path: text, eq: x}}", "{expr: \"item.data.text == 'x'\"}");
        let number = |name: &str| {
            formula.replace(&format!("name: {name}, type: STRING"), &format!("name: {name}, type: NUMBER"))
        };
        let free = |documents: &str| (side(documents), side(documents).rules["free"].clone());
        let between = |other: &str| {
            let ((before, one), (after, other)) = (free(&formula), free(other));
            changes((&before, &one), (&after, &other), &Limits::default())
        };
        assert_eq!(between(&number("text")), ["item_type post: text"]);
        assert!(between(&number("tags")).is_empty());
    }

    #[test]
    fn what_a_rule_does_not_use_and_how_things_are_written_change_nothing() {
        for (from, to) in [
            ("[one, two]", "[two, one]"),
            (
                "where: {all: [{text: {in: [text], any_of: [a b]}}, ",
                "where: {all: [{all: [{text: {in: [text], any_of: [a b]}}]}, ",
            ),
            ("name: tags, type: STRING", "name: tags, type: STRING, required: true"),
            ("name: tags, type: STRING", "name: labels, type: NUMBER"),
            ("over: 24h", "over: 24h\nname: For people"),
        ] {
            let changes = changed("r", from, to);
            assert!(changes.is_empty(), "{to}: {changes:?}");
        }
        for (from, to) in
            [("over: 24h", "over: 30d"), ("[one, two]", "[one]"), ("kind: callback", "kind: enqueue_review")]
        {
            assert!(changed("free", from, to).is_empty(), "{to}");
        }
        // What is searched for names no field.
        assert!(changed("free", "name: tags, type: STRING", "name: x, type: NUMBER").is_empty());
        assert!(
            changed("free", "---\naction", "---\nitem_type: page\nkind: CONTENT\n---\naction").is_empty()
        );
    }
}
