//! The host of the pictures that items name: some are there at once, others only when nobody waits in passing any more.
//!
//! It outlives the processes that ask.

use std::{io, time::Duration};

use tidegate_test_support::pictures::{Answer, Host, picture};

/// Longer than items wait in passing, by the settings below.
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

    /// Where items find theirs.
    pub(crate) fn base(&self) -> String {
        self.0.url("")
    }

    /// How many times somebody asked.
    pub(crate) fn asked(&self) -> usize {
        self.0.asked("").len()
    }
}
