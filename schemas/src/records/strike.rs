//! Record of topic `strikes`.

use crate::ids::{ActionId, CauseId, ConfigVersion, ItemKey, Millis, OrgId};

record! {
    /// Strike against a user, or the reversal of a strike.
    pub struct Strike: "strike" = 5 {
        /// Organisation of the credential.
        pub org: OrgId,
        /// User of the strike.
        pub user: ItemKey,
        /// Cause of the strike; the same in all replays.
        pub cause: CauseId,
        /// Append time of the record that caused the strike.
        pub at: Millis,
        /// Weight of the strike.
        pub points: i64,
        /// Action with the strike.
        pub action: ActionId,
        /// Item of the action.
        pub item: ItemKey,
        /// Cause of the reversed strike; absent for a strike.
        pub reverses: Option<CauseId>,
        /// Configuration version of the sender. Readers load at least this version.
        pub config_version: ConfigVersion,
    }
}
