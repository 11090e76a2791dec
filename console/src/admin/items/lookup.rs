//! `/admin/v1/items`: finds items by their id alone, in all item types.

use axum::{Json, Router, extract::State, routing::get};
use serde::Deserialize;
use tidegate_moderation::items::stored;
use tidegate_schemas::ids::{ItemId, ItemKey};
use tidegate_web::{Problem, Query};

use crate::{
    admin::{
        access::child_safety,
        request::{Caller, faults, load_config},
    },
    api::{Api, ListResponse},
};

pub(crate) fn routes() -> Router<Api> {
    Router::new().route("/items", get(list_items))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListItemsQuery {
    id: ItemId,
    #[serde(rename = "org")]
    _org: Option<String>,
}

/// Lists the newest version of each item with this id, one per configured type.
async fn list_items(
    State(api): State<Api>,
    caller: Caller,
    Query(ListItemsQuery { id, .. }): Query<ListItemsQuery>,
) -> Result<Json<ListResponse<stored::ItemResponse>>, Problem> {
    let config = load_config(&api, &caller).await?;
    let mut items = Vec::new();
    let key_of_type = |type_id| ItemKey { type_id, id: id.clone() };
    let keys: Vec<_> = config.item_types().map(|item_type| key_of_type(item_type.key.clone())).collect();
    // Checked for all keys before the first row is read, so that a refusal shows no part of the answer.
    child_safety::authorize_items_view(&api, &caller, &keys, "/items", format!("/items?id={id}")).await?;
    for key in keys {
        let item = stored::load_answer(&api.deps.moderation.store, &caller.org, &key, None).await;
        items.extend(item.map_err(faults::moderation_problem)?);
    }
    Ok(Json(ListResponse::unpaged(items)))
}
