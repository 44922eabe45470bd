//! Attacks on a closed lambda by roles that may execute verbs and have no right on it.
//!
//! Each is refused, or it does and tells nothing. The test compares all rows of the victim before
//! and after.

use std::collections::BTreeSet;

use futures_util::SinkExt as _;

use crate::support::company::{Company, SECRET};
use crate::support::refusal;

/// The expected end of an attack that runs, changes no row of the victim and tells no secret.
const NOTHING: &str = "nothing";

/// An attack: the act, the role that tries it, its statements, and the expected end.
type Attack = (&'static str, &'static str, &'static str, &'static str);

const SCHEDULING: [Attack; 22] = [
    ("schedule", "shop", "select tuskline.schedule('charge_card')", "42501"),
    ("schedule with a payload as jsonb", "shop", "select tuskline.schedule('charge_card', '{}'::jsonb)", "42501"),
    (
        "schedule for later, with a key",
        "shop",
        "select tuskline.schedule('charge_card', p_delay => '1 h', p_ordering_key => 'k')",
        "42501",
    ),
    ("insert a row", "shop", "insert into tuskline.task (lambda) values ('charge_card')", "42501"),
    (
        "insert a row that is due later",
        "shop",
        "insert into tuskline.task (lambda, scheduled_at) values ('charge_card', now() + '1 h')",
        "42501",
    ),
    (
        "insert 500 rows, one of the victim's lambda",
        "shop",
        "insert into tuskline.task (lambda)
         select case when g = 400 then 'charge_card' else 'send_email' end from generate_series(1, 500) g",
        "42501",
    ),
    (
        "schedule_many, one of the victim's lambda",
        "shop",
        "select tuskline.schedule_many('{send_email,charge_card}')",
        "42501",
    ),
    (
        "schedule_once, one of the victim's lambda",
        "shop",
        "select tuskline.schedule_once('a', '{send_email,charge_card}')",
        "42501",
    ),
    (
        "schedule_many with keys, past the plain batch",
        "shop",
        "select tuskline.schedule_many('{send_email,charge_card}', p_ordering_keys => array[null, 'k'])",
        "42501",
    ),
    (
        "schedule_chain: the victim's task is a child, past the trigger",
        "shop",
        r#"select tuskline.schedule_chain('[{"name":"a","lambda":"send_email"},{"lambda":"charge_card","after":["a"]}]'::text)"#,
        "42501",
    ),
    (
        "replace a waiting payload by its unique key",
        "shop",
        r#"select tuskline.schedule('charge_card', '{"evil":1}', p_unique_key => 'cust-1')"#,
        "42501",
    ),
    (
        "replace it by schedule_many",
        "shop",
        r#"select tuskline.schedule_many('{charge_card}', array['{"evil":1}']::json[], p_unique_keys => '{cust-1}')"#,
        "42501",
    ),
    (
        "replace it behind a limit key",
        "shop",
        r#"select tuskline.schedule('charge_card', '{"evil":1}', p_unique_key => 'cust-1', p_limit_key => 'l')"#,
        "42501",
    ),
    (
        "schedule a child of the victim's task, to read its result",
        "shop",
        "select tuskline.schedule_then(array[<good>], 'send_email')",
        "42501",
    ),
    (
        "insert, returning the payload",
        "shop",
        "insert into tuskline.task (lambda) values ('send_email') returning payload",
        "42501",
    ),
    (
        "insert, on conflict do update",
        "shop",
        "insert into tuskline.task (id, lambda) values (<dead>, 'send_email')
         on conflict (id) do update set payload = null",
        "42P10",
    ),
    (
        "insert with the id of the victim's task",
        "shop",
        "insert into tuskline.task (id, lambda) values (<dead>, 'send_email')",
        "23505",
    ),
    (
        "silence the trigger",
        "shop",
        "set session_replication_role = replica; insert into tuskline.task (lambda) values ('charge_card')",
        "42501",
    ),
    (
        "insert past the trigger",
        "shop",
        "insert into tuskline_core.task_store (lambda) values ('charge_card')",
        "42501",
    ),
    (
        "temporary tables and functions of the same names",
        "shop",
        "create temp table lambda_grant (lambda text, role name, privilege text);
         insert into lambda_grant values ('charge_card', '<shop>', 'own');
         create temp table queue as select 1 as queue_id, 'charge_card' as lambda, null::text[] as schedulers;
         create function pg_temp.may(text, text) returns boolean language sql as 'select true';
         create function pg_temp.caller() returns name language sql as $$select '<team_pay>'::name$$;
         create function pg_temp.pg_has_role(name, name, text) returns boolean language sql as 'select true';
         set search_path = pg_temp, pg_catalog, tuskline;
         select tuskline.schedule('charge_card')",
        "42501",
    ),
    ("await the end of a task", "mailer", "select tuskline.await_end(<held>)", "42501"),
    ("await it with the verb", "rival", "select tuskline.await_end(<held>)", "42501"),
];

const CALLERS: [Attack; 9] = [
    ("set the role of an owner", "shop", "set role <team_pay>", "42501"),
    (
        "set it inside of a statement",
        "shop",
        "select set_config('role', '<team_pay>', true), tuskline.schedule('charge_card')",
        "42501",
    ),
    ("set the session authorization", "shop", "set session authorization <team_pay>", "42501"),
    (
        "a gateway that has set no role",
        "gateway",
        "select tuskline.schedule('charge_card')",
        "42501",
    ),
    (
        "a gateway that acts for one service, for another",
        "gateway",
        "begin; set local role <shop>; select tuskline.schedule('charge_card')",
        "42501",
    ),
    (
        "a statement that was prepared as one service and runs as another",
        "gateway",
        "set role <biller>; prepare p as select tuskline.schedule('charge_card', p_unique_key => 'cust-1');
         set role <shop>; execute p",
        "42501",
    ),
    (
        "a plan that was made as one service and runs as another",
        "gateway",
        "set role <biller>;
         do $$ begin
           perform tuskline.may('charge_card', 'schedule');
           perform set_config('role', '<shop>', false);
           perform tuskline.schedule('charge_card');
         end $$",
        "42501",
    ),
    ("a superuser that has set no role", "", "select tuskline.gate('charge_card', 'pause', p_reason => 'x')", "42501"),
    ("a role without a verb", "stranger", "select * from tuskline.tasks", "42501"),
];

const OWNING: [Attack; 48] = [
    ("gate", "rival", "select tuskline.gate('charge_card', 'pause', p_reason => 'x')", "42501"),
    (
        "gate by an owner of another lambda",
        "mail_deploy",
        "select tuskline.gate('charge_card', 'drop', p_reason => 'x')",
        "42501",
    ),
    ("ungate by number", "rival", "select tuskline.ungate(<gate>)", "42501"),
    ("throttle", "rival", "select tuskline.throttle('charge_card', 1, p_reason => 'x')", "42501"),
    ("unblock", "rival", "select tuskline.unblock('charge_card', 'cust-2')", "42501"),
    ("drop_limit by number", "rival", "select tuskline.drop_limit(<limit>)", "42501"),
    ("set_weight by number", "rival", "select tuskline.set_weight(<limit>, 'k', 2)", "42501"),
    ("set_limit", "rival", "select tuskline.set_limit('charge_card', 1)", "42501"),
    ("set_order", "rival", "select tuskline.set_order('charge_card')", "42501"),
    ("set_unique", "rival", "select tuskline.set_unique('charge_card')", "42501"),
    ("drop_unique", "rival", "select tuskline.drop_unique('charge_card')", "42501"),
    ("set_breaker", "rival", "select tuskline.set_breaker('charge_card')", "42501"),
    ("drop_breaker", "rival", "select tuskline.drop_breaker('charge_card')", "42501"),
    (
        "alter_lambda",
        "rival",
        "select tuskline.alter_lambda('charge_card', p_retention => '1 s')",
        "42501",
    ),
    (
        "define",
        "rival",
        r#"select tuskline.define('[{"lambda":"charge_card","max_attempts":1}]')"#,
        "42501",
    ),
    (
        "define as a dry run, to read the settings",
        "rival",
        r#"select tuskline.define('[{"lambda":"charge_card","max_attempts":1}]', p_dry_run => true)"#,
        "42501",
    ),
    (
        "define a schedule",
        "rival",
        "select tuskline.define_periodic('mine', 'charge_card', '* * * * *')",
        "42501",
    ),
    (
        "move the victim's schedule to an own lambda",
        "rival",
        "select tuskline.define_periodic('pay_daily', 'open_one', '* * * * *')",
        "42501",
    ),
    (
        "move it by define",
        "rival",
        r#"select tuskline.define('[{"lambda":"open_one","schedules":[{"name":"pay_daily","cron":"* * * * *"}]}]')"#,
        "42501",
    ),
    ("pause_periodic", "rival", "select tuskline.pause_periodic('pay_daily')", "42501"),
    ("run_periodic", "rival", "select tuskline.run_periodic('pay_daily')", "42501"),
    ("resume_periodic", "rival", "select tuskline.resume_periodic('pay_daily')", "42501"),
    ("drop_periodic", "rival", "select tuskline.drop_periodic('pay_daily')", "42501"),
    ("cancel", "rival", "select tuskline.cancel(<waiting>)", "42501"),
    ("cancel a running task", "rival", "select tuskline.cancel(<held>)", "42501"),
    ("cancel_chain", "rival", "select tuskline.cancel_chain(<child>)", "42501"),
    ("retry", "rival", "select tuskline.retry(<dead>)", "42501"),
    ("retry_chain", "rival", "select tuskline.retry_chain(<child>)", "42501"),
    (
        "an operation on the lambda",
        "rival",
        "select tuskline.start_operation('cancel', 'charge_card', p_reason => 'x')",
        "42501",
    ),
    (
        "erase by id",
        "rival",
        "select tuskline.start_operation('erase', p_ids => array[<dead>], p_reason => 'x')",
        "42501",
    ),
    (
        "purge without a lambda",
        "rival",
        "select tuskline.start_operation('purge', p_statuses => '{fatal_failure}')",
        "42501",
    ),
    (
        "erase a key without a lambda",
        "rival",
        "select tuskline.start_operation('erase', p_key => 'cust-1', p_reason => 'x')",
        "42501",
    ),
    (
        "purge with the right to operate alone",
        "oncall",
        "select tuskline.start_operation('purge', 'charge_card')",
        "42501",
    ),
    (
        "redrive with a new payload",
        "oncall",
        r#"select tuskline.start_operation('redrive', array[<dead>]::bigint[], '{"evil":1}'::json, 'x')"#,
        "42501",
    ),
    (
        "preview by a field: what does a payload hold?",
        "oncall",
        "select * from tuskline.preview_operation('cancel', 'charge_card', p_field => '{secret}', p_equals => 'pan-4711')",
        "42501",
    ),
    (
        "preview by a key",
        "oncall",
        "select * from tuskline.preview_operation('cancel', p_key => 'cust-2')",
        "42501",
    ),
    ("stop_operation", "rival", "select tuskline.stop_operation(<operation>)", "42501"),
    ("advance_operation", "rival", "select tuskline.advance_operation(<operation>)", "42501"),
    (
        "define it anew",
        "rival",
        "select tuskline.define_lambda('charge_card', p_max_attempts => 1)",
        NOTHING,
    ),
    (
        "grant oneself a right",
        "rival",
        "select tuskline.grant_lambda('charge_card', '<rival>', 'own')",
        "42501",
    ),
    (
        "grant on every lambda",
        "pay_deploy",
        "select tuskline.grant_lambda('*', '<pay_deploy>', 'own')",
        "42501",
    ),
    (
        "own an open lambda",
        "rival",
        "select tuskline.grant_lambda('open_one', '<rival>', 'own')",
        "42501",
    ),
    (
        "grant with the right to operate",
        "oncall",
        "select tuskline.may('charge_card', 'operate'), tuskline.grant_lambda('charge_card', '<oncall>', 'own')",
        "42501",
    ),
    (
        "revoke another's right",
        "rival",
        "select tuskline.revoke_lambda('charge_card', '<biller>', 'work')",
        "42501",
    ),
    (
        "revoke the last owner, to open the lambda",
        "mail_deploy",
        "select tuskline.revoke_lambda('send_email', '<team_mail>', 'own')",
        "42501",
    ),
    (
        "write the table of rights",
        "rival",
        "insert into tuskline.lambda_grant values ('charge_card', '<rival>', 'own')",
        "42501",
    ),
    (
        "replace the constant",
        "rival",
        "create or replace function tuskline_core.rights_in_use() returns boolean language sql immutable as 'select false'",
        "42501",
    ),
    ("call what writes it", "rival", "select tuskline_core.note_rights()", "42501"),
];

const WORKING: [Attack; 23] = [
    (
        "register for the victim's lambda",
        "mailer",
        "select tuskline.register_executor('h', 9, '{send_email,charge_card}', 'x', '20 s')",
        "42501",
    ),
    (
        "claim from a queue for which it did not register",
        "mailer",
        "select tuskline.claim(<other>, '{<last>}', '{0}', '{1}', '{9}')",
        "42501",
    ),
    (
        "claim from it beside an own queue",
        "mailer",
        "select tuskline.claim(<other>, '{<mails>,<last>}', '{0,0}', '{1,1}', '{9}')",
        "42501",
    ),
    (
        "claim from it by exchange",
        "mailer",
        "select tuskline.exchange(<other>, null, null, null, null, '{<last>}', '{0}', '{1}', '{9}')",
        "42501",
    ),
    (
        "claim as the victim's executor",
        "mailer",
        "select tuskline.claim(<worker>, '{<last>}', '{0}', '{1}', '{9}')",
        "42501",
    ),
    (
        "claim nothing as it",
        "mailer",
        "select tuskline.claim(<worker>, '{}', '{}', '{}', '{}')",
        "42501",
    ),
    (
        "success under a guessed fence",
        "mailer",
        "select tuskline.set_results(<other>, array[<held>], array[<lease>]::bigint[])",
        NOTHING,
    ),
    (
        "the same as the victim's executor, with its lease",
        "mailer",
        "select tuskline.set_results(<worker>, array[<held>], array[<lease>]::bigint[], null, array[<lease>]::bigint[])",
        NOTHING,
    ),
    (
        "a failure under a guessed fence",
        "mailer",
        r#"select tuskline.set_results(<other>, null, null,
             '[{"task":<held>,"fence":<lease>,"status":"fatal_failure","message":"x"}]')"#,
        NOTHING,
    ),
    (
        "a failure as the victim's executor",
        "mailer",
        r#"select tuskline.set_results(<worker>, null, null,
             '[{"task":<held>,"fence":<lease>,"status":"retriable_failure","message":"x"}]')"#,
        NOTHING,
    ),
    (
        "success by exchange",
        "mailer",
        "select tuskline.exchange(<other>, array[<held>], array[<lease>]::bigint[], null, array[<lease>]::bigint[],
           '{<mails>}', '{0}', '{1}', '{0}')",
        NOTHING,
    ),
    ("start a running task", "mailer", "select tuskline.start(<other>, array[<held>], array[<lease>]::bigint[])", NOTHING),
    (
        "start it as the victim's executor",
        "mailer",
        "select tuskline.start(<worker>, array[<held>], array[<lease>]::bigint[])",
        NOTHING,
    ),
    (
        "release a running task: two at once",
        "mailer",
        "select tuskline.release(<worker>, array[<held>], array[<lease>]::bigint[], array[<lease>]::bigint[]),
                tuskline.release(<other>, array[<held>], array[<lease>]::bigint[], array[<lease>]::bigint[])",
        NOTHING,
    ),
    (
        "report crashes",
        "mailer",
        "select tuskline.report_crashes(<worker>, array[<held>], array[<lease>]::bigint[], '{x}', '{x}'),
                tuskline.report_crashes(<other>, array[<held>], array[<lease>]::bigint[], '{x}', '{x}')",
        NOTHING,
    ),
    ("release the lease", "mailer", "select tuskline.release_lease(<worker>, <lease>)", NOTHING),
    ("complete", "mailer", "select tuskline.complete(<held>, <lease>)", "42501"),
    ("assert_current, to lock the row", "mailer", "select tuskline.assert_current(<held>, <lease>)", "42501"),
    ("set_progress", "mailer", "select tuskline.set_progress(<held>, <lease>, 1)", "42501"),
    (
        "beat, end and replace the victim's executor",
        "mailer",
        "select alive, leases from tuskline.heartbeat(<worker>); select tuskline.end_executor(<worker>);
         select tuskline.register_executor('host', 1, '{send_email}', 'x', '100 ms', p_former => <worker>) is null",
        NOTHING,
    ),
    (
        "report attempts as it",
        "mailer",
        "select tuskline.report_attempts(<worker>, '{<first>}', '{1}', '{1}')",
        NOTHING,
    ),
    (
        "look at the victim's queues, rebuild them and hold their bells",
        "rival",
        "select tuskline.rebuild_queues(), tuskline.executor_lambdas('{charge_card}'),
                tuskline.max_attempts('{charge_card}'), tuskline.version();
         select tuskline.peek('{<first>,<last>}', '{0,0}'), tuskline.bell_of(<first>);
         select tuskline.watch(array[0, <first>]); select tuskline.unwatch(array[0, <first>])",
        NOTHING,
    ),
    ("the results of a task's parents", "mailer", "select * from tuskline.parents(<child>)", NOTHING),
];

/// Reading by a viewer, an operator and a monitor, who lack the right inspect.
const READING: [Attack; 11] = [
    ("each view", "viewer", "<views>", NOTHING),
    (
        "status, facts and reasons of each task",
        "viewer",
        "select s.* from tuskline.tasks t, tuskline.task_status(t.id) s;
         select s.* from tuskline.tasks t, tuskline.task_facts(t.id) s;
         select e.* from tuskline.tasks t, tuskline.explain(t.id) e;
         select w.* from tuskline.tasks t, tuskline.attempt_waits(t.id) w;
         select * from tuskline.held_in_queues(); select * from tuskline.blocked_gauges();
         select * from tuskline.gauges(); select * from tuskline.wait_gauges();
         select tuskline.key_holders('charge_card', k) from unnest('{cust-1,cust-2}'::text[]) k",
        NOTHING,
    ),
    (
        "the same by an operator",
        "oncall",
        "<views>;
         select s.* from tuskline.tasks t, tuskline.task_status(t.id) s;
         select e.* from tuskline.tasks t, tuskline.explain(t.id) e;
         select * from tuskline.held_in_queues()",
        NOTHING,
    ),
    (
        "counts and times of all lambdas",
        "viewer",
        "select * from tuskline.statistics(); select * from tuskline.wait_times();
         select * from tuskline.executor_loads(); select * from tuskline.longest_attempts();
         select * from tuskline.longest_waits(); select * from tuskline.queue_gauges();
         select * from tuskline.held_by_gates(); select * from tuskline.scale('charge_card');
         select * from tuskline.start_delays('{charge_card}', now() - interval '1 day', now());
         select * from tuskline.lambda_hour('charge_card'); select * from tuskline.limit_gauges();
         select tuskline.readiness(), tuskline.chain_of(<child>)",
        NOTHING,
    ),
    (
        "the doctor's questions by a monitor",
        "nagios",
        "select * from tuskline.damage(); select * from tuskline.invariants();
         select * from tuskline.segments_ahead(); select * from tuskline.segments_to_finish();
         select * from tuskline.unarchived();
         select message from tuskline.dead_letters; select message from tuskline.dead_groups;
         select ordering_key from tuskline.blocked_gauges()",
        NOTHING,
    ),
    (
        "a leaky function in a condition",
        "viewer",
        "create temp table seen (value text);
         create function pg_temp.leak(json) returns boolean language plpgsql cost 0.0001 as
           $$ begin insert into seen values ($1::text); return true; end $$;
         select count(*) from tuskline.tasks where pg_temp.leak(payload);
         select * from seen",
        NOTHING,
    ),
    (
        "a sort by what is hidden",
        "viewer",
        "select id, payload from tuskline.tasks where unique_key is not null or payload is not null
          order by unique_key, ordering_key, id",
        NOTHING,
    ),
    (
        "the statistics of columns",
        "viewer",
        "select * from pg_stats where schemaname like 'tuskline%'",
        NOTHING,
    ),
    ("one task of the victim", "rival", "select * from tuskline.task_status(<dead>)", NOTHING),
    ("contents as they are stored", "viewer", "select tuskline.show_contents(<dead>)", "42501"),
    ("the same by an operator", "oncall", "select tuskline.show_contents(<dead>)", "42501"),
];

/// Tables and views of the functions, which no group is granted.
const TABLES: [&str; 11] = [
    "tuskline.task",
    "tuskline.task_kept",
    "tuskline.task_failure",
    "tuskline.task_output",
    "tuskline.progress",
    "tuskline.unique_key",
    "tuskline.operation",
    "tuskline.lambda_grant",
    "tuskline_core.all_tasks",
    "tuskline_core.task_store",
    "tuskline_core.queue_7",
];

/// Tries an attack; returns its line of the table, and whether it ended as expected.
async fn attack(company: &Company, (what, role, sql, wanted): Attack) -> (String, bool) {
    let before = company.state().await;
    let ended = company.attempt(role, sql).await;
    let same = before == company.state().await;
    let tells = [SECRET, "cust-"]
        .iter()
        .any(|secret| ended.said.contains(secret) && !company.filled(sql).contains(secret));
    let got = match ended.state {
        Some(state) => state,
        None if same && !tells => NOTHING.to_owned(),
        None => "done".to_owned(),
    };
    let by = if role.is_empty() { "superuser" } else { role };
    let suffix = match (same, tells) {
        (false, _) => " CHANGED",
        (_, true) => " TOLD",
        _ => "",
    };
    (format!("| {what} | {by} | {got}{suffix} |"), got == wanted && same && !tells)
}

/// Tries attacks, and shows those that did not end as expected.
async fn none_succeeds(attacks: &[Attack]) {
    let company = Company::at_work().await;
    let (mut table, mut failed) = (Vec::new(), Vec::new());
    for one in attacks {
        let (line, good) = attack(&company, *one).await;
        if !good {
            failed.push(format!("{line} want {}", one.3));
        }
        table.push(line);
    }
    println!("{}", table.join("\n"));
    println!("{} attacks, {} succeeded", table.len(), failed.len());
    assert!(failed.is_empty(), "{} of {}:\n{}", failed.len(), table.len(), failed.join("\n"));
}

#[tokio::test]
async fn nobody_schedules_a_closed_lambda_without_a_right() {
    none_succeeds(&SCHEDULING).await;
}

#[tokio::test]
async fn nobody_copies_a_task_of_a_closed_lambda() {
    let company = Company::at_work().await;
    let before = company.state().await;
    let shop = company.login("shop").await;
    let sink = shop.copy_in("copy tuskline.task (lambda) from stdin").await.unwrap();
    let mut sink = std::pin::pin!(sink);
    let rows = b"send_email\ncharge_card\n";
    sink.send(std::io::Cursor::new(rows.as_slice())).await.unwrap();
    let refused = refusal(&sink.as_mut().finish().await.unwrap_err());
    assert!(refused.starts_with("42501: no_right: role shop_"), "{refused}");
    assert_eq!(company.state().await, before);
}

#[tokio::test]
async fn nobody_is_another_caller() {
    none_succeeds(&CALLERS).await;
}

#[tokio::test]
async fn nobody_owns_or_operates_a_lambda_of_another_team() {
    none_succeeds(&OWNING).await;
}

#[tokio::test]
async fn no_worker_touches_a_task_of_another_team() {
    none_succeeds(&WORKING).await;
}

#[tokio::test]
async fn nobody_reads_contents_without_the_right_to_inspect() {
    none_succeeds(&READING).await;
    let company = Company::at_work().await;
    for table in TABLES {
        let refused = company.refused_as("viewer", &format!("select * from {table}")).await;
        assert!(refused.starts_with("42501"), "{table}: {refused}");
    }
    // A reader with the right sees them.
    let read = "select payload, unique_key from tuskline.tasks where unique_key is not null";
    let ended = company.attempt("auditor", read).await;
    assert!(ended.said.contains(SECRET) && ended.said.contains("cust-1"), "{}", ended.said);
}

/// ANALYZE, REINDEX and REFRESH run functions of a table's owner in the session of a superuser.
#[tokio::test]
async fn a_function_in_an_index_borrows_no_superuser() {
    let company = Company::at_work().await;
    let rival = company.filled("<rival>");
    let superuser = company.login("").await;
    let make = format!("create schema {rival} authorization {rival}");
    superuser.batch_execute(&make).await.unwrap();
    let act = "tuskline.gate('charge_card', 'drop', p_collection => 'c', p_unseen => true, p_reason => 'x')";
    company
        .run_as(
            "rival",
            &format!(
                "create table {rival}.bait (n integer);
                 create function {rival}.act(n integer) returns integer language plpgsql immutable as
                   $$ begin if session_user <> '{rival}' then perform {act}; end if; return n; end $$;
                 create index bait_act on {rival}.bait ({rival}.act(n));
                 create materialized view {rival}.view as select {rival}.act(n) from {rival}.bait;
                 insert into {rival}.bait select generate_series(1, 10)"
            ),
        )
        .await;
    let before = company.state().await;
    for act in [
        format!("analyze {rival}.bait"),
        format!("reindex table {rival}.bait"),
        format!("refresh materialized view {rival}.view"),
    ] {
        let ended = company.attempt_on(&superuser, &act).await;
        assert_eq!(ended.state.as_deref(), Some("42501"), "{act}: {}", ended.said);
        assert!(ended.said.contains("the login of a superuser has no right"), "{}", ended.said);
    }
    assert_eq!(company.state().await, before);
}

/// Verbs without an attack: they tell the time or the caller's rights, or compute with arguments.
const HARMLESS: [&str; 4] = ["barred", "clock", "histogram_edges", "quantile"];

#[tokio::test]
async fn an_attack_calls_each_verb_of_a_group() {
    let all = [&SCHEDULING[..], &CALLERS, &OWNING, &WORKING, &READING].concat();
    let verbs: Vec<String> = crate::support::Db::new()
        .await
        .all(
            "select name from tuskline_core.verb_groups()
              where privilege = 'execute' and name not like 'tuskline_core.%' order by name",
        )
        .await;
    let spared: Vec<_> = verbs
        .iter()
        .map(String::as_str)
        .filter(|verb| !all.iter().any(|attack| attack.2.contains(&format!("tuskline.{verb}("))))
        .collect();
    assert_eq!(spared, HARMLESS);
}

/// The functions that a viewer may run are those of its group, and those that views run for it.
#[tokio::test]
async fn a_viewer_runs_the_verbs_of_its_group_and_no_others() {
    let company = Company::at_work().await;
    let calls = "select p.proname::text || '=' || format('select * from %s(%s)', p.oid::regproc, (
                   select string_agg(format('%snull::%s', case when p.provariadic <> 0 and u.number = p.pronargs
                                                               then 'variadic ' end, format_type(u.kind, null)), ', ' order by u.number)
                     from unnest(p.proargtypes) with ordinality as u (kind, number)))
                  from pg_proc p
                 where p.pronamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace)
                   and p.prokind = 'f' and p.prorettype <> 'trigger'::regtype order by 1";
    let calls: Vec<String> = company.db.all(calls).await;
    let viewer = company.login("viewer").await;
    let mut ran = BTreeSet::new();
    for call in &calls {
        let (name, sql) = call.split_once('=').unwrap();
        if company.attempt_on(&viewer, sql).await.state.as_deref() != Some("42501") {
            ran.insert(name);
        }
    }
    let group: Vec<String> = company
        .db
        .all(
            "select v.name from tuskline_core.verb_groups() v
              where v.privilege = 'execute' and v.groups && '{public,viewer}'
                and v.name not like 'tuskline_core.%'",
        )
        .await;
    let group: BTreeSet<_> = group.iter().map(String::as_str).collect();
    let strict = ["json_of", "default_burst"]; // PostgreSQL removes a call with null
    let others: Vec<_> = ran.difference(&group).filter(|name| !strict.contains(name)).collect();
    assert!(calls.len() > 400 && others.is_empty(), "of {}: {others:?}", calls.len());
    let missing: Vec<_> = group.difference(&ran).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
