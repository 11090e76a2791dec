//! Items: evaluates submissions, stores them with their effects, and reads stored items.

pub(crate) mod author;
pub mod batch;
pub mod context;
pub mod context_media;
pub mod evaluate;
pub mod history;
pub mod stored;
pub mod submissions;
mod waiting;
