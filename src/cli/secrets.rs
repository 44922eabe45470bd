//! Addresses in the text of an error. An address in the wrong place comes back in an error, and it may hold
//! a password.
//!
//! Must never: let the password of an argument or of one of our variables through.

/// Stands in the text instead.
const HIDDEN: &str = "(hidden address)";

/// The text without addresses that may hold a password.
pub fn hide(text: &str) -> String {
    let arguments = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let ours =
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TUSKLINE_"));
    let ours = ours.map(|(_, value)| value.to_string_lossy().into_owned());
    hide_words(text, arguments.chain(ours))
}

/// Whether a text holds a hidden address.
pub fn is_hidden(text: &str) -> bool {
    text.contains(HIDDEN)
}

/// Hides these words where they are addresses, then what looks like one: an error may cut or change a word.
fn hide_words(text: &str, words: impl Iterator<Item = String>) -> String {
    let mut secrets = Vec::new();
    for word in words {
        // `--listen=ADDRESS` is quoted without its option.
        let value = word.split_once('=').filter(|_| word.starts_with('-')).map(|(_, value)| value);
        for form in [Some(word.as_str()), value].into_iter().flatten() {
            if may_hold_password(form) {
                let in_one_line = form.split_whitespace().collect::<Vec<_>>().join(" ");
                let in_sql = form.replace('\'', "''");
                let escaped = format!("{form:?}").trim_matches('"').to_owned();
                secrets.extend([form.to_owned(), in_one_line, in_sql, escaped]);
            }
        }
    }
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    let known = secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret, HIDDEN));
    hide_rest(&known)
}

/// An address in one of its forms: `scheme://user:password@host`, the same without a scheme, or pairs.
fn may_hold_password(word: &str) -> bool {
    let colon_before_at = word.rfind('@').is_some_and(|at| word[..at].contains(':'));
    colon_before_at || word.to_ascii_lowercase().contains("password")
}

/// Hides each word of a text that begins an address with a user and a password, or gives a password.
fn hide_rest(text: &str) -> String {
    let is_edge = |c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '`');
    text.split_inclusive(is_edge)
        .map(|piece| {
            let word = piece.trim_end_matches(is_edge);
            let lower = word.to_ascii_lowercase();
            let after = lower.find("postgres://").map(|at| at + "postgres://".len());
            let after =
                after.or_else(|| lower.find("postgresql://").map(|at| at + "postgresql://".len()));
            let login = after.map(|at| word[at..].split('@').next().unwrap_or_default());
            let is_login = login.is_some_and(|login| login.contains(':'));
            match is_login || lower.contains("password=") {
                true => format!("{HIDDEN}{}", &piece[word.len()..]),
                false => piece.to_owned(),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(text: &str, words: &[&str]) -> String {
        hide_words(text, words.iter().map(|word| (*word).to_owned()))
    }

    #[test]
    fn an_address_in_the_wrong_place_is_not_quoted() {
        for (word, quoted) in [
            ("postgresql://me:pw@db/shop", "postgresql://me:pw@db/shop"),
            ("--listen=postgres://me:pw@db", "postgres://me:pw@db"),
            ("POSTGRESQL://me:p w'@db", "POSTGRESQL://me:p w''@db"),
            ("me:pw@db/shop", "me:pw@db/shop"),
            ("host=db password=pw user=me", "host=db password=pw user=me"),
            ("host=db password='p w'", "host=db password='p w'"),
            // Cut, or changed.
            ("postgresql://me:pw@db/shop", "postgresql://me:pw"),
            ("host=db password=pw", "password=pw user"),
        ] {
            let text = hidden(&format!("unexpected argument '{quoted}' found"), &[word]);
            assert!(!text.contains("pw") && !text.contains("p w"), "{text}");
            assert!(text.starts_with("unexpected argument '") && is_hidden(&text), "{text}");
        }
    }

    #[test]
    fn an_address_without_a_password_and_other_words_stay() {
        for text in [
            "give postgresql://user@host:5432/database",
            "TK001 unknown_lambda: no lambda named mail",
            "check user and password in --database-url, or PGPASSWORD",
        ] {
            assert_eq!(hidden(text, &["task", "schedule", "mail", "--after=5m"]), text);
        }
    }
}
