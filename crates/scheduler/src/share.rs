//! Share of a limit that one holder may have: at most as much as is free for the others.

/// True if a holder that takes `amount` has at most as much as is free.
///
/// Permits and threads pass the units that are free before the grant: a limit of one unit is usable, and a holder has at
/// most one unit more than it leaves. [`FairBudget`](crate::FairBudget) passes the remainder after the grant, so a
/// holder leaves at least as much as it has.
pub(crate) const fn fits_share(held: usize, amount: usize, free: usize) -> bool {
    held.saturating_add(amount) <= free
}
