//! Reads a bundle element by element, in whatever order its members are.
//!
//! It checks no more than it needs; `validate` checks bundles.

use std::{collections::HashSet, fmt, fs::File, io::BufReader, path::Path};

use serde::{
    Deserialize,
    de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};

use crate::{
    error::{ConvertError, ErrorKind},
    input::name_of,
    json::Number,
    meter::{Meter, Metered},
};

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Item {
    pub(crate) id: String,
    pub(crate) phase_id: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) text: String,
    pub(crate) status: String,
    pub(crate) origin: String,
    pub(crate) created_at: Option<String>,
}

impl Item {
    /// Id of the item in the source.
    pub(crate) fn key(&self) -> &str {
        self.id.strip_prefix("statement:").unwrap_or(&self.id)
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Response {
    pub(crate) id: String,
    pub(crate) phase_id: String,
    pub(crate) subject_ref: String,
    pub(crate) object_ref: Option<String>,
    pub(crate) participant_ref: Option<String>,
    pub(crate) response: String,
    #[serde(deserialize_with = "count")]
    pub(crate) count: u128,
    pub(crate) occurred_at: Option<String>,
}

/// Larger counts are refused, and larger sums of them.
pub(crate) const MOST_COUNTED: u128 = 10_u128.pow(38) - 1;

/// Reads a count by its digits, since `1.0` is a count too. Counts beyond the limit stay beyond it.
fn count<'de, D: Deserializer<'de>>(from: D) -> Result<u128, D::Error> {
    let number = serde_json::Number::deserialize(from)?;
    let number = Number::parse(number.to_string().as_bytes()).filter(|number| number.whole);
    let count = number.filter(|number| number.at_least(0)).map(|number| number.count());
    count.ok_or_else(|| serde::de::Error::custom("not a count"))
}

/// Receives the elements it asks for; all others are skipped.
pub(crate) trait Reader {
    const ITEMS: bool = false;
    const RESPONSES: bool = false;
    const OUTCOMES: bool = false;
    fn item(&mut self, _item: Item) -> Result<(), ConvertError> {
        Ok(())
    }
    fn response(&mut self, _response: Response) -> Result<(), ConvertError> {
        Ok(())
    }
    fn outcome(&mut self, _outcome: Value) -> Result<(), ConvertError> {
        Ok(())
    }
}

/// Reads no element.
impl Reader for () {}

/// Passes on the elements, and gives back everything that is not one.
pub(crate) fn bundle<R: Reader>(
    path: &Path,
    reader: &mut R,
    meter: &Meter,
) -> Result<Map<String, Value>, ConvertError> {
    let file = File::open(path).map_err(|error| ConvertError::io("opening", path, error))?;
    let file = BufReader::with_capacity(1 << 18, Metered::new(file, meter));
    let mut json = serde_json::Deserializer::from_reader(file);
    let mut error = None;
    let name = name_of(path);
    let rest = Document { reader, error: &mut error, meter, name: &name }
        .deserialize(&mut json)
        .and_then(|rest| json.end().map(|()| rest));
    match (error, rest) {
        (Some(error), _) => Err(error),
        (None, Ok(rest)) => Ok(rest),
        (None, Err(error)) if error.is_io() => Err(ConvertError::from_io(&name, error.into())),
        (None, Err(error)) => Err(no_bundle(&name, error.line() as u64)),
    }
}

struct Document<'d, R> {
    reader: &'d mut R,
    error: &'d mut Option<ConvertError>,
    meter: &'d Meter,
    name: &'d str,
}

impl<'de, R: Reader> DeserializeSeed<'de> for Document<'_, R> {
    type Value = Map<String, Value>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de, R: Reader> Visitor<'de> for Document<'_, R> {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a bundle")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut rest, mut seen) = (Map::new(), HashSet::new());
        while let Some(key) = map.next_key::<String>()? {
            if !seen.insert(key.clone()) {
                return Err(serde::de::Error::custom("a member stands twice"));
            }
            let error = &mut *self.error;
            let reader = &mut *self.reader;
            let meter = self.meter;
            match key.as_str() {
                "items" if R::ITEMS => {
                    map.next_value_seed(List { each: |item: Item| reader.item(item), error }.of::<Item>())?;
                }
                "responses" if R::RESPONSES => {
                    let (name, mut rows) = (self.name, 0_u64);
                    let each = |response: Response| {
                        meter.row();
                        rows += 1;
                        if response.count > MOST_COUNTED {
                            let detail =
                                format!("/responses/{}: its count has more than 38 digits", rows - 1);
                            return Err(ConvertError::content(name, None, ErrorKind::Value, detail));
                        }
                        reader.response(response)
                    };
                    map.next_value_seed(List { each, error }.of::<Response>())?;
                }
                "outcomes" if R::OUTCOMES => {
                    map.next_value_seed(
                        List { each: |outcome: Value| reader.outcome(outcome), error }.of::<Value>(),
                    )?;
                }
                "items" | "responses" | "outcomes" => {
                    map.next_value::<IgnoredAny>()?;
                }
                _ => {
                    rest.insert(key, map.next_value()?);
                }
            }
        }
        Ok(rest)
    }
}

struct List<'l, F> {
    each: F,
    error: &'l mut Option<ConvertError>,
}

trait Takes<T> {
    fn take(&mut self, element: T) -> Result<(), ConvertError>;
}

impl<T, F: FnMut(T) -> Result<(), ConvertError>> Takes<T> for F {
    fn take(&mut self, element: T) -> Result<(), ConvertError> {
        self(element)
    }
}

struct Elements<'l, T, F> {
    list: List<'l, F>,
    of: std::marker::PhantomData<T>,
}

impl<'de, F, T> DeserializeSeed<'de> for Elements<'_, T, F>
where
    T: Deserialize<'de>,
    F: Takes<T>,
{
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de, F, T> Visitor<'de> for Elements<'_, T, F>
where
    T: Deserialize<'de>,
    F: Takes<T>,
{
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(element) = list.next_element::<T>()? {
            if let Err(error) = self.list.each.take(element) {
                *self.list.error = Some(error);
                return Err(serde::de::Error::custom("stopped"));
            }
        }
        Ok(())
    }
}

impl<'l, F> List<'l, F> {
    fn of<T>(self) -> Elements<'l, T, F> {
        Elements { list: self, of: std::marker::PhantomData }
    }
}

pub(super) fn no_bundle(name: &str, line: u64) -> ConvertError {
    ConvertError::content(name, line, ErrorKind::Format, "it is not a bundle: `bundle validate` says more")
}
