//! Comments of moderators on jobs, oldest first.

use serde::Serialize;
use tidegate_schemas::ids::{CauseId, JobId, Millis, OrgId};
use tidegate_store::{At, Cursor, Store, WriteTime, tables::review::comments::JobComment};
use uuid::Uuid;

use crate::Error;

/// A comment as the API shows it.
#[derive(Clone, Debug, Serialize)]
pub struct Comment {
    pub id: Uuid,
    pub at: String,
    pub author: String,
    pub text: String,
}

impl From<JobComment> for Comment {
    fn from(row: JobComment) -> Self {
        Self { id: row.comment_id, at: row.at.iso(), author: row.author, text: row.text }
    }
}

/// Adds a comment to a job that exists.
pub async fn add(
    store: &Store,
    org: &OrgId,
    job_id: JobId,
    author: &str,
    text: &str,
    now: Millis,
) -> Result<Comment, Error> {
    put(store, org, job_id, CauseId::random().0, author, text, now).await
}

/// Writes a comment under an id. A comment that is there already stays as it is.
pub(super) async fn put(
    store: &Store,
    org: &OrgId,
    job_id: JobId,
    id: Uuid,
    author: &str,
    text: &str,
    at: Millis,
) -> Result<Comment, Error> {
    if let Some(known) = store.get::<JobComment>(&JobComment::key(org.clone(), job_id, at, id)).await? {
        return Ok(known.into());
    }
    let row = JobComment {
        org: org.clone(),
        job_id,
        at,
        comment_id: id,
        author: author.to_owned(),
        text: text.to_owned(),
    };
    store.put(WriteTime::of(at, 0), std::slice::from_ref(&row)).await?;
    Ok(row.into())
}

/// Returns comments of a job, and a cursor if there may be more.
pub async fn list(
    store: &Store,
    org: &OrgId,
    job_id: JobId,
    after: Option<Cursor>,
    limit: usize,
) -> Result<(Vec<Comment>, Option<Cursor>), Error> {
    let range = At::all().limit(limit).after(after);
    let mut rows = store.scan::<JobComment>(&JobComment::partition(org.clone(), job_id), range);
    let comments = rows.all().await?.into_iter().map(Comment::from).collect();
    Ok((comments, rows.cursor()))
}
