//! Finds the rules that an item could match by what must be in it, and evaluates only those.
//!
//! What a rule comes to is the same as if every condition had been looked at.

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
    scratch::{Evaluated, Scratch},
    witness::Witness,
};
use crate::{
    fields::ViewedText,
    item::Value,
    leaves::{Explained, Leaf, input::EvalInput},
    limits::{OutOfSteps, Steps},
    logic::Mask,
    search::Next,
    text::in_word,
};

/// The evaluation of one item.
pub(crate) struct Run<'r, 'a> {
    pub(crate) predicates: &'r [Leaf],
    pub(crate) index: &'r Index,
    pub(crate) input: &'r EvalInput<'a>,
    pub(crate) steps: Steps,
    pub(crate) scratch: &'r mut Scratch,
    /// True once all of the index has been searched.
    complete: bool,
}

impl<'r, 'a> Run<'r, 'a> {
    pub(crate) fn new(
        predicates: &'r [Leaf],
        index: &'r Index,
        input: &'r EvalInput<'a>,
        scratch: &'r mut Scratch,
        steps: Steps,
    ) -> Self {
        Self { predicates, index, input, steps, scratch, complete: false }
    }

    /// The rules that the item could match, in order.
    pub(crate) fn candidates(&mut self) -> Vec<u32> {
        self.complete = self.scan().is_ok()
            && self.look_up().is_ok()
            && self.look_at_media().is_ok()
            && self.look_up_places().is_ok();
        if !self.complete {
            // The index was not searched to its end: every rule must be evaluated, as far as the steps reach.
            return self.index.rules.to_vec();
        }
        self.nominate_unindexed();
        self.scratch.found.order();
        self.scratch.candidates.take()
    }

    /// Returns what a predicate can still come to.
    pub(crate) fn mask(&mut self, predicate: u32) -> Result<Mask, OutOfSteps> {
        let known = match self.scratch.known(predicate) {
            Some(known) => known,
            None if self.complete && self.index.is_scanned(predicate) => return Ok(Mask::FAILED),
            None => self.evaluate(predicate),
        };
        match known {
            Evaluated::Is(mask) => Ok(mask),
            Evaluated::OutOfSteps => Err(OutOfSteps),
        }
    }

    /// A predicate as an explanation shows it. Which of its needles are in the item the scan may know.
    pub(crate) fn explain(&mut self, predicate: u32, known: Mask) -> Explained {
        let leaf = &self.predicates[predicate as usize];
        let any = matches!(leaf, Leaf::Text(text) if text.needed == 1);
        let found = (any && self.complete && self.index.is_scanned(predicate)).then(|| {
            let found = self.scratch.found.as_slice();
            let from = found.partition_point(|(of, _)| *of < predicate);
            let count = found[from..].partition_point(|(of, _)| *of == predicate);
            &found[from..from + count]
        });
        leaf.explain(known, found, self.input, &mut self.steps)
    }

    fn evaluate(&mut self, predicate: u32) -> Evaluated {
        let evaluated = self.predicates[predicate as usize].evaluate(self.input, &mut self.steps);
        let known = evaluated.map_or(Evaluated::OutOfSteps, Evaluated::Is);
        self.scratch.note(predicate, known);
        known
    }

    fn scan(&mut self) -> Result<(), OutOfSteps> {
        let (index, input) = (self.index, self.input);
        for scan in &index.scans {
            let only = scan.slots.len() == 1;
            for slot in &*scan.slots {
                for (nth, seen) in input.fields.texts(*slot, scan.view).enumerate() {
                    self.scratch.next_text();
                    self.steps.take_shared(1 + u64::try_from(seen.text.len()).unwrap_or(u64::MAX) / 16)?;
                    let next = scan.scanner.scan(seen.text.as_bytes(), &mut |word, start| {
                        self.hit(
                            &WordMatch { slot: *slot, only, nth, seen, start },
                            scan.first + word,
                            scan.entries(word),
                        )
                    });
                    if next == Next::Stop {
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
            let only = scan.slots.len() == 1;
            for slot in &*scan.slots {
                for (nth, seen) in input.fields.texts(*slot, scan.view).enumerate() {
                    // What the patterns take one by one: how many of them run together is no matter of an outcome.
                    let each = 1 + u64::try_from(seen.text.len()).unwrap_or(u64::MAX) / 4;
                    let most = input.limits.steps_per_rule / each;
                    let affordable = |pattern: u32| scan.work[pattern as usize] <= most;
                    let mut together = 0_u64;
                    for (pattern, work) in (0..).zip(&*scan.work) {
                        if affordable(pattern) {
                            together = together.saturating_add(*work);
                        } else {
                            scan.entries(pattern).iter().for_each(|entry| self.give_up(entry.witness));
                        }
                    }
                    self.steps.take_shared(each.saturating_mul(together))?;
                    let at = WordMatch { slot: *slot, only, nth, seen, start: 0 };
                    let mut visitor = PatternVisitor { run: self, scan, at, most };
                    if scan.patterns.scan(seen.text, &mut visitor)? == Next::Stop {
                        return Err(OutOfSteps);
                    }
                }
            }
        }
        Ok(())
    }

    fn hit(&mut self, at: &WordMatch<'_, 'a>, word: u32, entries: &[IndexEntry]) -> Next {
        if self.scratch.is_settled(word) {
            return Next::Go;
        }
        let mut settled = true;
        for entry in entries {
            if self.steps.take_shared(1).is_err() {
                return Next::Stop;
            }
            settled &= self.follow(at, entry);
        }
        if settled {
            self.scratch.settle(word);
        }
        Next::Go
    }

    /// Follows an entry; true if further places of the word in this text say nothing new.
    fn follow(&mut self, at: &WordMatch<'_, 'a>, entry: &IndexEntry) -> bool {
        let predicate = entry.witness.predicate;
        let predicates = self.predicates;
        let text = || match &predicates[predicate as usize] {
            Leaf::Text(text) => Some(text),
            _ => None,
        };
        // A look at the predicate is one into far memory: where one path alone is searched it is of no use.
        if !at.only && !text().is_some_and(|text| text.slots.contains(&at.slot)) {
            return true;
        }
        let found = match entry.proof {
            Proof::Place => Ok(true),
            Proof::WholeWord => Ok(at.seen.stands_alone(at.start, at.start + entry.length as usize, in_word)),
            Proof::Needle => {
                let Some(text) = text() else { return true };
                self.steps.next_rule();
                let mut texts = self.input.fields.texts(at.slot, text.view);
                texts
                    .nth(at.nth)
                    .map_or(Ok(false), |seen| text.finds(entry.needle as usize, &seen, &mut self.steps))
            }
            Proof::Evaluate => {
                self.steps.next_rule();
                self.settle(entry.witness);
                return true;
            }
        };
        match found {
            Ok(true) => {
                if self.scratch.known(predicate) != Some(Evaluated::Is(Mask::PASSED)) {
                    self.scratch.note(predicate, Evaluated::Is(Mask::PASSED));
                    self.unlock(entry.witness);
                }
                self.scratch.found.push((predicate, entry.needle));
                true
            }
            Ok(false) => entry.proof != Proof::WholeWord,
            Err(OutOfSteps) => {
                self.give_up(entry.witness);
                true
            }
        }
    }

    fn look_up(&mut self) -> Result<(), OutOfSteps> {
        let (index, input) = (self.index, self.input);
        for (slot, lookup) in &*index.lookups {
            let values = input.fields.slot(*slot).values.as_deref().unwrap_or_default();
            let again = values.len() > 1;
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
                    Value::Number(number) => Some(number.coarse()),
                    Value::Datetime(instant) => Some(crate::item::Number::from(instant.0).coarse()),
                    _ => None,
                };
                for witness in witnesses {
                    self.nominate_witness(*witness, again)?;
                }
                if let Some(number) = number.filter(|_| !lookup.ranges.is_empty()) {
                    let mut result = Ok(());
                    lookup.ranges.at(number, &mut |witness| {
                        if result.is_ok() {
                            result = self.nominate_witness(index.witnesses[witness as usize], again);
                        }
                    });
                    result?;
                }
            }
        }
        Ok(())
    }

    fn look_at_media(&mut self) -> Result<(), OutOfSteps> {
        let (index, input) = (self.index, self.input);
        for (slot, witnesses) in &*index.media {
            if input.fields.slot(*slot).values.as_deref().is_none_or(<[_]>::is_empty) {
                continue;
            }
            for witness in witnesses {
                self.nominate_witness(*witness, true)?;
            }
        }
        Ok(())
    }

    /// `again`: it may have been nominated before, and its rules are many.
    fn nominate_witness(&mut self, witness: Witness, again: bool) -> Result<(), OutOfSteps> {
        self.steps.take_shared(1)?;
        if !witness.proved {
            self.steps.next_rule();
            self.settle(witness);
        } else if !again || self.scratch.known(witness.predicate).is_none() {
            let some = self.unlock(witness);
            // Where no rule is left nobody will ask, but for the same value once more.
            if some || again {
                self.scratch.note(witness.predicate, Evaluated::Is(Mask::PASSED));
            }
        }
        Ok(())
    }

    /// It takes more steps than there are to say what a witness comes to.
    fn give_up(&mut self, witness: Witness) {
        if self.scratch.known(witness.predicate).is_none() {
            self.scratch.note(witness.predicate, Evaluated::OutOfSteps);
            self.unlock(witness);
        }
    }

    /// Evaluates a witness, unless that is done, and unlocks its rules if they have to be looked at.
    fn settle(&mut self, witness: Witness) {
        let predicate = witness.predicate;
        if self.scratch.known(predicate).is_none() && self.evaluate(predicate) != Evaluated::Is(Mask::FAILED)
        {
            self.unlock(witness);
        }
    }

    /// Makes candidates of a witness's rules, unless they are refuted; whether there are any.
    fn unlock(&mut self, witness: Witness) -> bool {
        self.nominate(witness.from, witness.to)
    }
}

/// Follows the entries of the patterns that are found in one text, and takes what they cost.
struct PatternVisitor<'v, 'r, 'a, 's> {
    run: &'v mut Run<'r, 'a>,
    scan: &'r PatternScan,
    at: WordMatch<'s, 'a>,
    /// Work of a pattern that takes all steps of a rule on this text.
    most: u64,
}

impl<'r> PatternVisitor<'_, 'r, '_, '_> {
    /// Entries of the pattern whose conditions search this text.
    fn searched(&self, pattern: u32) -> impl Iterator<Item = &'r IndexEntry> {
        let (predicates, slot, only) = (self.run.predicates, self.at.slot, self.at.only);
        self.scan.entries(pattern).iter().filter(move |entry| {
            let leaf = &predicates[entry.witness.predicate as usize];
            only || matches!(leaf, Leaf::Text(text) if text.slots.contains(&slot))
        })
    }
}

impl Visitor for PatternVisitor<'_, '_, '_, '_> {
    fn wants(&self, pattern: u32) -> bool {
        self.scan.work[pattern as usize] <= self.most
    }

    fn found(&mut self, pattern: u32) -> Next {
        for entry in self.scan.entries(pattern) {
            if self.run.steps.take_shared(1).is_err() {
                return Next::Stop;
            }
            self.run.follow(&self.at, entry);
        }
        Next::Go
    }

    fn is_spent(&self, pattern: u32) -> bool {
        let most = self.run.input.limits.steps_per_rule;
        self.searched(pattern).all(|entry| self.run.scratch.slow_steps(entry.witness.predicate) > most)
    }

    /// A condition has the steps of one rule for all its patterns, as it has where it is evaluated by itself.
    fn charge(&mut self, pattern: u32, steps: u64) -> Result<bool, OutOfSteps> {
        let most = self.run.input.limits.steps_per_rule;
        let searched: Vec<_> = self.searched(pattern).copied().collect();
        for entry in searched {
            let predicate = entry.witness.predicate;
            self.run.scratch.add_slow_steps(predicate, steps);
            if self.run.scratch.slow_steps(predicate) > most {
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

/// A place in a text.
struct WordMatch<'s, 'a> {
    slot: usize,
    /// It is the only one that is searched.
    only: bool,
    /// Index of the text in the slot.
    nth: usize,
    seen: ViewedText<'s, 'a>,
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
        Bank, BankEntry, Fields, Item, Kind, Limits, On, Plan, RuleSource, Shape, Value, Vocabulary,
    };

    struct Text(String);

    impl Fields for Text {
        fn field(&self, name: &str) -> Option<Value<'_>> {
            (name == "text").then_some(Value::Text(&self.0))
        }
    }

    /// A thousand words stand at each of the places, and no more than 256 are remembered as settled.
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
        vocabulary.bank(Bank { key: "words".into(), kind: BankKind::Text, entries });
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
            on: On::Item,
            now: Millis(0),
            submission: SubmissionId::from(Uuid::nil()),
        });
        assert_eq!(plan.finish(scan, &crate::Facts::new()).matched.len(), 1);
        Scratch::with(0, 0, |scratch| assert!(scratch.bytes() < 100_000, "{}", scratch.bytes()));
    }
}
