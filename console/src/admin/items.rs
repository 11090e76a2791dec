//! `/admin/v1/items`: items by their id alone, whatever their type.

use axum::{Json, Router, extract::State, routing::get};
use serde::Deserialize;
use tidegate_moderation::items::stored;
use tidegate_schemas::ids::{ItemId, ItemKey};
use tidegate_web::{Problem, Query};

use super::{Api, List, caller::Caller, faults, jobs};

pub(super) fn routes() -> Router<Api> {
    Router::new().route("/items", get(list))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    id: ItemId,
}

/// Lists the newest version of the item with this id of each configured type.
async fn list(
    State(api): State<Api>,
    caller: Caller,
    Query(Wanted { id }): Query<Wanted>,
) -> Result<Json<List<stored::Answer>>, Problem> {
    let config = jobs::config(&api, &caller).await?;
    let mut items = Vec::new();
    for item_type in config.item_types() {
        let key = ItemKey { type_id: item_type.key.clone(), id: id.clone() };
        let found = stored::answer(&api.deps.moderation.store, &caller.org, &key, None).await;
        items.extend(found.map_err(faults::moderation)?);
    }
    Ok(Json(List::whole(items)))
}
