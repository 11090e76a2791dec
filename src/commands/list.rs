//! Prints a list of the admin API, page by page.

use serde::Deserialize;
use serde_json::Value;

use crate::{client::Client, output::print_line};

#[derive(Deserialize)]
struct Page {
    items: Vec<Value>,
    next: Option<String>,
}

/// Largest `limit` of one request.
const PAGE: usize = 100;

/// Prints up to `limit` entries of a list, one JSON object per line.
pub(super) async fn print(
    client: &Client,
    path: &str,
    filters: &[(&'static str, String)],
    limit: usize,
) -> anyhow::Result<()> {
    let (mut remaining, mut cursor) = (limit, None::<String>);
    while remaining > 0 {
        let mut query = filters.to_vec();
        query.push(("limit", remaining.min(PAGE).to_string()));
        query.extend(cursor.map(|cursor| ("cursor", cursor)));
        let page: Page = client.get(path, &query).await?;
        remaining = remaining.saturating_sub(page.items.len());
        page.items.iter().for_each(print_line);
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    Ok(())
}
