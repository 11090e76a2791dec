//! Deserialises typed settings from a tree, and reports faults with their path and their origin.
//!
//! Variables are text: a number, a boolean or a list is parsed from text where the setting's type asks for one.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeSeed, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, VariantAccess, Visitor},
    forward_to_deserialize_any,
};

use super::tree::{Node, Origin};

/// Reason why a value cannot be used.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    path: Option<String>,
    origin: Option<Origin>,
    message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            write!(f, "{path}: ")?;
        }
        f.write_str(self.message.trim_end())?;
        match &self.origin {
            Some(origin) => write!(f, " (set by {origin})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self { path: None, origin: None, message: message.to_string() }
    }
}

impl Fault {
    /// Adds path and origin, unless an inner value has added its own: the innermost place is the most precise.
    fn locate(mut self, path: &str, node: &Node) -> Self {
        if self.path.is_none() {
            self.path = Some(path.to_owned());
            self.origin = node.any_origin().cloned();
        }
        self
    }
}

pub(crate) fn read<'de, T: Deserialize<'de>>(tree: &'de Node) -> Result<T, Fault> {
    T::deserialize(Reader { node: tree, path: String::new() })
}

struct Reader<'a> {
    node: &'a Node,
    path: String,
}

impl Reader<'_> {
    /// Returns the text of a variable; values from files have a type already.
    fn variable_text(&self) -> Option<&str> {
        match self.node {
            Node::Leaf { value: toml::Value::String(text), origin: Origin::Variable(_) } => Some(text),
            _ => None,
        }
    }

    fn clone_leaf(&self) -> Result<toml::Value, Fault> {
        match self.node {
            Node::Leaf { value, .. } => Ok(value.clone()),
            Node::Table(_) => Err(de::Error::custom("a single value is expected, not a section")),
        }
    }

    fn locate_fault(&self) -> impl FnOnce(Fault) -> Fault + use<'_> {
        |fault| fault.locate(&self.path, self.node)
    }
}

fn from_toml_error(error: &toml::de::Error) -> Fault {
    de::Error::custom(error.message())
}

/// Implements methods for numbers and booleans, which are parsed if they are the text of a variable.
macro_rules! parsed {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            let value = match self.variable_text() {
                Some(text) => parse_inline(text.trim()).map_err(self.locate_fault())?,
                None => self.clone_leaf().map_err(self.locate_fault())?,
            };
            Deserializer::$method(value, visitor)
                .map_err(|error| from_toml_error(&error))
                .map_err(self.locate_fault())
        }
    )*};
}

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = Fault;

    parsed! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_u8
        deserialize_u16 deserialize_u32 deserialize_u64 deserialize_f32 deserialize_f64
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.node {
            Node::Table(_) => self.deserialize_map(visitor),
            // Not parsed, because strings are read here too: a name such as `123` in a variable has to stay text.
            Node::Leaf { value, .. } => value
                .clone()
                .deserialize_any(visitor)
                .map_err(|error| from_toml_error(&error))
                .map_err(self.locate_fault()),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match (self.node, self.variable_text()) {
            (Node::Table(table), _) => {
                let entries = Entries { entries: table.iter(), path: &self.path, value: None };
                visitor.visit_map(entries).map_err(self.locate_fault())
            }
            (_, Some(text)) => parse_inline(text)
                .and_then(|value| value.deserialize_map(visitor).map_err(|error| from_toml_error(&error)))
                .map_err(self.locate_fault()),
            (_, None) => {
                Err(self.locate_fault()(de::Error::custom("a section is expected, not a single value")))
            }
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.deserialize_map(visitor)
    }

    /// Lists are written as in the file (`["a", "b"]`) or, in a variable, as `a,b`.
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let value = match self.variable_text().map(str::trim) {
            None => self.clone_leaf().map_err(self.locate_fault())?,
            Some(text) if text.starts_with('[') => parse_inline(text).map_err(self.locate_fault())?,
            Some(text) => return visitor.visit_seq(CommaSeparated { reader: &self, parts: text.split(',') }),
        };
        value.deserialize_seq(visitor).map_err(|error| from_toml_error(&error)).map_err(self.locate_fault())
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        // TOML has no null, so a setting that is present has a value. An absent one gets its default.
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match self.node {
            Node::Table(table) => match table.iter().next() {
                Some((key, node)) if table.len() == 1 => {
                    let inner = Reader { node, path: join(&self.path, key) };
                    visitor.visit_enum(Variant { key, inner }).map_err(self.locate_fault())
                }
                _ => Err(self.locate_fault()(de::Error::custom("exactly one of its kinds is expected"))),
            },
            Node::Leaf { .. } => self
                .variable_text()
                // A variable may hold an inline table; any other text names a variant.
                .filter(|text| text.trim_start().starts_with('{'))
                .map_or_else(|| self.clone_leaf(), parse_inline)
                .and_then(|value| {
                    value.deserialize_enum(name, variants, visitor).map_err(|error| from_toml_error(&error))
                })
                .map_err(self.locate_fault()),
        }
    }

    forward_to_deserialize_any! {
        i128 u128 char str string bytes byte_buf unit unit_struct tuple tuple_struct identifier ignored_any
    }
}

/// Parses text as a value of the settings file.
fn parse_inline(text: &str) -> Result<toml::Value, Fault> {
    let file = format!("value = {text}");
    // The parser's message is dropped: it describes the line made above, which the operator did not write.
    let table: toml::Table = toml::from_str(&file)
        .map_err(|_| de::Error::custom("the value cannot be read: write it as in the settings file"))?;
    table.into_iter().next().map(|(_, value)| value).ok_or_else(|| de::Error::custom("the value is empty"))
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// Texts between commas, each read like the text of a variable.
struct CommaSeparated<'a> {
    reader: &'a Reader<'a>,
    parts: std::str::Split<'a, char>,
}

impl<'de> SeqAccess<'de> for CommaSeparated<'_> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Fault> {
        // Empty parts are skipped, so a trailing comma is allowed.
        let Some(part) = self.parts.by_ref().map(str::trim).find(|part| !part.is_empty()) else {
            return Ok(None);
        };
        // Only a leaf has text to split.
        let Node::Leaf { origin, .. } = self.reader.node else { return Ok(None) };
        let node = Node::Leaf { value: toml::Value::String(part.to_owned()), origin: origin.clone() };
        seed.deserialize(Reader { node: &node, path: self.reader.path.clone() }).map(Some)
    }
}

struct Entries<'a> {
    entries: std::collections::btree_map::Iter<'a, String, Node>,
    path: &'a str,
    value: Option<(&'a str, &'a Node)>,
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        let Some((key, node)) = self.entries.next() else { return Ok(None) };
        self.value = Some((key, node));
        let name: de::value::StrDeserializer<'_, Fault> = key.as_str().into_deserializer();
        // The target type refuses an unknown key here, so the fault gets the path of that key.
        seed.deserialize(name).map(Some).map_err(|fault| fault.locate(&join(self.path, key), node))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        let (key, node) = self.value.take().ok_or_else(|| de::Error::custom("a value without its key"))?;
        let path = join(self.path, key);
        seed.deserialize(Reader { node, path: path.clone() }).map_err(|fault| fault.locate(&path, node))
    }
}

struct Variant<'a> {
    key: &'a str,
    inner: Reader<'a>,
}

impl<'a, 'de> EnumAccess<'de> for Variant<'a> {
    type Error = Fault;
    type Variant = Reader<'a>;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Reader<'a>), Fault> {
        let name: de::value::StrDeserializer<'_, Fault> = self.key.into_deserializer();
        Ok((seed.deserialize(name)?, self.inner))
    }
}

impl<'de> VariantAccess<'de> for Reader<'_> {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        // Only a section gets here, and its kind has a value. A kind without one is read from a leaf.
        Err(self.locate_fault()(de::Error::custom("this kind takes no value")))
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Fault> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_seq(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.deserialize_map(visitor)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Sample {
        count: u32,
        on: bool,
        name: String,
        list: Vec<String>,
        numbers: Vec<u16>,
        maybe: Option<u64>,
        kind: Kind,
        copies: Option<Copies>,
        inner: Option<Box<Self>>,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        #[default]
        Plain,
        Fancy,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Copies {
        Simple(u8),
        Named(BTreeMap<String, u8>),
    }

    fn of_variables(variables: &[(&str, &str)]) -> Result<Sample, String> {
        let mut tree = Node::default();
        tree.apply_variables(
            variables.iter().map(|(name, text)| (format!("TIDEGATE__{name}"), (*text).to_owned())),
        );
        read(&tree).map_err(|fault| fault.to_string())
    }

    #[test]
    fn text_is_parsed_by_the_type_of_the_setting() {
        let sample = of_variables(&[
            ("COUNT", "7"),
            ("ON", "true"),
            ("NAME", "123"),
            ("LIST", "a, b"),
            ("NUMBERS", "80, 443"),
            ("MAYBE", "9"),
            ("KIND", "fancy"),
            ("COPIES__SIMPLE", "3"),
            ("INNER__LIST", r#"["x,y"]"#),
        ]);
        let expected = Sample {
            count: 7,
            on: true,
            name: "123".to_owned(),
            list: vec!["a".to_owned(), "b".to_owned()],
            numbers: vec![80, 443],
            maybe: Some(9),
            kind: Kind::Fancy,
            copies: Some(Copies::Simple(3)),
            inner: Some(Box::new(Sample { list: vec!["x,y".to_owned()], ..Sample::default() })),
        };
        assert_eq!(sample.unwrap(), expected);
        let named = of_variables(&[("COPIES", "{ named = { dc1 = 3 } }")]).unwrap().copies;
        assert_eq!(named, Some(Copies::Named(BTreeMap::from([("dc1".to_owned(), 3)]))));
    }

    #[test]
    fn fault_names_its_path_and_origin() {
        let fault = of_variables(&[("INNER__COUNT", "many")]).unwrap_err();
        assert!(fault.contains("inner.count") && fault.contains("TIDEGATE__INNER__COUNT"), "{fault}");
        let fault = of_variables(&[("INNER__CUONT", "1")]).unwrap_err();
        assert!(fault.contains("inner.cuont") && fault.contains("unknown field"), "{fault}");
        let fault = of_variables(&[("INNER", "1")]).unwrap_err();
        assert!(fault.contains("inner"), "{fault}");
        let fault = of_variables(&[("NUMBERS", "80,many")]).unwrap_err();
        assert!(fault.contains("numbers: ") && fault.contains("TIDEGATE__NUMBERS"), "{fault}");
        let fault = of_variables(&[("KIND", "odd")]).unwrap_err();
        assert!(fault.contains("kind") && fault.contains("odd"), "{fault}");
    }

    #[test]
    fn text_in_a_file_is_not_read_as_a_number() {
        let origin = Origin::File("a.toml".into());
        let tree = Node::of_toml(toml::from_str("count = \"7\"").unwrap(), &origin);
        let fault = read::<Sample>(&tree).unwrap_err().to_string();
        assert!(fault.contains("count") && fault.contains("a.toml"), "{fault}");
    }

    #[test]
    fn named_copies_are_a_section() {
        let copies = of_variables(&[("COPIES__NAMED__NORTH", "3")]).unwrap().copies;
        assert_eq!(copies, Some(Copies::Named(BTreeMap::from([("north".to_owned(), 3)]))));
    }
}
