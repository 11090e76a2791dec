//! Stored items and users, and the items fetched from platforms.

pub(crate) mod lookup;
pub(crate) mod partial_items;
mod user_history;
pub(crate) mod users;
