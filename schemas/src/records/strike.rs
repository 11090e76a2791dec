//! Holds the record of topic `strikes`. What is done with one is decided by its readers.

use crate::ids::{ActionId, CauseId, ConfigVersion, ItemKey, Millis, OrgId};

record! {
    /// A strike against a user, or the reversal of one.
    pub struct Strike: "strike" = 5 {
        /// The organisation, from the credential.
        pub org: OrgId,
        /// The struck user.
        pub user: ItemKey,
        /// Cause of the strike: the same for every replay.
        pub cause: CauseId,
        /// The append time of the causing record.
        pub at: Millis,
        /// Weight of the strike.
        pub points: i64,
        /// The action that carries it.
        pub action: ActionId,
        /// The item that it was given for.
        pub item: ItemKey,
        /// The cause of the strike that this one takes back.
        pub reverses: Option<CauseId>,
        /// The configuration that the sender worked with; a reader loads at least this one first.
        pub config_version: ConfigVersion,
    }
}
