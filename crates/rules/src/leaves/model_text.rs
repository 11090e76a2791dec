//! The condition `model_text`: words or patterns in the text that a model returns for the item, such as a transcript. The
//! caller asks the model; the search is the one of the condition `text`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use tidegate_schemas::ids::Millis;

use super::{
    context::Context,
    input::{EvalInput, Hit, LeafDecision},
    kind::{DocumentLeaf, LeafKind},
    text::{Text, TextExplained, TextLeaf},
};
use crate::{
    facts::{Facts, Need, NoAnswer},
    fields::{FieldCache, Path},
    item::{Fields, Value},
    limits::{Limits, OutOfSteps, Steps, to_u64},
    logic::{ConditionResult, Mask},
    reader::Reader,
    text::View,
    vocabulary::Route,
};

/// Search for words or patterns in the text of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelText {
    pub model: String,
    /// Search with a single field: the name of the text in outcomes.
    pub text: Text,
}

#[derive(Debug)]
pub(crate) struct ModelTextLeaf {
    model: String,
    paths: [Path; 1],
    text: TextLeaf,
}

/// Texts of a model in place of an item's fields: one for each input of the model.
struct ModelTexts<'a>(&'a [Arc<str>]);

impl ModelTexts<'_> {
    fn bytes(&self) -> usize {
        self.0.iter().map(|text| text.len()).sum()
    }
}

impl Fields for ModelTexts<'_> {
    fn field(&self, _name: &str) -> Option<Value<'_>> {
        Some(match self.0 {
            [text] => Value::Text(text),
            texts => Value::List(texts.iter().map(|text| Value::Text(text)).collect()),
        })
    }
}

impl ModelTextLeaf {
    pub(crate) fn model(&self) -> &str {
        &self.model
    }

    /// Name of the text in outcomes, if it is longer than the searched part.
    pub(crate) fn truncated_text(&self, needs: &[Need], facts: &Facts, limits: &Limits) -> Option<&str> {
        let scores = needs.first().and_then(|need| facts.scores_of(need).ok())?;
        (ModelTexts(&scores.texts).bytes() > limits.text_bytes).then_some(self.paths[0].name.as_str())
    }
}

impl LeafKind for ModelTextLeaf {
    type Spec = ModelText;
    type Explained = ModelTextExplained;

    const LOOKS_UP: bool = true;

    fn compile(spec: ModelText, context: &mut Context<'_>) -> Option<Self> {
        // `ModelTexts` has a single field and ignores its name.
        let route = Route { field: String::new(), inside: None };
        let paths = [Path { name: spec.text.fields.concat(), routes: vec![route] }];
        let mut text = TextLeaf::compile_for_slots(Some(vec![0]), spec.text, context)?;
        // The engine does not scan the texts of models, so a long list needs a search of its own.
        text.build_bulk_search();
        Some(Self { model: spec.model, paths, text })
    }

    fn paths(_spec: &ModelText, _context: &Context<'_>) -> Vec<String> {
        Vec::new()
    }

    fn evaluate(&self, _input: &EvalInput<'_>, _steps: &mut Steps) -> Result<Mask, OutOfSteps> {
        Ok(Mask::OPEN)
    }

    fn collect_needs(&self, input: &EvalInput<'_>) -> Vec<Need> {
        vec![Need::Score { model: self.model.clone(), submission: input.submission }]
    }

    fn settle(
        &self,
        needs: &[Need],
        facts: &Facts,
        explained: ModelTextExplained,
        limits: &Limits,
        steps: &mut Steps,
    ) -> LeafDecision<ModelTextExplained> {
        let answer = needs.first().and_then(|need| match need {
            Need::Score { submission, .. } => Some((facts.scores_of(need), *submission)),
            _ => None,
        });
        let texts = match answer {
            Some((Ok(scores), submission)) if !scores.texts.is_empty() => {
                Ok((ModelTexts(&scores.texts), submission))
            }
            Some((Ok(_), _)) => Err(NoAnswer::Unknown),
            Some((Err(no_answer), _)) => Err(no_answer),
            None => Err(NoAnswer::Failed("not_looked_up")),
        };
        let searched = texts.map(|(texts, submission)| {
            // Each condition converts the text to its view without sharing the result, so each is charged.
            steps.take(1 + to_u64(texts.bytes().min(limits.text_bytes)) / 16)?;
            let input = EvalInput {
                fields: FieldCache::new(&texts, &self.paths, None, limits.text_bytes),
                user: None,
                now: Millis(0),
                submission,
                limits,
            };
            self.text.evaluate(&input, steps).map(|mask| (mask, self.text.explain(mask, None, &input, steps)))
        });
        let (mask, reason) = match searched {
            Ok(Ok((mask, TextExplained { hits, more, .. }))) => {
                let explained = ModelTextExplained { outcome: mask.result(), hits, more, ..explained };
                return LeafDecision { mask, explained, reason: None };
            }
            Ok(Err(OutOfSteps)) => (Mask::ERRORED, Some("deadline")),
            Err(NoAnswer::Unknown) => (Mask::INAPPLICABLE, None),
            Err(NoAnswer::Failed(reason)) => (Mask::ERRORED, Some(reason)),
            // No outcome depends on a skipped text, and the rule must not pass by it.
            Err(NoAnswer::Skipped) => {
                let explained = ModelTextExplained { outcome: ConditionResult::Skipped, ..explained };
                return LeafDecision { mask: Mask::ERRORED, explained, reason: None };
            }
        };
        let explained =
            ModelTextExplained { outcome: mask.result(), reason: reason.map(str::to_owned), ..explained };
        LeafDecision { mask, explained, reason: reason.map(|reason| format!("model_text: {reason}")) }
    }

    fn explain(
        &self,
        mask: Mask,
        _found_needles: Option<&[(u32, u32)]>,
        _input: &EvalInput<'_>,
        _steps: &mut Steps,
    ) -> ModelTextExplained {
        ModelTextExplained {
            outcome: mask.result(),
            model: self.model.clone(),
            view: self.text.view,
            hits: Vec::new(),
            more: false,
            reason: None,
        }
    }

    fn memory(&self) -> usize {
        self.text.memory()
    }
}

impl DocumentLeaf for ModelTextLeaf {
    const KEY: &'static str = "model_text";

    fn parse(reader: &mut Reader<'_>, value: &Json) -> Option<ModelText> {
        let mut text = reader.text_search(value, "model", |r, v| Some(vec![r.text(v)?.to_owned()]))?;
        let model = text.fields.concat();
        // The prefix distinguishes the text from a field of the item with the same name.
        text.fields = vec![format!("signal:{model}")];
        Some(ModelText { model, text })
    }
}

/// Explanation of a condition on a model's text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelTextExplained {
    pub outcome: ConditionResult,
    pub model: String,
    pub view: View,
    /// First place of each word or pattern that was found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hits: Vec<Hit>,
    /// True if more words or patterns were found than are listed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
    /// Reason for which the text is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
