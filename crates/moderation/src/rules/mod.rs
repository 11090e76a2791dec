//! State of rules: limits, alarms, window counters and statistics.

pub mod baselines;
pub mod limits;
pub mod match_rates;
pub mod stats;
pub mod windows;
