//! Sizes of Rust files. They are formatted by rustfmt, so a closing brace stands under its beginning.

use std::path::Path;

/// Whether a file holds nothing but tests.
pub fn is_test(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "tests")
        || path.file_name().is_some_and(|name| name == "tests.rs")
}

/// A text without its inline modules of tests.
pub fn without_tests(text: &str) -> String {
    let (mut kept, mut inside) = (Vec::new(), false);
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let next = lines.peek().copied().unwrap_or_default();
        inside |= line == "#[cfg(test)]" && next.starts_with("mod ") && next.ends_with('{');
        if !inside {
            kept.push(line);
        }
        inside &= line != "}";
    }
    kept.join("\n")
}

/// Whether a line is neither blank nor a comment.
pub fn is_code(line: &&str) -> bool {
    !line.trim().is_empty() && !line.trim_start().starts_with("//")
}

/// Lines of code: neither blank nor comment.
pub fn code_lines(text: &str) -> usize {
    text.lines().filter(is_code).count()
}

/// The lines of code of each function.
pub fn functions(text: &str) -> Vec<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let begins = (0..lines.len()).filter(|at| is_head(lines[*at]));
    begins.filter_map(|at| length(&lines[at..])).collect()
}

/// Whether a function begins in a line.
fn is_head(line: &str) -> bool {
    let mut words = line.split_whitespace().skip_while(|word| {
        word.starts_with("pub") || ["const", "async", "unsafe", "default"].contains(word)
    });
    words.next() == Some("fn") && words.next().is_some_and(|name| name.contains(['(', '<']))
}

/// The lines of code of the function that begins in the first line; none: it has no body.
fn length(lines: &[&str]) -> Option<usize> {
    let indent = &lines[0][..lines[0].len() - lines[0].trim_start().len()];
    let header = lines.iter().position(|line| line.ends_with(['{', '}', ';']))?;
    let last = match lines[header].chars().last() {
        Some('{') => lines.iter().position(|line| *line == format!("{indent}}}"))?,
        Some('}') => header,
        _ => return None,
    };
    Some(lines[..=last].iter().copied().filter(is_code).count())
}
