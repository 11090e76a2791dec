//! Holds the readers of requests and the published schemas to one verdict.

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

/// Panics unless the schema takes what the reader takes, and refuses what it refuses.
pub(crate) fn check(kind: Body, body: &Value) {
    let refused = kind.read(&Bytes::from(body.to_string()));
    hold(kind, body, refused);
}

/// The same of a request that was read already. What is above a limit, and what is no JSON, no schema can say.
pub(crate) fn hold_parsed<T>(
    kind: Body,
    body: &Bytes,
    read: Result<Request<T>, RequestRejection>,
) -> Result<Request<T>, RequestRejection> {
    if let Ok(value) = serde_json::from_slice::<Value>(body) {
        hold(kind, &value, read.as_ref().err().and_then(|_| kind.read(body)));
    }
    read
}

fn hold(kind: Body, body: &Value, refused: Option<RequestRejection>) {
    let judged = contract().check(kind.schema(), body);
    match refused {
        None => {
            judged
                .unwrap_or_else(|error| panic!("{kind:?} is taken, but not by its schema: {error}\n{body}"));
        }
        Some(RequestRejection::Text(_)) => {}
        Some(refused) => {
            let faults = refused.into_vec();
            let beyond = |detail: &str| detail.contains("at most");
            if !faults.iter().all(|fault| beyond(&fault.detail)) {
                assert!(judged.is_err(), "{kind:?} is refused, but not by its schema: {faults:?}\n{body}");
            }
        }
    }
}
