//! What the topics lead to: items, reports, appeals, decisions and strikes, each consumed in the order of its key.
//!
//! It decides nothing about content (`tidegate-moderation` does) and serves no request.

pub mod lanes;
