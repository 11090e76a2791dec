//! Access to the API: keys, orgs, the audit of requests, and the scope of child-safety material.

pub(crate) mod audit;
mod audit_clearance;
pub(crate) mod child_safety;
pub(crate) mod keys;
pub(crate) mod orgs;
