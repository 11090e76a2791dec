//! The request that reports an item.
//!
//! It does not decide whether a policy that it names exists.

use bytes::Bytes;

use super::{
    Limits, Refused, Request,
    items::{ContextItem, SubmittedItem},
    read::Reader,
};
use crate::json::{Kind, Node};
use crate::validation_error::Pointer;
use crate::{
    ids::{ItemKey, Millis},
    nearest::shown,
};

/// The only kind of reporter that is known.
pub const REPORTER_KIND: &str = "user";

/// A report as a platform sends it.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportRequest {
    pub reporter: ItemKey,
    pub reported_at: Millis,
    pub item: SubmittedItem,
    pub policy_id: Option<String>,
    pub reason: Option<String>,
    pub csam: bool,
    pub thread: Vec<ContextItem>,
    pub reported_in_thread: Vec<ItemKey>,
    pub additional: Vec<ContextItem>,
}

/// Reads a report.
pub fn parse(body: &Bytes, limits: &Limits) -> Result<Request<ReportRequest>, Refused> {
    Request::read(body, limits, |reader, root| {
        let at = &Pointer::Root;
        let most = limits.context_items;
        let reporter = reader.object(root, "reporter", at).and_then(|node| reader.reporter(node));
        let reported_at = reader.instant(root, "reportedAt", at);
        let item = reader.required(root, "reportedItem", at);
        let item = item.and_then(|node| reader.item(node, &at.key("reportedItem")));
        let (policy_id, reason, csam) = match Reader::optional(root, "reportedForReason") {
            Some(node) => reader.reason(node),
            None => (None, None, false),
        };
        let mut context = |key| reader.list(Reader::optional(root, key), key, most, at, Reader::context_item);
        let thread = context("reportedItemThread");
        let additional = context("additionalItems");
        let key = "reportedItemsInThread";
        let reported_in_thread = reader.list(Reader::optional(root, key), key, most, at, Reader::item_key);
        Some(ReportRequest {
            reporter: reporter?,
            reported_at: reported_at?,
            item: item?,
            policy_id,
            reason,
            csam,
            thread,
            reported_in_thread,
            additional,
        })
    })
}

impl Reader<'_> {
    fn reporter(&mut self, node: Node<'_>) -> Option<ItemKey> {
        let at = &Pointer::Root.key("reporter");
        if let Some(kind) = self.required(node, "kind", at).and_then(|kind| self.text(kind, "kind", at))
            && kind != REPORTER_KIND
        {
            let detail =
                format!("Only a reporter of the kind `{REPORTER_KIND}` is known, not `{}`.", shown(&kind));
            self.refuse(&at.key("kind"), detail);
        }
        self.item_key(node, at)
    }

    fn reason(&mut self, node: Node<'_>) -> (Option<String>, Option<String>, bool) {
        let at = &Pointer::Root.key("reportedForReason");
        if node.kind() != Kind::Object {
            self.refuse(at, format!("`reportedForReason` must be an object, not {}.", node.kind().name()));
            return (None, None, false);
        }
        let policy_id =
            Self::optional(node, "policyId").filter(|value| value.str().is_none_or(|id| !id.is_empty()));
        let policy_id = policy_id.and_then(|value| self.id(value, "policyId", at));
        let reason = self.optional_text(node, "reason", at);
        let csam = match Self::optional(node, "csam").map(|value| value.kind()) {
            None => false,
            Some(Kind::Bool(csam)) => csam,
            Some(other) => {
                // A guess either way would be wrong for somebody.
                self.refuse(
                    &at.key("csam"),
                    format!("`csam` must be `true` or `false`, not {}.", other.name()),
                );
                false
            }
        };
        (policy_id.map(std::borrow::Cow::into_owned), reason, csam)
    }
}
