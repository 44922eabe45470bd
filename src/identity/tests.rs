use super::*;

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let named = |name: &'static str| HeaderName::from_static(name);
    let pairs = pairs.iter().map(|(name, value)| (named(name), value.parse().expect("a value")));
    let mut all = HeaderMap::new();
    pairs.for_each(|(name, value)| {
        all.append(name, value);
    });
    all
}

fn with_tokens() -> Access {
    let token = |name: &str, role: &str| Token {
        hash: hash(&format!("token of {name}")),
        role: role.to_owned(),
        name: name.to_owned(),
    };
    Access { tokens: vec![token("ada", "payments"), token("eve", "viewer")], ..Access::default() }
}

const HOST: (&str, &str) = ("host", "localhost:8080");
const ADA: (&str, &str) = ("authorization", "Bearer token of ada");

#[test]
fn a_person_is_the_line_of_the_token() {
    let access = with_tokens();
    let found = access.person(&headers(&[HOST, ADA])).expect("ada");
    assert_eq!((found.name.as_str(), found.role.as_str()), ("ada", "payments"));
    assert!(found.may_act && !found.has_cookie);
    let cookie = ("cookie", "tuskline_theme=dark; tuskline_token=token of eve");
    let found = access.person(&headers(&[HOST, cookie])).expect("eve");
    assert!(found.name == "eve" && found.has_cookie);
    for wrong in ["Bearer token of bob", "Bearer ", "bearer token of ada", "Bearer token of ada x"]
    {
        let found = access.person(&headers(&[HOST, ("authorization", wrong)]));
        let is_viewer = found.as_ref().is_ok_and(|person| !person.may_act);
        assert!(found == Err(Refusal::SignIn) || is_viewer, "{wrong}: {found:?}");
    }
}

#[test]
fn a_cookie_of_another_server_on_the_host_means_nothing_to_one_without_tokens() {
    let cookie = headers(&[HOST, ("cookie", "tuskline_token=token of ada")]);
    let found = Access::default().person(&cookie).expect("a person who looks");
    assert!(found.role == VIEWER && !found.has_cookie);
    assert_eq!(Access::default().person(&headers(&[HOST, ADA])), Err(Refusal::SignIn));
    let far = Access { is_loopback: false, ..Access::default() };
    assert_eq!(far.person(&cookie), Err(Refusal::SignIn));
}

#[test]
fn a_person_without_a_token_looks_on_loopback_or_where_a_server_only_shows() {
    let far = |access| Access { is_loopback: false, ..access };
    let shows = |access| Access { read_only: true, ..access };
    let near = headers(&[HOST]);
    assert_eq!(Access::default().person(&near).map(|one| one.may_act), Ok(false));
    assert_eq!(far(with_tokens()).person(&near), Err(Refusal::SignIn));
    assert_eq!(far(shows(with_tokens())).person(&near).map(|one| one.may_act), Ok(false));
    let dev = Access { acts_freely: true, ..Access::default() };
    assert_eq!(dev.person(&near).map(|one| one.may_act), Ok(true));
    assert_eq!(shows(dev).person(&near).map(|one| one.may_act), Ok(false));
    let named = Access { hosts: vec!["queue.example".to_owned()], ..with_tokens() };
    let by_name = headers(&[("host", "queue.example")]);
    assert_eq!(named.person(&by_name), Err(Refusal::SignIn));
    assert!(named.person(&headers(&[("host", "queue.example"), ADA])).is_ok());
    assert_eq!(named.person(&headers(&[("host", "evil.example"), ADA])), Err(Refusal::Host));
}

#[test]
fn a_program_has_a_token_in_a_header() {
    let access = with_tokens();
    let cookie = ("cookie", "tuskline_token=token of ada");
    assert_eq!(access.program(&headers(&[HOST, ADA])).map(|one| one.name), Ok("ada".to_owned()));
    for nameless in [&[HOST][..], &[HOST, cookie], &[HOST, ("authorization", "Basic YTpi")]] {
        assert_eq!(access.program(&headers(nameless)), Err(Refusal::SignIn), "{nameless:?}");
    }
    let shows = Access { read_only: true, is_loopback: false, ..Access::default() };
    assert_eq!(shows.program(&headers(&[HOST])), Err(Refusal::SignIn));
    let dev = Access { acts_freely: true, ..Access::default() };
    assert_eq!(dev.program(&headers(&[HOST])).map(|one| one.may_act), Ok(true));
    let far = [("host", "evil.example")];
    assert_eq!(dev.program(&headers(&far)), Err(Refusal::Host));
}

#[test]
fn an_act_is_sent_by_a_page_of_ours_or_with_a_token_in_a_header() {
    let origin = |value| ("origin", value);
    for (pairs, is_ours) in [
        (&[HOST, ("sec-fetch-site", "same-origin")][..], true),
        (&[HOST, ("sec-fetch-site", "same-site")], false),
        (&[HOST, ("sec-fetch-site", "cross-site"), ADA], false),
        (&[HOST, ("sec-fetch-site", "none")], false),
        (&[HOST, origin("http://localhost:8080")], true),
        (&[HOST, origin("http://localhost")], false),
        (&[HOST, origin("null"), ADA], false),
        (&[origin("http://localhost:8080")], false),
        (&[HOST, ADA], true),
        (&[HOST, ("cookie", "tuskline_token=token of ada")], false),
    ] {
        assert_eq!(is_same_origin(&headers(pairs)), is_ours, "{pairs:?}");
    }
}

#[test]
fn a_name_of_a_host_has_no_port() {
    for (host, name) in [("a.example:80", "a.example"), ("[::1]:80", "::1"), ("::1", ""), ("", "")]
    {
        assert_eq!(host_name(host), name, "{host}");
    }
}
