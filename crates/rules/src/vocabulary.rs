//! Vocabulary of rules: the item types of an organisation, the shapes of their fields, windows and banks.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use tidegate_schemas::{
    banks::BankKind,
    ids::{BankId, TypeId},
    item_types::{self, ItemType, Scalar},
};
use uuid::Uuid;

/// Kind of a field's values, as far as rules distinguish kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    /// Text that is one address.
    Url,
    /// Text that is a geohash.
    Geohash,
    /// Address of a medium that the service analyses.
    Media,
    Number,
    Boolean,
    Datetime,
    Related,
}

impl Kind {
    /// Kind for conditions that treat addresses, geohashes and media as texts.
    pub(crate) fn plain(self) -> Self {
        if matches!(self, Self::Url | Self::Geohash | Self::Media) { Self::Text } else { self }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Url => "an address",
            Self::Geohash => "a geohash",
            Self::Media => "the address of a medium",
            Self::Number => "a number",
            Self::Boolean => "a boolean",
            Self::Datetime => "a datetime",
            Self::Related => "a related item",
        }
    }
}

/// Container of a field: one value or several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Container {
    One,
    List,
    Map,
}

/// Kind and container of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub kind: Kind,
    pub container: Container,
}

impl Shape {
    pub const fn one(kind: Kind) -> Self {
        Self { kind, container: Container::One }
    }

    pub const fn list(kind: Kind) -> Self {
        Self { kind, container: Container::List }
    }

    pub const fn map(kind: Kind) -> Self {
        Self { kind, container: Container::Map }
    }
}

impl From<&item_types::Field> for Shape {
    fn from(field: &item_types::Field) -> Self {
        let kind = match field.scalar {
            Scalar::Number => Kind::Number,
            Scalar::Url => Kind::Url,
            Scalar::Geohash => Kind::Geohash,
            Scalar::Boolean => Kind::Boolean,
            Scalar::Datetime => Kind::Datetime,
            Scalar::RelatedItem => Kind::Related,
            Scalar::Audio | Scalar::Image | Scalar::Video | Scalar::Media => Kind::Media,
            // Rules compare the values of these types as plain texts.
            Scalar::Id
            | Scalar::UserId
            | Scalar::String
            | Scalar::PolicyId
            | Scalar::IpAddress
            | Scalar::EmailAddress => Kind::Text,
        };
        let container = match field.container {
            None => Container::One,
            Some(item_types::Container::Array) => Container::List,
            Some(item_types::Container::Map) => Container::Map,
        };
        Self { kind, container }
    }
}

/// Bank with its enabled entries.
#[derive(Clone, Debug)]
pub struct Bank {
    pub key: BankId,
    pub kind: BankKind,
    pub entries: Arc<[BankEntry]>,
}

/// Entry in the canonical form of its kind. Its data are shared, because there may be millions of entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BankEntry {
    /// Id of the entry in outcomes.
    pub id: Uuid,
    pub value: Arc<str>,
    pub labels: Arc<[String]>,
}

/// Name of an entry in outcomes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EntryName {
    pub bank: BankId,
    pub id: Arc<str>,
    #[serde(default, skip_serializing_if = "is_empty")]
    pub labels: Arc<[String]>,
}

fn is_empty(labels: &Arc<[String]>) -> bool {
    labels.is_empty()
}

impl Bank {
    pub(crate) fn name(&self, entry: &BankEntry) -> EntryName {
        entry_name(&self.key, entry)
    }
}

fn entry_name(bank: &BankId, entry: &BankEntry) -> EntryName {
    EntryName { bank: bank.clone(), id: entry.id.to_string().into(), labels: Arc::clone(&entry.labels) }
}

/// Entries of a bank that a condition uses, in its own numbering. They are shared with the bank.
#[derive(Clone, Debug)]
pub(crate) struct SelectedEntries {
    bank: BankId,
    all: Arc<[BankEntry]>,
    /// Number of each selected entry in the bank. `None` if all are selected.
    selected: Option<Box<[u32]>>,
}

impl SelectedEntries {
    /// `selected` are the numbers of the entries in the bank.
    pub(crate) fn new(bank: &Bank, selected: Vec<u32>) -> Self {
        let selected = (selected.len() < bank.entries.len()).then(|| selected.into());
        Self { bank: bank.key.clone(), all: Arc::clone(&bank.entries), selected }
    }

    pub(crate) fn bank(&self) -> &BankId {
        &self.bank
    }

    /// Keeps the entries with a true flag.
    pub(crate) fn retain(&mut self, flags: &[bool]) {
        let kept_entries = (0_u32..).zip(flags).filter(|(_, flag)| **flag);
        let selected = kept_entries.map(|(nth, _)| self.number(nth)).collect();
        self.selected = Some(selected);
    }

    pub(crate) fn name(&self, nth: usize) -> Option<EntryName> {
        let number = self.number(u32::try_from(nth).ok()?);
        self.all.get(number as usize).map(|entry| entry_name(&self.bank, entry))
    }

    fn number(&self, nth: u32) -> u32 {
        match &self.selected {
            Some(selected) => selected.get(nth as usize).copied().unwrap_or(u32::MAX),
            None => nth,
        }
    }
}

/// Item types with their fields, windows and banks.
#[derive(Clone, Debug, Default)]
pub struct Vocabulary {
    types: BTreeMap<TypeId, HashMap<String, Shape>>,
    windows: Vec<Json>,
    banks: Vec<Bank>,
}

/// Fields by item type in which every text is one address.
pub(crate) type Addresses = HashMap<TypeId, HashSet<String>>;

/// Path inside `data`, split into a field and the part inside of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Route {
    pub(crate) field: String,
    pub(crate) inside: Option<String>,
}

impl Vocabulary {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an item type, or the fields of another version of it.
    pub fn add<'a>(&mut self, type_id: TypeId, fields: impl IntoIterator<Item = (&'a str, Shape)>) {
        let shapes = self.types.entry(type_id).or_default();
        for (name, shape) in fields {
            shapes.insert(name.to_owned(), shape);
        }
    }

    /// Creates the vocabulary of compiled item types.
    pub fn from_item_types<'a>(item_types: impl IntoIterator<Item = &'a ItemType>) -> Self {
        let mut vocabulary = Self::new();
        for item_type in item_types {
            let fields = item_type.fields().iter().map(|field| (&*field.name, Shape::from(field)));
            vocabulary.add(item_type.key.clone(), fields);
        }
        vocabulary
    }

    /// Adds a window document. Its errors are reported when rules are compiled.
    pub fn add_window(&mut self, document: Json) {
        self.windows.push(document);
    }

    /// Adds a bank with its enabled entries.
    pub fn add_bank(&mut self, bank: Bank) {
        self.banks.push(bank);
    }

    pub(crate) fn banks(&self) -> &[Bank] {
        &self.banks
    }

    pub(crate) fn windows(&self) -> &[Json] {
        &self.windows
    }

    /// Fields of each type in which every text is one address.
    pub(crate) fn addresses(&self) -> Addresses {
        let is_address = |shape: &Shape| matches!(shape.kind, Kind::Url | Kind::Media);
        let address_fields = |fields: &HashMap<String, Shape>| {
            fields.iter().filter(|(_, shape)| is_address(shape)).map(|(name, _)| name.clone()).collect()
        };
        self.types.iter().map(|(type_id, fields)| (type_id.clone(), address_fields(fields))).collect()
    }

    pub(crate) fn types(&self) -> impl Iterator<Item = &TypeId> {
        self.types.keys()
    }

    pub(crate) fn has_type(&self, type_id: &TypeId) -> bool {
        self.types.contains_key(type_id)
    }

    /// Names of the fields that a rule for these types could have meant.
    pub(crate) fn fields<'a>(&'a self, types: &'a [TypeId]) -> impl Iterator<Item = &'a str> {
        self.in_scope(types).flat_map(|(_, fields)| fields.keys().map(String::as_str))
    }

    /// Returns the route and the kind of `path` for each type in scope that has such a field.
    pub(crate) fn resolve<'a>(&'a self, types: &'a [TypeId], path: &str) -> Vec<(&'a TypeId, Route, Kind)> {
        self.in_scope(types)
            .filter_map(|(type_id, fields)| {
                find_route(fields, path).map(|(route, shape)| (type_id, route, shape.kind))
            })
            .collect()
    }

    /// Returns the container of `path` for each type in scope.
    pub(crate) fn containers<'a>(
        &'a self,
        types: &'a [TypeId],
        path: &'a str,
    ) -> impl Iterator<Item = (&'a TypeId, Container)> {
        self.in_scope(types).filter_map(move |(type_id, fields)| {
            find_route(fields, path).map(|(_, shape)| (type_id, shape.container))
        })
    }

    fn in_scope<'a>(
        &'a self,
        types: &'a [TypeId],
    ) -> impl Iterator<Item = (&'a TypeId, &'a HashMap<String, Shape>)> {
        self.types.iter().filter(move |(type_id, _)| types.is_empty() || types.contains(type_id))
    }
}

/// Resolves a path. The name of a field takes precedence over a path into another field, and the longer name over the
/// shorter.
fn find_route(fields: &HashMap<String, Shape>, path: &str) -> Option<(Route, Shape)> {
    if let Some(shape) = fields.get(path) {
        return Some((Route { field: path.to_owned(), inside: None }, *shape));
    }
    path.rmatch_indices('.').find_map(|(dot, _)| {
        let (field, inside) = (&path[..dot], &path[dot + 1..]);
        let shape = fields.get(field)?;
        let shape = match (shape.container, shape.kind) {
            // A path that ends with the dot names no key of the map.
            (Container::Map, kind) if !inside.is_empty() => Shape::one(kind),
            // The item holds only the key of a related item, so its other data cannot be read.
            (container, Kind::Related) if matches!(inside, "id" | "typeId") => {
                Shape { kind: Kind::Text, container }
            }
            _ => return None,
        };
        Some((Route { field: field.to_owned(), inside: Some(inside.to_owned()) }, shape))
    })
}
