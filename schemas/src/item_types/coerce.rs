//! Turns one JSON value into a typed one: the interface's exact forms, and the lenient ones beside them.
//!
//! It does not know which fields exist.

use std::{
    borrow::Cow,
    net::{IpAddr, Ipv6Addr},
};

use super::{
    datetime,
    fields::Field,
    geohash,
    kinds::{Container, Scalar},
    output::Output,
    values::{Number, Value},
};
use crate::{
    ids::{ItemKey, TypeId},
    json::{Kind, Node},
    nearest::{hint, shown},
    validation_error::{Pointer, ValidationError, ValidationErrors},
};

/// The value did not fit; why is already among the faults.
pub(super) struct Refused;

type Coerced<K> = Result<Option<K>, Refused>;

/// Context that coercion needs beside the value.
pub(super) struct Coercion<'a> {
    /// Take only the exact forms.
    pub(super) strict: bool,
    /// Types that a related item may have.
    pub(super) types: &'a [TypeId],
    pub(super) faults: &'a mut ValidationErrors,
}

impl Coercion<'_> {
    /// The value of a field; nothing if the value counts as absent.
    pub(super) fn field<K: Output>(&mut self, field: &Field, node: Node<'_>, at: &Pointer<'_>) -> Coerced<K> {
        if self.absent(node) {
            return Ok(None);
        }
        match field.container {
            None => self.scalar(field.scalar, node, at),
            Some(Container::Array) => self.array(field.scalar, node, at),
            Some(Container::Map) => self.map(field.scalar, node, at),
        }
    }

    fn array<K: Output>(&mut self, scalar: Scalar, node: Node<'_>, at: &Pointer<'_>) -> Coerced<K> {
        if node.kind() != Kind::Array {
            return self.refuse(at, format!("This must be an array, not {}.", node.kind().name()));
        }
        let mut refused = false;
        let mut values = Vec::new();
        for (index, element) in node.elements().enumerate() {
            if self.absent(element) {
                continue;
            }
            match self.scalar(scalar, element, &at.index(index)) {
                Ok(value) => values.extend(value),
                Err(Refused) => refused = true,
            }
        }
        if refused { Err(Refused) } else { Ok(Some(K::list(values))) }
    }

    fn map<K: Output>(&mut self, scalar: Scalar, node: Node<'_>, at: &Pointer<'_>) -> Coerced<K> {
        if node.kind() != Kind::Object {
            return self.refuse(at, format!("This must be an object, not {}.", node.kind().name()));
        }
        let mut refused = false;
        let mut entries = Vec::new();
        for (key, value) in node.entries() {
            if self.absent(value) {
                continue;
            }
            match self.scalar(scalar, value, &at.key(&key)) {
                Ok(value) => entries.extend(value.map(|value| (key, value))),
                Err(Refused) => refused = true,
            }
        }
        if refused { Err(Refused) } else { Ok(Some(K::map(entries))) }
    }

    fn absent(&self, node: Node<'_>) -> bool {
        !self.strict && node.is_null()
    }

    fn scalar<K: Output>(&mut self, scalar: Scalar, node: Node<'_>, at: &Pointer<'_>) -> Coerced<K> {
        match scalar {
            Scalar::String => match node.str() {
                Some(text) => Ok(Some(K::text(&text))),
                None => self.wrong(at, "a string", node),
            },
            // As a related item names a user.
            Scalar::UserId if !self.strict && node.kind() == Kind::Object => {
                let (id, type_id) = (self.member(node, "id", at), self.member(node, "typeId", at));
                type_id?;
                id.map(|id| Some(K::text(&id)))
            }
            Scalar::Id | Scalar::UserId | Scalar::PolicyId => match (node.str(), node.number()) {
                (Some(text), _) => Ok(Some(K::text(&text))),
                (None, Some(number)) if !self.strict => Ok(Some(K::text(number))),
                _ => self.wrong(at, "a string", node),
            },
            Scalar::Boolean => self.boolean(node, at),
            Scalar::Number => self.number(node, at),
            Scalar::Audio | Scalar::Image | Scalar::Video | Scalar::Media => {
                // Coop's own stored form is an object around the address.
                let inner = if self.strict { None } else { node.get("url") };
                self.url(inner.unwrap_or(node), at, Value::Media)
            }
            Scalar::Url => self.url(node, at, Value::Url),
            Scalar::Datetime => {
                let parse = if self.strict { datetime::exact } else { datetime::parse };
                let expected = if self.strict {
                    "This must be an ISO 8601 time with milliseconds and `Z`."
                } else {
                    "This must be an ISO 8601 date with a time."
                };
                self.parsed(node, at, expected, |text| {
                    parse(text).map(|time| K::of(|| Value::DateTime(time)))
                })
            }
            Scalar::Geohash => {
                let strict = self.strict;
                self.parsed(node, at, "This must be a base-32 geohash of 1 to 12 characters.", |text| {
                    if strict {
                        geohash::is_geohash(text).then(|| K::of(|| Value::Geohash(text.to_owned())))
                    } else {
                        geohash::canonical(text).map(|text| K::of(|| Value::Geohash(text)))
                    }
                })
            }
            Scalar::RelatedItem => self.related(node, at),
            Scalar::IpAddress => {
                let strict = self.strict;
                self.parsed(node, at, "This must be an IPv4 or IPv6 address.", |text| {
                    let text = if strict { text } else { without_zone(text.trim()) };
                    text.parse::<IpAddr>().is_ok().then(|| K::text(text))
                })
            }
            Scalar::EmailAddress => match node.str() {
                Some(text) if self.strict => Ok(Some(K::text(&text))),
                Some(text) if text.trim().is_empty() => Ok(None),
                Some(text) => Ok(Some(K::text(text.trim()))),
                None => self.wrong(at, "a string", node),
            },
        }
    }

    fn boolean<K: Output>(&mut self, node: Node<'_>, at: &Pointer<'_>) -> Coerced<K> {
        let value = match node.kind() {
            Kind::Bool(value) => Some(value),
            _ if self.strict => None,
            _ => match node.str().as_deref().or(node.number()).unwrap_or_default() {
                "1" => Some(true),
                "0" => Some(false),
                text if text.eq_ignore_ascii_case("true") => Some(true),
                text if text.eq_ignore_ascii_case("false") => Some(false),
                _ => None,
            },
        };
        match value {
            Some(value) => Ok(Some(K::of(|| Value::Bool(value)))),
            None => self.refuse(at, "This must be `true` or `false`."),
        }
    }

    fn number<K: Output>(&mut self, node: Node<'_>, at: &Pointer<'_>) -> Coerced<K> {
        let text = match (node.number(), node.str()) {
            (Some(digits), _) => Cow::Borrowed(digits),
            (None, Some(text)) if !self.strict => {
                let text = text.trim();
                if text.is_empty() {
                    return Ok(None);
                }
                // `inf` and `NaN` are numbers to Rust only.
                let numeric =
                    text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.' | b'e' | b'E'));
                if !numeric {
                    return self.refuse(at, "This must be a number.");
                }
                Cow::Owned(text.to_owned())
            }
            _ => return self.wrong(at, "a number", node),
        };
        match Number::parse(&text) {
            Some(number) => Ok(Some(K::of(|| Value::Number(number)))),
            None => self.refuse(at, "This must be a number that 64 bits can hold."),
        }
    }

    fn url<K: Output>(&mut self, node: Node<'_>, at: &Pointer<'_>, kind: fn(String) -> Value) -> Coerced<K> {
        let Some(text) = node.str() else { return self.wrong(at, "a URL", node) };
        if text.is_empty() && !self.strict {
            return Ok(None);
        }
        let web = url::Url::parse(&text).is_ok_and(|url| {
            matches!(url.scheme(), "http" | "https") && url.host_str().is_some_and(|host| !host.is_empty())
        });
        if web {
            return Ok(Some(K::of(|| kind(text.into_owned()))));
        }
        self.refuse(at, "This must be an `http` or `https` URL.")
    }

    fn related<K: Output>(&mut self, node: Node<'_>, at: &Pointer<'_>) -> Coerced<K> {
        if node.kind() != Kind::Object {
            return self.wrong(at, "an object with `id` and `typeId`", node);
        }
        let id = self.member(node, "id", at);
        let type_id = self.member(node, "typeId", at);
        let (id, type_id) = (id?, type_id?);
        let Some(known) = self.types.iter().find(|known| known.as_str() == type_id) else {
            let near = hint(&type_id, self.types.iter().map(TypeId::as_str));
            return self.refuse(
                &at.key("typeId"),
                format!("`{}` is not an item type of this organisation.{near}", shown(&type_id)),
            );
        };
        Ok(Some(K::of(|| Value::Related(ItemKey::new(known.clone(), &*id)))))
    }

    fn member<'a>(&mut self, node: Node<'a>, name: &str, at: &Pointer<'_>) -> Result<Cow<'a, str>, Refused> {
        let found = node.get(name);
        let text = found.and_then(|value| match value.number() {
            Some(number) if !self.strict => Some(Cow::Borrowed(number)),
            _ => value.str(),
        });
        match text {
            Some(text) if !text.is_empty() => Ok(text),
            _ => {
                let what = match found {
                    None => "is missing".to_owned(),
                    Some(value) if value.kind() == Kind::String => "may not be empty".to_owned(),
                    Some(value) => format!("must be a string, not {}", value.kind().name()),
                };
                self.faults.push(ValidationError::data(
                    &at.key(name),
                    format!("`{name}` of a related item {what}."),
                ));
                Err(Refused)
            }
        }
    }

    /// A value written as text; a blank text counts as absent unless the type is strict.
    fn parsed<K>(
        &mut self,
        node: Node<'_>,
        at: &Pointer<'_>,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<K>,
    ) -> Coerced<K> {
        match node.str() {
            Some(text) if text.trim().is_empty() && !self.strict => Ok(None),
            Some(text) => match parse(&text) {
                Some(value) => Ok(Some(value)),
                None => self.refuse(at, expected),
            },
            None => self.wrong(at, "a string", node),
        }
    }

    fn wrong<K>(&mut self, at: &Pointer<'_>, expected: &str, node: Node<'_>) -> Coerced<K> {
        self.refuse(at, format!("This must be {expected}, not {}.", node.kind().name()))
    }

    fn refuse<K>(&mut self, at: &Pointer<'_>, detail: impl Into<String>) -> Coerced<K> {
        self.faults.push(ValidationError::data(at, detail));
        Err(Refused)
    }
}

/// The address without its zone, which names an interface of the machine that wrote it.
fn without_zone(text: &str) -> &str {
    match text.split_once('%') {
        Some((address, zone)) if !zone.is_empty() && address.parse::<Ipv6Addr>().is_ok() => address,
        _ => text,
    }
}
