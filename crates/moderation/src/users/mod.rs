//! Users as authors and reporters: strikes, accuracy of their reports, and the views for moderators.

pub mod lists;
pub mod reporters;
pub mod strikes;
pub mod view;
