//! A payload is accepted as text, as json and as jsonb, wherever a verb takes one.

use tokio_postgres::types::Type;

use crate::support::Db;

/// The payload of each task, in the order of the ids.
async fn payloads(db: &Db) -> Vec<String> {
    db.all("select coalesce(payload::text, '-') from tuskline.task order by id").await
}

#[tokio::test]
async fn a_call_of_the_readme_takes_text_json_jsonb_or_no_payload() {
    let db = Db::with_lambda("work").await;
    for call in [
        "'work', '{\"to\": \"ada\"}', p_delay => '90 s'",
        "'work', json_build_object('to', 'ada')",
        "'work', jsonb_build_object('to', 'ada')",
        "'work', p_payload => to_jsonb(7), p_priority => 'high'",
        "'work'",
        "'work', null",
        "'work', p_delay => '1 s'",
    ] {
        db.run(&format!("select tuskline.schedule({call})")).await;
    }
    let expected =
        ["{\"to\" : \"ada\"}", "{\"to\": \"ada\"}", "7", "-", "-", "{\"to\": \"ada\"}", "-"];
    assert_eq!(payloads(&db).await, expected, "first those that are due at once");
}

#[tokio::test]
async fn a_parameter_without_a_type_is_text_and_one_of_a_type_is_taken_as_it_is() {
    let db = Db::with_lambda("work").await;
    // node-pg, psycopg and tokio-postgres leave the type to the server.
    let prepared = db.client.prepare("select tuskline.schedule($1, $2)").await.unwrap();
    assert_eq!(prepared.params(), [Type::TEXT, Type::TEXT]);
    db.client.query_one(&prepared, &[&"work", &"{\"n\":  1}"]).await.unwrap();
    // psycopg's Json and Jsonb, SQLAlchemy and Django name it.
    for (kind, text) in [(Type::JSON, "{\"n\":  2}"), (Type::JSONB, "{\"n\":  3}")] {
        let value: serde_json::Value = serde_json::from_str(text).unwrap();
        let sql = "select tuskline.schedule($1, $2)";
        db.client.query_typed(sql, &[(&"work", Type::TEXT), (&value, kind)]).await.unwrap();
    }
    assert_eq!(payloads(&db).await, ["{\"n\":  1}", "{\"n\":2}", "{\"n\": 3}"]);
}

#[tokio::test]
async fn a_trigger_schedules_a_task_with_its_new_row() {
    let db = Db::with_lambda("work").await;
    db.run(
        "create table public.orders (id integer, amount numeric);
         create function public.on_order() returns trigger language plpgsql as $$
         begin
           perform tuskline.schedule('work', to_jsonb(new));
           perform tuskline.schedule('work', row_to_json(new));
           return null;
         end $$;
         create trigger on_order after insert on public.orders
           for each row execute function public.on_order();
         insert into public.orders values (7, 12.50)",
    )
    .await;
    let expected = ["{\"id\": 7, \"amount\": 12.50}", "{\"id\":7,\"amount\":12.50}"];
    assert_eq!(payloads(&db).await, expected);
}

#[tokio::test]
async fn every_verb_with_one_payload_takes_each_type() {
    let db = Db::with_lambda("work").await;
    let id = db.schedule("work").await;
    for json in ["'1'", "'1'::text", "'1'::json", "'1'::jsonb"] {
        let then = format!("select tuskline.schedule_then(array[{id}]::bigint[], 'work', {json})");
        db.run(&then).await;
        let tasks = json.replace("'1'", "'[{\"lambda\": \"work\", \"payload\": 1}]'");
        db.run(&format!("select * from tuskline.schedule_chain({tasks})")).await;
        for call in [
            format!("'each', 'work', '* * * * *', {json}, 'Europe/Berlin'"),
            format!("'each', 'work', '* * * * *', p_payload => {json}"),
        ] {
            db.run(&format!("select tuskline.define_periodic({call})")).await;
        }
        let arguments = format!("p_ids => array[{id}]::bigint[], p_payload => {json}");
        let redrive = format!("'redrive', {arguments}, p_reason => 'a typo'");
        db.run(&format!("select tuskline.start_operation({redrive})")).await;
    }
    let none = format!(
        "select tuskline.schedule_then(array[{id}]::bigint[], 'work'),
                       tuskline.define_periodic('none', 'work', '* * * * *')"
    );
    db.run(&none).await;
    let counted = "select count(*) filter (where payload::text = '1'), count(*) from tuskline.task";
    assert_eq!(db.lines(counted).await, ["8 | 10"]);
    let redrives = "select count(*) from tuskline.operation where payload::text = '1'";
    assert_eq!(db.one::<i64>(redrives).await, 4);
}

#[tokio::test]
async fn text_that_is_not_json_is_refused_and_named() {
    let db = Db::with_lambda("work").await;
    for call in [
        "schedule('work', '{a}')",
        "schedule_then(array[1]::bigint[], 'work', '{a}')",
        "define_periodic('nightly', 'work', '* * * * *', '{a}')",
        "start_operation('redrive', p_ids => array[1], p_payload => '{a}', p_reason => 'a typo')",
    ] {
        let said = db.refused(&format!("select tuskline.{call}")).await;
        let expected = "TK003: TK003 invalid_payload: payload must be JSON, got '{a}'";
        assert!(said.starts_with(expected), "{call}: {said}");
    }
    let said = db.refused("select tuskline.schedule_chain('[')").await;
    assert!(
        said.starts_with("TK003: TK003 invalid_payload: tasks must be JSON, got '['"),
        "{said}"
    );
    let deep = "select tuskline.schedule('work', repeat('[', 120000) || repeat(']', 120000))";
    assert!(db.refused(deep).await.starts_with("TK003: TK003 invalid_payload"));
    assert_eq!(db.one::<i64>("select count(*) from tuskline.task").await, 0);
}

/// An overload is the verb's own text: none of them calls the verb, and none has a default to be taken for.
#[tokio::test]
async fn each_overload_is_the_verb_itself_with_another_type() {
    let db = Db::new().await;
    let verbs = "select p.proname || ' ' || string_agg(case when 'jsonb'::regtype = any (p.proargtypes) then 'jsonb'
                                                when 'json'::regtype = any (p.proargtypes) then 'json' else 'text' end
                          || case when pg_get_function_arguments(p.oid) ~ 'p_payload text DEFAULT' then ' default' else '' end,
                        ', ' order by p.oid)
                   from pg_proc p where p.pronamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace) and p.prosecdef
                    and p.proname in ('schedule', 'schedule_then', 'schedule_chain', 'define_periodic')
                  group by p.proname order by 1";
    let found: Vec<String> = db.all(verbs).await;
    let expected = [
        "define_periodic text default, json, jsonb",
        "schedule text default, json, jsonb",
        "schedule_chain text, json, jsonb",
        "schedule_then text default, json, jsonb",
    ];
    assert_eq!(found, expected);
    let arrays = "select count(*) from pg_proc where proname = 'schedule_many'";
    assert_eq!(db.one::<i64>(arrays).await, 1, "two array types are ambiguous without a type");
}
