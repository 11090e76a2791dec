//! Holds the record of topic `callbacks`. What is done with one is decided by its readers.

use bytes::Bytes;

use super::parts::Command;
use crate::ids::{EndpointId, EventId, ItemKey, Millis, OrgId};

record! {
    /// An event that the platform is to be told of, or a command about its delivery.
    pub struct Callback: "callback" = 6 {
        /// The organisation, from the credential.
        pub org: OrgId,
        /// Command on the delivery.
        pub command: Command,
        /// The event: the same over every attempt and replay.
        pub event_id: EventId,
        /// The type of the event, such as `action.automatic`.
        pub event_type: String,
        /// Endpoint to send it to; absent where none is configured.
        pub endpoint: Option<EndpointId>,
        /// Subject of the event.
        pub subject: ItemKey,
        /// Time at which it happened.
        pub occurred_at: Millis,
        /// The body, a JSON object without `sequence`; empty unless the command is `send`.
        pub body: Bytes,
    }
}
