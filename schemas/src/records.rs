//! What the topics carry.
