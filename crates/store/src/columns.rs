//! Column types for the ids of `tidegate_schemas`.

use std::borrow::Cow;

use tidegate_schemas::ids::{
    ActionId, ApiKeyId, AppealId, BankId, CauseId, ConfigVersion, DecisionId, EndpointId, EventId, ItemId,
    ItemKey, JobId, OrgId, PolicyId, QueueId, ReportId, RuleId, SignalId, SubmissionId, TypeId, WindowId,
};

use crate::{Cell, Column, KeyColumn, Kind, Mismatch, bigint_column, text_column, uuid_column};

text_column! { OrgId, TypeId, ItemId, PolicyId, ActionId, RuleId, EndpointId, QueueId, AppealId, BankId, SignalId, WindowId }
uuid_column! { SubmissionId, EventId, CauseId, JobId, ReportId, DecisionId, ApiKeyId }
bigint_column! { ConfigVersion }

/// One text column, `typeId/itemId`.
impl Column for ItemKey {
    const KIND: Kind = Kind::Text;

    fn cell(&self) -> Cell<'_> {
        let (type_id, id) = (self.type_id.as_str(), self.id.as_str());
        let mut text = String::with_capacity(type_id.len() + 1 + id.len());
        text.push_str(type_id);
        text.push('/');
        text.push_str(id);
        Cell::Text(Cow::Owned(text))
    }

    fn from_cell(cell: Cell<'_>) -> Result<Self, Mismatch> {
        match cell {
            Cell::Text(text) => Self::parse(&text).ok_or(Mismatch("no typeId/itemId")),
            Cell::Null => Err(Mismatch::NULL),
            _ => Err(Mismatch::KIND),
        }
    }
}

impl KeyColumn for ItemKey {}
