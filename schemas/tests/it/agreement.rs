//! Checks that the readers of requests and the published schemas accept the same bodies.

use bytes::Bytes;
use serde_json::Value;
use tidegate_schemas::wire::{
    Limits, Request, RequestRejection, actions, appeals, content, items, partial_items, reports,
};
use tidegate_test_support::openapi::contract;

/// A kind of body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Items,
    Report,
    Appeal,
    Content,
    Actions,
    PartialItems,
}

impl Body {
    pub(crate) fn of(path: &str) -> Option<Self> {
        match path.trim_end_matches('/') {
            "/api/v1/items/async" => Some(Self::Items),
            "/api/v1/report" => Some(Self::Report),
            "/api/v1/report/appeal" => Some(Self::Appeal),
            "/api/v1/content" => Some(Self::Content),
            "/api/v1/actions" => Some(Self::Actions),
            "partial items" => Some(Self::PartialItems),
            _ => None,
        }
    }

    fn schema(self) -> &'static str {
        match self {
            Self::Items => "ItemsRequest",
            Self::Report => "Report",
            Self::Appeal => "Appeal",
            Self::Content => "ContentRequest",
            Self::Actions => "ActionsRequest",
            Self::PartialItems => "PartialItems",
        }
    }

    fn read(self, body: &Bytes) -> Option<RequestRejection> {
        let limits = Limits::default();
        match self {
            Self::Items => items::parse(body, &limits).err(),
            Self::Report => reports::parse(body, &limits).err(),
            Self::Appeal => appeals::parse(body, &limits).err(),
            Self::Content => content::parse(body, &limits).err(),
            Self::Actions => actions::parse(body, &limits).err(),
            Self::PartialItems => partial_items::parse(body, &limits).err(),
        }
    }
}

pub(crate) fn is_refused(kind: Body, body: &Value) -> bool {
    kind.read(&Bytes::from(body.to_string())).is_some()
}

/// Panics unless the reader and the schema both accept the body or both refuse it.
pub(crate) fn check(kind: Body, body: &Value) {
    let rejection = kind.read(&Bytes::from(body.to_string()));
    compare_with_schema(kind, body, rejection);
}

/// Does the same for a request that was read already. Schemas cannot express limits or malformed JSON.
pub(crate) fn check_parsed<T>(
    kind: Body,
    body: &Bytes,
    read: Result<Request<T>, RequestRejection>,
) -> Result<Request<T>, RequestRejection> {
    if let Ok(value) = serde_json::from_slice::<Value>(body) {
        compare_with_schema(kind, &value, read.as_ref().err().and_then(|_| kind.read(body)));
    }
    read
}

fn compare_with_schema(kind: Body, body: &Value, rejection: Option<RequestRejection>) {
    let schema_result = contract().check(kind.schema(), body);
    match rejection {
        None => {
            schema_result.unwrap_or_else(|error| {
                panic!("the reader accepts {kind:?}, but its schema does not: {error}\n{body}")
            });
        }
        Some(RequestRejection::Text(_)) => {}
        Some(rejection) => {
            let faults = rejection.into_vec();
            let beyond = |detail: &str| detail.contains("at most");
            if !faults.iter().all(|fault| beyond(&fault.detail)) {
                assert!(
                    schema_result.is_err(),
                    "the reader refuses {kind:?}, but its schema does not: {faults:?}\n{body}"
                );
            }
        }
    }
}
