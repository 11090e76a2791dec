//! Fair scheduling of work that many orgs compete for: concurrency limits, round robin, cancellation.
//!
//! [`Scheduler`] hands out [`Permit`]s. [`fair_queue::FairQueue`] is the pure core below it, which decides who is next
//! and knows neither tasks nor time. [`UsageQueue`] shares one worker by what each owner's entries cost, and
//! [`OrgPermits`] bounds each org by itself.
//!
//! # Entries
//!
//! An entry belongs to one org and names the keys that it will occupy, such as the hosts that an item waits for. It may
//! have a weight, such as its bytes. Entries of one org with the same keys form a *flow* and run in the order in which
//! they came, except that a light entry may pass a heavy one that finds no room.
//!
//! # Order
//!
//! Orgs take turns, and within one org its flows: whoever was served longest ago comes first. No org is served twice
//! while another one has an entry that may run. A flow that is blocked holds up no other flow, and a blocked org no other
//! org.
//!
//! # Limits
//!
//! [`Limits`] bounds what runs: in all, per org, per key, and per key of one org. A permit cannot be taken back, so hard
//! limits alone would not help whoever comes while all permits are held by work that hangs. Therefore nobody may hold more
//! than it leaves: an entry starts only while its org runs fewer entries than are free in all, and its key fewer than are
//! free for the org. This is the dynamic threshold of shared-memory switches (Choudhury and Hahne, 1998) with a factor of
//! one. It comes close to even shares, and always leaves a permit for the next one, without knowing who hangs.
//!
//! The number of keys is not limited, since names are free. So keys that have not proven themselves, as their user
//! defines it, share one half of their org's limit, however many they are.
//!
//! # Cost
//!
//! Memory is proportional to what waits and runs; nothing remains of an org or a key that is idle. `push`, `cancel` and
//! `finish` take logarithmic time. `start_next` also passes over flows and orgs that are blocked. Each of them holds permits
//! itself or waits for a key that does, so there are at most about as many as there are permits, however long the queues
//! are. Two things can make it pass over more: entries with weights, and flows with several keys.
//!
//! A blocked org is examined again only after a change that may unblock it. Orgs that wait for a key at its limit
//! (`running_per_key`) are examined when an entry with that key ends.

pub mod fair_queue;
mod limits;
mod org_permits;
mod permit;
mod usage_queue;

pub use self::{
    limits::Limits,
    org_permits::OrgPermits,
    permit::{Permit, Scheduler},
    usage_queue::UsageQueue,
};
