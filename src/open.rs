//! Opens what the roles work on: the log, the store, keys and secrets, and the live configurations.
//!
//! It starts no role. Embedded, log and store share one database; that is why both are opened here.

use std::{fs, path::Path, sync::Arc};

use anyhow::{Context as _, bail};
use tidegate_catalog::{Keys, Live, MasterKey, Secrets};
use tidegate_store::Store;
use tidegate_stream::{EngineKind, Log};

use crate::settings::{Settings, StoreEngine};

/// Everything, opened once a process.
pub(crate) struct Opened {
    pub(crate) log: Log,
    pub(crate) store: Store,
    pub(crate) live: Arc<Live>,
    pub(crate) keys: Keys,
    pub(crate) secrets: Secrets,
}

/// The folder of the database inside the data folder.
const DATABASE: &str = "db";

pub(crate) async fn open(settings: &Settings) -> anyhow::Result<Opened> {
    let embedded = !settings.embedded_parts().is_empty();
    if embedded {
        make_folder(&settings.data.folder)?;
    }
    let (log, store) = log_and_store(settings).await?;
    let data = embedded.then_some(settings.data.folder.as_path());
    let master = MasterKey::load(&settings.security, data)?;
    let keys = Keys::new(store.clone(), &settings.catalog);
    let secrets = Secrets::new(store.clone(), master, &settings.catalog);
    let live = Live::open(store.clone(), settings.catalog.clone())
        .await
        .context("the configurations cannot be loaded")?;
    Ok(Opened { log, store, live: Arc::new(live), keys, secrets })
}

async fn log_and_store(settings: &Settings) -> anyhow::Result<(Log, Store)> {
    let database = match settings.embedded_parts().as_slice() {
        [] => None,
        _ => Some(database(&settings.data.folder).await?),
    };
    let log = match (settings.stream.engine, &database) {
        (EngineKind::Embedded, Some(database)) => {
            let (database, settings) = (database.clone(), settings.stream.clone());
            tokio::task::spawn_blocking(move || Log::open_embedded(database, &settings)).await??
        }
        _ => Log::open_kafka(settings.stream.clone()).await?,
    };
    let store = match (settings.store.engine, database) {
        (StoreEngine::Embedded, Some(database)) => {
            let settings = settings.store.embedded.clone();
            tokio::task::spawn_blocking(move || Store::open_embedded(&database, settings)).await??
        }
        _ => cql(settings).await?,
    };
    Ok((log, store))
}

/// A store whose tables are not those of this version must not be written to.
async fn cql(settings: &Settings) -> anyhow::Result<Store> {
    let store = Store::open_cql(settings.store.cql.clone()).await?;
    let missing = store.migrate(tidegate_store::Migration::Check).await?;
    if !missing.is_empty() {
        let list: Vec<_> = missing.iter().map(ToString::to_string).collect();
        bail!("the store lacks {}: run `tidegate store migrate`", list.join(", "));
    }
    Ok(store)
}

async fn database(folder: &Path) -> anyhow::Result<fjall::Database> {
    let path = folder.join(DATABASE);
    let shown = path.display().to_string();
    let opened = tokio::task::spawn_blocking(move || fjall::Database::builder(&path).open()).await?;
    match opened {
        Ok(database) => Ok(database),
        Err(fjall::Error::Locked) => bail!(
            "{shown} is open in another process: one process opens embedded data, every command reaches it through \
             the admin API of that process"
        ),
        Err(error) => Err(error).with_context(|| format!("{shown} cannot be opened")),
    }
}

/// Only its owner may look into it: it holds what platforms sent, and keys.
pub(crate) fn make_folder(folder: &Path) -> anyhow::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder).with_context(|| format!("the data folder {} cannot be made", folder.display()))
}
