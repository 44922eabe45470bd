//! Sizes of SQL files.

/// A text without COMMENT ON and without what follows `--`.
pub fn code(text: &str) -> String {
    let (mut kept, mut inside) = (String::new(), false);
    for line in text.lines() {
        // A comment of a statement may hold both signs; a statement that ends in it does not.
        inside |= line.trim_start().starts_with("comment on ");
        if !inside {
            kept.push_str(line.split("--").next().unwrap_or_default());
            kept.push('\n');
        }
        inside &= !line.trim_end().ends_with(';');
    }
    kept
}

/// How many lines are longer than this.
pub fn lines_over(text: &str, columns: usize) -> usize {
    text.lines().filter(|line| line.chars().count() > columns).count()
}

/// The functions that a text makes: schema and lines of code.
pub fn functions(text: &str) -> Vec<(String, usize)> {
    let code = code(text);
    let begins = code.match_indices("create ").filter_map(|(at, begin)| {
        let rest = &code[at + begin.len()..];
        let rest = rest.strip_prefix("or replace ").unwrap_or(rest).strip_prefix("function ")?;
        Some((rest.split_once('.')?.0.trim().to_owned(), length(&code[at..])))
    });
    begins.collect()
}

/// The lines of the statement that a text begins with: to the `;` behind its body.
fn length(text: &str) -> usize {
    let is_tag = |tag: &&str| !tag.contains(|c: char| !c.is_alphabetic() && c != '_');
    let mut parts = text.splitn(2, '$');
    let head = parts.next().unwrap_or_default();
    let rest = parts.next().unwrap_or_default();
    let end = match rest.split('$').next().filter(is_tag) {
        Some(tag) if !head.contains(';') => {
            let quote = format!("${tag}$");
            let body = head.len() + quote.len();
            text[body..].find(&quote).map_or(text.len(), |at| body + at)
        }
        _ => text.find(';').unwrap_or(text.len()),
    };
    text[..end].lines().filter(|line| !line.trim().is_empty()).count()
}
