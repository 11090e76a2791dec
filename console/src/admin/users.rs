//! `/admin/v1/users/{typeId}/{id}`: a user's strikes, standing, jobs, actions and the outcome of their reports.

use axum::{Json, Router, extract::State, routing::get};
use tidegate_moderation::users::{self, UserView};
use tidegate_schemas::ids::{ItemKey, Millis};
use tidegate_web::{Path, Problem, Query};

use super::{
    Api,
    caller::Caller,
    child_safety,
    extract::{WholeList, invalid},
    faults, jobs,
};

pub(super) fn routes() -> Router<Api> {
    Router::new().route("/users/{type}/{id}", get(one))
}

async fn one(
    State(api): State<Api>,
    caller: Caller,
    Path((type_id, id)): Path<(String, String)>,
    Query(_): Query<WholeList>,
) -> Result<Json<UserView>, Problem> {
    let user = ItemKey::new(type_id, id);
    let config = jobs::config(&api, &caller).await?;
    if config.item_type(&user.type_id).is_some_and(|item_type| !item_type.is_user()) {
        let detail = format!("`{}` is no type of users; a user's type has the kind `USER`.", user.type_id);
        return Err(invalid("", detail));
    }
    let object = format!("/users/{}/{}", user.type_id, user.id);
    let subject = std::slice::from_ref(&user);
    child_safety::check_and_record(&api, &caller, subject, "/users/{type}/{id}", object).await?;
    let store = &api.deps.moderation.store;
    let view = users::view(store, &config, &user, caller.may_child_safety(), Millis::now()).await;
    view.map_err(faults::moderation)?.map(Json).ok_or_else(|| {
        Problem::not_found("There is no such user: no item, strike, job, action or decided report names it.")
    })
}
