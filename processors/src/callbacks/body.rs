//! Body of a callback: the event as it was planned, with its `sequence`.
//!
//! The sequence is spliced into the bytes, since a body that is serialized again after parsing may differ.

use bytes::{BufMut as _, Bytes, BytesMut};
use serde::{
    Deserialize,
    de::{Error as _, IgnoredAny, MapAccess, Visitor},
};
use tidegate_schemas::ids::ActionId;

/// Reason why a record's body cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("the body is not a JSON object: {0}")]
    NotAnObject(String),
    #[error("the body has a `sequence` already")]
    HasSequence,
}

impl BodyError {
    pub(crate) const fn tag(&self) -> &'static str {
        match self {
            Self::NotAnObject(_) => "callback_body_malformed",
            Self::HasSequence => "callback_body_sequence",
        }
    }
}

/// Adds `sequence` as the last member of the body.
pub(crate) fn with_sequence(body: &Bytes, sequence: i64) -> Result<Bytes, BodyError> {
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

/// Returns why the body is not sent, if it is above the limit.
pub(crate) fn too_large(body: &Bytes, limit: usize) -> Option<String> {
    let bytes = body.len();
    (bytes > limit).then(|| format!("the body has {bytes} bytes, above callbacks.max_body_bytes = {limit}"))
}

/// True if the event says which decision it is about.
pub(crate) fn is_of_decision(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Event {
        #[serde(rename = "decision")]
        _decision: IgnoredAny,
    }
    serde_json::from_slice::<Event>(body).is_ok()
}

/// Returns the action of the event, if it has one.
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

/// Counts the members of the object.
fn members(body: &[u8]) -> Result<usize, BodyError> {
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
        // Only the position, since the message may show a value of the payload.
        let position = format!("line {} column {}", error.line(), error.column());
        if error.to_string().starts_with(TWICE) {
            BodyError::HasSequence
        } else {
            BodyError::NotAnObject(position)
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn spliced(body: &'static str) -> Result<String, BodyError> {
        let whole = with_sequence(&Bytes::from_static(body.as_bytes()), 42);
        whole.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[test]
    fn sequence_is_added_and_no_other_byte_changes() {
        assert_eq!(
            spliced(r#"{"b": 1.0,"a":"é\u0000}"}"#).unwrap(),
            r#"{"b": 1.0,"a":"é\u0000}","sequence":42}"#
        );
        assert_eq!(spliced("{}").unwrap(), r#"{"sequence":42}"#);
        assert_eq!(spliced("{ \"a\":{} }\n").unwrap(), "{ \"a\":{} ,\"sequence\":42}");
        assert_eq!(spliced(r#"{"x":{"sequence":1}}"#).unwrap(), r#"{"x":{"sequence":1},"sequence":42}"#);
    }

    #[test]
    fn body_without_object_or_with_sequence_is_rejected() {
        for body in ["", "[]", "null", "\"{}\"", "{", "{}{}", "{\"a\":1,}"] {
            assert_eq!(spliced(body).unwrap_err().tag(), "callback_body_malformed", "{body}");
        }
        assert_eq!(spliced(r#"{"sequence":1}"#), Err(BodyError::HasSequence));
        let error = spliced(r#"{"a":"secret text}"#).unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[test]
    fn body_above_the_limit_is_rejected_naming_the_limit() {
        let body = Bytes::from_static(b"0123456789");
        assert_eq!(too_large(&body, 10), None);
        let why = too_large(&body, 9).unwrap();
        assert_eq!(why, "the body has 10 bytes, above callbacks.max_body_bytes = 9");
    }
}
