//! Open files of the process: raises their limit at the start, and divides it between data and connections.
//!
//! A database that cannot open a file is poisoned, so connections get what is left beside a reserve.

use tidegate_web::HttpServer;

use crate::settings::Settings;

/// Connections of the operations port.
pub(crate) const OPERATIONS: usize = 64;

/// Tables of the embedded database that are kept open, if the reserve allows.
const TABLES: usize = 900;

/// Connections of the API and the admin API together below which a start is refused. A proxy, a console and a few platforms use
/// this many at once; with fewer, good requests are refused while the service says that it is ready. A limit of 256 files, the
/// lowest that systems have by default, leaves exactly so many.
const MIN_CONNECTIONS: usize = 64;

/// Limit where the system names none.
const UNLIMITED: u64 = 1 << 20;

/// Raises the soft limit to the hard one, and returns it.
#[cfg(unix)]
pub(crate) fn raise_limit() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let found = getrlimit(Resource::Nofile);
    if found.current < found.maximum || found.maximum.is_none() {
        let raised = Rlimit { current: found.maximum.or(Some(UNLIMITED)), maximum: found.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, ?found, "the limit of open files cannot be raised");
        }
    }
    limit()
}

/// The limit of open files now.
#[cfg(unix)]
fn limit() -> usize {
    use rustix::process::{Resource, getrlimit};

    let limit = getrlimit(Resource::Nofile).current.unwrap_or(UNLIMITED).min(UNLIMITED);
    usize::try_from(limit).unwrap_or(usize::MAX)
}

#[cfg(not(unix))]
pub(crate) fn raise_limit() -> usize {
    limit()
}

#[cfg(not(unix))]
fn limit() -> usize {
    usize::try_from(UNLIMITED).unwrap_or(usize::MAX)
}

/// Returns how many tables the embedded database may keep open, under the limit as it is now.
pub(crate) fn tables() -> usize {
    tables_under(limit())
}

/// A quarter of a small limit: journals, compactions and calls of others need the rest of its reserve.
fn tables_under(limit: usize) -> usize {
    TABLES.min(limit / 4)
}

/// Connections that each server may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionLimits {
    pub(crate) api: usize,
    pub(crate) admin: usize,
}

impl ConnectionLimits {
    /// Divides what a limit leaves beside the reserve, which takes at most half of it. The admin API gets a quarter of
    /// what is scarce.
    fn divide(limit: usize, reserve: usize, wanted: Self) -> Self {
        let left = limit.saturating_sub(self::reserve(limit, reserve) + OPERATIONS).max(2);
        if wanted.api.saturating_add(wanted.admin) <= left {
            return wanted;
        }
        let admin = wanted.admin.min((left / 4).max(1));
        let api = wanted.api.min(left - admin);
        Self { api, admin: wanted.admin.min(left - api) }
    }
}

/// Most files that are kept for data and calls.
fn reserve(limit: usize, reserved: usize) -> usize {
    reserved.min(limit.div_ceil(2))
}

/// Refuses a limit that leaves too few connections to be of use. Called before anything is opened: a database that runs out of
/// files while it is made would fail with a message about that file.
pub(crate) fn check(settings: &Settings, limit: usize) -> anyhow::Result<()> {
    let reserved = settings.runtime.reserved_files;
    let wanted = settings.api.http.connections.saturating_add(settings.console.http.connections);
    let least = MIN_CONNECTIONS.min(wanted);
    if limit.saturating_sub(reserve(limit, reserved) + OPERATIONS) >= least {
        return Ok(());
    }
    let beside = least + OPERATIONS;
    let needed = (beside * 2).min(reserved.saturating_add(beside));
    anyhow::bail!(
        "the process may open {limit} files, which is too few: it needs {needed}, for {least} connections of clients, \
         {OPERATIONS} of the operations port, and data; raise the limit (`ulimit -n {needed}` in a shell, \
         `LimitNOFILE={needed}` in a systemd unit, `--ulimit nofile={needed}` of a container) or more"
    )
}

/// The servers, with as many connections as the process may have files.
pub(crate) fn servers(settings: &Settings, limit: usize) -> anyhow::Result<(HttpServer, HttpServer)> {
    let (mut api, mut admin) = (settings.api.http.clone(), settings.console.http.clone());
    let reserve = settings.runtime.reserved_files;
    let wanted = ConnectionLimits { api: api.connections, admin: admin.connections };
    let given = ConnectionLimits::divide(limit, reserve, wanted);
    if let Some(lowered) = describe_lowered(wanted, given) {
        tracing::warn!(
            "the process may open {limit} files, of which {} are kept for data and calls (runtime.reserved_files): \
             {lowered}; raise the hard limit (`ulimit -Hn`, LimitNOFILE) for more",
            self::reserve(limit, reserve),
        );
    }
    (api.connections, admin.connections) = (given.api, given.admin);
    Ok((HttpServer::new("api", api)?, HttpServer::new("admin", admin)?))
}

/// Names the settings that are lowered, and to what; none if nothing is.
fn describe_lowered(wanted: ConnectionLimits, given: ConnectionLimits) -> Option<String> {
    let settings = [
        ("api.http.connections", wanted.api, given.api),
        ("console.http.connections", wanted.admin, given.admin),
    ];
    let lowered = settings.iter().filter(|(_, wanted, given)| given < wanted);
    let lowered: Vec<_> =
        lowered.map(|(name, wanted, given)| format!("{name} = {wanted} is lowered to {given}")).collect();
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
            assert!(api + admin + OPERATIONS + tables_under(limit) * 2 <= limit, "{limit}");
        }
    }

    #[test]
    fn only_what_is_lowered_is_named() {
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
    fn a_limit_that_leaves_too_few_connections_is_refused() {
        let mut settings = Settings::default();
        let needed = |settings: &Settings| (0..).find(|limit| check(settings, *limit).is_ok());
        assert_eq!(needed(&settings), Some(256));
        let refused = check(&settings, 255).map_err(|error| error.to_string()).unwrap_err();
        for part in ["may open 255 files", "needs 256", "ulimit -n 256", "LimitNOFILE=256"] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
        assert_eq!(divide(256, 10_000, 10_000), (48, 16));
        // Whoever wants fewer connections needs fewer files.
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
        assert_eq!(raised, limit());
        assert!(tables() <= raised / 4);
    }
}
