//! The files that a conversion reads: from a folder, an archive, single files or standard input.
//!
//! What stands in them is the adapters' to know.

mod files;
pub(crate) mod lines;
mod sniff;
mod stream;
pub(crate) mod table;

pub(crate) use self::{
    files::{Input, Member, name_of},
    sniff::{Role, missing, one_of, pairs, role},
    stream::{Ended, Stream},
};

/// What a hostile or broken input may cost. Every bound can be raised.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of one row.
    pub record: usize,
    /// How many times its packed size a file may become, once it is larger than 64 MiB.
    pub expansion: u64,
    /// Bytes that rows may take up while they are put in order; what is more goes to disk.
    pub memory: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { record: 16 << 20, expansion: 250, memory: 256 << 20 }
    }
}
