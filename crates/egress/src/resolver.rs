//! Resolves host names, and allows a connection only if the guard accepts all addresses of the name.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use futures::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::Semaphore;

use crate::addresses::AddressGuard;
use crate::failure::Failure;

/// Source of addresses: [`SystemResolver`] in production, fixed answers in tests.
pub trait Resolver: Send + Sync + 'static {
    fn resolve(&self, host: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

/// Resolver of the operating system.
pub struct SystemResolver {
    threads: Arc<Semaphore>,
}

impl SystemResolver {
    /// `concurrent` bounds the threads of lookups: a hanging name server occupies a thread until the system's
    /// timeout.
    pub fn new(concurrent: usize) -> Self {
        Self { threads: Arc::new(Semaphore::new(concurrent)) }
    }
}

impl Resolver for SystemResolver {
    fn resolve(&self, host: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let threads = Arc::clone(&self.threads);
        Box::pin(async move {
            let permit = threads.acquire_owned().await.map_err(io::Error::other)?;
            tokio::task::spawn_blocking(move || {
                // Moved into the task: a lookup occupies its thread even after the caller has given up.
                let _permit = permit;
                Ok((host.as_str(), 0).to_socket_addrs()?.map(|address| address.ip()).collect())
            })
            .await
            .map_err(io::Error::other)?
        })
    }
}

/// Resolver that refuses a name if any of its addresses is blocked.
///
/// Dropping only the blocked addresses would allow probing of an internal name through its public half. The
/// connection uses the checked list, so a later answer of the name server cannot change its target.
pub(crate) struct GuardedResolver {
    pub(crate) resolver: Arc<dyn Resolver>,
    pub(crate) guard: Arc<AddressGuard>,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let lookup = self.resolver.resolve(name.as_str().to_owned());
        let guard = Arc::clone(&self.guard);
        Box::pin(async move {
            let addresses = lookup.await.map_err(|_| Failure::Dns)?;
            if addresses.is_empty() {
                return Err(Failure::Dns.into());
            }
            for &address in &addresses {
                guard.check(address).map_err(Failure::from)?;
            }
            // With port 0, the HTTP library uses the port of the URL.
            let socket_addresses: Addrs =
                Box::new(addresses.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(socket_addresses)
        })
    }
}
