//! Published OpenAPI 3.1 description of the platform API: routes, bodies, errors and callbacks.

/// Text of the served document.
pub const DOCUMENT: &str = include_str!("../openapi.json");
