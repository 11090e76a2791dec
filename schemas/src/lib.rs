//! Data formats shared by all crates, and their validation: requests, responses, records, documents, ids and item
//! types. Behaviour of the service stands in `tidegate-moderation`.

pub mod banks;
pub mod documents;
pub mod duration;
mod folder;
pub mod hex;
pub mod history;
pub mod ids;
pub mod item_types;
pub mod json;
pub mod names;
pub mod nearest;
pub mod openapi;
pub mod records;
pub mod string_enum;
pub mod validation_error;
pub mod wire;

pub use folder::Folder;
pub use hex::hex;
pub use nearest::{hint, nearest};
