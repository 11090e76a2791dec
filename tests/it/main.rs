//! Tests of the program `tidegate` itself: started as an operator starts it and spoken to over HTTP and its command line.

#![allow(clippy::unwrap_used)]

mod actions;
mod admin_api;
mod banks;
mod banks_guide;
mod banks_withdrawn;
mod bundle_commands;
mod bundle_convert;
mod bundle_export;
mod callbacks;
mod child_safety;
mod clearance;
mod commands;
mod console;
mod content;
mod data_folder;
mod demo;
mod disk_full;
mod exports;
mod lost_data;
mod media;
mod partial_items;
mod queues;
mod related_decisions;
mod rules_files;
mod rules_input;
mod rules_on_items;
mod settings;
mod support;
mod two_orgs;
mod users;
mod versions;
mod waiting;
