//! Reads window documents, and conditions on what windows have counted.
//!
//! It does not know which fields and windows exist.

use serde_json::Value as Json;
use tidegate_schemas::ids::{TypeId, WindowId};

use super::{Object, Reader, present};
use crate::{
    facts::Within,
    form::{Count, Window},
    item::Number,
    windows::{Amount, Measure},
};

/// Buckets of a window: its rows are read bucket by bucket.
const MOST_BUCKETS: i64 = 1_000;

/// Buckets of a window that does not say.
const USUAL_BUCKETS: i64 = 24;

const SECOND: i64 = 1_000;

impl Reader<'_> {
    pub(super) fn window(&mut self, document: &Json) -> Option<Window> {
        let keys = ["window", "name", "item_types", "by", "where", "sum", "distinct", "over", "bucket"];
        let object = self.object(document, &keys)?;
        let key = self.required(object, "window", |r, v| r.text(v).map(WindowId::new));
        self.optional(object, "name", |r, v| r.text(v).map(|_| ()));
        let item_types = self.optional(object, "item_types", |r, v| {
            let list = r.list(v, |r, v| r.text(v).map(TypeId::new))?;
            r.distinct(list, "item type")
        });
        let path = |r: &mut Self, key: &str| r.optional(object, key, |r, v| r.text(v).map(str::to_owned));
        let (by, sum, distinct) = (path(self, "by"), path(self, "sum"), path(self, "distinct"));
        let condition = self.optional(object, "where", |r, v| r.condition(v, 1));
        let over = self.required(object, "over", Self::span);
        let bucket = self.optional(object, "bucket", Self::span);
        if present(object, "sum") && present(object, "distinct") {
            return self.fault("shape", "a window has either `sum` or `distinct`");
        }
        let measure = if present(object, "sum") {
            Measure::Sum
        } else if present(object, "distinct") {
            Measure::Distinct
        } else {
            Measure::Count
        };
        let over = over?.millis();
        let bucket = match bucket {
            Some(bucket) if bucket.millis() > over => {
                return self.at("bucket", |r| r.fault("limit", "is longer than the window"));
            }
            Some(bucket) if over / bucket.millis() > MOST_BUCKETS => {
                let detail = format!("makes more than {MOST_BUCKETS} pieces of the window");
                return self.at("bucket", |r| r.fault("limit", detail));
            }
            Some(bucket) => bucket.millis(),
            None => (over / USUAL_BUCKETS).max(SECOND).min(over),
        };
        Some(Window {
            key: key?,
            item_types: item_types.unwrap_or_default(),
            by,
            condition,
            measure,
            measured: sum.or(distinct),
            over,
            bucket,
        })
    }

    fn span(&mut self, value: &Json) -> Option<Within> {
        let text = self.text(value)?;
        Within::parse(text).or_else(|| {
            self.fault(
                "type",
                "expected a span above nothing, such as 30d, 24h or 15m, and of ten years at most",
            )
        })
    }

    pub(super) fn count(&mut self, value: &Json) -> Option<Count> {
        let object = self.object(value, &["window", "gte", "gt"])?;
        let window = self.required(object, "window", |r, v| r.text(v).map(WindowId::new));
        let at_least = self.at_least(object)?;
        Some(Count { window: window?, at_least })
    }

    fn at_least(&mut self, object: &Object) -> Option<Amount> {
        let at_least = match (present(object, "gte"), present(object, "gt")) {
            (true, false) => self.required(object, "gte", Self::amount),
            (false, true) => self.required(object, "gt", Self::amount).map(Amount::next),
            _ => return self.fault("shape", "expected either `gte` or `gt`"),
        }?;
        if at_least <= Amount::ZERO {
            return self.fault("type", "every window has counted nothing at least: expected a larger number");
        }
        Some(at_least)
    }

    pub(super) fn amount(&mut self, value: &Json) -> Option<Amount> {
        let number = value.as_number().and_then(|number| Number::parse(&number.to_string()));
        match number.map(Number::millionths) {
            Some(millionths) if millionths > i64::MIN && millionths < i64::MAX => Some(Amount(millionths)),
            Some(_) => self.fault("limit", "is beyond nine trillion"),
            None => self.fault("type", "expected a number"),
        }
    }

    pub(super) fn counts(&mut self, value: &Json) -> Option<Vec<(WindowId, Amount)>> {
        let Some(object) = value.as_object() else {
            return self.fault("shape", "expected a mapping of windows and what they have counted");
        };
        let mut counts = Vec::with_capacity(object.len());
        for (window, amount) in object {
            counts.push((WindowId::new(window), self.at(window, |r| r.amount(amount))?));
        }
        Some(counts)
    }
}
