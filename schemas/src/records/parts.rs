//! Structs and enums that several records share. Each `.avsc` repeats their definitions.

use bytes::Bytes;

use crate::ids::{ItemId, ItemKey, Millis, SubmissionId, TypeId};

symbols! {
    /// Source of an item.
    pub enum Source {
        /// Sent by the platform.
        Api = "api",
        /// The reported item of a report.
        Report = "report",
        /// The actioned item of an appeal.
        Appeal = "appeal",
        /// Fetched from the platform's partial-items endpoint.
        PartialItems = "partial_items",
        /// A stored item evaluated again, with named rules only.
        Retroact = "retroact",
    }
}

symbols! {
    /// Completeness of an item: all required fields of its type, or some of them.
    pub enum Variant {
        /// Complete item.
        Original = "original",
        /// Some fields of the item. A partial item never replaces an original one.
        Partial = "partial",
    }
}

symbols! {
    /// Verdict of a moderator.
    pub enum Verdict {
        /// No action is needed.
        Ignore = "ignore",
        /// The actions are taken.
        Act = "act",
        /// The appeal is granted.
        Accept = "accept",
        /// The appeal is denied.
        Reject = "reject",
    }
}

symbols! {
    /// Class of a decided job.
    pub enum JobClass {
        /// A review of an item.
        Review = "review",
        /// A review by the child-safety team.
        ChildSafety = "child_safety",
        /// An appeal against an action.
        Appeal = "appeal",
    }
}

symbols! {
    /// Command on a delivery.
    pub enum Command {
        /// Deliver the event, once.
        Send = "send",
        /// Deliver the event again, in any state.
        Resend = "resend",
        /// Make no further attempt.
        Cancel = "cancel",
        /// Keep the event in the list of held deliveries until it is resent.
        Hold = "hold",
    }
}

record! {
    /// Position of a submission's first `items` record in the log. Versions of an item are ordered by it.
    #[derive(Copy, PartialOrd, Ord)]
    pub struct Coordinates {
        /// Append time of the record.
        pub append_ms: Millis,
        /// Offset of the record in its partition.
        pub offset: i64,
        /// Index of the item in the record.
        pub position: i32,
    }
}

record! {
    /// Submission of an item.
    pub struct ItemEntry {
        /// Id of the submission. A later edit of the item is another submission.
        pub submission_id: SubmissionId,
        /// Item type.
        pub type_id: TypeId,
        /// Id of the item, assigned by the platform.
        pub id: ItemId,
        /// Version of the item type, if stated by the platform.
        pub type_version: Option<String>,
        /// Completeness of the item.
        pub variant: Variant,
        /// `data` of the item, a JSON object, as sent by the client.
        pub data: Bytes,
        /// Position of the first record of this submission; absent in that record itself.
        pub origin: Option<Coordinates>,
        /// True if the request had an idempotency key, so that a stored plan can exist.
        pub keyed: bool,
    }
}

record! {
    /// Context item of a report or an appeal. It is stored with the report or appeal and is no submission.
    pub struct ContextItem {
        /// Item type.
        pub type_id: TypeId,
        /// Id of the item, assigned by the platform.
        pub id: ItemId,
        /// Version of the item type, if stated by the platform.
        pub type_version: Option<String>,
        /// Completeness of the item.
        pub variant: Variant,
        /// `data` of the item, a JSON object, as sent by the client.
        pub data: Bytes,
        /// Validation errors. An invalid context item is kept and marked.
        pub fault: Option<String>,
        /// JSON object of the invalid members other than `data`, as sent.
        pub as_sent: Option<Bytes>,
    }
}

record! {
    /// Id stated by the platform. Unknown ids are kept and marked.
    pub struct Mention {
        /// Id as sent.
        pub id: String,
        /// True if the configuration contains the id.
        pub known: bool,
    }
}

record! {
    /// Header of a record in the log.
    pub struct Header {
        /// Name of the header.
        pub name: String,
        /// Value of the header.
        pub value: Bytes,
    }
}

impl ItemEntry {
    pub fn key(&self) -> ItemKey {
        // Cheap: both ids are reference-counted.
        ItemKey { type_id: self.type_id.clone(), id: self.id.clone() }
    }
}
