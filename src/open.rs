//! Opens what the roles work on: the log, the store, keys and secrets, and the live configurations.
//!
//! It starts no role. Embedded, log and store share one database; that is why both are opened here.

use std::{fs, path::Path, sync::Arc};

use anyhow::{Context as _, bail};
use tidegate_catalog::{Error as CatalogError, Keys, Live, MasterKey, Secrets};
use tidegate_schemas::DiskSpace;
use tidegate_store::Store;
use tidegate_stream::{Log, settings::EngineKind};

use crate::{
    database::{self, Starting},
    settings::{Settings, StoreEngine},
    waiting::{Fault, Patience},
};

/// Everything, opened once a process.
pub(crate) struct Opened {
    pub(crate) log: Log,
    pub(crate) store: Store,
    pub(crate) live: Arc<Live>,
    pub(crate) keys: Keys,
    pub(crate) secrets: Secrets,
}

/// Opens all of it. Servers that are away are waited for; what is wrong with the settings or the data is told at once.
pub(crate) async fn open(settings: &Settings, patience: &Patience) -> anyhow::Result<Opened> {
    let embedded = !settings.embedded_parts().is_empty();
    let data = embedded.then_some(settings.data.folder.as_path());
    let mut starting = None;
    if let Some(data) = data {
        make_folder(data)?;
        starting = Some(Starting::on(data, settings.data.accepts_loss)?);
        has_its_key(settings)?;
    }
    let master = MasterKey::load(&settings.security, data)?;
    let (log, store) = log_and_store(settings, starting, patience).await?;
    let keys = Keys::new(store.clone(), &settings.catalog);
    let secrets = Secrets::new(store.clone(), master, &settings.catalog);
    let lost = settings.security.lost_master_key.as_deref();
    let claimed = patience.open("master key", async || {
        secrets.claim(lost).await.map_err(|error| {
            let is_outage = error.is_outage();
            Fault::of(error, is_outage)
        })
    });
    claimed.await?;
    let live = patience.open("configurations", async || {
        let opened = Live::open(store.clone(), settings.catalog.clone()).await;
        opened.map_err(|error| {
            let is_outage = matches!(&error, CatalogError::Store(error) if error.is_outage());
            Fault::of(error, is_outage)
        })
    });
    let live = live.await.context("the configurations cannot be loaded")?;
    Ok(Opened { log, store, live: Arc::new(live), keys, secrets })
}

/// A new key would open none of the secrets that the data holds. The key is made before the database, so data
/// without one has lost it.
fn has_its_key(settings: &Settings) -> anyhow::Result<()> {
    let (security, folder) = (&settings.security, &settings.data.folder);
    let file = MasterKey::file_in(folder);
    let is_named = security.master_key.is_some() || security.master_key_file.is_some();
    if is_named || file.exists() || !database::is_in(folder) {
        return Ok(());
    }
    bail!(
        "the master key {} is missing, and secrets in {} are sealed under it: put it back, or name the key as \
         security.master_key or security.master_key_file",
        file.display(),
        database::folder_in(folder).display()
    )
}

async fn log_and_store(
    settings: &Settings,
    starting: Option<Starting>,
    patience: &Patience,
) -> anyhow::Result<(Log, Store)> {
    let database = match starting {
        None => None,
        Some(starting) => Some(tokio::task::spawn_blocking(move || starting.open_database()).await??),
    };
    let disk = Arc::new(DiskSpace::of(&database::folder_in(&settings.data.folder)));
    let log = async {
        match (settings.stream.engine, &database) {
            (EngineKind::Embedded, Some(database)) => {
                let ((database, mark), settings) = (database.clone(), settings.stream.clone());
                let disk = Arc::clone(&disk);
                let open = move || Log::open_embedded_marked(database, &settings, mark, disk);
                Ok(tokio::task::spawn_blocking(open).await??)
            }
            _ => patience.open("log", async || kafka(settings).await).await,
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
            _ => patience.open("store", async || cql(settings).await).await,
        }
    };
    if settings.stream.engine == EngineKind::Embedded {
        // It may refuse because something is missing, and the store must not have written to the same database by then.
        return Ok((log.await?, store.await?));
    }
    // Beside each other, so that each that is away is named, and a refusal of one does not wait for the other.
    tokio::try_join!(log, store)
}

async fn kafka(settings: &Settings) -> Result<Log, Fault> {
    Log::open_kafka(settings.stream.clone()).await.map_err(|error| {
        let is_outage = error.is_outage();
        Fault::of(error, is_outage)
    })
}

/// A store whose tables are not those of this version must not be written to.
async fn cql(settings: &Settings) -> Result<Store, Fault> {
    let fault = |error: tidegate_store::Error| {
        let is_outage = error.is_outage();
        Fault::of(error, is_outage)
    };
    let store = Store::open_cql(settings.store.cql.clone()).await.map_err(fault)?;
    let missing = store.migrate(tidegate_store::Migration::Check).await.map_err(fault)?;
    if !missing.is_empty() {
        let list: Vec<_> = missing.iter().map(ToString::to_string).collect();
        let text = format!("the store lacks {}: run `tidegate store migrate`", list.join(", "));
        return Err(Fault::Refused(anyhow::Error::msg(text)));
    }
    Ok(store)
}

/// Creates a folder that only its owner may read: it holds what platforms sent, and keys.
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
