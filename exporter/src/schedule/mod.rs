//! Exports that run regularly: each whole day of an organisation into a folder or bucket.
//!
//! `run_state` decides, `runner` works. The rows of a day are written by a [`DayExport`].

pub mod cron;
mod manifest;
pub mod metrics;
mod run_state;
mod runner;
mod settings;

pub use self::{
    manifest::{DayManifest, FileSummary, manifest_key},
    runner::{DayExport, DayExportError, Deps, SchedulePanic, run},
    settings::{
        BundleProfile, BundleSettings, ColumnProfile, FileFormat, Schedule, ScheduleSettings, Settings,
        SettingsError, TextTreatment,
    },
};
