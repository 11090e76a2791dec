//! Files that tests are run with, and helpers to hash them.

pub(crate) mod animated_files;
pub(crate) mod bombs;
pub(crate) mod fingerprints;
pub(crate) mod pdq_oracle;
pub(crate) mod pictures;
