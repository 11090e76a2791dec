//! Builds the body of a callback: the planned event with its `sequence`.
//!
//! The sequence is spliced into the bytes. Parsing and serializing the body again could change numbers and escapes.

use bytes::{BufMut as _, Bytes, BytesMut};
use serde::{
    Deserialize,
    de::{Error as _, IgnoredAny, MapAccess, Visitor},
};
use tidegate_schemas::ids::ActionId;

/// Defect of a record's body that prevents a callback.
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
    let member_count = count_members(body)?;
    let object = body.trim_ascii_end();
    let open_object = &object[..object.len() - 1];
    let comma = if member_count == 0 { "" } else { "," };
    let member = format!("{comma}\"sequence\":{sequence}}}");
    let mut complete_body = BytesMut::with_capacity(open_object.len() + member.len());
    complete_body.put_slice(open_object);
    complete_body.put_slice(member.as_bytes());
    Ok(complete_body.freeze())
}

/// Describes the excess of a body above `limit` bytes. Returns `None` for a body within the limit.
pub(crate) fn describe_oversize(body: &Bytes, limit: usize) -> Option<String> {
    let bytes = body.len();
    (bytes > limit).then(|| format!("the body has {bytes} bytes, above callbacks.max_body_bytes = {limit}"))
}

/// True if the event names its decision.
pub(crate) fn has_decision(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Event {
        #[serde(rename = "decision")]
        _decision: IgnoredAny,
    }
    serde_json::from_slice::<Event>(body).is_ok()
}

/// Reads the id of the event's action.
pub(crate) fn parse_action_id(body: &[u8]) -> Option<ActionId> {
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

/// Counts the members of the object. Fails if one of them is `sequence`.
fn count_members(body: &[u8]) -> Result<usize, BodyError> {
    struct MemberCounter;

    impl<'de> Visitor<'de> for MemberCounter {
        type Value = usize;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<usize, A::Error> {
            let mut count = 0;
            while let Some((name, IgnoredAny)) = map.next_entry::<String, IgnoredAny>()? {
                if name == "sequence" {
                    return Err(A::Error::custom(DUPLICATE_SEQUENCE));
                }
                count += 1;
            }
            Ok(count)
        }
    }

    const DUPLICATE_SEQUENCE: &str = "it has a sequence";
    let mut json = serde_json::Deserializer::from_slice(body);
    let member_count = serde::Deserializer::deserialize_map(&mut json, MemberCounter).and_then(|count| {
        json.end()?;
        Ok(count)
    });
    member_count.map_err(|error| {
        // The detail is stored and logged. It names only the position, because serde's message can quote a value of the
        // payload.
        let position = format!("line {} column {}", error.line(), error.column());
        // serde_json has no custom error kinds, so the error is recognised by its text.
        if error.to_string().starts_with(DUPLICATE_SEQUENCE) {
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

    fn splice_sequence(body: &'static str) -> Result<String, BodyError> {
        let body_with_sequence = with_sequence(&Bytes::from_static(body.as_bytes()), 42);
        body_with_sequence.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[test]
    fn sequence_is_added_and_no_other_byte_changes() {
        assert_eq!(
            splice_sequence(r#"{"b": 1.0,"a":"é\u0000}"}"#).unwrap(),
            r#"{"b": 1.0,"a":"é\u0000}","sequence":42}"#
        );
        assert_eq!(splice_sequence("{}").unwrap(), r#"{"sequence":42}"#);
        assert_eq!(splice_sequence("{ \"a\":{} }\n").unwrap(), "{ \"a\":{} ,\"sequence\":42}");
        assert_eq!(
            splice_sequence(r#"{"x":{"sequence":1}}"#).unwrap(),
            r#"{"x":{"sequence":1},"sequence":42}"#
        );
    }

    #[test]
    fn body_without_object_or_with_sequence_is_rejected() {
        for body in ["", "[]", "null", "\"{}\"", "{", "{}{}", "{\"a\":1,}"] {
            assert_eq!(splice_sequence(body).unwrap_err().tag(), "callback_body_malformed", "{body}");
        }
        assert_eq!(splice_sequence(r#"{"sequence":1}"#), Err(BodyError::HasSequence));
        let error = splice_sequence(r#"{"a":"secret text}"#).unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[test]
    fn body_above_the_limit_is_rejected_naming_the_limit() {
        let body = Bytes::from_static(b"0123456789");
        assert_eq!(describe_oversize(&body, 10), None);
        let message = describe_oversize(&body, 9).unwrap();
        assert_eq!(message, "the body has 10 bytes, above callbacks.max_body_bytes = 9");
    }
}
