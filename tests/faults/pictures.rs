//! The host of the pictures that items name: it serves some at once, and others after the time that an item waits for media.
//!
//! It outlives the processes that ask.

use std::{io, time::Duration};

use tidegate_test_support::pictures::{Answer, Host, picture};

/// Longer than an item waits for its media, by the settings below.
const LATE: Duration = Duration::from_millis(400);

pub(crate) struct Pictures(Host);

impl Pictures {
    pub(crate) async fn start() -> io::Result<Self> {
        let host = Host::start(|head| {
            let path = head.split(' ').nth(1).unwrap_or_default();
            let seed = path.bytes().fold(7_u32, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
            let picture = Answer::Picture(picture(seed));
            if path.starts_with("/late/") { Answer::Later(LATE, Box::new(picture)) } else { picture }
        });
        Ok(Self(host.await?))
    }

    /// Settings of an installation whose items may name them.
    pub(crate) fn settings(&self) -> String {
        let port = self.0.address.port();
        format!("[egress.media]\nports = [{port}]\n[processors.media]\nwait_ms = 100\n")
    }

    /// Base URL of the pictures.
    pub(crate) fn base(&self) -> String {
        self.0.url("")
    }

    /// Number of requests for pictures.
    pub(crate) fn count_requests(&self) -> usize {
        self.0.asked("").len()
    }
}
