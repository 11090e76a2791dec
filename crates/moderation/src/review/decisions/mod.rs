//! Decisions of moderators, from the request to their effects.
//!
//! The console writes a due row, then the job's row with the decision `pending`. A crash in between leaves a due row
//! without a decision, which expires. After the undo period a processor's scanner calls `release`: it replaces
//! `pending` with `released`, appends the decision to the log, and marks it `appended`. After a crash in between, the
//! decision stays `released` and is appended again when its lease ends. The ids are the same, so the effects happen
//! once.

mod appeal_answer;
mod findings;
mod history;
mod plan;
mod related;
mod release;
mod request;

pub use plan::accept;
pub use release::{DueRowStep, decide, release};
pub use request::{DecisionRefusal, DecisionRequest, RelatedRequest};
