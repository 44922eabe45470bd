use super::edit::Edit;
use super::*;

/// Every anchor fits, and every replacement uses names that the SQL has.
#[test]
fn every_break_finds_its_place() {
    let faults = Breaks::read().unwrap().faults();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

const SQL: &str = "
    create function tuskline_core.make_leaf_verbs() returns void language sql as 'select 1';
    -- it's a comment; create function tuskline.none();
    create or replace function tuskline.first(p_id bigint) returns void language plpgsql as $$
    begin
      update tuskline.task set status = 'new', -- why; not
             fence = p_id where id = p_id;
      execute 'update tuskline.task set status = ''dead'' where id = $1';
      perform 1; perform 1;
    end $$;
    drop function if exists tuskline.twice(text);
    create function tuskline_core.twice(p_in text) returns text language sql as $$ select p_in || 'a;b' $$;
    create function tuskline_core.twice(p_in json) returns text language sql as $$ select p_in || 'a;b' $$;";

fn edited(edit: &str) -> Result<String, String> {
    edit::sql(&Sources::of(SQL), [&Edit::read(edit)?])
}

fn check(edit: &str, expected: &str) {
    let sql = edited(edit).unwrap();
    assert!(sql.contains(expected), "{edit}:\n{sql}");
    assert!(sql.starts_with("create or replace function "), "{sql}");
    assert!(sql.ends_with("select tuskline_core.make_leaf_verbs();\n"), "{sql}");
}

#[test]
fn an_edit_finds_its_place_whatever_the_lines_comments_and_schemas() {
    check("status = 'new', fence = p_id ==> fence = 0", "update tuskline.task set fence = 0 where");
    check("update task set status = 'new' ==> delete", "delete, -- why; not\n");
    check("in first: update tuskline_core.task set status = ''dead'' ==> x", "execute 'x where");
    check("update task … p_id; ==> null;", "begin\n      null;\n      execute");
    check(
        "set status = … where id = p_id ==> where … is null",
        "task where 'new', -- why; not\n             fence = p_id is null;",
    );
    check("all in first: perform 1 ==> null", "null; null;\n");
    check("perform 1; perform ==>", "      1;\n");
}

#[test]
fn functions_of_one_name_are_edited_alike() {
    let sql = edited("in twice: p_in || ==>").unwrap();
    assert_eq!(sql.matches("$$ select  'a;b' $$").count(), 2, "{sql}");
    check("p_in || ==>", "create or replace function tuskline_core.twice(p_in json)");
}

#[test]
fn an_edit_without_a_place_of_its_own_is_refused_by_name() {
    for (edit, refusal) in [
        ("fence = p_it ==>", "nowhere is: fence = p_it"),
        ("in twice: fence = p_id ==>", "nowhere is: fence = p_id"),
        ("status = ==>", "more than once in first: status ="),
        ("select ==>", "in make_leaf_verbs, twice: select"),
        ("perform … 'dead' ==>", "nowhere is: perform … 'dead'"),
        ("not ==>", "nowhere is: not"),
        (" ==> x", "no anchor:  ==> x"),
        ("status", "no ==>: status"),
    ] {
        assert_eq!(edited(edit).unwrap_err(), refusal);
    }
}

#[test]
fn a_replacement_with_a_name_that_has_gone_is_told() {
    let sources = Sources::of(SQL);
    assert_eq!(sources.unknown("fence = tuskline.task if 'x' = 7"), [""; 0]);
    assert_eq!(sources.unknown("fenced = tuskline_core.task"), ["fenced", "tuskline_core.task"]);
}

#[test]
fn a_list_says_what_is_done_and_by_whom_it_is_seen() {
    let list = "# Words.\n\na b\n==> c \\\nd\nsql: drop it\n    one\n    other::two\n    fault: x\ne ==>\n    one\n";
    let list = list::parse("topic", list).unwrap();
    let tests: Vec<Vec<_>> = list.iter().map(|one| one.tests().collect()).collect();
    assert_eq!(tests, [vec!["topic::one", "other::two"], vec!["topic::one"]]);
    assert_eq!(list[0].text, "a b ==> c d\nsql: drop it\n");
    assert_eq!((list[0].edits[0].text.as_str(), &*list[0].statements[0]), ("c d", "drop it"));
    assert_eq!(list[1].place, "list/topic.txt:10");
    assert!(list[0].witnesses[2].is("fault", "x") && !list[0].witnesses[2].is("fault", "y"));
}

#[test]
fn a_list_that_is_not_understood_is_refused_with_its_line() {
    for (text, refusal) in [
        ("  one\n", "list/t.txt:1: no break before the test"),
        ("a ==> b\n", "list/t.txt:1: no test is named"),
        ("\na\n  one\n", "list/t.txt:2: no ==>: a"),
    ] {
        assert_eq!(list::parse("t", text).unwrap_err(), refusal);
    }
}
