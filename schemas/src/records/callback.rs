//! Record of topic `callbacks`.

use bytes::Bytes;

use super::parts::Command;
use crate::ids::{EndpointId, EventId, ItemKey, Millis, OrgId};

record! {
    /// Event for the platform, or a command on its delivery.
    pub struct Callback: "callback" = 6 {
        /// Organisation of the credential.
        pub org: OrgId,
        /// Command on the delivery.
        pub command: Command,
        /// Id of the event. All attempts and replays have the same id.
        pub event_id: EventId,
        /// Type of the event, such as `action.automatic`.
        pub event_type: String,
        /// Endpoint of the event; absent if none is configured.
        pub endpoint: Option<EndpointId>,
        /// Subject of the event.
        pub subject: ItemKey,
        /// Time of the event.
        pub occurred_at: Millis,
        /// Body, a JSON object without `sequence`; empty unless the command is `send`.
        pub body: Bytes,
    }
}
