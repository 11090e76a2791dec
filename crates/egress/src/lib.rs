//! One guarded outgoing attempt to an address that an organisation or a payload can name, and the signature on it.
//! Not responsible for when to try again, nor for where the attempt is recorded.

pub mod addresses;
pub mod callback;
pub mod client;
pub mod failure;
pub mod media;
pub mod outcomes;
pub mod resolver;
pub mod settings;
pub mod signature;
pub mod target;

pub use client::Client;
pub use failure::Failure;
pub use settings::Settings;
pub use signature::Secret;
