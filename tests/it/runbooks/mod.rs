//! Each page of docs/runbooks is a drill: a test breaks an installation, and the commands of the page mend
//! it. The commands are those of the page's own blocks, in their order, so page and drill cannot differ.

mod backlog;
mod bad_deploy;
mod disk_full;
mod horizon_held;
mod installation;
mod point_in_time;
mod primary_lost;
mod runbook;

use std::path::{Path, PathBuf};

pub use installation::Installation;
pub use runbook::{Runbook, SHELL, ok_lines, row_counts};

/// The folder of the runbooks.
pub const FOLDER: &str = "docs/runbooks";

/// The runbooks. Each has a file here, of its name with `_` for `-`.
const DRILLS: [&str; 6] =
    ["backlog", "bad-deploy", "disk-full", "horizon-held", "point-in-time", "primary-lost"];

/// Whether a page, named from the root, is a runbook, whose blocks a drill runs.
pub fn has_drill(page: &str) -> bool {
    DRILLS.iter().any(|name| page == format!("{FOLDER}/{name}.md"))
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn each_runbook_has_a_drill_and_a_symptom() {
    let index = std::fs::read_to_string(root().join(FOLDER).join("README.md")).unwrap();
    let pages = std::fs::read_dir(root().join(FOLDER)).unwrap();
    let mut names: Vec<String> = pages
        .map(|page| page.unwrap().file_name().into_string().unwrap())
        .filter_map(|name| name.strip_suffix(".md").map(str::to_owned))
        .filter(|name| name != "README")
        .collect();
    names.sort();
    assert_eq!(names, DRILLS);
    for name in DRILLS {
        let drill = format!("tests/it/runbooks/{}.rs", name.replace('-', "_"));
        let text = std::fs::read_to_string(root().join(&drill)).unwrap_or_default();
        assert!(text.contains(&format!("\"{name}\"")), "{drill} opens the page {name}");
        assert!(index.contains(&format!("]({name}.md)")), "no symptom leads to {name}");
    }
}

/// A page of this folder.
fn page(name: &str) -> String {
    let path = root().join(FOLDER).join(format!("{name}.md"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The directory of a program.
fn directory_of(program: &str) -> &Path {
    Path::new(program).parent().unwrap()
}
