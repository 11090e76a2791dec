//! `GET /api/v1/items/{typeId}/{id}`: what became of an item, at once or when it is evaluated.
//!
//! It renders nothing; `moderation::items::stored` does.

use std::time::Duration;

use axum::RequestExt;
use serde::Deserialize;
use tidegate_moderation::items::stored::{Answer, answer, answer_when_evaluated};
use tidegate_schemas::{
    ids::{ItemKey, OrgId, SubmissionId},
    validation_error::{Pointer, ValidationError},
};
use tidegate_web::{Holder, Json, Limit, Path, Problem, Query, Refusal};

use crate::{
    Api, Shared,
    admission::{Admitted, time},
};

#[derive(Deserialize)]
pub(crate) struct ItemQuery {
    submission: Option<String>,
    wait: Option<String>,
}

pub(crate) async fn show(api: Shared, admitted: Admitted) -> Result<Json<Answer>, Problem> {
    let Admitted { org, mut request, .. } = admitted;
    let Path((type_id, id)): Path<(String, String)> = request.extract_parts().await?;
    let Query(query) = Query::of(request.uri())?;
    let (submission, wait) = read(query)?;
    match api.item(&org, &ItemKey::new(type_id, id), submission, wait).await? {
        Some(answer) => Ok(Json(answer)),
        None => Err(Problem::not_found("No processor has stored such an item, or not yet.")),
    }
}

fn read(query: ItemQuery) -> Result<(Option<SubmissionId>, Option<Duration>), Problem> {
    let submission = query.submission.map(|text| text.parse::<SubmissionId>());
    let submission =
        submission.transpose().map_err(|_| invalid("`submission` must be a submission's id."))?;
    let wait = query
        .wait
        .map(|text| time(&text).ok_or_else(|| invalid("`wait` must be a time such as `10s` or `500ms`.")));
    Ok((submission, wait.transpose()?))
}

fn invalid(detail: &str) -> Problem {
    vec![ValidationError::invalid(&Pointer::Root, "Invalid query", detail)].into()
}

impl Api {
    pub(crate) fn too_many_wait(&self, refusal: Refusal) -> Problem {
        let (limit, detail) = match refusal {
            Refusal::Share => {
                (Limit::WaitShare, "The organisation has its share of the requests that wait for items.")
            }
            Refusal::Total => (Limit::WaitTotal, "Too many requests wait for items."),
        };
        self.http.count_limited(limit);
        self.unavailable(detail)
    }

    async fn item(
        &self,
        org: &OrgId,
        item: &ItemKey,
        submission: Option<SubmissionId>,
        wait: Option<Duration>,
    ) -> Result<Option<Answer>, Problem> {
        let store = &self.deps.store;
        if let Some(wait) = wait.filter(|wait| !wait.is_zero()) {
            let holder = Holder { org: Some(org.clone()), connection: None };
            let _permit = self.waiting.take(holder, 1).map_err(|refusal| self.too_many_wait(refusal))?;
            let wait = wait.min(self.settings.longest_wait());
            let waited = answer_when_evaluated(store, org, item, submission, wait);
            // A server that stops answers with what it has.
            if let Some(answer) = self.stop.run_until_cancelled(waited).await {
                return answer.map_err(|error| self.moderation_problem(&error));
            }
        }
        answer(store, org, item, submission).await.map_err(|error| self.moderation_problem(&error))
    }
}
