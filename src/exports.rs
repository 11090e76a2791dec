//! Role `export`: runs the exports of `export.schedules`.

use std::{path::Path, sync::Arc};

use futures::{FutureExt as _, future::BoxFuture};
use tidegate_exporter::schedule::{self, DayExport, DayExportError, Deps, FileSummary, Schedule};
use tidegate_store::{Store, system_clock};
use tidegate_stream::consumer::inbox::DrainResult;

use crate::{
    roles::{Phase, Role},
    settings::Settings,
};

pub(crate) const ROLE_NAME: &str = "export";

/// Folder for files before they are sent, below the data folder.
const WORK_FOLDER: &str = "export";

/// Returns the export of single days from the store.
pub(crate) fn build_day_export(_store: &Store) -> Arc<dyn DayExport> {
    Arc::new(MissingDayExport)
}

/// Refuses every day.
struct MissingDayExport;

impl DayExport for MissingDayExport {
    fn export_day<'a>(
        &'a self,
        _: &'a Schedule,
        _: i64,
        _: &'a Path,
    ) -> BoxFuture<'a, Result<Vec<FileSummary>, DayExportError>> {
        let text = "this build cannot write the rows of a day: install a later version";
        async move { Err(DayExportError::Failed(text.to_owned())) }.boxed()
    }
}

/// Creates the role. The destinations are opened again, because their variables and files may have changed since the check.
pub(crate) fn create_role(settings: &Settings, store: &Store) -> anyhow::Result<Role> {
    let schedules = settings.export.open(|name| std::env::var(name).ok())?;
    let deps = Deps {
        store: store.clone(),
        exporter: build_day_export(store),
        clock: system_clock(),
        work_folder: settings.data.folder.join(WORK_FOLDER),
    };
    let export_settings = settings.export.clone();
    Ok(Role::new(ROLE_NAME, Phase::Worker, move |stop| async move {
        schedule::run(deps, export_settings, schedules, stop).await?;
        // A day in work is dropped at a stop and exported again later, so no work is lost.
        Ok(DrainResult::Clean)
    }))
}
