//! Reads a bundle element by element, with its members in any order. Checks are limited to the parts that are read;
//! `validate` checks whole bundles.

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
    /// Id of the item in the source tool.
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
    #[serde(deserialize_with = "deserialize_count")]
    pub(crate) count: u128,
    pub(crate) occurred_at: Option<String>,
}

/// Largest count, and largest sum of counts, that is accepted: 38 digits.
pub(crate) const MAX_COUNT: u128 = 10_u128.pow(38) - 1;

/// Parses a count from its digits, since `1.0` is a count too. Counts that do not fit saturate, so they exceed the
/// limit.
fn deserialize_count<'de, D: Deserializer<'de>>(from: D) -> Result<u128, D::Error> {
    let number = serde_json::Number::deserialize(from)?;
    let number = Number::parse(number.to_string().as_bytes()).filter(|number| number.is_whole);
    let count = number.filter(|number| number.is_at_least(0)).map(|number| number.saturating_count());
    count.ok_or_else(|| serde::de::Error::custom("not a count"))
}

/// Receiver of a bundle's elements. The constants select the lists to read; the others are skipped.
pub(crate) trait ElementReceiver {
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

/// Receiver of no elements, for callers that need only the other members.
impl ElementReceiver for () {}

/// Passes elements to the reader, and returns the members outside the lists.
pub(crate) fn read_bundle<R: ElementReceiver>(
    path: &Path,
    reader: &mut R,
    meter: &Meter,
) -> Result<Map<String, Value>, ConvertError> {
    let file = File::open(path).map_err(|error| ConvertError::io("opening", path, error))?;
    let file = BufReader::with_capacity(1 << 18, Metered::new(file, meter));
    let mut json = serde_json::Deserializer::from_reader(file);
    let mut error = None;
    let name = name_of(path);
    // `end` refuses data after the document, which would otherwise be lost without an error.
    let other_members = Document { reader, error: &mut error, meter, name: &name }
        .deserialize(&mut json)
        .and_then(|other_members| json.end().map(|()| other_members));
    // An error of the receiver has precedence: serde's error is only the means to stop the parser.
    match (error, other_members) {
        (Some(error), _) => Err(error),
        (None, Ok(other_members)) => Ok(other_members),
        // A failed read says that the file is unavailable, not that it is invalid.
        (None, Err(error)) if error.is_io() => Err(ConvertError::from_io(&name, error.into())),
        (None, Err(error)) => Err(not_a_bundle(&name, error.line() as u64)),
    }
}

struct Document<'d, R> {
    reader: &'d mut R,
    error: &'d mut Option<ConvertError>,
    meter: &'d Meter,
    name: &'d str,
}

impl<'de, R: ElementReceiver> DeserializeSeed<'de> for Document<'_, R> {
    type Value = Map<String, Value>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de, R: ElementReceiver> Visitor<'de> for Document<'_, R> {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a bundle")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut other_members, mut seen_names) = (Map::new(), HashSet::new());
        while let Some(key) = map.next_key::<String>()? {
            // Elements of a repeated list would be passed on twice, and a repeated member would lose its first value.
            if !seen_names.insert(key.clone()) {
                return Err(serde::de::Error::custom("duplicate member"));
            }
            let error = &mut *self.error;
            let reader = &mut *self.reader;
            let meter = self.meter;
            match key.as_str() {
                "items" if R::ITEMS => {
                    map.next_value_seed(
                        List { handler: |item: Item| reader.item(item), error }.into_seed::<Item>(),
                    )?;
                }
                "responses" if R::RESPONSES => {
                    let (name, mut rows) = (self.name, 0_u64);
                    let handle_row = |response: Response| {
                        meter.count_row();
                        rows += 1;
                        if response.count > MAX_COUNT {
                            let detail =
                                format!("/responses/{}: its count has more than 38 digits", rows - 1);
                            return Err(ConvertError::content(name, None, ErrorKind::Value, detail));
                        }
                        reader.response(response)
                    };
                    map.next_value_seed(List { handler: handle_row, error }.into_seed::<Response>())?;
                }
                "outcomes" if R::OUTCOMES => {
                    map.next_value_seed(
                        List { handler: |outcome: Value| reader.outcome(outcome), error }
                            .into_seed::<Value>(),
                    )?;
                }
                // Parsed without keeping it: a list can have millions of elements.
                "items" | "responses" | "outcomes" => {
                    map.next_value::<IgnoredAny>()?;
                }
                _ => {
                    other_members.insert(key, map.next_value()?);
                }
            }
        }
        Ok(other_members)
    }
}

/// List, with the handler of its elements. The handler's error is kept in `error`, because serde's errors hold only
/// text.
struct List<'l, F> {
    handler: F,
    error: &'l mut Option<ConvertError>,
}

/// Receiver of elements of type `T`; closures implement it.
trait ElementHandler<T> {
    fn handle(&mut self, element: T) -> Result<(), ConvertError>;
}

impl<T, F: FnMut(T) -> Result<(), ConvertError>> ElementHandler<T> for F {
    fn handle(&mut self, element: T) -> Result<(), ConvertError> {
        self(element)
    }
}

/// Seed that deserializes a list of `T`.
struct Elements<'l, T, F> {
    list: List<'l, F>,
    element_type: std::marker::PhantomData<T>,
}

impl<'de, F, T> DeserializeSeed<'de> for Elements<'_, T, F>
where
    T: Deserialize<'de>,
    F: ElementHandler<T>,
{
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de, F, T> Visitor<'de> for Elements<'_, T, F>
where
    T: Deserialize<'de>,
    F: ElementHandler<T>,
{
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut elements: A) -> Result<(), A::Error> {
        while let Some(element) = elements.next_element::<T>()? {
            if let Err(error) = self.list.handler.handle(element) {
                *self.list.error = Some(error);
                return Err(serde::de::Error::custom("stopped"));
            }
        }
        Ok(())
    }
}

impl<'l, F> List<'l, F> {
    fn into_seed<T>(self) -> Elements<'l, T, F> {
        Elements { list: self, element_type: std::marker::PhantomData }
    }
}

pub(super) fn not_a_bundle(name: &str, line: u64) -> ConvertError {
    let detail = "not a valid bundle: run `tidegate bundle validate` for details";
    ConvertError::content(name, line, ErrorKind::Format, detail)
}
