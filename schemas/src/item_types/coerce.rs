//! Converts a JSON value to a typed value. Types that are not strict accept further forms than those of the API.

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
    nearest::{hint, truncate_name},
    validation_error::{Pointer, ValidationError, ValidationErrors},
};

/// Marker for an invalid value. Its error is already in the list of faults.
pub(super) struct InvalidValue;

type CoercionResult<K> = Result<Option<K>, InvalidValue>;

/// Context of the coercion of one item's values. Functions with the parameter `K` return a [`Value`], or `()` if only the errors
/// are needed.
pub(super) struct Coercion<'a> {
    /// True if only the exact forms of the API are accepted.
    pub(super) strict: bool,
    /// Types of the organisation, one of which a related item must have.
    pub(super) types: &'a [TypeId],
    pub(super) faults: &'a mut ValidationErrors,
}

impl Coercion<'_> {
    /// Converts the value of a field. `None` if the value counts as absent.
    pub(super) fn coerce_field<K: Output>(
        &mut self,
        field: &Field,
        node: Node<'_>,
        at: &Pointer<'_>,
    ) -> CoercionResult<K> {
        if self.is_absent(node) {
            return Ok(None);
        }
        match field.container {
            None => self.coerce_scalar(field.scalar, node, at),
            Some(Container::Array) => self.coerce_array(field.scalar, node, at),
            Some(Container::Map) => self.coerce_map(field.scalar, node, at),
        }
    }

    fn coerce_array<K: Output>(
        &mut self,
        scalar: Scalar,
        node: Node<'_>,
        at: &Pointer<'_>,
    ) -> CoercionResult<K> {
        if node.kind() != Kind::Array {
            return self.reject(at, format!("This must be an array, not {}.", node.kind().name()));
        }
        let mut has_invalid = false;
        let mut values = Vec::new();
        for (index, element) in node.elements().enumerate() {
            // Null members are dropped, so the positions of later values shift.
            if self.is_absent(element) {
                continue;
            }
            match self.coerce_scalar(scalar, element, &at.index(index)) {
                Ok(value) => values.extend(value),
                // The loop continues, so that all invalid members are reported.
                Err(InvalidValue) => has_invalid = true,
            }
        }
        if has_invalid { Err(InvalidValue) } else { Ok(Some(K::list(values))) }
    }

    fn coerce_map<K: Output>(
        &mut self,
        scalar: Scalar,
        node: Node<'_>,
        at: &Pointer<'_>,
    ) -> CoercionResult<K> {
        if node.kind() != Kind::Object {
            return self.reject(at, format!("This must be an object, not {}.", node.kind().name()));
        }
        let mut has_invalid = false;
        let mut entries = Vec::new();
        for (key, value) in node.entries() {
            if self.is_absent(value) {
                continue;
            }
            match self.coerce_scalar(scalar, value, &at.key(&key)) {
                Ok(value) => entries.extend(value.map(|value| (key, value))),
                Err(InvalidValue) => has_invalid = true,
            }
        }
        if has_invalid { Err(InvalidValue) } else { Ok(Some(K::map(entries))) }
    }

    fn is_absent(&self, node: Node<'_>) -> bool {
        // A strict type reports null as an invalid value instead.
        !self.strict && node.is_null()
    }

    fn coerce_scalar<K: Output>(
        &mut self,
        scalar: Scalar,
        node: Node<'_>,
        at: &Pointer<'_>,
    ) -> CoercionResult<K> {
        match scalar {
            Scalar::String => match node.str() {
                Some(text) => Ok(Some(K::text(&text))),
                None => self.reject_kind(at, "a string", node),
            },
            // A user can also be written as a related item: an object with `id` and `typeId`.
            Scalar::UserId if !self.strict && node.kind() == Kind::Object => {
                let (id, type_id) = (self.read_member(node, "id", at), self.read_member(node, "typeId", at));
                // Both members are read before the first return, so that both errors are reported.
                type_id?;
                id.map(|id| Some(K::text(&id)))
            }
            Scalar::Id | Scalar::UserId | Scalar::PolicyId => match (node.str(), node.number()) {
                (Some(text), _) => Ok(Some(K::text(&text))),
                // Numeric ids are kept as written; a conversion to a number would change long ids.
                (None, Some(number)) if !self.strict => Ok(Some(K::text(number))),
                _ => self.reject_kind(at, "a string", node),
            },
            Scalar::Boolean => self.coerce_boolean(node, at),
            Scalar::Number => self.coerce_number(node, at),
            Scalar::Audio | Scalar::Image | Scalar::Video | Scalar::Media => {
                // Coop stores media as an object with the address in `url`.
                let address = if self.strict { None } else { node.get("url") };
                self.coerce_url(address.unwrap_or(node), at, Value::Media)
            }
            Scalar::Url => self.coerce_url(node, at, Value::Url),
            Scalar::Datetime => {
                let parse = if self.strict { datetime::exact } else { datetime::parse };
                let expected_form = if self.strict {
                    "This must be an ISO 8601 time with milliseconds and `Z`."
                } else {
                    "This must be an ISO 8601 date with a time."
                };
                self.coerce_text(node, at, expected_form, |text| {
                    parse(text).map(|time| K::of(|| Value::DateTime(time)))
                })
            }
            Scalar::Geohash => {
                let strict = self.strict;
                self.coerce_text(node, at, "This must be a base-32 geohash of 1 to 12 characters.", |text| {
                    if strict {
                        geohash::is_geohash(text).then(|| K::of(|| Value::Geohash(text.to_owned())))
                    } else {
                        geohash::canonical(text).map(|text| K::of(|| Value::Geohash(text)))
                    }
                })
            }
            Scalar::RelatedItem => self.coerce_related_item(node, at),
            Scalar::IpAddress => {
                let strict = self.strict;
                self.coerce_text(node, at, "This must be an IPv4 or IPv6 address.", |text| {
                    let text = if strict { text } else { without_zone(text.trim()) };
                    text.parse::<IpAddr>().is_ok().then(|| K::text(text))
                })
            }
            Scalar::EmailAddress => match node.str() {
                Some(text) if self.strict => Ok(Some(K::text(&text))),
                Some(text) if text.trim().is_empty() => Ok(None),
                Some(text) => Ok(Some(K::text(text.trim()))),
                None => self.reject_kind(at, "a string", node),
            },
        }
    }

    fn coerce_boolean<K: Output>(&mut self, node: Node<'_>, at: &Pointer<'_>) -> CoercionResult<K> {
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
            None => self.reject(at, "This must be `true` or `false`."),
        }
    }

    fn coerce_number<K: Output>(&mut self, node: Node<'_>, at: &Pointer<'_>) -> CoercionResult<K> {
        let text = match (node.number(), node.str()) {
            (Some(digits), _) => Cow::Borrowed(digits),
            (None, Some(text)) if !self.strict => {
                let text = text.trim();
                if text.is_empty() {
                    return Ok(None);
                }
                // Rust also parses `inf` and `NaN`, which are no numbers in JSON.
                let is_numeric =
                    text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.' | b'e' | b'E'));
                if !is_numeric {
                    return self.reject(at, "This must be a number.");
                }
                Cow::Owned(text.to_owned())
            }
            _ => return self.reject_kind(at, "a number", node),
        };
        match Number::parse(&text) {
            Some(number) => Ok(Some(K::of(|| Value::Number(number)))),
            None => self.reject(at, "This must be a number within the range of 64 bits."),
        }
    }

    fn coerce_url<K: Output>(
        &mut self,
        node: Node<'_>,
        at: &Pointer<'_>,
        kind: fn(String) -> Value,
    ) -> CoercionResult<K> {
        let Some(text) = node.str() else { return self.reject_kind(at, "a URL", node) };
        // An empty text counts as absent, as null does.
        if text.is_empty() && !self.strict {
            return Ok(None);
        }
        let is_web_url = url::Url::parse(&text).is_ok_and(|url| {
            // Other schemes cannot be fetched.
            matches!(url.scheme(), "http" | "https") && url.host_str().is_some_and(|host| !host.is_empty())
        });
        if is_web_url {
            return Ok(Some(K::of(|| kind(text.into_owned()))));
        }
        self.reject(at, "This must be an `http` or `https` URL.")
    }

    fn coerce_related_item<K: Output>(&mut self, node: Node<'_>, at: &Pointer<'_>) -> CoercionResult<K> {
        if node.kind() != Kind::Object {
            return self.reject_kind(at, "an object with `id` and `typeId`", node);
        }
        let id = self.read_member(node, "id", at);
        let type_id = self.read_member(node, "typeId", at);
        // Both members are read before the first return, so that both errors are reported.
        let (id, type_id) = (id?, type_id?);
        let Some(item_type) = self.types.iter().find(|type_name| type_name.as_str() == type_id) else {
            let suggestion = hint(&type_id, self.types.iter().map(TypeId::as_str));
            return self.reject(
                &at.key("typeId"),
                format!(
                    "`{}` is not an item type of this organisation.{suggestion}",
                    truncate_name(&type_id)
                ),
            );
        };
        Ok(Some(K::of(|| Value::Related(ItemKey::new(item_type.clone(), &*id)))))
    }

    fn read_member<'a>(
        &mut self,
        node: Node<'a>,
        name: &str,
        at: &Pointer<'_>,
    ) -> Result<Cow<'a, str>, InvalidValue> {
        let value = node.get(name);
        let text = value.and_then(|value| match value.number() {
            Some(number) if !self.strict => Some(Cow::Borrowed(number)),
            _ => value.str(),
        });
        match text {
            Some(text) if !text.is_empty() => Ok(text),
            _ => {
                let problem = match value {
                    None => "is missing".to_owned(),
                    Some(value) if value.kind() == Kind::String => "may not be empty".to_owned(),
                    Some(value) => format!("must be a string, not {}", value.kind().name()),
                };
                self.faults.push(ValidationError::data(
                    &at.key(name),
                    format!("`{name}` of a related item {problem}."),
                ));
                Err(InvalidValue)
            }
        }
    }

    /// Converts a value that is written as text. A blank text counts as absent unless the type is strict.
    fn coerce_text<K>(
        &mut self,
        node: Node<'_>,
        at: &Pointer<'_>,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<K>,
    ) -> CoercionResult<K> {
        match node.str() {
            Some(text) if text.trim().is_empty() && !self.strict => Ok(None),
            Some(text) => match parse(&text) {
                Some(value) => Ok(Some(value)),
                None => self.reject(at, expected),
            },
            None => self.reject_kind(at, "a string", node),
        }
    }

    fn reject_kind<K>(&mut self, at: &Pointer<'_>, expected: &str, node: Node<'_>) -> CoercionResult<K> {
        self.reject(at, format!("This must be {expected}, not {}.", node.kind().name()))
    }

    fn reject<K>(&mut self, at: &Pointer<'_>, detail: impl Into<String>) -> CoercionResult<K> {
        self.faults.push(ValidationError::data(at, detail));
        Err(InvalidValue)
    }
}

/// Removes the zone of an IPv6 address: it names a network interface of the sender.
fn without_zone(text: &str) -> &str {
    match text.split_once('%') {
        Some((address, zone)) if !zone.is_empty() && address.parse::<Ipv6Addr>().is_ok() => address,
        _ => text,
    }
}
