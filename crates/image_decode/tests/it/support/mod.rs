//! Files that tests are run with.

pub(crate) mod pictures;
