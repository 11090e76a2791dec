//! The settings of an HTTP server.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Limits of one HTTP server. Times are in milliseconds, sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Open connections. An address may hold half of them. When all are taken, the oldest idle one that
    /// never sent a valid key is closed for a new one; where there is none, new ones wait in the system's queue.
    pub connections: usize,
    /// Concurrent requests of one HTTP/2 connection.
    pub streams: u32,
    /// Concurrent requests of HTTP/2 in all, also those whose answers are not taken; above it they are refused. An address
    /// may hold half of them.
    pub open_streams: usize,
    /// The target and the headers of a request, in all.
    pub header_bytes: usize,
    /// Milliseconds that a client may take to send its headers, or to send the next request.
    pub header_read_ms: u64,
    /// Milliseconds that a client may take to send a body.
    pub body_read_ms: u64,
    /// Bytes a second that a client must send of a body, as long as it sends one; 0: any number.
    pub body_bytes_per_second: usize,
    /// Milliseconds over which that rate is measured: a body that brings fewer bytes in so long is answered with 408.
    pub body_pace_ms: u64,
    /// The largest body that is taken, compressed and decompressed.
    pub body_bytes: usize,
    /// Number of times its size that a body of more than 64 KiB may decompress to.
    pub body_expansion: usize,
    /// Bytes of a refused request's body that are still read, and dropped, beside the answer: a client that reads
    /// nothing before it has written everything learns of the refusal then.
    pub discard_bytes: usize,
    /// Milliseconds that such a client may pause before its connection is closed.
    pub discard_pause_ms: u64,
    /// Received bytes of bodies under way, in all: above it, requests are answered with 503. An organisation and a
    /// connection each hold at most as much of it as they leave to all others.
    pub in_flight_bytes: usize,
    /// Bytes of answers that clients have not taken yet, in all: above it, requests are answered with 503. It is shared
    /// as `in_flight_bytes` is.
    pub unsent_bytes: usize,
    /// Bytes of answers that the client of one connection has not taken yet, above which its next requests wait.
    pub connection_unsent_bytes: usize,
    /// Milliseconds in which a client must take something of every answer, or the answer's stream or its connection is
    /// ended. The connection also ends if nothing that is sent is taken for so long, such as control frames of HTTP/2.
    pub unsent_stall_ms: u64,
    /// Requests a second that one organisation may make on average; 0: no limit.
    pub requests_per_second: u32,
    /// Number of requests that an organisation may make at once after a pause.
    pub burst: u32,
    /// Milliseconds that requests in work, and answers on their way to clients with a valid key, may take when the server
    /// stops. Other connections have a second.
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

/// A setting that cannot hold, alone or beside another.
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
                return Err(SettingsError(format!("{name} = 0 lets no request through")));
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
                return Err(SettingsError(format!("{name} = 0 ends every connection that is not instant")));
            }
        }
        for (name, all, of, one) in [
            ("in_flight_bytes", self.in_flight_bytes, "body_bytes", self.body_bytes),
            ("unsent_bytes", self.unsent_bytes, "connection_unsent_bytes", self.connection_unsent_bytes),
        ] {
            if all < one.saturating_mul(2) {
                return Err(SettingsError(format!(
                    "{name} = {all} is below twice {of} = {one}: one organisation may hold half of it, and could \
                     never use all of {of}"
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
                "open_streams = {} lets no request through",
                self.open_streams
            )));
        }
        if self.requests_per_second > 0 && self.burst == 0 {
            return Err(SettingsError(format!(
                "burst = 0 lets nothing through, although requests_per_second = {}",
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
