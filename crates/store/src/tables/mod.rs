//! Table declarations of Tidegate, one file a table, and the list of all tables.
//!
//! Protocols over several rows live in the crates that use them.
//!
//! To add a table, declare it in `<folder>/<table>.rs`, name the module in the folder's `mod.rs`, and add it to [`ALL`].
//! A test reads the declarations in these folders and fails for a table that is missing in the list.

use crate::{Row as _, Table};

pub mod callbacks;
pub mod catalog;
pub mod history;
pub mod items;
pub mod review;

/// Every declared table. A table outside of this list is neither created nor opened.
pub const ALL: &[&Table] = &[
    items::items::Item::TABLE,
    items::items::SubmissionPlace::TABLE,
    items::history::ItemOfHour::TABLE,
    items::idempotency::IdempotencyClaim::TABLE,
    items::by_user::ItemOfUser::TABLE,
    items::by_user::CaseOfUser::TABLE,
    items::plans::Plan::TABLE,
    items::limits::RuleDay::TABLE,
    items::limits::RuleHour::TABLE,
    items::limits::RuleAlarm::TABLE,
    items::limits::Cooldown::TABLE,
    items::media_prints::MediaPrint::TABLE,
    items::scores::SignalScore::TABLE,
    items::windows::HoursEntry::TABLE,
    items::windows::DaysEntry::TABLE,
    items::windows::MonthsEntry::TABLE,
    items::windows::YearsEntry::TABLE,
    items::replays::Replay::TABLE,
    items::retroactions::Retroaction::TABLE,
    items::retroactions::RetroactedItem::TABLE,
    items::rules::RuleCount::TABLE,
    items::rules::RuleVerdict::TABLE,
    items::rules::RuleBaseline::TABLE,
    items::strikes::Strike::TABLE,
    items::strikes::StrikeReversal::TABLE,
    items::strikes::ActionByItem::TABLE,
    review::reports::Report::TABLE,
    review::reports::ReporterFinding::TABLE,
    review::appeals::Appeal::TABLE,
    review::appeals::AppealClaim::TABLE,
    review::jobs::Job::TABLE,
    review::jobs::JobCause::TABLE,
    review::jobs::SubjectJob::TABLE,
    review::jobs::QueueEntry::TABLE,
    review::jobs::SubjectReporter::TABLE,
    review::jobs::QueueDay::TABLE,
    review::queue_counts::QueueEvent::TABLE,
    review::queue_counts::QueueHour::TABLE,
    review::queue_counts::QueueClaim::TABLE,
    review::comments::JobComment::TABLE,
    review::context_media::ContextMedia::TABLE,
    review::decisions::Decision::TABLE,
    review::decisions::DecisionDue::TABLE,
    review::decisions::DecisionCursor::TABLE,
    review::partial_requests::PartialRequest::TABLE,
    review::partial_requests::PartialRequestOfJob::TABLE,
    review::partial_requests::PartialDue::TABLE,
    review::partial_requests::PartialCursor::TABLE,
    callbacks::deliveries::Delivery::TABLE,
    callbacks::deliveries::Attempt::TABLE,
    callbacks::deliveries::DeliveryByDay::TABLE,
    callbacks::due::Due::TABLE,
    callbacks::due::DueCursor::TABLE,
    history::events::HistoryEvent::TABLE,
    history::backfill::BackfilledPart::TABLE,
    history::child_safety_items::ChildSafetyItem::TABLE,
    history::handled_times::HandledTime::TABLE,
    history::export_schedules::ExportSchedule::TABLE,
    catalog::audit::AuditEntry::TABLE,
    catalog::orgs::Org::TABLE,
    catalog::configs::ConfigHead::TABLE,
    catalog::configs::ConfigSnapshot::TABLE,
    catalog::configs::CatalogEpoch::TABLE,
    catalog::banks::BankHead::TABLE,
    catalog::banks::BankEntry::TABLE,
    catalog::banks::BankHash::TABLE,
    catalog::banks::BankChange::TABLE,
    catalog::banks::BankRevision::TABLE,
    catalog::keys::ApiKey::TABLE,
    catalog::keys::KeyOfOrg::TABLE,
    catalog::keys::KeyUse::TABLE,
    catalog::members::Member::TABLE,
    catalog::secrets::EndpointSecret::TABLE,
    catalog::secrets::MasterKeyName::TABLE,
    catalog::sessions::Session::TABLE,
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    /// The names in `table! { … in "<name>" … }` of every file under a folder.
    fn collect_declared_names(folder: &Path, names: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect_declared_names(&path, names);
            } else if path != folder.join("mod.rs") || folder != tables_folder() {
                let text = fs::read_to_string(&path).unwrap();
                for declaration in text.split("table! {").skip(1) {
                    let name = declaration.split(" in \"").nth(1).and_then(|rest| rest.split('"').next());
                    names.insert(name.unwrap_or_else(|| panic!("no name in {}", path.display())).to_owned());
                }
            }
        }
    }

    fn tables_folder() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/tables"))
    }

    #[test]
    fn every_declared_table_is_in_the_list() {
        let mut names = BTreeSet::new();
        collect_declared_names(tables_folder(), &mut names);
        let listed: BTreeSet<String> = ALL.iter().map(|table| table.name.to_owned()).collect();
        assert_eq!(names, listed);
        assert_eq!(listed.len(), ALL.len(), "a table is listed twice");
    }
}
