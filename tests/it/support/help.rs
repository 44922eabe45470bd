//! The `--help` text of each command of a program.

use std::path::Path;

use super::program::Call;

/// Every command has a help that fits 80 columns. The directory has one snapshot for each command,
/// one for the options of all commands, and no other.
pub fn check_help(program: &Path, dir: &Path) {
    let mut settings = insta::Settings::clone_current();
    settings.set_omit_expression(true);
    settings.set_snapshot_path(dir);
    settings.set_prepend_module_to_snapshot(false);
    let commands = commands(program);
    let (_, global) = divided(&commands[0].1);
    settings.bind(|| insta::assert_snapshot!("GLOBAL", global));
    let mut files = vec!["GLOBAL.snap".to_owned()];
    let program = program.file_name().unwrap().display();
    for (command, text) in &commands {
        let wide: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(wide.is_empty(), "{command}: {wide:#?}");
        let (own, shared) = divided(text);
        // Their lines break elsewhere beside options with long texts.
        let same = shared.split_whitespace().eq(global.split_whitespace());
        assert!(same, "the global options of {command}: {shared}");
        let name = format!("{program} {command}").trim().replace(' ', "_");
        settings.bind(|| insta::assert_snapshot!(name.as_str(), own));
        files.push(format!("{name}.snap"));
    }
    for file in std::fs::read_dir(dir).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        assert!(files.contains(&name), "{name}: the command is gone, its snapshot is not");
    }
}

/// The `--help` text of one command.
fn help(program: &Path, command: &str) -> String {
    let words = command.split_whitespace().chain(["--help"]);
    Call::of(program, &words.collect::<Vec<_>>()).run().fine()
}

/// Every command with its help. The list comes from the program: its help names them.
fn commands(program: &Path) -> Vec<(String, String)> {
    let mut all = vec![(String::new(), help(program, ""))];
    let mut next = 0;
    while let Some((group, text)) = all.get(next).cloned() {
        next += 1;
        let Some((_, list)) = text.split_once("Commands:\n") else { continue };
        let list = list.split("\n\n").next().unwrap().lines();
        let named = list.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        for name in named.filter_map(|line| line.split_whitespace().next()) {
            if name != "help" {
                let command = format!("{group} {name}").trim().to_owned();
                all.push((command.clone(), help(program, &command)));
            }
        }
    }
    all
}

/// The help of a command without the options of all commands, and these by themselves.
fn divided(text: &str) -> (String, String) {
    let (own, rest) = text.split_once("Global options:\n").unwrap();
    let indented = |line: &&str| line.is_empty() || line.starts_with(' ');
    let after: Vec<_> = rest.lines().skip_while(indented).collect();
    let global: Vec<_> = rest.lines().take_while(indented).collect();
    (format!("{own}{}", after.join("\n")), global.join("\n"))
}
