//! Raises the limit of open files at the start, and divides it between data and connections.
//!
//! The embedded database is poisoned if it cannot open a file, so connections only get the files beyond a reserve.

use tidegate_web::HttpServer;

use crate::settings::Settings;

/// Maximum number of connections of the operations port.
pub(crate) const OPERATIONS_CONNECTIONS: usize = 64;

/// Maximum number of tables of the embedded database that are kept open.
const MAX_OPEN_TABLES: usize = 900;

/// Minimum number of connections of the API and the admin API together; a lower limit refuses the start. A proxy, a console and a few
/// platforms use this many at once. With fewer, valid requests are refused while the service reports that it is ready. A limit of
/// 256 files, the lowest default of common systems, leaves exactly this number.
const MIN_CONNECTIONS: usize = 64;

/// Limit that is assumed where the system has none.
const UNLIMITED: u64 = 1 << 20;

/// Raises the soft limit to the hard one, and returns it.
#[cfg(unix)]
pub(crate) fn raise_limit() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let previous_limit = getrlimit(Resource::Nofile);
    if previous_limit.current < previous_limit.maximum || previous_limit.maximum.is_none() {
        let raised_limit =
            Rlimit { current: previous_limit.maximum.or(Some(UNLIMITED)), maximum: previous_limit.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised_limit) {
            tracing::warn!(%error, found = ?previous_limit, "the limit of open files cannot be raised");
        }
    }
    current_limit()
}

/// Returns the current limit of open files.
#[cfg(unix)]
fn current_limit() -> usize {
    use rustix::process::{Resource, getrlimit};

    // Some systems report an enormous number in place of "unlimited".
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(UNLIMITED).min(UNLIMITED);
    usize::try_from(limit).unwrap_or(usize::MAX)
}

#[cfg(not(unix))]
pub(crate) fn raise_limit() -> usize {
    current_limit()
}

#[cfg(not(unix))]
fn current_limit() -> usize {
    usize::try_from(UNLIMITED).unwrap_or(usize::MAX)
}

/// Returns the number of tables that the embedded database may keep open under the current limit.
pub(crate) fn max_open_tables() -> usize {
    max_open_tables_under(current_limit())
}

/// At most a quarter of the limit: journals, compactions and outgoing calls need the rest of the reserve.
fn max_open_tables_under(limit: usize) -> usize {
    MAX_OPEN_TABLES.min(limit / 4)
}

/// Maximum number of connections of each server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionLimits {
    pub(crate) api: usize,
    pub(crate) admin: usize,
}

impl ConnectionLimits {
    /// Divides the files beyond the reserve, which takes at most half of the limit. If they are scarce, the admin API gets a quarter
    /// of them.
    fn divide(limit: usize, reserve: usize, configured: Self) -> Self {
        // At least one connection for each of the two servers.
        let available = limit.saturating_sub(capped_reserve(limit, reserve) + OPERATIONS_CONNECTIONS).max(2);
        if configured.api.saturating_add(configured.admin) <= available {
            return configured;
        }
        let admin = configured.admin.min((available / 4).max(1));
        let api = configured.api.min(available - admin);
        // Connections that the API does not need are left to the admin API.
        Self { api, admin: configured.admin.min(available - api) }
    }
}

/// Returns the number of files that are reserved for data and outgoing calls.
fn capped_reserve(limit: usize, reserved: usize) -> usize {
    reserved.min(limit.div_ceil(2))
}

/// Refuses a limit that leaves too few connections. Called before any data is opened: a database that runs out of files while it is
/// created would fail with a message about one file.
pub(crate) fn check(settings: &Settings, limit: usize) -> anyhow::Result<()> {
    let reserved = settings.runtime.reserved_files;
    let configured_connections =
        settings.api.http.connections.saturating_add(settings.console.http.connections);
    let min_connections = MIN_CONNECTIONS.min(configured_connections);
    if limit.saturating_sub(capped_reserve(limit, reserved) + OPERATIONS_CONNECTIONS) >= min_connections {
        return Ok(());
    }
    let connection_files = min_connections + OPERATIONS_CONNECTIONS;
    // The reserve takes at most half of the limit, so twice the files of connections suffices for any reserve.
    let needed_files = (connection_files * 2).min(reserved.saturating_add(connection_files));
    anyhow::bail!(
        "the process may open {limit} files, which is too few: it needs {needed_files}, for {min_connections} connections of clients, \
         {OPERATIONS_CONNECTIONS} of the operations port, and data; raise the limit (`ulimit -n {needed_files}` in a shell, \
         `LimitNOFILE={needed_files}` in a systemd unit, `--ulimit nofile={needed_files}` of a container) or more"
    )
}

/// Creates the servers of the API and the admin API, with connections that fit into the limit of open files.
pub(crate) fn create_servers(settings: &Settings, limit: usize) -> anyhow::Result<(HttpServer, HttpServer)> {
    let (mut api, mut admin) = (settings.api.http.clone(), settings.console.http.clone());
    let reserve = settings.runtime.reserved_files;
    let configured = ConnectionLimits { api: api.connections, admin: admin.connections };
    let granted = ConnectionLimits::divide(limit, reserve, configured);
    if let Some(lowered) = describe_lowered(configured, granted) {
        tracing::warn!(
            "the process may open {limit} files, of which {} are kept for data and calls (runtime.reserved_files): \
             {lowered}; raise the hard limit (`ulimit -Hn`, LimitNOFILE) for more",
            capped_reserve(limit, reserve),
        );
    }
    (api.connections, admin.connections) = (granted.api, granted.admin);
    Ok((HttpServer::new("api", api)?, HttpServer::new("admin", admin)?))
}

/// Describes the settings that are lowered; `None` if all connections fit.
fn describe_lowered(configured: ConnectionLimits, granted: ConnectionLimits) -> Option<String> {
    let settings = [
        ("api.http.connections", configured.api, granted.api),
        ("console.http.connections", configured.admin, granted.admin),
    ];
    let lowered = settings.iter().filter(|(_, configured, granted)| granted < configured);
    let lowered: Vec<_> = lowered
        .map(|(name, configured, granted)| format!("{name} = {configured} is lowered to {granted}"))
        .collect();
    (!lowered.is_empty()).then(|| lowered.join(", "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn divide(limit: usize, api: usize, admin: usize) -> (usize, usize) {
        let ConnectionLimits { api, admin } =
            ConnectionLimits::divide(limit, 2_048, ConnectionLimits { api, admin });
        (api, admin)
    }

    #[test]
    fn connections_get_what_the_reserve_leaves() {
        assert_eq!(divide(1 << 20, 10_000, 10_000), (10_000, 10_000));
        assert_eq!(divide(20_000, 10_000, 10_000), (10_000, 7_888));
        assert_eq!(divide(4_096, 10_000, 10_000), (1_488, 496));
        assert_eq!(divide(4_096, 10_000, 10), (1_974, 10));
        // Under a small limit the reserve is half of it.
        assert_eq!(divide(1_024, 10_000, 10_000), (336, 112));
        assert_eq!(divide(16, 10, 10), (1, 1));
    }

    #[test]
    fn data_and_connections_fit_into_every_limit() {
        for limit in [256, 1_024, 4_096, 20_000, 1 << 20] {
            let (api, admin) = divide(limit, usize::MAX, usize::MAX);
            assert!(
                api + admin + OPERATIONS_CONNECTIONS + max_open_tables_under(limit) * 2 <= limit,
                "{limit}"
            );
        }
    }

    #[test]
    fn only_lowered_settings_are_named() {
        let limits = |api, admin| ConnectionLimits { api, admin };
        assert_eq!(describe_lowered(limits(10, 10), limits(10, 10)), None);
        let lowered = describe_lowered(limits(10_000, 10_000), limits(10_000, 7_888));
        assert_eq!(lowered.as_deref(), Some("console.http.connections = 10000 is lowered to 7888"));
        let lowered = describe_lowered(limits(10, 20), limits(5, 6)).unwrap_or_default();
        assert_eq!(
            lowered,
            "api.http.connections = 10 is lowered to 5, console.http.connections = 20 is lowered to 6"
        );
    }

    #[test]
    fn limit_with_too_few_connections_is_refused() {
        let mut settings = Settings::default();
        let needed = |settings: &Settings| (0..).find(|limit| check(settings, *limit).is_ok());
        assert_eq!(needed(&settings), Some(256));
        let refused = check(&settings, 255).map_err(|error| error.to_string()).unwrap_err();
        for part in ["may open 255 files", "needs 256", "ulimit -n 256", "LimitNOFILE=256"] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
        assert_eq!(divide(256, 10_000, 10_000), (48, 16));
        // Fewer configured connections need fewer files.
        (settings.api.http.connections, settings.console.http.connections) = (4, 4);
        assert_eq!(needed(&settings), Some(144));
        settings.runtime.reserved_files = 50;
        assert_eq!(needed(&settings), Some(122));
        assert!(check(&settings, 121).is_err_and(|error| error.to_string().contains("needs 122")));
    }

    #[cfg(unix)]
    #[test]
    fn the_limit_is_raised_to_the_hard_one() {
        let raised = raise_limit();
        assert_eq!(raised, current_limit());
        assert!(max_open_tables() <= raised / 4);
    }
}
