//! Ordered tree of a YAML or JSON document, with the line of each value. Serde types are deserialized from it.

use std::{fmt, ops::Range};

use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeSeed, IntoDeserializer},
    forward_to_deserialize_any,
};
use serde_json::Number;

use crate::{json, nearest::hint};

/// Value with its line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tree {
    pub(super) line: Option<u32>,
    pub(super) shape: Shape,
    /// Text range of a number that the YAML parser read as a float. [`Tree::read_exact_numbers`] consumes it.
    digits: Option<Range<usize>>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Shape {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Tree>),
    Map(Vec<(String, Tree)>),
}

/// Step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Key(String),
    Index(usize),
}

/// Renders a path as in error messages, such as `fields[2].type`.
pub(super) fn render_path(path: &[Step]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Key(key) if text.is_empty() => text.push_str(key),
            Step::Key(key) => text.extend([".", key]),
            Step::Index(index) => text.push_str(&format!("[{index}]")),
        }
    }
    text
}

impl Tree {
    /// Converts a JSON value. The error has line and reason.
    pub(super) fn of_json(node: json::Node<'_>, line: &impl Fn(usize) -> u32) -> Result<Self, (u32, String)> {
        let node_line = line(node.range().start);
        let shape = match node.kind() {
            json::Kind::Null => Shape::Null,
            json::Kind::Bool(value) => Shape::Bool(value),
            json::Kind::Number => Shape::Number(
                parse_number(node.number().unwrap_or_default()).map_err(|why| (node_line, why))?,
            ),
            json::Kind::String => Shape::Text(node.str().unwrap_or_default().into_owned()),
            json::Kind::Array => {
                Shape::List(node.elements().map(|node| Self::of_json(node, line)).collect::<Result<_, _>>()?)
            }
            json::Kind::Object => Shape::Map(
                node.entries()
                    .map(|(key, node)| Ok((key.into_owned(), Self::of_json(node, line)?)))
                    .collect::<Result<_, (u32, String)>>()?,
            ),
        };
        Ok(Self { line: Some(node_line), shape, digits: None })
    }

    /// Restores whole numbers of more than 64 bits, which the YAML parser rounds to floats. `text` is the source of the
    /// tree. The error has line and reason.
    pub(super) fn read_exact_numbers(&mut self, text: &str) -> Result<(), (Option<u32>, String)> {
        match &mut self.shape {
            Shape::List(trees) => trees.iter_mut().try_for_each(|tree| tree.read_exact_numbers(text)),
            Shape::Map(entries) => entries.iter_mut().try_for_each(|(_, tree)| tree.read_exact_numbers(text)),
            Shape::Number(rounded) => {
                let Some(number_text) = self.digits.take().and_then(|at| Some(strip_quotes(text.get(at)?)))
                else {
                    return Ok(());
                };
                match parse_number(number_text) {
                    Ok(exact) if exact.as_f64() == rounded.as_f64() => *rounded = exact,
                    Err(why) if is_whole(number_text) => return Err((self.line, why)),
                    // The source has escapes or another notation, so the exact number is not known.
                    _ if rounded.as_f64().is_some_and(|float| float.abs() >= MIN_ROUNDED) => {
                        return Err((self.line, UNREADABLE.to_owned()));
                    }
                    _ => {}
                }
                Ok(())
            }
            Shape::Null | Shape::Bool(_) | Shape::Text(_) => Ok(()),
        }
    }

    /// Returns the line of the value at a path, or of its closest existing ancestor.
    pub(super) fn line_at(&self, path: &[Step]) -> Option<u32> {
        let Some((step, rest)) = path.split_first() else { return self.line };
        let member = match (&self.shape, step) {
            (Shape::Map(entries), Step::Key(key)) => {
                entries.iter().find(|(name, _)| name == key).map(|(_, tree)| tree)
            }
            (Shape::List(trees), Step::Index(index)) => trees.get(*index),
            _ => None,
        };
        member.and_then(|tree| tree.line_at(rest)).or(self.line)
    }

    /// Sets the value at a path, replacing a value or adding an entry to a mapping. Returns false if the parent does
    /// not exist.
    pub(super) fn set_value(&mut self, path: &[Step], shape: Shape) -> bool {
        let line = self.line;
        match (&mut self.shape, path) {
            (_, []) => self.shape = shape,
            (Shape::Map(entries), [Step::Key(key), rest @ ..]) => {
                match entries.iter_mut().find(|(name, _)| name == key) {
                    Some((_, tree)) => return tree.set_value(rest, shape),
                    None if rest.is_empty() => {
                        entries.push((key.clone(), Self { line, shape, digits: None }));
                    }
                    None => return false,
                }
            }
            (Shape::List(trees), [Step::Index(index), rest @ ..]) => {
                return trees.get_mut(*index).is_some_and(|tree| tree.set_value(rest, shape));
            }
            _ => return false,
        }
        true
    }

    /// Counts the value and all values in it.
    pub(super) fn count_parts(&self) -> usize {
        match &self.shape {
            Shape::List(trees) => 1 + trees.iter().map(Self::count_parts).sum::<usize>(),
            Shape::Map(entries) => 1 + entries.iter().map(|(_, tree)| tree.count_parts()).sum::<usize>(),
            Shape::Null | Shape::Bool(_) | Shape::Number(_) | Shape::Text(_) => 1,
        }
    }

    /// Adds `lines` to all line numbers.
    pub(super) fn shift_lines(&mut self, lines: u32) {
        self.line = self.line.map(|line| line.saturating_add(lines));
        match &mut self.shape {
            Shape::List(trees) => trees.iter_mut().for_each(|tree| tree.shift_lines(lines)),
            Shape::Map(entries) => entries.iter_mut().for_each(|(_, tree)| tree.shift_lines(lines)),
            Shape::Null | Shape::Bool(_) | Shape::Number(_) | Shape::Text(_) => {}
        }
    }

    /// Removes the value at a path. Returns false if it does not exist.
    pub(super) fn remove(&mut self, path: &[Step]) -> bool {
        match (&mut self.shape, path) {
            (Shape::Map(entries), [Step::Key(key)]) => {
                let before = entries.len();
                // Keys are unique, so at most one entry is removed.
                entries.retain(|(name, _)| name != key);
                entries.len() < before
            }
            (Shape::Map(entries), [Step::Key(key), rest @ ..]) => {
                entries.iter_mut().find(|(name, _)| name == key).is_some_and(|(_, tree)| tree.remove(rest))
            }
            (Shape::List(trees), [Step::Index(index), rest @ ..]) => {
                trees.get_mut(*index).is_some_and(|tree| tree.remove(rest))
            }
            _ => false,
        }
    }
}

/// Parses a number: whole numbers exactly, others as the nearest 64-bit float.
fn parse_number(digits: &str) -> Result<Number, String> {
    // Whole numbers are parsed first, because a float rounds numbers of more than 53 bits.
    if let Some(integer) = digits.parse().ok().and_then(Number::from_i128) {
        return Ok(integer);
    }
    let truncated = crate::nearest::truncate_name(digits);
    if is_whole(digits) {
        return Err(format!(
            "the whole number {truncated} exceeds 127 bits; a number with a point is rounded to 64 bits"
        ));
    }
    let float = digits.parse::<f64>().ok().and_then(Number::from_f64);
    float.ok_or_else(|| format!("the number {truncated} exceeds the range of 64 bits"))
}

/// First power of two above which 64-bit floats cannot represent all whole numbers: 2^53.
const MIN_ROUNDED: f64 = 9_007_199_254_740_992.0;

const UNREADABLE: &str = "a number of this size must be written in plain digits, or it would be rounded";

/// Removes surrounding quotes, if present.
fn strip_quotes(text: &str) -> &str {
    let text = text.trim();
    let inside = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    inside('"').or_else(|| inside('\'')).unwrap_or(text).trim()
}

fn is_whole(digits: &str) -> bool {
    let digits = digits.trim_start_matches(['-', '+']);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = serde_saphyr::Spanned::<Shape>::deserialize(deserializer)?;
        let line = u32::try_from(spanned.referenced.line()).ok().filter(|line| *line > 0);
        let digits = match &spanned.value {
            // Only floats can have lost digits.
            Shape::Number(number) if number.as_i128().is_none() => byte_range(spanned.defined.span()),
            _ => None,
        };
        Ok(Self { line, shape: spanned.value, digits })
    }
}

fn byte_range(span: serde_saphyr::Span) -> Option<Range<usize>> {
    let start = usize::try_from(span.byte_offset()?).ok()?;
    Some(start..start.checked_add(usize::try_from(span.byte_len()?).ok()?)?)
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ShapeVisitor;

        impl<'de> de::Visitor<'de> for ShapeVisitor {
            type Value = Shape;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_unit<E>(self) -> Result<Shape, E> {
                Ok(Shape::Null)
            }

            fn visit_none<E>(self) -> Result<Shape, E> {
                Ok(Shape::Null)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Shape, E> {
                Ok(Shape::Bool(value))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Shape, E> {
                Ok(Shape::Number(value.into()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Shape, E> {
                Ok(Shape::Number(value.into()))
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Shape, E> {
                Number::from_f64(value).map(Shape::Number).ok_or_else(|| E::custom("a number must be finite"))
            }

            fn visit_str<E>(self, value: &str) -> Result<Shape, E> {
                Ok(Shape::Text(value.to_owned()))
            }

            fn visit_string<E>(self, value: String) -> Result<Shape, E> {
                Ok(Shape::Text(value))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Shape, A::Error> {
                let mut trees = Vec::new();
                while let Some(tree) = list.next_element()? {
                    trees.push(tree);
                }
                Ok(Shape::List(trees))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Shape, A::Error> {
                let mut entries: Vec<(String, Tree)> = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Shape::Map(entries))
            }
        }

        deserializer.deserialize_any(ShapeVisitor)
    }
}

/// Error of a value that does not match the expected type, with its path.
#[derive(Debug)]
pub(super) struct Misfit {
    /// Steps of the path, innermost first.
    steps: Vec<Step>,
    pub(super) message: String,
    /// True if the path leads to an unknown key. Without it, the rest of the document can be read.
    pub(super) unknown_field: bool,
    /// Name of the missing field, if that is the error.
    pub(super) missing_field: Option<&'static str>,
    /// A valid variant, if an enum is expected.
    pub(super) valid_variant: Option<&'static str>,
}

impl Misfit {
    pub(super) fn path(&self) -> Vec<Step> {
        self.steps.iter().rev().cloned().collect()
    }

    fn at_step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Misfit {}

impl de::Error for Misfit {
    fn custom<T: fmt::Display>(message: T) -> Self {
        let message = message.to_string();
        Self { steps: Vec::new(), message, unknown_field: false, missing_field: None, valid_variant: None }
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        let message = match hint(field, expected.iter().copied()) {
            // Without a similar name, all known ones are listed.
            suggestion if suggestion.is_empty() => {
                format!("unknown field; known fields are {}", quote_names(expected))
            }
            suggestion => format!("unknown field.{suggestion}"),
        };
        let custom: Self = de::Error::custom(message);
        Self { steps: vec![Step::Key(field.to_owned())], unknown_field: true, ..custom }
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        let suggestion = hint(variant, expected.iter().copied());
        let truncated = crate::nearest::truncate_name(variant);
        let custom: Self = de::Error::custom(match suggestion.is_empty() {
            true => format!("`{truncated}` is not one of {}", quote_names(expected)),
            false => format!("`{truncated}` is not one of {}.{suggestion}", quote_names(expected)),
        });
        Self { valid_variant: expected.first().copied(), ..custom }
    }

    fn missing_field(field: &'static str) -> Self {
        let custom: Self = de::Error::custom(format!("the field `{field}` is missing"));
        Self { missing_field: Some(field), ..custom }
    }

    fn invalid_type(unexpected: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        // Serde reports a whole number of more than 64 bits in this way.
        if matches!(unexpected, de::Unexpected::Other(type_name) if type_name.starts_with("integer ")) {
            return Self::invalid_value(unexpected, expected);
        }
        // The value can be a secret header, so the message states only its type.
        let actual_kind = match unexpected {
            de::Unexpected::Bool(_) => "a boolean",
            de::Unexpected::Unsigned(_) | de::Unexpected::Signed(_) | de::Unexpected::Float(_) => "a number",
            de::Unexpected::Str(_) | de::Unexpected::Char(_) => "a string",
            de::Unexpected::Unit | de::Unexpected::Option => "null",
            de::Unexpected::Seq => "a list",
            de::Unexpected::Map => "a mapping",
            _ => "another type",
        };
        Self::custom(format!("{expected} is expected, not {actual_kind}"))
    }

    fn invalid_value(_: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::custom(format!("invalid value: {expected} is expected"))
    }
}

fn quote_names(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

impl<'de> Deserializer<'de> for &'de Tree {
    type Error = Misfit;

    fn deserialize_any<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match &self.shape {
            Shape::Null => visitor.visit_unit(),
            Shape::Bool(value) => visitor.visit_bool(*value),
            Shape::Number(number) => match (number.as_i64(), number.as_u64(), number.as_i128()) {
                (Some(value), ..) => visitor.visit_i64(value),
                (_, Some(value), _) => visitor.visit_u64(value),
                // Serde has no arbitrary precision; larger numbers were refused when the tree was read.
                (_, _, Some(value)) => visitor.visit_i128(value),
                (None, None, None) => visitor.visit_f64(number.as_f64().unwrap_or_default()),
            },
            Shape::Text(text) => visitor.visit_str(text),
            Shape::List(trees) => visitor.visit_seq(Members { trees, next: 0 }),
            Shape::Map(entries) => visitor.visit_map(Entries { entries, optional: &[], next: 0 }),
        }
    }

    fn deserialize_f64<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match &self.shape {
            Shape::Number(number) => visitor.visit_f64(number.as_f64().unwrap_or_default()),
            _ => self.deserialize_any(visitor),
        }
    }

    /// A known key with a null value counts as absent. An unknown key is reported even with a null value.
    fn deserialize_struct<V: de::Visitor<'de>>(
        self,
        _: &'static str,
        optional: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        match &self.shape {
            Shape::Map(entries) => visitor.visit_map(Entries { entries, optional, next: 0 }),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self.shape {
            Shape::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: de::Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: de::Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        match &self.shape {
            Shape::Text(text) => {
                let text: de::value::StrDeserializer<'_, Misfit> = text.as_str().into_deserializer();
                text.deserialize_enum(name, variants, visitor)
            }
            _ => Err(de::Error::custom(format!("one of {} is expected", quote_names(variants)))),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 char str string bytes byte_buf unit unit_struct seq
        tuple tuple_struct map identifier ignored_any
    }
}

struct Members<'de> {
    trees: &'de [Tree],
    next: usize,
}

impl<'de> de::SeqAccess<'de> for Members<'de> {
    type Error = Misfit;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Misfit> {
        let Some(tree) = self.trees.get(self.next) else { return Ok(None) };
        let index = self.next;
        self.next += 1;
        seed.deserialize(tree).map(Some).map_err(|misfit| misfit.at_step(Step::Index(index)))
    }
}

struct Entries<'de> {
    entries: &'de [(String, Tree)],
    /// Known keys. Those with a null value are skipped.
    optional: &'static [&'static str],
    next: usize,
}

impl<'de> de::MapAccess<'de> for Entries<'de> {
    type Error = Misfit;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Misfit> {
        let is_absent = |(key, tree): &&(String, Tree)| {
            matches!(tree.shape, Shape::Null) && self.optional.contains(&key.as_str())
        };
        self.next += self.entries[self.next..].iter().take_while(is_absent).count();
        let Some((key, _)) = self.entries.get(self.next) else { return Ok(None) };
        let key: de::value::StrDeserializer<'_, Misfit> = key.as_str().into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Misfit> {
        let Some((key, tree)) = self.entries.get(self.next) else {
            return Err(de::Error::custom("the deserializer read a value after the last key"));
        };
        self.next += 1;
        seed.deserialize(tree).map_err(|misfit| misfit.at_step(Step::Key(key.clone())))
    }
}
