//! Writes one HTML page about a bundle that opens offline. All figures come from one reading of the bundle.

mod agreement;
mod bundle_content;
mod data_card_words;
mod html;
mod opinion_map;
mod participation;
mod policy_figures;
mod sections;
mod vote_lists;

use std::{
    io,
    path::{Path, PathBuf},
};

use self::bundle_content::BundleContent;
use crate::{
    bundle::invalid_json::InvalidJson,
    error::ConvertError,
    form::Naming,
    tables::{PartialFile, publish},
    unpack::Source,
};

/// Type of a phase in which participants vote on statements.
const OPINION: &str = "opinion";
/// Type of an outcome that records a decision of the service.
const MODERATION_DECISION: &str = "moderation-decision";
/// Default number of items that the page lists for each phase.
pub const DEFAULT_MAX_ITEMS: usize = 200;
/// Default number of votes above which the page has no opinion map: 160 MB of memory.
pub const DEFAULT_MAX_MAP_VOTES: usize = 20_000_000;

/// Options of a page.
#[derive(Clone, Debug)]
pub struct PageOptions {
    pub naming: Naming,
    /// Required value of `schema`; the naming's own URL by default.
    pub schema_url: Option<String>,
    /// Maximum number of items to list for each phase.
    pub max_items: usize,
    /// Maximum number of votes for the opinion map, which keeps them in memory.
    pub max_map_votes: usize,
}

impl Default for PageOptions {
    fn default() -> Self {
        Self {
            naming: Naming::default(),
            schema_url: None,
            max_items: DEFAULT_MAX_ITEMS,
            max_map_votes: DEFAULT_MAX_MAP_VOTES,
        }
    }
}

/// Reason that a document has no page.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    #[error(transparent)]
    Invalid(#[from] InvalidJson),
    #[error("the document is not a bundle: run `tidegate bundle validate` for details")]
    NotABundle,
}

impl From<io::Error> for PageError {
    fn from(error: io::Error) -> Self {
        Self::Invalid(error.into())
    }
}

/// Page about a bundle.
#[derive(Clone, Debug)]
pub struct Page {
    pub html: String,
    /// Number of locations in the bundle that violate a rule of the form. The page mentions them.
    pub findings: u64,
}

/// Reads a bundle and builds its page.
///
/// # Errors
/// If the document cannot be read, has a syntax error, or is not a bundle.
pub fn build_page(source: &mut dyn Source, options: &PageOptions) -> Result<Page, PageError> {
    let schema = options.schema_url.as_deref();
    let mut content = BundleContent::read(source, options.naming, schema, options.max_map_votes)?;
    if content.is_empty() {
        return Err(PageError::NotABundle);
    }
    let html = sections::render(&mut content, options);
    Ok(Page { html, findings: content.findings })
}

impl Page {
    /// Writes the page under a temporary name, and renames it once it is on disk.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<PathBuf, ConvertError> {
        let mut file = PartialFile::create(path.to_owned())?;
        file.write(self.html.as_bytes())?;
        Ok(publish(vec![file.finish()?])?.pop().unwrap_or_default())
    }
}
