//! Consumer of one topic: keeps the order of each key, retries without limit, and diverts unprocessable content to the dead
//! letters.

pub(crate) mod backoff;
pub(crate) mod consumer_loop;
pub(crate) mod error;
pub(crate) mod handler;
pub(crate) mod key_queues;
pub(crate) mod missing_config;
pub(crate) mod poison_monitor;
pub(crate) mod retry;
pub(crate) mod slot;
