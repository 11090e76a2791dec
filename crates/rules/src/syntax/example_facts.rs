//! Reads the facts of examples. Whether windows, banks and models exist is checked when rules are compiled, and for lines in
//! `inline_tests`.

use std::sync::Arc;

use serde_json::Value as Json;
use tidegate_schemas::ids::{BankId, WindowId};

use super::ExampleFacts;
use crate::{
    facts::{BankMatch, Media, MediaState, Scores},
    reader::{Object, Reader},
    windows::Amount,
};

/// Keys of the facts of an example.
pub(super) const FACT_KEYS: [&str; 5] = ["strikes", "counts", "scores", "texts", "media"];

impl Reader<'_> {
    pub(super) fn example_facts(&mut self, object: &Object) -> ExampleFacts {
        ExampleFacts {
            strikes: self.optional(object, "strikes", Self::whole_number).unwrap_or_default(),
            counts: self.optional(object, "counts", Self::counts).unwrap_or_default(),
            scores: self.optional(object, "scores", Self::scores).unwrap_or_default(),
            texts: self.optional(object, "texts", Self::model_texts).unwrap_or_default(),
            media: self.optional(object, "media", |r, v| r.list(v, Self::medium)).unwrap_or_default(),
        }
    }

    fn counts(&mut self, value: &Json) -> Option<Vec<(WindowId, Amount)>> {
        let Some(object) = value.as_object() else {
            return self.error("shape", "expected a mapping of windows to counts");
        };
        let mut counts = Vec::with_capacity(object.len());
        for (window, amount) in object {
            counts.push((WindowId::new(window), self.at(window, |r| r.amount(amount))?));
        }
        Some(counts)
    }

    fn scores(&mut self, value: &Json) -> Option<Vec<(String, Scores)>> {
        let Some(object) = value.as_object() else {
            return self.error("shape", "expected a mapping of models to scores");
        };
        let mut scores = Vec::with_capacity(object.len());
        for (model, score) in object {
            scores.push((model.clone(), self.at(model, |r| r.model_scores(score))?));
        }
        Some(scores)
    }

    fn model_texts(&mut self, value: &Json) -> Option<Vec<(String, Vec<Arc<str>>)>> {
        let Some(object) = value.as_object() else {
            return self.error("shape", "expected a mapping of models to texts");
        };
        let mut texts = Vec::with_capacity(object.len());
        for (model, answer) in object {
            let model_texts = self.at(model, |r| {
                r.one_or_more(answer, |r, v| match v.as_str() {
                    Some(text) => Some(text.into()),
                    None => r.error("shape", "expected a text"),
                })
            });
            texts.push((model.clone(), model_texts?));
        }
        Some(texts)
    }

    fn model_scores(&mut self, value: &Json) -> Option<Scores> {
        let Some(object) = value.as_object() else {
            // Refuses numbers beyond the range of a float.
            self.number(value)?;
            return Some(Scores { overall: value.as_f64(), ..Scores::default() });
        };
        let mut scores = Scores::default();
        for (label, number) in object {
            self.at(label, |r| r.number(number))?;
            scores.labels.extend(number.as_f64().map(|number| (label.clone(), number)));
        }
        Some(scores)
    }

    fn medium(&mut self, value: &Json) -> Option<(Option<String>, Media)> {
        let object = self.object(value, &["url", "state", "bank", "entry", "kind", "distance", "labels"])?;
        let text = |r: &mut Self, key: &str| r.optional(object, key, |r, v| r.text(v).map(str::to_owned));
        let (url, bank) = (text(self, "url"), text(self, "bank"));
        let (entry, kind) = (text(self, "entry"), text(self, "kind"));
        let state = self.optional(object, "state", |r, v| r.variant(v, MediaState::ALL, MediaState::as_str));
        let distance = self.optional(object, "distance", Self::distance);
        let labels = self.optional(object, "labels", |r, v| r.list(v, |r, v| r.text(v).map(str::to_owned)));
        let bank_match = bank.map(|bank| BankMatch {
            bank: BankId::from(bank),
            entry: entry.unwrap_or_else(|| "example".to_owned()),
            kind: kind.unwrap_or_else(|| "pdq".to_owned()),
            distance: distance.unwrap_or_default(),
            labels: labels.unwrap_or_default(),
        });
        let matches = bank_match.into_iter().collect();
        Some((url, Media { state: state.unwrap_or_default(), matches }))
    }
}
