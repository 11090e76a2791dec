//! Checks rules against the item types of the vocabulary, and compiles them for evaluation.

mod examples;
mod references;
pub(crate) mod windows;

use std::{
    collections::{HashMap, HashSet},
    ops::Deref,
    sync::Arc,
};

use serde_json::{Value as Json, json};
use tidegate_schemas::ids::{Millis, RuleId, TypeId};

use self::{references::References, windows::CountingWindow};
use crate::{
    enforcement::Enforcement,
    error::{ERRORS_LISTED_IN_ALL, RuleError, Warning, quote},
    fields::Path,
    item::Trigger,
    leaves::{Leaf, LeafSpec, context::Context},
    limits::Limits,
    logic::{Node, RuleUse},
    outcome::RuleInfo,
    syntax::{self, Condition, Status, Test},
    vocabulary::Vocabulary,
};

/// Document of a rule, with the version under which its matches are recorded.
#[derive(Clone, Copy, Debug)]
pub struct RuleSource<'a> {
    /// The `policies` are ids of the service: the caller has replaced their keys.
    pub document: &'a Json,
    /// Hash of the content, computed by the caller.
    pub version: &'a str,
}

/// Identity and effects of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleHead {
    /// Shared with the rule's matches.
    pub info: Arc<RuleInfo>,
    pub enforcement: Enforcement,
}

impl Deref for RuleHead {
    type Target = RuleInfo;

    fn deref(&self) -> &RuleInfo {
        &self.info
    }
}

/// Compiled rule.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) head: RuleHead,
    pub(crate) expires_at: Option<Millis>,
    pub(crate) on: Vec<Trigger>,
    /// Empty for all types.
    pub(crate) item_types: HashSet<TypeId>,
    pub(crate) when: Node,
    /// Predicates of the tree's leaves, in document order.
    pub(crate) leaves: Vec<u32>,
    /// Nodes that are conditions of other rules, in preorder.
    pub(crate) uses: Vec<RuleUse>,
    pub(crate) tests: Vec<Test>,
}

impl Rule {
    pub(crate) fn applies_to_type(&self, item_type: &TypeId) -> bool {
        self.item_types.is_empty() || self.item_types.contains(item_type)
    }
}

/// Result of a compilation.
#[derive(Debug, Default)]
pub(crate) struct CompiledRules {
    pub(crate) rules: Vec<Arc<Rule>>,
    /// Distinct conditions of all rules.
    pub(crate) predicates: Vec<Leaf>,
    pub(crate) paths: Vec<Path>,
    pub(crate) windows: Vec<CountingWindow>,
    pub(crate) warnings: Vec<Warning>,
}

/// Compiles rules in their order. Returns the errors of all rules.
pub(crate) fn compile(
    sources: &[RuleSource<'_>],
    vocabulary: &Vocabulary,
    limits: &Limits,
) -> Result<CompiledRules, Vec<RuleError>> {
    if sources.len() > limits.rules {
        let detail = format!(
            "there are {} rules, the limit is {}: archive some, or raise `rules`",
            sources.len(),
            limits.rules
        );
        return Err(vec![RuleError::new("rule", "", "", "limit", detail)]);
    }
    let references = References::read(sources, limits);
    let mut compiler = Compiler {
        context: Context::new(vocabulary, limits),
        references: &references,
        predicates: Vec::new(),
        predicates_by_identity: HashMap::new(),
    };
    // Windows are compiled first, because conditions of rules refer to them.
    let windows = compiler.compile_windows();
    let mut keys = HashSet::new();
    let mut rules = Vec::with_capacity(sources.len());
    for source in sources {
        // Further errors would not be listed.
        if compiler.context.errors.len() >= ERRORS_LISTED_IN_ALL {
            break;
        }
        match syntax::parse(source.document, limits) {
            Ok(rule) => {
                compiler.context.start_document("rule", rule.key.as_str(), &rule.item_types);
                if !keys.insert(rule.key.clone()) {
                    compiler
                        .context
                        .error("duplicate", "another rule has the same key: rename one".to_owned());
                }
                // Archived rules are checked too, so that a restored rule has no errors.
                let is_archived = rule.status == Status::Archived;
                rules.extend(
                    compiler.compile_rule(rule, source.version).filter(|_| !is_archived).map(Arc::new),
                );
            }
            Err(errors) => {
                // The valid parts are checked too, so that one answer lists all errors. Their compiled form is not used.
                let valid_parts = replace_faulty_parts(source.document, &errors);
                compiler.context.errors.extend(errors);
                if let Some(Ok(rule)) = valid_parts.map(|document| syntax::parse(&document, limits)) {
                    compiler.context.start_document("rule", rule.key.as_str(), &rule.item_types);
                    compiler.compile_rule(rule, source.version);
                }
            }
        }
    }
    let Compiler { mut context, predicates, .. } = compiler;
    if !context.errors.is_empty() {
        if context.errors.len() >= ERRORS_LISTED_IN_ALL {
            context.errors.truncate(ERRORS_LISTED_IN_ALL);
            let detail = format!(
                "there may be more than these {ERRORS_LISTED_IN_ALL} errors: the rest was not checked"
            );
            context.errors.push(RuleError::new("rule", "", "", "limit", detail));
        }
        return Err(context.errors);
    }
    windows::warn_of_unused(&mut context);
    context.summarize_further_warnings();
    let Context { paths, warnings, .. } = context;
    Ok(CompiledRules { rules, predicates, paths, windows, warnings })
}

/// Condition tree under compilation.
#[derive(Default)]
struct Tree {
    /// Predicates of the leaves, in document order.
    leaves: Vec<u32>,
    /// Number of nodes so far, in preorder.
    nodes: usize,
    uses: Vec<RuleUse>,
}

/// Rules under compilation.
struct Compiler<'a> {
    context: Context<'a>,
    references: &'a References<'a>,
    predicates: Vec<Leaf>,
    /// Predicates by identity, each with the warnings that each of its uses repeats.
    predicates_by_identity: HashMap<String, (u32, Vec<Warning>)>,
}

impl Compiler<'_> {
    fn at<T>(&mut self, segment: impl std::fmt::Display, run: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.context.push_segment(segment);
        let result = run(self);
        self.context.pointer.truncate(length);
        result
    }

    fn compile_rule(&mut self, rule: syntax::Rule, version: &str) -> Option<Rule> {
        let errors = self.references.check_uses(&rule, self.context.limits);
        let has_valid_uses = errors.is_empty();
        errors.into_iter().for_each(|error| self.context.push_error(error));
        self.context.check_item_types(&rule.item_types)?;
        if !has_valid_uses {
            return None;
        }
        examples::check_tests(&rule, self.references, &mut self.context);
        let mut tree = Tree::default();
        let node = self.at("when", |c| c.compile_node(rule.when, &mut tree));
        Some(Rule {
            head: RuleHead {
                info: Arc::new(RuleInfo {
                    rule: rule.key,
                    name: rule.name,
                    version: version.to_owned(),
                    status: rule.status,
                    policies: rule.policies,
                    actions: rule.actions,
                }),
                enforcement: rule.enforcement,
            },
            expires_at: rule.expires_at,
            on: rule.on,
            item_types: rule.item_types.into_iter().collect(),
            when: node?,
            leaves: tree.leaves,
            uses: tree.uses,
            tests: rule.tests,
        })
    }

    fn compile_node(&mut self, condition: Condition, tree: &mut Tree) -> Option<Node> {
        // An expression or a use of a rule has no node of its own: its inner condition takes its place.
        if !matches!(condition, Condition::Expr(_) | Condition::Rule(_)) {
            tree.nodes += 1;
        }
        match condition {
            Condition::All(inner) => self.at("all", |c| c.compile_nodes(inner, tree)).map(Node::All),
            Condition::Any(inner) => self.at("any", |c| c.compile_nodes(inner, tree)).map(Node::Any),
            Condition::Not(inner) => {
                self.at("not", |c| c.compile_node(*inner, tree)).map(|node| Node::Not(Box::new(node)))
            }
            Condition::Expr(inner) => self.at("expr", |c| {
                c.context.is_in_expr = true;
                let node = c.compile_node(*inner, tree);
                c.context.is_in_expr = false;
                node
            }),
            Condition::Leaf(leaf) if self.context.is_local && leaf.looks_up() => {
                self.context.error("shape", "the condition of a window can use fields of the item only: remove strikes, count, media, score and model_text".to_owned());
                None
            }
            Condition::Leaf(leaf) => {
                tree.leaves.push(self.intern_predicate(leaf)?);
                Some(Node::Leaf(tree.leaves.len() - 1))
            }
            Condition::Rule(_) if self.context.is_local => {
                let detail =
                    "the condition of a window cannot use rules: repeat the condition of the rule instead";
                self.context.error("shape", detail.to_owned());
                None
            }
            Condition::Rule(key) => self.at("rule", |c| c.compile_rule_use(key, tree)),
        }
    }

    fn compile_nodes(&mut self, conditions: Vec<Condition>, tree: &mut Tree) -> Option<Vec<Node>> {
        let count = conditions.len();
        let mut nodes = Vec::with_capacity(count);
        // All parts are compiled before failing, so that each reports its own errors.
        for (nth, condition) in conditions.into_iter().enumerate() {
            nodes.extend(self.at(nth, |c| c.compile_node(condition, tree)));
        }
        (nodes.len() == count).then_some(nodes)
    }

    /// Compiles the condition of another rule for the item types of this one. Errors refer to the use, because this document
    /// does not contain that condition.
    fn compile_rule_use(&mut self, key: RuleId, tree: &mut Tree) -> Option<Node> {
        // A missing or faulty rule is reported at its cause.
        let condition = self.references.condition(&key)?.clone();
        let (errors_before, warnings_before) = (self.context.errors.len(), self.context.warnings.len());
        let rule_name = quote(key.as_str());
        tree.uses.push(RuleUse { node: tree.nodes, rule: key });
        let node = self.compile_node(condition, tree);
        let context = &mut self.context;
        for error in &mut context.errors[errors_before..] {
            error.pointer.clone_from(&context.pointer);
            error.detail = format!("in the condition of rule {rule_name}: {}", error.detail);
        }
        // The other rule already has these warnings.
        context.drop_warnings(warnings_before);
        node
    }

    /// Returns the number of a condition's predicate. Compiles the condition unless an equal one exists.
    fn intern_predicate(&mut self, spec: LeafSpec) -> Option<u32> {
        let context = &mut self.context;
        let identity = spec.identity(context);
        // An equal condition is evaluated once, but each of its uses reports the warnings at its own path.
        if let Some((predicate, warnings)) = self.predicates_by_identity.get(&identity) {
            let relocate =
                |warning: &Warning| warning.relocate(context.kind, &context.rule, &context.pointer);
            let warnings: Vec<_> = warnings.iter().map(relocate).collect();
            warnings.into_iter().for_each(|warning| context.push_warning(warning));
            return Some(*predicate);
        }
        let (warnings_before, depth) = (context.warnings.len(), context.pointer.len());
        let leaf = Leaf::compile(spec, context)?;
        let predicate = u32::try_from(self.predicates.len()).ok()?;
        self.predicates.push(leaf);
        let warnings = context.warnings[warnings_before..]
            .iter()
            .map(|warning| warning.with_path_below(depth))
            .collect();
        self.predicates_by_identity.insert(identity, (predicate, warnings));
        Some(predicate)
    }
}

/// Returns the document with valid conditions in place of faulty ones, and without other faulty keys. `None` if the key of
/// the rule is faulty. The remaining parts keep their paths.
fn replace_faulty_parts(document: &Json, errors: &[RuleError]) -> Option<Json> {
    let mut document = document.clone();
    for error in errors {
        let steps: Vec<&str> = error.pointer.split('/').skip(1).collect();
        match steps.as_slice() {
            [] | ["rule", ..] => return None,
            ["when", rest @ ..] => {
                let node = find_innermost(document.get_mut("when")?, rest);
                // A condition that is valid in every rule and adds no errors.
                *node = json!({"strikes": {"gte": 1}});
            }
            [key, ..] => drop(document.as_object_mut()?.remove(*key)),
        }
    }
    Some(document)
}

/// Innermost condition on the path.
fn find_innermost<'d>(node: &'d mut Json, steps: &[&str]) -> &'d mut Json {
    let inner = match steps {
        [of @ ("all" | "any"), nth, ..]
            if nth.parse::<usize>().is_ok_and(|nth| node[*of].get(nth).is_some()) =>
        {
            2
        }
        ["not", ..] if node.get("not").is_some() => 1,
        _ => return node,
    };
    let (path, later_steps) = steps.split_at(inner);
    let inner = path.iter().fold(node, |node, step| match step.parse::<usize>() {
        Ok(nth) => &mut node[nth],
        Err(_) => &mut node[*step],
    });
    find_innermost(inner, later_steps)
}
