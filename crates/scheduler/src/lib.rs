//! Fair sharing of permits, threads and bytes that many orgs compete for.
//!
//! [`Scheduler`] hands out [`Permit`]s to tasks. [`fair_queue::FairQueue`] is its pure core, which chooses
//! the next entry without tasks or clocks. [`UsageQueue`] shares one worker by the cost of each owner's
//! entries, and [`WorkerQueue`] several threads by time. [`OrgPermits`] bounds each org separately, and
//! [`OrgTurns`] lets orgs alternate. [`FairBudget`] and [`GrowingBudget`] share bytes.
//!
//! # Entries
//!
//! An entry belongs to one org and names the keys that it occupies while it runs, such as the hosts that an
//! item waits for. It may have a weight, such as its bytes. Entries of one org with the same keys form a
//! *flow* and run in order of arrival, except that a light entry may overtake a heavy one that has no room.
//!
//! # Order
//!
//! Orgs take turns, and within one org its flows: the least recently served is next. No org is served twice
//! while another one has a runnable entry. A blocked flow delays no other flow, and a blocked org no other
//! org.
//!
//! # Limits
//!
//! [`Limits`] bounds running entries: in total, per org, per key, and per key of one org. Permits are not
//! revocable, so with hard limits alone, hanging work could hold all permits and starve later arrivals.
//! Therefore an entry starts only while its org runs fewer entries than are free in total, and its key fewer
//! than are free for the org. This is the dynamic threshold of shared-memory switches (Choudhury and Hahne,
//! 1998) with a factor of one. Shares are close to even, and a permit always remains for the next arrival,
//! without any detection of hanging work.
//!
//! The number of keys is unlimited, because orgs choose the names. So keys that are not proven, as defined by
//! the user of the scheduler, share one half of their org's limit, regardless of their number.
//!
//! # Cost
//!
//! Memory is proportional to the waiting and running entries; idle orgs and keys occupy none. `push`,
//! `cancel` and `finish` take logarithmic time. `start_next` also passes over blocked flows and orgs. Each of
//! these holds permits itself or waits for a key that does, so their number is about that of the permits,
//! regardless of the length of the queues. Two features can increase it: entries with weights, and flows with
//! several keys.
//!
//! A blocked org is examined again only after a change that may unblock it. Orgs that wait for a key at its
//! limit (`running_per_key`) are examined when an entry with that key ends.

mod fair_budget;
pub mod fair_queue;
mod growing_budget;
mod limits;
mod org_permits;
mod org_turns;
mod permit;
mod share;
mod usage_queue;
mod worker_queue;

pub use self::{
    fair_budget::{BudgetRefusal, FairBudget, Holder, Lease},
    growing_budget::{BudgetFull, GrowingBudget, Reservation},
    limits::Limits,
    org_permits::OrgPermits,
    org_turns::{OrgTurn, OrgTurns},
    permit::{Permit, Scheduler},
    usage_queue::UsageQueue,
    worker_queue::WorkerQueue,
};
