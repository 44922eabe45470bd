use std::collections::BTreeSet;

use super::*;

#[test]
fn the_page_of_errors_lists_each_code_with_its_name() {
    let page = include_str!("../../../docs/errors.md");
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| TK")?.split(" | ");
        let number = cells.next()?.to_owned();
        Some((format!("TK{number}"), cells.next()?.trim_matches('`').to_owned()))
    };
    let listed: BTreeSet<_> = page.lines().filter_map(row).collect();
    let known = Code::ALL.iter().map(|code| (code.as_str().to_owned(), code.name().to_owned()));
    assert_eq!(known.collect::<BTreeSet<_>>(), listed);
}

#[test]
fn a_code_is_found_by_its_sqlstate() {
    for code in Code::ALL {
        assert_eq!(Code::of(code.as_str()), Some(*code));
    }
    assert_eq!(Code::of("TK000"), None);
    assert_eq!(Code::of("23505"), None);
}

#[test]
fn the_kind_follows_from_the_sqlstate() {
    use ErrorKind::{Denied, Fenced, Incompatible, Invalid, Unavailable, Unknown};
    for (sqlstate, read, write) in [
        ("TK001", Invalid, Invalid),
        ("TK011", Unavailable, Unavailable),
        ("TK014", Fenced, Fenced),
        ("28P01", Denied, Denied),
        ("42501", Denied, Denied),
        ("42P01", Incompatible, Incompatible),
        ("25006", Unavailable, Unavailable),
        ("23514", Unavailable, Unavailable),
        ("53300", Unavailable, Unavailable),
        ("40001", Unavailable, Unavailable),
        ("57P01", Unavailable, Unknown),
        ("57014", Unavailable, Unknown),
        ("08006", Unavailable, Unknown),
        ("23505", Invalid, Invalid),
        ("é", Invalid, Invalid),
    ] {
        assert_eq!(kind_of(sqlstate, Unavailable), read, "{sqlstate}");
        assert_eq!(kind_of(sqlstate, Unknown), write, "{sqlstate}");
    }
}

#[test]
fn a_wrong_password_says_where_a_password_comes_from() {
    let error =
        Error::of_server("28P01", "password authentication failed", None, ErrorKind::Unavailable);
    assert_eq!(
        error.hint(),
        Some("the password stands in the address, or else in PGPASSWORD or PGPASSFILE")
    );
}

#[test]
fn each_form_shows_more_than_the_one_before() {
    let mut error = Error::unavailable("error connecting to server").hinting("start it");
    error.0.source = Some(std::io::Error::other("Connection refused").into());
    assert_eq!(error.to_string(), "unavailable: error connecting to server");
    assert_eq!(
        format!("{error:#}"),
        "unavailable: error connecting to server: Connection refused (start it)"
    );
    assert_eq!(
        format!("{error:?}"),
        "unavailable: error connecting to server\n  hint: start it\n  cause: Connection refused"
    );
    assert!(error.is_retryable() && error.sqlstate().is_none() && error.code().is_none());
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn only_an_unavailable_database_is_retryable() {
    assert!(!Error::unknown("no answer").is_retryable());
    let refused = Error::refused(Code::InvalidName, "got \"A\"");
    assert!(!refused.is_retryable());
    assert_eq!(refused.to_string(), "TK002 invalid_name: got \"A\"");
    assert_eq!((refused.sqlstate(), refused.code()), (Some("TK002"), Some(Code::InvalidName)));
}

/// A call that meets the moment in which `migrate` replaces functions has done nothing, and may be made again.
#[test]
fn a_call_that_misses_a_replaced_function_can_be_repeated() {
    let text = "cache lookup failed for function 17079";
    let error = Error::of_server("XX000", text, None, ErrorKind::Unknown);
    assert!(error.is_retryable(), "{error}");
    let other =
        Error::of_server("XX000", "cache lookup failed for type 7", None, ErrorKind::Unknown);
    assert!(!other.is_retryable(), "{other}");
}
