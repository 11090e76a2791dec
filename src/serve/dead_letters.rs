//! Gives the console the dead letters of the processors, because roles never use each other.
//!
//! It only translates.

use futures::{FutureExt as _, future::BoxFuture};
use tidegate_console::dead_letters::{DeadLetters, Fault, Page, Replayed, Which};
use tidegate_processors::dead_letters::{self, Error, Order, Selection};
use tidegate_store::Store;
use tidegate_stream::{Log, TailError};

pub(super) struct OfLog {
    pub(super) log: Log,
    pub(super) store: Store,
}

impl DeadLetters for OfLog {
    fn list(&self, which: Which, limit: usize, after: Option<String>) -> BoxFuture<'_, Result<Page, Fault>> {
        async move {
            let page =
                dead_letters::list(&self.log, &self.store, &selection(which), limit, after.as_deref()).await;
            let page = page.map_err(|error| fault(&error))?;
            let items = page.items.iter().map(serde_json::to_value).collect::<Result<_, _>>();
            let items = items.map_err(|error| Fault::Failed {
                is_outage: false,
                tag: "dead_letter_unreadable",
                detail: error.to_string(),
            })?;
            Ok(Page { items, next: page.next })
        }
        .boxed()
    }

    fn replay(&self, which: Which, by: String, again: bool) -> BoxFuture<'_, Result<Replayed, Fault>> {
        async move {
            let order = Order { by, again };
            let done = dead_letters::replay(&self.log, &self.store, &selection(which), &order).await;
            let done = done.map_err(|error| fault(&error))?;
            Ok(Replayed { replayed: done.replayed, skipped: done.skipped, refused: done.refused })
        }
        .boxed()
    }
}

fn selection(which: Which) -> Selection {
    let Which { org, or_nobodys, topic, reason, id } = which;
    Selection { org: Some(org), or_nobodys, topic, reason, id }
}

fn fault(error: &Error) -> Fault {
    let is_outage = match error {
        Error::Cursor(_) | Error::Tail(TailError::Cursor { .. }) => return Fault::Cursor,
        Error::Tail(TailError::Unavailable { .. }) => true,
        Error::Tail(TailError::Malformed { .. }) => false,
        Error::Append(error) => error.is_retriable(),
        Error::Store(error) => error.is_outage(),
    };
    Fault::Failed { is_outage, tag: error.tag(), detail: error.to_string() }
}
