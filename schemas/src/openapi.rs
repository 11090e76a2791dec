//! The published description of the platform API: routes, bodies, errors and callbacks, as OpenAPI 3.1.

/// The document as it is served.
pub const DOCUMENT: &str = include_str!("../openapi.json");
