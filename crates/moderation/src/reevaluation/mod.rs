//! Runs rules on stored items: a backtest compares the outcome with decisions, a retroaction acts on it.

pub mod backtest;
pub mod retroact;
pub mod stored_evaluation;
pub mod trials;
