//! Finds the addresses of a host name and lets a connection be made only if the guard passes every one of them.
//! Not responsible for IP literals, which the HTTP library never resolves.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use futures::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::Semaphore;

use crate::addresses::Guard;
use crate::failure::Failure;

/// A source of addresses. Production uses [`System`]; it is an edge, so tests may bring their own.
pub trait Lookup: Send + Sync + 'static {
    fn lookup(&self, host: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

/// The operating system's resolver.
pub struct System {
    threads: Arc<Semaphore>,
}

impl System {
    /// A hung name server holds a thread until the system gives up, whoever waits; `concurrent` bounds those threads.
    pub fn new(concurrent: usize) -> Self {
        Self { threads: Arc::new(Semaphore::new(concurrent)) }
    }
}

impl Lookup for System {
    fn lookup(&self, host: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let threads = Arc::clone(&self.threads);
        Box::pin(async move {
            let permit = threads.acquire_owned().await.map_err(io::Error::other)?;
            tokio::task::spawn_blocking(move || {
                let _until_the_thread_is_free = permit;
                Ok((host.as_str(), 0).to_socket_addrs()?.map(|address| address.ip()).collect())
            })
            .await
            .map_err(io::Error::other)?
        })
    }
}

/// A resolver that refuses a name if any of its addresses is blocked.
///
/// Dropping only the blocked ones would let a name that points inside be probed by its public half. The checked list is
/// the one that is connected to, so a second, different answer never comes into play.
pub(crate) struct Checked {
    pub(crate) lookup: Arc<dyn Lookup>,
    pub(crate) guard: Arc<Guard>,
}

impl Resolve for Checked {
    fn resolve(&self, name: Name) -> Resolving {
        let found = self.lookup.lookup(name.as_str().to_owned());
        let guard = Arc::clone(&self.guard);
        Box::pin(async move {
            let addresses = found.await.map_err(|_| Failure::Dns)?;
            if addresses.is_empty() {
                return Err(Failure::Dns.into());
            }
            for &address in &addresses {
                guard.check(address).map_err(Failure::from)?;
            }
            let checked: Addrs = Box::new(addresses.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(checked)
        })
    }
}
