//! The tests of the tests: every check has been seen red.
//!
//! The crate `tests/breaks` lists breaks of the SQL with the tests that must fail for each. A break is
//! made in the template of a run of its own, so nothing is built again.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tuskline_breaks::{Break, Breaks, HARM, NOT_DONE};

use crate::support::Db;

/// Tests that no break of our SQL turns red, each for a reason.
const NOT_OURS: &[&str] = &[
    // PostgreSQL's own promises.
    "scheduling::a_transaction_that_rolls_back_leaves_nothing",
    // Before version 17 the type refuses what the test gives.
    "bad_input::an_infinite_duration_is_refused_by_every_server",
    // The SDK's own refusals.
    "bad_input::the_sdk_names_the_row_that_it_refuses",
    "callers::a_role_that_is_missing_or_not_ones_own_is_refused_by_name",
    // These tests concern the breaks themselves.
    "breaks::every_break_can_be_done",
    // Run a migration, which mends the functions.
    "strangers::a_database_is_migrated",
    "rights::a_migration_keeps_the_rights",
    "roles::the_printed_sql_makes_the_groups_and_a_migration_grants_their_verbs",
    "dead_letters::a_task_that_died_before_there_was_a_list_is_on_it",
    "cells::the_first_migration_chooses_the_cell_and_a_later_one_changes_nothing",
    // The ports for HTTP, which are Rust's, and files for Prometheus and Grafana.
    "board::the_board_and_the_alerts_name_metrics_that_exist",
    "board::each_alert_names_a_page_of_the_book",
    "board::the_alerts_fire_when_they_should",
    "board::the_tests_of_the_alerts_expect_the_annotations_that_the_alerts_have",
    "board::a_real_prometheus_answers_each_query_of_the_board",
    "metrics::a_hundred_scrapes_and_autoscalers_ask_the_database_once",
    "metrics::a_part_that_fails_leaves_the_rest_of_the_scrape",
    "metrics::a_part_that_is_too_slow_is_alone_in_its_failure",
    "metrics::an_autoscaler_hears_of_slow_queues_and_then_gets_its_figures",
    "metrics::a_table_that_is_locked_costs_a_part_of_the_scrape",
    "metrics::a_scrape_without_a_database_says_so",
    "metrics::a_slow_client_gets_the_answer_of_a_slow_scrape",
    "metrics::a_worker_whose_port_is_taken_does_not_start",
    // Refusals of the pages before they ask the database, and how they show texts.
    "pages_attacks::no_act_is_done_by_a_get_or_on_a_server_that_only_shows",
    "pages_attacks::no_other_site_sends_a_post",
    "pages_attacks::a_thousand_tasks_need_their_number_and_every_act_its_reason",
    "pages_attacks::a_text_of_the_database_is_no_script",
    "pages_attacks::a_request_to_another_host_is_refused",
    "pages_attacks::a_name_needs_the_secret_of_the_proxy",
    "pages_attacks::a_token_in_an_address_is_refused_and_one_in_a_cookie_is_not_shown",
    "pages_attacks::a_sign_in_leads_to_our_pages_only",
    "pages_attacks::no_address_leaves_the_base_path",
    "pages_attacks::what_a_person_types_does_not_grow",
    "pages_attacks::the_port_answers_whatever_bodies_do",
    "pages_attacks::the_port_answers_whatever_connections_say_nothing",
    // Refusals of the Frontend by RPC before it asks the database, its connections and its statements.
    "rpc::a_client_that_goes_away_and_a_server_that_ends_free_a_wait",
    "rpc::a_schedule_is_four_statements_and_one_of_them_is_the_verb",
    "rpc::a_statement_without_its_role_does_nothing",
    "rpc::the_calls_of_the_page_are_answered_as_it_shows",
    "rpc::without_a_database_a_call_says_when_to_repeat_it",
    "rpc_attacks::a_name_by_a_proxy_needs_its_secret",
    "rpc_attacks::a_role_that_the_server_may_not_set_is_refused",
    "rpc_attacks::a_server_that_only_shows_schedules_and_cancels_nothing",
    "rpc_attacks::a_token_counts_in_its_header_only",
    "rpc_attacks::idle_waits_do_not_keep_others_from_their_answers",
    "rpc_attacks::no_address_leads_to_another_message_or_out_of_the_base_path",
    "rpc_attacks::no_page_of_another_site_makes_a_call",
    "rpc_attacks::the_port_answers_whatever_frames_and_bodies_do",
    "rpc_attacks::without_tls_a_port_with_certificates_makes_no_call",
    "rpc::a_server_with_tokens_answers_calls_beside_its_pages",
    // How the pages go on behind a bound, and how often they read: Rust's.
    "pages_bounds::a_long_list_goes_on_behind_its_last_row",
    "pages_bounds::a_hundred_open_pages_ask_a_database_that_is_away_once",
    "pages_bounds::after_a_slow_reading_the_pages_rest_for_half_a_minute",
    // Compares files.
    "functions::no_text_of_ours_has_a_backslash",
    "names::no_command_page_or_item_has_a_name_that_had_to_go",
    "names::no_object_of_the_schema_has_a_name_that_had_to_go",
    "names::the_map_of_the_sql_names_each_table_and_verb",
    "matrix::the_documents_show_the_table_of_the_snapshot",
    "unique_keys::the_page_shows_the_table_of_the_snapshot",
    // Ask the server's own code, or the SDK's.
    "crons::every_cron_that_is_accepted_has_a_tick",
    "worker_input::a_worker_has_a_lambda_and_no_name_twice",
    "wake_stream::a_stream_into_many_lambdas_sends_few_notifications",
    "queue_watch::a_quiet_queue_beside_a_stream_under_one_bell_gets_its_tasks",
    "breaks::every_check_has_been_seen_red",
    "breaks::every_test_is_listed_with_a_break",
];

/// Files that test Rust, not SQL.
const OF_RUST: &[&str] = &[
    "::cli::",
    "::clients::",
    "::clock_steps::",
    "::conform::",
    "::collectors::",
    "::crash_recovery::",
    "::diagnoses::",
    "::doctor::",
    "::doubtful_commits::",
    "::drain::",
    "::drawn_ids::",
    "::examples::",
    "::executors_input::",
    "::failures::",
    "::fenced_bodies::",
    "::health::",
    "::plan::",
    "::stats::",
    "::upgrades::",
    "::top::",
    "::few_connections::",
    "::held_results::",
    "::logs::",
    "::long_tasks::",
    "::lost_answers::",
    "::many::",
    "::many_lambdas::",
    "::migrate_refusals::",
    "::no_concurrent_workers::",
    "::outages::",
    "::owners::",
    "::packaging::",
    "::pages",
    "::periodic_servers::",
    "::priorities::",
    "::processes::",
    "::runbooks::",
    "::documents::",
    "::server_troubles::",
    "::settings::",
    "::support::",
    "::tls::",
    "::transactions_of_adapters::",
    "::transactions_of_sqlx::",
    "::typed_lambdas::",
    "::uninstall::",
    "::wake_up::",
    "::walk::",
    "::worker_chains::",
    "::worker_runs::",
];

/// A break, as a run of tests takes it.
struct Harm {
    /// The place of the break in the list.
    place: String,
    /// The place, and the text of the break.
    said: String,
    sql: String,
    seen_by: Vec<String>,
}

/// The breaks that tests of this binary must see.
fn harms() -> Vec<Harm> {
    let (breaks, tests) = (Breaks::read().unwrap(), listed());
    let of_ours = |one: &&Break| one.tests().next().is_some();
    let harm = |one: &Break| Harm {
        place: one.place.to_string(),
        said: format!("{}\n{}", one.place, one.text),
        sql: breaks.sql(one).unwrap(),
        seen_by: one.tests().map(|test| full_name(test, &tests)).collect(),
    };
    breaks.list.iter().filter(of_ours).map(harm).collect()
}

/// The tests of this binary.
fn listed() -> BTreeSet<String> {
    let run = Command::new(std::env::current_exe().unwrap()).arg("--list").output().unwrap();
    let said = String::from_utf8(run.stdout).unwrap();
    said.lines().filter_map(|line| line.strip_suffix(": test")).map(Into::into).collect()
}

/// The name of a test with all its modules. A list omits the outer ones.
fn full_name(test: &str, tests: &BTreeSet<String>) -> String {
    let inner = |full: &&String| {
        full.strip_suffix(test).is_some_and(|outer| outer.is_empty() || outer.ends_with("::"))
    };
    let full: Vec<_> = tests.iter().filter(inner).collect();
    assert_eq!(full.len(), 1, "no test, or more than one, is called {test}: {full:?}");
    full[0].clone()
}

/// Runs the tests of a break in its broken template; returns complaints about the tests that stayed
/// green.
fn still_green(harm: &Harm) -> Vec<String> {
    let run = Command::new(std::env::current_exe().unwrap())
        .arg("--exact")
        .args(&harm.seen_by)
        .env(HARM, &harm.sql)
        .env("INSTA_UPDATE", "no")
        .output()
        .unwrap();
    let output = [run.stdout, run.stderr].concat();
    let output = String::from_utf8_lossy(&output);
    if let Some(line) = output.lines().find(|line| line.contains(NOT_DONE)) {
        return vec![format!("{line}\n{}", harm.said)];
    }
    let green = |test: &&String| !output.contains(&format!("test {test} ... FAILED"));
    let complaint = |test| format!("{test} did not see {}", harm.said);
    harm.seen_by.iter().filter(green).map(complaint).collect()
}

#[test]
#[ignore = "breaks the SQL five hundred times: some twelve minutes; TUSKLINE_BREAKS=text: only those with the text; \
            TUSKLINE_BREAKS_HALF=0|1: every other one"]
fn every_check_has_been_seen_red() {
    let mut harms = harms();
    if let Ok(part) = std::env::var("TUSKLINE_BREAKS") {
        let named = |harm: &Harm| harm.seen_by.iter().any(|test| test.contains(&part));
        harms.retain(|harm| harm.said.contains(&part) || named(harm));
        assert!(!harms.is_empty(), "no break contains {part:?}");
    }
    if let Ok(half) = std::env::var("TUSKLINE_BREAKS_HALF") {
        let mut others = [false, true].into_iter().cycle();
        harms.retain(|_| others.next() == Some(half == "1"));
    }
    // Each of two threads takes the next break when it is free. It prints a line for each break,
    // because the run is long.
    let (next, green) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let check = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(harm) = harms.get(number) else { break };
            let missed = still_green(harm);
            let seen = if missed.is_empty() { "seen" } else { "NOT SEEN" };
            println!("{} of {}: {seen}: {}", number + 1, harms.len(), harm.place);
            green.lock().unwrap().extend(missed);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(check);
        scope.spawn(check);
    });
    let green = green.into_inner().unwrap();
    assert!(green.is_empty(), "{}", green.join("\n"));
}

/// A change of a signature makes a break stale, and only the long run of all breaks would tell.
#[tokio::test]
async fn every_break_can_be_done() {
    let db = Db::of_cell_0().await; // breaks name its tables
    let breaks = Breaks::read().unwrap();
    let mut stale = Vec::new();
    for one in &breaks.list {
        let sql = format!("begin; {}", breaks.sql(one).unwrap());
        if let Err(error) = db.client.batch_execute(&sql).await {
            stale.push(format!("{}: {}", one.place, error.as_db_error().unwrap().message()));
        }
        db.run("rollback").await;
    }
    assert!(stale.is_empty(), "{}", stale.join("\n"));
}

#[test]
fn every_test_is_listed_with_a_break() {
    let of_rust = |test: &str| OF_RUST.iter().any(|file| test.contains(file));
    let not_ours = |test: &str| NOT_OURS.iter().any(|name| test.ends_with(name));
    let mut unseen = listed();
    unseen.retain(|test| !of_rust(&format!("::{test}")) && !not_ours(test));
    for harm in harms() {
        for test in &harm.seen_by {
            unseen.remove(test);
        }
    }
    assert!(unseen.is_empty(), "never seen red: {unseen:?}");
}
