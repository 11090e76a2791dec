//! Reads values from JSON documents that may be hostile: bounds their size, and reports errors with their paths. The values
//! are interpreted in `syntax` and by each leaf.

use serde_json::{Map, Value as Json};
use tidegate_schemas::{banks::BankKind, ids::Millis, item_types::datetime};

use crate::{
    error::{ERRORS_LISTED, RuleError, did_you_mean, escape_key, quote},
    facts::Lookback,
    item::Number,
    limits::Limits,
    windows::Amount,
};

/// Message for instants that are too precise.
pub(crate) const TOO_PRECISE: &str = "the instant is finer than a millisecond: round it";

/// Reads values from JSON, and collects errors by path.
pub(crate) struct Reader<'a> {
    pub(crate) limits: &'a Limits,
    pub(crate) kind: &'static str,
    pub(crate) rule: String,
    pub(crate) pointer: String,
    pub(crate) nodes: usize,
    pub(crate) words: usize,
    pub(crate) errors: Vec<RuleError>,
}

pub(crate) type Object = Map<String, Json>;

/// True if the key has a value. Null counts as absent.
pub(crate) fn is_present(object: &Object, key: &str) -> bool {
    object.get(key).is_some_and(|value| !value.is_null())
}

impl Reader<'_> {
    /// Reads distinct paths of fields.
    pub(crate) fn paths(&mut self, value: &Json) -> Option<Vec<String>> {
        let fields = self.non_empty_list(value, |r, v| r.text(v).map(str::to_owned))?;
        self.require_distinct(fields, "field")
    }

    pub(crate) fn error<T>(&mut self, tag: &'static str, detail: impl Into<String>) -> Option<T> {
        if self.errors.len() < ERRORS_LISTED {
            self.errors.push(RuleError::new(self.kind, &self.rule, &self.pointer, tag, detail.into()));
        }
        None
    }

    pub(crate) fn has_max_errors(&self) -> bool {
        self.errors.len() >= ERRORS_LISTED
    }

    pub(crate) fn at<T>(&mut self, segment: &str, read: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.pointer.len();
        self.pointer.push('/');
        // A long key of a hostile document must not make every error below it long.
        let segment: String = segment.chars().take(64).collect();
        self.pointer.push_str(&escape_key(&segment));
        let result = read(self);
        self.pointer.truncate(length);
        result
    }

    pub(crate) fn object<'j>(&mut self, value: &'j Json, keys: &[&str]) -> Option<&'j Object> {
        let Some(object) = value.as_object() else {
            return self.error("shape", format!("expected a mapping with {}", keys.join(", ")));
        };
        for key in object.keys().filter(|key| !keys.contains(&key.as_str())) {
            // The search for a similar key takes time, so it ends with the listed errors.
            if self.has_max_errors() {
                break;
            }
            let suggestion = did_you_mean(key, keys.iter().copied());
            self.at(key, |r| r.error::<()>("unknown_key", format!("unknown key {}{suggestion}", quote(key))));
        }
        Some(object)
    }

    /// Reads the value under `key`. Null counts as absent.
    pub(crate) fn optional<'j, T>(
        &mut self,
        object: &'j Object,
        key: &str,
        read: impl FnOnce(&mut Self, &'j Json) -> Option<T>,
    ) -> Option<T> {
        let value = object.get(key).filter(|value| !value.is_null())?;
        self.at(key, |r| read(r, value))
    }

    pub(crate) fn required<'j, T>(
        &mut self,
        object: &'j Object,
        key: &str,
        read: impl FnOnce(&mut Self, &'j Json) -> Option<T>,
    ) -> Option<T> {
        if object.get(key).is_none_or(Json::is_null) {
            return self.error("shape", format!("required key \"{key}\" is missing"));
        }
        self.optional(object, key, read)
    }

    pub(crate) fn text<'j>(&mut self, value: &'j Json) -> Option<&'j str> {
        match value.as_str() {
            Some(text) if text.trim().is_empty() => self.error("empty", "the text is blank"),
            Some(text) if text.len() > self.limits.word_bytes => self.error(
                "limit",
                format!("the text is {} bytes long, the limit is {}", text.len(), self.limits.word_bytes),
            ),
            Some(text) => Some(text),
            None => self.error("shape", "expected a text"),
        }
    }

    pub(crate) fn boolean(&mut self, value: &Json) -> Option<bool> {
        value.as_bool().or_else(|| self.error("shape", "expected true or false"))
    }

    pub(crate) fn name<T: Copy>(&mut self, value: &Json, names: &[(&str, T)]) -> Option<T> {
        let text = self.text(value)?;
        names.iter().find(|(name, _)| *name == text).map(|(_, named_value)| *named_value).or_else(|| {
            let expected_names: Vec<_> = names.iter().map(|(name, _)| *name).collect();
            let suggestion = did_you_mean(text, expected_names.iter().copied());
            self.error(
                "unknown_value",
                format!(
                    "unknown value {}{suggestion}: expected one of {}",
                    quote(text),
                    expected_names.join(", ")
                ),
            )
        })
    }

    /// Reads a variant of a [`tidegate_schemas::string_enum!`].
    pub(crate) fn variant<T: Copy>(
        &mut self,
        value: &Json,
        all: &[T],
        as_str: fn(T) -> &'static str,
    ) -> Option<T> {
        let names: Vec<_> = all.iter().map(|variant| (as_str(*variant), *variant)).collect();
        self.name(value, &names)
    }

    pub(crate) fn list<'j, T>(
        &mut self,
        value: &'j Json,
        mut read: impl FnMut(&mut Self, &'j Json) -> Option<T>,
    ) -> Option<Vec<T>> {
        let Some(list) = value.as_array() else {
            return self.error("shape", "expected a list");
        };
        if list.len() > self.limits.words {
            return self.error(
                "limit",
                format!("the list has {} entries, the limit is {}", list.len(), self.limits.words),
            );
        }
        let mut entries = Vec::with_capacity(list.len());
        for (index, entry) in list.iter().enumerate() {
            if self.has_max_errors() {
                return None;
            }
            entries.extend(self.at(&index.to_string(), |r| read(r, entry)));
        }
        // All entries are read before failing, so that each reports its own errors.
        (entries.len() == list.len()).then_some(entries)
    }

    pub(crate) fn non_empty_list<'j, T>(
        &mut self,
        value: &'j Json,
        read: impl FnMut(&mut Self, &'j Json) -> Option<T>,
    ) -> Option<Vec<T>> {
        let list = self.list(value, read)?;
        if list.is_empty() {
            self.error("empty", "the list is empty: add an entry or remove the key")
        } else {
            Some(list)
        }
    }

    pub(crate) fn require_distinct<T: PartialEq>(&mut self, list: Vec<T>, noun: &str) -> Option<Vec<T>> {
        // A pairwise comparison of a long list would take too long; real lists are short.
        if list.len() > 256 {
            return self.error("limit", format!("the list names {} {noun}s, the limit is 256", list.len()));
        }
        match list.iter().enumerate().find(|(index, entry)| list[..*index].contains(entry)) {
            Some((index, _)) => self.at(&index.to_string(), |r| {
                r.error("duplicate", format!("the {noun} is listed twice: remove one"))
            }),
            None => Some(list),
        }
    }

    pub(crate) fn instant(&mut self, value: &Json) -> Option<Millis> {
        let text = self.text(value)?;
        if datetime::is_finer(text) {
            return self.error("type", TOO_PRECISE);
        }
        datetime::parse(text)
            .or_else(|| self.error("shape", "expected an instant such as 2026-01-31T12:00:00.000Z"))
    }

    pub(crate) fn whole_number(&mut self, value: &Json) -> Option<i64> {
        value.as_i64().or_else(|| self.error("type", "expected a whole number"))
    }

    pub(crate) fn count_words(&mut self, words: usize) -> Option<()> {
        self.words += words;
        if self.words > self.limits.words {
            return self.error(
                "limit",
                format!("the rule lists more than {} words: use a bank or split the rule", self.limits.words),
            );
        }
        Some(())
    }

    /// Reads one value, or a list of alternatives.
    pub(crate) fn one_or_more<T: PartialEq>(
        &mut self,
        value: &Json,
        mut read: impl FnMut(&mut Self, &Json) -> Option<T>,
    ) -> Option<Vec<T>> {
        if !value.is_array() {
            return read(self, value).map(|single_value| vec![single_value]);
        }
        let list = self.non_empty_list(value, read)?;
        self.count_words(list.len())?;
        self.require_distinct(list, "value")
    }

    pub(crate) fn number(&mut self, value: &Json) -> Option<Number> {
        let number = value.as_number().and_then(|number| Number::parse(&number.to_string()));
        number.or_else(|| self.error("type", "expected a number"))
    }

    pub(crate) fn canonical(&mut self, value: &Json, kind: BankKind) -> Option<String> {
        let text = self.text(value)?;
        kind.canonical(text).map_err(|reason| self.error::<()>("type", reason)).ok()
    }

    pub(crate) fn span(&mut self, value: &Json) -> Option<Lookback> {
        let text = self.text(value)?;
        Lookback::parse(text)
            .or_else(|| self.error("type", "expected a span from 1s to ten years, such as 30d, 24h or 15m"))
    }

    pub(crate) fn amount(&mut self, value: &Json) -> Option<Amount> {
        let number = value.as_number().and_then(|number| Number::parse(&number.to_string()));
        match number.map(Number::millionths) {
            // The ends of the range stand for numbers that were clamped.
            Some(millionths) if millionths > i64::MIN && millionths < i64::MAX => Some(Amount(millionths)),
            Some(_) => self.error("limit", "the number is beyond nine trillion"),
            None => self.error("type", "expected a number"),
        }
    }

    pub(crate) fn distance(&mut self, value: &Json) -> Option<u32> {
        let distance = value.as_u64().and_then(|distance| u32::try_from(distance).ok());
        distance.or_else(|| self.error("type", "expected a number of bits, 0 or more"))
    }
}
