//! Rights of roles on lambdas: what each allows, who grants it, and when it ends.

use std::process::Command;

use tuskline_postgres::Binaries;

use crate::support::company::Company;
use crate::support::{Db, refusal, shared, superuser, within};

/// An action on the lambda `charge_card`, as SQL.
const ACTIONS: [(&str, &str); 13] = [
    ("schedule", "select tuskline.schedule('charge_card')"),
    ("insert", "insert into tuskline.task (lambda) values ('charge_card')"),
    ("cancel", "select tuskline.cancel(<later>)"),
    ("await the end", "select tuskline.await_end(<later>)"),
    (
        "register a worker",
        "select tuskline.register_executor('h', 3, '{charge_card}', 'x', '20 s')",
    ),
    ("write progress", "select tuskline.set_progress(<held>, <lease>, 1)"),
    ("schedule a child", "select tuskline.schedule_then(array[<good>], 'open_one')"),
    ("gate", "select tuskline.ungate(<gate>)"),
    ("retry", "select tuskline.retry(<dead>)"),
    ("operation", "select tuskline.start_operation('cancel', 'charge_card')"),
    (
        "operation by a key",
        "select tuskline.start_operation('cancel', 'charge_card', p_key => 'cust-2')",
    ),
    ("alter", "select tuskline.alter_lambda('charge_card', p_retention => '9 days')"),
    ("grant", "select tuskline.grant_lambda('charge_card', '<shop>', 'schedule')"),
];

#[tokio::test]
async fn each_right_allows_its_actions_and_no_others() {
    let company = Company::at_work().await;
    let mut lines = Vec::new();
    for right in ["schedule", "work", "inspect", "operate", "own"] {
        company
            .run(&format!("select tuskline.grant_lambda('charge_card', '<rival>', '{right}')"))
            .await;
        let session = company.login("rival").await;
        let mut allowed = Vec::new();
        for (action, sql) in ACTIONS {
            let ended = company.attempt_on(&session, &format!("begin; {sql}")).await;
            match ended.state.as_deref() {
                None => allowed.push(action),
                Some(state) => assert_eq!(state, "42501", "{right}: {action}: {}", ended.said),
            }
            session.batch_execute("rollback").await.unwrap();
        }
        let read = "select payload is not null from tuskline.tasks where id = <dead>";
        if company.attempt_on(&session, read).await.said == "t " {
            allowed.push("read payloads");
        }
        lines.push(format!("{right}: {}", allowed.join(", ")));
        let revoke = format!("select tuskline.revoke_lambda('charge_card', '<rival>', '{right}')");
        company.run(&revoke).await;
    }
    insta::assert_snapshot!(lines.join("\n"));
}

#[tokio::test]
async fn a_lambda_is_open_until_a_role_owns_it() {
    let company = Company::of_roles().await;
    let schedule = "select tuskline.schedule('charge_card')";
    company
        .run("select tuskline.define_lambda('charge_card'), tuskline.define_lambda('open_one')")
        .await;
    let session = company.login("rival").await;
    session.batch_execute(&format!("prepare p as {schedule}; execute p")).await.unwrap();
    company.run("select tuskline.grant_lambda('charge_card', '<shop>', 'schedule')").await;
    company.run_as("rival", schedule).await;
    company.run("select tuskline.grant_lambda('charge_card', '<team_pay>', 'own')").await;
    // Also in the session that has prepared the call.
    let refused = refusal(&session.batch_execute("execute p").await.unwrap_err());
    let said = company.filled(
        "42501: no_right: role <rival> has no right to schedule charge_card [an owner of the lambda can: \
         select tuskline.grant_lambda('charge_card', '<rival>', 'schedule')]",
    );
    assert_eq!(refused, said);
    for role in ["shop", "mail_deploy"] {
        let ended = company.attempt(role, schedule).await;
        assert_eq!(ended.state.is_none(), role == "shop", "{role}: {}", ended.said);
    }
    company.run_as("rival", "select tuskline.schedule('open_one')").await;
    let revoke = "select tuskline.revoke_lambda('charge_card', '<team_pay>', 'own')";
    let refused = company.refused_as("pay_deploy", revoke).await;
    assert!(
        refused.contains("without an owner charge_card would be open to every role"),
        "{refused}"
    );
    company.run(revoke).await;
    session.batch_execute("execute p").await.unwrap();
    assert!(company.db.one::<bool>("select tuskline_core.rights_in_use()").await, "one is left");
    company.run("select tuskline.revoke_lambda('charge_card', '<shop>', 'schedule')").await;
    assert!(!company.db.one::<bool>("select tuskline_core.rights_in_use()").await);
}

#[tokio::test]
async fn a_right_on_every_lambda_holds_for_those_that_are_closed_later() {
    let company = Company::at_work().await;
    company.run("select tuskline.define_lambda('later'), tuskline.grant_lambda('later', '<team_pay>', 'own')").await;
    let gate = "select tuskline.gate('later', 'pause', p_reason => 'x')";
    let refused = company.refused_as("rival", gate).await;
    assert!(refused.contains("no right to operate later"), "{refused}");
    company.run_as("oncall", gate).await;
    company.run("select tuskline.grant_lambda('*', '<rival>', 'own')").await;
    let revoke = "select tuskline.revoke_lambda('later', '<team_pay>', 'own')";
    let refused = company.refused_as("rival", revoke).await;
    assert!(refused.contains("without an owner later would be open"), "{refused}");
    company.run_as("rival", "select tuskline.grant_lambda('later', '<team_mail>', 'own')").await;
    company.run_as("rival", revoke).await;
}

#[tokio::test]
async fn a_role_has_the_rights_of_the_roles_that_it_inherits_from() {
    let company = Company::at_work().await;
    let define = "select tuskline.alter_lambda('send_email', p_retention => '9 days')";
    company.run_as("mail_deploy", define).await;
    company.run("revoke <team_mail> from <mail_deploy>").await;
    assert!(company.refused_as("mail_deploy", define).await.starts_with("42501"));
    // A gateway inherits nothing. It acts as the role that it sets.
    let schedule = "select tuskline.schedule('send_email')";
    assert!(company.refused_as("gateway", schedule).await.starts_with("42501"));
    company.run_as("gateway", &format!("begin; set local role <shop>; {schedule}; commit")).await;
    let batch = "select tuskline.schedule_many('{send_email,open_one,send_email}')";
    company.run_as("gateway", &format!("begin; set local role <shop>; {batch}; commit")).await;
    // By inheritance, past the list of the roles that have the right themselves.
    company.run("grant <shop> to <rival>").await;
    let queued = company.db.queued().await;
    company.run_as("rival", batch).await;
    company.run_as("rival", schedule).await;
    company.run_as("rival", "insert into tuskline.task (lambda) values ('send_email')").await;
    company
        .run_as("rival", "insert into tuskline.task (lambda) values ('send_email'), ('send_email')")
        .await;
    assert_eq!(company.db.queued().await, queued + 7, "each is queued at once");
}

#[tokio::test]
async fn a_worker_ends_at_its_next_heartbeat_when_it_loses_the_right() {
    let company = Company::at_work().await;
    let beat = "select alive from tuskline.heartbeat(<other>)";
    for (take, give) in [
        (
            "select tuskline.revoke_lambda('send_email', '<mailer>', 'work')",
            "select tuskline.grant_lambda('send_email', '<mailer>', 'work')",
        ),
        (
            "select tuskline.revoke_lambda('send_email', '<mailer>', 'work'),
                    tuskline.grant_lambda('send_email', '<shop>', 'work'); grant <shop> to <mailer>",
            "select tuskline.grant_lambda('send_email', '<mailer>', 'work')",
        ),
    ] {
        assert_eq!(company.attempt("mailer", beat).await.said, "t ");
        company.run(take).await;
        let inherits = take.contains("grant <shop>");
        assert_eq!(company.attempt("mailer", beat).await.said == "t ", inherits, "{take}");
        if inherits {
            company.run("revoke <shop> from <mailer>").await;
            assert_eq!(company.attempt("mailer", beat).await.said, "f ");
        }
        company.run(give).await;
    }
    let session = company.login("mailer").await;
    assert_eq!(company.attempt_on(&session, beat).await.said, "t ");
    company.run("drop owned by <mailer>; drop role <mailer>").await;
    assert_ne!(company.attempt_on(&session, beat).await.said, "t ");
}

#[tokio::test]
async fn a_worker_registers_and_claims_as_one_role() {
    let company = Company::at_work().await;
    company.run("grant <mailer> to <rival>").await;
    let claim = "select tuskline.claim(<other>, '{<mails>}', '{0}', '{1}', '{9}')";
    let refused = company.refused_as("rival", claim).await;
    let said = company.filled(
        "42501: no_right: executor <other> is of another role than <rival>, or has not registered for \
         each queue [a worker registers and claims as one role, for its own lambdas]",
    );
    assert_eq!(refused, said);
    company.run_as("rival", &format!("set role <mailer>; {claim}")).await;
}

/// A migration adds the columns that claims compare.
#[tokio::test]
async fn a_worker_that_registered_before_there_were_rights_goes_on() {
    let company = Company::of_roles().await;
    company.run("select tuskline.define_lambda('work'), tuskline.schedule('work')").await;
    let session = company.login("mailer").await;
    let register = "select tuskline.register_executor('h', 1, '{work}', 'x', '1 hour')";
    let worker = company.attempt_on(&session, register).await.said;
    company.run("update tuskline_core.live_executor set role = null, queues = null").await;
    company
        .run(
            "select tuskline.grant_lambda('work', '<mailer>', 'work'),
                    tuskline.grant_lambda('work', '<team_mail>', 'own')",
        )
        .await;
    let claim = format!(
        "select tuskline.set_results({worker}, task_id, array[lease_id])
           from tuskline.claim({worker}, '{{1,2,3,4}}', '{{0,0,0,0}}', '{{1,1,1,1}}', '{{9}}')"
    );
    assert_eq!(company.attempt_on(&session, &claim).await.said, "{} ");
    assert_eq!(company.db.count("success").await, 1);
}

/// A result of a worker whose executor has ended counts as long as its lease is there.
#[tokio::test]
async fn a_worker_reports_its_own_tasks_also_after_its_end_and_twice() {
    let company = Company::at_work().await;
    let set = "select tuskline.set_results(<worker>, array[<held>], array[<lease>]::bigint[], null,
                 array[<lease>]::bigint[])";
    company.run_as("biller", "select tuskline.end_executor(<worker>)").await;
    assert_eq!(company.attempt("mailer", set).await.said, company.filled("{<held>} "));
    for _ in 0..2 {
        assert_eq!(company.attempt("biller", set).await.said, "{} ");
    }
    assert_eq!(company.db.status(company.filled("<held>").parse().unwrap()).await, "success");
}

#[tokio::test]
async fn the_author_of_an_act_is_its_caller() {
    let company = Company::at_work().await;
    let rival = company.filled("<rival>");
    company.run("grant <rival> to <gateway>; select tuskline.grant_lambda('charge_card', '<rival>', 'own')").await;
    company
        .run_as(
            "gateway",
            "set role <rival>;
             select tuskline.define_lambda('mine'); select tuskline.gate('mine', 'pause', p_reason => 'x');
             select tuskline.set_limit('mine', 1); select tuskline.set_unique('mine');
             select tuskline.set_breaker('mine'); select tuskline.define_periodic('tick', 'mine', '* * * * *');
             select tuskline.start_operation('cancel', 'mine'); select tuskline.cancel(<held>);
             select tuskline.define('[{\"lambda\": \"other\"}]');
             select tuskline.register_executor('h', 5, '{mine}', 'x', '20 s');
             select tuskline.grant_lambda('charge_card', '<shop>', 'inspect')",
        )
        .await;
    let authors = "
        select defined_by from tuskline.lambda where name = 'mine'
        union all select author from tuskline.gate where lambda = 'mine'
        union all select author from tuskline.task_limit where lambda = 'mine'
        union all select author from tuskline.unique_policy where lambda = 'mine'
        union all select author from tuskline.breaker where lambda = 'mine'
        union all select author from tuskline.periodic where name = 'tick'
        union all select author from tuskline.operation where lambda = 'mine'
        union all select author from tuskline.definition where lambda = 'other'
        union all select requested_by from tuskline.cancellation
        union all select role from tuskline.executor where lambdas = '{mine}'
        union all select granted_by from tuskline.lambda_grant where privilege = 'inspect' and lambda <> '*'
        union all (select actor from tuskline.audit where actor <> current_user order by at desc limit 10)";
    let found: Vec<String> =
        company.db.all(&format!("select a::text from ({authors}) a (a)")).await;
    assert_eq!(found, vec![rival; 21]);
}

#[tokio::test]
async fn a_wrong_grant_is_refused() {
    let company = Company::at_work().await;
    for (sql, said) in [
        (
            "select tuskline.grant_lambda('charge_card', 'gone', 'own')",
            "TK056: TK056 invalid_grant: there is no role 'gone' [create role ...]",
        ),
        (
            "select tuskline.grant_lambda('charge_card', null, 'own')",
            "TK056: TK056 invalid_grant: there is no role null [create role ...]",
        ),
        (
            "select tuskline.grant_lambda('charge_card', 'public', 'own')",
            "TK056: TK056 invalid_grant: a right belongs to one role, got public [a lambda that every role \
             may use has no owner]",
        ),
        (
            "select tuskline.grant_lambda('charge_card', '<shop>', 'shedule')",
            "TK056: TK056 invalid_grant: a right is schedule, work, inspect, operate or own, got 'shedule'",
        ),
        (
            "select tuskline.grant_lambda('charge_card', '<shop>', 'own', null)",
            "TK056: TK056 invalid_grant: a right is schedule, work, inspect, operate or own, got null",
        ),
        (
            "select tuskline.grant_lambda('charge_card', '<shop>', variadic '{}')",
            "TK056: TK056 invalid_grant: a right is schedule, work, inspect, operate or own, got null",
        ),
        (
            "select tuskline.may('charge_card', 'shedule')",
            "TK056: TK056 invalid_grant: a right is schedule, work, inspect, operate or own, got 'shedule'",
        ),
        (
            "select tuskline.grant_lambda('charge_cart', '<shop>', 'own')",
            "TK001: TK001 unknown_lambda: 'charge_cart' is not defined [did you mean 'charge_card'? else \
             define it: select tuskline.define_lambda('charge_cart')]",
        ),
        (
            "select tuskline.grant_lambda(null, '<shop>', 'own')",
            "TK001: TK001 unknown_lambda: null is not defined [a name matches [a-z][a-z0-9_]{0,62}]",
        ),
        (
            "begin isolation level repeatable read;
             select tuskline.grant_lambda('charge_card', '<shop>', 'own')",
            "TK056: TK056 invalid_grant: rights change at read committed only, got repeatable read",
        ),
    ] {
        let before = company.state().await;
        let refused = company.db.refused(&company.filled(sql)).await;
        company.db.run("rollback").await;
        assert_eq!(refused, said, "{sql}");
        assert_eq!(company.state().await, before, "{sql}");
    }
    let revoke = "select tuskline.revoke_lambda('charge_card', '<shop>', 'work')";
    assert!(!company.db.one::<bool>(&company.filled(revoke)).await, "it was not granted");
    let again = "select tuskline.grant_lambda('charge_card', '<biller>', 'work')";
    assert!(!company.db.one::<bool>(&company.filled(again)).await, "it was granted");
    let refused = company
        .refused_as("biller", "select tuskline.grant_lambda('charge_card', '<shop>', 'work')")
        .await;
    assert!(refused.starts_with("42501: permission denied"), "it has no verb for it: {refused}");
}

/// In a schema of a superuser, or for one, rights protect nothing.
#[tokio::test]
async fn a_superuser_gets_no_right_and_owns_no_schema_with_rights() {
    let company = Company::at_work().await;
    let name = superuser();
    let grant = format!("select tuskline.grant_lambda('charge_card', '{name}', 'own')");
    let refused = company.db.refused(&grant).await;
    assert!(refused.contains(&format!("invalid_grant: role {name} is a superuser")), "{refused}");
    // In one transaction: other tests use the owner's role at the same time.
    let grant = "begin; alter role app_owner superuser; set local role <pay_deploy>;
                 select tuskline.grant_lambda('charge_card', '<shop>', 'work')";
    let refused = company.attempt("", grant).await.said;
    assert!(refused.contains("the owner of the schema, app_owner, is a superuser"), "{refused}");
}

#[tokio::test]
async fn a_right_of_a_role_that_was_renamed_or_dropped_stays_and_is_shown() {
    let company = Company::at_work().await;
    let gone =
        "select string_agg(role || ' ' || privilege, ', ' order by 1) from tuskline.lambda_grants
                 where role_is_gone";
    assert_eq!(company.db.one::<Option<String>>(gone).await, None);
    company.run("alter role <shop> rename to <shop>_renamed").await;
    let shop = company.filled("<shop>");
    assert_eq!(company.db.one::<Option<String>>(gone).await, Some(format!("{shop} schedule")));
    let schedule =
        company.filled("set role <shop>_renamed; select tuskline.schedule('send_email')");
    let refused = company.db.refused(&schedule).await;
    assert!(refused.contains("_renamed has no right to schedule send_email"), "{refused}");
    company
        .run("reset role; select tuskline.revoke_lambda('send_email', '<shop>', 'schedule')")
        .await;
    assert_eq!(company.db.one::<Option<String>>(gone).await, None);
    company.run("drop owned by <team_mail>; drop role <team_mail>").await;
    let team = company.filled("<team_mail> own");
    assert_eq!(company.db.one::<Option<String>>(gone).await, Some(team));
    let may = "select tuskline.may('send_email', 'own')";
    let refused = company.refused_as("mail_deploy", may).await;
    assert!(refused.starts_with("42501"), "its verbs were the team's: {refused}");
    assert!(company.db.one::<bool>(may).await, "the owner of the schema");
    company.run("select tuskline.revoke_lambda('send_email', '<team_mail>', 'own')").await;
}

#[tokio::test]
async fn two_first_grants_at_once_hold_both() {
    let company = Company::of_roles().await;
    company.run("select tuskline.define_lambda('work')").await;
    company.run("begin; select tuskline.grant_lambda('work', '<team_pay>', 'own')").await;
    let second = company.db.connect().await;
    let pid: i32 = second.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let grant = company.filled("select tuskline.grant_lambda('work', '<team_mail>', 'own')");
    let waits = tokio::spawn(async move { within(second.batch_execute(&grant)).await });
    company.db.until_blocked(pid).await;
    company.run("commit").await;
    waits.await.unwrap().unwrap();
    let roles = "select distinct q.schedulers from tuskline.queue q";
    let roles: Vec<Vec<String>> = company.db.all(roles).await;
    assert_eq!(roles, [vec![company.filled("<team_mail>"), company.filled("<team_pay>")]]);
    assert!(
        company.refused_as("rival", "select tuskline.schedule('work')").await.starts_with("42501")
    );
}

/// Runs a program of PostgreSQL on a database, as the owner of its schema.
fn client_program(name: &str, database: &str, arguments: &[&str]) {
    let address = shared().config(database);
    let socket = Db::socket(&address);
    let mut command = Command::new(Binaries::find().unwrap().dir.join(name));
    command
        .arg("-h")
        .arg(socket.parent().unwrap())
        .args(["-p", &address.get_ports()[0].to_string()]);
    let ran = command.args(["-U", "app_owner", "-d", database]).args(arguments).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

#[tokio::test]
async fn a_dump_brings_its_rights_also_where_the_roles_are_missing() {
    let company = Company::at_work().await;
    let name = company.db.config.get_dbname().unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    client_program("pg_dump", name, &["-Fc", "--no-acl", "-n", "tuskline*", "-f", path]);
    let copy = format!("{name}_copy");
    shared().create_database(&copy, None).await.unwrap();
    let superuser = company.login("").await;
    superuser
        .batch_execute(&format!("grant create on database {copy} to app_owner"))
        .await
        .unwrap();
    company
        .run("drop owned by <rival>, <shop>, <team_mail>; drop role <rival>, <shop>, <team_mail>")
        .await;
    client_program("pg_restore", &copy, &["--no-acl", path]);
    let mut config = company.db.config.clone();
    config.dbname(&copy);
    let copied = Db::on(config, company.db.cell).await;
    let gone = "select array_agg(distinct role::text order by role::text) from tuskline.lambda_grants where role_is_gone";
    assert_eq!(
        copied.one::<Vec<String>>(gone).await,
        [company.filled("<shop>"), company.filled("<team_mail>")]
    );
    assert!(copied.one::<bool>("select tuskline_core.rights_in_use()").await);
    drop(copied);
    superuser.batch_execute(&format!("drop database {copy} with (force)")).await.unwrap();
}

/// The data alone of a dump comes into functions that know of no rights.
#[tokio::test]
async fn rights_that_came_with_data_alone_are_found_and_repaired() {
    let company = Company::at_work().await;
    company
        .run("create or replace function tuskline_core.rights_in_use() returns boolean language sql immutable as 'select false'")
        .await;
    let schedule = "select tuskline.may('charge_card', 'schedule')";
    assert_eq!(company.attempt("rival", schedule).await.said, "t ");
    let damage: Vec<String> = company.db.all("select problem from tuskline.damage()").await;
    assert_eq!(damage, ["rights_in_use() contradicts lambda_grant"]);
    company.run("select tuskline.repair()").await;
    assert_eq!(company.attempt("rival", schedule).await.said, "f ");
}

#[tokio::test]
async fn a_migration_keeps_the_rights() {
    let company = Company::at_work().await;
    company.db.run("update tuskline_core.stamp set digest = 'of another build'").await;
    let name = company.db.config.get_dbname().unwrap();
    let create = format!("grant create on database {name} to app_owner");
    company.login("").await.batch_execute(&create).await.unwrap();
    tuskline::migrate::migrate(&company.db.config).await.unwrap();
    assert!(company.db.one::<bool>("select tuskline_core.rights_in_use()").await);
    assert!(
        company
            .refused_as("rival", "select tuskline.schedule('charge_card')")
            .await
            .starts_with("42501")
    );
}

/// An id may be drawn before its task is there.
#[tokio::test]
async fn an_operation_leaves_out_ids_that_name_no_task() {
    let company = Company::at_work().await;
    let own: i64 = company.db.one("select tuskline.schedule('open_one')").await;
    let next: i64 = company.db.one("select nextval('tuskline.task_seq')").await;
    let start = format!("select tuskline.start_operation('cancel', p_ids => '{{{own},{next}}}')");
    company.run_as("rival", &start).await;
    let ids = "select ids from tuskline.operation order by operation_id desc limit 1";
    assert_eq!(company.db.one::<Vec<i64>>(ids).await, [own]);
    let start = format!("select tuskline.start_operation('cancel', p_ids => '{{{next}}}')");
    company.run_as("rival", &start).await;
    assert_eq!(company.db.one::<Vec<i64>>(ids).await, Vec::<i64>::new());
}

/// Results wait for a locked row, then lock the free ones of their call.
#[tokio::test]
async fn an_exchange_locks_no_task_of_another_role() {
    let company = Company::at_work().await;
    company.run("select tuskline.ungate(<gate>)").await;
    let mailer = company.login("mailer").await;
    let claim = "select lease_id, task_id[1] from tuskline.claim(<other>, '{<mails>}', '{0}', '{1}', '{9}')";
    let claimed = company.attempt_on(&mailer, claim).await.said;
    let (lease, mail) = claimed.trim().split_once(' ').unwrap();
    company.run(&format!("begin; select from tuskline.task where id = {mail} for update")).await;
    let exchange = format!(
        "begin;
         select deferred from tuskline.exchange(<other>, array[{mail}, <held>], array[{lease}, <lease>], null, null,
           '{{<mails>}}', '{{0}}', '{{1}}', '{{0}}')"
    );
    let ended = company.attempt_on(&mailer, &exchange).await;
    assert_eq!(ended.said, format!("{{{mail}}} "));
    company.run("commit").await;
    company.run("select from tuskline.task where id = <held> for update nowait").await;
}

/// The pages that the cheapest of some calls reads.
async fn pages(company: &Company, sql: &str) -> i64 {
    let explain = format!("explain (analyze, buffers, timing off, format json) {sql}");
    let mut least = i64::MAX;
    for _ in 0..20 {
        let plan: serde_json::Value = company.db.one(&explain).await;
        let count = |name: &str| plan[0]["Plan"][name].as_i64().unwrap();
        least = least.min(count("Shared Hit Blocks") + count("Shared Read Blocks"));
    }
    least
}

#[tokio::test]
async fn rights_cost_a_call_and_a_page_of_tasks_hardly_a_read() {
    let company = Company::of_roles().await;
    company.run("select tuskline.define_lambda('work')").await;
    company.run("select tuskline.schedule_many(array_fill('work'::text, array[2000]))").await;
    let latest = "select * from tuskline.tasks order by id desc limit 50";
    let bare = pages(&company, &latest.replace("tuskline.", "tuskline_core.all_")).await;
    assert_eq!(pages(&company, latest).await, bare);
    let schedule = "select tuskline.schedule('work')";
    let unused = pages(&company, schedule).await;
    company.run("select tuskline.grant_lambda('work', 'app_owner', 'schedule'), tuskline.grant_lambda('work', '<team_pay>', 'own')").await;
    assert!(company.db.one::<bool>("select tuskline_core.rights_in_use()").await);
    assert_eq!(pages(&company, schedule).await, unused);
    company.run("grant <auditor> to current_user; select tuskline.grant_lambda('*', '<auditor>', 'inspect')").await;
    for reader in ["app_owner", "<auditor>", "<viewer>"] {
        company.run(&format!("set role {reader}")).await;
        let read = pages(&company, latest).await;
        assert!(read <= bare + bare / 10, "{reader}: {read} pages, without rights {bare}");
        company.run("reset role").await;
    }
}

/// A statement that reads no contents has the plan that it would have without rights.
#[tokio::test]
async fn a_count_of_tasks_asks_for_no_right() {
    let company = Company::at_work().await;
    let plan = |view: &str| {
        format!("explain (costs off) select status, count(*) from {view} group by status")
    };
    let [bare, hiding] = [plan("tuskline_core.all_tasks"), plan("tuskline.tasks")];
    let bare: Vec<String> = company.db.all(&bare).await;
    assert_eq!(company.db.all::<String>(&hiding).await, bare);
}
