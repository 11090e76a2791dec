//! Request that reports an item. The policy id is looked up in `tidegate-ingest`.

use bytes::Bytes;

use super::{
    Limits, Request, RequestRejection,
    items::{ContextItem, SubmittedItem},
    read::Reader,
};
use crate::json::{Kind, Node};
use crate::validation_error::Pointer;
use crate::{
    ids::{ItemKey, Millis},
    nearest::truncate_name,
};

/// Only accepted kind of reporter.
pub const REPORTER_KIND: &str = "user";

/// Report, as sent by a platform.
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
pub fn parse(body: &Bytes, limits: &Limits) -> Result<Request<ReportRequest>, RequestRejection> {
    Request::read(body, limits, |reader, root| {
        let at = &Pointer::Root;
        let max_entries = limits.context_items;
        let reporter = reader.read_object(root, "reporter", at).and_then(|node| reader.read_reporter(node));
        let reported_at = reader.read_instant(root, "reportedAt", at);
        let item = reader.required_member(root, "reportedItem", at);
        let item = item.and_then(|node| reader.read_item(node, &at.key("reportedItem")));
        let (policy_id, reason, csam) = match Reader::optional_member(root, "reportedForReason") {
            Some(node) => reader.read_reason(node),
            None => (None, None, false),
        };
        let mut context = |key| {
            reader.read_list(
                Reader::optional_member(root, key),
                key,
                max_entries,
                at,
                Reader::read_context_item,
            )
        };
        let thread = context("reportedItemThread");
        let additional = context("additionalItems");
        let key = "reportedItemsInThread";
        let reported_in_thread =
            reader.read_list(Reader::optional_member(root, key), key, max_entries, at, Reader::read_item_key);
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
    fn read_reporter(&mut self, node: Node<'_>) -> Option<ItemKey> {
        let at = &Pointer::Root.key("reporter");
        if let Some(kind) =
            self.required_member(node, "kind", at).and_then(|kind| self.read_text(kind, "kind", at))
            && kind != REPORTER_KIND
        {
            let detail =
                format!("The kind of a reporter must be `{REPORTER_KIND}`, not `{}`.", truncate_name(&kind));
            self.report_invalid(&at.key("kind"), detail);
        }
        self.read_item_key(node, at)
    }

    fn read_reason(&mut self, node: Node<'_>) -> (Option<String>, Option<String>, bool) {
        let at = &Pointer::Root.key("reportedForReason");
        if node.kind() != Kind::Object {
            self.report_invalid(
                at,
                format!("`reportedForReason` must be an object, not {}.", node.kind().name()),
            );
            return (None, None, false);
        }
        let policy_id = Self::optional_member(node, "policyId")
            // An empty id means that the user chose no policy.
            .filter(|value| value.str().is_none_or(|id| !id.is_empty()));
        let policy_id = policy_id.and_then(|value| self.read_id(value, "policyId", at));
        let reason = self.read_optional_text(node, "reason", at);
        let csam = match Self::optional_member(node, "csam").map(|value| value.kind()) {
            None => false,
            Some(Kind::Bool(csam)) => csam,
            Some(other) => {
                // A wrong guess would hide child abuse or send a harmless item to the child-safety team, so the value
                // is refused.
                self.report_invalid(
                    &at.key("csam"),
                    format!("`csam` must be `true` or `false`, not {}.", other.name()),
                );
                false
            }
        };
        (policy_id.map(std::borrow::Cow::into_owned), reason, csam)
    }
}
