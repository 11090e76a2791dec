//! Reads conditions on media and scores, and what examples say is known of them.
//!
//! It does not know which banks and models exist.

use serde_json::Value as Json;
use tidegate_schemas::ids::BankId;

use super::{Object, Reader, present};
use crate::{
    facts::{BankMatch, Media, MediaState, Scores},
    form::{Around, MediaTest, Op, Score},
    item::Number,
};

const STATES: [(&str, MediaState); 6] = [
    ("ok", MediaState::Ok),
    ("low_quality", MediaState::LowQuality),
    ("undecodable", MediaState::Undecodable),
    ("too_large", MediaState::TooLarge),
    ("blocked_address", MediaState::BlockedAddress),
    ("fetch_failed", MediaState::FetchFailed),
];

const ORDERS: [(&str, Op); 4] = [("lt", Op::Lt), ("lte", Op::Lte), ("gt", Op::Gt), ("gte", Op::Gte)];

/// What may be said to be known beside an item.
pub(super) const AROUND: [&str; 4] = ["strikes", "counts", "scores", "media"];

impl Reader<'_> {
    pub(super) fn around(&mut self, object: &Object) -> Around {
        Around {
            strikes: self.optional(object, "strikes", Self::whole).unwrap_or_default(),
            counts: self.optional(object, "counts", Self::counts).unwrap_or_default(),
            scores: self.optional(object, "scores", Self::scores).unwrap_or_default(),
            media: self.optional(object, "media", |r, v| r.list(v, Self::medium)).unwrap_or_default(),
        }
    }

    pub(super) fn media(&mut self, value: &Json) -> Option<MediaTest> {
        let object = self.object(value, &["in", "state", "bank", "kind", "labels", "max_distance"])?;
        let fields = self.required(object, "in", |r, v| {
            let fields = r.filled(v, |r, v| r.text(v).map(str::to_owned))?;
            r.distinct(fields, "field")
        });
        let states = self.optional(object, "state", |r, v| r.one_or_more(v, |r, v| r.name(v, &STATES)));
        let texts = |r: &mut Self, key: &str| {
            r.optional(object, key, |r, v| r.one_or_more(v, |r, v| r.text(v).map(str::to_owned)))
        };
        let (banks, kinds, labels) = (texts(self, "bank"), texts(self, "kind"), texts(self, "labels"));
        let max_distance = self.optional(object, "max_distance", Self::distance);
        let matching =
            ["bank", "kind", "labels", "max_distance"].into_iter().find(|key| present(object, key));
        match (present(object, "state"), matching) {
            (true, Some(key)) => {
                return self.at(key, |r| r.fault("shape", "`state` asks for no match; use two conditions"));
            }
            (false, None) => {
                let detail = "expected `state`, or one or more of bank, kind, labels and max_distance";
                return self.fault("shape", detail);
            }
            _ => {}
        }
        for (written, read) in [
            (present(object, "state"), states.is_some()),
            (present(object, "bank"), banks.is_some()),
            (present(object, "kind"), kinds.is_some()),
            (present(object, "labels"), labels.is_some()),
            (present(object, "max_distance"), max_distance.is_some()),
        ] {
            // Left out it would mean another thing.
            (written == read).then_some(())?;
        }
        Some(MediaTest {
            fields: fields?,
            states: states.unwrap_or_default(),
            banks: banks.unwrap_or_default().into_iter().map(BankId::from).collect(),
            kinds: kinds.unwrap_or_default(),
            labels: labels.unwrap_or_default(),
            max_distance,
        })
    }

    pub(super) fn score(&mut self, value: &Json) -> Option<Score> {
        let object = self.object(value, &["model", "label", "lt", "lte", "gt", "gte"])?;
        let model = self.required(object, "model", |r, v| r.text(v).map(str::to_owned));
        let label = self.optional(object, "label", |r, v| r.text(v).map(str::to_owned));
        let written = ORDERS.iter().filter(|(name, _)| present(object, name)).count();
        let mut tests = Vec::with_capacity(written);
        for (name, op) in ORDERS {
            tests.extend(self.optional(object, name, Self::number).map(|number| (op, number)));
        }
        if written == 0 {
            return self.fault("shape", "compares nothing: expected one or more of lt, lte, gt, gte");
        }
        (tests.len() == written && (label.is_some() || !present(object, "label"))).then_some(())?;
        Some(Score { model: model?, label, tests })
    }

    /// One value, or a list of which one is enough.
    pub(super) fn one_or_more<T: PartialEq>(
        &mut self,
        value: &Json,
        mut read: impl FnMut(&mut Self, &Json) -> Option<T>,
    ) -> Option<Vec<T>> {
        if !value.is_array() {
            return read(self, value).map(|one| vec![one]);
        }
        let list = self.filled(value, read)?;
        self.counted(list.len())?;
        self.distinct(list, "value")
    }

    pub(super) fn number(&mut self, value: &Json) -> Option<Number> {
        let number = value.as_number().and_then(|number| Number::parse(&number.to_string()));
        number.or_else(|| self.fault("type", "expected a number"))
    }

    fn distance(&mut self, value: &Json) -> Option<u32> {
        let distance = value.as_u64().and_then(|distance| u32::try_from(distance).ok());
        distance.or_else(|| self.fault("type", "expected a number of bits, 0 or more"))
    }

    pub(super) fn scores(&mut self, value: &Json) -> Option<Vec<(String, Scores)>> {
        let Some(object) = value.as_object() else {
            return self.fault("shape", "expected a mapping of models and what they say");
        };
        let mut scores = Vec::with_capacity(object.len());
        for (model, said) in object {
            scores.push((model.clone(), self.at(model, |r| r.said(said))?));
        }
        Some(scores)
    }

    fn said(&mut self, value: &Json) -> Option<Scores> {
        let Some(object) = value.as_object() else {
            self.number(value)?;
            return Some(Scores { whole: value.as_f64(), ..Scores::default() });
        };
        let mut scores = Scores::default();
        for (label, number) in object {
            self.at(label, |r| r.number(number))?;
            scores.labels.extend(number.as_f64().map(|number| (label.clone(), number)));
        }
        Some(scores)
    }

    pub(super) fn medium(&mut self, value: &Json) -> Option<(Option<String>, Media)> {
        let object = self.object(value, &["url", "state", "bank", "entry", "kind", "distance", "labels"])?;
        let text = |r: &mut Self, key: &str| r.optional(object, key, |r, v| r.text(v).map(str::to_owned));
        let (url, bank) = (text(self, "url"), text(self, "bank"));
        let (entry, kind) = (text(self, "entry"), text(self, "kind"));
        let state = self.optional(object, "state", |r, v| r.name(v, &STATES));
        let distance = self.optional(object, "distance", Self::distance);
        let labels = self.optional(object, "labels", |r, v| r.list(v, |r, v| r.text(v).map(str::to_owned)));
        let found = bank.map(|bank| BankMatch {
            bank: BankId::from(bank),
            entry: entry.unwrap_or_else(|| "example".to_owned()),
            kind: kind.unwrap_or_else(|| "pdq".to_owned()),
            distance: distance.unwrap_or_default(),
            labels: labels.unwrap_or_default(),
        });
        let matches = found.into_iter().collect();
        Some((url, Media { state: state.unwrap_or_default(), matches }))
    }
}
