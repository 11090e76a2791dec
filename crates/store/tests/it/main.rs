//! The contract of the store: the same cases for each engine.
//!
//! The embedded engine is always included; Cassandra or ScyllaDB when `TIDEGATE_TEST_CQL` names it. The engine's own
//! tests cover the byte format of rows.
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
    facts::every_column_type_is_read_back_unchanged(Everything);
    facts::key_columns_of_every_type_keep_the_table_order(Keyed);
    facts::older_write_loses_in_every_order_of_arrival(Event);
    facts::a_put_replaces_the_whole_row(Event);
    facts::deletion_wins_over_a_put_of_the_same_time(Event);
    facts::batch_writes_several_tables_with_their_own_times(Event, Keyed, Fleeting);
    facts::a_batch_of_many_times_40_kib_is_written_whole(Event);
    facts::row_of_one_mebibyte_is_read_back(Event);
    facts::oversized_row_is_refused_and_the_next_is_written(Event, Counter);
    facts::overlong_key_is_a_refusal_and_no_outage(Event);
    facts::expired_row_is_not_returned(Fleeting);
    facts::get_many_answers_in_the_order_of_the_keys(Event);
    versioned::each_write_increments_the_version(Counter);
    versioned::concurrent_inserts_of_one_row_have_one_winner(Counter);
    versioned::concurrent_replacements_lose_no_update(Counter);
    versioned::one_writer_wins_each_version(Counter);
    versioned::expired_claim_can_be_taken_again(Claim);
    scans::pages_return_every_row_once_in_order(Event);
    scans::view_reads_its_columns_and_differs_from_its_table(Event);
    scans::ranges_limits_and_cursors_agree_with_a_plain_filter(Event);
    scans::forged_cursor_cannot_leave_its_partition(Event);
    scans::splits_return_every_row_once(Event);
    restart::written_rows_survive_a_restart(Event, Counter);
    restart::every_acknowledged_row_survives_the_death_of_the_process(Event, Counter);
    restart::closed_store_refuses_calls_by_name(Event);
}
