//! Guarantees of every engine, with the same tests for each.

mod appending;
mod budget;
mod completed_times;
mod consuming;
mod crash;
mod dead_letters;
mod embedded;
mod ending;
mod fixture;
mod opening;
mod pages;
mod replay;
