//! All rules of an organisation as one plan, evaluated in two phases around the caller's look-ups.
//!
//! It decides which rules are looked at in earnest, and in which order; how conditions are evaluated is in `leaves`.

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
        windows::{self, Added},
        witness::Costs,
    },
    error::{RuleError, Warning},
    facts::{Facts, Need},
    fields::{FieldCache, Path},
    item::{Item, On},
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
    places: HashMap<RuleId, u32>,
    /// Candidates by rule.
    candidates: Vec<Candidate>,
    predicates: Vec<Leaf>,
    paths: Vec<Path>,
    addresses: Addresses,
    windows: Vec<CountingWindow>,
    /// Indices of the windows of each item type.
    counted: HashMap<TypeId, Box<[usize]>, BuildFastHasher>,
    indexes: Vec<Index>,
    parts: TypeIndexes,
    /// Words of the largest scan.
    words: usize,
    /// Values that guards look at, of the largest index.
    watched: usize,
    limits: Limits,
    /// Warnings of the compilation.
    noted: Vec<Warning>,
}

/// Size of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanSize {
    pub rules: usize,
    /// Conditions of all rules, and how many different ones they are.
    pub conditions: usize,
    pub predicates: usize,
    pub text_predicates: usize,
    /// Rules of one item type that are evaluated for each item, because they are not indexed.
    pub unindexed: usize,
    /// Words that are sought in each text.
    pub words: usize,
    /// Memory of the search for them.
    pub search_bytes: usize,
}

/// Index and texts that serve an item type.
#[derive(Clone, Debug)]
struct TypeIndex {
    index: usize,
    /// Paths whose texts its rules search.
    texts: Box<[usize]>,
}

#[derive(Debug)]
struct TypeIndexes {
    by_type: HashMap<TypeId, TypeIndex, BuildFastHasher>,
    /// TypeIndex for item types that are not known.
    other: TypeIndex,
    /// All item types share one index.
    shared: bool,
}

/// Data of a rule that is needed once it is a candidate, in one cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Candidate {
    /// Events that the rule is for, as bits.
    on: u8,
    expires_at: Millis,
    precheck: Precheck,
    rule: Arc<Rule>,
}

impl Candidate {
    fn of(rule: &Arc<Rule>, costs: &Costs) -> Self {
        Self {
            on: rule.on.iter().fold(0, |on, one| on | bit(*one)),
            expires_at: rule.expires_at.unwrap_or(Millis(i64::MAX)),
            precheck: Precheck::of(rule, costs),
            rule: Arc::clone(rule),
        }
    }
}

fn bit(on: On) -> u8 {
    match on {
        On::Item => 1,
        On::Report => 2,
        On::Appeal => 4,
    }
}

/// Result of looking at the item alone. It owns what it needs, so the item may go.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    entries: Vec<Entry>,
    needs: Vec<Need>,
    truncated: Vec<String>,
    added: Added,
    evaluated_rules: usize,
    ran_out_of_time: bool,
    /// True if its outcome is incomplete because the caller needs it no more.
    was_interrupted: bool,
}

#[derive(Clone, Debug)]
enum Entry {
    Errored(Arc<Rule>),
    Open(Box<Open>),
}

/// A rule that passed, or waits for facts. Its leaves are in document order.
#[derive(Clone, Debug)]
struct Open {
    rule: Arc<Rule>,
    leaves: Vec<Mask>,
    explained: Vec<Explained>,
    waiting: Vec<Waiting>,
}

/// A leaf that a fact decides.
#[derive(Clone, Debug)]
struct Waiting {
    leaf: usize,
    needs: Vec<Need>,
}

/// Item types may be served by so many times as many indexed rules as there are before they share one index.
const SHARE: usize = 8;

impl Scan {
    /// Facts that must be looked up before the plan can be finished; each need once.
    pub fn needs(&self) -> &[Need] {
        &self.needs
    }

    /// Entries that the item adds to windows. Written before the needs are looked up, so that the item counts itself.
    pub fn entries(&self) -> &[WindowEntry] {
        &self.added.0
    }

    /// True if the evaluation ended because it took all its CPU time, not because of its steps.
    pub fn ran_out_of_time(&self) -> bool {
        self.ran_out_of_time
    }

    /// Number of rules that had to be looked at, if only to see that they lack a number.
    pub fn evaluated_rules(&self) -> usize {
        self.evaluated_rules
    }
}

impl Plan {
    /// Compiles rule documents, in the order in which their outcomes will be listed.
    pub fn compile(
        rules: &[RuleSource<'_>],
        vocabulary: &Vocabulary,
        limits: &Limits,
    ) -> Result<Self, Vec<RuleError>> {
        let compiled = compile::compile(rules, vocabulary, limits)?;
        let (rules, mut predicates) = (compiled.rules, compiled.predicates);
        let costs = Costs::new(&predicates);
        let (lists, parts) = partitions(&rules, &predicates, vocabulary);
        let indexes: Vec<_> =
            lists.into_iter().map(|list| Index::new(list, &rules, &predicates, &costs)).collect();
        // An index of item types that the condition's rules do not concern never asks for it.
        let alone: HashSet<u32> =
            indexes.iter().flat_map(|index| unscanned(index, &rules)).copied().collect();
        for (number, predicate) in (0_u32..).zip(&mut predicates) {
            if let Leaf::Text(text) = predicate
                && (text.needed > 1 || alone.contains(&number))
            {
                text.gather();
            }
        }
        let memory = predicates.iter().map(Leaf::memory).sum::<usize>()
            + indexes.iter().map(Index::memory).sum::<usize>();
        if memory > limits.memory_bytes {
            let most = limits.memory_bytes;
            let detail = format!(
                "all rules together take about {memory} bytes of memory, the limit is {most}: use fewer words and patterns, \
                 or raise `memory_bytes`"
            );
            return Err(vec![RuleError::new("rule", "", "", "limit", detail)]);
        }
        Ok(Self {
            places: (0..).zip(&rules).map(|(place, rule)| (rule.head.rule.clone(), place)).collect(),
            candidates: rules.iter().map(|rule| Candidate::of(rule, &costs)).collect(),
            words: indexes.iter().map(Index::words).max().unwrap_or_default(),
            watched: indexes.iter().map(|index| index.indexed.watched()).max().unwrap_or_default(),
            rules,
            predicates,
            counted: windows::by_type(&compiled.windows, vocabulary.types()),
            windows: compiled.windows,
            paths: compiled.paths,
            addresses: vocabulary.addresses(),
            indexes,
            parts,
            limits: limits.clone(),
            noted: compiled.warnings,
        })
    }

    /// Rules with a condition that depends on facts which are not in the item.
    pub fn rules_that_look_up(&self) -> impl Iterator<Item = &RuleId> {
        let looks_up =
            |rule: &Rule| rule.leaves.iter().any(|leaf| self.predicates[*leaf as usize].looks_up());
        self.rules.iter().filter(move |rule| looks_up(rule)).map(|rule| &rule.head.rule)
    }

    /// Rules with a condition that depends on such a fact other than the score of a model.
    pub fn rules_that_look_up_other_than_scores(&self) -> impl Iterator<Item = &RuleId> {
        let is_other = |leaf: &u32| {
            let predicate = &self.predicates[*leaf as usize];
            predicate.looks_up() && !predicate.asks_model()
        };
        let looks_up = move |rule: &&Arc<Rule>| rule.leaves.iter().any(is_other);
        self.rules.iter().filter(looks_up).map(|rule| &rule.head.rule)
    }

    /// Returns warnings about the rules. It compares them with each other, so it is for authors of rules and too slow
    /// for plans that only run.
    pub fn warnings(&self) -> Vec<Warning> {
        let everywhere: Vec<u32> = self.indexes.iter().flat_map(Index::run_everywhere).collect();
        let mut unindexed: Vec<u32> = self.indexes.iter().flat_map(|index| &*index.always).copied().collect();
        unindexed.sort_unstable();
        let mut warnings = self.noted.clone();
        let (rules, costs) = (self.rules.iter().map(|rule| &**rule), Costs::new(&self.predicates));
        warnings.extend(lint::warnings(rules, &self.predicates, &unindexed, &everywhere, &costs));
        let overloads = self.overloads();
        // Of a single pattern in its document that is said at its place.
        let untold = |it: &&Overload| it.patterns > 1 || !it.banks.is_empty();
        let of_any_text = overloads.iter().filter(untold);
        let hostile = overload::of_hostile_texts(&self.rules, &self.predicates, &self.limits);
        let of_hostile_texts =
            hostile.iter().filter(|it| overloads.iter().all(|other| other.rule != it.rule));
        warnings.extend(
            of_any_text
                .chain(of_hostile_texts)
                .map(|it| Warning::new("rule", it.rule.as_str(), "/when", "regex_costly", it.to_string())),
        );
        warnings
    }

    /// The rules whose patterns take more steps than a rule has, on texts shorter than the longest.
    pub fn overloads(&self) -> Vec<Overload> {
        overload::of(&self.rules, &self.predicates, &self.indexes, &self.limits)
    }

    /// The rules that are evaluated, in order.
    pub fn rules(&self) -> impl Iterator<Item = &RuleHead> {
        self.rules.iter().map(|rule| &rule.head)
    }

    /// One of them.
    pub fn rule(&self, rule: &RuleId) -> Option<&RuleHead> {
        self.places.get(rule).map(|place| &self.rules[*place as usize].head)
    }

    /// The windows that items add to.
    pub fn windows(&self) -> impl Iterator<Item = &Window> {
        self.windows.iter().map(|counting| &counting.window)
    }

    /// A window by its key.
    pub fn window(&self, key: &WindowId) -> Option<&Window> {
        self.windows().find(|window| window.key == *key)
    }

    /// The models that conditions ask.
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

    /// Returns the size of the plan.
    pub fn size(&self) -> PlanSize {
        let texts = |predicate: &&Leaf| matches!(predicate, Leaf::Text(_));
        PlanSize {
            rules: self.rules.len(),
            conditions: self.rules.iter().map(|rule| rule.leaves.len()).sum(),
            predicates: self.predicates.len(),
            text_predicates: self.predicates.iter().filter(texts).count(),
            unindexed: self.indexes.iter().map(|index| index.always.len()).max().unwrap_or_default(),
            words: self.words,
            search_bytes: self.indexes.iter().map(Index::memory).sum(),
        }
    }

    pub(crate) fn tests(&self) -> impl Iterator<Item = (&Arc<Rule>, &[Test])> {
        self.rules.iter().map(|rule| (rule, rule.tests.as_slice()))
    }

    /// Decides what the item alone decides, and says what else must be known.
    pub fn scan(&self, item: &Item<'_>) -> Scan {
        self.scan_with_interrupt(item, None).unwrap_or_default()
    }

    /// Does the same, and returns `None` if it was interrupted.
    pub fn scan_until(&self, item: &Item<'_>, interrupt: &Interrupt) -> Option<Scan> {
        self.scan_with_interrupt(item, Some(interrupt))
    }

    fn scan_with_interrupt(&self, item: &Item<'_>, interrupt: Option<&Interrupt>) -> Option<Scan> {
        let scan = self.run(item, self.index_of(item), &self.part(item).texts, interrupt, |run| {
            let candidates = run.candidates();
            let mut added = Added::default();
            for place in self.counted.get(item.type_id).into_iter().flatten() {
                self.windows[*place].add(item, run, &mut added);
            }
            let mut scan = self.evaluate(run, candidates.iter().filter(|rule| self.concerns(**rule, item)));
            scan.evaluated_rules += run.scratch.refuted;
            run.scratch.candidates.give_back(candidates);
            scan.added = added;
            scan
        });
        (!scan.was_interrupted).then_some(scan)
    }

    /// Evaluates one rule, whether or not it concerns the item.
    pub(crate) fn scan_this(&self, item: &Item<'_>, rule: &Arc<Rule>) -> Scan {
        let number = self.rules.iter().position(|known| Arc::ptr_eq(known, rule));
        let number = number.and_then(|number| u32::try_from(number).ok());
        self.run(item, &Index::default(), &[], None, |run| self.evaluate(run, number.iter()))
    }

    fn part(&self, item: &Item<'_>) -> &TypeIndex {
        self.parts.by_type.get(item.type_id).unwrap_or(&self.parts.other)
    }

    fn index_of(&self, item: &Item<'_>) -> &Index {
        &self.indexes[self.part(item).index]
    }

    fn concerns(&self, rule: u32, item: &Item<'_>) -> bool {
        let candidate = &self.candidates[rule as usize];
        // An index that is not shared holds no others.
        let typed = !self.parts.shared || candidate.rule.speaks_of(item.type_id);
        candidate.on & bit(item.on) != 0 && item.now < candidate.expires_at && typed
    }

    fn run(
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
        let mut scan = Scratch::with(self.predicates.len(), self.watched, |scratch| {
            let steps = Steps::new(&self.limits).with_interrupt(interrupt);
            let mut run = Run::new(&self.predicates, index, &input, scratch, steps);
            let scan = evaluate(&mut run);
            Scan {
                ran_out_of_time: run.steps.ran_out_of_time(),
                was_interrupted: run.steps.was_interrupted(),
                ..scan
            }
        });
        scan.truncated = input.fields.truncated(texts);
        scan
    }

    fn evaluate<'n>(&self, run: &mut Run<'_, '_>, numbers: impl Iterator<Item = &'n u32>) -> Scan {
        let mut scan = Scan::default();
        let mut asked: HashMap<Need, usize> = HashMap::new();
        for number in numbers.map(|number| *number as usize) {
            run.steps.next_rule();
            scan.evaluated_rules += 1;
            let Candidate { precheck, rule, .. } = &self.candidates[number];
            let evaluated = run.steps.take(1).and_then(|()| precheck.may_hold(run));
            let opened = evaluated.and_then(|may| if may { self.open(rule, run) } else { Ok(None) });
            match opened {
                Err(OutOfSteps) => scan.entries.push(Entry::Errored(Arc::clone(rule))),
                Ok(None) => {}
                Ok(Some(open)) => {
                    for need in open.waiting.iter().flat_map(|waiting| &waiting.needs) {
                        let place = *asked.entry(need.question()).or_insert(scan.needs.len());
                        match scan.needs.get_mut(place) {
                            Some(known) => known.join(need),
                            None => scan.needs.push(need.clone()),
                        }
                    }
                    scan.entries.push(Entry::Open(Box::new(open)));
                }
            }
        }
        scan
    }

    /// Decides a rule in the order of its document, as its explanation shows it. `None`: it cannot match.
    fn open(&self, rule: &Arc<Rule>, run: &mut Run<'_, '_>) -> Result<Option<Open>, OutOfSteps> {
        let mut leaves = vec![Mask::SKIPPED; rule.leaves.len()];
        let mask = logic::decide(&rule.when, &mut |nth| {
            leaves[nth] = run.mask(rule.leaves[nth])?;
            Ok(leaves[nth])
        })?;
        if !mask.may_pass() {
            return Ok(None);
        }
        let mut waiting = Vec::new();
        if mask != Mask::PASSED {
            for (leaf, predicate) in
                rule.leaves.iter().enumerate().filter(|(leaf, _)| leaves[*leaf].is_pending())
            {
                let needs = self.predicates[*predicate as usize].needs(run.input);
                waiting.push(Waiting { leaf, needs });
            }
        }
        let mut explained = Vec::with_capacity(leaves.len());
        for (predicate, mask) in rule.leaves.iter().zip(&mut leaves) {
            let leaf = &self.predicates[*predicate as usize];
            // An explanation also shows what did not matter, but a rule must not ask for a fact only to show it.
            if mask.is_empty() && !leaf.looks_up() {
                *mask = run.mask(*predicate).unwrap_or(Mask::SKIPPED);
            }
            explained.push(run.explain(*predicate, *mask));
        }
        Ok(Some(Open { rule: Arc::clone(rule), leaves, explained, waiting }))
    }

    /// Returns the scores that each rule still depends on once `facts` are known, without those of rules that are
    /// decided. The caller asks for some of them and calls again.
    pub fn undecided_scores(&self, scan: &Scan, facts: &Facts) -> Vec<Vec<Need>> {
        let mut steps = Steps::new(&self.limits);
        let rules = scan.entries.iter().filter_map(|entry| match entry {
            Entry::Open(open) if !open.waiting.is_empty() => {
                Some(open.undecided_scores(self, facts, &mut steps))
            }
            _ => None,
        });
        rules.filter(|needs| !needs.is_empty()).collect()
    }

    /// Decides the rest with what was looked up.
    pub fn finish(&self, scan: Scan, facts: &Facts) -> Outcome {
        let mut outcome =
            Outcome { truncated: scan.truncated, uncounted: scan.added.1, ..Outcome::default() };
        let (mut explained, mut steps) = (0, Steps::new(&self.limits));
        for entry in scan.entries {
            let failure = match entry {
                Entry::Errored(rule) => Some((rule, "deadline".to_owned())),
                Entry::Open(mut open) => {
                    open.add_cut_texts(self, facts, &mut outcome.truncated);
                    match open.settle(self, facts, &mut steps) {
                        (Mask::PASSED, _) => {
                            let head = &open.rule.head;
                            if head.status != Status::Live && outcome.matched.len() >= self.limits.matched {
                                outcome.matched_more += 1;
                                continue;
                            }
                            let tree = leaves::tree(&open.rule.when, &open.rule.uses, open.explained);
                            explained += tree.size();
                            let fits = explained <= self.limits.explained;
                            let named = Arc::clone(&head.named);
                            outcome.matched.push(Match { named, tree: if fits { tree } else { cut() } });
                            None
                        }
                        (Mask::ERRORED, reason) => Some((open.rule, reason.unwrap_or_default())),
                        _ => None,
                    }
                }
            };
            if let Some((rule, reason)) = failure {
                // Those that lead to something despite their failure are not many, and must not get lost.
                let counts = rule.head.enforcement.on_error != OnError::NotMatched;
                if counts || outcome.errored.len() < self.limits.errored {
                    outcome.errored.push(errored(&rule.head, reason));
                } else {
                    outcome.errored_more += 1;
                }
            }
        }
        outcome
    }
}

impl Open {
    fn undecided_scores(&self, plan: &Plan, facts: &Facts, steps: &mut Steps) -> Vec<Need> {
        steps.next_rule();
        let mut masks = self.leaves.clone();
        for Waiting { leaf, needs } in &self.waiting {
            let predicate = &plan.predicates[self.rule.leaves[*leaf] as usize];
            if needs.iter().all(|need| facts.has(need)) {
                let explained = self.explained[*leaf].clone();
                masks[*leaf] = predicate.settle(needs, facts, explained, &plan.limits, steps).mask;
            }
        }
        let mut pending = Vec::new();
        let mask = logic::undecided(&self.rule.when, &|nth| masks[nth], &mut pending);
        // A rule that can only fail any more asks for nothing.
        if !mask.may_pass() {
            return Vec::new();
        }
        let waiting = self.waiting.iter().filter(|waiting| pending.contains(&waiting.leaf));
        let needs = waiting.flat_map(|waiting| &waiting.needs);
        needs.filter(|need| matches!(need, Need::Score { .. }) && !facts.has(need)).cloned().collect()
    }

    /// Adds the names of texts among the facts that are longer than what is searched.
    fn add_cut_texts(&self, plan: &Plan, facts: &Facts, truncated: &mut Vec<String>) {
        for Waiting { leaf, needs } in &self.waiting {
            if let Leaf::ModelText(text) = &plan.predicates[self.rule.leaves[*leaf] as usize]
                && let Some(name) = text.cut_text(needs, facts, &plan.limits)
                && !truncated.iter().any(|known| known == name)
            {
                truncated.push(name.to_owned());
            }
        }
    }

    /// The rule's outcome with the facts in it, and the first reason for which a fact is missing.
    fn settle(&mut self, plan: &Plan, facts: &Facts, steps: &mut Steps) -> (Mask, Option<String>) {
        steps.next_rule();
        let mut first = None;
        for Waiting { leaf, needs } in &self.waiting {
            let predicate = &plan.predicates[self.rule.leaves[*leaf] as usize];
            let open = std::mem::replace(&mut self.explained[*leaf], cut());
            let settled = predicate.settle(needs, facts, open, &plan.limits, steps);
            self.leaves[*leaf] = settled.mask;
            self.explained[*leaf] = settled.explained;
            first = first.or(settled.reason);
        }
        // With facts instead of possibilities the same walk stops at the same leaf or earlier, never at a skipped one.
        let Ok(decided) = logic::decide(&self.rule.when, &mut |nth| Ok::<_, Infallible>(self.leaves[nth]));
        (decided, first)
    }
}

/// The rules of each index, and what serves which item type.
fn partitions(
    rules: &[Arc<Rule>],
    predicates: &[Leaf],
    vocabulary: &Vocabulary,
) -> (Vec<Vec<u32>>, TypeIndexes) {
    let mut lists: Vec<Vec<u32>> = Vec::new();
    let mut places: HashMap<Vec<u32>, TypeIndex> = HashMap::new();
    let mut part = |type_id: Option<&TypeId>| {
        let concerns = |rule: &Rule| {
            rule.item_types.is_empty() || type_id.is_some_and(|type_id| rule.speaks_of(type_id))
        };
        let list =
            (0_u32..).zip(rules).filter(|(_, rule)| concerns(rule)).map(|(number, _)| number).collect();
        let part = places.entry(list).or_insert_with_key(|list| {
            lists.push(list.clone());
            TypeIndex { index: lists.len() - 1, texts: texts(list, rules, predicates) }
        });
        part.clone()
    };
    let other = part(None);
    let by_type = vocabulary.types().map(|type_id| (type_id.clone(), part(Some(type_id)))).collect();
    let mut parts = TypeIndexes { by_type, other, shared: false };
    if lists.iter().map(Vec::len).sum::<usize>() > rules.len().saturating_mul(SHARE) {
        parts.shared = true;
        parts.by_type.values_mut().for_each(|part| part.index = 0);
        parts.other.index = 0;
        lists = vec![(0..).take(rules.len()).collect()];
    }
    (lists, parts)
}

/// Predicates of an index's rules of which the scan of the texts says nothing.
fn unscanned<'r>(index: &'r Index, rules: &'r [Arc<Rule>]) -> impl Iterator<Item = &'r u32> {
    let predicates = index.rules.iter().flat_map(|number| &rules[*number as usize].leaves);
    predicates.filter(|predicate| !index.is_scanned(**predicate))
}

/// Paths whose texts some of these rules search.
fn texts(list: &[u32], rules: &[Arc<Rule>], predicates: &[Leaf]) -> Box<[usize]> {
    let leaves = list.iter().flat_map(|number| &rules[*number as usize].leaves);
    let texts = leaves.filter_map(|predicate| match &predicates[*predicate as usize] {
        Leaf::Text(text) => Some(&text.slots),
        Leaf::Domain(domain) => Some(&domain.slots),
        _ => None,
    });
    texts.flatten().copied().collect::<BTreeSet<_>>().into_iter().collect()
}

fn errored(head: &RuleHead, reason: String) -> RuleFailure {
    RuleFailure { rule: head.rule.clone(), version: head.version.clone(), status: head.status, reason }
}

fn cut() -> Explained {
    Explained::of_cut_match()
}
