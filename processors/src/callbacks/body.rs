//! The body of a callback: the event as it was planned, with its `sequence`.
//!
//! It does not build events. The bytes stay as they are: a body that is written again from a parsed one may differ.

use bytes::{BufMut as _, Bytes, BytesMut};
use serde::{
    Deserialize,
    de::{Error as _, IgnoredAny, MapAccess, Visitor},
};
use tidegate_schemas::ids::ActionId;

/// Why a record's body cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadBody {
    #[error("the body is not a JSON object: {0}")]
    NotAnObject(String),
    #[error("the body has a `sequence` already")]
    HasSequence,
}

impl BadBody {
    pub(crate) const fn tag(&self) -> &'static str {
        match self {
            Self::NotAnObject(_) => "callback_body_malformed",
            Self::HasSequence => "callback_body_sequence",
        }
    }
}

/// The body with `sequence` as its last member.
pub(crate) fn with_sequence(body: &Bytes, sequence: i64) -> Result<Bytes, BadBody> {
    let members = members(body)?;
    let object = body.trim_ascii_end();
    let open = &object[..object.len() - 1];
    let comma = if members == 0 { "" } else { "," };
    let member = format!("{comma}\"sequence\":{sequence}}}");
    let mut whole = BytesMut::with_capacity(open.len() + member.len());
    whole.put_slice(open);
    whole.put_slice(member.as_bytes());
    Ok(whole.freeze())
}

/// Why a body of this size is not sent.
pub(crate) fn too_large(body: &Bytes, limit: usize) -> Option<String> {
    let bytes = body.len();
    (bytes > limit).then(|| format!("the body has {bytes} bytes, above callbacks.max_body_bytes = {limit}"))
}

/// The action that the event is of, if it is of one.
pub(crate) fn action(body: &[u8]) -> Option<ActionId> {
    #[derive(Deserialize)]
    struct Event {
        action: Action,
    }
    #[derive(Deserialize)]
    struct Action {
        id: ActionId,
    }
    serde_json::from_slice::<Event>(body).ok().map(|event| event.action.id)
}

/// How many members the object has.
fn members(body: &[u8]) -> Result<usize, BadBody> {
    struct Members;

    impl<'de> Visitor<'de> for Members {
        type Value = usize;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<usize, A::Error> {
            let mut members = 0;
            while let Some((name, IgnoredAny)) = map.next_entry::<String, IgnoredAny>()? {
                if name == "sequence" {
                    return Err(A::Error::custom(TWICE));
                }
                members += 1;
            }
            Ok(members)
        }
    }

    const TWICE: &str = "it has a sequence";
    let mut json = serde_json::Deserializer::from_slice(body);
    let members = serde::Deserializer::deserialize_map(&mut json, Members).and_then(|members| {
        json.end()?;
        Ok(members)
    });
    members.map_err(|error| {
        // Only its place is told: the message may show a value.
        let place = format!("line {} column {}", error.line(), error.column());
        if error.to_string().starts_with(TWICE) { BadBody::HasSequence } else { BadBody::NotAnObject(place) }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn spliced(body: &'static str) -> Result<String, BadBody> {
        let whole = with_sequence(&Bytes::from_static(body.as_bytes()), 42);
        whole.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[test]
    fn every_byte_stays_and_the_sequence_comes_last() {
        assert_eq!(
            spliced(r#"{"b": 1.0,"a":"é\u0000}"}"#).unwrap(),
            r#"{"b": 1.0,"a":"é\u0000}","sequence":42}"#
        );
        assert_eq!(spliced("{}").unwrap(), r#"{"sequence":42}"#);
        assert_eq!(spliced("{ \"a\":{} }\n").unwrap(), "{ \"a\":{} ,\"sequence\":42}");
        assert_eq!(spliced(r#"{"x":{"sequence":1}}"#).unwrap(), r#"{"x":{"sequence":1},"sequence":42}"#);
    }

    #[test]
    fn what_is_no_object_or_has_a_sequence_is_not_sent() {
        for body in ["", "[]", "null", "\"{}\"", "{", "{}{}", "{\"a\":1,}"] {
            assert_eq!(spliced(body).unwrap_err().tag(), "callback_body_malformed", "{body}");
        }
        assert_eq!(spliced(r#"{"sequence":1}"#), Err(BadBody::HasSequence));
        let fault = spliced(r#"{"a":"secret text}"#).unwrap_err();
        assert!(!fault.to_string().contains("secret"), "{fault}");
    }

    #[test]
    fn a_body_at_the_limit_is_sent_and_a_larger_one_names_the_limit() {
        let body = Bytes::from_static(b"0123456789");
        assert_eq!(too_large(&body, 10), None);
        let why = too_large(&body, 9).unwrap();
        assert_eq!(why, "the body has 10 bytes, above callbacks.max_body_bytes = 9");
    }
}
