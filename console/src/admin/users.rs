//! `/admin/v1/users/{typeId}/{id}`: a user's strikes, standing, actions and the outcome of their reports, and lists of their
//! items, jobs and reports.

use axum::{Json, Router, extract::State, routing::get};
use serde::Deserialize;
use tidegate_moderation::{
    items::stored,
    review::job_view::Summary,
    users::{self, ReportEntry, UserView},
};
use tidegate_schemas::ids::{ItemId, ItemKey, Millis, TypeId};
use tidegate_store::{
    Fact, Row,
    tables::items::by_user::{CaseKind, CaseOfUser, ItemOfUser},
};
use tidegate_web::{Path, Problem, Query};

use super::{
    Api, List,
    caller::Caller,
    child_safety,
    extract::{Page, WholeList, invalid, not_a_cursor},
    faults,
    job_list::limit,
    jobs,
};
use crate::{day_place::DayPlace, user_history};

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/users/{type}/{id}", get(one))
        .route("/users/{type}/{id}/items", get(items))
        .route("/users/{type}/{id}/jobs", get(jobs_of))
        .route("/users/{type}/{id}/reports", get(reports))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WantedReports {
    /// `made` (if left out) or `received`.
    side: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
    #[serde(rename = "org")]
    _org: Option<String>,
}

async fn one(
    State(api): State<Api>,
    caller: Caller,
    Path((type_id, id)): Path<(String, String)>,
    Query(_): Query<WholeList>,
) -> Result<Json<UserView>, Problem> {
    let user = ItemKey::new(type_id, id);
    let config = jobs::config(&api, &caller).await?;
    check(&api, &caller, &user, "/users/{type}/{id}").await?;
    let store = &api.deps.moderation.store;
    let view = users::view(store, &config, &user, caller.clearance(), Millis::now()).await;
    view.map_err(faults::moderation)?.map(Json).ok_or_else(|| {
        Problem::not_found("There is no such user: no item, strike, job, action or report names it.")
    })
}

/// Refuses types that are no users, and users with a child-safety job if the caller lacks its scope.
async fn check(api: &Api, caller: &Caller, user: &ItemKey, route: &str) -> Result<(), Problem> {
    let config = jobs::config(api, caller).await?;
    if config.item_type(&user.type_id).is_some_and(|item_type| !item_type.is_user()) {
        let detail = format!("`{}` is no type of users; a user's type has the kind `USER`.", user.type_id);
        return Err(invalid("", detail));
    }
    let object = format!("/users/{}/{}", user.type_id, user.id);
    child_safety::check_and_record(api, caller, std::slice::from_ref(user), route, object).await
}

async fn items(
    State(api): State<Api>,
    caller: Caller,
    Path((type_id, id)): Path<(String, String)>,
    Query(wanted): Query<Page>,
) -> Result<Json<List<stored::Answer>>, Problem> {
    const ROUTE: &str = "/users/{type}/{id}/items";
    let user = ItemKey::new(type_id, id);
    check(&api, &caller, &user, ROUTE).await?;
    let mut page = page::<ItemOfUser, _>(&api, wanted.limit, wanted.after()?)?;
    let store = &api.deps.moderation.store;
    let partition = |stretch| ItemOfUser::partition(caller.org.clone(), user.clone(), stretch);
    while let Some(pointers) = page.next::<ItemOfUser>(store, partition).await.map_err(faults::store)? {
        let keys: Vec<_> = pointers.iter().map(|it| key(&it.type_id, &it.item_id)).collect();
        let hidden = child_safety::hidden(&api, &caller, &keys).await?;
        let answers = users::items(store, &pointers).await.map_err(faults::moderation)?;
        let visible = keys.iter().zip(answers);
        page.add(&pointers, visible.map(|(key, it)| it.filter(|_| !hidden.contains(key))).collect());
    }
    let list = list(page);
    let shown: Vec<_> = list.items.iter().map(|it| key(&it.type_id, &it.id)).collect();
    let object = format!("/users/{}/{}/items", user.type_id, user.id);
    child_safety::check_and_record(&api, &caller, &shown, ROUTE, object).await?;
    Ok(Json(list))
}

async fn jobs_of(
    State(api): State<Api>,
    caller: Caller,
    Path((type_id, id)): Path<(String, String)>,
    Query(wanted): Query<Page>,
) -> Result<Json<List<Summary>>, Problem> {
    let user = ItemKey::new(type_id, id);
    check(&api, &caller, &user, "/users/{type}/{id}/jobs").await?;
    let mut page = page::<CaseOfUser, _>(&api, wanted.limit, wanted.after()?)?;
    let store = &api.deps.moderation.store;
    let partition = cases(&caller, &user, CaseKind::Job);
    while let Some(pointers) = page.next::<CaseOfUser>(store, &partition).await.map_err(faults::store)? {
        let jobs = users::jobs_of(store, &pointers, caller.clearance()).await;
        page.add(&pointers, jobs.map_err(faults::moderation)?);
    }
    Ok(Json(list(page)))
}

async fn reports(
    State(api): State<Api>,
    caller: Caller,
    Path((type_id, id)): Path<(String, String)>,
    Query(wanted): Query<WantedReports>,
) -> Result<Json<List<ReportEntry>>, Problem> {
    const ROUTE: &str = "/users/{type}/{id}/reports";
    let kind = match wanted.side.as_deref() {
        None | Some("made") => CaseKind::ReportMade,
        Some("received") => CaseKind::ReportReceived,
        Some(_) => return Err(invalid("", "`side` is made or received.")),
    };
    let user = ItemKey::new(type_id, id);
    check(&api, &caller, &user, ROUTE).await?;
    let from = wanted.cursor.as_deref().map(str::parse).transpose().map_err(|()| not_a_cursor())?;
    let mut page = page::<CaseOfUser, _>(&api, wanted.limit, from)?;
    let store = &api.deps.moderation.store;
    let partition = cases(&caller, &user, kind);
    while let Some(pointers) = page.next::<CaseOfUser>(store, &partition).await.map_err(faults::store)? {
        let keys: Vec<_> = pointers.iter().map(|it| it.item.clone()).collect();
        let hidden = child_safety::hidden(&api, &caller, &keys).await?;
        let reports = users::reports(store, &pointers, caller.clearance()).await;
        let visible = keys.iter().zip(reports.map_err(faults::moderation)?);
        page.add(&pointers, visible.map(|(key, it)| it.filter(|_| !hidden.contains(key))).collect());
    }
    let list = list(page);
    let shown: Vec<_> = list.items.iter().map(|it| it.item.clone()).collect();
    let object = format!("/users/{}/{}/reports", user.type_id, user.id);
    child_safety::check_and_record(&api, &caller, &shown, ROUTE, object).await?;
    Ok(Json(list))
}

fn key(type_id: &TypeId, id: &ItemId) -> ItemKey {
    ItemKey { type_id: type_id.clone(), id: id.clone() }
}

/// Returns the partition of a user's cases of a kind, by stretch.
fn cases(caller: &Caller, user: &ItemKey, kind: CaseKind) -> impl Fn(i64) -> <CaseOfUser as Row>::Partition {
    move |stretch| CaseOfUser::partition(caller.org.clone(), user.clone(), kind.as_str().to_owned(), stretch)
}

fn page<R: Fact, V>(
    api: &Api,
    wanted: Option<usize>,
    from: Option<DayPlace>,
) -> Result<user_history::Page<V>, Problem> {
    let limit = limit(api, wanted)?;
    Ok(user_history::Page::new::<R>(from, limit, api.settings.rows_per_page, Millis::now()))
}

fn list<V>(page: user_history::Page<V>) -> List<V> {
    let (items, next) = page.done();
    List { items, next: next.map(|place| place.to_string()) }
}
