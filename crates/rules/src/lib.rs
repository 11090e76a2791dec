//! Compiles an organisation's rules to one plan, and evaluates it for an item.
//!
//! It fetches nothing and knows no clock: what a rule needs to know beyond the item is asked for between
//! [`Plan::scan`] and [`Plan::finish`], and what a match leads to is decided elsewhere.

mod bank;
mod compile;
mod counting;
mod derived;
mod engine;
mod evaluate;
mod explain;
mod facts;
mod faults;
mod folding;
pub mod form;
mod geo;
mod hosts;
mod inline_tests;
mod item;
mod leaves;
mod life;
mod limits;
mod lint;
mod outcome;
mod overload;
mod plan;
mod views;
mod vocabulary;
mod windows;

pub use bank::{Bank, BankEntry, EntryName};
pub use explain::{
    AllExplained, CountExplained, CutExplained, DomainExplained, Explained, FieldExplained, FormulaExplained,
    GeoExplained, GeoHit, Hit, MediaExplained, MediaHit, NotExplained, ScoreExplained, StrikesExplained,
    TextExplained, Verdict,
};
pub use facts::{BankMatch, Facts, Media, MediaState, Need, Scores, Within};
pub use faults::{Fault, Warning};
pub use form::{ActionUse, Around, On, Status};
pub use inline_tests::{TestItem, TestReport, TestResult, run_tests};
pub use item::{Fields, Item, Number, Value};
pub use leaves::pattern_fault;
pub use life::{Allowance, Life, OnError, Rollout, RolloutBy, Share};
pub use limits::{Contradiction, Limits};
pub use outcome::{Errored, LeftOut, Match, Named, Outcome};
pub use overload::Overload;
pub use plan::{Figures, Inquiry, Plan, RuleHead, RuleSource, Scan};
pub use vocabulary::{Container, Kind, Shape, Vocabulary};
pub use windows::{Amount, Measure, Tally, Window, WindowEntry, WindowKey};
