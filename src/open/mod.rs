//! Opens the parts that all roles share: the log, the store, keys and secrets, and the live configurations.
//!
//! The embedded log and store share one database, so both are opened here.

use std::{fs, path::Path, sync::Arc};

use anyhow::{Context as _, bail};
use tidegate_catalog::{Error as CatalogError, Keys, LiveConfigs, MasterKey, Secrets};
use tidegate_embedded_data::{DatabaseSettings, DiskSpace, DurableMark, LockedDataFolder, OpenDatabase};
use tidegate_store::Store;
use tidegate_stream::{Log, settings::EngineKind};

use crate::{
    open_files,
    retry_open::{OpenError, OpenRetry},
    settings::{Settings, StoreEngine},
};

/// Embedded database with the mark of its durable writes.
type Embedded = (fjall::Database, Arc<DurableMark>);

/// Parts that all roles share, opened once per process.
pub(crate) struct SharedParts {
    pub(crate) log: Log,
    pub(crate) store: Store,
    pub(crate) live: Arc<LiveConfigs>,
    pub(crate) keys: Keys,
    pub(crate) secrets: Secrets,
    /// `None` if neither log nor store is embedded.
    pub(crate) database: Option<OpenDatabase>,
}

/// Opens all parts. Unavailable servers are retried; errors in settings or data end the start at once.
pub(crate) async fn open(settings: &Settings, retry: &OpenRetry) -> anyhow::Result<SharedParts> {
    let has_embedded_data = !settings.embedded_parts().is_empty();
    let data = has_embedded_data.then_some(settings.data.folder.as_path());
    let mut folder = None;
    if let Some(data) = data {
        create_folder(data)?;
        // Locked before a master key is created: two processes that start at once must not create two.
        folder = Some(LockedDataFolder::lock(data, settings.data.accepts_loss)?);
        check_master_key_exists(settings)?;
    }
    let master_key = MasterKey::load(&settings.security, data)?;
    let embedded = match folder {
        None => None,
        // Reading the journals may take long and must not block a worker of the runtime.
        Some(folder) => {
            let settings = DatabaseSettings::new(open_files::max_open_tables());
            Some(tokio::task::spawn_blocking(move || folder.open_database(settings)).await??)
        }
    };
    // Kept for the diagnosis of an error: opening log and store reads table files, which may be damaged.
    let database = embedded
        .as_ref()
        .zip(data)
        .map(|((database, _), data)| tidegate_embedded_data::closing_handle(data, database));
    match open_with_database(settings, embedded, master_key, retry).await {
        Ok((log, store, keys, secrets, live)) => {
            Ok(SharedParts { log, store, live, keys, secrets, database })
        }
        Err(error) => {
            let Some(database) = database else { return Err(error) };
            // Reading all table files may take long and must not block a worker either.
            Err(tokio::task::spawn_blocking(move || database.name_damage(error)).await?)
        }
    }
}

/// Parts that depend on log and store, before they form [`SharedParts`].
type OpenedParts = (Log, Store, Keys, Secrets, Arc<LiveConfigs>);

async fn open_with_database(
    settings: &Settings,
    embedded: Option<Embedded>,
    master_key: MasterKey,
    retry: &OpenRetry,
) -> anyhow::Result<OpenedParts> {
    let (log, store) = open_log_and_store(settings, embedded, retry).await?;
    let keys = Keys::new(store.clone(), &settings.catalog);
    let secrets = Secrets::new(store.clone(), master_key, &settings.catalog);
    let lost_master_key = settings.security.lost_master_key.as_deref();
    // Claimed before a role starts: secrets sealed under a wrong key could not be opened later.
    let claim = retry.open("master key", async || {
        secrets.claim_store(lost_master_key).await.map_err(|error| {
            let is_outage = error.is_outage();
            OpenError::new(error, is_outage)
        })
    });
    claim.await?;
    let live = retry.open("configurations", async || {
        let open_result = LiveConfigs::open(store.clone(), settings.catalog.clone()).await;
        open_result.map_err(|error| {
            let is_outage = matches!(&error, CatalogError::Store(error) if error.is_outage());
            OpenError::new(error, is_outage)
        })
    });
    let live = live.await.context("the configurations cannot be loaded")?;
    Ok((log, store, keys, secrets, Arc::new(live)))
}

/// Fails if there is data but no master key. The key is created before the database, so it must have been lost, and a new
/// key could not open the stored secrets.
fn check_master_key_exists(settings: &Settings) -> anyhow::Result<()> {
    let (security, folder) = (&settings.security, &settings.data.folder);
    let file = MasterKey::key_file_path(folder);
    let is_named = security.master_key.is_some() || security.master_key_file.is_some();
    if is_named || file.exists() || !tidegate_embedded_data::may_hold_data(folder) {
        return Ok(());
    }
    bail!(
        "the master key {} is missing, and secrets in {} are sealed under it: put it back, or name the key as \
         security.master_key or security.master_key_file",
        file.display(),
        tidegate_embedded_data::folder_in(folder).display()
    )
}

async fn open_log_and_store(
    settings: &Settings,
    database: Option<Embedded>,
    retry: &OpenRetry,
) -> anyhow::Result<(Log, Store)> {
    let disk = Arc::new(DiskSpace::of(&tidegate_embedded_data::folder_in(&settings.data.folder)));
    let log = async {
        match (settings.stream.engine, &database) {
            (EngineKind::Embedded, Some(database)) => {
                let ((database, mark), settings) = (database.clone(), settings.stream.clone());
                let disk = Arc::clone(&disk);
                let open = move || Log::open_embedded_marked(database, &settings, mark, disk);
                Ok(tokio::task::spawn_blocking(open).await??)
            }
            // An embedded engine always has its database here, so this is Kafka.
            _ => retry.open("log", async || open_kafka(settings).await).await,
        }
    };
    let store = async {
        match (settings.store.engine, &database) {
            (StoreEngine::Embedded, Some(database)) => {
                let ((database, mark), settings) = (database.clone(), settings.store.embedded.clone());
                let disk = Arc::clone(&disk);
                let open = move || Store::open_embedded_marked(&database, settings, mark, disk);
                Ok(tokio::task::spawn_blocking(open).await??)
            }
            _ => retry.open("store", async || open_cql(settings).await).await,
        }
    };
    if settings.stream.engine == EngineKind::Embedded {
        // The log opens first: it may refuse because records are missing, and the store must not have written to their database by then.
        return Ok((log.await?, store.await?));
    }
    // Opened concurrently: each unavailable server is reported, and a refusal by one does not wait for the other.
    tokio::try_join!(log, store)
}

/// Opens a store on servers, for a process that needs no other part.
pub(crate) async fn open_shared_store(settings: &Settings, retry: &OpenRetry) -> anyhow::Result<Store> {
    retry.open("store", async || open_cql(settings).await).await
}

async fn open_kafka(settings: &Settings) -> Result<Log, OpenError> {
    Log::open_kafka(settings.stream.clone()).await.map_err(|error| {
        let is_outage = error.is_outage();
        OpenError::new(error, is_outage)
    })
}

/// Opens the store, and refuses one with tables that differ from those of this version, because it must not be written to.
async fn open_cql(settings: &Settings) -> Result<Store, OpenError> {
    let classify_error = |error: tidegate_store::Error| {
        let is_outage = error.is_outage();
        OpenError::new(error, is_outage)
    };
    let store = Store::open_cql(settings.store.cql.clone()).await.map_err(classify_error)?;
    let missing_parts = store.migrate(tidegate_store::Migration::Check).await.map_err(classify_error)?;
    if !missing_parts.is_empty() {
        let part_names: Vec<_> = missing_parts.iter().map(ToString::to_string).collect();
        let text = format!("the store lacks {}: run `tidegate store migrate`", part_names.join(", "));
        return Err(OpenError::Refused(anyhow::Error::msg(text)));
    }
    Ok(store)
}

/// Creates a folder that only its owner may read, because it holds items of platforms and keys.
pub(crate) fn create_folder(folder: &Path) -> anyhow::Result<()> {
    // The permissions of an existing folder are the operator's choice.
    if folder.is_dir() {
        return Ok(());
    }
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder).with_context(|| format!("the data folder {} cannot be created", folder.display()))
}

#[cfg(test)]
mod loss_tests;
