//! Parts shared by all handlers: reads the caller, the query and the body of a request, and builds refusals and long answers.

pub(crate) mod caller;
mod extract;
pub(crate) mod faults;
mod live_config;
pub(crate) mod long_answers;
mod paging;
mod refusals;

pub(crate) use self::{
    caller::Caller,
    extract::{Body, parse_id},
    live_config::load_config,
    paging::{PageQuery, UnpagedQuery, page_limit},
    refusals::{invalid, not_a_cursor},
};
