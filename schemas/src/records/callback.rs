//! Holds the record of topic `callbacks`. What is done with one is decided by its readers.

use bytes::Bytes;

use super::parts::Command;
use crate::ids::{EndpointId, EventId, ItemKey, Millis, OrgId};

record! {
    /// An event that the platform is to be told of, or a command about its delivery.
    pub struct Callback: "callback" = 6 {
        /// The organisation, from the credential.
        pub org: OrgId,
        /// What is asked.
        pub command: Command,
        /// The event: the same over every attempt and replay.
        pub event_id: EventId,
        /// The type of the event, such as `action.automatic`.
        pub event_type: String,
        /// Where to send it; absent where none is configured.
        pub endpoint: Option<EndpointId>,
        /// What the event is about.
        pub subject: ItemKey,
        /// When it happened.
        pub occurred_at: Millis,
        /// The body, a JSON object without `sequence`; empty unless the command is `send`.
        pub body: Bytes,
    }
}
