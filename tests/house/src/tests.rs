use std::path::PathBuf;

use crate::arrows::circles;
use crate::graph::Graph;
use crate::imports::Imports;
use crate::{Tree, rust, sql, words};

#[test]
fn a_circle_a_writer_and_a_way_past_the_doors_are_found() {
    let graph = Graph::of([
        (
            "exchange",
            "begin perform tuskline_core.attempt_ended(1); perform tuskline_core.take(2); end",
        ),
        ("attempt_ended", "select tuskline_core.grant_concurrency(1)"),
        ("grant_concurrency", "select 1"),
        ("take", "begin execute format('select tuskline_core.take_%1$s(1)', 7); end"),
        ("take_7", "update tuskline.task set finished_at = now() -- tuskline.exchange(1)"),
        ("take_8", "begin raise 'see tuskline.exchange(1)'; perform tuskline_core.take(1); end"),
        (
            "make_take",
            "execute 'create function tuskline_core.take_' || 7; select tuskline_core.take(1)",
        ),
    ]);
    assert_eq!(graph.circles(), [["take", "take_n"]]);
    assert_eq!(graph.writers_of_ends(), ["take_n"]);
    assert_eq!(graph.callers("take"), ["exchange", "make_take", "take_n"]);
    let beside: Vec<_> = graph.reached_beside_doors("exchange").into_iter().collect();
    assert_eq!(beside, ["take", "take_n"]);
}

fn tree(files: &[(&str, &str)]) -> Tree {
    let file = |(path, text): &(&str, &str)| (PathBuf::from(path), (*text).to_owned());
    Tree { files: files.iter().map(file).collect() }
}

#[test]
fn siblings_that_import_each_other_are_a_circle_and_a_parent_with_its_child_is_none() {
    let imports = Imports::of(&tree(&[
        ("lib.rs", "mod a; mod b; pub use a::One;"),
        ("a.rs", "mod c;\nuse crate::{One, b::{Two, self}};\nfn f() { c::g() }"),
        ("a/c.rs", "use super::f;\n// use crate::b;\nfn g() {}"),
        ("b.rs", "mod d;\nmod e;"),
        ("b/d.rs", "use super::e::X;"),
        (
            "b/e.rs",
            "fn h() { crate::a::c::g() }\n#[cfg(test)]\nmod tests {\n    use super::super::d;\n}",
        ),
        ("b/tests.rs", "use super::d;"),
    ]));
    assert_eq!(circles(&imports.arrows), [["a", "b"]]);
    assert!(imports.arrows["b::d"].contains("b::e") && imports.arrows["b::e"].is_empty());
    assert_eq!(imports.from_root, ["a: One"]);
}

#[test]
fn a_command_that_takes_a_name_from_its_dispatcher_is_an_arrow_up() {
    let commands = ('a'..='j').map(|name| (format!("cli/{name}.rs"), "use super::output;"));
    let mut files: Vec<_> = commands.collect();
    files.push(("cli.rs".to_owned(), "mod a; pub struct Global;"));
    files.push(("cli/output.rs".to_owned(), "use super::Global;"));
    files.push(("cli/a/one.rs".to_owned(), "use crate::cli::Global;\nuse super::Other;"));
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    assert_eq!(Vec::from_iter(Imports::of(&tree(&files)).up), ["cli::a cli", "cli::output cli"]);
    assert_eq!(Imports::of(&tree(&files[1..])).up.len(), 2);
    assert!(Imports::of(&tree(&files[2..])).up.is_empty(), "a module of nine rooms");
}

#[test]
fn functions_have_their_lines_of_code() {
    let text = "pub fn one(\n    a: u8,\n) {\n    // why\n\n    a\n}\n\ntrait T {\n    fn two(&self);\n    \
                async fn three() {}\n}\n";
    assert_eq!(rust::functions(text), [5, 1]);
    assert_eq!(rust::code_lines(text), 9);
}

#[test]
fn sql_is_counted_without_its_comments() {
    let text = "create function tuskline.one() returns int language plpgsql as $a$\nbegin -- why\n\n  \
                execute $$ select 1; $$;\nend $a$;\ncomment on function tuskline.one() is\n  'One; -- \
                two.';\ncreate or replace function tuskline_core.two() returns int language sql\nreturn 1;\n";
    let expected = [("tuskline".to_owned(), 4), ("tuskline_core".to_owned(), 2)];
    assert_eq!(sql::functions(text), expected);
    assert!(!sql::code(text).contains("why") && !sql::code(text).contains("two."));
    assert_eq!(sql::lines_over(text, 50), 2);
}

#[test]
fn sentences_are_counted_by_their_first_words_and_names_by_their_definitions() {
    let text = "//! What it is. One more.\n//!\n//! - Of two\n//! lines, e.g. these. (Who knows?)\n\
                fn f() {} // Those too\nlet s = \"// What\";\n/// A-one.\n// Of-fice\n";
    let sentences = words::sentences(text);
    let opened: Vec<_> = sentences.iter().filter(|one| words::opens_privately(one)).collect();
    assert_eq!(sentences.len(), 7, "{sentences:?}");
    assert_eq!(opened, ["What it is.", "Of two lines, e.g. these.", "(Who knows?)", "Those too"]);
    let rust = "struct Hand { told: u8 }\nfn twin(x: &crew::Crew) -> Told { let (a, told) = g(hand);\n\
                for hands in told {} Hand { told: 1 } } // fn crew()";
    assert_eq!(words::private_names(rust, "rs"), ["Hand", "told", "twin", "told", "hands"]);
    let sql = "create function t.told(p_hand text) returns table (trouble text) -- crew text\n\
               select x.trouble as crew from t.hand";
    assert_eq!(words::private_names(sql, "sql"), ["told", "p_hand", "trouble", "crew"]);
}
