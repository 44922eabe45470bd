//! Names are the field's words, and the map of the SQL names each of them.

use std::path::Path;

use crate::support::Db;

/// Names that had to go: each has a word of the field in its place.
const OLD_NAMES: &str = "line place turn most pace slot rule guarded in_use broken \
    enter leave give_places give_turns give_up step_back go_on kick look_again hand_on follow \
    heed_parents hold_gated admit let_go promote witness bury forget revive take_back settle \
    succeed hold_back set_or_hold doze rouse sight looks standby ended_before stay_segments \
    bulk purge_run redrive rule_id slot_no trouble told";

/// Names that were those of Rust items.
const OLD_ITEMS: &str = "Doubts Ear Within Fit FUNCTION_SET Act Trouble Told Rhythm Hand Crew \
    TroubleLog Silence Look Looks";

#[tokio::test]
async fn no_object_of_the_schema_has_a_name_that_had_to_go() {
    let db = Db::new().await;
    let found: Vec<String> = db
        .all(&format!(
            "with n as (select unnest(string_to_array('{}', ' ')) as name),
                  s as (select oid from pg_namespace where nspname in ('tuskline', 'tuskline_core'))
             select 'function ' || p.proname from pg_proc p join n on n.name = p.proname
              where p.pronamespace in (select oid from s)
             union all
             select 'relation ' || c.relname from pg_class c join n on n.name = c.relname
              where c.relnamespace in (select oid from s)
             union all
             select format('column %s.%s', c.relname, a.attname)
               from pg_attribute a join n on n.name = a.attname join pg_class c on c.oid = a.attrelid
              where c.relnamespace in (select oid from s)
             union all
             select format('parameter %s of %s', u.name, p.proname)
               from pg_proc p cross join unnest(p.proargnames) as u (name)
                    join n on n.name = regexp_replace(u.name, '^p_', '')
              where p.pronamespace in (select oid from s)
             order by 1",
            OLD_NAMES.split_whitespace().collect::<Vec<_>>().join(" ")
        ))
        .await;
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn no_command_page_or_item_has_a_name_that_had_to_go() {
    let mut found = Vec::new();
    for path in files(Path::new(env!("CARGO_MANIFEST_DIR")), &["rs", "md", "snap"]) {
        let text = std::fs::read_to_string(&path).unwrap();
        let shown = path.display();
        for name in OLD_NAMES.split_whitespace() {
            if text.contains(&format!("tuskline.{name}(")) {
                found.push(format!("{shown}: tuskline.{name}()"));
            }
            if path.extension().is_some_and(|its| its == "md")
                && text.contains(&format!("`{name}`"))
            {
                found.push(format!("{shown}: `{name}`"));
            }
        }
        for name in OLD_ITEMS.split_whitespace() {
            for kind in ["struct", "enum", "const", "type", "trait"] {
                if text.contains(&format!("pub {kind} {name} "))
                    || text.contains(&format!("pub {kind} {name}<"))
                    || text.contains(&format!("pub {kind} {name}:"))
                {
                    found.push(format!("{shown}: {kind} {name}"));
                }
            }
        }
        for command in ["dead", "unique", "bulk", "limit order", "gate slow"] {
            if text.contains(&format!("Usage: tuskline {command} [")) {
                found.push(format!("{shown}: tuskline {command}"));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[tokio::test]
async fn the_map_of_the_sql_names_each_table_and_verb() {
    let db = Db::new().await;
    let names: Vec<String> = db
        .all(
            "select p.proname::text from pg_proc p
              where p.pronamespace = 'tuskline'::regnamespace
             union
             select c.relname::text from pg_class c
              where c.relnamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace)
                and c.relkind in ('r', 'p') and not c.relname ~ '^(task|queue|gone)_[0-9]+$'
             union
             select c.relname::text from pg_class c
              where c.relnamespace = 'tuskline'::regnamespace and c.relkind = 'v'
             order by 1",
        )
        .await;
    let map = include_str!("../../../migrations/functions/overview.sql");
    let words: Vec<_> = map.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let missing: Vec<_> = names.iter().filter(|name| !words.contains(&name.as_str())).collect();
    assert!(names.len() > 120 && missing.is_empty(), "{}: {missing:?}", names.len());
}

/// The files of a folder and of those below it with one of these extensions, but for what is built.
fn files(folder: &Path, extensions: &[&str]) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let found = entries.flat_map(|path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let extension = path.extension().map(|its| its.to_string_lossy().into_owned());
        match extension {
            _ if path.is_dir() && (name == "target" || name.starts_with('.')) => vec![],
            _ if path.is_dir() => files(&path, extensions),
            Some(its) if extensions.contains(&its.as_str()) => vec![path],
            _ => vec![],
        }
    });
    found.collect()
}
