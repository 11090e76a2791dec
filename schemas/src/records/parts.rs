//! Holds the shapes that several records share. It has no schema of its own: each `.avsc` spells them out.

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
        /// The whole item.
        Original = "original",
        /// Some fields of it. A partial never replaces an original.
        Partial = "partial",
    }
}

symbols! {
    /// Verdict of a moderator.
    pub enum Verdict {
        /// No action is needed.
        Ignore = "ignore",
        /// The actions are to be taken.
        Act = "act",
        /// The appeal is right.
        Accept = "accept",
        /// The appeal is wrong.
        Reject = "reject",
    }
}

symbols! {
    /// The kind of job that was decided.
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
        /// Deliver it again, whatever its state.
        Resend = "resend",
        /// Make no further attempt.
        Cancel = "cancel",
        /// Keep it, listed, until it is resent.
        Hold = "hold",
    }
}

record! {
    /// Coordinates of the first `items` record of a submission in the log: the order of an item's versions.
    #[derive(Copy, PartialOrd, Ord)]
    pub struct Coordinates {
        /// Time at which the log took the record.
        pub append_ms: Millis,
        /// The offset of the record in its partition.
        pub offset: i64,
        /// The place of the item in the record.
        pub position: i32,
    }
}

record! {
    /// One submission of one item.
    pub struct ItemEntry {
        /// The submission: a later edit of the item is another one.
        pub submission_id: SubmissionId,
        /// The item type.
        pub type_id: TypeId,
        /// The platform's id of the item.
        pub id: ItemId,
        /// The version of the item type, if the platform named one.
        pub type_version: Option<String>,
        /// Completeness of the item.
        pub variant: Variant,
        /// The item's `data`, a JSON object: the bytes that the client sent.
        pub data: Bytes,
        /// Coordinates of the first record of this submission; absent in that record itself.
        pub origin: Option<Coordinates>,
        /// Came with an idempotency key, so that a plan may exist already.
        pub keyed: bool,
    }
}

record! {
    /// An item sent along for context. It is kept with its report or appeal, and not a submission.
    pub struct ContextItem {
        /// The item type.
        pub type_id: TypeId,
        /// The platform's id of the item.
        pub id: ItemId,
        /// The version of the item type, if the platform named one.
        pub type_version: Option<String>,
        /// Completeness of the item.
        pub variant: Variant,
        /// The item's `data`, a JSON object: the bytes that the client sent.
        pub data: Bytes,
        /// Why it does not fit its type. It is kept and marked.
        pub fault: Option<String>,
        /// Members beside `data` that have not the form of an item's, as they came: a JSON object.
        pub as_sent: Option<Bytes>,
    }
}

record! {
    /// An id that the platform named. Unknown ones are kept and marked.
    pub struct Mention {
        /// The id as it was sent.
        pub id: String,
        /// True if the configuration had it.
        pub known: bool,
    }
}

record! {
    /// A header of a record in the log.
    pub struct Header {
        /// Its name.
        pub name: String,
        /// Its value.
        pub value: Bytes,
    }
}

impl ItemEntry {
    pub fn key(&self) -> ItemKey {
        ItemKey { type_id: self.type_id.clone(), id: self.id.clone() }
    }
}
