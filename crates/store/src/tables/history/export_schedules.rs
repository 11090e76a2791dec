//! Progress of scheduled exports. `tidegate-exporter` moves it.

use tidegate_schemas::ids::{Millis, OrgId};

use crate::table;

table! {
    /// Progress of one schedule, with the lease of the process that runs it.
    Versioned ExportSchedule in "export_schedules" ttl None;
    partition { org: OrgId, name: String }
    values {
        /// First day, since 1970, that is not exported yet.
        next_day: i64,
        /// Process that runs the schedule.
        lease_owner: Option<String>,
        /// End of the lease, unless it is renewed.
        lease_until: Option<Millis>,
        /// Time at which the last day was exported.
        last_success_at: Option<Millis>,
        /// Error of the last attempt; absent after a success.
        last_error: Option<String>,
        /// Rows of all exported days.
        rows: i64,
        updated_at: Millis,
    }
}
