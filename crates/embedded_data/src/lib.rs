//! Data folder of the embedded database: reads fjall's journals and tables before the database opens them and refuses lost writes
//! (`data_folder`, `journals`, `tables`, `unflushed_rows`), records durable writes (`durable_mark`), and measures free space
//! (`disk_space`). The log and the store that write to the database are in `tidegate-stream` and `tidegate-store`.

mod data_folder;
mod disk_space;
mod durable_mark;
mod journals;
mod layout;
mod open_database;
mod permissions;
mod tables;
mod unflushed_rows;

pub use self::{
    data_folder::{DatabaseSettings, LockedDataFolder, closing_handle, may_hold_data},
    disk_space::{DiskCapacity, DiskSpace},
    durable_mark::{DurableMark, DurableState, LOG_SYNCS_KEY, STORE_SYNCS_KEY},
    layout::folder_in,
    open_database::OpenDatabase,
};
