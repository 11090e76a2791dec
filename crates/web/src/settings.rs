//! Settings of an HTTP server.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Limits of one HTTP server. Times are in milliseconds, sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Open connections. An address may hold half of them. When all are used, the oldest idle one without a valid key is closed
    /// for a new one; if there is none, new connections wait in the system's queue.
    pub connections: usize,
    /// Concurrent requests of one HTTP/2 connection.
    pub streams: u32,
    /// Concurrent HTTP/2 requests of all connections, including those with unread answers. Requests above it are refused. An
    /// address may hold half of them.
    pub open_streams: usize,
    /// Size of a request's target and headers together.
    pub header_bytes: usize,
    /// Milliseconds that a client may take to send its headers, or to send the next request.
    pub header_read_ms: u64,
    /// Milliseconds that a client may take to send a body.
    pub body_read_ms: u64,
    /// Minimum pace of a body in bytes a second; 0: no minimum.
    pub body_bytes_per_second: usize,
    /// Milliseconds over which the pace is measured. A slower body is answered with 408.
    pub body_pace_ms: u64,
    /// Largest accepted body, compressed and decompressed.
    pub body_bytes: usize,
    /// Greatest ratio of decompressed to compressed size for bodies above 64 KiB.
    pub body_expansion: usize,
    /// Bytes of a refused request's body that are still read and dropped. Clients that read only after writing the whole body
    /// would otherwise not receive the refusal.
    pub discard_bytes: usize,
    /// Milliseconds that such a client may pause before its connection is closed.
    pub discard_pause_ms: u64,
    /// Received bytes of all bodies in progress. Requests above it are answered with 503. An organisation and a connection may
    /// each hold at most as much as remains for all others.
    pub in_flight_bytes: usize,
    /// Bytes of all answers that clients have not read yet. Requests above it are answered with 503. Shared like
    /// `in_flight_bytes`.
    pub unsent_bytes: usize,
    /// Unread bytes of one connection's answers above which its next requests wait.
    pub connection_unsent_bytes: usize,
    /// Milliseconds in which a client must read a part of every answer. Otherwise the answer's stream or connection ends. The
    /// connection also ends if the client reads no bytes for that time, such as control frames of HTTP/2.
    pub unsent_stall_ms: u64,
    /// Requests a second that one organisation may make on average; 0: unlimited.
    pub requests_per_second: u32,
    /// Requests that an organisation may make at once after a pause.
    pub burst: u32,
    /// Milliseconds for requests in work, and for answers to clients with a valid key, when the server stops. Other connections
    /// have one second.
    pub drain_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connections: 10_000,
            streams: 200,
            open_streams: 65_536,
            header_bytes: 32 << 10,
            header_read_ms: 30_000,
            body_read_ms: 30_000,
            body_bytes_per_second: 4_096,
            body_pace_ms: 5_000,
            body_bytes: 8 << 20,
            body_expansion: 200,
            discard_bytes: 32 << 20,
            discard_pause_ms: 500,
            in_flight_bytes: 256 << 20,
            unsent_bytes: 256 << 20,
            connection_unsent_bytes: 8 << 20,
            unsent_stall_ms: 10_000,
            requests_per_second: 0,
            burst: 1_000,
            drain_ms: 20_000,
        }
    }
}

/// Setting that is invalid, alone or in combination with another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SettingsError(pub String);

impl Settings {
    pub fn validate(&self) -> Result<(), SettingsError> {
        for (name, value) in [
            ("body_bytes", self.body_bytes),
            ("body_expansion", self.body_expansion),
            ("header_bytes", self.header_bytes),
        ] {
            if value == 0 {
                return Err(SettingsError(format!("{name} = 0 refuses every request: set it to at least 1")));
            }
        }
        for (name, value) in [("header_read_ms", self.header_read_ms), ("body_read_ms", self.body_read_ms)] {
            if value == 0 {
                return Err(SettingsError(format!("{name} = 0 leaves no time to send a request")));
            }
        }
        for (name, value) in [("body_pace_ms", self.body_pace_ms), ("unsent_stall_ms", self.unsent_stall_ms)]
        {
            if value == 0 {
                return Err(SettingsError(format!(
                    "{name} = 0 ends every connection at once: set it to at least 1"
                )));
            }
        }
        // A single holder gets at most half of a budget (`FairBudget`), which must fit the largest body or answer.
        for (budget_name, budget, unit_name, unit) in [
            ("in_flight_bytes", self.in_flight_bytes, "body_bytes", self.body_bytes),
            ("unsent_bytes", self.unsent_bytes, "connection_unsent_bytes", self.connection_unsent_bytes),
        ] {
            if budget < unit.saturating_mul(2) {
                return Err(SettingsError(format!(
                    "{budget_name} = {budget} is below twice {unit_name} = {unit}: one organisation may hold half of it, and \
                     could never use all of {unit_name}. Raise {budget_name}"
                )));
            }
        }
        if self.connections == 0 || self.streams == 0 {
            return Err(SettingsError(format!(
                "connections = {} and streams = {} must both be above 0",
                self.connections, self.streams
            )));
        }
        if self.open_streams < 2 {
            return Err(SettingsError(format!(
                "open_streams = {} refuses every request: set it to at least 2",
                self.open_streams
            )));
        }
        if self.requests_per_second > 0 && self.burst == 0 {
            return Err(SettingsError(format!(
                "burst = 0 refuses every request while requests_per_second = {}: set burst to at least 1",
                self.requests_per_second
            )));
        }
        Ok(())
    }

    pub fn discard_pause(&self) -> Duration {
        Duration::from_millis(self.discard_pause_ms)
    }

    pub fn header_read(&self) -> Duration {
        Duration::from_millis(self.header_read_ms)
    }

    pub fn body_read(&self) -> Duration {
        Duration::from_millis(self.body_read_ms)
    }

    pub(crate) fn body_pace(&self) -> Duration {
        Duration::from_millis(self.body_pace_ms)
    }

    pub(crate) fn unsent_stall(&self) -> Duration {
        Duration::from_millis(self.unsent_stall_ms)
    }

    pub fn drain(&self) -> Duration {
        Duration::from_millis(self.drain_ms)
    }
}
