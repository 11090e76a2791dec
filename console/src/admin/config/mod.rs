//! Documents of an org's configuration, and views of its policies and endpoints.

pub(crate) mod documents;
pub(crate) mod endpoints;
pub(crate) mod policies;
