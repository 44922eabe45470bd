//! Installations of different cells never issue the same number, and each keeps to its own.

use std::ops::Range;

use tuskline::migrate::{Functions, migrate, migrate_in_cell};

use crate::support::{Db, cell, shared};

/// Every sequence that a cell bounds: task ids first.
const SEQUENCES: [&str; 5] = [
    "task_seq",
    "future_seq",
    "gate_gate_id_seq",
    "task_limit_limit_id_seq",
    "operation_operation_id_seq",
];

/// A database with one lambda whose ids are those of a cell.
async fn in_cell(cell: u8) -> Db {
    let mut db = Db::with_lambda("work").await;
    db.cell = cell;
    db.run(&format!("select tuskline_core.bound_sequences({cell})")).await;
    db.run(&format!("update tuskline.installation set cell = {cell}")).await;
    db.run("select tuskline.add_segments()").await;
    db
}

/// The ids of a cell, due at once and later, and its numbers of gates, limits and operations.
fn ranges(db: &Db) -> [Range<i64>; 3] {
    [
        db.id(1)..db.id(1 << 44),
        db.future_id(0)..db.future_id(1 << 44),
        db.number(1)..db.number(1 << 24),
    ]
}

#[tokio::test]
async fn each_number_lies_in_the_range_of_its_cell() {
    for cell in [0, 1, 37, 63] {
        let db = in_cell(cell).await;
        let [now, later, numbers] = ranges(&db);
        let ids = [db.schedule("work").await, db.schedule_many("work", 3).await[2]];
        assert_eq!(ids, [now.start, now.start + 3]);
        let future: i64 = db.one("select tuskline.schedule('work', p_delay => '1 hour')").await;
        assert_eq!(future, later.start);
        for begin in [
            "tuskline.gate('work', 'pause', p_reason => 'x')",
            "tuskline.set_limit('work', 1)",
            "tuskline.start_operation('cancel', 'work', p_reason => 'x')",
        ] {
            assert_eq!(db.one::<i64>(&format!("select {begin}")).await, numbers.start, "{begin}");
        }
        for id in ids.iter().chain([&future, &(now.end - 1), &(later.end - 1)]) {
            let its: i32 = db.ask("select tuskline_core.cell_of($1)", &[id]).await;
            assert_eq!(its, i32::from(cell), "{id}");
            assert!(*id < 1 << 51);
        }
        let segments = "select count(*) from tuskline.segment
            where tuskline_core.cell_of(segment_no << 24)";
        assert_eq!(db.one::<i64>(&format!("{segments} = {cell}")).await, 18);
    }
}

#[tokio::test]
async fn no_sequence_goes_past_the_end_of_its_cell() {
    for cell in [0, 37, 63] {
        let db = in_cell(cell).await;
        let [now, later, numbers] = ranges(&db);
        for (sequence, range) in SEQUENCES.iter().zip([&now, &later, &numbers, &numbers, &numbers])
        {
            let next = format!("select nextval('tuskline.{sequence}')");
            assert_eq!(db.one::<i64>(&next).await, range.start, "{sequence}");
            db.run(&format!("select setval('tuskline.{sequence}', {})", range.end - 1)).await;
            let refused = db.refused(&next).await;
            let expected =
                format!("2200H: nextval: reached maximum value of sequence \"{sequence}\"");
            assert!(refused.starts_with(&expected), "{refused}");
            for outside in [range.start - 1, range.end] {
                let set = format!("select setval('tuskline.{sequence}', {outside})");
                assert!(db.refused(&set).await.starts_with("22003"), "{set}");
            }
        }
        assert!(db.refused("select tuskline.schedule('work')").await.starts_with("2200H"));
        let beyond = "select count(*) from tuskline.segment
            where segment_no > tuskline_core.segment_of($1)
              and tuskline_core.cell_of(segment_no << 24) <> $2";
        db.run("select tuskline.add_segments(); select tuskline.roll_segments()").await;
        let made: i64 = db.ask(beyond, &[&now.start, &i32::from(cell)]).await;
        let of_template = if cell == self::cell() { 0 } else { 18 };
        assert!(made <= of_template, "{made} segments of other cells");
    }
}

#[tokio::test]
async fn a_cell_is_set_once() {
    let db = Db::new().await;
    let set = |cell: i32| format!("select tuskline_core.set_cell({cell})");
    let (has, other) = (i32::from(cell()), i32::from(cell() ^ 1));
    db.run(&set(has)).await;
    db.run("select tuskline_core.set_cell(null)").await;
    let expected = format!(
        "TK042: TK042 invalid_cell: this database issues ids of cell {has}, it cannot become cell {other} \
         [create an empty database: tuskline migrate --cell {other}]"
    );
    assert_eq!(db.refused(&set(other)).await, expected);
    // The segments are lost, but the sequence of ids is not.
    db.run("select nextval('tuskline.future_seq'); delete from tuskline.segment").await;
    assert_eq!(db.refused(&set(other)).await, expected);
    for wrong in [-1, 64] {
        let said = db.refused(&set(wrong)).await;
        let expected =
            format!("TK042: TK042 invalid_cell: a cell must be between 0 and 63, got {wrong}");
        assert_eq!(said, expected);
        let row = format!("update tuskline.installation set cell = {wrong}");
        assert!(db.refused(&row).await.starts_with("23514"), "{wrong}");
    }
}

#[tokio::test]
async fn the_first_migration_chooses_the_cell_and_a_later_one_changes_nothing() {
    let name = format!("{}_cell", Db::new().await.config.get_dbname().unwrap());
    shared().create_database(&name, None).await.unwrap();
    let config = shared().config(&name);
    migrate_in_cell(&config, 5).await.unwrap();
    let db = Db::on(config, 5).await;
    db.define("work").await;
    assert_eq!(db.schedule("work").await, db.id(1));
    assert_eq!(db.one::<i16>("select cell from tuskline.installation").await, 5);
    for cell in [None, Some(5)] {
        let report = match cell {
            None => migrate(&db.config).await,
            Some(cell) => migrate_in_cell(&db.config, cell).await,
        };
        assert_eq!(report.unwrap().functions, Functions::Unchanged);
    }
    let refused = migrate_in_cell(&db.config, 6).await.unwrap_err();
    assert!(format!("{refused:?}").contains("TK042 invalid_cell"), "{refused:?}");
    // A migration in the wrong cell renews no function either.
    db.run("update tuskline_core.stamp set digest = 'another'").await;
    migrate_in_cell(&db.config, 6).await.unwrap_err();
    assert_eq!(db.one::<String>("select digest from tuskline_core.stamp").await, "another");
    migrate(&db.config).await.unwrap();
    assert_eq!(db.schedule("work").await, db.id(2));
}

#[tokio::test]
async fn an_id_of_another_cell_is_refused() {
    let template = Db::new().await;
    let db = in_cell(37).await;
    db.schedule("work").await;
    // The segments of the template are there, so that the row finds one.
    for id in [template.id(7), template.future_id(7)] {
        let insert = format!("insert into tuskline.task (id, lambda) values ({id}, 'work')");
        let said = db.refused(&insert).await;
        let expected =
            format!("TK051: TK051 invalid_id: the sequences of tuskline have not issued {id}");
        assert!(said.starts_with(&expected), "{said}");
    }
}

/// Tasks of another cell may stand in the same store: they move no id of ours.
#[tokio::test]
async fn a_recovery_beside_tasks_of_another_cell_stays_in_its_own() {
    let db = in_cell(37).await;
    let (now, later) = (db.schedule("work").await, db.future_id(0));
    for stranger in [now + (1 << 44), now - (1 << 44), later + (1 << 44)] {
        db.run(&format!(
            "select tuskline_core.add_segment({stranger}::bigint >> 24);
             update tuskline.segment set opened_at = now() where segment_no = {stranger}::bigint >> 24;
             insert into tuskline_core.task_store (id, lambda, status, finished_at)
             values ({stranger}, 'work', 'success', now())"
        ))
        .await;
    }
    let damage = "select count(*) from tuskline.damage()";
    assert_eq!(db.one::<i64>(damage).await, 0, "no sequence stands behind a stranger");
    db.run("truncate tuskline_core.queues_complete; select tuskline.rebuild_queues()").await;
    assert_eq!(db.schedule("work").await, db.id((1 << 24) + 1));
    let future: i64 = db.one("select tuskline.schedule('work', p_delay => '1 hour')").await;
    assert_eq!(future, db.future_id((1 << 24) + 1));
}

#[tokio::test]
async fn a_repaired_installation_has_the_cell_of_its_ids() {
    let db = in_cell(37).await;
    db.run("delete from tuskline.installation; select tuskline.repair()").await;
    let row = db.lines("select name, cell from tuskline.installation").await;
    assert_eq!(row, ["default | 37"]);
}
