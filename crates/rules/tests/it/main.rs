//! Tests of rules from outside.
#![allow(clippy::unwrap_used)]
#![allow(clippy::print_stdout, reason = "tests print the coverage of random cases")]

mod cel;
mod evaluation;
mod expressions;
mod fuzzed;
mod guide;
mod hostile;
mod lint;
mod model_text;
mod oracle;
mod published;
mod references;
mod surroundings;
mod unicode;
mod unindexed;
