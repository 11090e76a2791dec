//! Runs the load against an address, as a process of its own.
//!
//! It does not know what takes the load.

use anyhow::{Context as _, Result};
use serde::Deserialize;
use tidegate_benches::process::run;

/// What the load tells at its end.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Sent {
    pub(crate) acknowledged: u64,
    pub(crate) requests: u64,
    pub(crate) seconds: f64,
    /// Milliseconds from a request to its answer. From a closed loop they are no claim about latency at a given rate.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) most: f64,
}

/// Requests that are not batches of items.
#[derive(Clone, Copy)]
pub(crate) enum Single<'a> {
    /// Items, one by one to `/api/v1/content`; the rule is the one that matches texts with the word.
    Content { rule: &'a str },
    /// Look-ups of the policies.
    Policies,
}

pub(crate) struct Load<'a> {
    pub(crate) address: &'a str,
    pub(crate) key: &'a str,
    pub(crate) connections: usize,
    pub(crate) items: usize,
    /// Numbers are given once in a bench: the next one that is free.
    pub(crate) next: &'a mut u64,
}

/// When a load ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Seconds(f64),
    Items(u64),
}

impl Load<'_> {
    pub(crate) async fn run(self, end: End) -> Result<Sent> {
        self.send(end, &[]).await
    }

    /// `rate`: requests a second of an open loop; 0 for a closed loop.
    pub(crate) async fn run_single(self, single: Single<'_>, rate: f64, end: End) -> Result<Sent> {
        let rate = rate.to_string();
        match single {
            Single::Content { rule } => self.send(end, &["--rate", &rate, "--content", rule]).await,
            Single::Policies => self.send(end, &["--rate", &rate, "--policies"]).await,
        }
    }

    async fn send(self, end: End, more: &[&str]) -> Result<Sent> {
        let (limit, most) = match end {
            End::Seconds(seconds) => ("--seconds", seconds.to_string()),
            End::Items(items) => ("--most", items.to_string()),
        };
        let first = self.next.to_string();
        let (connections, items) = (self.connections.to_string(), self.items.to_string());
        let program = std::env::current_exe()?.with_file_name("load");
        let mut args = vec!["--address", self.address, "--connections", &connections, "--items", &items];
        args.extend(["--first", &first, limit, &most]);
        if !self.key.is_empty() {
            args.extend(["--key", self.key]);
        }
        args.extend(more);
        let told = run(&program, args).await?;
        let sent: Sent = serde_json::from_str(told.trim()).with_context(|| told.clone())?;
        *self.next += sent.acknowledged;
        Ok(sent)
    }
}
