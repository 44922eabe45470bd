//! Gates, limits and orders that make no sense are refused, each with a code and what to do.

use crate::support::Db;

async fn refused(db: &Db, call: &str) -> String {
    let said = db.refused(&format!("select tuskline.{call}")).await;
    said.split_once(": ").map(|(_, text)| text.to_owned()).unwrap_or(said)
}

#[tokio::test]
async fn what_is_no_gate_is_refused() {
    let db = Db::with_lambda("work").await;
    for (call, said) in [
        (
            "gate('nobody', 'pause', p_reason => 'x')",
            "TK001 unknown_lambda: 'nobody' is not defined",
        ),
        ("gate(null, 'pause', p_reason => 'x')", "TK001 unknown_lambda: null is not defined"),
        (
            "gate('work', 'stop', p_reason => 'x')",
            "TK017 invalid_gate: action must be pause, drop or divert, got 'stop'",
        ),
        (
            "gate('work', null, p_reason => 'x')",
            "TK017 invalid_gate: action must be pause, drop or divert, got null",
        ),
        (
            "gate('work', 'slow', p_reason => 'x')",
            "TK017 invalid_gate: action must be pause, drop or divert, got 'slow' [select tuskline.throttle(...)]",
        ),
        (
            "throttle('work', null, p_reason => 'x')",
            "TK018 invalid_limit: per_second must be 0.001 to 1000000, got null",
        ),
        (
            "throttle('work', 'NaN', p_reason => 'x')",
            "TK018 invalid_limit: per_second must be 0.001 to 1000000, got NaN",
        ),
        ("throttle('work', 1)", "TK018 invalid_limit: reason must have 1 to 500 characters"),
        ("throttle('nobody', 1, p_reason => 'x')", "TK001 unknown_lambda: 'nobody' is not defined"),
        ("throttle('work', 1, 'news', p_reason => 'x')", "TK016 unknown_collection: "),
        ("gate('work', 'pause')", "TK017 invalid_gate: reason must have 1 to 500 characters"),
        (
            "gate('work', 'pause', p_reason => ' ')",
            "TK017 invalid_gate: reason must have 1 to 500 characters",
        ),
        (
            "gate('work', 'pause', p_until => '2020-01-01Z', p_reason => 'x')",
            "TK017 invalid_gate: until must be finite and to come, got 2020-01-01 00:00:00+00",
        ),
        (
            "gate('work', 'pause', p_for => '-1 h', p_reason => 'x')",
            "TK017 invalid_gate: until must be finite and to come, got -01:00:00",
        ),
        (
            "gate('work', 'pause', p_until => 'infinity', p_reason => 'x')",
            "TK017 invalid_gate: until must be finite and to come, got infinity",
        ),
        (
            "gate('work', 'pause', p_until => '2099-01-01', p_for => '1 h', p_reason => 'x')",
            "TK017 invalid_gate: give until or for, not both",
        ),
        (
            "gate('work', 'pause', 'news', p_reason => 'x')",
            "TK016 unknown_collection: no recent task of work has collection 'news' [p_unseen => true accepts it all the same]",
        ),
        ("gate('work', 'pause', 'Bad!', p_reason => 'x')", "TK002 invalid_name: "),
        (
            "gate('work', 'pause', p_priority => 'urgent', p_reason => 'x')",
            "TK006 invalid_priority: ",
        ),
    ] {
        let answer = refused(&db, call).await;
        assert!(answer.starts_with(said), "{call}\n{answer}");
    }
    assert_eq!(db.one::<i64>("select count(*) from tuskline.gate").await, 0);
}

#[tokio::test]
async fn what_is_no_limit_and_no_order_is_refused() {
    let db = Db::with_lambda("work").await;
    for (call, said) in [
        ("set_limit('nobody', 1)", "TK001 unknown_lambda: 'nobody' is not defined"),
        ("set_limit('work')", "TK018 invalid_limit: give max_concurrency or per_second"),
        ("set_limit('work', 1, 1)", "TK018 invalid_limit: give max_concurrency or per_second; for"),
        ("set_limit('work', -1)", "TK018 invalid_limit: max_concurrency must be 0 to 100000, got"),
        (
            "set_limit('work', p_per_second => 0)",
            "TK018 invalid_limit: per_second must be 0.001 to 1000000, got 0",
        ),
        (
            "set_limit('work', p_per_second => 'NaN')",
            "TK018 invalid_limit: per_second must be 0.001 to 1000000, got NaN",
        ),
        (
            "set_limit('work', 1, p_burst => 2)",
            "TK018 invalid_limit: burst must be 1 to 100000, with per_second, got 2",
        ),
        (
            "set_limit('work', p_per_second => 200, p_burst => 19)",
            "TK018 invalid_limit: burst must be at least a tenth of per_second, 20, got 19",
        ),
        (
            "set_limit('work', 1, p_by_key => true, p_fair => true)",
            "TK018 invalid_limit: a limit by key cannot be fair as well",
        ),
        ("set_limit('work', 1, p_collection => 'Bad!')", "TK002 invalid_name: "),
        ("set_limit('work', 1, p_priority => 'urgent')", "TK006 invalid_priority: "),
        (
            "set_order('work', 'retry')",
            "TK018 invalid_limit: on_failure must be block, skip or dead, got 'retry'",
        ),
        ("set_weight(1, 'a', 2)", "TK018 invalid_limit: 1 is not the number of a fair limit"),
        (
            "schedule('work', p_ordering_key => 'a')",
            "TK019 invalid_key: lambda work keeps no order and takes no ordering_key",
        ),
        (
            "schedule('work', p_limit_key => '')",
            "TK019 invalid_key: limit_key must have 1 to 256 bytes, got 0",
        ),
        (
            "schedule('work', p_fairness_key => repeat('x', 257))",
            "TK019 invalid_key: fairness_key must have 1 to 256 bytes, got 257",
        ),
        (
            "alter_lambda('work', p_max_backlog => -1)",
            "TK009 invalid_setting: max_backlog must be 0 (none) or more, got -1",
        ),
    ] {
        let answer = refused(&db, call).await;
        assert!(answer.starts_with(said), "{call}\n{answer}");
    }
    assert_eq!(db.one::<i64>("select count(*) from tuskline.task_limit").await, 0);
    db.run("select tuskline.set_limit('work', 1, p_fair => true)").await;
    for weight in ["0", "-1", "1001", "null", "'NaN'"] {
        let answer = refused(&db, &format!("set_weight({}, 'a', {weight})", db.number(1))).await;
        assert!(
            answer.starts_with("TK018 invalid_limit: weight must be 0.001 to 1000, got"),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn what_is_not_there_cannot_be_taken_away() {
    let db = Db::with_lambda("work").await;
    for call in
        ["ungate(1)", "ungate(null)", "drop_limit(1)", "drop_limit(null)", "unblock('work', 'a')"]
    {
        assert!(!db.one::<bool>(&format!("select tuskline.{call}")).await, "{call}");
    }
}

#[tokio::test]
async fn null_means_the_default() {
    let db = Db::with_lambda("work").await;
    for call in [
        "set_order('work', null)",
        "set_unique('work', null, null)",
        "set_breaker('work', null, null, null, null)",
        "set_limit('work', 1, p_by_key => null, p_fair => null)",
        "define_periodic('nightly', 'work', '0 7 * * *', p_zone => null, p_priority => null, \
         p_missed => null, p_missed_most => null, p_grace => null, p_overlap => null)",
    ] {
        db.run(&format!("select tuskline.{call}")).await;
    }
    let set = db
        .lines(
            "select l.on_failure, c.by_key, c.fair, u.scope, u.outcome, b.failures, b.span, b.share,
                    b.probe_after, p.zone, p.priority, p.missed, p.missed_max, p.grace, p.overlap
               from tuskline.task_limit l, tuskline.task_limit c, tuskline.unique_policy u,
                    tuskline.breaker b, tuskline.periodic p
              where l.kind = 'order' and c.kind = 'concurrency'",
        )
        .await;
    let defaults = "block | false | false | running | keep | 20 | 00:01:00 | 0.5 | 00:00:30 \
                    | UTC | normal | once | 100 | 00:01:00 | allow";
    assert_eq!(set, [defaults]);
}
