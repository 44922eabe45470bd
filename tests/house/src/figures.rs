//! The figures, and what they should be.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;
use serde::Serialize;

use crate::arrows::circles;
use crate::database::Catalogue;
use crate::graph::PARTS;
use crate::imports::Imports;
use crate::rust::{code_lines, functions, is_test, without_tests};
use crate::sql;
use crate::tree::Tree;
use crate::words;

/// Most lines of a file.
const FILE: usize = 350;
/// Most lines of code of a function.
const FUNCTION: usize = 70;
/// Most columns of a line of SQL.
const COLUMNS: usize = 100;

/// The sources of Rust that are bound to sizes.
const RUST: [&str; 3] = ["src", "worker-sdk/src", "crates"];

/// The sources that are bound to the words of the field.
const WORDED: [&str; 5] = ["crates", "migrations", "src", "tests", "worker-sdk"];

/// Private names that a build before this one relies on, by their files. A table migration does not
/// change, and `renewal/rename.sql` renames its column. Servers of function sets 1 and 2 read the answer
/// of `due_periodic` by this name.
const RELIED_ON: [(&str, &str); 2] =
    [("V5__periodic.sql", "trouble"), ("functions/periodic/due_periodic.sql", "troubles")];

/// A figure beside its target.
#[derive(Debug, Serialize)]
pub struct Figure {
    /// For programs.
    pub name: String,
    /// For people.
    pub what: String,
    /// Its description.
    pub value: usize,
    /// Its value at commit 26334c6, before the second building; of a later figure, at 7d731a0.
    pub before: Option<usize>,
    /// The most that it should be; none: it is shown only.
    pub at_most: Option<usize>,
    /// The things that it counts, where they say more than a number.
    pub found: Vec<String>,
}

impl Figure {
    fn of(name: &str, what: &str, value: usize) -> Self {
        let (name, what) = (name.to_owned(), what.to_owned());
        Self { name, what, value, before: None, at_most: None, found: Vec::new() }
    }

    fn list(name: &str, what: &str, found: Vec<String>) -> Self {
        Self { value: found.len(), found, ..Self::of(name, what, 0) }
    }

    fn before(self, value: usize) -> Self {
        Self { before: Some(value), ..self }
    }

    fn at_most(self, value: usize) -> Self {
        Self { at_most: Some(value), ..self }
    }

    /// Whether it is what it should be.
    pub fn is_met(&self) -> Option<bool> {
        Some(self.value <= self.at_most?)
    }
}

/// Every figure.
///
/// # Errors
/// A file is missing.
pub fn all(root: &Path, catalogue: &Catalogue) -> anyhow::Result<Vec<Figure>> {
    let mut figures = of_sql(root)?;
    figures.extend(of_calls(catalogue));
    figures.extend(of_rust(root)?);
    figures.push(of_settings(root)?);
    figures.extend(of_sizes(root)?);
    figures.extend(of_words(root)?);
    Ok(figures)
}

/// Where a new setting of a lambda has to be added, by the example of one.
fn of_settings(root: &Path) -> anyhow::Result<Figure> {
    let mut found = Vec::new();
    for (directory, extension) in [("migrations", "sql"), ("src", "rs"), ("worker-sdk/src", "rs")] {
        let tree = Tree::read(root, directory, extension)?;
        let naming = tree.files.iter().filter(|(_, text)| text.contains("max_backlog"));
        found.extend(naming.map(|(path, _)| format!("{directory}/{}", path.display())));
    }
    let figure = Figure::list("setting_files", "files that name a setting of a lambda", found);
    Ok(figure.before(11).at_most(6))
}

fn of_sql(root: &Path) -> anyhow::Result<Vec<Figure>> {
    let tree = Tree::read(root, "migrations/functions", "sql")?;
    let mut schemas = BTreeMap::<String, usize>::new();
    for (schema, _) in tree.texts().flat_map(sql::functions) {
        *schemas.entry(schema).or_default() += 1;
    }
    let functions = schemas.into_iter().map(|(schema, count)| {
        let figure = Figure::of(
            &format!("functions_{schema}"),
            &format!("SQL functions in {schema}"),
            count,
        );
        if schema == "tuskline" { figure.before(251) } else { figure }
    });
    let bytes = tree.texts().map(|text| sql::code(text).len()).sum();
    let bytes = Figure::of("sql_bytes", "bytes of SQL code, comments left out", bytes);
    Ok(functions.chain([bytes.before(292_145).at_most(248_000)]).collect())
}

fn of_calls(catalogue: &Catalogue) -> [Figure; 4] {
    let graph = &catalogue.graph;
    let circles = graph.circles().into_iter().max_by_key(Vec::len).unwrap_or_default();
    let mut writers: Vec<&str> = graph.writers_of_ends();
    for writer in &mut writers {
        *writer = PARTS.iter().find(|(part, _)| part == writer).map_or(*writer, |(_, of)| of);
    }
    writers.sort_unstable();
    writers.dedup();
    let reached = graph.reached_beside_doors("exchange");
    let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect::<Vec<_>>();
    let list = Figure::list;
    [
        list("circle", "functions in the largest circle of calls", owned(circles))
            .before(10)
            .at_most(0),
        list("writers_of_ends", "functions that end tasks", owned(writers)).before(11).at_most(2),
        list(
            "exchange",
            "functions that exchange reaches beside doors",
            owned(Vec::from_iter(reached)),
        )
        .before(54)
        .at_most(30),
        list("timer_kinds", "meanings of a row of timer", catalogue.timer_kinds.clone()).before(6),
    ]
}

fn of_rust(root: &Path) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (name, directory, [lines_before, circles_before], aim) in
        [("sdk", "worker-sdk/src", [5_547, 0], Some(4_715)), ("server", "src", [12_705, 2], None)]
    {
        let tree = Tree::read(root, directory, "rs")?;
        let imports = Imports::of(&tree);
        let code = tree.files.iter().filter(|(path, _)| !is_test(path));
        let code = code.map(|(_, text)| code_lines(&without_tests(text))).sum();
        let lines = format!("lines of code in {directory}, tests left out");
        let lines = Figure::of(&format!("{name}_lines"), &lines, code).before(lines_before);
        figures.push(Figure { at_most: aim, ..lines });
        let found = circles(&imports.arrows).into_iter().map(|circle| circle.join(" "));
        let what = format!("import circles in {directory}");
        let found = Figure::list(&format!("{name}_circles"), &what, found.collect());
        figures.push(found.before(circles_before).at_most(0));
        let what = format!("names taken from the root of {directory}");
        figures.push(Figure::list(&format!("{name}_from_root"), &what, imports.from_root));
        figures.extend((name == "sdk").then(|| doors_of_controller(&tree)));
        if name == "server" {
            let up = Vec::from_iter(imports.up);
            let up = Figure::list("arrows_up", "arrows up to a dispatcher in src", up);
            figures.push(up.before(26).at_most(3));
        }
    }
    Ok(figures)
}

/// The methods by which the rooms of a worker call its controller.
fn doors_of_controller(sdk: &Tree) -> Figure {
    let is_room = |path: &Path| path.starts_with("worker/controller") && !is_test(path);
    let rooms = sdk.files.iter().filter(|(path, text)| {
        (is_room(path) || path == Path::new("worker/controller.rs"))
            && text.contains("\nimpl Controller {")
    });
    let method = |line: &str| {
        let rest = line.strip_prefix("    pub(crate) ")?;
        let rest = rest.strip_prefix("async ").unwrap_or(rest).strip_prefix("fn ")?;
        rest.split_once('(').map(|(name, _)| name.to_owned()).filter(|name| name != "new")
    };
    let doors = rooms.flat_map(|(_, text)| text.lines()).filter_map(method).collect();
    Figure::list("controller_doors", "doors of a worker's controller", doors).at_most(36)
}

fn of_sizes(root: &Path) -> anyhow::Result<Vec<Figure>> {
    let (mut files, mut long) = (Vec::new(), Vec::new());
    for directory in RUST {
        for (path, text) in Tree::read(root, directory, "rs")?.files {
            if is_test(&path) {
                continue;
            }
            let path = format!("{directory}/{}", path.display());
            let over = functions(&text).into_iter().filter(|lines| *lines > FUNCTION);
            long.extend(over.map(|lines| format!("{path}: {lines}")));
            files.push((path, text));
        }
    }
    let (mut wide, mut columns) = (Vec::new(), 0);
    for (path, text) in Tree::read(root, "migrations", "sql")?.files {
        let path = format!("migrations/{}", path.display());
        let over = sql::functions(&text).into_iter().filter(|(_, lines)| *lines > FUNCTION);
        long.extend(over.map(|(_, lines)| format!("{path}: {lines}")));
        let lines = sql::lines_over(&text, COLUMNS);
        wide.extend((lines > 0).then(|| format!("{path}: {lines}")));
        columns += lines;
        files.push((path, text));
    }
    files.retain(|(_, text)| text.lines().count() > FILE);
    let files = files.into_iter().map(|(path, text)| format!("{path}: {}", text.lines().count()));
    let readme = std::fs::read_to_string(root.join("README.md")).context("README.md")?;
    Ok(vec![
        Figure::list("long_files", "files over 350 lines, tests left out", files.collect())
            .before(0)
            .at_most(0),
        Figure::list("long_functions", "functions over 70 lines of code", long)
            .before(1)
            .at_most(0),
        Figure { value: columns, ..Figure::list("wide_sql", "SQL lines over 100 columns", wide) }
            .before(1_826)
            .at_most(0),
        Figure::of("readme_lines", "lines of README.md", readme.lines().count())
            .before(658)
            .at_most(150),
    ])
}

fn of_words(root: &Path) -> anyhow::Result<[Figure; 2]> {
    let (mut opened, mut sentences, mut names) = (Vec::new(), 0, Vec::new());
    for (path, text) in Tree::read(root, "tests", "rs")?.files {
        let all = words::sentences(&text);
        sentences += all.len();
        let found = all.iter().filter(|sentence| words::opens_privately(sentence));
        opened.extend(found.map(|sentence| format!("tests/{}: {sentence}", path.display())));
    }
    for directory in WORDED {
        for extension in ["rs", "sql"] {
            for (path, text) in Tree::read(root, directory, extension)?.files {
                // The tests of this crate quote private names.
                if directory == "tests" && path.starts_with("house") {
                    continue;
                }
                let mut found = words::private_names(&text, extension);
                found.retain(|name| !RELIED_ON.contains(&(&path.to_string_lossy(), name)));
                names.extend(
                    found.iter().map(|name| format!("{directory}/{}: {name}", path.display())),
                );
            }
        }
    }
    let value = (100 * opened.len()).div_ceil(sentences.max(1));
    let openers =
        Figure::list("test_openers", "% of tests' sentences that open Who, What, Of", opened);
    let what = "names hand, rhythm, twin, crew, told, trouble";
    Ok([
        Figure { value, ..openers }.before(9).at_most(2),
        Figure::list("private_names", what, names).before(708).at_most(0),
    ])
}

/// A table within 80 columns.
pub fn table(figures: &[Figure]) -> String {
    let mut text = format!("{:<48} {:>8} {:>8} {:>8}\n", "figure", "value", "before", "target");
    for figure in figures {
        let or_nothing = |value: Option<usize>| value.map(|value| value.to_string());
        let before = or_nothing(figure.before).unwrap_or_default();
        let target = or_nothing(figure.at_most).unwrap_or_default();
        let met = if figure.is_met() == Some(false) { " NO" } else { "" };
        let (what, value) = (&figure.what, figure.value);
        let line = format!("{what:<48} {value:>8} {before:>8} {target:>8}{met}");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text + "\ntarget: at most so many; before: at 26334c6 (later figures: 7d731a0)\n"
}
