//! Reads window documents.

use serde_json::Value as Json;
use tidegate_schemas::ids::{TypeId, WindowId};

use super::Window;
use crate::{
    reader::{Reader, is_present},
    windows::Measure,
};

/// Maximum number of buckets of a window, because its rows are read bucket by bucket.
const MAX_BUCKETS: i64 = 1_000;

/// Number of buckets of a window without a `bucket`.
const DEFAULT_BUCKETS: i64 = 24;

const SECOND: i64 = 1_000;

impl Reader<'_> {
    pub(super) fn window(&mut self, document: &Json) -> Option<Window> {
        let keys = ["window", "name", "item_types", "by", "where", "sum", "distinct", "over", "bucket"];
        let object = self.object(document, &keys)?;
        let key = self.required(object, "window", |r, v| r.text(v).map(WindowId::new));
        self.optional(object, "name", |r, v| r.text(v).map(|_| ()));
        let item_types = self.optional(object, "item_types", |r, v| {
            let list = r.list(v, |r, v| r.text(v).map(TypeId::new))?;
            r.require_distinct(list, "item type")
        });
        let path = |r: &mut Self, key: &str| r.optional(object, key, |r, v| r.text(v).map(str::to_owned));
        let (by, sum, distinct) = (path(self, "by"), path(self, "sum"), path(self, "distinct"));
        let condition = self.optional(object, "where", |r, v| r.condition(v, 1));
        let length = self.required(object, "over", Self::span);
        let bucket = self.optional(object, "bucket", Self::span);
        if is_present(object, "sum") && is_present(object, "distinct") {
            return self.error("shape", "`sum` and `distinct` exclude each other: remove one");
        }
        let measure = if is_present(object, "sum") {
            Measure::Sum
        } else if is_present(object, "distinct") {
            Measure::Distinct
        } else {
            Measure::Count
        };
        let length_millis = length?.millis();
        let bucket = match bucket {
            Some(bucket) if bucket.millis() > length_millis => {
                return self
                    .at("bucket", |r| r.error("limit", "the bucket is longer than the window: shorten it"));
            }
            Some(bucket) if length_millis / bucket.millis() > MAX_BUCKETS => {
                let detail = format!("the window has more than {MAX_BUCKETS} buckets: lengthen them");
                return self.at("bucket", |r| r.error("limit", detail));
            }
            Some(bucket) => bucket.millis(),
            // A bucket takes at least a second, but never more than the window.
            None => (length_millis / DEFAULT_BUCKETS).max(SECOND).min(length_millis),
        };
        Some(Window {
            key: key?,
            item_types: item_types.unwrap_or_default(),
            by,
            condition,
            measure,
            measured: sum.or(distinct),
            length_millis,
            bucket,
        })
    }
}
