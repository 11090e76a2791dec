//! `GET /api/v1/items/{typeId}/{id}`: returns the outcome of an item, at once or after its evaluation. The response is
//! built by `moderation::items::stored`.

use std::time::Duration;

use axum::RequestExt;
use serde::Deserialize;
use tidegate_moderation::items::stored::{ItemResponse, load_answer, wait_for_answer};
use tidegate_schemas::{
    ids::{ItemKey, OrgId, SubmissionId},
    validation_error::{Pointer, ValidationError},
};
use tidegate_web::{BudgetRefusal, Holder, Json, Limit, Path, Problem, Query};

use crate::{
    Api, Shared,
    admission::{AdmittedRequest, parse_query_duration},
};

#[derive(Deserialize)]
pub(crate) struct ItemQuery {
    submission: Option<String>,
    wait: Option<String>,
}

pub(crate) async fn show(api: Shared, admitted: AdmittedRequest) -> Result<Json<ItemResponse>, Problem> {
    let AdmittedRequest { org, mut request, .. } = admitted;
    let Path((type_id, id)): Path<(String, String)> = request.extract_parts().await?;
    let Query(query) = Query::from_uri(request.uri())?;
    let (submission, wait_limit) = parse_query(query)?;
    match api.look_up_item(&org, &ItemKey::new(type_id, id), submission, wait_limit).await? {
        Some(answer) => Ok(Json(answer)),
        None => Err(Problem::not_found("The item does not exist, or it is not processed yet.")),
    }
}

fn parse_query(query: ItemQuery) -> Result<(Option<SubmissionId>, Option<Duration>), Problem> {
    let submission = query.submission.map(|text| text.parse::<SubmissionId>());
    let submission = submission
        .transpose()
        .map_err(|_| invalid_query_problem("`submission` must be a submission's id."))?;
    let wait_limit = query.wait.map(|text| {
        parse_query_duration(&text)
            .ok_or_else(|| invalid_query_problem("`wait` must be a time such as `10s` or `500ms`."))
    });
    Ok((submission, wait_limit.transpose()?))
}

fn invalid_query_problem(detail: &str) -> Problem {
    vec![ValidationError::invalid(&Pointer::Root, "Invalid query", detail)].into()
}

impl Api {
    pub(crate) fn wait_limit_problem(&self, refusal: BudgetRefusal) -> Problem {
        let (limit, detail) = match refusal {
            BudgetRefusal::Share => {
                (Limit::WaitShare, "The organisation has reached its share of waiting requests. Retry later.")
            }
            BudgetRefusal::Total => {
                (Limit::WaitTotal, "Too many requests are waiting for items. Retry later.")
            }
        };
        self.http.count_limited(limit);
        self.unavailable_problem(detail)
    }

    async fn look_up_item(
        &self,
        org: &OrgId,
        item: &ItemKey,
        submission: Option<SubmissionId>,
        wait_limit: Option<Duration>,
    ) -> Result<Option<ItemResponse>, Problem> {
        let store = &self.deps.store;
        if let Some(wait_limit) = wait_limit.filter(|limit| !limit.is_zero()) {
            // Only waiting look-ups take a place of the budget.
            let holder = Holder { org: Some(org.clone()), connection: None };
            let _permit =
                self.waiting_requests.take(holder, 1).map_err(|refusal| self.wait_limit_problem(refusal))?;
            // Shortened instead of refused: the response then has the state at that time.
            let wait_limit = wait_limit.min(self.settings.longest_wait());
            let evaluation = wait_for_answer(store, org, item, submission, wait_limit);
            // At a stop the wait ends early, and the current state of the item is returned below.
            if let Some(answer) = self.stop.run_until_cancelled(evaluation).await {
                return answer.map_err(|error| self.moderation_problem(&error));
            }
        }
        load_answer(store, org, item, submission).await.map_err(|error| self.moderation_problem(&error))
    }
}
