//! Filter of rows (`--where key=value`).

use tidegate_history::{Column, ColumnType, Value};

use super::selection::find_column;
use crate::error::ConvertError;

/// Conditions on a row; a row passes if it meets all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowFilter {
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Condition {
    position: usize,
    expected: ExpectedValue,
    /// Text of the option, for the manifest.
    text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ExpectedValue {
    /// Equal text, or an element of a list of texts.
    Text(String),
    Integer(i64),
    Boolean(bool),
}

impl RowFilter {
    /// Parses conditions of the form `key=value` on columns of type text, integer, boolean or texts.
    pub fn parse(columns: &[Column], conditions: &[impl AsRef<str>]) -> Result<Self, ConvertError> {
        let mut parsed = Vec::with_capacity(conditions.len());
        for text in conditions {
            parsed.push(Condition::parse(columns, text.as_ref())?);
        }
        // Manifests of parts are compared, and the order of conditions has no effect.
        parsed.sort_by(|first, second| first.text.cmp(&second.text));
        parsed.dedup();
        Ok(Self { conditions: parsed })
    }

    /// True if the row meets all conditions. A null value equals no text.
    #[inline]
    pub fn matches(&self, row: &[Value<'_>]) -> bool {
        self.conditions.iter().all(|condition| {
            row.get(condition.position).is_some_and(|value| condition.expected.matches(value))
        })
    }

    /// True if the filter reads the column of this position.
    pub fn has_position(&self, position: usize) -> bool {
        self.conditions.iter().any(|condition| condition.position == position)
    }

    /// Conditions as texts, sorted.
    pub(super) fn texts(&self) -> Vec<String> {
        self.conditions.iter().map(|condition| condition.text.clone()).collect()
    }
}

impl Condition {
    fn parse(columns: &[Column], text: &str) -> Result<Self, ConvertError> {
        let Some((name, value)) = text.split_once('=') else {
            return Err(ConvertError::Refused(format!(
                "--where: `{text}` is not a condition. Write it as column=value"
            )));
        };
        let name = name.trim();
        let position = find_column(columns, "--where", name)?;
        let expected_value = match columns[position].column_type {
            ColumnType::Text | ColumnType::Texts => ExpectedValue::Text(value.to_owned()),
            ColumnType::Integer => ExpectedValue::Integer(value.parse().map_err(|_| {
                ConvertError::Refused(format!("--where: column `{name}` holds integers, not `{value}`"))
            })?),
            ColumnType::Boolean => ExpectedValue::Boolean(value.parse().map_err(|_| {
                ConvertError::Refused(format!("--where: column `{name}` holds true or false, not `{value}`"))
            })?),
            ColumnType::Time => {
                return Err(ConvertError::Refused(format!(
                    "--where: column `{name}` holds times. Select a time range with --since and --until"
                )));
            }
            ColumnType::Structs(_) => {
                return Err(ConvertError::Refused(format!(
                    "--where: column `{name}` holds structs, which cannot be compared. Filter the exported file"
                )));
            }
        };
        let text = format!("{name}={value}");
        Ok(Self { position, expected: expected_value, text })
    }
}

impl ExpectedValue {
    fn matches(&self, value: &Value<'_>) -> bool {
        match (self, value) {
            (Self::Text(expected), Value::Text(text)) => text == expected,
            (Self::Text(expected), Value::Texts(texts)) => texts.iter().any(|text| text == expected),
            (Self::Integer(expected), Value::Integer(integer)) => integer == expected,
            (Self::Boolean(expected), Value::Boolean(boolean)) => boolean == expected,
            _ => false,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const COLUMNS: &[Column] = &[
        column("id", ColumnType::Text),
        column("at", ColumnType::Time),
        column("count", ColumnType::Integer),
        column("safe", ColumnType::Boolean),
        column("policies", ColumnType::Texts),
        column("rules", ColumnType::Structs(&[])),
    ];

    const fn column(name: &'static str, column_type: ColumnType) -> Column {
        Column { name, column_type, is_nullable: true, about: "" }
    }

    fn is_match(conditions: &[&str], row: &[Value<'_>]) -> bool {
        RowFilter::parse(COLUMNS, conditions).unwrap().matches(row)
    }

    #[test]
    fn rows_must_meet_all_conditions() {
        let texts = Value::Texts(vec!["spam".into(), "a=b".into()]);
        let row = [
            Value::text("one"),
            Value::Null,
            Value::Integer(-3),
            Value::Boolean(false),
            texts,
            Value::Structs(Vec::new()),
        ];
        for conditions in [
            &[][..],
            &["id=one"],
            &["count=-3"],
            &["safe=false"],
            &["policies=spam"],
            &["policies=a=b", "policies=spam", "id=one"],
        ] {
            assert!(is_match(conditions, &row), "{conditions:?}");
        }
        for conditions in [
            &["id=On"][..],
            &["id="],
            &["count=3"],
            &["safe=true"],
            &["policies=spa"],
            &["id=one", "count=1"],
        ] {
            assert!(!is_match(conditions, &row), "{conditions:?}");
        }
        let nulls = vec![Value::Null; COLUMNS.len()];
        for condition in ["id=", "count=0", "safe=false", "policies="] {
            assert!(!is_match(&[condition], &nulls), "{condition}");
        }
    }

    #[test]
    fn invalid_conditions_are_refused() {
        for (condition, message) in [
            ("id", "--where: `id` is not a condition. Write it as column=value"),
            ("polices=x", "--where: unknown column `polices`. Did you mean `policies`?"),
            ("count=x", "--where: column `count` holds integers, not `x`"),
            ("safe=yes", "--where: column `safe` holds true or false, not `yes`"),
            (
                "at=2026-01-01",
                "--where: column `at` holds times. Select a time range with --since and --until",
            ),
            (
                "rules=x",
                "--where: column `rules` holds structs, which cannot be compared. Filter the exported file",
            ),
        ] {
            assert_eq!(RowFilter::parse(COLUMNS, &[condition]).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn order_of_conditions_is_irrelevant() {
        let [first, second] =
            [["id=x", "count=1"], ["count=1", "id=x"]].map(|it| RowFilter::parse(COLUMNS, &it).unwrap());
        assert_eq!(first, second);
        assert!(first.has_position(2) && !first.has_position(1));
    }
}
