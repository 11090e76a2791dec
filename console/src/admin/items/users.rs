//! `/admin/v1/users/{typeId}/{id}`: shows a user's strikes, standing, actions and report outcomes, and lists the user's items,
//! jobs and reports.

use axum::{Json, Router, extract::State, routing::get};
use serde::Deserialize;
use tidegate_moderation::{
    items::stored,
    jobs::summary::JobSummaryResponse,
    users::{
        lists::{self, UserReportResponse},
        view::{self, UserResponse},
    },
};
use tidegate_schemas::ids::{ItemId, ItemKey, Millis, TypeId};
use tidegate_store::{
    DayCursor, Fact, Row,
    tables::items::by_user::{CaseKind, CaseOfUser, ItemOfUser},
};
use tidegate_web::{Path, Problem, Query};

use super::user_history;
use crate::{
    admin::{
        access::child_safety,
        request::{Caller, PageQuery, UnpagedQuery, faults, invalid, load_config, not_a_cursor, page_limit},
    },
    api::{Api, ListResponse},
};

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route("/users/{type}/{id}", get(get_user))
        .route("/users/{type}/{id}/items", get(list_items))
        .route("/users/{type}/{id}/jobs", get(list_jobs))
        .route("/users/{type}/{id}/reports", get(list_reports))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ListReportsQuery {
    /// `made` (default) or `received`.
    side: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
    #[serde(rename = "org")]
    _org: Option<String>,
}

async fn get_user(
    State(api): State<Api>,
    caller: Caller,
    Path((type_id, id)): Path<(String, String)>,
    Query(_): Query<UnpagedQuery>,
) -> Result<Json<UserResponse>, Problem> {
    let user = ItemKey::new(type_id, id);
    let config = load_config(&api, &caller).await?;
    authorize_user(&api, &caller, &user, "/users/{type}/{id}").await?;
    let store = &api.deps.moderation.store;
    let view = view::load_view(store, &config, &user, caller.clearance(), Millis::now()).await;
    view.map_err(faults::moderation_problem)?.map(Json).ok_or_else(|| {
        Problem::not_found("There is no such user: no item, strike, job, action or report names it.")
    })
}

/// Refuses item types that are not user types, and users with a child-safety job if the caller lacks its scope.
async fn authorize_user(api: &Api, caller: &Caller, user: &ItemKey, route: &str) -> Result<(), Problem> {
    let config = load_config(api, caller).await?;
    // A type missing from the configuration is not refused: users of a removed type keep their history.
    if config.item_type(&user.type_id).is_some_and(|item_type| !item_type.is_user()) {
        let detail = format!("`{}` is not a user type: user types have the kind `USER`.", user.type_id);
        return Err(invalid("", detail));
    }
    let object = format!("/users/{}/{}", user.type_id, user.id);
    child_safety::authorize_items_view(api, caller, std::slice::from_ref(user), route, object).await
}

async fn list_items(
    State(api): State<Api>,
    caller: Caller,
    Path((type_id, id)): Path<(String, String)>,
    Query(query): Query<PageQuery>,
) -> Result<Json<ListResponse<stored::ItemResponse>>, Problem> {
    const ROUTE: &str = "/users/{type}/{id}/items";
    let user = ItemKey::new(type_id, id);
    authorize_user(&api, &caller, &user, ROUTE).await?;
    // Withheld items leave gaps, so pointers are read until the page is full.
    let mut page = start_page::<ItemOfUser, _>(&api, query.limit, query.parse_cursor()?)?;
    let store = &api.deps.moderation.store;
    let partition = |stretch| ItemOfUser::partition(caller.org.clone(), user.clone(), stretch);
    while let Some(pointers) =
        page.next::<ItemOfUser>(store, partition).await.map_err(faults::store_problem)?
    {
        let keys: Vec<_> =
            pointers.iter().map(|pointer| item_key(&pointer.type_id, &pointer.item_id)).collect();
        let withheld_items = child_safety::find_withheld_items(&api, &caller, &keys).await?;
        let answers = lists::load_items(store, &pointers).await.map_err(faults::moderation_problem)?;
        let visible = keys.iter().zip(answers);
        page.add(
            &pointers,
            visible.map(|(key, item)| item.filter(|_| !withheld_items.contains(key))).collect(),
        );
    }
    // Rows can become restricted while the page is built, so the final list is authorized and its view recorded.
    let list = finish_page(page);
    let item_keys: Vec<_> = list.items.iter().map(|item| item_key(&item.type_id, &item.id)).collect();
    let object = format!("/users/{}/{}/items", user.type_id, user.id);
    child_safety::authorize_items_view(&api, &caller, &item_keys, ROUTE, object).await?;
    Ok(Json(list))
}

async fn list_jobs(
    State(api): State<Api>,
    caller: Caller,
    Path((type_id, id)): Path<(String, String)>,
    Query(query): Query<PageQuery>,
) -> Result<Json<ListResponse<JobSummaryResponse>>, Problem> {
    let user = ItemKey::new(type_id, id);
    authorize_user(&api, &caller, &user, "/users/{type}/{id}/jobs").await?;
    let mut page = start_page::<CaseOfUser, _>(&api, query.limit, query.parse_cursor()?)?;
    let store = &api.deps.moderation.store;
    let partition = case_partition(&caller, &user, CaseKind::Job);
    while let Some(pointers) =
        page.next::<CaseOfUser>(store, &partition).await.map_err(faults::store_problem)?
    {
        let jobs = lists::load_jobs(store, &pointers, caller.clearance()).await;
        page.add(&pointers, jobs.map_err(faults::moderation_problem)?);
    }
    Ok(Json(finish_page(page)))
}

async fn list_reports(
    State(api): State<Api>,
    caller: Caller,
    Path((type_id, id)): Path<(String, String)>,
    Query(query): Query<ListReportsQuery>,
) -> Result<Json<ListResponse<UserReportResponse>>, Problem> {
    const ROUTE: &str = "/users/{type}/{id}/reports";
    let kind = match query.side.as_deref() {
        None | Some("made") => CaseKind::ReportMade,
        Some("received") => CaseKind::ReportReceived,
        Some(_) => return Err(invalid("", "`side` is made or received.")),
    };
    let user = ItemKey::new(type_id, id);
    authorize_user(&api, &caller, &user, ROUTE).await?;
    let cursor = query.cursor.as_deref().map(str::parse).transpose().map_err(|_| not_a_cursor())?;
    let mut page = start_page::<CaseOfUser, _>(&api, query.limit, cursor)?;
    let store = &api.deps.moderation.store;
    let partition = case_partition(&caller, &user, kind);
    while let Some(pointers) =
        page.next::<CaseOfUser>(store, &partition).await.map_err(faults::store_problem)?
    {
        let keys: Vec<_> = pointers.iter().map(|pointer| pointer.item.clone()).collect();
        let withheld_items = child_safety::find_withheld_items(&api, &caller, &keys).await?;
        let reports = lists::load_reports(store, &pointers, caller.clearance()).await;
        let visible = keys.iter().zip(reports.map_err(faults::moderation_problem)?);
        page.add(
            &pointers,
            visible.map(|(key, report)| report.filter(|_| !withheld_items.contains(key))).collect(),
        );
    }
    // As for items: the final list is authorized and its view recorded.
    let list = finish_page(page);
    let item_keys: Vec<_> = list.items.iter().map(|report| report.item.clone()).collect();
    let object = format!("/users/{}/{}/reports", user.type_id, user.id);
    child_safety::authorize_items_view(&api, &caller, &item_keys, ROUTE, object).await?;
    Ok(Json(list))
}

fn item_key(type_id: &TypeId, id: &ItemId) -> ItemKey {
    ItemKey { type_id: type_id.clone(), id: id.clone() }
}

/// Returns the partition of a user's cases of one kind in a stretch.
fn case_partition(
    caller: &Caller,
    user: &ItemKey,
    kind: CaseKind,
) -> impl Fn(i64) -> <CaseOfUser as Row>::Partition {
    move |stretch| CaseOfUser::partition(caller.org.clone(), user.clone(), kind, stretch)
}

fn start_page<R: Fact, V>(
    api: &Api,
    requested_limit: Option<usize>,
    cursor: Option<DayCursor>,
) -> Result<user_history::HistoryPage<V>, Problem> {
    let limit = page_limit(api, requested_limit)?;
    Ok(user_history::HistoryPage::new::<R>(cursor, limit, api.settings.rows_per_page, Millis::now()))
}

fn finish_page<V>(page: user_history::HistoryPage<V>) -> ListResponse<V> {
    let (items, next) = page.finish();
    ListResponse { items, next: next.map(|place| place.to_string()) }
}
