//! Open files of the process: raises their limit at the start, and divides it between data and connections.
//!
//! A database that cannot open a file is poisoned, so connections get what is left beside a reserve.

use tidegate_web::HttpServer;

use crate::settings::Settings;

/// Connections of the operations port.
pub(crate) const OPERATIONS: usize = 64;

/// Tables of the embedded database that are kept open, if the reserve allows.
const TABLES: usize = 900;

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
        let left = limit.saturating_sub(reserve.min(limit / 2) + OPERATIONS).max(2);
        if wanted.api.saturating_add(wanted.admin) <= left {
            return wanted;
        }
        let admin = wanted.admin.min((left / 4).max(1));
        let api = wanted.api.min(left - admin);
        Self { api, admin: wanted.admin.min(left - api) }
    }
}

/// The servers, with as many connections as the process may have files.
pub(crate) fn servers(settings: &Settings, limit: usize) -> anyhow::Result<(HttpServer, HttpServer)> {
    let (mut api, mut admin) = (settings.api.http.clone(), settings.console.http.clone());
    let reserve = settings.runtime.reserved_files;
    let wanted = ConnectionLimits { api: api.connections, admin: admin.connections };
    let given = ConnectionLimits::divide(limit, reserve, wanted);
    if given != wanted {
        tracing::warn!(
            "the process may open {limit} files, of which {} are kept for data and calls (runtime.reserved_files): \
             api.http.connections = {} is lowered to {}, console.http.connections = {} to {}; raise the hard limit \
             (`ulimit -Hn`, LimitNOFILE) for more",
            reserve.min(limit / 2),
            wanted.api,
            given.api,
            wanted.admin,
            given.admin
        );
    }
    (api.connections, admin.connections) = (given.api, given.admin);
    Ok((HttpServer::new("api", api)?, HttpServer::new("admin", admin)?))
}

#[cfg(test)]
mod tests {
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

    #[cfg(unix)]
    #[test]
    fn the_limit_is_raised_to_the_hard_one() {
        let raised = raise_limit();
        assert_eq!(raised, limit());
        assert!(tables() <= raised / 4);
    }
}
