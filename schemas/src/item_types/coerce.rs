//! Turns one JSON value into a typed one: the interface's exact forms, and the lenient ones beside them.
//!
//! It does not know which fields exist.

use std::{borrow::Cow, net::IpAddr};

use super::{
    datetime,
    fields::{Container, Field, Scalar},
    geohash,
    values::{Number, Value},
};
use crate::{
    ids::{ItemKey, TypeId},
    nearest::{hint, shown},
    wire::{
        fault::{Fault, Faults, Pointer},
        json::{Kind, Node},
    },
};

/// The value did not fit; why is already among the faults.
pub(super) struct Refused;

type Coerced = Result<Option<Value>, Refused>;

/// What coercion needs beside the value.
pub(super) struct Coercion<'a> {
    /// Take only the exact forms.
    pub(super) strict: bool,
    /// What a related item may be of.
    pub(super) types: &'a [TypeId],
    pub(super) faults: &'a mut Faults,
}

impl Coercion<'_> {
    /// The value of a field; nothing if the value counts as absent.
    pub(super) fn field(&mut self, field: &Field, node: Node<'_>, at: &Pointer<'_>) -> Coerced {
        if self.absent(node) {
            return Ok(None);
        }
        match field.container {
            None => self.scalar(field.scalar, node, at),
            Some(Container::Array) => self.array(field.scalar, node, at),
            Some(Container::Map) => self.map(field.scalar, node, at),
        }
    }

    fn array(&mut self, scalar: Scalar, node: Node<'_>, at: &Pointer<'_>) -> Coerced {
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
        if refused { Err(Refused) } else { Ok(Some(Value::List(values))) }
    }

    fn map(&mut self, scalar: Scalar, node: Node<'_>, at: &Pointer<'_>) -> Coerced {
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
                Ok(value) => entries.extend(value.map(|value| (key.into_owned(), value))),
                Err(Refused) => refused = true,
            }
        }
        if refused { Err(Refused) } else { Ok(Some(Value::Map(entries))) }
    }

    fn absent(&self, node: Node<'_>) -> bool {
        !self.strict && node.is_null()
    }

    fn scalar(&mut self, scalar: Scalar, node: Node<'_>, at: &Pointer<'_>) -> Coerced {
        match scalar {
            Scalar::String => match node.str() {
                Some(text) => Ok(Some(Value::Text(text.into_owned()))),
                None => self.wrong(at, "a string", node),
            },
            Scalar::Id | Scalar::UserId | Scalar::PolicyId => match (node.str(), node.number()) {
                (Some(text), _) => Ok(Some(Value::Text(text.into_owned()))),
                (None, Some(number)) if !self.strict => Ok(Some(Value::Text(number.to_owned()))),
                _ => self.wrong(at, "a string", node),
            },
            Scalar::Boolean => self.boolean(node, at),
            Scalar::Number => self.number(node, at),
            Scalar::Audio | Scalar::Image | Scalar::Video | Scalar::Media => {
                // Coop's own stored form is an object around the address.
                let inner = if self.strict { None } else { node.get("url") };
                self.url(inner.unwrap_or(node), at).map(|url| url.map(Value::Media))
            }
            Scalar::Url => self.url(node, at).map(|url| url.map(Value::Url)),
            Scalar::Datetime => {
                let parse = if self.strict { datetime::exact } else { datetime::parse };
                let expected = if self.strict {
                    "This must be an ISO 8601 time with milliseconds and `Z`."
                } else {
                    "This must be an ISO 8601 date with a time."
                };
                self.parsed(node, at, expected, |text| parse(text).map(Value::DateTime))
            }
            Scalar::Geohash => {
                let strict = self.strict;
                self.parsed(node, at, "This must be a base-32 geohash of 1 to 12 characters.", |text| {
                    if strict {
                        geohash::is_geohash(text).then(|| Value::Geohash(text.to_owned()))
                    } else {
                        geohash::canonical(text).map(Value::Geohash)
                    }
                })
            }
            Scalar::RelatedItem => self.related(node, at),
            Scalar::IpAddress => {
                let strict = self.strict;
                self.parsed(node, at, "This must be an IPv4 or IPv6 address.", |text| {
                    let text = if strict { text } else { text.trim() };
                    text.parse::<IpAddr>().is_ok().then(|| Value::Text(text.to_owned()))
                })
            }
            Scalar::EmailAddress => match node.str() {
                Some(text) if self.strict => Ok(Some(Value::Text(text.into_owned()))),
                Some(text) => Ok(Some(Value::Text(text.trim().to_owned()))),
                None => self.wrong(at, "a string", node),
            },
        }
    }

    fn boolean(&mut self, node: Node<'_>, at: &Pointer<'_>) -> Coerced {
        let value = match node.kind() {
            Kind::Bool(value) => Some(value),
            _ if self.strict => None,
            _ => match node.str().as_deref().or(node.number()).unwrap_or_default() {
                "true" | "1" => Some(true),
                "false" | "0" => Some(false),
                _ => None,
            },
        };
        match value {
            Some(value) => Ok(Some(Value::Bool(value))),
            None => self.refuse(at, "This must be `true` or `false`."),
        }
    }

    fn number(&mut self, node: Node<'_>, at: &Pointer<'_>) -> Coerced {
        let text = match (node.number(), node.str()) {
            (Some(digits), _) => Cow::Borrowed(digits),
            (None, Some(text)) if !self.strict => {
                let text = text.trim();
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
            Some(number) => Ok(Some(Value::Number(number))),
            None => self.refuse(at, "This must be a number that 64 bits can hold."),
        }
    }

    fn url(&mut self, node: Node<'_>, at: &Pointer<'_>) -> Result<Option<String>, Refused> {
        const EXPECTED: &str = "This must be an `http` or `https` URL.";
        let Some(text) = node.str() else {
            self.faults.push(Fault::data(at, format!("This must be a URL, not {}.", node.kind().name())));
            return Err(Refused);
        };
        if text.is_empty() && !self.strict {
            return Ok(None);
        }
        let web = url::Url::parse(&text).is_ok_and(|url| {
            matches!(url.scheme(), "http" | "https") && url.host_str().is_some_and(|host| !host.is_empty())
        });
        if web {
            return Ok(Some(text.into_owned()));
        }
        self.faults.push(Fault::data(at, EXPECTED));
        Err(Refused)
    }

    fn related(&mut self, node: Node<'_>, at: &Pointer<'_>) -> Coerced {
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
        Ok(Some(Value::Related(ItemKey::new(known.clone(), &*id))))
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
                self.faults.push(Fault::data(&at.key(name), format!("`{name}` of a related item {what}.")));
                Err(Refused)
            }
        }
    }

    /// A value written as text; the empty text counts as absent unless the type is strict.
    fn parsed(
        &mut self,
        node: Node<'_>,
        at: &Pointer<'_>,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<Value>,
    ) -> Coerced {
        match node.str() {
            Some(text) if text.is_empty() && !self.strict => Ok(None),
            Some(text) => match parse(&text) {
                Some(value) => Ok(Some(value)),
                None => self.refuse(at, expected),
            },
            None => self.wrong(at, "a string", node),
        }
    }

    fn wrong(&mut self, at: &Pointer<'_>, expected: &str, node: Node<'_>) -> Coerced {
        self.refuse(at, format!("This must be {expected}, not {}.", node.kind().name()))
    }

    fn refuse(&mut self, at: &Pointer<'_>, detail: impl Into<String>) -> Coerced {
        self.faults.push(Fault::data(at, detail));
        Err(Refused)
    }
}
