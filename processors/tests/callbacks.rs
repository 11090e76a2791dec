//! The role `deliver` on the embedded engine, in a temporary folder, with receivers on loopback.
#![allow(clippy::unwrap_used)]

#[path = "callbacks/commands.rs"]
mod commands;
#[path = "callbacks/crashes.rs"]
mod crashes;
#[path = "callbacks/delivery.rs"]
mod delivery;
#[path = "callbacks/receiver.rs"]
mod receiver;
#[path = "callbacks/world.rs"]
mod world;
