//! The role `deliver` on the embedded engine, in a temporary folder, with receivers on loopback.

mod commands;
mod crashes;
mod delivery;
mod receiver;
mod world;
