//! All rules of an organisation as one plan, evaluated in two phases: [`Plan::scan`] with the item alone, [`Plan::finish`]
//! with the facts that the caller looked up. Single conditions are evaluated in `leaves`.

mod explain;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    convert::Infallible,
    sync::Arc,
};

use tidegate_schemas::ids::{Millis, RuleId, TypeId, WindowId};

use crate::{
    compile::{self, Rule, RuleHead, RuleSource, windows::CountingWindow},
    enforcement::OnError,
    engine::{
        Run,
        index::Index,
        precheck::Precheck,
        scratch::Scratch,
        windows::{self, WindowAdditions},
        witness::Costs,
    },
    error::{RuleError, Warning},
    facts::{Facts, Need},
    fields::{FieldCache, Path},
    item::{Item, Trigger},
    leaves::{self, Explained, Leaf, input::EvalInput},
    limits::{Interrupt, Limits, OutOfSteps, Steps},
    lint,
    logic::{self, Mask},
    outcome::{Match, Outcome, RuleFailure},
    overload::{self, Overload},
    search::hashing::BuildFastHasher,
    syntax::{Status, Test},
    vocabulary::{Addresses, Vocabulary},
    windows::{Window, WindowEntry},
};

pub use self::explain::PendingExplanation;

/// Compiled rules. Immutable; one serves all threads.
#[derive(Debug)]
pub struct Plan {
    rules: Vec<Arc<Rule>>,
    rule_numbers: HashMap<RuleId, u32>,
    /// Candidates by rule.
    candidates: Vec<Candidate>,
    predicates: Vec<Leaf>,
    paths: Vec<Path>,
    addresses: Addresses,
    windows: Vec<CountingWindow>,
    /// Indices of the windows of each item type.
    windows_by_type: HashMap<TypeId, Box<[usize]>, BuildFastHasher>,
    indexes: Vec<Index>,
    type_indexes: TypeIndexes,
    /// Number of words of the largest scan.
    word_count: usize,
    /// Number of values that the guards of the largest index watch.
    watched_values: usize,
    limits: Limits,
    /// Warnings of the compilation.
    compile_warnings: Vec<Warning>,
}

/// Size of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanSize {
    pub rules: usize,
    /// Conditions of all rules; `predicates` counts the distinct ones.
    pub conditions: usize,
    pub predicates: usize,
    pub text_predicates: usize,
    /// Rules of one item type that are evaluated for each item, because no value indexes them.
    pub unindexed: usize,
    /// Words searched in each text.
    pub words: usize,
    /// Memory of the search for these words.
    pub search_bytes: usize,
}

/// Index and text paths that serve an item type.
#[derive(Clone, Debug)]
struct TypeIndex {
    index: usize,
    /// Paths of the texts that the rules of the index search.
    text_paths: Box<[usize]>,
}

#[derive(Debug)]
struct TypeIndexes {
    by_type: HashMap<TypeId, TypeIndex, BuildFastHasher>,
    /// Serves item types outside of the vocabulary.
    fallback: TypeIndex,
    /// True if all item types use one index.
    is_shared: bool,
}

/// Data of a rule that every evaluation as a candidate reads, in one cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Candidate {
    /// Bit set of the events that trigger the rule.
    on: u8,
    expires_at: Millis,
    precheck: Precheck,
    rule: Arc<Rule>,
}

impl Candidate {
    fn new(rule: &Arc<Rule>, costs: &Costs) -> Self {
        Self {
            on: rule.on.iter().fold(0, |on, event| on | event_bit(*event)),
            expires_at: rule.expires_at.unwrap_or(Millis(i64::MAX)),
            precheck: Precheck::new(rule, costs),
            rule: Arc::clone(rule),
        }
    }
}

fn event_bit(on: Trigger) -> u8 {
    match on {
        Trigger::Item => 1,
        Trigger::Report => 2,
        Trigger::Appeal => 4,
    }
}

/// Result of the first phase. Owns its data, so the item can be dropped.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    entries: Vec<Entry>,
    needs: Vec<Need>,
    truncated: Vec<String>,
    window_additions: WindowAdditions,
    evaluated_rules: usize,
    ran_out_of_time: bool,
    /// True if the outcome is incomplete because the caller interrupted the evaluation.
    was_interrupted: bool,
}

#[derive(Clone, Debug)]
enum Entry {
    Errored(Arc<Rule>),
    Evaluated(Box<EvaluatedRule>),
}

/// Rule that passed or depends on facts. Masks and explanations are in document order of its leaves.
#[derive(Clone, Debug)]
struct EvaluatedRule {
    rule: Arc<Rule>,
    masks: Vec<Mask>,
    explanations: Vec<Explained>,
    pending_leaves: Vec<PendingLeaf>,
}

/// Leaf that depends on facts.
#[derive(Clone, Debug)]
struct PendingLeaf {
    leaf: usize,
    needs: Vec<Need>,
}

/// Item types share one index if separate ones would index each rule more often than this on average.
const MAX_COPIES_PER_RULE: usize = 8;

impl Scan {
    /// Facts to look up before [`Plan::finish`]; each need once.
    pub fn pending_needs(&self) -> &[Need] {
        &self.needs
    }

    /// Entries that the item adds to windows. The caller writes them before it looks up the needs, so that the item counts
    /// itself.
    pub fn entries(&self) -> &[WindowEntry] {
        &self.window_additions.0
    }

    /// True if the evaluation ended at the limit of CPU time instead of the limit of steps.
    pub fn ran_out_of_time(&self) -> bool {
        self.ran_out_of_time
    }

    /// Number of rules that were evaluated or refuted by a guard.
    pub fn evaluated_rules(&self) -> usize {
        self.evaluated_rules
    }
}

impl Plan {
    /// Compiles rule documents. Outcomes list rules in the same order.
    pub fn compile(
        rules: &[RuleSource<'_>],
        vocabulary: &Vocabulary,
        limits: &Limits,
    ) -> Result<Self, Vec<RuleError>> {
        let compiled = compile::compile(rules, vocabulary, limits)?;
        let (rules, mut predicates) = (compiled.rules, compiled.predicates);
        let costs = Costs::new(&predicates);
        let (lists, parts) = partition_rules(&rules, &predicates, vocabulary);
        let indexes: Vec<_> =
            lists.into_iter().map(|list| Index::new(list, &rules, &predicates, &costs)).collect();
        // A predicate that no scan covers is evaluated for each item, so it needs a search of its own for all of its words.
        let unscanned: HashSet<u32> =
            indexes.iter().flat_map(|index| unscanned_predicates(index, &rules)).copied().collect();
        for (number, predicate) in (0_u32..).zip(&mut predicates) {
            if let Leaf::Text(text) = predicate
                && (text.required_count > 1 || unscanned.contains(&number))
            {
                text.build_bulk_search();
            }
        }
        let memory = predicates.iter().map(Leaf::memory).sum::<usize>()
            + indexes.iter().map(Index::memory).sum::<usize>();
        if memory > limits.memory_bytes {
            let limit = limits.memory_bytes;
            let detail = format!(
                "all rules together take about {memory} bytes of memory, the limit is {limit}: use fewer words and patterns, \
                 or raise `memory_bytes`"
            );
            return Err(vec![RuleError::new("rule", "", "", "limit", detail)]);
        }
        Ok(Self {
            rule_numbers: (0..).zip(&rules).map(|(place, rule)| (rule.head.rule.clone(), place)).collect(),
            candidates: rules.iter().map(|rule| Candidate::new(rule, &costs)).collect(),
            word_count: indexes.iter().map(Index::words).max().unwrap_or_default(),
            watched_values: indexes.iter().map(|index| index.rule_lists.watched()).max().unwrap_or_default(),
            rules,
            predicates,
            windows_by_type: windows::windows_by_type(&compiled.windows, vocabulary.types()),
            windows: compiled.windows,
            paths: compiled.paths,
            addresses: vocabulary.addresses(),
            indexes,
            type_indexes: parts,
            limits: limits.clone(),
            compile_warnings: compiled.warnings,
        })
    }

    /// Rules with a condition that depends on facts beyond the item.
    pub fn rules_that_look_up(&self) -> impl Iterator<Item = &RuleId> {
        let looks_up =
            |rule: &Rule| rule.leaves.iter().any(|leaf| self.predicates[*leaf as usize].looks_up());
        self.rules.iter().filter(move |rule| looks_up(rule)).map(|rule| &rule.head.rule)
    }

    /// Rules with a condition that depends on facts beyond the item, other than the score of a model.
    pub fn rules_that_look_up_other_than_scores(&self) -> impl Iterator<Item = &RuleId> {
        let is_other = |leaf: &u32| {
            let predicate = &self.predicates[*leaf as usize];
            predicate.looks_up() && !predicate.asks_model()
        };
        let looks_up = move |rule: &&Arc<Rule>| rule.leaves.iter().any(is_other);
        self.rules.iter().filter(looks_up).map(|rule| &rule.head.rule)
    }

    /// Returns warnings for authors of rules. Compares rules with each other, which is too slow for plans that only run.
    pub fn warnings(&self) -> Vec<Warning> {
        let on_all_texts: Vec<u32> =
            self.indexes.iter().flat_map(Index::unindexed_pattern_predicates).collect();
        let mut unindexed: Vec<u32> =
            self.indexes.iter().flat_map(|index| &*index.unindexed_rules).copied().collect();
        unindexed.sort_unstable();
        let mut warnings = self.compile_warnings.clone();
        let (rules, costs) = (self.rules.iter().map(|rule| &**rule), Costs::new(&self.predicates));
        warnings.extend(lint::collect_warnings(rules, &self.predicates, &unindexed, &on_all_texts, &costs));
        let overloads = self.overloads();
        // The compiler has warned of a single pattern of the document already, at its place.
        let is_unreported = |overload: &&Overload| overload.patterns > 1 || !overload.banks.is_empty();
        let unreported = overloads.iter().filter(is_unreported);
        let hostile_overloads = overload::find_hostile_overloads(&self.rules, &self.predicates, &self.limits);
        let of_hostile_texts = hostile_overloads
            .iter()
            .filter(|overload| overloads.iter().all(|other| other.rule != overload.rule));
        warnings.extend(unreported.chain(of_hostile_texts).map(|overload| {
            Warning::new("rule", overload.rule.as_str(), "/when", "regex_costly", overload.to_string())
        }));
        warnings
    }

    /// Rules with patterns that exceed the steps of one rule on texts shorter than the limit.
    pub fn overloads(&self) -> Vec<Overload> {
        overload::find_overloads(&self.rules, &self.predicates, &self.indexes, &self.limits)
    }

    /// Heads of the rules in order of evaluation.
    pub fn rules(&self) -> impl Iterator<Item = &RuleHead> {
        self.rules.iter().map(|rule| &rule.head)
    }

    /// Head of a rule, if the plan has it.
    pub fn rule(&self, rule: &RuleId) -> Option<&RuleHead> {
        self.rule_numbers.get(rule).map(|place| &self.rules[*place as usize].head)
    }

    /// Windows that items add to.
    pub fn windows(&self) -> impl Iterator<Item = &Window> {
        self.windows.iter().map(|counting| &counting.window)
    }

    pub fn window(&self, key: &WindowId) -> Option<&Window> {
        self.windows().find(|window| window.key == *key)
    }

    /// Models that conditions use.
    pub(crate) fn models(&self) -> impl Iterator<Item = &str> {
        self.predicates.iter().filter_map(|predicate| match predicate {
            Leaf::Score(score) => Some(score.model()),
            Leaf::ModelText(text) => Some(text.model()),
            _ => None,
        })
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    pub fn size(&self) -> PlanSize {
        let is_text = |predicate: &&Leaf| matches!(predicate, Leaf::Text(_));
        PlanSize {
            rules: self.rules.len(),
            conditions: self.rules.iter().map(|rule| rule.leaves.len()).sum(),
            predicates: self.predicates.len(),
            text_predicates: self.predicates.iter().filter(is_text).count(),
            unindexed: self.indexes.iter().map(|index| index.unindexed_rules.len()).max().unwrap_or_default(),
            words: self.word_count,
            search_bytes: self.indexes.iter().map(Index::memory).sum(),
        }
    }

    pub(crate) fn tests(&self) -> impl Iterator<Item = (&Arc<Rule>, &[Test])> {
        self.rules.iter().map(|rule| (rule, rule.tests.as_slice()))
    }

    /// Evaluates the item alone, and collects the needs of the undecided rules.
    pub fn scan(&self, item: &Item<'_>) -> Scan {
        self.scan_with_interrupt(item, None).unwrap_or_default()
    }

    /// Like [`Self::scan`], but returns `None` after an interrupt.
    pub fn scan_until(&self, item: &Item<'_>, interrupt: &Interrupt) -> Option<Scan> {
        self.scan_with_interrupt(item, Some(interrupt))
    }

    fn scan_with_interrupt(&self, item: &Item<'_>, interrupt: Option<&Interrupt>) -> Option<Scan> {
        let scan = self.run_evaluation(
            item,
            self.index_of(item),
            &self.type_index(item).text_paths,
            interrupt,
            |run| {
                let candidates = run.candidates();
                let mut added = WindowAdditions::default();
                for place in self.windows_by_type.get(item.type_id).into_iter().flatten() {
                    self.windows[*place].add(item, run, &mut added);
                }
                let mut scan = self
                    .evaluate_rules(run, candidates.iter().filter(|rule| self.is_triggered(**rule, item)));
                scan.evaluated_rules += run.scratch.refuted_count;
                run.scratch.candidates.give_back(candidates);
                scan.window_additions = added;
                scan
            },
        );
        // An interrupted scan is incomplete and must not be used.
        (!scan.was_interrupted).then_some(scan)
    }

    /// Evaluates one rule, even if the item does not trigger it.
    pub(crate) fn scan_rule(&self, item: &Item<'_>, rule: &Arc<Rule>) -> Scan {
        let number = self.rules.iter().position(|compiled_rule| Arc::ptr_eq(compiled_rule, rule));
        let number = number.and_then(|number| u32::try_from(number).ok());
        self.run_evaluation(item, &Index::default(), &[], None, |run| self.evaluate_rules(run, number.iter()))
    }

    fn type_index(&self, item: &Item<'_>) -> &TypeIndex {
        self.type_indexes.by_type.get(item.type_id).unwrap_or(&self.type_indexes.fallback)
    }

    fn index_of(&self, item: &Item<'_>) -> &Index {
        &self.indexes[self.type_index(item).index]
    }

    fn is_triggered(&self, rule: u32, item: &Item<'_>) -> bool {
        let candidate = &self.candidates[rule as usize];
        // A separate index holds rules of its own item types only.
        let has_type = !self.type_indexes.is_shared || candidate.rule.applies_to_type(item.type_id);
        candidate.on & event_bit(item.on) != 0 && item.now < candidate.expires_at && has_type
    }

    fn run_evaluation(
        &self,
        item: &Item<'_>,
        index: &Index,
        texts: &[usize],
        interrupt: Option<&Interrupt>,
        evaluate: impl FnOnce(&mut Run<'_, '_>) -> Scan,
    ) -> Scan {
        let input = EvalInput {
            fields: FieldCache::new(
                item.values,
                &self.paths,
                Some((&self.addresses, item.type_id)),
                self.limits.text_bytes,
            ),
            user: item.user,
            now: item.now,
            submission: item.submission,
            limits: &self.limits,
        };
        let mut scan = Scratch::with(self.predicates.len(), self.watched_values, |scratch| {
            let steps = Steps::new(&self.limits).with_interrupt(interrupt);
            let mut run = Run::new(&self.predicates, index, &input, scratch, steps);
            let scan = evaluate(&mut run);
            Scan {
                ran_out_of_time: run.steps.ran_out_of_time(),
                was_interrupted: run.steps.was_interrupted(),
                ..scan
            }
        });
        scan.truncated = input.fields.truncated_paths(texts);
        scan
    }

    fn evaluate_rules<'n>(&self, run: &mut Run<'_, '_>, numbers: impl Iterator<Item = &'n u32>) -> Scan {
        let mut scan = Scan::default();
        let mut need_places: HashMap<Need, usize> = HashMap::new();
        for number in numbers.map(|number| *number as usize) {
            run.steps.next_rule();
            scan.evaluated_rules += 1;
            let Candidate { precheck, rule, .. } = &self.candidates[number];
            let evaluated = run.steps.take(1).and_then(|()| precheck.may_hold(run));
            let evaluated_rule = evaluated
                .and_then(|may_hold| if may_hold { self.evaluate_rule(rule, run) } else { Ok(None) });
            match evaluated_rule {
                Err(OutOfSteps) => scan.entries.push(Entry::Errored(Arc::clone(rule))),
                Ok(None) => {}
                Ok(Some(evaluated)) => {
                    for need in evaluated.pending_leaves.iter().flat_map(|leaf| &leaf.needs) {
                        let place = *need_places.entry(need.question()).or_insert(scan.needs.len());
                        // Rules that compare one window with different numbers share a look-up, which must reach the largest
                        // number.
                        match scan.needs.get_mut(place) {
                            Some(existing_need) => existing_need.merge(need),
                            None => scan.needs.push(need.clone()),
                        }
                    }
                    scan.entries.push(Entry::Evaluated(Box::new(evaluated)));
                }
            }
        }
        scan
    }

    /// Evaluates a rule in document order, the order of its explanation. `None` if it cannot match.
    fn evaluate_rule(
        &self,
        rule: &Arc<Rule>,
        run: &mut Run<'_, '_>,
    ) -> Result<Option<EvaluatedRule>, OutOfSteps> {
        let mut masks = vec![Mask::SKIPPED; rule.leaves.len()];
        let mask = logic::decide(&rule.when, &mut |nth| {
            masks[nth] = run.mask(rule.leaves[nth])?;
            Ok(masks[nth])
        })?;
        if !mask.may_pass() {
            return Ok(None);
        }
        let mut pending_leaves = Vec::new();
        if mask != Mask::PASSED {
            for (leaf, predicate) in
                rule.leaves.iter().enumerate().filter(|(leaf, _)| masks[*leaf].is_pending())
            {
                let leaf_needs = self.predicates[*predicate as usize].collect_needs(run.input);
                pending_leaves.push(PendingLeaf { leaf, needs: leaf_needs });
            }
        }
        let mut explained = Vec::with_capacity(masks.len());
        for (predicate, mask) in rule.leaves.iter().zip(&mut masks) {
            let leaf = &self.predicates[*predicate as usize];
            // An explanation also shows conditions without influence on the outcome, unless they need a look-up.
            if mask.is_empty() && !leaf.looks_up() {
                *mask = run.mask(*predicate).unwrap_or(Mask::SKIPPED);
            }
            explained.push(run.explain(*predicate, *mask));
        }
        Ok(Some(EvaluatedRule { rule: Arc::clone(rule), masks, explanations: explained, pending_leaves }))
    }

    /// Returns, for each undecided rule, the scores that it still depends on once `facts` are known. The caller requests
    /// some of them and calls again.
    pub fn undecided_scores(&self, scan: &Scan, facts: &Facts) -> Vec<Vec<Need>> {
        let mut steps = Steps::new(&self.limits);
        let rules = scan.entries.iter().filter_map(|entry| match entry {
            Entry::Evaluated(rule) if !rule.pending_leaves.is_empty() => {
                Some(rule.undecided_scores(self, facts, &mut steps))
            }
            _ => None,
        });
        rules.filter(|needs| !needs.is_empty()).collect()
    }

    /// Decides the remaining rules with the facts.
    pub fn finish(&self, scan: Scan, facts: &Facts) -> Outcome {
        let mut outcome =
            Outcome { truncated: scan.truncated, uncounted: scan.window_additions.1, ..Outcome::default() };
        let (mut explained, mut steps) = (0, Steps::new(&self.limits));
        for entry in scan.entries {
            let failure = match entry {
                Entry::Errored(rule) => Some((rule, "deadline".to_owned())),
                Entry::Evaluated(mut evaluated) => {
                    evaluated.add_truncated_texts(self, facts, &mut outcome.truncated);
                    match evaluated.decide(self, facts, &mut steps) {
                        (Mask::PASSED, _) => {
                            let head = &evaluated.rule.head;
                            // Live rules have effects, so the limit drops matches of other rules only.
                            if head.status != Status::Live && outcome.matched.len() >= self.limits.matched {
                                outcome.matched_more += 1;
                                continue;
                            }
                            let tree = leaves::build_tree(
                                &evaluated.rule.when,
                                &evaluated.rule.uses,
                                evaluated.explanations,
                            );
                            explained += tree.size();
                            // Beyond the limit a match is still listed, but without its tree.
                            let has_room = explained <= self.limits.explained;
                            let rule_info = Arc::clone(&head.info);
                            outcome.matched.push(Match {
                                info: rule_info,
                                tree: if has_room { tree } else { cut_explanation() },
                            });
                            None
                        }
                        (Mask::ERRORED, reason) => Some((evaluated.rule, reason.unwrap_or_default())),
                        _ => None,
                    }
                }
            };
            if let Some((rule, reason)) = failure {
                // Failures that have an effect are few and must not be dropped.
                let has_effect = rule.head.enforcement.on_error != OnError::NotMatched;
                if has_effect || outcome.errored.len() < self.limits.errored {
                    outcome.errored.push(rule_failure(&rule.head, reason));
                } else {
                    outcome.errored_more += 1;
                }
            }
        }
        outcome
    }
}

impl EvaluatedRule {
    fn undecided_scores(&self, plan: &Plan, facts: &Facts, steps: &mut Steps) -> Vec<Need> {
        steps.next_rule();
        let mut masks = self.masks.clone();
        for PendingLeaf { leaf, needs } in &self.pending_leaves {
            let predicate = &plan.predicates[self.rule.leaves[*leaf] as usize];
            if needs.iter().all(|need| facts.has(need)) {
                let explained = self.explanations[*leaf].clone();
                masks[*leaf] = predicate.settle(needs, facts, explained, &plan.limits, steps).mask;
            }
        }
        let mut undecided_leaves = Vec::new();
        let mask = logic::collect_undecided(&self.rule.when, &|nth| masks[nth], &mut undecided_leaves);
        // A rule that can no longer pass needs no scores.
        if !mask.may_pass() {
            return Vec::new();
        }
        let relevant_leaves = self.pending_leaves.iter().filter(|leaf| undecided_leaves.contains(&leaf.leaf));
        let relevant_needs = relevant_leaves.flat_map(|leaf| &leaf.needs);
        relevant_needs
            .filter(|need| matches!(need, Need::Score { .. }) && !facts.has(need))
            .cloned()
            .collect()
    }

    /// Adds the names of model texts that are longer than the searched part.
    fn add_truncated_texts(&self, plan: &Plan, facts: &Facts, truncated: &mut Vec<String>) {
        for PendingLeaf { leaf, needs } in &self.pending_leaves {
            if let Leaf::ModelText(text) = &plan.predicates[self.rule.leaves[*leaf] as usize]
                && let Some(name) = text.truncated_text(needs, facts, &plan.limits)
                && !truncated.iter().any(|truncated_name| truncated_name == name)
            {
                truncated.push(name.to_owned());
            }
        }
    }

    /// Returns the outcome of the rule, and the first reason of a missing fact.
    fn decide(&mut self, plan: &Plan, facts: &Facts, steps: &mut Steps) -> (Mask, Option<String>) {
        steps.next_rule();
        let mut first_reason = None;
        for PendingLeaf { leaf, needs } in &self.pending_leaves {
            let predicate = &plan.predicates[self.rule.leaves[*leaf] as usize];
            let explanation = std::mem::replace(&mut self.explanations[*leaf], cut_explanation());
            let settled_leaf = predicate.settle(needs, facts, explanation, &plan.limits, steps);
            self.masks[*leaf] = settled_leaf.mask;
            self.explanations[*leaf] = settled_leaf.explained;
            first_reason = first_reason.or(settled_leaf.reason);
        }
        // Facts replace possibilities, so this walk stops at the same leaf as the first phase or earlier, and reads no
        // skipped leaf.
        let Ok(mask) = logic::decide(&self.rule.when, &mut |nth| Ok::<_, Infallible>(self.masks[nth]));
        (mask, first_reason)
    }
}

/// Splits the rules into one list for each index, and assigns an index to each item type.
fn partition_rules(
    rules: &[Arc<Rule>],
    predicates: &[Leaf],
    vocabulary: &Vocabulary,
) -> (Vec<Vec<u32>>, TypeIndexes) {
    let mut lists: Vec<Vec<u32>> = Vec::new();
    let mut type_indexes: HashMap<Vec<u32>, TypeIndex> = HashMap::new();
    let mut assign_index = |type_id: Option<&TypeId>| {
        let concerns = |rule: &Rule| {
            rule.item_types.is_empty() || type_id.is_some_and(|type_id| rule.applies_to_type(type_id))
        };
        let list =
            (0_u32..).zip(rules).filter(|(_, rule)| concerns(rule)).map(|(number, _)| number).collect();
        // Item types with the same rules share an index.
        let type_index = type_indexes.entry(list).or_insert_with_key(|list| {
            lists.push(list.clone());
            TypeIndex { index: lists.len() - 1, text_paths: searched_paths(list, rules, predicates) }
        });
        type_index.clone()
    };
    let fallback = assign_index(None);
    let by_type = vocabulary.types().map(|type_id| (type_id.clone(), assign_index(Some(type_id)))).collect();
    let mut indexes = TypeIndexes { by_type, fallback, is_shared: false };
    if lists.iter().map(Vec::len).sum::<usize>() > rules.len().saturating_mul(MAX_COPIES_PER_RULE) {
        indexes.is_shared = true;
        indexes.by_type.values_mut().for_each(|type_index| type_index.index = 0);
        indexes.fallback.index = 0;
        lists = vec![(0..).take(rules.len()).collect()];
    }
    (lists, indexes)
}

/// Predicates of the index's rules that the scan of the texts does not decide.
fn unscanned_predicates<'r>(index: &'r Index, rules: &'r [Arc<Rule>]) -> impl Iterator<Item = &'r u32> {
    let predicates = index.rules.iter().flat_map(|number| &rules[*number as usize].leaves);
    predicates.filter(|predicate| !index.is_scanned(**predicate))
}

/// Paths of the texts that the rules of the list search.
fn searched_paths(list: &[u32], rules: &[Arc<Rule>], predicates: &[Leaf]) -> Box<[usize]> {
    let predicate_numbers = list.iter().flat_map(|number| &rules[*number as usize].leaves);
    let slots = predicate_numbers.filter_map(|predicate| match &predicates[*predicate as usize] {
        Leaf::Text(text) => Some(&text.slots),
        Leaf::Domain(domain) => Some(&domain.slots),
        _ => None,
    });
    slots.flatten().copied().collect::<BTreeSet<_>>().into_iter().collect()
}

fn rule_failure(head: &RuleHead, reason: String) -> RuleFailure {
    RuleFailure { rule: head.rule.clone(), version: head.version.clone(), status: head.status, reason }
}

fn cut_explanation() -> Explained {
    Explained::cut_match()
}
