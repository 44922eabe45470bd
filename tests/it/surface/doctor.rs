//! `tuskline doctor` names a page and a command for each fault, has exit codes for monitoring, and
//! costs little.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::documents::anchors;
use crate::support::cli::{blind, on, tuskline};
use crate::support::{Db, refusal};

/// Programs of the system that a remedy may call.
const PROGRAMS: [&str; 2] = ["pg_upgrade", "timedatectl"];

/// First words of SQL.
const SQL: [&str; 5] = ["alter", "grant", "rollback", "select", "vacuum"];

/// A value for each name in a command.
const VALUES: [(&str, &str); 13] = [
    ("{connections}", "200"),
    ("{database}", "app"),
    ("{executor}", "1"),
    ("{gid}", "'one'"),
    ("{lambda}", "'work'"),
    ("{lease}", "1"),
    ("{owner}", "postgres"),
    ("{pid}", "1"),
    ("{privilege}", "'work'"),
    ("{role}", "'shop'"),
    ("{slot}", "'one'"),
    ("{table}", "tuskline.timer"),
    ("{task}", "1"),
];

/// Name, page and command of each remedy in the source.
fn remedies() -> Vec<(&'static str, &'static str, String)> {
    let source = include_str!("../../../src/doctor/remedy.rs");
    let (_, list) = source.split_once("\nremedies! {\n").unwrap();
    let entries = list.split(";\n").filter(|entry| entry.contains('"'));
    let remedies = entries.map(|entry| {
        let parts: Vec<_> = entry.split('"').collect();
        let [head, page, _, command, ""] = parts[..] else { panic!("{entry}") };
        let name = head.trim_end_matches(": ").rsplit(['\n', ' ']).next().unwrap();
        let filled = |text: String, (name, value): &(&str, &str)| text.replace(name, value);
        (name, page, VALUES.iter().fold(command.to_owned(), filled))
    });
    remedies.collect()
}

#[test]
fn every_remedy_names_a_page_that_exists_and_is_used() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let remedies = remedies();
    assert!(remedies.len() > 30, "{remedies:?}");
    let sources: String = ["src/doctor", "src/cli/doctor"]
        .iter()
        .flat_map(|directory| std::fs::read_dir(root.join(directory)).unwrap())
        .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap())
        .collect();
    for (name, page, _) in remedies {
        let (path, anchor) = page.split_once('#').unwrap_or((page, ""));
        assert!(path.starts_with("docs/"), "{name}: {page}");
        let text = std::fs::read_to_string(root.join(path)).unwrap_or_default();
        assert!(!text.is_empty(), "{name}: there is no {page}");
        let known = anchor.is_empty() || anchors(&text).iter().any(|known| known == anchor);
        assert!(known, "{name}: there is no {page}");
        assert!(sources.contains(&format!("remedy::{name}")), "no finding has {name}");
    }
}

#[tokio::test]
async fn every_remedy_names_a_command_that_exists() {
    let db = Db::with_lambda("work").await;
    for (name, _, command) in remedies() {
        assert!(!command.contains(['{', '}']), "{name}: no value in this test: {command}");
        let first = command.split(' ').next().unwrap();
        if let Some(line) = command.strip_prefix("tuskline ") {
            let words = line.split(' ').take_while(|word| word.starts_with(char::is_alphabetic));
            let help = line.starts_with("--").then_some("--version");
            let mut call: Vec<_> = words.collect();
            call.push(help.unwrap_or("--help"));
            let printed = tuskline(&call).run().fine();
            let options = line.split(' ').filter(|word| help.is_none() && word.starts_with("--"));
            for option in options {
                assert!(printed.contains(option), "{name}: {command}: {printed}");
            }
        } else if SQL.contains(&first) {
            for statement in command.split("; ") {
                if let Err(error) = db.client.prepare(statement).await {
                    panic!("{name}: {}: {statement}", refusal(&error));
                }
            }
        } else {
            assert!(PROGRAMS.contains(&first), "{name}: {command}");
        }
    }
}

/// The findings of a call with `--json`.
pub fn findings(db: &Db, line: &str) -> Vec<Value> {
    let ran = on(&db.config, line).arg("--json").run();
    assert_eq!(ran.err, "");
    serde_json::from_str::<Vec<Value>>(&ran.out).unwrap()
}

#[tokio::test]
async fn a_line_has_a_page_and_a_command_if_it_is_not_ok() {
    // The clusters of tests have settings that the doctor reports.
    let db = Db::with_lambda("work").await;
    let found = findings(&db, "doctor");
    let of = |verdict: &'static str| found.iter().filter(move |line| line["verdict"] == verdict);
    assert!(of("ok").count() > 15 && of("fail").count() >= 2, "{found:#?}");
    for line in &found {
        let ok = line["verdict"] == "ok";
        assert_eq!([line["page"].is_null(), line["command"].is_null()], [ok, ok], "{line}");
    }
    let text = on(&db.config, "doctor").run().out;
    for line in of("fail").chain(of("warn")) {
        let end = format!(
            "{}; see {}: {}\n",
            line["said"].as_str().unwrap(),
            line["page"].as_str().unwrap(),
            line["command"].as_str().unwrap()
        );
        assert!(text.contains(&end), "{text}");
    }
    let examined: BTreeSet<_> = found.iter().map(|line| line["examined"].to_string()).collect();
    assert_eq!(examined.len(), found.len(), "each thing once: {examined:?}");
}

#[tokio::test]
async fn monitoring_has_the_codes_and_the_first_line_of_a_plugin() {
    let db = Db::with_lambda("work").await;
    let well = on(&db.config, "doctor --verify --monitoring").run();
    assert_eq!((well.code, well.err.as_str()), (0, ""));
    assert_eq!(well.out, "TUSKLINE OK - 17 of 17 lines ok | ok=17 warn=0 fail=0\n");
    let bad = on(&db.config, "doctor --monitoring").run();
    let first = bad.out.lines().next().unwrap();
    assert_eq!((bad.code, bad.err.as_str()), (2, ""));
    assert!(first.starts_with("TUSKLINE CRITICAL - ") && first.contains(": fsync: off"), "{first}");
    assert!(bad.out.lines().skip(1).all(|line| !line.starts_with("ok")), "{}", bad.out);
    let json = on(&db.config, "doctor --monitoring --json").run();
    assert_eq!((json.code, json.out.starts_with("[{")), (2, true), "{}", json.out);

    let report = |url: &str, arguments: &[&str]| {
        let ran = tuskline(arguments).database(url).arg("--monitoring").run();
        assert_eq!((ran.err.as_str(), ran.out.lines().count()), ("", 1), "{}", ran.out);
        (ran.code, ran.out)
    };
    let (code, away) = report("postgresql://127.0.0.1:1/app", &["doctor"]);
    assert!(code == 2 && away.starts_with("TUSKLINE CRITICAL - error connecting"), "{away}");
    for (url, arguments) in [
        ("postgresql://[oops", &["doctor"] as &[&str]),
        ("postgresql://127.0.0.1:1/app", &["doctor", "--verifi"]),
        ("", &["doctor"]),
    ] {
        let (code, said) = report(url, arguments);
        assert!(code == 3 && said.starts_with("TUSKLINE UNKNOWN - "), "{arguments:?}: {said}");
    }
    let away = tuskline(&["doctor", "--monitoring", "--json"]);
    let away = away.database("postgresql://127.0.0.1:1/app").run();
    assert!(away.code == 2 && away.out.starts_with("{\"error\":"), "{}", away.out);
    let absent = format!("{}_bare", db.config.get_dbname().unwrap());
    crate::support::shared().create_database(&absent, None).await.unwrap();
    let config = crate::support::shared().config(&absent);
    let ran = on(&config, "doctor --verify --monitoring").run();
    assert!(ran.code == 3 && ran.out.contains("tuskline migrate"), "{}", ran.out);
    let ran = on(&config, "doctor --monitoring").run();
    let said = "TUSKLINE UNKNOWN - the schema is absent; run `tuskline migrate`";
    assert!(ran.code == 3 && ran.out.starts_with(said), "{}", ran.out);
    let ran = on(&config, "doctor").run();
    assert!(ran.code == 1 && ran.out.contains("FAIL  schema"), "{}", ran.out);
}

/// Pages of the tables and indexes of the schema that all sessions have looked at.
const PAGES: &str = "
    select coalesce(sum(heap_blks_hit + heap_blks_read + coalesce(idx_blks_hit + idx_blks_read, 0)
             + coalesce(toast_blks_hit + toast_blks_read + tidx_blks_hit + tidx_blks_read, 0)), 0)::bigint
      from pg_statio_all_tables where schemaname in ('tuskline', 'tuskline_core')";

/// Pages that the sessions of a call of the doctor looked at. They report them when they end.
async fn pages_of_a_call(db: &Db) -> i64 {
    let open = "select count(*) = 0 from pg_stat_activity
                 where datname = current_database() and application_name = 'tuskline doctor'";
    db.run("select pg_stat_force_next_flush()").await;
    let before: i64 = db.one(PAGES).await;
    on(&db.config, "doctor").run();
    db.until(open).await;
    db.one::<i64>(PAGES).await - before
}

#[tokio::test]
async fn an_examination_costs_the_same_with_ten_times_the_tasks() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    // Tasks in each state: 300 of 5,000 are claimed, 1,000 wait for an hour.
    db.schedule_many("work", 5_000).await;
    db.run("select tuskline.schedule_many(array_fill('work'::text, array[1000]), p_delays => array_fill('1 h'::interval, array[1000]))")
        .await;
    assert_eq!(worker.claim(300).await.len(), 300);
    let few = pages_of_a_call(&db).await;
    for _ in 0..9 {
        db.schedule_many("work", 6_000).await;
    }
    let many = pages_of_a_call(&db).await;
    println!("{few} pages with 6,000 tasks, {many} with 60,000");
    assert!(few > 100 && many < 2_000, "{few}, then {many}");
    // An index of ten times the rows may be one level deeper.
    assert!(many <= few + few / 2, "{few}, then {many}");
}

#[tokio::test]
async fn a_table_that_is_locked_is_named_with_its_session_and_the_rest_is_examined() {
    let db = Db::with_lambda("work").await;
    let other = db.connect().await;
    other.batch_execute("begin; alter table tuskline.timer alter due set not null").await.unwrap();
    let pid: i32 = other.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    db.until(&format!(
        "select xact_start < clock_timestamp() - interval '1 second' from pg_stat_activity where pid = {pid}"
    ))
    .await;
    let found = findings(&db, "doctor");
    let line = |name: &str| found.iter().find(|line| line["examined"] == name).unwrap();
    let locks = line("locks");
    let said = locks["said"].as_str().unwrap();
    assert!(said.starts_with(&format!("pid {pid} (role ")), "{said}");
    assert!(said.contains(" holds an ACCESS EXCLUSIVE lock on tuskline.timer, "), "{said}");
    assert_eq!(locks["command"], format!("select pg_terminate_backend({pid})"));
    let disk = line("disk");
    let said = disk["said"].as_str().unwrap();
    assert!(said.starts_with("not examined: ") && said.contains("(55P03)"), "{said}");
    assert_eq!((&disk["verdict"], &disk["page"]), (&"fail".into(), &"docs/doctor.md#locks".into()));
    for name in ["segments", "leases", "workers", "clock", "fsync", "settings", "xmin horizon"] {
        assert_ne!(line(name)["said"], "", "{name}");
    }
    let monitored = on(&db.config, "doctor --monitoring").run();
    assert_eq!(monitored.code, 2, "{}", monitored.out);
    assert!(monitored.out.contains(&format!("warn locks: pid {pid} ")), "{}", monitored.out);
}

#[tokio::test]
async fn an_owner_that_does_not_see_all_sessions_is_told_with_the_grant() {
    let db = Db::new().await;
    let owner = db.config.get_dbname().unwrap();
    db.run(&format!(
        "create role {owner}; grant {owner} to current_user;
         grant create on schema tuskline to {owner};
         alter function tuskline.gauges() owner to {owner}"
    ))
    .await;
    let found = findings(&db, "doctor");
    let line = found.iter().find(|line| line["examined"] == "metrics").unwrap();
    assert_eq!(line["verdict"], "warn");
    assert!(line["said"].as_str().unwrap().starts_with(&format!("{owner}, the owner")), "{line}");
    let command = line["command"].as_str().unwrap();
    assert_eq!(command, format!("grant pg_read_all_stats to {owner}"));
    db.run(command).await;
    let found = findings(&db, "doctor");
    let line = found.iter().find(|line| line["examined"] == "metrics").unwrap();
    assert_eq!(line["verdict"], "ok");
    db.run(&format!("drop owned by {owner} cascade; drop role {owner}")).await;
}

/// Verdict and text of a line of the doctor at this address.
fn line(address: &str, name: &str) -> (String, String) {
    let ran = tuskline(&["doctor", "--json"]).database(address).run();
    let found: Vec<Value> = serde_json::from_str(&ran.out).unwrap();
    let line = found.iter().find(|line| line["examined"] == name).unwrap();
    let text = |key: &str| line[key].as_str().unwrap().to_owned();
    (text("verdict"), text("said"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_does_not_see_sessions_counts_their_connections() {
    let db = Db::with_lambda("work").await;
    let blind = blind(&db).await;
    let mut open = Vec::new();
    for _ in 0..10 {
        open.push(db.connect().await);
    }
    let (_, said) = line(&blind, "connections");
    let now: i64 = said.split(' ').next().unwrap().parse().unwrap();
    assert!(now > 10, "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_whose_age_is_hidden_is_told_only_if_it_stays() {
    let db = Db::with_lambda("work").await;
    let blind = blind(&db).await;
    let other = db.connect().await;
    let last = CancellationToken::new();
    let until = last.clone();
    let locking = tokio::spawn(async move {
        // Locks the table in transaction after transaction. The last transaction stays open.
        let lock = "begin; lock table tuskline.gate; select pg_sleep(0.2); commit";
        while !until.is_cancelled() {
            other.batch_execute(lock).await.unwrap();
        }
        other.batch_execute("begin; lock table tuskline.gate").await.unwrap();
        other
    });
    let (verdict, said) = line(&blind, "locks");
    assert_eq!((verdict.as_str(), said.as_str()), ("ok", "no session waits for one"));
    last.cancel();
    let _other = locking.await.unwrap();
    let (verdict, said) = line(&blind, "locks");
    assert_eq!(verdict, "warn");
    assert!(said.contains(" holds an ACCESS EXCLUSIVE lock on tuskline.gate, "), "{said}");
}

/// The line of the doctor about one thing.
fn found_of(db: &Db, examined: &str) -> Value {
    let found = findings(db, "doctor");
    found.into_iter().find(|line| line["examined"] == examined).unwrap()
}

#[tokio::test]
async fn an_owner_of_the_schema_that_is_no_ordinary_role_is_told() {
    let db = Db::new().await;
    let found = found_of(&db, "owner");
    let said = found["said"].as_str().unwrap();
    assert_eq!(found["verdict"], "warn", "{said}");
    assert!(said.contains("is a superuser") || said.contains("owns the database"), "{said}");
    let database = db.config.get_dbname().unwrap();
    let owner = format!("{database}_owner");
    db.run(&format!(
        "create role {owner}; grant {owner} to current_user;
         grant create on database {database} to {owner}; alter schema tuskline owner to {owner}"
    ))
    .await;
    let found = found_of(&db, "owner");
    assert_eq!(found["said"], format!("{owner}, an ordinary role"));
    db.run(&format!("alter database {database} owner to {owner}")).await;
    let found = found_of(&db, "owner");
    assert_eq!(found["command"], format!("alter database {database} owner to ROLE"), "{found}");
    db.run(&format!("alter database {database} owner to current_user")).await;
    db.run(&format!("reassign owned by {owner} to current_user; drop owned by {owner}")).await;
}

#[tokio::test]
async fn rights_of_roles_that_are_gone_or_that_they_do_not_restrain_are_told() {
    let db = Db::owned().await;
    let ok = "each is of a role that it restrains";
    assert_eq!(found_of(&db, "rights")["said"], ok);
    let [shop, team] =
        ["shop", "team"].map(|role| format!("{role}_{}", db.config.get_dbname().unwrap()));
    db.run(&format!(
        "create role {shop}; create role {team};
         select tuskline.define_lambda('work'), tuskline.grant_lambda('work', '{shop}', 'work', 'inspect');
         select tuskline.grant_lambda('work', 'app_owner', 'own');"
    ))
    .await;
    let found = found_of(&db, "rights");
    assert_eq!(found["verdict"], "warn", "{found}");
    assert_eq!(
        found["said"],
        "no ordinary role owns work; the first is of app_owner, the owner of the schema"
    );
    let grant = found["command"].as_str().unwrap();
    assert_eq!(grant, "select tuskline.grant_lambda('work', 'TEAM', 'own')");
    db.run(&grant.replace("TEAM", &team)).await;
    assert_eq!(found_of(&db, "rights")["said"], ok);
    db.run(&format!("drop role {shop}")).await;
    for left in ["inspect", "work"] {
        let found = found_of(&db, "rights");
        assert_eq!(found["verdict"], "warn", "{found}");
        assert_eq!(found["said"], format!("rights of roles that are gone: {shop}"));
        let revoke = found["command"].as_str().unwrap();
        assert_eq!(revoke, format!("select tuskline.revoke_lambda('work', '{shop}', '{left}')"));
        db.run(revoke).await;
    }
    assert_eq!(found_of(&db, "rights")["said"], ok);
    let mut superuser = db.config.clone();
    superuser.user(crate::support::superuser());
    let superuser = Db::on(superuser, db.cell).await;
    superuser.run(&format!("alter role {team} superuser")).await;
    let found = found_of(&db, "rights");
    superuser.run(&format!("alter role {team} nosuperuser")).await;
    let said = found["said"].as_str().unwrap();
    assert!(said.starts_with("no ordinary role owns work; the first is of "), "{said}");
    db.run("select tuskline.revoke_lambda('work', 'app_owner', 'own')").await;
    superuser.run(&format!("alter role {team} superuser")).await;
    let found = found_of(&db, "rights");
    superuser.run(&format!("alter role {team} nosuperuser")).await;
    let expected = format!("no ordinary role owns work; the first is of {team}, a superuser");
    assert_eq!(found["said"], expected);
}

#[tokio::test]
async fn ids_without_a_task_are_counted_and_the_logins_that_may_draw_them_named() {
    let db = Db::with_lambda("work").await;
    db.schedule_many("work", 3).await;
    assert_eq!(found_of(&db, "ids")["said"], "under a million of the last day have no task");
    let burner = format!("a_burner_{}", db.config.get_dbname().unwrap());
    db.run(&format!(
        "create role {burner} login in role tuskline_scheduler; grant {burner} to current_user;
         select setval('tuskline.task_seq', ((last_value >> 24) + 2) << 24) from tuskline.task_seq;
         select tuskline.add_segments()"
    ))
    .await;
    let found = found_of(&db, "ids");
    assert_eq!(found["verdict"], "ok", "two crashes pass over as many: {found}");
    db.run(
        "select setval('tuskline.task_seq', ((last_value >> 24) + 2) << 24) from tuskline.task_seq;
         select tuskline.add_segments()",
    )
    .await;
    let found = found_of(&db, "ids");
    let said = found["said"].as_str().unwrap();
    assert!(said.starts_with("67.1 of 67.1 million of the last day have no task; "), "{said}");
    assert!(said.contains(&burner) && said.ends_with("may draw them"), "{said}");
    db.run(&format!("drop role {burner}")).await;
}
