//! Checks rules against the item types that exist, and turns each into what evaluation runs.
//!
//! It does not read documents and evaluates nothing.

mod examples;
mod salvage;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use tidegate_schemas::{
    banks::BankKind,
    documents::{DocumentKind, Missing},
    ids::{BankId, Millis, TypeId, WindowId},
};

use crate::{
    bank::{Bank, BankEntry},
    counting::Counting,
    faults::{FAULTS_LISTED, Fault, LISTED_IN_ALL, Warning, did_you_mean, shown},
    form::{self, Condition, On, Status, Test},
    leaves::Leaf,
    limits::Limits,
    outcome::Named,
    plan::{RuleHead, RuleSource},
    views::Path,
    vocabulary::{Container, Kind, Route, Vocabulary},
};

/// A rule, ready to run.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) head: RuleHead,
    pub(crate) expires_at: Option<Millis>,
    pub(crate) on: Vec<On>,
    /// Empty: all.
    pub(crate) item_types: HashSet<TypeId>,
    pub(crate) when: Node,
    /// The predicates of the tree's leaves, in document order.
    pub(crate) leaves: Vec<u32>,
    pub(crate) tests: Vec<Test>,
}

impl Rule {
    pub(crate) fn speaks_of(&self, item_type: &TypeId) -> bool {
        self.item_types.is_empty() || self.item_types.contains(item_type)
    }
}

/// A condition tree over numbered leaves, numbered in document order.
#[derive(Debug)]
pub(crate) enum Node {
    All(Vec<Node>),
    Any(Vec<Node>),
    Not(Box<Node>),
    Leaf(usize),
}

/// What compilation yields.
#[derive(Debug, Default)]
pub(crate) struct Compiled {
    pub(crate) rules: Vec<Arc<Rule>>,
    /// The conditions of all rules, equal ones once.
    pub(crate) predicates: Vec<Leaf>,
    pub(crate) paths: Vec<Path>,
    pub(crate) windows: Vec<Counting>,
    pub(crate) warnings: Vec<Warning>,
}

pub(crate) fn compile(
    sources: &[RuleSource<'_>],
    vocabulary: &Vocabulary,
    limits: &Limits,
) -> Result<Compiled, Vec<Fault>> {
    if sources.len() > limits.rules {
        let detail = format!("{} rules are more than {}", sources.len(), limits.rules);
        return Err(vec![Fault::new("rule", "", "", "limit", detail)]);
    }
    let mut context = Context::new(vocabulary, limits);
    context.define_windows();
    let mut keys = HashSet::new();
    let mut rules = Vec::with_capacity(sources.len());
    for source in sources {
        if context.faults.len() >= LISTED_IN_ALL {
            break;
        }
        match form::parse(source.document, limits) {
            Ok(rule) => {
                context.enter(&rule);
                if !keys.insert(rule.key.clone()) {
                    context.fault("duplicate", "another rule has the same key".to_owned());
                }
                // Checked as well, so that an archived rule that comes back does not bring faults along.
                let archived = rule.status == Status::Archived;
                rules.extend(context.rule(rule, source.version).filter(|_| !archived).map(Arc::new));
            }
            Err(faults) => {
                // The rest of it is checked all the same; what it compiles to is not used.
                let rest = salvage::readable(source.document, &faults);
                context.faults.extend(faults);
                if let Some(Ok(rule)) = rest.map(|rest| form::parse(&rest, limits)) {
                    context.enter(&rule);
                    context.rule(rule, source.version);
                }
            }
        }
    }
    if !context.faults.is_empty() {
        if context.faults.len() >= LISTED_IN_ALL {
            context.faults.truncate(LISTED_IN_ALL);
            let detail =
                format!("there may be more than these {LISTED_IN_ALL} faults: the rest was not looked at");
            context.faults.push(Fault::new("rule", "", "", "limit", detail));
        }
        return Err(context.faults);
    }
    context.name_unused_windows();
    context.name_further_warnings();
    let Context { predicates, paths, windows, warnings, .. } = context;
    Ok(Compiled { rules, predicates, paths, windows, warnings })
}

/// Where compilation is, and what it has gathered.
pub(crate) struct Context<'a> {
    pub(crate) limits: &'a Limits,
    pub(crate) vocabulary: &'a Vocabulary,
    kind: &'static str,
    rule: String,
    pointer: String,
    item_types: Vec<TypeId>,
    /// Only what the item alone decides may be compiled.
    local: bool,
    /// In an expression: faults name it as a whole.
    in_expr: bool,
    pub(crate) windows: Vec<Counting>,
    /// Windows with faults of their own: that they are missing is no fault of the rules that name them.
    pub(crate) faulty_windows: HashSet<String>,
    words: usize,
    regexes: usize,
    slots: HashMap<Path, usize>,
    paths: Vec<Path>,
    predicates: Vec<Leaf>,
    /// By identity: the predicate, and the warnings that each of its uses deserves.
    known: HashMap<String, (u32, Vec<Warning>)>,
    faults: Vec<Fault>,
    /// How many there were before this document.
    faults_before: usize,
    warnings: Vec<Warning>,
    /// By kind: how many there are, also of those that are not kept.
    warned: HashMap<&'static str, usize>,
}

impl<'a> Context<'a> {
    fn new(vocabulary: &'a Vocabulary, limits: &'a Limits) -> Self {
        Self {
            limits,
            vocabulary,
            kind: "rule",
            rule: String::new(),
            pointer: String::new(),
            item_types: Vec::new(),
            local: false,
            in_expr: false,
            windows: Vec::new(),
            faulty_windows: HashSet::new(),
            words: 0,
            regexes: 0,
            slots: HashMap::new(),
            paths: Vec::new(),
            predicates: Vec::new(),
            known: HashMap::new(),
            faults: Vec::new(),
            faults_before: 0,
            warnings: Vec::new(),
            warned: HashMap::new(),
        }
    }

    fn enter(&mut self, rule: &form::Rule) {
        self.turn_to("rule", rule.key.as_str(), &rule.item_types);
    }

    /// From now on faults and paths are those of this document.
    pub(crate) fn turn_to(&mut self, kind: &'static str, key: &str, item_types: &[TypeId]) {
        self.faults_before = self.faults.len();
        self.kind = kind;
        key.clone_into(&mut self.rule);
        self.pointer.clear();
        self.item_types = item_types.to_vec();
        self.local = kind != "rule";
    }

    /// A window by its key.
    pub(crate) fn window(&self, key: &WindowId) -> Option<&Counting> {
        self.windows.iter().find(|known| known.window.key == *key)
    }

    /// Remembers that a condition asks about a window.
    pub(crate) fn uses(&mut self, key: &WindowId) {
        if let Some(window) = self.windows.iter_mut().find(|known| known.window.key == *key) {
            window.used = true;
        }
    }

    pub(crate) fn take_faults(&mut self, faults: Vec<Fault>) {
        let room = LISTED_IN_ALL.saturating_sub(self.faults.len());
        self.faults.extend(faults.into_iter().take(room));
    }

    pub(crate) fn fault(&mut self, tag: &'static str, detail: String) {
        self.keep_fault(Fault::new(self.kind, &self.rule, &self.pointer, tag, detail));
    }

    pub(crate) fn missing(&mut self, what: Missing, detail: String) {
        let tag = match what {
            Missing::Document(DocumentKind::ItemType, _) => "unknown_item_type",
            Missing::Document(DocumentKind::Window, _) => "unknown_window",
            Missing::Document(..) => "unknown_bank",
            Missing::Field => "unknown_field",
        };
        let fault = Fault::new(self.kind, &self.rule, &self.pointer, tag, detail);
        self.keep_fault(fault.of(what));
    }

    fn keep_fault(&mut self, fault: Fault) {
        if self.faults.len() < LISTED_IN_ALL.min(self.faults_before + FAULTS_LISTED) {
            self.faults.push(fault);
        }
    }

    pub(crate) fn warn(&mut self, tag: &'static str, detail: String) {
        self.keep(Warning::new(self.kind, &self.rule, &self.pointer, tag, detail));
    }

    fn keep(&mut self, warning: Warning) {
        let of_kind = self.warned.entry(warning.tag()).or_default();
        *of_kind += 1;
        if *of_kind <= LISTED_IN_ALL {
            self.warnings.push(warning);
        }
    }

    /// Says how many warnings are not kept.
    fn name_further_warnings(&mut self) {
        for (tag, count) in std::mem::take(&mut self.warned) {
            if count > LISTED_IN_ALL {
                let detail = format!("and {} more warnings of this kind, `{tag}`", count - LISTED_IN_ALL);
                self.warnings.push(Warning::new("rule", "", "", tag, detail));
            }
        }
    }

    pub(crate) fn at<T>(&mut self, segment: impl std::fmt::Display, run: impl FnOnce(&mut Self) -> T) -> T {
        if self.in_expr {
            return run(self);
        }
        let length = self.pointer.len();
        self.pointer = format!("{}/{segment}", self.pointer);
        let result = run(self);
        self.pointer.truncate(length);
        result
    }

    pub(crate) fn count_words(&mut self, words: usize) -> Option<()> {
        let most = self.limits.words_in_all;
        self.words = self.words.saturating_add(words);
        if self.words > most {
            self.fault("limit", format!("all rules together list more than {most} words"));
        }
        (self.words <= most).then_some(())
    }

    pub(crate) fn count_regex(&mut self) -> Option<()> {
        let most = self.limits.regexes_in_all;
        self.regexes += 1;
        if self.regexes > most {
            self.fault("limit", format!("all rules together have more than {most} regular expressions"));
        }
        (self.regexes <= most).then_some(())
    }

    /// How the item types of the rule read a path.
    pub(crate) fn resolved(&self, path: &str) -> Vec<(&TypeId, Route, Kind)> {
        self.vocabulary.resolve(&self.item_types, path)
    }

    /// The number of a condition's predicate; a condition that is known already is not compiled again.
    fn predicate(&mut self, condition: Condition) -> Option<u32> {
        let identity = Leaf::identity(&condition, self)?;
        if let Some((predicate, warnings)) = self.known.get(&identity) {
            let warnings: Vec<_> =
                warnings.iter().map(|it| it.moved(self.kind, &self.rule, &self.pointer)).collect();
            let predicate = *predicate;
            warnings.into_iter().for_each(|warning| self.keep(warning));
            return Some(predicate);
        }
        let (before, depth) = (self.warnings.len(), self.pointer.len());
        let leaf = Leaf::compile(condition, self)?;
        let predicate = u32::try_from(self.predicates.len()).ok()?;
        self.predicates.push(leaf);
        let warnings = self.warnings[before..].iter().map(|warning| warning.below(depth)).collect();
        self.known.insert(identity, (predicate, warnings));
        Some(predicate)
    }

    /// A bank of one of these kinds.
    pub(crate) fn bank(&mut self, key: &BankId, kinds: &[BankKind]) -> Option<&'a Bank> {
        let banks = self.vocabulary.banks();
        self.at("bank", |c| {
            let Some(bank) = banks.iter().find(|bank| bank.key == *key) else {
                let near = did_you_mean(key.as_str(), banks.iter().map(|bank| bank.key.as_str()));
                let detail = format!("there is no bank {}{near}", shown(key.as_str()));
                c.missing(Missing::Document(DocumentKind::Bank, key.to_string()), detail);
                return None;
            };
            if !kinds.contains(&bank.kind) {
                let (key, kind) = (shown(key.as_str()), bank.kind.name());
                let wanted: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
                c.fault(
                    "type",
                    format!("the bank {key} is of kind {kind}; expected {}", wanted.join(" or ")),
                );
                return None;
            }
            Some(bank)
        })
    }

    /// Leaves an entry out: one that came into a bank later must not stop the rules that were there before.
    pub(crate) fn unusable(&mut self, bank: &BankId, entry: &BankEntry, why: &str) {
        let (bank, id) = (shown(bank.as_str()), shown(&entry.id));
        self.at("bank", |c| {
            c.warn("unusable_entry", format!("entry {id} of bank {bank} is left out: {why}"));
        });
    }

    /// What a path holds, the same in all item types of the rule: one value, or several.
    pub(crate) fn container(&mut self, path: &str) -> Option<Container> {
        let vocabulary = self.vocabulary;
        let types = self.item_types.clone();
        let mut containers = vocabulary.containers(&types, path);
        let (first, container) = containers.next()?;
        if let Some((other, _)) = containers.find(|(_, other)| *other != container) {
            let detail = format!(
                "{} holds one value in {first} and several in {other}, or the other way round",
                shown(path)
            );
            self.fault("type", detail);
            return None;
        }
        Some(container)
    }

    /// Whether a path holds one value in all item types of the rule.
    pub(crate) fn is_single(&self, path: &str) -> bool {
        self.vocabulary.containers(&self.item_types, path).all(|(_, container)| container == Container::One)
    }

    /// The slot of a path, and the kinds that it has in the item types of the rule.
    pub(crate) fn path(&mut self, path: &str) -> Option<(usize, Vec<(&'a TypeId, Kind)>)> {
        let (slot, kinds) = self.path_as_declared(path)?;
        Some((slot, kinds.into_iter().map(|(type_id, kind)| (type_id, kind.plain())).collect()))
    }

    /// The slots of the paths below `in`, each a text in all item types of the rule; `what` a field is not that is none.
    pub(crate) fn texts(&mut self, paths: &[String], what: &str) -> Option<Vec<usize>> {
        let mut slots = Vec::with_capacity(paths.len());
        self.at("in", |c| {
            for (nth, path) in paths.iter().enumerate() {
                slots.extend(c.at(nth, |c| {
                    let (slot, kinds) = c.path(path)?;
                    if let Some((type_id, kind)) = kinds.iter().find(|(_, kind)| *kind != Kind::Text) {
                        let (path, kind) = (shown(path), kind.name());
                        c.fault("type", format!("{path} of item type {type_id} is {kind}, and no {what}"));
                        return None;
                    }
                    Some(slot)
                }));
            }
        });
        (slots.len() == paths.len()).then_some(slots)
    }

    /// The slot of a path that has this kind in all item types of the rule.
    pub(crate) fn path_of(&mut self, path: &str, wanted: Kind, name: &str) -> Option<usize> {
        let (slot, kinds) = self.path_as_declared(path)?;
        if let Some((type_id, kind)) = kinds.iter().find(|(_, kind)| *kind != wanted) {
            let (path, kind) = (shown(path), kind.name());
            self.fault(
                "type",
                format!("{path} of item type {type_id} is {kind}; expected a field of type {name}"),
            );
            return None;
        }
        Some(slot)
    }

    /// The slot of a path with kinds as they are declared: a geohash is more than a text.
    pub(crate) fn path_as_declared(&mut self, path: &str) -> Option<(usize, Vec<(&'a TypeId, Kind)>)> {
        let vocabulary = self.vocabulary;
        let resolved = vocabulary.resolve(&self.item_types, path);
        if resolved.is_empty() {
            let near = did_you_mean(path, vocabulary.fields(&self.item_types));
            let detail = format!("no item type of the rule has a field {}{near}", shown(path));
            self.missing(Missing::Field, detail);
            return None;
        }
        let mut routes: Vec<Route> = Vec::new();
        let mut kinds = Vec::with_capacity(resolved.len());
        for (type_id, route, kind) in resolved {
            if !routes.contains(&route) {
                routes.push(route);
            }
            // The tree holds type ids for the vocabulary's life, so faults can name them without copies.
            kinds.push((vocabulary.types().find(|known| *known == type_id)?, kind));
        }
        let path = Path { name: path.to_owned(), routes };
        let next = self.paths.len();
        let slot = *self.slots.entry(path).or_insert_with_key(|path| {
            self.paths.push(path.clone());
            next
        });
        Some((slot, kinds))
    }

    /// Whether all item types that a document names exist.
    pub(crate) fn known_types(&mut self, item_types: &[TypeId]) -> Option<()> {
        let vocabulary = self.vocabulary;
        self.at("item_types", |c| {
            for (nth, type_id) in item_types.iter().enumerate() {
                if !vocabulary.knows(type_id) {
                    let near = did_you_mean(type_id.as_str(), vocabulary.types().map(TypeId::as_str));
                    let detail = format!("there is no item type {}{near}", shown(type_id.as_str()));
                    let missing = Missing::Document(DocumentKind::ItemType, type_id.to_string());
                    c.at(nth, |c| c.missing(missing, detail));
                }
            }
        });
        item_types.iter().all(|type_id| vocabulary.knows(type_id)).then_some(())
    }

    fn rule(&mut self, rule: form::Rule, version: &str) -> Option<Rule> {
        self.known_types(&rule.item_types)?;
        examples::check(&rule, self);
        let mut leaves = Vec::new();
        let when = self.at("when", |c| c.node(rule.when, &mut leaves));
        Some(Rule {
            head: RuleHead {
                named: Arc::new(Named {
                    rule: rule.key,
                    name: rule.name,
                    version: version.to_owned(),
                    status: rule.status,
                    policies: rule.policies,
                    actions: rule.actions,
                }),
                life: rule.life,
            },
            expires_at: rule.expires_at,
            on: rule.on,
            item_types: rule.item_types.into_iter().collect(),
            when: when?,
            leaves,
            tests: rule.tests,
        })
    }

    pub(crate) fn node(&mut self, condition: Condition, leaves: &mut Vec<u32>) -> Option<Node> {
        match condition {
            Condition::All(inner) => self.at("all", |c| c.nodes(inner, leaves)).map(Node::All),
            Condition::Any(inner) => self.at("any", |c| c.nodes(inner, leaves)).map(Node::Any),
            Condition::Not(inner) => {
                self.at("not", |c| c.node(*inner, leaves)).map(|node| Node::Not(Box::new(node)))
            }
            Condition::Expr(inner) => self.at("expr", |c| {
                c.in_expr = true;
                let node = c.node(*inner, leaves);
                c.in_expr = false;
                node
            }),
            leaf if self.local && Leaf::looks_up(&leaf) => {
                self.fault("shape", "a window counts what the item alone decides".to_owned());
                None
            }
            leaf => {
                leaves.push(self.predicate(leaf)?);
                Some(Node::Leaf(leaves.len() - 1))
            }
        }
    }

    fn nodes(&mut self, conditions: Vec<Condition>, leaves: &mut Vec<u32>) -> Option<Vec<Node>> {
        let wanted = conditions.len();
        let mut nodes = Vec::with_capacity(wanted);
        for (nth, condition) in conditions.into_iter().enumerate() {
            nodes.extend(self.at(nth, |c| c.node(condition, leaves)));
        }
        (nodes.len() == wanted).then_some(nodes)
    }
}
