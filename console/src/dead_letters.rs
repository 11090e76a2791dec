//! What the console asks of the dead letters.
//!
//! It does not read or replay them: the role that writes them does, and the binary hands its operations in, because
//! roles never use each other.

use futures::future::BoxFuture;
use tidegate_schemas::ids::OrgId;
use tidegate_stream::Topic;

/// Which letters are meant; what is not named is not asked.
#[derive(Clone, Debug)]
pub struct Which {
    pub org: OrgId,
    /// Those as well of which nobody could read whose they are.
    pub or_nobodys: bool,
    pub topic: Option<Topic>,
    pub reason: Option<String>,
    /// One letter: its id in the list.
    pub id: Option<String>,
}

/// Letters as they are listed, nothing of their content, and where to go on.
#[derive(Debug)]
pub struct Page {
    pub items: Vec<serde_json::Value>,
    pub next: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed {
    pub replayed: u64,
    /// Sent back before.
    pub skipped: u64,
    pub refused: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("this is not a cursor of this list")]
    Cursor,
    #[error("{detail}")]
    Failed { is_outage: bool, tag: &'static str, detail: String },
}

pub trait DeadLetters: Send + Sync + 'static {
    /// The newest first.
    fn list(&self, which: Which, limit: usize, after: Option<String>) -> BoxFuture<'_, Result<Page, Fault>>;
    /// Sends them back to where they came from; `again`: also those that were sent back before.
    fn replay(&self, which: Which, by: String, again: bool) -> BoxFuture<'_, Result<Replayed, Fault>>;
}
