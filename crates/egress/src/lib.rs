//! Guarded HTTP client for addresses that an org or a payload can name. Sends signed callbacks, fetches
//! media, asks platforms for items and models for scores.
//!
//! Each call makes one attempt. Callers retry and record.

pub mod addresses;
pub mod callback;
pub mod client;
pub mod failure;
pub mod headers;
pub mod media;
pub mod outcome;
pub mod partial_items;
pub mod resolver;
pub mod score;
pub mod settings;
pub mod signature;
pub mod target;
pub mod tls;

pub use client::Client;
pub use failure::Failure;
pub use settings::Settings;
pub use signature::Secret;
