//! The contract of the store: the same cases for each engine.
//!
//! The embedded engine is always included; Cassandra or ScyllaDB when `TIDEGATE_TEST_CQL` names it. Not here: how rows
//! lie in bytes, which the engine's own tests show.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod embedded_only;
mod facts;
mod faults;
mod fixture;
mod migrations;
mod restart;
mod scans;
mod tables;
#[cfg(feature = "tls")]
mod tls;
mod versioned;

macro_rules! contract {
    ($($module:ident::$case:ident($($table:ident),*);)*) => {
        mod embedded {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let fixture = crate::fixture::Fixture::embedded(&[$(crate::fixture::table::<crate::tables::$table>()),*]);
                crate::$module::$case(&fixture).await;
                fixture.end().await;
            })*
        }

        mod cql {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let tables = &[$(crate::fixture::table::<crate::tables::$table>()),*];
                if let Some(fixture) = crate::fixture::Fixture::cql(stringify!($case), tables).await {
                    crate::$module::$case(&fixture).await;
                    fixture.end().await;
                }
            })*
        }
    };
}

contract! {
    facts::every_column_type_comes_back_as_it_was(Everything);
    facts::key_columns_of_every_type_come_back_in_the_order_of_the_table(Keyed);
    facts::an_older_write_never_wins_whatever_the_order_of_arrival(Event);
    facts::a_put_replaces_the_whole_row(Event);
    facts::at_one_write_time_a_deletion_wins_in_both_orders(Event);
    facts::writes_of_several_tables_go_in_one_call_each_at_its_own_time(Event, Keyed, Fleeting);
    facts::a_batch_of_many_times_40_kib_is_written_whole(Event);
    facts::a_row_of_one_mebibyte_comes_back(Event);
    facts::a_row_above_the_limit_is_refused_by_name_and_the_next_is_written(Event, Counter);
    facts::a_key_that_no_engine_takes_is_refused_and_is_no_outage(Event);
    facts::a_row_is_gone_once_its_time_is_over(Fleeting);
    facts::get_many_answers_in_the_order_of_the_keys(Event);
    versioned::the_store_counts_the_versions(Counter);
    versioned::of_many_inserts_of_one_row_one_is_new_and_the_others_see_it(Counter);
    versioned::two_hundred_replacements_at_once_lose_nothing(Counter);
    versioned::one_writer_wins_each_version(Counter);
    versioned::a_claim_can_be_taken_again_once_it_lapsed(Claim);
    scans::pages_of_a_hundred_thousand_rows_hold_each_once_in_order(Event);
    scans::a_view_gives_its_columns_of_every_row_and_is_never_taken_for_the_table(Event);
    scans::ranges_limits_and_cursors_agree_with_a_plain_filter(Event);
    scans::a_made_up_cursor_is_refused_or_stays_in_its_partition(Event);
    scans::the_splits_of_a_table_hold_every_row_once(Event);
    restart::what_was_written_is_there_after_a_restart(Event, Counter);
    restart::every_acknowledged_row_survives_the_death_of_the_process(Event, Counter);
    restart::a_closed_store_says_so(Event);
}
