//! Compiles an organisation's rules to one plan, and evaluates it for an item.
//!
//! Evaluation has two phases around the caller's look-ups: [`Plan::scan`] returns the facts that rules need beyond the item,
//! and [`Plan::finish`] takes the answers. Evaluation uses no network and counts steps instead of time, so a replay has the
//! same outcome; the CPU limit only ends evaluations that cost far more than their steps.

mod compile;
mod enforcement;
mod engine;
mod error;
mod facts;
mod fields;
mod geo;
mod hosts;
mod inline_tests;
mod item;
pub mod leaves;
mod limits;
mod lint;
mod logic;
mod outcome;
mod overload;
mod plan;
mod reader;
mod search;
pub mod syntax;
mod text;
mod vocabulary;
mod windows;

pub use compile::{RuleHead, RuleSource};
pub use enforcement::{ActionLimits, Enforcement, OnError, Rollout, RolloutBy, Share};
pub use error::{RuleError, Warning};
pub use facts::{BankMatch, Facts, Lookback, Media, MediaState, Need, Scores};
pub use inline_tests::{TestItem, TestReport, TestResult, run_tests};
pub use item::{Fields, Item, Number, Trigger, Value};
pub use leaves::{
    AllExplained, CutExplained, Explained, NotExplained, RuleExplained,
    count::CountExplained,
    domain::DomainExplained,
    field::FieldExplained,
    formula::FormulaExplained,
    geo::{GeoExplained, GeoHit},
    input::Hit,
    media::{MediaExplained, MediaHit},
    model_text::ModelTextExplained,
    needle::pattern_error,
    score::ScoreExplained,
    strikes::StrikesExplained,
    text::TextExplained,
};
pub use limits::{Interrupt, LimitError, Limits};
pub use logic::ConditionResult;
pub use outcome::{Match, Omissions, Outcome, RuleFailure, RuleInfo};
pub use overload::Overload;
pub use plan::{PendingExplanation, Plan, PlanSize, Scan};
pub use syntax::{ActionUse, ExampleFacts, Status};
pub use text::View;
pub use vocabulary::{Bank, BankEntry, Container, EntryName, Kind, Shape, Vocabulary};
pub use windows::{Amount, Measure, RunningCount, Window, WindowEntry, WindowKey};
