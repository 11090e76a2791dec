//! Reads a rule document out of JSON, and names every fault in it.
//!
//! It bounds what it reads, because a document may be hostile; whether fields exist it cannot say.

mod facts;
mod life;
mod places;
#[cfg(test)]
mod tests;
mod window;

use self::facts::AROUND;
use serde_json::{Map, Value as Json};
use tidegate_schemas::{
    ids::{ActionId, BankId, Millis, PolicyId, RuleId, TypeId},
    item_types::datetime,
};

use crate::{
    facts::Within,
    faults::{FAULTS_LISTED, Fault, did_you_mean, escaped, shown},
    form::{
        ActionUse, Around, Comparison, Condition, Of, On, Op, Rule, Search, Status, Strikes, Test, Text,
        View, Window, expr,
    },
    limits::Limits,
};

const RULE_KEYS: [&str; 14] = [
    "rule",
    "name",
    "status",
    "expires_at",
    "on",
    "item_types",
    "when",
    "policies",
    "actions",
    "rollout",
    "limits",
    "review_sample",
    "on_error",
    "tests",
];
const VIEWS: [(&str, View); 4] =
    [("raw", View::Raw), ("lower", View::Lower), ("folded", View::Folded), ("collapsed", View::Collapsed)];
const CONDITIONS: [&str; 12] =
    ["all", "any", "not", "text", "field", "strikes", "count", "media", "score", "geo", "domain", "expr"];

/// Of instants.
pub(crate) const FINER: &str = "instants are exact to the millisecond, and this one names a part of one";

/// Reads a rule document; all faults are listed, up to a hundred.
#[allow(
    clippy::redundant_closure_for_method_calls,
    reason = "the method is not general enough in the reader's lifetime"
)]
pub fn parse(document: &Json, limits: &Limits) -> Result<Rule, Vec<Fault>> {
    read("rule", document, limits, |r, v| r.rule(v))
}

/// Reads a window document, as [`parse`] reads a rule's.
#[allow(
    clippy::redundant_closure_for_method_calls,
    reason = "the method is not general enough in the reader's lifetime"
)]
pub fn parse_window(document: &Json, limits: &Limits) -> Result<Window, Vec<Fault>> {
    read("window", document, limits, |r, v| r.window(v))
}

/// Reads what a line says is known beside its item; `beside` names its other keys.
pub(crate) fn around(line: &Json, beside: &[&str], limits: &Limits) -> Result<Around, Vec<Fault>> {
    read("line", line, limits, |r, v| {
        let object = r.object(v, &[beside, &AROUND].concat())?;
        Some(r.around(object))
    })
}

fn read<T>(
    kind: &'static str,
    document: &Json,
    limits: &Limits,
    read: impl FnOnce(&mut Reader<'_>, &Json) -> Option<T>,
) -> Result<T, Vec<Fault>> {
    let key = document.get(kind).and_then(Json::as_str).unwrap_or_default();
    let mut reader = Reader {
        limits,
        kind,
        rule: key.chars().take(64).collect(),
        pointer: String::new(),
        nodes: 0,
        words: 0,
        faults: Vec::new(),
    };
    match read(&mut reader, document) {
        Some(read) if reader.faults.is_empty() => Ok(read),
        _ => Err(reader.faults),
    }
}

struct Reader<'a> {
    limits: &'a Limits,
    kind: &'static str,
    rule: String,
    pointer: String,
    nodes: usize,
    words: usize,
    faults: Vec<Fault>,
}

type Object = Map<String, Json>;

/// Null is as if it were absent.
fn present(object: &Object, key: &str) -> bool {
    object.get(key).is_some_and(|value| !value.is_null())
}

impl Reader<'_> {
    fn fault<T>(&mut self, tag: &'static str, detail: impl Into<String>) -> Option<T> {
        if self.faults.len() < FAULTS_LISTED {
            self.faults.push(Fault::new(self.kind, &self.rule, &self.pointer, tag, detail.into()));
        }
        None
    }

    fn full(&self) -> bool {
        self.faults.len() >= FAULTS_LISTED
    }

    fn at<T>(&mut self, segment: &str, read: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.pointer.len();
        self.pointer.push('/');
        let segment: String = segment.chars().take(64).collect();
        self.pointer.push_str(&escaped(&segment));
        let read = read(self);
        self.pointer.truncate(length);
        read
    }

    fn object<'j>(&mut self, value: &'j Json, keys: &[&str]) -> Option<&'j Object> {
        let Some(object) = value.as_object() else {
            return self.fault("shape", format!("expected a mapping with {}", keys.join(", ")));
        };
        for key in object.keys().filter(|key| !keys.contains(&key.as_str())) {
            if self.full() {
                break;
            }
            let near = did_you_mean(key, keys.iter().copied());
            self.at(key, |r| r.fault::<()>("unknown_key", format!("unknown key {}{near}", shown(key))));
        }
        Some(object)
    }

    /// The value under `key`; null is as if it were absent.
    fn optional<'j, T>(
        &mut self,
        object: &'j Object,
        key: &str,
        read: impl FnOnce(&mut Self, &'j Json) -> Option<T>,
    ) -> Option<T> {
        let value = object.get(key).filter(|value| !value.is_null())?;
        self.at(key, |r| read(r, value))
    }

    fn required<'j, T>(
        &mut self,
        object: &'j Object,
        key: &str,
        read: impl FnOnce(&mut Self, &'j Json) -> Option<T>,
    ) -> Option<T> {
        if object.get(key).is_none_or(Json::is_null) {
            return self.fault("shape", format!("`{key}` is missing"));
        }
        self.optional(object, key, read)
    }

    fn text<'j>(&mut self, value: &'j Json) -> Option<&'j str> {
        match value.as_str() {
            Some(text) if text.trim().is_empty() => self.fault("empty", "is blank"),
            Some(text) if text.len() > self.limits.word_bytes => {
                self.fault("limit", format!("is longer than {} bytes", self.limits.word_bytes))
            }
            Some(text) => Some(text),
            None => self.fault("shape", "expected a text"),
        }
    }

    fn boolean(&mut self, value: &Json) -> Option<bool> {
        value.as_bool().or_else(|| self.fault("shape", "expected true or false"))
    }

    fn name<T: Copy>(&mut self, value: &Json, names: &[(&str, T)]) -> Option<T> {
        let text = self.text(value)?;
        names.iter().find(|(name, _)| *name == text).map(|(_, named)| *named).or_else(|| {
            let known: Vec<_> = names.iter().map(|(name, _)| *name).collect();
            let near = did_you_mean(text, known.iter().copied());
            self.fault("unknown_value", format!("{} is none of {}{near}", shown(text), known.join(", ")))
        })
    }

    fn list<'j, T>(
        &mut self,
        value: &'j Json,
        mut read: impl FnMut(&mut Self, &'j Json) -> Option<T>,
    ) -> Option<Vec<T>> {
        let Some(list) = value.as_array() else {
            return self.fault("shape", "expected a list");
        };
        if list.len() > self.limits.words {
            return self.fault("limit", format!("has more than {} entries", self.limits.words));
        }
        let mut read_all = Vec::with_capacity(list.len());
        for (index, entry) in list.iter().enumerate() {
            if self.full() {
                return None;
            }
            read_all.extend(self.at(&index.to_string(), |r| read(r, entry)));
        }
        (read_all.len() == list.len()).then_some(read_all)
    }

    fn filled<'j, T>(
        &mut self,
        value: &'j Json,
        read: impl FnMut(&mut Self, &'j Json) -> Option<T>,
    ) -> Option<Vec<T>> {
        let list = self.list(value, read)?;
        if list.is_empty() { self.fault("empty", "is empty, so it could never decide") } else { Some(list) }
    }

    fn distinct<T: PartialEq>(&mut self, list: Vec<T>, what: &str) -> Option<Vec<T>> {
        // These lists are short in earnest; a long one must not be compared pairwise.
        if list.len() > 256 {
            return self.fault("limit", format!("names more than 256 {what}"));
        }
        match list.iter().enumerate().find(|(index, entry)| list[..*index].contains(entry)) {
            Some((index, _)) => {
                self.at(&index.to_string(), |r| r.fault("duplicate", format!("the {what} occurs twice")))
            }
            None => Some(list),
        }
    }

    fn rule(&mut self, document: &Json) -> Option<Rule> {
        let object = self.object(document, &RULE_KEYS)?;
        let key = self.required(object, "rule", |r, v| r.text(v).map(RuleId::new));
        let name = self.optional(object, "name", |r, v| r.text(v).map(str::to_owned));
        let status = self.optional(object, "status", |r, v| {
            r.name(
                v,
                &[
                    ("draft", Status::Draft),
                    ("background", Status::Background),
                    ("live", Status::Live),
                    ("archived", Status::Archived),
                ],
            )
        });
        let expires_at = self.optional(object, "expires_at", Self::instant);
        let on = self.optional(object, "on", |r, v| {
            let on = [("item", On::Item), ("report", On::Report)];
            let list = r.filled(v, |r, v| r.name(v, &on))?;
            r.distinct(list, "cause")
        });
        let item_types = self.optional(object, "item_types", |r, v| {
            let list = r.list(v, |r, v| r.text(v).map(TypeId::new))?;
            r.distinct(list, "item type")
        });
        let when = self.required(object, "when", |r, v| r.condition(v, 1));
        let policies = self.optional(object, "policies", |r, v| {
            let list = r.list(v, |r, v| r.text(v).map(PolicyId::new))?;
            r.distinct(list, "policy")
        });
        let actions = self.optional(object, "actions", Self::actions);
        let life = self.life(object);
        let tests = self.optional(object, "tests", |r, v| r.list(v, Self::test));
        let key = key?;
        Some(Rule {
            name: name.unwrap_or_else(|| key.as_str().to_owned()),
            key,
            // A rule that does not say so must not act.
            status: status.unwrap_or(Status::Draft),
            expires_at,
            on: on.unwrap_or_else(|| vec![On::Item]),
            item_types: item_types.unwrap_or_default(),
            when: when?,
            policies: policies.unwrap_or_default(),
            actions: actions.unwrap_or_default(),
            life,
            tests: tests.unwrap_or_default(),
        })
    }

    fn instant(&mut self, value: &Json) -> Option<Millis> {
        let text = self.text(value)?;
        if datetime::is_finer(text) {
            return self.fault("type", FINER);
        }
        datetime::parse(text)
            .or_else(|| self.fault("shape", "expected an instant such as 2026-01-31T12:00:00.000Z"))
    }

    fn actions(&mut self, value: &Json) -> Option<Vec<ActionUse>> {
        let actions = self.list(value, |r, v| {
            if v.is_string() {
                return r.text(v).map(|id| ActionUse { id: ActionId::new(id), params: Map::new() });
            }
            let object = r.object(v, &["id", "params"])?;
            let id = r.required(object, "id", |r, v| r.text(v).map(ActionId::new));
            let params = r.optional(object, "params", |r, v| match v.as_object() {
                Some(params) => Some(params.clone()),
                None => r.fault("shape", "expected a mapping of parameters"),
            });
            Some(ActionUse { id: id?, params: params.unwrap_or_default() })
        })?;
        self.distinct(actions.iter().map(|action| &action.id).collect(), "action")?;
        Some(actions)
    }

    fn test(&mut self, value: &Json) -> Option<Test> {
        let object = self.object(value, &[&["name", "item_type", "item", "expect"], &AROUND[..]].concat())?;
        let name = self.optional(object, "name", |r, v| r.text(v).map(str::to_owned));
        let item_type = self.optional(object, "item_type", |r, v| r.text(v).map(TypeId::new));
        let item = self.required(object, "item", |r, v| match v {
            Json::Object(_) => Some(v.clone()),
            _ => r.fault("shape", "expected the `data` of an item"),
        });
        let around = self.around(object);
        let matches =
            self.required(object, "expect", |r, v| r.name(v, &[("match", true), ("no_match", false)]));
        Some(Test { name, item_type, item: item?, around, matches: matches? })
    }

    fn whole(&mut self, value: &Json) -> Option<i64> {
        value.as_i64().or_else(|| self.fault("type", "expected a whole number"))
    }

    fn condition(&mut self, value: &Json, depth: usize) -> Option<Condition> {
        if depth > self.limits.depth {
            return self.fault("depth", format!("is nested deeper than {} levels", self.limits.depth));
        }
        self.nodes += 1;
        if self.nodes > self.limits.nodes {
            // Said once: every further node would say the same.
            return if self.nodes == self.limits.nodes + 1 {
                self.fault("nodes", format!("the rule has more than {} conditions", self.limits.nodes))
            } else {
                None
            };
        }
        let object = self.object(value, &CONDITIONS)?;
        let named: Vec<_> = CONDITIONS.iter().filter(|name| present(object, name)).collect();
        if named.len() != 1 {
            self.fault::<()>("shape", format!("expected exactly one of {}", CONDITIONS.join(", ")));
        }
        // Of several all are read, for what is wrong in each.
        let read: Vec<_> = named.iter().map(|kind| self.of_kind(kind, &object[**kind], depth)).collect();
        match <[_; 1]>::try_from(read) {
            Ok([read]) => read,
            Err(_) => None,
        }
    }

    fn of_kind(&mut self, kind: &str, inner: &Json, depth: usize) -> Option<Condition> {
        self.at(kind, |r| match kind {
            "all" => r.filled(inner, |r, v| r.condition(v, depth + 1)).map(Condition::All),
            "any" => r.filled(inner, |r, v| r.condition(v, depth + 1)).map(Condition::Any),
            "not" => r.condition(inner, depth + 1).map(|c| Condition::Not(Box::new(c))),
            "text" => r.text_search(inner).map(Condition::Text),
            "field" => r.comparison(inner).map(Condition::Field),
            "strikes" => r.strikes(inner).map(Condition::Strikes),
            "count" => r.count(inner).map(Condition::Count),
            "media" => r.media(inner).map(Condition::Media),
            "score" => r.score(inner).map(Condition::Score),
            "geo" => r.geo(inner).map(Condition::Geo),
            "domain" => r.domain(inner).map(Condition::Domain),
            _ => r.expr(inner),
        })
    }

    fn expr(&mut self, value: &Json) -> Option<Condition> {
        let limit = self.limits.expr_bytes;
        let source = match value.as_str() {
            Some(source) if source.len() > limit => {
                return self.fault("limit", format!("is longer than {limit} bytes"));
            }
            Some(source) => source,
            None => return self.fault("shape", "expected a text"),
        };
        match expr::read(source) {
            Ok((condition, nodes)) => {
                self.nodes += nodes;
                Some(Condition::Expr(Box::new(condition)))
            }
            Err(wrong) => self.fault("expr", format!("at character {}: {}", wrong.at, wrong.what)),
        }
    }

    fn words(&mut self, value: &Json) -> Option<Vec<String>> {
        let words = self.filled(value, |r, v| r.text(v).map(str::to_owned))?;
        self.counted(words.len())?;
        Some(words)
    }

    fn counted(&mut self, words: usize) -> Option<()> {
        self.words += words;
        if self.words > self.limits.words {
            return self.fault("limit", format!("the rule lists more than {} words", self.limits.words));
        }
        Some(())
    }

    fn text_search(&mut self, value: &Json) -> Option<Text> {
        const SEARCHES: [&str; 5] = ["any_of", "all_of", "words", "regex", "bank"];
        let object = self.object(
            value,
            &[
                "in",
                "view",
                "word",
                "min_distinct",
                SEARCHES[0],
                SEARCHES[1],
                SEARCHES[2],
                SEARCHES[3],
                SEARCHES[4],
            ],
        )?;
        let fields = self.required(object, "in", |r, v| {
            let fields = r.filled(v, |r, v| r.text(v).map(str::to_owned))?;
            r.distinct(fields, "field")
        });
        let view = self.optional(object, "view", |r, v| r.name(v, &VIEWS));
        let word = self.optional(object, "word", Self::boolean);
        let distinct = self.optional(object, "min_distinct", |r, v| {
            let distinct = r.whole(v)?;
            usize::try_from(distinct)
                .ok()
                .filter(|n| *n >= 1)
                .or_else(|| r.fault("type", "expected 1 or more"))
        });
        let named: Vec<_> = SEARCHES.into_iter().filter(|name| present(object, name)).collect();
        // Whatever does not fit, the rest is read for its own faults.
        let mut fits = present(object, "min_distinct") == distinct.is_some();
        if named.len() != 1 {
            self.fault::<()>("shape", format!("expected exactly one of {}", SEARCHES.join(", ")));
            fits = false;
        }
        if word.is_some() && named.iter().any(|kind| !matches!(*kind, "any_of" | "all_of" | "bank")) {
            self.fault::<()>("shape", "`word` goes with any_of, all_of and bank only");
            fits = false;
        }
        let mut searches: Vec<_> = named.iter().map(|kind| self.search(object, kind, word)).collect();
        let (kind, search) = named.last().zip(searches.pop())?;
        let usual = if *kind == "regex" { View::Raw } else { View::Lower };
        let view = view.unwrap_or(usual);
        if *kind == "regex" && view > View::Lower {
            // A pattern has no folded form: it could name characters that the folded text never has.
            self.at("view", |r| r.fault::<()>("shape", "patterns search the views raw and lower only"));
            fits = false;
        }
        let search = search.filter(|_| fits)?;
        let count = match &search {
            Search::AnyOf { words, .. } | Search::AllOf { words, .. } => words.len(),
            Search::Regex(patterns) => patterns.len(),
            // How many there are is seen when it is at hand.
            Search::Bank { .. } => usize::MAX,
        };
        if distinct.is_some() && *kind == "all_of" {
            return self.fault("shape", "`all_of` asks for all of its words, whatever `min_distinct` says");
        }
        if distinct.is_some_and(|distinct| distinct > count) {
            return self
                .at("min_distinct", |r| r.fault("limit", format!("there are only {count} to be found")));
        }
        let min_distinct = if *kind == "all_of" { count } else { distinct.unwrap_or(1) };
        Some(Text { fields: fields?, view, search, min_distinct })
    }

    fn search(&mut self, text: &Object, kind: &str, word: Option<bool>) -> Option<Search> {
        let whole = word.unwrap_or(kind == "words");
        self.required(text, kind, |r, v| match kind {
            "regex" => r.regexes(v).map(Search::Regex),
            "bank" => r.text(v).map(|bank| Search::Bank { bank: BankId::new(bank), whole }),
            "all_of" => r.words(v).map(|words| Search::AllOf { words, whole }),
            _ => r.words(v).map(|words| Search::AnyOf { words, whole }),
        })
    }

    /// One pattern, or a list of which one must be found.
    fn regexes(&mut self, value: &Json) -> Option<Vec<String>> {
        let limit = self.limits.regex_source_bytes;
        let pattern = |r: &mut Self, v: &Json| match v.as_str() {
            Some("") => r.fault("empty", "the pattern is empty"),
            Some(text) if text.len() > limit => r.fault("limit", format!("is longer than {limit} bytes")),
            Some(text) => Some(text.to_owned()),
            None => r.fault("shape", "expected a pattern"),
        };
        let patterns =
            if value.is_array() { self.filled(value, pattern) } else { Some(vec![pattern(self, value)?]) }?;
        self.counted(patterns.len())?;
        Some(patterns)
    }

    fn comparison(&mut self, value: &Json) -> Option<Comparison> {
        let mut keys = vec!["path", "of", "ignore_case"];
        keys.extend(Op::NAMES.iter().map(|(name, _)| *name));
        let object = self.object(value, &keys)?;
        let path = self.required(object, "path", |r, v| r.text(v).map(str::to_owned));
        let mut tests = Vec::new();
        let mut complete = true;
        for (name, op) in Op::NAMES {
            let Some(operand) = object.get(name).filter(|operand| !operand.is_null()) else { continue };
            let read = self.at(name, |r| match op {
                Op::In | Op::NotIn => {
                    let count = r.filled(operand, Self::operand)?.len();
                    r.counted(count)
                }
                Op::StartsWith | Op::EndsWith | Op::Contains if operand.is_array() => {
                    let count = r.filled(operand, Self::part)?.len();
                    r.counted(count)
                }
                Op::StartsWith | Op::EndsWith | Op::Contains => r.part(operand),
                Op::Exists => r.boolean(operand).map(|_| ()),
                _ => r.operand(operand),
            });
            complete &= read.is_some();
            tests.push((op, operand.clone()));
        }
        let of = self.optional(object, "of", |r, v| {
            r.name(v, &[("any", Of::Any), ("all", Of::All), ("none", Of::None)])
        });
        let ignore_case = self.optional(object, "ignore_case", Self::boolean).unwrap_or_default();
        if let Some((name, _)) = Op::NAMES.iter().find(|(name, _)| object.contains_key(*name))
            && tests.is_empty()
        {
            let detail = "compares with nothing; `exists: false` asks for absence";
            return self.at(name, |r| r.fault("type", detail));
        }
        if tests.is_empty() {
            let ops: Vec<_> = Op::NAMES.iter().map(|(name, _)| *name).collect();
            return self
                .fault("shape", format!("compares nothing: expected one or more of {}", ops.join(", ")));
        }
        let contradicts = tests.len() > 1 && tests.contains(&(Op::Exists, Json::Bool(false)));
        if contradicts {
            self.fault::<()>("shape", "`exists: false` leaves nothing to compare");
            complete = false;
        }
        if of.is_some() && tests.iter().any(|(op, _)| *op == Op::Exists) {
            return self.fault("shape", "`of` speaks of values, and `exists` of the field");
        }
        complete.then_some(())?;
        Some(Comparison { path: path?, of, ignore_case, tests, container: None })
    }

    /// Every text has the empty one in it.
    fn part(&mut self, value: &Json) -> Option<()> {
        match value.as_str() {
            Some("") => self.fault("empty", "is empty"),
            _ => self.operand(value),
        }
    }

    fn operand(&mut self, value: &Json) -> Option<()> {
        match value {
            Json::Null => self.fault("type", "compares with nothing; `exists: false` asks for absence"),
            Json::Array(_) => self.fault("type", "expected one value; `in` compares with several"),
            Json::String(text) if text.len() > self.limits.word_bytes => {
                self.fault("limit", format!("is longer than {} bytes", self.limits.word_bytes))
            }
            Json::Object(object) => {
                let related = object.len() == 2
                    && ["typeId", "id"].iter().all(|key| object.get(*key).is_some_and(Json::is_string));
                let relative = object.len() == 1
                    && ["ago", "ahead"].iter().any(|key| {
                        object
                            .get(*key)
                            .and_then(Json::as_str)
                            .is_some_and(|span| Within::parse(span).is_some())
                    });
                if related || relative {
                    return Some(());
                }
                self.fault(
                    "type",
                    "expected a mapping with typeId and id, or with ago or ahead and a span such as 30d",
                )
            }
            _ => Some(()),
        }
    }

    fn strikes(&mut self, value: &Json) -> Option<Strikes> {
        let object = self.object(value, &["gte", "gt", "within"])?;
        let within = self.optional(object, "within", |r, v| {
            let text = r.text(v)?;
            Within::parse(text)
                .or_else(|| r.fault("type", "expected a span above nothing, such as 30d, 24h or 15m"))
        });
        let at_least = match (present(object, "gte"), present(object, "gt")) {
            (true, false) => self.required(object, "gte", Self::whole),
            (false, true) => self.required(object, "gt", Self::whole).map(|n| n.saturating_add(1)),
            _ => return self.fault("shape", "expected either `gte` or `gt`"),
        }?;
        if at_least < 1 {
            return self.fault("type", "every user has no strikes: expected a larger number");
        }
        if present(object, "within") && within.is_none() {
            return None;
        }
        Some(Strikes { at_least, within })
    }
}
