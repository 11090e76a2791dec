//! Finds the rules that an item could match by the values that they require, and evaluates only those. Outcomes are the same
//! as if every condition were evaluated.
//!
//! An indexed rule has *witnesses*: predicates of which one must pass before the rule can match (`witness`). A witness that
//! passes *nominates* its rules: they become candidates unless their guards refute them (`guards`).

pub(crate) mod dedup_list;
pub(crate) mod guards;
pub(crate) mod index;
pub(crate) mod patterns;
pub(crate) mod places;
pub(crate) mod precheck;
pub(crate) mod ranges;
pub(crate) mod scratch;
pub(crate) mod values;
pub(crate) mod windows;
pub(crate) mod witness;

use self::{
    index::{Index, IndexEntry, PatternScan, Proof},
    patterns::Visitor,
    scratch::{Evaluation, Scratch},
    witness::Witness,
};
use crate::{
    fields::ViewedText,
    item::Value,
    leaves::{Explained, Leaf, input::EvalInput},
    limits::{OutOfSteps, Steps},
    logic::Mask,
    search::ScanControl,
    text::in_word,
};

/// Evaluation of one item: first the candidate rules, then the predicates that they ask for, each at most once.
pub(crate) struct Run<'r, 'a> {
    pub(crate) predicates: &'r [Leaf],
    pub(crate) index: &'r Index,
    pub(crate) input: &'r EvalInput<'a>,
    pub(crate) steps: Steps,
    pub(crate) scratch: &'r mut Scratch,
    /// True once the whole index has been searched.
    is_index_searched: bool,
}

impl<'r, 'a> Run<'r, 'a> {
    pub(crate) fn new(
        predicates: &'r [Leaf],
        index: &'r Index,
        input: &'r EvalInput<'a>,
        scratch: &'r mut Scratch,
        steps: Steps,
    ) -> Self {
        Self { predicates, index, input, steps, scratch, is_index_searched: false }
    }

    /// Returns the numbers of the rules that the item could match, in order.
    pub(crate) fn candidates(&mut self) -> Vec<u32> {
        self.is_index_searched = self.scan_texts().is_ok()
            && self.nominate_by_values().is_ok()
            && self.nominate_by_media().is_ok()
            && self.nominate_by_places().is_ok();
        if !self.is_index_searched {
            // An incomplete search excludes no rule, so every rule is evaluated, as far as the remaining steps allow.
            return self.index.rules.to_vec();
        }
        self.nominate_unindexed();
        // Explanations find the needles of a predicate by binary search.
        self.scratch.found_needles.order();
        self.scratch.candidates.take()
    }

    /// Returns the possible outcomes of a predicate with the item alone.
    pub(crate) fn mask(&mut self, predicate: u32) -> Result<Mask, OutOfSteps> {
        let evaluation = match self.scratch.evaluation(predicate) {
            Some(evaluation) => evaluation,
            // A complete scan notes each text predicate that can pass, so one without a note has failed.
            None if self.is_index_searched && self.index.is_scanned(predicate) => return Ok(Mask::FAILED),
            None => self.evaluate(predicate),
        };
        match evaluation {
            Evaluation::Mask(mask) => Ok(mask),
            Evaluation::OutOfSteps => Err(OutOfSteps),
        }
    }

    /// Explains a predicate, with the needles that the scan has found for it.
    pub(crate) fn explain(&mut self, predicate: u32, mask: Mask) -> Explained {
        let leaf = &self.predicates[predicate as usize];
        let matches_any_needle = matches!(leaf, Leaf::Text(text) if text.required_count == 1);
        let found_needles =
            (matches_any_needle && self.is_index_searched && self.index.is_scanned(predicate)).then(|| {
                let hits = self.scratch.found_needles.as_slice();
                let start = hits.partition_point(|(owner, _)| *owner < predicate);
                let count = hits[start..].partition_point(|(owner, _)| *owner == predicate);
                &hits[start..start + count]
            });
        leaf.explain(mask, found_needles, self.input, &mut self.steps)
    }

    fn evaluate(&mut self, predicate: u32) -> Evaluation {
        let evaluated = self.predicates[predicate as usize].evaluate(self.input, &mut self.steps);
        let evaluation = evaluated.map_or(Evaluation::OutOfSteps, Evaluation::Mask);
        self.scratch.note(predicate, evaluation);
        evaluation
    }

    fn scan_texts(&mut self) -> Result<(), OutOfSteps> {
        let (index, input) = (self.index, self.input);
        for scan in &index.scans {
            let is_only_slot = scan.slots.len() == 1;
            for slot in &*scan.slots {
                for (nth, viewed) in input.fields.texts(*slot, scan.view).enumerate() {
                    self.scratch.next_text();
                    // One step pays for 16 bytes searched for many words, as `Limits::steps_per_item` says.
                    self.steps.take_shared(1 + u64::try_from(viewed.text.len()).unwrap_or(u64::MAX) / 16)?;
                    let next = scan.scanner.scan(viewed.text.as_bytes(), &mut |word, start| {
                        self.visit_word(
                            &WordMatch { slot: *slot, is_only_slot, nth, viewed, start },
                            scan.first_word + word,
                            scan.entries(word),
                        )
                    });
                    if next == ScanControl::Stop {
                        return Err(OutOfSteps);
                    }
                }
            }
        }
        self.run_patterns()
    }

    fn run_patterns(&mut self) -> Result<(), OutOfSteps> {
        let (index, input) = (self.index, self.input);
        for scan in &index.patterns {
            let is_only_slot = scan.slots.len() == 1;
            for slot in &*scan.slots {
                for (nth, viewed) in input.fields.texts(*slot, scan.view).enumerate() {
                    // Each pattern is charged as if it ran alone: the grouping of patterns into sets must not change an
                    // outcome.
                    let units = 1 + u64::try_from(viewed.text.len()).unwrap_or(u64::MAX) / 4;
                    let max_work = input.limits.steps_per_rule / units;
                    let affordable = |pattern: u32| scan.work[pattern as usize] <= max_work;
                    let mut total_work = 0_u64;
                    for (pattern, work) in (0..).zip(&*scan.work) {
                        if affordable(pattern) {
                            total_work = total_work.saturating_add(*work);
                        } else {
                            // The pattern alone exceeds the steps of a rule. Running it here would take them from all rules.
                            scan.entries(pattern).iter().for_each(|entry| self.give_up(entry.witness));
                        }
                    }
                    self.steps.take_shared(units.saturating_mul(total_work))?;
                    let at = WordMatch { slot: *slot, is_only_slot, nth, viewed, start: 0 };
                    let mut visitor = PatternVisitor { run: self, scan, at, max_work };
                    if scan.patterns.scan(viewed.text, &mut visitor)? == ScanControl::Stop {
                        return Err(OutOfSteps);
                    }
                }
            }
        }
        Ok(())
    }

    fn visit_word(&mut self, at: &WordMatch<'_, 'a>, word: u32, entries: &[IndexEntry]) -> ScanControl {
        // Without this check, a text full of one word would follow the word's entries at every place.
        if self.scratch.is_settled(word) {
            return ScanControl::Continue;
        }
        let mut settled = true;
        for entry in entries {
            if self.steps.take_shared(1).is_err() {
                return ScanControl::Stop;
            }
            settled &= self.follow_entry(at, entry);
        }
        if settled {
            self.scratch.settle(word);
        }
        ScanControl::Continue
    }

    /// Checks the predicate of an entry at a place of its word, and nominates its rules if it passes. True if further places of
    /// the word in this text add no information.
    fn follow_entry(&mut self, at: &WordMatch<'_, 'a>, entry: &IndexEntry) -> bool {
        let predicate = entry.witness.predicate;
        let predicates = self.predicates;
        let text = || match &predicates[predicate as usize] {
            Leaf::Text(text) => Some(text),
            _ => None,
        };
        // Reading the predicate costs a cache miss, so it is skipped where the scan covers one path only.
        if !at.is_only_slot && !text().is_some_and(|text| text.slots.contains(&at.slot)) {
            return true;
        }
        let is_found = match entry.proof {
            Proof::Place => Ok(true),
            Proof::WholeWord => {
                Ok(at.viewed.stands_alone(at.start, at.start + entry.length as usize, in_word))
            }
            Proof::Needle => {
                let Some(text) = text() else { return true };
                self.steps.next_rule();
                let mut texts = self.input.fields.texts(at.slot, text.view);
                texts.nth(at.nth).map_or(Ok(false), |viewed| {
                    text.contains_needle(entry.needle as usize, &viewed, &mut self.steps)
                })
            }
            Proof::Evaluate => {
                self.steps.next_rule();
                self.evaluate_witness(entry.witness);
                return true;
            }
        };
        match is_found {
            Ok(true) => {
                if self.scratch.evaluation(predicate) != Some(Evaluation::Mask(Mask::PASSED)) {
                    self.scratch.note(predicate, Evaluation::Mask(Mask::PASSED));
                    self.nominate_rules_of(entry.witness);
                }
                self.scratch.found_needles.push((predicate, entry.needle));
                true
            }
            // Another place of the word may stand alone. The other checks have covered the text already.
            Ok(false) => entry.proof != Proof::WholeWord,
            Err(OutOfSteps) => {
                self.give_up(entry.witness);
                true
            }
        }
    }

    fn nominate_by_values(&mut self) -> Result<(), OutOfSteps> {
        let (index, input) = (self.index, self.input);
        for (slot, lookup) in &*index.lookups {
            let values = input.fields.slot(*slot).values.as_deref().unwrap_or_default();
            let may_repeat = values.len() > 1;
            for (_, value) in values {
                self.steps.take_shared(1)?;
                let witnesses = match value {
                    Value::Text(text) => lookup.texts.get(text),
                    Value::Boolean(boolean) => lookup.booleans[usize::from(*boolean)].as_slice(),
                    Value::Related { type_id, id } => {
                        let ids = lookup.related.get(*type_id);
                        ids.and_then(|ids| ids.get(*id)).map_or(&[][..], Vec::as_slice)
                    }
                    Value::Number(_) | Value::Datetime(_) | Value::List(_) | Value::Map(_) => &[],
                };
                let number = match value {
                    Value::Number(number) => Some(number.to_f64()),
                    Value::Datetime(instant) => Some(crate::item::Number::from(instant.0).to_f64()),
                    _ => None,
                };
                for witness in witnesses {
                    self.nominate_witness(*witness, may_repeat)?;
                }
                if let Some(number) = number.filter(|_| !lookup.ranges.is_empty()) {
                    let mut result = Ok(());
                    // The visit cannot be ended early, so the closure skips the other witnesses after an error.
                    lookup.ranges.visit_containing(number, &mut |witness| {
                        if result.is_ok() {
                            result = self.nominate_witness(index.witnesses[witness as usize], may_repeat);
                        }
                    });
                    result?;
                }
            }
        }
        Ok(())
    }

    fn nominate_by_media(&mut self) -> Result<(), OutOfSteps> {
        let (index, input) = (self.index, self.input);
        for (slot, witnesses) in &*index.media {
            if input.fields.slot(*slot).values.as_deref().is_none_or(<[_]>::is_empty) {
                continue;
            }
            // Several paths may have media, and each nominates the same witness.
            let may_repeat = true;
            for witness in witnesses {
                self.nominate_witness(*witness, may_repeat)?;
            }
        }
        Ok(())
    }

    /// Nominates the rules of a witness that an indexed value may prove. `may_repeat` is true if another value of the item may
    /// nominate the same witness; its rules are then listed once.
    fn nominate_witness(&mut self, witness: Witness, may_repeat: bool) -> Result<(), OutOfSteps> {
        self.steps.take_shared(1)?;
        if !witness.is_proved {
            self.steps.next_rule();
            self.evaluate_witness(witness);
        } else if !may_repeat || self.scratch.evaluation(witness.predicate).is_none() {
            let has_candidates = self.nominate_rules_of(witness);
            // Only a candidate or a repeated nomination reads the outcome, so it is noted for these alone.
            if has_candidates || may_repeat {
                self.scratch.note(witness.predicate, Evaluation::Mask(Mask::PASSED));
            }
        }
        Ok(())
    }

    /// Notes that the witness takes more steps than are left, and makes candidates of its rules: an undecided witness excludes
    /// none of them.
    fn give_up(&mut self, witness: Witness) {
        if self.scratch.evaluation(witness.predicate).is_none() {
            self.scratch.note(witness.predicate, Evaluation::OutOfSteps);
            self.nominate_rules_of(witness);
        }
    }

    /// Evaluates a witness once, and makes candidates of its rules unless it has failed.
    fn evaluate_witness(&mut self, witness: Witness) {
        let predicate = witness.predicate;
        if self.scratch.evaluation(predicate).is_none()
            && self.evaluate(predicate) != Evaluation::Mask(Mask::FAILED)
        {
            self.nominate_rules_of(witness);
        }
    }

    /// Makes candidates of the witness's rules that meet their guards. True if there is one.
    fn nominate_rules_of(&mut self, witness: Witness) -> bool {
        self.nominate(witness.from, witness.to)
    }
}

/// Follows the entries of the patterns found in one text, and charges their steps.
struct PatternVisitor<'v, 'r, 'a, 's> {
    run: &'v mut Run<'r, 'a>,
    scan: &'r PatternScan,
    at: WordMatch<'s, 'a>,
    /// Work at which a pattern takes all steps of a rule on this text.
    max_work: u64,
}

impl<'r> PatternVisitor<'_, 'r, '_, '_> {
    /// Entries of the pattern for conditions that search this text.
    fn entries_of_text(&self, pattern: u32) -> impl Iterator<Item = &'r IndexEntry> {
        let (predicates, slot, is_only_slot) = (self.run.predicates, self.at.slot, self.at.is_only_slot);
        self.scan.entries(pattern).iter().filter(move |entry| {
            let leaf = &predicates[entry.witness.predicate as usize];
            is_only_slot || matches!(leaf, Leaf::Text(text) if text.slots.contains(&slot))
        })
    }
}

impl Visitor for PatternVisitor<'_, '_, '_, '_> {
    fn is_affordable(&self, pattern: u32) -> bool {
        self.scan.work[pattern as usize] <= self.max_work
    }

    fn visit_match(&mut self, pattern: u32) -> ScanControl {
        for entry in self.scan.entries(pattern) {
            if self.run.steps.take_shared(1).is_err() {
                return ScanControl::Stop;
            }
            self.run.follow_entry(&self.at, entry);
        }
        ScanControl::Continue
    }

    fn is_spent(&self, pattern: u32) -> bool {
        let max_steps = self.run.input.limits.steps_per_rule;
        self.entries_of_text(pattern)
            .all(|entry| self.run.scratch.slow_steps(entry.witness.predicate) > max_steps)
    }

    // All patterns of a condition share the steps of one rule, as they do if the condition is evaluated alone. Otherwise the
    // index would change an outcome.
    fn charge(&mut self, pattern: u32, steps: u64) -> Result<bool, OutOfSteps> {
        let max_steps = self.run.input.limits.steps_per_rule;
        let entries: Vec<_> = self.entries_of_text(pattern).copied().collect();
        for entry in entries {
            let predicate = entry.witness.predicate;
            self.run.scratch.add_slow_steps(predicate, steps);
            if self.run.scratch.slow_steps(predicate) > max_steps {
                self.run.give_up(entry.witness);
            }
        }
        if self.is_spent(pattern) {
            return Ok(false);
        }
        self.run.steps.take_shared(steps)?;
        Ok(true)
    }

    fn check_clock(&mut self) -> Result<(), OutOfSteps> {
        self.run.steps.check_clock()
    }
}

/// Place of a word in a text, or a text with a pattern.
struct WordMatch<'s, 'a> {
    slot: usize,
    /// True if the scan searches no other slot.
    is_only_slot: bool,
    /// Index of the text in the slot.
    nth: usize,
    viewed: ViewedText<'s, 'a>,
    /// Byte at which the word starts. Unused for patterns: only words must stand alone.
    start: usize,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;
    use tidegate_schemas::{
        banks::BankKind,
        ids::{Millis, SubmissionId, TypeId},
    };
    use uuid::Uuid;

    use super::scratch::Scratch;
    use crate::{
        Bank, BankEntry, Fields, Item, Kind, Limits, Plan, RuleSource, Shape, Trigger, Value, Vocabulary,
    };

    struct Text(String);

    impl Fields for Text {
        fn field(&self, name: &str) -> Option<Value<'_>> {
            (name == "text").then_some(Value::Text(&self.0))
        }
    }

    /// A thousand words begin at each of the places, and at most 256 words are remembered as settled.
    #[test]
    fn item_with_millions_of_hits_leaves_no_memory() {
        let entry = |length: usize| BankEntry {
            id: Uuid::from_u128(length as u128),
            value: "a".repeat(length).into(),
            labels: [].into(),
        };
        let post = TypeId::new("post");
        let mut vocabulary = Vocabulary::new();
        vocabulary.add(post.clone(), [("text", Shape::one(Kind::Text))]);
        let entries = (1..=1_000).map(entry).collect();
        vocabulary.add_bank(Bank { key: "words".into(), kind: BankKind::Text, entries });
        let document = json!({"rule": "r", "when": {"text": {"in": ["text"], "bank": "words"}}});
        let source = [RuleSource { document: &document, version: "1" }];
        // Without optimisation it takes many seconds.
        let limits = Limits { cpu_ms_per_item: 600_000, ..Limits::default() };
        let plan = Plan::compile(&source, &vocabulary, &limits).unwrap();
        let text = Text("a".repeat(8_000));
        let scan = plan.scan(&Item {
            type_id: &post,
            values: &text,
            user: None,
            on: Trigger::Item,
            now: Millis(0),
            submission: SubmissionId::from(Uuid::nil()),
        });
        assert_eq!(plan.finish(scan, &crate::Facts::new()).matched.len(), 1);
        Scratch::with(0, 0, |scratch| assert!(scratch.bytes() < 100_000, "{}", scratch.bytes()));
    }
}
