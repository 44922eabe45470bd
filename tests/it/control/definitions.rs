//! An application's code defines lambdas. Only differences from the last definition are applied. An
//! operator's change stays, and an older version of the code changes nothing.

use std::time::Duration;

use serde_json::{Value, json};
use tuskline_sdk::{
    Breaker, Client, Definition, DefinitionOutcome, Definitions, Gate, Limit, OnDuplicate,
    OnFailure, Payload, Periodic, Priority, Unique,
};

use crate::support::cli::on;
use crate::support::{Db, within};

/// Lambda, outcome and changes of each row.
async fn define_as(db: &Db, definitions: &Value, rest: &str) -> Vec<String> {
    let sql = format!(
        "select concat_ws(' ', d.lambda, d.outcome, nullif(d.changes::text, '{{}}')) \
           from tuskline.define('{definitions}'{rest}) d"
    );
    db.all(&sql).await
}

async fn define(db: &Db, definitions: &Value) -> Vec<String> {
    define_as(db, definitions, "").await
}

/// A lambda with each part there is.
fn whole() -> Value {
    json!([{
        "lambda": "mail", "max_attempts": 5, "attempt_timeout": "30 seconds", "retention": "3 days",
        "fatal_retention": "1 day", "archive": "table",
        "order": {"on_failure": "skip"},
        "unique": {"scope": "period", "period": "1 hour", "outcome": "reject"},
        "breaker": {"failures": 50, "window": "5 minutes"},
        "limits": [{"max_concurrency": 10, "by_key": true}, {"per_second": 2.5, "priority": "low"}],
        "gates": [{"action": "pause", "collection": "beta", "reason": "not yet"}],
        "schedules": [{"name": "digest", "cron": "0 7 * * *", "payload": {"kind": "daily"}}]
    }])
}

#[tokio::test]
async fn a_definition_brings_its_lambda_with_all_parts_and_the_same_one_changes_nothing() {
    let db = Db::new().await;
    let said = define(&db, &whole()).await;
    insta::assert_snapshot!(said.join("\n"));
    let audited = "select count(*) from tuskline.audit";
    let before: i64 = db.one(audited).await;
    db.run("begin").await;
    assert_eq!(define(&db, &whole()).await, ["mail unchanged"]);
    let written: bool = db.one("select pg_current_xact_id_if_assigned() is not null").await;
    db.run("commit").await;
    assert!(!written, "a call that changes nothing has written something");
    assert_eq!(db.one::<i64>(audited).await, before);
}

#[tokio::test]
async fn a_change_of_an_operator_stays_until_the_code_changes_the_same_setting() {
    let db = Db::new().await;
    let definition = |attempts: i32, timeout: &str| {
        json!([{"lambda": "mail", "max_attempts": attempts, "attempt_timeout": timeout,
                "limits": [{"max_concurrency": 10}],
                "gates": [{"action": "pause", "reason": "not yet"}]}])
    };
    define(&db, &definition(5, "1 minute")).await;
    db.run(
        "select tuskline.alter_lambda('mail', p_max_attempts => 9), \
                tuskline.set_limit('mail', 1), tuskline.ungate(gate_id) from tuskline.gate",
    )
    .await;
    assert_eq!(define(&db, &definition(5, "60 seconds")).await, ["mail unchanged"]);
    assert_eq!(
        define(&db, &definition(5, "2 minutes")).await,
        [r#"mail changed {"attempt_timeout": ["00:01:00", "00:02:00"]}"#]
    );
    let kept = "select max_attempts || ' ' || (select max_concurrency from tuskline.task_limit) \
                  from tuskline.lambda where not exists
                       (select from tuskline.gate where opened_at is null)";
    assert_eq!(db.all::<String>(kept).await, ["9 1"]);
    assert_eq!(
        define(&db, &definition(6, "2 minutes")).await,
        [r#"mail changed {"max_attempts": [9, 6]}"#]
    );
}

#[tokio::test]
async fn a_part_that_the_definition_has_no_more_is_removed_and_a_setting_is_not() {
    let db = Db::new().await;
    define(&db, &whole()).await;
    // A limit that the definition never had stays.
    db.run("select tuskline.set_limit('mail', 3, p_priority => 'high')").await;
    let said = define(&db, &json!([{"lambda": "mail"}])).await;
    insta::assert_snapshot!(said.join("\n"));
    assert_eq!(db.one::<i16>("select max_attempts from tuskline.lambda").await, 5);
}

#[tokio::test]
async fn an_older_version_changes_nothing_that_a_newer_one_has_defined() {
    let db = Db::new().await;
    let definition = |attempts: i32| json!([{"lambda": "mail", "max_attempts": attempts}]);
    let version = |version: &str| format!(", '{version}'");
    define_as(&db, &definition(5), &version("1.9.0")).await;
    let newer = define_as(&db, &definition(6), &version("1.10.0-rc.1+build7")).await;
    assert_eq!(newer, [r#"mail changed {"max_attempts": [5, 6]}"#]);
    for older in ["1.9.0", "1.10", "0.99.99", "1.9.999-rc.2"] {
        let said = define_as(&db, &definition(5), &version(older)).await;
        assert_eq!(said, ["mail newer"], "{older}");
    }
    assert_eq!(define(&db, &definition(5)).await, ["mail newer"]);
    assert_eq!(define_as(&db, &definition(6), &version("2")).await, ["mail unchanged"]);
    assert_eq!(define_as(&db, &definition(6), &version("1.10.0")).await, ["mail newer"]);
    assert_eq!(db.one::<i16>("select max_attempts from tuskline.lambda").await, 6);
    assert_eq!(db.all::<Vec<i32>>("select version from tuskline.definition").await, [[2]]);
}

#[tokio::test]
async fn a_dry_run_returns_the_same_rows_and_changes_nothing() {
    let db = Db::new().await;
    let dry = define_as(&db, &whole(), ", p_dry_run => true").await;
    for table in ["lambda", "queue", "task_limit", "periodic", "audit", "definition"] {
        let rows: i64 = db.one(&format!("select count(*) from tuskline.{table}")).await;
        assert_eq!(rows, 0, "{table}");
    }
    assert_eq!(define(&db, &whole()).await, dry);
}

#[tokio::test]
async fn a_definition_of_a_wrong_form_is_refused_and_nothing_is_done() {
    let db = Db::new().await;
    let mut said = Vec::new();
    for (definitions, version) in [
        ("null", "null"),
        ("{}", "null"),
        ("[]", "null"),
        ("[7]", "null"),
        (r#"[{"max_attempts": 3}]"#, "null"),
        (r#"[{"lambda": "Mail"}]"#, "null"),
        (r#"[{"lambda": "mail"}, {"lambda": "mail"}]"#, "null"),
        (r#"[{"lambda": "mail", "max_attempt": 3}]"#, "null"),
        (r#"[{"lambda": "mail", "max_attempts": 0}]"#, "null"),
        (r#"[{"lambda": "mail", "max_attempts": 40000}]"#, "null"),
        (r#"[{"lambda": "mail", "max_attempts": "many"}]"#, "null"),
        (r#"[{"lambda": "mail", "attempt_timeout": "soon"}]"#, "null"),
        (r#"[{"lambda": "mail", "max_attempts": {"first": 3}}]"#, "null"),
        (r#"[{"lambda": "mail", "order": true}]"#, "null"),
        (r#"[{"lambda": "mail", "order": {"on_failure": "wait"}}]"#, "null"),
        (r#"[{"lambda": "mail", "unique": {"scope": "always"}}]"#, "null"),
        (r#"[{"lambda": "mail", "breaker": {"window": "long"}}]"#, "null"),
        (r#"[{"lambda": "mail", "limits": {"max": 3}}]"#, "null"),
        (
            r#"[{"lambda": "mail", "limits": [{"max_concurrency": 1}, {"max_concurrency": 2}]}]"#,
            "null",
        ),
        (r#"[{"lambda": "mail", "limits": [{"max_concurrency": 1, "per_second": 2}]}]"#, "null"),
        (
            r#"[{"lambda": "mail", "limits": [{"max_concurrency": 1, "priority": "urgent"}]}]"#,
            "null",
        ),
        (r#"[{"lambda": "mail", "gates": [{"action": "pause"}]}]"#, "null"),
        (r#"[{"lambda": "mail", "schedules": [{"cron": "* * * * *"}]}]"#, "null"),
        (r#"[{"lambda": "mail", "schedules": [{"name": "daily", "cron": "daily"}]}]"#, "null"),
        (r#"[{"lambda": "mail"}]"#, "'v1'"),
        (r#"[{"lambda": "mail"}]"#, "''"),
    ] {
        let refused =
            db.refused(&format!("select tuskline.define($${definitions}$$, {version})")).await;
        said.push(format!("{definitions} {version}\n  {refused}"));
    }
    insta::assert_snapshot!(said.join("\n"));
    assert_eq!(db.one::<i64>("select count(*) from tuskline.lambda").await, 0);
}

#[tokio::test]
async fn a_definition_is_refused_where_it_would_not_be_applied() {
    let db = Db::new().await;
    for (definition, said) in [
        (r#""unique": [{"scope": "forever"}]"#, "unique of lambda mail must be an object"),
        (r#""order": [{"on_failure": "skip"}]"#, "order of lambda mail must be an object"),
        (r#""breaker": [{"failures": 50}]"#, "breaker of lambda mail must be an object"),
        (r#""order": []"#, "order of lambda mail must be an object"),
        (r#""limits": {"max_concurrency": 3}"#, "limits, gates and schedules must be arrays"),
        (r#""gates": {"action": "pause"}"#, "limits, gates and schedules must be arrays"),
        (r#""schedules": {"name": "a", "cron": "* * * * *"}"#, "must be arrays"),
        (r#""limits": [[{"max_concurrency": 3}]]"#, "limits of lambda mail must be an object"),
        (r#""max_attempts": 3, "max_attempts": 5"#, "'max_attempts' of lambda mail must be given"),
        (r#""unique": {"scope": "forever", "scope": "running"}"#, "'scope' of lambda mail must"),
        (
            r#""limits": [{"max_concurrency": 1, "max_concurrency": 2}]"#,
            "'max_concurrency' of lambda mail must be given once",
        ),
    ] {
        let sql = format!(r#"select tuskline.define('[{{"lambda": "mail", {definition}}}]')"#);
        let refused = db.refused(&sql).await;
        assert!(refused.starts_with("TK009") && refused.contains(said), "{definition}: {refused}");
    }
    let twice = r#"[{"lambda": "mail", "order": null, "limits": [],
                     "gates": [{"action": "pause", "collection": "a", "reason": "x"},
                               {"action": "pause", "collection": "b", "reason": "x"}],
                     "schedules": [{"name": "daily", "cron": "0 7 * * *",
                                    "payload": {"of": "the application", "of": "twice"}}]}]"#;
    let said = db.all::<String>(&format!("select outcome from tuskline.define('{twice}')")).await;
    assert_eq!(said, ["created"]);
}

#[tokio::test]
async fn processes_that_start_at_once_define_each_lambda_once() {
    let db = Db::new().await;
    let lambdas = || {
        ('a'..='e').rev().fold(Definitions::of_version("1.0"), |all, name| {
            all.lambda(
                Definition::new(format!("mail_{name}"))
                    .max_attempts(3)
                    .retention(Duration::from_secs(86_400)),
            )
        })
    };
    let clients = (0..8).map(|_| {
        let config = db.config.clone();
        let lambdas = lambdas();
        tokio::spawn(async move {
            let client = Client::connect(config).await.unwrap();
            client.define(&lambdas).await.unwrap()
        })
    });
    let mut created = 0;
    for client in clients.collect::<Vec<_>>() {
        for lambda in within(client).await.unwrap() {
            created += usize::from(lambda.outcome == DefinitionOutcome::Created);
            assert_ne!(lambda.outcome, DefinitionOutcome::Newer);
        }
    }
    assert_eq!(created, 5);
}

#[tokio::test]
async fn a_process_that_starts_with_the_same_definition_waits_for_no_lock() {
    let db = Db::new().await;
    define(&db, &whole()).await;
    let mut other = db.connect().await;
    let holder = other.transaction().await.unwrap();
    holder.execute("select from tuskline.lambda for update", &[]).await.unwrap();
    holder.execute("select from tuskline.definition for update", &[]).await.unwrap();
    db.run("set lock_timeout = '1s'").await;
    assert_eq!(define(&db, &whole()).await, ["mail unchanged"]);
}

#[tokio::test]
async fn a_version_that_was_overtaken_while_it_waited_changes_nothing() {
    let db = Db::new().await;
    let definition = |attempts: i32| json!([{"lambda": "mail", "max_attempts": attempts}]);
    define_as(&db, &definition(5), ", '1'").await;
    let mut other = db.connect().await;
    let newer = other.transaction().await.unwrap();
    let sql = format!("select tuskline.define('{}', '3')", definition(7));
    newer.batch_execute(&sql).await.unwrap();
    let late = db.connect().await;
    let pid: i32 = late.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let sql = format!("select outcome from tuskline.define('{}', '2')", definition(6));
    let waiting = tokio::spawn(async move { late.query_one(&sql, &[]).await.unwrap() });
    db.until_blocked(pid).await;
    newer.commit().await.unwrap();
    assert_eq!(within(waiting).await.unwrap().get::<_, String>(0), "newer");
    assert_eq!(db.one::<i16>("select max_attempts from tuskline.lambda").await, 7);
}

#[tokio::test]
async fn a_gate_that_the_code_changes_takes_the_place_of_the_last_one() {
    let db = Db::new().await;
    let gate = |action: &str, reason: &str| json!([{"lambda": "mail", "gates": [{"action": action, "reason": reason}]}]);
    define(&db, &gate("pause", "not yet")).await;
    define(&db, &gate("divert", "broken")).await;
    let set = "select action || ' ' || reason from tuskline.gate where opened_at is null";
    assert_eq!(db.all::<String>(set).await, ["divert broken"]);
    // An operator's gate of the same scope stays, whatever the code says.
    db.run("select tuskline.ungate(gate_id) from tuskline.gate where opened_at is null").await;
    db.run("select tuskline.gate('mail', 'drop', p_reason => 'by hand')").await;
    define(&db, &gate("pause", "again")).await;
    define(&db, &json!([{"lambda": "mail"}])).await;
    assert_eq!(db.all::<String>(set).await, ["drop by hand"]);
}

#[tokio::test]
async fn a_schedule_that_moves_to_another_lambda_stays() {
    let db = Db::new().await;
    let lambdas = |owner: &str| {
        let parts = |name: &str| match name == owner {
            true => json!({"lambda": name, "schedules": [{"name": "digest", "cron": "0 7 * * *"}]}),
            false => json!({"lambda": name}),
        };
        json!([parts("mail_a"), parts("mail_b")])
    };
    for owner in ["mail_b", "mail_a", "mail_b"] {
        define(&db, &lambdas(owner)).await;
        let seen = "select lambda from tuskline.periodic where name = 'digest'";
        assert_eq!(db.all::<String>(seen).await, [owner]);
    }
}

#[tokio::test]
async fn a_setting_that_is_no_retention_touches_no_segment() {
    let db = Db::new().await;
    define(&db, &json!([{"lambda": "mail", "max_attempts": 5}])).await;
    db.run("update tuskline.segment set ripe_at = tuskline.clock()").await;
    define(&db, &json!([{"lambda": "mail", "max_attempts": 6}])).await;
    let reset = "select count(*) from tuskline.segment where ripe_at is null";
    assert_eq!(db.one::<i64>(reset).await, 0);
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Mail;

impl Payload for Mail {
    const LAMBDA: &'static str = "mail";

    fn settings(lambda: Definition) -> Definition {
        lambda
            .max_attempts(5)
            .max_crashes(2)
            .backoff(Duration::from_millis(500), Duration::from_secs(600))
            .attempt_timeout(Duration::from_secs(30))
            .retention(Duration::from_secs(3 * 86_400))
            .max_payload_bytes(1_000)
            .order(OnFailure::Dead)
            .unique(Unique::forever().on_duplicate(OnDuplicate::Replace))
            .breaker(Breaker::new(9, Duration::from_secs(60)).share(0.25))
            .limit(Limit::concurrency(4).collection("news"))
            .limit(Limit::rate(10.0).burst(2).by_key())
            .gate(
                Gate::divert("broken").priority(Priority::Low).lasting(Duration::from_secs(3_600)),
            )
            .schedule(Periodic::new("digest", "mail", "0 7 * * *").payload(&json!([1])))
    }
}

#[tokio::test]
async fn a_payload_brings_the_settings_of_its_lambda() {
    let db = Db::new().await;
    db.run("set timezone = 'UTC'").await;
    let client = Client::connect(&db.config).await.unwrap();
    let lambdas = Definitions::of_version("1.2.3").lambda(Definition::of::<Mail>());
    let foreseen = client.define(&lambdas.clone().dry_run()).await.unwrap();
    assert_eq!(db.one::<i64>("select count(*) from tuskline.lambda").await, 0);
    let defined = client.define(&lambdas).await.unwrap();
    let settings = |all: &[tuskline_sdk::DefinedLambda]| -> Vec<String> {
        all[0].changes.iter().map(|change| change.setting.clone()).collect()
    };
    assert_eq!(settings(&foreseen), settings(&defined));
    let mut filters = insta::Settings::clone_current();
    filters.add_filter(r"\d{4}-\d\d-\d\dT[\d:.+]+", "[time]");
    filters.bind(|| {
        let lines: Vec<String> = defined[0].changes.iter().map(ToString::to_string).collect();
        insta::assert_snapshot!(lines.join("\n"));
    });
    let again = client.define(&lambdas).await.unwrap();
    assert_eq!(again[0].to_string(), "mail: unchanged");
    let older = Definitions::of_version("1.2.2").lambda(Definition::new("mail"));
    let older = client.define(&older).await.unwrap();
    assert_eq!(older[0].to_string(), "mail: left alone, a newer version has defined it");
    client.schedule(Mail).await.unwrap();
}

#[tokio::test]
async fn the_command_line_defines_from_a_file_and_shows_each_change() {
    let db = Db::new().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("lambdas.json");
    let lambdas = json!([
        {"lambda": "mail", "max_attempts": 5, "limits": [{"max_concurrency": 10}]},
        {"lambda": "report"}
    ]);
    std::fs::write(&file, lambdas.to_string()).unwrap();
    let define = format!("define {} --app-version 1.4.2", file.display());
    let mut screen = on(&db.config, &format!("{define} --dry-run")).run().fine();
    screen += &on(&db.config, &define).run().fine();
    screen += &on(&db.config, &define).run().fine();
    insta::assert_snapshot!(screen);
    let said = on(&db.config, &format!("{define} --json")).run().json();
    assert_eq!(said[0], json!({"lambda": "mail", "outcome": "unchanged", "changes": {}}));
    std::fs::write(&file, "[{").unwrap();
    let refused = on(&db.config, &define).run().refusal();
    assert!(refused.contains("lambdas.json is not JSON"), "{refused}");
    std::fs::remove_file(&file).unwrap();
    let refused = on(&db.config, &define).run().refusal();
    assert!(refused.contains("cannot read"), "{refused}");
}
