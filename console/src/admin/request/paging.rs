//! Queries of lists: limit and cursor of a page.

use std::str::FromStr;

use serde::Deserialize;
use tidegate_web::Problem;

use super::refusals::{invalid, not_a_cursor};
use crate::api::Api;

/// Query of a list without filters and pages.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UnpagedQuery {
    #[serde(rename = "org")]
    _org: Option<String>,
}

/// Query of a list with pages and without filters.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageQuery {
    pub(crate) limit: Option<usize>,
    cursor: Option<String>,
    #[serde(rename = "org")]
    _org: Option<String>,
}

impl PageQuery {
    pub(crate) fn parse_cursor<C: FromStr>(&self) -> Result<Option<C>, Problem> {
        self.cursor.as_deref().map(str::parse).transpose().map_err(|_| not_a_cursor())
    }
}

/// Returns the requested number of entries of a page, within the bounds of the settings.
pub(crate) fn page_limit(api: &Api, requested_limit: Option<usize>) -> Result<usize, Problem> {
    match requested_limit {
        None => Ok(api.settings.page),
        Some(limit) if (1..=api.settings.page_most).contains(&limit) => Ok(limit),
        Some(_) => Err(invalid("", format!("`limit` is between 1 and {}.", api.settings.page_most))),
    }
}
