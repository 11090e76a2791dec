//! Comments of moderators on jobs, oldest first.

use async_recursion::async_recursion as boxed;
use serde::Serialize;
use tidegate_schemas::ids::{CauseId, JobId, Millis, OrgId};
use tidegate_store::{Cursor, RowRange, Store, WriteTime, tables::review::comments::JobComment};
use uuid::Uuid;

use crate::{Error, child_safety::AuthorizedJob};

/// Comment in an answer.
#[derive(Clone, Debug, Serialize)]
pub struct CommentResponse {
    pub id: Uuid,
    pub at: String,
    pub author: String,
    pub text: String,
}

impl From<JobComment> for CommentResponse {
    fn from(row: JobComment) -> Self {
        Self { id: row.comment_id, at: row.at.iso(), author: row.author, text: row.text }
    }
}

/// Adds a comment to an existing job.
#[boxed]
pub async fn add_comment(
    store: &Store,
    job: &AuthorizedJob,
    author: &str,
    text: &str,
    now: Millis,
) -> Result<CommentResponse, Error> {
    put_once(store, job.org(), job.id(), CauseId::random().0, author, text, now).await
}

/// Stores a comment under an id. An existing comment is kept.
pub(super) async fn put_once(
    store: &Store,
    org: &OrgId,
    job_id: JobId,
    id: Uuid,
    author: &str,
    text: &str,
    at: Millis,
) -> Result<CommentResponse, Error> {
    // The first text stays, because a repeated request may have another one.
    if let Some(existing) = store.get::<JobComment>(&JobComment::key(org.clone(), job_id, at, id)).await? {
        return Ok(existing.into());
    }
    let row = JobComment {
        org: org.clone(),
        job_id,
        at,
        comment_id: id,
        author: author.to_owned(),
        text: text.to_owned(),
    };
    store.put_rows(WriteTime::from_append(at, 0), std::slice::from_ref(&row)).await?;
    Ok(row.into())
}

/// Returns comments of a job, and a cursor if more may follow.
#[boxed]
pub async fn list_comments(
    store: &Store,
    job: &AuthorizedJob,
    after: Option<Cursor>,
    limit: usize,
) -> Result<(Vec<CommentResponse>, Option<Cursor>), Error> {
    let range = RowRange::all().limit(limit).after(after);
    let mut rows = store.scan::<JobComment>(&JobComment::partition(job.org().clone(), job.id()), range);
    let comments = rows.all().await?.into_iter().map(CommentResponse::from).collect();
    Ok((comments, rows.cursor()))
}
