//! Items: evaluates a submission, stores it with its effects, and reads what is stored.

pub(crate) mod author;
pub mod batch;
pub mod context;
pub mod context_media;
pub mod evaluate;
pub mod history;
pub mod stored;
pub mod submissions;
mod waiting;
