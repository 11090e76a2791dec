//! Shared code of the tests of several crates: real servers by name, a faulty link, child processes, captured
//! output, the published description of the API, waiting with a bound.
//! Independent of Tidegate's own types, so that any crate may use it in its tests.

pub mod eventually;
pub mod garbled;
pub mod openapi;
pub mod own_server;
pub mod pictures;
pub mod process;
pub mod proxy;
pub mod servers;
pub mod written;

pub use eventually::{PATIENCE, eventually, eventually_ok};
pub use own_server::OwnServer;
pub use process::{Process, Program, free_port};
pub use proxy::{Proxy, Way};
pub use written::Written;
