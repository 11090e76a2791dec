//! `/admin/v1/items`: items by their id alone, whatever their type.

use axum::{Json, Router, extract::State, routing::get};
use serde::Deserialize;
use tidegate_moderation::items::stored;
use tidegate_schemas::ids::{ItemId, ItemKey};
use tidegate_web::{Problem, Query};

use super::{Api, List, caller::Caller, child_safety, faults, jobs};

pub(super) fn routes() -> Router<Api> {
    Router::new().route("/items", get(list))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ItemsQuery {
    id: ItemId,
    #[serde(rename = "org")]
    _org: Option<String>,
}

/// Lists the newest version of the item with this id of each configured type.
async fn list(
    State(api): State<Api>,
    caller: Caller,
    Query(ItemsQuery { id, .. }): Query<ItemsQuery>,
) -> Result<Json<List<stored::Answer>>, Problem> {
    let config = jobs::config(&api, &caller).await?;
    let mut items = Vec::new();
    let of_type = |type_id| ItemKey { type_id, id: id.clone() };
    let keys: Vec<_> = config.item_types().map(|item_type| of_type(item_type.key.clone())).collect();
    child_safety::check_and_record(&api, &caller, &keys, "/items", format!("/items?id={id}")).await?;
    for key in keys {
        let found = stored::answer(&api.deps.moderation.store, &caller.org, &key, None).await;
        items.extend(found.map_err(faults::moderation)?);
    }
    Ok(Json(List::whole(items)))
}
