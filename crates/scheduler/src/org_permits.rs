//! Permits per org: each org runs a bounded number of tasks, and its further ones wait.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use tidegate_schemas::ids::OrgId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Number of orgs in the map at which orgs without permits are removed.
const SWEEP_THRESHOLD: usize = 64;

/// Semaphores of all orgs. Clones share them.
#[derive(Clone)]
pub struct OrgPermits {
    per_org: usize,
    orgs: Arc<Mutex<HashMap<OrgId, Weak<Semaphore>>>>,
}

impl OrgPermits {
    pub fn new(per_org: usize) -> Self {
        Self { per_org, orgs: Arc::default() }
    }

    /// Waits for a permit of the org, in order of arrival.
    pub async fn acquire(&self, org: &OrgId) -> OwnedSemaphorePermit {
        self.get_or_create_semaphore(org).acquire_owned().await.expect("the semaphore is never closed")
    }

    /// Waits for several permits of the org. A request above the limit waits for all of them.
    pub async fn acquire_many(&self, org: &OrgId, permits: usize) -> OwnedSemaphorePermit {
        let permits = u32::try_from(permits.min(self.per_org)).unwrap_or(u32::MAX);
        self.get_or_create_semaphore(org)
            .acquire_many_owned(permits)
            .await
            .expect("the semaphore is never closed")
    }

    /// Returns a permit of the org if one is free.
    pub fn try_acquire(&self, org: &OrgId) -> Option<OwnedSemaphorePermit> {
        self.get_or_create_semaphore(org).try_acquire_owned().ok()
    }

    fn get_or_create_semaphore(&self, org: &OrgId) -> Arc<Semaphore> {
        let mut orgs = self.orgs.lock();
        // Permits and waiters own the semaphore, so the map never keeps an idle org alive.
        if let Some(semaphore) = orgs.get(org).and_then(Weak::upgrade) {
            return semaphore;
        }
        if orgs.len() >= SWEEP_THRESHOLD {
            orgs.retain(|_, semaphore| semaphore.strong_count() > 0);
        }
        let semaphore = Arc::new(Semaphore::new(self.per_org));
        orgs.insert(org.clone(), Arc::downgrade(&semaphore));
        semaphore
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn an_org_waits_for_its_own_permits_only() {
        let permits = OrgPermits::new(1);
        let (org, other_org) = (OrgId::new("o"), OrgId::new("n"));
        let permit = permits.acquire(&org).await;
        assert!(permits.acquire(&org).now_or_never().is_none());
        assert!(permits.acquire(&other_org).now_or_never().is_some());
        drop(permit);
        assert!(permits.acquire(&org).now_or_never().is_some());
    }

    #[tokio::test]
    async fn request_for_more_than_all_permits_waits_for_all() {
        let permits = OrgPermits::new(3);
        let org = OrgId::new("o");
        let permit = permits.acquire_many(&org, 2).await;
        assert!(permits.acquire_many(&org, 9).now_or_never().is_none());
        drop(permit);
        let _all = permits.acquire_many(&org, 9).now_or_never().unwrap();
        assert!(permits.try_acquire(&org).is_none());
    }

    #[tokio::test]
    async fn orgs_without_permits_are_removed() {
        let permits = OrgPermits::new(1);
        for nth in 0..10 * SWEEP_THRESHOLD {
            drop(permits.acquire(&OrgId::new(format!("org-{nth}"))).await);
        }
        assert!(permits.orgs.lock().len() <= SWEEP_THRESHOLD);
    }
}
