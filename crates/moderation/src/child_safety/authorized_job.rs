//! Loads a job for a caller, and proves to the functions of a review that the caller may work on it.

use async_recursion::async_recursion as boxed;
use tidegate_schemas::{
    ids::{JobId, OrgId},
    records::JobClass,
};
use tidegate_store::{Store, tables::review::jobs::Job};

use super::Clearance;
use crate::Error;

/// Job of a caller's org, of a class within the caller's clearance. Functions that show or change one job for a caller
/// take it instead of an id, and read the present row where they need it.
///
/// ```
/// use tidegate_moderation::{Error, child_safety::{AuthorizedJob, Clearance, JobRefusal}};
/// use tidegate_schemas::ids::{JobId, OrgId};
/// use tidegate_store::Store;
///
/// async fn load(store: &Store, org: &OrgId, id: JobId) -> Result<Result<AuthorizedJob, JobRefusal>, Error> {
///     AuthorizedJob::load(store, org, id, Clearance::None).await
/// }
/// ```
///
/// It cannot be built from a row, because the row would not be checked:
///
/// ```compile_fail
/// use tidegate_moderation::child_safety::AuthorizedJob;
/// use tidegate_store::tables::review::jobs::Job;
///
/// fn authorize(row: Job) -> AuthorizedJob {
///     AuthorizedJob { row }
/// }
/// ```
#[derive(Clone, Debug)]
pub struct AuthorizedJob {
    row: Job,
}

/// Reason why a caller gets no job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobRefusal {
    /// The org has no job of this id.
    NotFound,
    /// The clearance does not cover the class of the job.
    NotCleared,
}

impl AuthorizedJob {
    /// Loads the job and checks the clearance for its class.
    #[boxed]
    pub async fn load(
        store: &Store,
        org: &OrgId,
        job_id: JobId,
        clearance: Clearance,
    ) -> Result<Result<Self, JobRefusal>, Error> {
        let row = store.get::<Job>(&(org.clone(), job_id)).await?;
        Ok(row.ok_or(JobRefusal::NotFound).and_then(|row| Self::from_row(row, clearance)))
    }

    /// Checks the clearance for a row that was read for the org of the caller. The class of a job never changes, so the
    /// check holds for later versions of the row.
    pub(crate) fn from_row(row: Job, clearance: Clearance) -> Result<Self, JobRefusal> {
        // Jobs that were moved to another class count as well: they keep the causes from child safety.
        if row.class == JobClass::ChildSafety && !clearance.covers_child_safety() {
            return Err(JobRefusal::NotCleared);
        }
        Ok(Self { row })
    }

    pub fn org(&self) -> &OrgId {
        &self.row.org
    }

    pub fn id(&self) -> JobId {
        self.row.job_id
    }

    pub fn class(&self) -> JobClass {
        self.row.class
    }

    /// Row at the time of the check.
    pub fn row(&self) -> &Job {
        &self.row
    }

    /// Key of the job's row.
    pub(crate) fn key(&self) -> (OrgId, JobId) {
        (self.row.org.clone(), self.row.job_id)
    }
}
