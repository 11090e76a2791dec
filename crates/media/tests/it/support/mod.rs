//! Files that tests are run with, and helpers to hash them.

pub(crate) mod animated_files;
#[path = "../../../../image_decode/tests/it/support/bombs/mod.rs"]
pub(crate) mod bombs;
pub(crate) mod fingerprints;
pub(crate) mod pdq_oracle;
#[path = "../../../../image_decode/tests/it/support/pictures.rs"]
pub(crate) mod pictures;
